//! The leader's steps about nodes whose agents are silent: declaring them lost where rule R4 allows it, and ending
//! what then ends without them.

use super::look::Look;
use super::scene::Scene;
use super::step::LeaderStep;
use crate::api::ClaimState;
use crate::attachment::AttachmentSeen;
use crate::attachment::loss::{self, Cause, NodeFacts, Verdict};
use crate::claim::ClaimSeen;
use crate::claim::observed::reaches;
use crate::volume::CallerNow;

/// The first thing that is due about the node of an Attachment.
pub(super) fn plan(scene: &Scene<'_>) -> Option<LeaderStep> {
    scene.attachments.iter().find_map(|attachment| {
        if attachment.lost {
            end_claim(scene, attachment).or_else(|| abandon(scene, attachment))
        } else {
            declare(scene, attachment)
        }
    })
}

/// Declares the node of an Attachment lost. What the caches say of the node is good enough to wait and to tell; the
/// declaration needs live reads: of the claims first, if it goes by their word, and of the node last.
fn declare(scene: &Scene<'_>, attachment: &AttachmentSeen) -> Option<LeaderStep> {
    let uid = || attachment.uid.clone();
    let facts = scene.nodes_of.get(&attachment.uid)?;
    let Verdict::Lost(cause) = judge(attachment, facts, scene.claims) else { return None };
    let users = match (cause, scene.looked.users.get(&attachment.uid)) {
        (Cause::ForceDetach, None) => return Some(LeaderStep::Look(Look::Users { attachment: uid() })),
        (_, users) => users.map_or(&[][..], Vec::as_slice),
    };
    let Some(live) = scene.looked.nodes.get(&attachment.uid) else {
        return Some(LeaderStep::Look(Look::Node { attachment: uid() }));
    };
    match judge(attachment, live, users) {
        Verdict::Lost(cause) => Some(LeaderStep::DeclareLost { attachment: uid(), cause }),
        Verdict::Well | Verdict::Contradiction(_) | Verdict::Silent { .. } => None,
    }
}

fn judge(attachment: &AttachmentSeen, node: &NodeFacts, claims: &[ClaimSeen]) -> Verdict {
    loss::judge(&loss::Seen { attachment, node, claims })
}

/// Ends a claim that nobody has deleted and whose node was lost.
fn end_claim(scene: &Scene<'_>, attachment: &AttachmentSeen) -> Option<LeaderStep> {
    let lives = |claim: &&ClaimSeen| {
        let is_over = matches!(claim.state, ClaimState::NodeDetached | ClaimState::Lost);
        claim.uses() == Some(&attachment.uid) && !claim.deleted && !is_over
    };
    let claim = scene.claims.iter().find(lives)?.uid.clone();
    Some(LeaderStep::EndClaim { claim, attachment: attachment.uid.clone() })
}

/// Leaves out the ControllerUnpublishVolume that nobody can ever make.
fn abandon(scene: &Scene<'_>, attachment: &AttachmentSeen) -> Option<LeaderStep> {
    let controller = attachment.controller.as_ref()?;
    let heirs = has_heirs(scene, &controller.instance);
    let facts = scene.nodes_of.get(&attachment.uid)?;
    if !loss::is_abandoned(attachment, &facts.now, scene.plugin.is_dead(controller), heirs) {
        return None;
    }
    let Some(live) = scene.looked.nodes.get(&attachment.uid) else {
        return Some(LeaderStep::Look(Look::Node { attachment: attachment.uid.clone() }));
    };
    let Some(caller) = scene.looked.callers.get(controller) else {
        return Some(LeaderStep::Look(Look::Caller(controller.clone())));
    };
    // Not one that was only relieved: it may come back and detach.
    let dead = *caller == CallerNow::CutOff;
    loss::is_abandoned(attachment, &live.now, dead, heirs)
        .then(|| LeaderStep::Abandon { attachment: attachment.uid.clone() })
}

/// Whether some other instance than `but`, healthy or not, could serve the volume.
fn has_heirs(scene: &Scene<'_>, but: &str) -> bool {
    if !scene.plugin.is_local {
        return true;
    }
    let status = scene.volume.and_then(|volume| volume.status.as_ref());
    let places = status.map_or(&[][..], |status| status.accessible_topology.as_slice());
    scene.plugin.controllers.iter().any(|c| c.name != but && !c.dead && reaches(places, &c.topology))
}
