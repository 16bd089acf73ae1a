//! What kubelet is answered.
//!
//! kubelet takes most codes for the last word: if the volume was not mounted before, it forgets that it ever asked, and
//! never calls NodeUnpublishVolume (kubernetes `csi_client.go`, `isFinalError`). So such a code needs the proof that
//! there is no claim any more.

use tonic::{Code, Status};

use crate::api::{ClaimUid, VolumeClaim};

/// Proof that no claim exists for the call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoClaim(());

impl NoClaim {
    /// The call does not say what a claim would be named by.
    pub fn unnamed() -> Self {
        Self(())
    }

    /// This call has made none, and of an earlier one none is known.
    pub fn unless(known: bool) -> Option<Self> {
        (!known).then_some(Self(()))
    }

    /// What a live GET has found under the claim's name is not the claim of this UID.
    pub fn in_place_of(uid: &ClaimUid, found: Option<&VolumeClaim>) -> Option<Self> {
        let is_it = found.is_some_and(|found| ClaimUid::of(&found.metadata) == *uid);
        (!is_it).then_some(Self(()))
    }
}

/// Why a call of kubelet's has failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unanswered {
    /// kubelet is to ask again: the volume may be mounted later, or is already.
    #[error("{0}")]
    Again(String),
    /// What kubelet waited for was taken back.
    #[error("{0}")]
    TakenBack(String),
    /// It will never be as kubelet wants it, and there is no claim.
    #[error("{1}")]
    Final(FinalCode, String),
}

/// The codes that kubelet takes for the last word, as far as they are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FinalCode {
    /// The request contradicts itself.
    InvalidArgument,
    /// The CSIDriver object or the Plugin is not as it has to be.
    FailedPrecondition,
    /// The Pod has no right to the volume.
    PermissionDenied,
}

impl Unanswered {
    /// An answer that is the last word.
    pub fn last_word(_: NoClaim, code: FinalCode, message: String) -> Self {
        Self::Final(code, message)
    }
}

impl From<Unanswered> for Status {
    fn from(unanswered: Unanswered) -> Self {
        let code = match &unanswered {
            Unanswered::Again(_) => Code::Unavailable,
            Unanswered::TakenBack(_) => Code::Aborted,
            Unanswered::Final(FinalCode::InvalidArgument, _) => Code::InvalidArgument,
            Unanswered::Final(FinalCode::FailedPrecondition, _) => Code::FailedPrecondition,
            Unanswered::Final(FinalCode::PermissionDenied, _) => Code::PermissionDenied,
        };
        Self::new(code, unanswered.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As kubelet sorts them: these leave the volume uncertain, so that it is unpublished when the Pod goes.
    #[test]
    fn only_the_last_word_is_one_for_kubelet() {
        let uncertain = [
            Code::Cancelled,
            Code::DeadlineExceeded,
            Code::Unavailable,
            Code::ResourceExhausted,
            Code::Aborted,
        ];
        let code = |unanswered| Status::from(unanswered).code();
        assert!(uncertain.contains(&code(Unanswered::Again("x".into()))));
        assert!(uncertain.contains(&code(Unanswered::TakenBack("x".into()))));
        for last in [FinalCode::InvalidArgument, FinalCode::FailedPrecondition, FinalCode::PermissionDenied] {
            let answer = Unanswered::last_word(NoClaim::unnamed(), last, "x".into());
            assert!(!uncertain.contains(&code(answer)), "{last:?}");
        }
    }
}
