//! When the leader closes an Attachment and when it frees the lock.

use super::observed::AttachmentSeen;
use crate::api::AttachmentState;
use crate::claim::ClaimSeen;

/// One step of the leader about one Attachment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ClosingStep {
    /// Delete the Attachment: its deletionTimestamp is what closes it.
    Close,
    /// Take the last finalizer off: everything is undone.
    Free,
}

/// Plans for one Attachment. `claims` are all claims of its Volume as the cache has them; a stale cache
/// only closes too early, and the node gives such a claim back.
#[must_use]
pub fn plan(attachment: &AttachmentSeen, claims: &[ClaimSeen]) -> Option<ClosingStep> {
    let undone = attachment.is_undone();
    if attachment.deleted {
        return undone.then_some(ClosingStep::Free);
    }
    let used = claims.iter().any(|c| !c.deleted && c.uses() == Some(&attachment.uid));
    let leaving = attachment.state >= AttachmentState::NodeDetached
        || attachment.lost
        || undone
        || attachment.is_undo_only();
    (leaving || !used).then_some(ClosingStep::Close)
}
