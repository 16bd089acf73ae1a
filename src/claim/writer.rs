//! MultiNodeSingleWriter: many readers, one writer in the whole cluster (docs/adr/0005-the-writers-lock.md).
//!
//! In this mode each node has an Attachment of its own, so no Attachment's name keeps a second writer out. The
//! VolumeHandle does: it names one claim on one Attachment, and that claim's node reads the name before its first
//! call. Who replaces it writes its successor's name first, looks at it then, and assigns the successor last (as
//! rule R3 closes, lists and opens): a node that read the old name did so before the look, which found its claim.

use super::observed::ClaimSeen;
use super::reason::{Holder, Waiting};
use super::without_lock::keeps_off;
use crate::api::handle::{Writer, WriterRef};
use crate::api::{AttachmentUid, ClaimState};
use crate::attachment::{AttachmentSeen, HandleSeen};

/// Whether a writer that was replaced has nothing mounted and never will: its claim is not on that Attachment (an
/// assignment that still comes finds another name), is off its node, or the Attachment itself is gone. A claim that
/// is gone proves nothing: one removed by hand may still be mounted (trap N14).
///
/// `claim` is the one with the recorded UID, if there is one; `locked`, that the recorded Attachment exists.
#[must_use]
pub fn has_let_go(writer: &WriterRef, claim: Option<&ClaimSeen>, locked: bool) -> bool {
    let left =
        |c: &ClaimSeen| c.state == ClaimState::NodeDetached || c.uses() != Some(&writer.attachment_uid);
    !locked || claim.is_some_and(left)
}

/// What the VolumeHandle must say before this claim is freed while its Attachment stays: that it wrote and is done.
/// Afterwards nobody could tell it from one that was removed by hand.
#[must_use]
pub fn retire(handle: Option<&HandleSeen>, claim: &ClaimSeen) -> Option<Writer> {
    let writer = handle?.writer.as_ref()?;
    let is_it = |w: &WriterRef| w.claim_uid == claim.uid && has_let_go(w, Some(claim), true);
    let (holder, after) =
        (is_it(&writer.holder) && !writer.released, writer.after.as_ref().is_some_and(is_it));
    (holder || after).then(|| Writer {
        holder: writer.holder.clone(),
        grant: writer.grant + 1,
        released: writer.released || holder,
        after: writer.after.clone().filter(|_| !after),
    })
}

/// Whom a claim waits for before it may be named, as far as the caches know. They may be behind: what counts is
/// looked at live, after the name is written.
pub fn wait_for_writer(
    claim: &ClaimSeen,
    handle: &HandleSeen,
    claims: &[ClaimSeen],
    attachments: &[AttachmentSeen],
) -> Result<(), Waiting> {
    if !claim.needs_writer_lock() {
        return Ok(());
    }
    let lock = |uid: &AttachmentUid| attachments.iter().find(|a| a.uid == *uid);
    let writes = |c: &&ClaimSeen| {
        let lost = c.state == ClaimState::Lost;
        c.needs_writer_lock() && c.uid != claim.uid && c.uses().is_some_and(|u| !lost || lock(u).is_some())
    };
    keeps_off(claims.iter().find(writes).as_ref())?;
    let named = handle
        .writer
        .iter()
        .flat_map(|w| Some(&w.holder).filter(|_| !w.released).into_iter().chain(&w.after));
    for writer in named.filter(|w| w.claim_uid != claim.uid) {
        let lock = lock(&writer.attachment_uid);
        let of_it = claims.iter().find(|c| c.uid == writer.claim_uid);
        if let Some(lock) = lock.filter(|_| !has_let_go(writer, of_it, true)) {
            let (who, node) = (writer.claim.clone(), lock.node.clone());
            return Err(Waiting::Held(Holder {
                who,
                pod: None,
                node,
                state: "removed".into(),
                silence: None,
            }));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::AccessMode;
    use crate::fixtures;

    fn claim(uid: &str, on: Option<&str>) -> ClaimSeen {
        let waits = || fixtures::claim(uid);
        let claim = on.map_or_else(waits, |on| fixtures::granted(uid, &fixtures::attachment(on)));
        ClaimSeen { mode: AccessMode::MultiNodeSingleWriter, ..claim }
    }

    fn on(attachment: &str) -> WriterRef {
        WriterRef { claim_uid: "a".into(), attachment_uid: attachment.into(), ..WriterRef::default() }
    }

    #[test]
    fn a_claim_on_its_attachment_has_not_let_go() {
        let mut holder = claim("a", Some("u1"));
        assert!(!has_let_go(&on("u1"), Some(&holder), true));
        holder.deleted = true;
        assert!(!has_let_go(&on("u1"), Some(&holder), true));
    }

    #[test]
    fn a_lost_claim_has_let_go_with_its_attachment() {
        let holder = ClaimSeen { state: ClaimState::Lost, ..claim("a", Some("u1")) };
        assert!(!has_let_go(&on("u1"), Some(&holder), true));
        assert!(has_let_go(&on("u1"), Some(&holder), false));
    }

    #[test]
    fn a_claim_that_gave_back_or_moved_has_let_go() {
        let yielded = ClaimSeen { yielded: Some("u1".into()), ..claim("a", Some("u1")) };
        assert!(has_let_go(&on("u1"), Some(&yielded), true));
        assert!(has_let_go(&on("u1"), Some(&claim("a", Some("u2"))), true));
        assert!(has_let_go(&on("u1"), Some(&claim("a", None)), true));
        let detached = ClaimSeen { state: ClaimState::NodeDetached, ..claim("a", Some("u1")) };
        assert!(has_let_go(&on("u1"), Some(&detached), true));
    }

    #[test]
    fn a_claim_that_was_removed_by_hand_has_not_let_go() {
        assert!(!has_let_go(&on("u1"), None, true));
        assert!(has_let_go(&on("u1"), None, false));
    }

    #[test]
    fn readers_wait_for_no_writer() {
        let reader = ClaimSeen { read_only: true, ..claim("b", None) };
        let handle = fixtures::handle();
        let claims = [claim("a", Some("u1"))];
        assert!(wait_for_writer(&reader, &handle, &claims, &[]).is_ok());
        assert!(wait_for_writer(&claim("b", None), &handle, &claims, &[]).is_err());
    }

    #[test]
    fn only_a_writer_that_is_done_is_retired_and_only_once() {
        let handle = |writer| HandleSeen { writer, ..fixtures::handle() };
        let named = |released, after: Option<&str>| {
            let after = after.map(on);
            handle(Some(Writer { holder: on("u1"), grant: 4, released, after }))
        };
        let done = ClaimSeen { state: ClaimState::NodeDetached, ..claim("a", Some("u1")) };
        let told = retire(Some(&named(false, None)), &done);
        assert_eq!(told, Some(Writer { holder: on("u1"), grant: 5, released: true, after: None }));
        assert_eq!(retire(Some(&named(true, None)), &done), None, "it is told already");
        assert_eq!(retire(Some(&named(false, None)), &claim("a", Some("u1"))), None, "it still writes");
        let another = ClaimSeen { state: ClaimState::NodeDetached, ..claim("b", Some("u1")) };
        assert_eq!(retire(Some(&named(false, None)), &another), None, "it is not named");
        let before = retire(Some(&named(true, Some("u0"))), &done);
        assert_eq!(before.map(|w| (w.released, w.after)), Some((true, None)), "the one before it");
        assert_eq!(retire(Some(&handle(None)), &done), None);
        assert_eq!(retire(None, &done), None);
    }
}
