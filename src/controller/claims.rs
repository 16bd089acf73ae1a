//! Writes VolumeClaims: assign, free, status. Each is one side effect.

use std::sync::Arc;

use serde_json::json;

use super::context::Context;
use super::pass::Did;
use crate::api::{FINALIZER, VolumeClaim};
use crate::k8s::{ApiError, Target};

/// Writes finalizer and assignment in one patch.
pub(crate) async fn assign(ctx: &Context, claim: &VolumeClaim, attachment: &str) -> Result<Did, ApiError> {
    let Some(granted) = ctx.attachments.by_uid(attachment) else { return Ok(Did::Step) };
    let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    let fields = json!({
        "metadata": { "finalizers": with_finalizer(claim.metadata.finalizers.as_ref()) },
        "spec": { "assignment": {
            "attachment": granted.metadata.name,
            "attachmentUID": attachment,
            "handleName": granted.spec.fixed.handle_name,
            "nodeName": granted.spec.node_name,
            "nodeUID": granted.spec.fixed.node_uid,
        } },
    });
    match ctx.writer.patch_main(&ctx.claim_api(namespace), &Target::of(claim), fields).await {
        Ok(claim) => ctx.claims.apply(claim),
        // Deleted before it was granted: nothing of it is left to undo.
        Err(ApiError::Gone(_)) => forget(ctx, claim),
        Err(error) => return Err(error),
    }
    Ok(Did::Step)
}

/// A finalizer list with ours in it, whole as observed.
pub(crate) fn with_finalizer(observed: Option<&Vec<String>>) -> Vec<String> {
    let mut all = observed.cloned().unwrap_or_default();
    if !all.iter().any(|f| f == FINALIZER) {
        all.push(FINALIZER.to_owned());
    }
    all
}

/// Takes our finalizer off a deleted claim.
pub(crate) async fn free(ctx: &Context, claim: &Arc<VolumeClaim>) -> Result<Did, ApiError> {
    let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    match ctx.writer.remove_finalizer(&ctx.claim_api(namespace), claim.as_ref(), FINALIZER).await? {
        None => forget(ctx, claim),
        Some(left) => ctx.claims.apply(left),
    }
    Ok(Did::Step)
}

/// Writes fields of a claim's status, guarded by the version that was seen. One that is gone needs none.
pub(crate) async fn patch_status(
    ctx: &Context,
    claim: &VolumeClaim,
    fields: serde_json::Value,
) -> Result<(), ApiError> {
    let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    match ctx.writer.patch_status(&ctx.claim_api(namespace), &Target::of(claim), fields).await {
        Ok(written) => ctx.claims.apply(written),
        Err(ApiError::Gone(_)) => forget(ctx, claim),
        Err(error) => return Err(error),
    }
    Ok(())
}

fn forget(ctx: &Context, claim: &VolumeClaim) {
    ctx.claims.remove_confirmed(claim.metadata.uid.as_deref().unwrap_or_default());
}
