//! When the leader closes an Attachment and when it frees the lock.

use super::observed::AttachmentSeen;
use crate::claim::ClaimSeen;

/// One step of the leader about one Attachment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ClosingStep {
    /// Delete the Attachment: its deletionTimestamp is what closes it.
    Close,
    /// Delete the Attachment if a live look at the claims finds none that uses it. The cache does not say who used
    /// it: a claim that was assigned a moment ago, perhaps by an earlier leader, is not in a cache that is behind.
    CloseIfUnused,
    /// Take the last finalizer off: everything is undone.
    Free,
    /// Take the last finalizer off if live looks, made now, find it still certain that the node is not at work
    /// ([`super::loss::is_still_out`]).
    ///
    /// `spec.lost` was written after looks that allowed it, and the machine may have started in between: then its agent
    /// read an Attachment that was not lost and uses it. An agent that comes after a look of now renews its Lease before
    /// its first call and then reads that the Attachment is lost. One that came before is left to undo what it made, and
    /// says `NodeDetached`.
    FreeIfStillOut,
}

/// What the leader remembers of an Attachment that nobody uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Unused {
    /// It was used a moment ago: the time for which it stays attached is not over.
    pub lingers: bool,
    /// This leader saw a claim leave it, so that what the caches say of it is later than that claim's assignment.
    pub was_used: bool,
}

/// Plans for one Attachment. `claims` are all claims of its Volume as the cache has them. A stale cache only closes too
/// early: the node gives back a claim that is not mounted yet, and keeps a mount until its claim goes.
///
/// While etcd may have been restored (`cautious`) it does not count that nobody uses an Attachment: a claim that has joined
/// it may not be there, or not be assigned to it, whoever else is known to have used it; its node says so first.
///
/// One that lingers stays as it is: whoever comes back to its node joins it, and is spared that it is detached and attached.
/// Nothing is risked by that: the lock is held for longer, by nobody.
#[must_use]
pub fn plan(
    attachment: &AttachmentSeen,
    claims: &[ClaimSeen],
    cautious: bool,
    unused: Unused,
) -> Option<ClosingStep> {
    if attachment.let_go {
        // There is nothing left to do, and the next one has its turn.
        return None;
    }
    if attachment.deleted {
        let unfenced = attachment.is_lost_unfenced().then_some(ClosingStep::FreeIfStillOut);
        return if attachment.is_undone() { Some(ClosingStep::Free) } else { unfenced };
    }
    let used = claims.iter().any(|c| !c.deleted && c.uses() == Some(&attachment.uid));
    // Of one that has left, its node's answer or its deletion is later than its assignment.
    let known = unused.was_used || claims.iter().any(|c| c.names(&attachment.uid));
    match (attachment.is_leaving(), used) {
        (true, _) => Some(ClosingStep::Close),
        (false, true) => None,
        (false, false) if cautious || unused.lingers => None,
        (false, false) if known => Some(ClosingStep::Close),
        (false, false) => Some(ClosingStep::CloseIfUnused),
    }
}
