//! When a claim's finalizer comes off.

use super::observed::ClaimSeen;
use crate::api::{ClaimState, FINALIZER, VolumeClaim, has_finalizer};
use crate::attachment::AttachmentSeen;

impl VolumeClaim {
    /// Whether moor has let it go: it is deleted, and whoever holds it still is not moor. To moor it is then as if it were gone, which
    /// it may be at any moment.
    #[must_use]
    pub fn is_let_go(&self) -> bool {
        self.metadata.deletion_timestamp.is_some() && !has_finalizer(&self.metadata, FINALIZER)
    }
}

/// One step of the leader about one deleted claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReleaseStep {
    /// The node has undone its part and others stay, or it never used the grant: take the finalizer off.
    Free,
    /// The cache no longer has the Attachment: GET it, and take the finalizer off only if it is gone or
    /// another object has its name (rule R1).
    FreeIfAttachmentGone,
}

/// Plans for one claim. `attachments` are those of its volume as the cache has them.
#[must_use]
pub fn plan(claim: &ClaimSeen, attachments: &[AttachmentSeen]) -> Option<ReleaseStep> {
    if !claim.deleted || !claim.held {
        return None;
    }
    if claim.state == ClaimState::NodeDetached {
        return Some(ReleaseStep::Free);
    }
    let Some(uid) = claim.uses() else { return Some(ReleaseStep::Free) };
    let known = attachments.iter().any(|a| a.uid == *uid);
    (!known).then_some(ReleaseStep::FreeIfAttachmentGone)
}
