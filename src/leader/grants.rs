//! The leader's steps towards what admission has granted, one write at a time.

use super::look::Look;
use super::pods::may_have;
use super::scene::Scene;
use super::step::LeaderStep;
use crate::api::ClaimUid;
use crate::claim::admission::{Grant, Verdict};
use crate::claim::writer::has_let_go;

/// Carries out the grant of this pass.
pub(super) fn plan(scene: &Scene<'_>, verdicts: &[(ClaimUid, Verdict)]) -> Option<LeaderStep> {
    let (claim, grant) = verdicts.iter().find_map(|(claim, verdict)| match verdict {
        Verdict::Grant(grant) => Some((claim, grant)),
        Verdict::Wait(_) => None,
    })?;
    match scene.claims.iter().find(|c| c.uid == *claim).map(|claim| may_have(scene, claim)) {
        Some(Err(look)) => return Some(LeaderStep::Look(look)),
        Some(Ok(false)) | None => return None,
        Some(Ok(true)) => {}
    }
    match scene.reports_have_ended() {
        Err(look) => return Some(LeaderStep::Look(look)),
        Ok(false) => return None,
        Ok(true) => {}
    }
    match grant {
        Grant::Create { attachment, node } => Some(LeaderStep::CreateAttachment {
            claim: claim.clone(),
            name: attachment.clone(),
            node: node.clone(),
        }),
        // Whom the named one replaced would be forgotten by this write.
        Grant::NameWriter { attachment, uid } => after_writer(scene, || LeaderStep::NameWriter {
            claim: claim.clone(),
            attachment: attachment.clone(),
            attachment_uid: uid.clone(),
        }),
        Grant::Join { uid, .. } => {
            let assign = || LeaderStep::AssignClaim { claim: claim.clone(), attachment: uid.clone() };
            let writes = scene.claims.iter().any(|c| c.uid == *claim && c.needs_writer_lock());
            if writes { after_writer(scene, assign) } else { Some(assign()) }
        }
        // The Volume's part has seen to it.
        Grant::SwitchMode { .. } => None,
    }
}

/// The given step, once live reads show that the writer which the named one replaced is done. They are made after the
/// name was seen in the VolumeHandle (rule R1).
fn after_writer(scene: &Scene<'_>, step: impl Fn() -> LeaderStep) -> Option<LeaderStep> {
    let writer = scene.handle.and_then(|handle| handle.writer.as_ref());
    let Some(before) = writer.and_then(|writer| writer.after.as_ref()) else { return Some(step()) };
    let Some(claim) = scene.looked.claims.get(&before.claim_uid) else {
        let (key, uid) = (before.claim.clone(), before.claim_uid.clone());
        return Some(LeaderStep::Look(Look::Claim { key, uid }));
    };
    if has_let_go(before, claim.as_ref(), true) {
        return Some(step());
    }
    let Some(attachment) = scene.looked.attachments.get(&before.attachment) else {
        return Some(LeaderStep::Look(Look::Attachment { name: before.attachment.clone() }));
    };
    let locked = attachment.as_ref() == Some(&before.attachment_uid);
    has_let_go(before, claim.as_ref(), locked).then(step)
}
