//! Writes Volumes: assignment, Ready, conditions, release. Each is one side effect.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;

use super::claims::with_finalizer;
use super::context::Context;
use super::handles;
use super::pass::Did;
use crate::api::conditions::{self, Desired, READY, Reason};
use crate::api::volume::VolumeAssignment;
use crate::api::{FINALIZER, Volume, VolumeHandle, VolumeState};
use crate::k8s::events::EventReason;
use crate::k8s::{ApiError, Target};
use crate::volume::{VolumeWaiting, handle_of};

/// Writes finalizer and assignment in one patch.
pub(crate) async fn assign(ctx: &Context, volume: &Volume, to: &VolumeAssignment) -> Result<Did, ApiError> {
    let namespace = volume.metadata.namespace.as_deref().unwrap_or_default();
    let fields = json!({
        "metadata": { "finalizers": with_finalizer(volume.metadata.finalizers.as_ref()) },
        "spec": { "assignment": to },
    });
    match ctx.writer.patch_main(&ctx.volume_api(namespace), &Target::of(volume), fields).await {
        Ok(volume) => ctx.volumes.apply(volume),
        Err(ApiError::Gone(_)) => forget(ctx, volume),
        Err(error) => return Err(error),
    }
    Ok(Did::Step)
}

fn forget(ctx: &Context, volume: &Volume) {
    ctx.volumes.remove_confirmed(volume.metadata.uid.as_deref().unwrap_or_default());
}

async fn patch_status(ctx: &Context, volume: &Volume, fields: serde_json::Value) -> Result<Did, ApiError> {
    let namespace = volume.metadata.namespace.as_deref().unwrap_or_default();
    match ctx.writer.patch_status(&ctx.volume_api(namespace), &Target::of(volume), fields).await {
        Ok(volume) => ctx.volumes.apply(volume),
        Err(ApiError::Gone(_)) => forget(ctx, volume),
        Err(error) => return Err(error),
    }
    Ok(Did::Step)
}

/// Writes whether the agent may delete what CreateVolume made and nobody can use.
pub(crate) async fn allow_deletion(
    ctx: &Context,
    volume: &Volume,
    may_delete: bool,
) -> Result<Did, ApiError> {
    patch_status(ctx, volume, json!({ "rejected": { "mayDelete": may_delete } })).await
}

/// Writes that claims are granted from now on.
pub(crate) async fn report_ready(
    ctx: &Context,
    volume: &Volume,
    handle: Option<&Arc<VolumeHandle>>,
) -> Result<Did, ApiError> {
    if let Some(handle) = handle
        && !handle.status.as_ref().is_some_and(|s| conditions::is_true(&s.conditions, READY))
    {
        return handles::report(ctx, handle).await;
    }
    let id = handle_of(volume);
    let mut status = json!({
        "state": VolumeState::Ready,
        "volumeHandle": id,
        "handleName": handle.and_then(|h| h.metadata.name.clone()),
    });
    if volume.spec.volume_handle.is_some() && !volume.spec.volume_context.is_empty() {
        status["volumeContext"] = json!(volume.spec.volume_context);
    }
    let message = format!("claims are granted; the driver calls it {}", id.unwrap_or_default());
    let ready = Desired { reason: Reason::Ready, message };
    record(ctx, volume, &ready, status).await
}

/// Writes into the status what the VolumeHandle says, and with `state_too` that the storage was made: the agent goes by it.
pub(crate) async fn restore_status(
    ctx: &Context,
    volume: &Volume,
    handle: &VolumeHandle,
    state_too: bool,
) -> Result<Did, ApiError> {
    let said = volume.status.as_ref().and_then(|s| s.volume_handle.as_deref());
    let (name, is) = (&volume.metadata.name, &handle.spec.volume_handle);
    tracing::error!(volume = name, said, is, "its status was edited or lost; written again");
    let mut status = json!({ "volumeHandle": is, "handleName": handle.metadata.name });
    if state_too {
        status["state"] = json!(VolumeState::Created);
    }
    patch_status(ctx, volume, status).await
}

/// Writes what the Volume waits for, if it does not say so already.
pub(crate) async fn wait(ctx: &Context, volume: &Volume, why: &VolumeWaiting) -> Result<Did, ApiError> {
    let waiting = Desired { reason: why.reason(), message: why.message() };
    record(ctx, volume, &waiting, json!({})).await
}

/// Writes a condition, and `status` beside it; nothing if nothing changes.
pub(crate) async fn record(
    ctx: &Context,
    volume: &Volume,
    condition: &Desired,
    mut status: serde_json::Value,
) -> Result<Did, ApiError> {
    let generation = volume.metadata.generation;
    let mut all = volume.status.as_ref().map(|s| s.conditions.clone()).unwrap_or_default();
    let changed = conditions::set(&mut all, condition, generation, Timestamp::now());
    if !changed && status.as_object().is_none_or(serde_json::Map::is_empty) {
        return Ok(Did::Nothing);
    }
    status["conditions"] = json!(all);
    status["observedGeneration"] = json!(generation);
    patch_status(ctx, volume, status).await
}

/// Says that the storage stays: in a condition, and in an Event, since the object goes in a moment.
pub(crate) async fn tell_storage_left(
    ctx: &Context,
    volume: &Arc<Volume>,
    why: &VolumeWaiting,
) -> Result<Did, ApiError> {
    wait(ctx, volume, why).await?;
    ctx.tell(volume, EventReason::StorageLeft, "Release", why.message());
    Ok(Did::Step)
}

/// Takes the finalizer off a deleted Volume.
pub(crate) async fn free(ctx: &Context, volume: &Arc<Volume>) -> Result<Did, ApiError> {
    let (namespace, name) = (volume.metadata.namespace.as_deref().unwrap_or_default(), &volume.metadata.name);
    match ctx.writer.remove_finalizer(&ctx.volume_api(namespace), volume.as_ref(), FINALIZER).await? {
        None => forget(ctx, volume),
        Some(left) => ctx.volumes.apply(left),
    }
    tracing::info!(namespace, volume = name, "released");
    Ok(Did::Step)
}
