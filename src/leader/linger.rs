//! Whether an Attachment that nobody uses any more stays attached for a while, for whoever comes back to its node (ADR 27).

use super::scene::Scene;
use crate::attachment::AttachmentSeen;
use crate::claim::ClaimSeen;
use crate::claim::admission::{self, Grant, Verdict};

/// Whether anything is gained by leaving an Attachment attached that was used a moment ago: a claim that came back to its
/// node could join it. Whether nobody wants the volume otherwise is another question ([`is_wanted_otherwise`]).
pub(super) fn may_stay(scene: &Scene<'_>, attachment: &AttachmentSeen) -> bool {
    attachment.may_linger()
        && is_open(scene, attachment)
        && is_node_kept(scene, attachment)
        && !is_forced(scene, attachment)
}

/// Whether the volume can still be granted on this Attachment: the Volume that it was made for is in use, and its
/// VolumeHandle is open under the Attachment's epoch.
fn is_open(scene: &Scene<'_>, attachment: &AttachmentSeen) -> bool {
    let volume = scene.volume_seen.filter(|v| v.ready && !v.deleted && v.uid == attachment.volume_uid);
    let handle = scene.handle.filter(|h| {
        !h.closing
            && h.epoch == attachment.epoch
            && h.mode == attachment.mode
            && h.volume_uid == attachment.volume_uid
    });
    volume.is_some() && handle.is_some()
}

/// Whether claims are granted on the Attachment's node and Pods come to it. A node that goes is asked for its part while its
/// agent can still answer: without that the volume would stay there until somebody says that the node is lost (rule R4).
fn is_node_kept(scene: &Scene<'_>, attachment: &AttachmentSeen) -> bool {
    scene.nodes.iter().any(|node| {
        node.name == attachment.node
            && node.uid == attachment.node_uid
            && node.healthy
            && !node.unclean
            && node.twin.is_none()
            && !node.retires
    })
}

/// Whether somebody has ordered a claim on it to be detached by force.
fn is_forced(scene: &Scene<'_>, attachment: &AttachmentSeen) -> bool {
    scene.claims.iter().any(|claim| claim.deleted && claim.force && claim.names(&attachment.uid))
}

/// Whether a claim waits that cannot join what is attached, now or when the claims that leave have left: it names another
/// node, another mode, or was given back.
pub(super) fn is_wanted_otherwise(scene: &Scene<'_>) -> bool {
    let staying: Vec<ClaimSeen> = scene.claims.iter().filter(|claim| !claim.deleted).cloned().collect();
    let then = admission::Seen { claims: &staying, ..scene.admission() };
    admission::admit(&then).iter().any(|(_, verdict)| match verdict {
        Verdict::Wait(why) => why.holds_the_line(),
        Verdict::Grant(Grant::SwitchMode { .. }) => true,
        Verdict::Grant(Grant::Create { .. } | Grant::Join { .. } | Grant::NameWriter { .. }) => false,
    })
}
