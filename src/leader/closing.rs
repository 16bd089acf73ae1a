//! The leader's steps about what is leaving: Attachments that nobody uses, claims that are deleted, and the
//! controller instance that makes their calls meanwhile.

use std::cell::LazyCell;

use super::linger;
use super::look::Look;
use super::scene::Scene;
use super::step::LeaderStep;
use crate::api::ClaimUid;
use crate::attachment::AttachmentSeen;
use crate::attachment::closing::{self, ClosingStep, Unused};
use crate::attachment::controller_side::is_misplaced;
use crate::attachment::loss;
use crate::claim::ClaimSeen;
use crate::claim::admission::{Grant, Verdict};
use crate::claim::release::{self, ReleaseStep};
use crate::claim::writer::retire;

/// The first Attachment that is to be closed or freed.
pub(super) fn attachments(scene: &Scene<'_>, verdicts: &[(ClaimUid, Verdict)]) -> Option<LeaderStep> {
    // The same for all of them, and they may be as many as there are nodes.
    let wanted = LazyCell::new(|| linger::is_wanted_otherwise(scene));
    scene.attachments.iter().find_map(|attachment| {
        let remembered = scene.unused.get(&attachment.uid).copied().unwrap_or_default();
        let lingers = remembered.lingers && linger::may_stay(scene, attachment) && !*wanted;
        let unused = Unused { lingers, ..remembered };
        match closing::plan(attachment, scene.claims, scene.cautious, unused)? {
            // About to be joined: closing it would only make the claim come back.
            ClosingStep::Close | ClosingStep::CloseIfUnused if is_joined(attachment, verdicts) => None,
            ClosingStep::Close => Some(close(attachment)),
            ClosingStep::CloseIfUnused => close_if_unused(scene, attachment),
            ClosingStep::Free => Some(free(attachment)),
            ClosingStep::FreeIfStillOut => free_if_still_out(scene, attachment),
        }
    })
}

fn is_joined(attachment: &AttachmentSeen, verdicts: &[(ClaimUid, Verdict)]) -> bool {
    verdicts.iter().any(|(_, verdict)| match verdict {
        Verdict::Grant(Grant::Join { uid, .. } | Grant::NameWriter { uid, .. }) => *uid == attachment.uid,
        Verdict::Grant(Grant::Create { .. } | Grant::SwitchMode { .. }) | Verdict::Wait(_) => false,
    })
}

fn close(attachment: &AttachmentSeen) -> LeaderStep {
    LeaderStep::Close { attachment: attachment.uid.clone() }
}

fn free(attachment: &AttachmentSeen) -> LeaderStep {
    LeaderStep::FreeAttachment { attachment: attachment.uid.clone() }
}

fn close_if_unused(scene: &Scene<'_>, attachment: &AttachmentSeen) -> Option<LeaderStep> {
    match scene.looked.users.get(&attachment.uid) {
        None => Some(LeaderStep::Look(Look::Users { attachment: attachment.uid.clone() })),
        Some(users) => users.is_empty().then(|| close(attachment)),
    }
}

fn free_if_still_out(scene: &Scene<'_>, attachment: &AttachmentSeen) -> Option<LeaderStep> {
    match scene.looked.nodes.get(&attachment.uid) {
        None => Some(LeaderStep::Look(Look::Node { attachment: attachment.uid.clone() })),
        Some(node) => {
            let seen = loss::Seen { attachment, node, claims: &[] };
            loss::is_still_out(&seen).then(|| free(attachment))
        }
    }
}

/// The first deleted claim that is released.
pub(super) fn claims(scene: &Scene<'_>) -> Option<LeaderStep> {
    scene.claims.iter().find_map(|claim| match release::plan(claim, scene.attachments)? {
        ReleaseStep::Free => match retire(scene.handle, claim) {
            Some(writer) => Some(LeaderStep::RetireWriter(writer)),
            None => Some(free_claim(claim)),
        },
        ReleaseStep::FreeIfAttachmentGone => free_if_attachment_gone(scene, claim),
    })
}

fn free_claim(claim: &ClaimSeen) -> LeaderStep {
    LeaderStep::FreeClaim { claim: claim.uid.clone() }
}

fn free_if_attachment_gone(scene: &Scene<'_>, claim: &ClaimSeen) -> Option<LeaderStep> {
    let Some(assigned) = &claim.assignment else { return Some(free_claim(claim)) };
    match scene.looked.attachments.get(&assigned.attachment) {
        None => Some(LeaderStep::Look(Look::Attachment { name: assigned.attachment.clone() })),
        Some(now) => (now.as_ref() != Some(&assigned.attachment_uid)).then(|| free_claim(claim)),
    }
}

/// An Attachment that is due for a controller call and still names another instance than its VolumeHandle.
pub(super) fn misplaced(scene: &Scene<'_>) -> Option<LeaderStep> {
    let handle = scene.handle?;
    let is_due = |a: &&AttachmentSeen| a.handle_name == handle.name && is_misplaced(a, handle);
    let attachment = scene.attachments.iter().find(is_due)?.uid.clone();
    Some(LeaderStep::MoveAttachment { attachment })
}
