//! Acts on Volumes: assignment, Ready, conditions, release.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;

use super::claims::with_finalizer;
use super::context::Context;
use super::forgotten;
use super::handles::{self, live_attachments};
use super::observe::{Observed, handle_of};
use super::pass::Did;
use crate::api::attachment::ControllerRef;
use crate::api::conditions::{self, Desired, READY};
use crate::api::names::instance_name;
use crate::api::volume::{VolumeAssignment, VolumeOperation};
use crate::api::{FINALIZER, Volume, VolumeHandle, VolumeState, lock};
use crate::k8s::events::Reason;
use crate::k8s::read::get_live;
use crate::k8s::{ApiError, Target};
use crate::volume::VolumeWaiting;

/// Writes finalizer and assignment in one patch.
pub(crate) async fn assign(
    ctx: &Context,
    seen: &Observed,
    volume: &Volume,
    to: &VolumeAssignment,
) -> Result<Did, ApiError> {
    if let Some(from) = moves_from(volume, to)
        && !ctx.is_dead(seen, from).await?
    {
        return Ok(Did::Nothing);
    }
    let namespace = volume.metadata.namespace.as_deref().unwrap_or_default();
    let fields = json!({
        "metadata": { "finalizers": with_finalizer(volume.metadata.finalizers.as_ref()) },
        "spec": { "assignment": to },
    });
    let written = ctx.writer.patch_main(&ctx.volume_api(namespace), &Target::of(volume), fields).await;
    match written {
        Ok(volume) => ctx.volumes.apply(volume),
        Err(ApiError::Gone(_)) => {
            ctx.volumes.remove_confirmed(volume.metadata.uid.as_deref().unwrap_or_default());
        }
        Err(error) => return Err(error),
    }
    Ok(Did::Step)
}

/// The instance that an unfinished operation is taken from: it may still be making the call (rule R2).
fn moves_from<'a>(volume: &'a Volume, to: &VolumeAssignment) -> Option<&'a ControllerRef> {
    let now = volume.spec.assignment.as_ref().filter(|now| now.operation == to.operation)?;
    now.controller.as_ref().filter(|from| to.controller.as_ref() != Some(from))
}

/// Has DeleteVolume called, after a quorum LIST found no Attachment and another that no PersistentVolume names it.
pub(crate) async fn assign_delete(
    ctx: &Context,
    seen: &Observed,
    volume: &Arc<Volume>,
    to: Option<ControllerRef>,
) -> Result<Did, ApiError> {
    let name = seen.handle.as_ref().and_then(|h| h.metadata.name.clone()).unwrap_or_default();
    if !live_attachments(ctx, &name).await?.is_empty() || !forgotten::have_ended(ctx, &seen.ended).await? {
        return Ok(Did::Nothing);
    }
    let order = VolumeAssignment { operation: VolumeOperation::Delete, controller: to };
    if let Some(from) = moves_from(volume, &order)
        && !ctx.is_dead(seen, from).await?
    {
        return Ok(Did::Nothing);
    }
    if let Some(handle) = seen.handle.as_ref().filter(|_| is_new_order(volume, &order)) {
        let spec = &handle.spec;
        let naming =
            handles::persistent_volume_naming(ctx, volume, &spec.driver_name, &spec.volume_handle).await?;
        if let Some(naming) = naming {
            return leave_storage(ctx, seen, volume, naming.name).await;
        }
    }
    assign(ctx, seen, volume, &order).await
}

/// An order that was given stands: its call may be running. To another instance it is given anew, after what may have come
/// since.
fn is_new_order(volume: &Volume, order: &VolumeAssignment) -> bool {
    let ordered = volume.spec.assignment.as_ref().is_some_and(|now| now.operation == order.operation);
    !ordered || moves_from(volume, order).is_some()
}

/// Lets the agent delete what CreateVolume made and nobody can use, after a quorum LIST found no PersistentVolume that
/// names it: a node may lie about what it has made, and agents may not read PersistentVolumes.
pub(crate) async fn judge_rejected(
    ctx: &Context,
    seen: &Observed,
    volume: &Arc<Volume>,
) -> Result<Did, ApiError> {
    let rejected = volume.status.as_ref().and_then(|s| s.rejected.as_ref());
    let controller = volume.spec.assignment.as_ref().and_then(|a| a.controller.as_ref());
    let (Some(rejected), Some(caller)) = (rejected, controller) else { return Ok(Did::Nothing) };
    let plugin = volume.spec.plugin_name.clone();
    // The Plugin may be gone, or made anew for another driver, which knows other volumes by such handles. A PluginInstance
    // is believed only under the name that is made of its driver.
    let instance = ctx.instances.get("", &caller.instance);
    let of_instance = instance.as_ref().map(|i| i.spec.driver_name.as_str());
    let Some(driver) = driver_of_calls(volume, std::iter::once(seen.driver.as_str()).chain(of_instance))
    else {
        return wait(ctx, volume, &VolumeWaiting::DriverNotThere { plugin }).await;
    };
    let id = &rejected.volume_handle;
    if let Some(naming) = handles::persistent_volume_naming(ctx, volume, driver, id).await? {
        return handles::keep_off(ctx, seen, volume, naming).await;
    }
    let fields = json!({ "rejected": { "mayDelete": true } });
    let api = ctx.volume_api(volume.metadata.namespace.as_deref().unwrap_or_default());
    ctx.volumes.apply(ctx.writer.patch_status(&api, &Target::of(volume.as_ref()), fields).await?);
    Ok(Did::Step)
}

/// The first of these drivers of which the instance is that a Volume's own calls are assigned to.
fn driver_of_calls<'a>(volume: &Volume, drivers: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    drivers.into_iter().find(|driver| is_of_driver(volume, driver))
}

/// Whether the instance that a Volume's own calls are assigned to is one of this driver: its name is made of the driver's.
pub(crate) fn is_of_driver(volume: &Volume, driver: &str) -> bool {
    let controller = volume.spec.assignment.as_ref().and_then(|a| a.controller.as_ref());
    controller.is_none_or(|c| instance_name(&c.agent, driver) == c.instance)
}

/// Takes back that what CreateVolume made may be deleted: it was looked at for an instance that is dead. After that the
/// calls move, and the next look is for the one that has them then.
pub(crate) async fn judge_anew(ctx: &Context, volume: &Volume) -> Result<Did, ApiError> {
    let fields = json!({ "rejected": { "mayDelete": false } });
    let api = ctx.volume_api(volume.metadata.namespace.as_deref().unwrap_or_default());
    ctx.volumes.apply(ctx.writer.patch_status(&api, &Target::of(volume), fields).await?);
    Ok(Did::Step)
}

/// Writes that claims are granted from now on.
pub(crate) async fn report_ready(
    ctx: &Context,
    seen: &Observed,
    volume: &Arc<Volume>,
) -> Result<Did, ApiError> {
    if let Some(handle) = &seen.handle
        && !handle.status.as_ref().is_some_and(|s| conditions::is_true(&s.conditions, READY))
    {
        return handles::report(ctx, handle).await;
    }
    let id = handle_of(volume);
    let mut status = json!({
        "state": VolumeState::Ready,
        "volumeHandle": id,
        "handleName": seen.handle.as_ref().and_then(|h| h.metadata.name.clone()),
    });
    if volume.spec.volume_handle.is_some() && !volume.spec.volume_context.is_empty() {
        status["volumeContext"] = json!(volume.spec.volume_context);
    }
    let message = format!("claims are granted; the driver calls it {}", id.unwrap_or_default());
    let ready = Desired { type_: READY, status: true, reason: "Ready", message };
    record(ctx, volume, &ready, status).await
}

/// Puts right a status that names another volume than the Volume's own VolumeHandle, or none: somebody edited it, and
/// DeleteVolume goes by it.
pub(crate) async fn mend(ctx: &Context, seen: &Observed, volume: &Arc<Volume>) -> Result<Did, ApiError> {
    let (Some(handle), Some(status)) = (own_handle(seen, volume), &volume.status) else {
        return Ok(Did::Nothing);
    };
    let known = matches!(status.state, VolumeState::Created | VolumeState::Ready);
    if !known || status.volume_handle.as_ref() == Some(&handle.spec.volume_handle) {
        return Ok(Did::Nothing);
    }
    tracing::error!(
        volume = seen.name,
        said = status.volume_handle,
        is = handle.spec.volume_handle,
        "mended"
    );
    say_as(ctx, volume, handle, json!({})).await
}

/// Puts right the lost status of a Volume whose storage is being deleted: its agent goes by it.
pub(crate) async fn restore_status(
    ctx: &Context,
    seen: &Observed,
    volume: &Arc<Volume>,
) -> Result<Did, ApiError> {
    let Some(handle) = own_handle(seen, volume) else { return Ok(Did::Nothing) };
    tracing::error!(volume = seen.name, is = handle.spec.volume_handle, "its status was lost; written again");
    say_as(ctx, volume, handle, json!({ "state": VolumeState::Created })).await
}

fn own_handle<'a>(seen: &'a Observed, volume: &Volume) -> Option<&'a Arc<VolumeHandle>> {
    seen.handle.as_ref().filter(|h| volume.metadata.uid.as_ref() == Some(&h.spec.volume.uid))
}

/// Writes into the status what the VolumeHandle says, and `status` beside it.
async fn say_as(
    ctx: &Context,
    volume: &Volume,
    handle: &VolumeHandle,
    mut status: serde_json::Value,
) -> Result<Did, ApiError> {
    status["volumeHandle"] = json!(handle.spec.volume_handle);
    status["handleName"] = json!(handle.metadata.name);
    let namespace = volume.metadata.namespace.as_deref().unwrap_or_default();
    let written = ctx.writer.patch_status(&ctx.volume_api(namespace), &Target::of(volume), status).await?;
    ctx.volumes.apply(written);
    Ok(Did::Step)
}

/// Writes what the Volume waits for, if it does not say so already.
pub(crate) async fn wait(ctx: &Context, volume: &Arc<Volume>, why: &VolumeWaiting) -> Result<Did, ApiError> {
    let waiting = Desired { type_: READY, status: false, reason: why.reason(), message: why.message() };
    record(ctx, volume, &waiting, json!({})).await?;
    Ok(Did::Nothing)
}

/// Writes a condition, and `status` beside it; nothing if nothing changes.
pub(crate) async fn record(
    ctx: &Context,
    volume: &Arc<Volume>,
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
    let namespace = volume.metadata.namespace.as_deref().unwrap_or_default();
    let target = Target::of(volume.as_ref());
    match ctx.writer.patch_status(&ctx.volume_api(namespace), &target, status).await {
        Ok(volume) => ctx.volumes.apply(volume),
        Err(ApiError::Gone(_)) => ctx.volumes.remove_confirmed(&target.uid),
        Err(error) => return Err(error),
    }
    Ok(Did::Step)
}

/// Ends a deleted Volume whose storage a PersistentVolume names: without DeleteVolume.
pub(crate) async fn leave_storage(
    ctx: &Context,
    seen: &Observed,
    volume: &Arc<Volume>,
    name: String,
) -> Result<Did, ApiError> {
    let why = VolumeWaiting::StorageLeft { name };
    let left = Desired { type_: READY, status: false, reason: why.reason(), message: why.message() };
    // The object goes in a moment, and its conditions with it.
    if matches!(record(ctx, volume, &left, json!({})).await?, Did::Step) {
        ctx.tell(volume, Reason::StorageLeft, "Release", why.message());
        return Ok(Did::Step);
    }
    if own_handle(seen, volume).is_some() {
        handles::remove(ctx, seen).await
    } else {
        free(ctx, seen, volume).await
    }
}

/// Takes the finalizer off a deleted Volume, after a GET showed that its VolumeHandle is gone or
/// another's.
pub(crate) async fn free(ctx: &Context, seen: &Observed, volume: &Arc<Volume>) -> Result<Did, ApiError> {
    let uid = volume.metadata.uid.as_deref().unwrap_or_default();
    // The name in its status too: by now nobody may be left to say what the driver is called.
    let computed = handle_of(volume).map(|id| lock::handle_name(&seen.driver, &id));
    let recorded = volume.status.as_ref().and_then(|s| s.handle_name.clone());
    for name in computed.iter().chain(recorded.iter().filter(|r| computed.as_ref() != Some(r))) {
        if let Some(live) = get_live(&ctx.handle_api(), name).await? {
            let ours = live.spec.volume.uid == uid;
            ctx.handles.apply(live);
            if ours {
                return Ok(Did::Step);
            }
        }
    }
    match ctx.writer.remove_finalizer(&ctx.volume_api(&seen.namespace), volume.as_ref(), FINALIZER).await? {
        None => ctx.volumes.remove_confirmed(uid),
        Some(left) => ctx.volumes.apply(left),
    }
    tracing::info!(namespace = seen.namespace, volume = seen.name, "released");
    Ok(Did::Step)
}

#[cfg(test)]
#[path = "volumes_tests.rs"]
mod tests;
