//! Growth: a volume that was made larger is to be as large on this node.
//!
//! NodeExpandVolume is made once for an Attachment and a size, at the target of a claim that may write, as kubelet does it. It
//! leaves nothing that the undo would not undo anyway, so no record speaks of it: whoever has not written that it was made
//! makes it again, which CSI wants to be harmless. When it fails the claims go on as they are, and nobody waits for it.

use super::step::{LiveAttachment, NodeStep, Seen};
use crate::api::ClaimState;
use crate::attachment::observed::AttachmentSeen;
use crate::claim::ClaimSeen;

/// The call that comes before a claim is Ready which has just been mounted, where nobody has tried it before.
pub(super) fn before_ready(seen: &Seen, claim: &ClaimSeen, attachment: &AttachmentSeen) -> Option<NodeStep> {
    let is_for_it = is_due(seen, attachment) && claim.grows_on(attachment);
    is_for_it.then(|| call(seen, claim, attachment))
}

/// The call for a volume that is in use.
pub(super) fn grow(seen: &Seen) -> Option<NodeStep> {
    let own = seen.attachments.iter().filter_map(|a| seen.attachment(&a.uid));
    own.filter(|attachment| is_due(seen, attachment)).find_map(|attachment| {
        let record = seen.record(&attachment.uid)?;
        let has_it = |claim: &&ClaimSeen| {
            claim.grows_on(attachment)
                && seen.wants(claim, &attachment.uid)
                && seen.is_mounted(record, &claim.uid)
        };
        seen.claims.iter().find(has_it).map(|claim| call(seen, claim, attachment))
    })
}

/// Whether the call may be made now for this Attachment.
fn is_due(seen: &Seen, attachment: &AttachmentSeen) -> bool {
    let is_in_use =
        |claim: &ClaimSeen| claim.state == ClaimState::Ready && claim.uses() == Some(&attachment.uid);
    attachment.growth.is_due()
        && attachment.is_usable()
        && attachment.node_uid == seen.node_uid
        && !seen.grows_later.contains(&attachment.uid)
        && !(seen.grows_only_unused && seen.claims.iter().any(is_in_use))
}

/// The call, after a look at the Attachment: a node that was lost meanwhile has the volume mounted still, and may not touch
/// it (rule R1).
fn call(seen: &Seen, claim: &ClaimSeen, attachment: &AttachmentSeen) -> NodeStep {
    let (uid, name) = (attachment.uid.clone(), attachment.name.clone());
    match seen.live(&uid) {
        Some(LiveAttachment::Present(_)) => NodeStep::Grow { claim: claim.uid.clone(), attachment: uid },
        Some(LiveAttachment::Gone) | None => NodeStep::ReadAttachment { attachment: uid, name },
    }
}

#[cfg(test)]
#[path = "growth_tests.rs"]
mod tests;
