//! The leader's steps about nodes that have to follow a volume which has grown (ADR 48).
//!
//! Each Attachment is told the size before another claim is granted it, and its node's agent makes the call: at once where it
//! may, else before the next claim there is Ready.

use super::scene::Scene;
use super::step::LeaderStep;
use crate::api::Volume;
use crate::attachment::AttachmentSeen;
use crate::volume::on_nodes;

/// The next step: a node that does not know the size yet, or the word that all of them have followed.
pub(super) fn plan(scene: &Scene<'_>) -> Option<LeaderStep> {
    let volume = scene.volume.filter(|_| scene.own_handle().is_some())?;
    let bytes = on_nodes::owed(volume)?;
    let uid = volume.metadata.uid.as_deref().unwrap_or_default();
    let is_own = |attachment: &&AttachmentSeen| attachment.volume_uid == uid;
    let mut own = scene.attachments.iter().filter(is_own);
    if let Some(told) = own.find(|one| is_behind(one, bytes) && is_to_be_told(scene, volume, one)) {
        return Some(LeaderStep::AskNode { attachment: told.uid.clone(), bytes });
    }
    let own: Vec<AttachmentSeen> = scene.attachments.iter().filter(is_own).cloned().collect();
    on_nodes::have_followed(&own, scene.claims, bytes).then_some(LeaderStep::ReportFollowed(bytes))
}

/// Whether an Attachment says another size than its node owes.
fn is_behind(attachment: &AttachmentSeen, bytes: i64) -> bool {
    !attachment.is_leaving() && attachment.growth.reached < bytes && attachment.growth.asked != bytes
}

/// Whether somebody has the volume on this Attachment, or may come to have it, for whom moor makes the call. What only Pods have
/// by PersistentVolumeClaims is left to kubelet.
fn is_to_be_told(scene: &Scene<'_>, volume: &Volume, attachment: &AttachmentSeen) -> bool {
    let claims = || scene.claims.iter().filter(|claim| claim.is_grown_for());
    let is_used = || scene.claims.iter().any(|claim| !claim.deleted && claim.uses() == Some(&attachment.uid));
    claims().any(|claim| claim.wants_grant() || claim.grows_on(attachment))
        || !(is_used() || on_nodes::is_for_persistent(volume))
}
