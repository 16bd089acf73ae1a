//! Tells of writes that the API server refuses: repeating them helps nothing, and whoever waits should know why.

use super::context::Context;
use super::observe::Observed;
use crate::api::ClaimUid;
use crate::claim::admission::{Grant, Verdict};
use crate::k8s::ApiError;
use crate::k8s::events::EventReason;

/// Puts a refusal on the Volume, and on the claim that would have been granted, as an Event.
pub(crate) fn tell(ctx: &Context, seen: &Observed, verdicts: &[(ClaimUid, Verdict)], error: &ApiError) {
    let Some(refusal) = error.refusal() else { return };
    let note = format!(
        "the API server refuses what moor has to write, and moor tries again: {refusal}; see which policy or webhook, or \
         which missing right of moor, is in the way"
    );
    if let Some(volume) = &seen.volume {
        ctx.recorder.tell(volume, EventReason::WriteRefused, "Write", note.clone());
    }
    let granted = |(_, verdict): &&(ClaimUid, Verdict)| {
        matches!(
            verdict,
            Verdict::Grant(Grant::Create { .. } | Grant::Join { .. } | Grant::NameWriter { .. })
        )
    };
    if let Some(claim) = verdicts.iter().find(granted).and_then(|(uid, _)| seen.claim(uid)) {
        ctx.recorder.tell(claim, EventReason::WriteRefused, "Write", note);
    }
}
