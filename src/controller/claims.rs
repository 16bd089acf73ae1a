//! Writes VolumeClaims: assign, say, free. Each is one side effect.

use jiff::Timestamp;
use kube::ResourceExt as _;

use super::context::Context;
use crate::api::claim::Assignment;
use crate::api::conditions::{self, Desired};
use crate::api::{AttachmentUid, FINALIZER, VolumeClaim, VolumeClaimStatus, has_finalizer};
use crate::k8s::{ApiError, Written};

/// Writes finalizer and assignment in one patch.
pub(crate) async fn assign(
    ctx: &Context,
    claim: &VolumeClaim,
    attachment: &AttachmentUid,
) -> Result<bool, ApiError> {
    let Some(granted) = ctx.attachments.by_uid(attachment) else { return Ok(true) };
    let mut assigned = held(claim);
    assigned.spec.assignment = Some(Assignment {
        attachment: granted.name_any(),
        attachment_uid: attachment.to_owned(),
        handle_name: granted.spec.fixed.handle_name.clone(),
        node_name: granted.spec.node_name.clone(),
        node_uid: granted.spec.fixed.node_uid.clone(),
    });
    ctx.writer.update(&ctx.claims, claim, &assigned).await
}

/// The object with our finalizer in its list, which goes whole as it was observed.
pub(crate) fn held<K: Written>(object: &K) -> K {
    let mut held = object.clone();
    if !has_finalizer(held.meta(), FINALIZER) {
        held.finalizers_mut().push(FINALIZER.to_owned());
    }
    held
}

/// Writes a condition, and what `change` makes of the status with it; nothing if the claim says so already. Returns
/// whether that was news.
pub(crate) async fn say(
    ctx: &Context,
    claim: &VolumeClaim,
    condition: &Desired,
    change: impl FnOnce(&mut VolumeClaimStatus),
) -> Result<bool, ApiError> {
    let generation = claim.metadata.generation;
    let mut status = claim.status.clone().unwrap_or_default();
    if !conditions::set(&mut status.conditions, condition, generation, Timestamp::now()) {
        return Ok(false);
    }
    change(&mut status);
    status.observed_generation = generation;
    ctx.writer.update_status(&ctx.claims, claim, &status).await
}

/// Takes our finalizer off a deleted claim.
pub(crate) async fn free(ctx: &Context, claim: &VolumeClaim) -> Result<bool, ApiError> {
    ctx.writer.free(&ctx.claims, claim, FINALIZER).await
}
