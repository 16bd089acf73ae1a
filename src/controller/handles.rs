//! Acts on VolumeHandles. What changes who is allowed first closes, then lists, then opens (rule R3).

use std::sync::Arc;

use jiff::Timestamp;
use kube::api::ObjectMeta;
use serde_json::json;

use super::context::Context;
use super::observe::{Observed, handle_of};
use super::pass::Did;
use super::volumes;
use crate::api::attachment::ControllerRef;
use crate::api::conditions::{self, Desired, READY};
use crate::api::handle::VolumeRef;
use crate::api::{AccessMode, Attachment, FINALIZER, Volume, VolumeHandle, VolumeHandleSpec, lock};
use crate::attachment::controller_side::is_misplaced;
use crate::k8s::persistent_volume::Naming;
use crate::k8s::read::{get_live, list_live};
use crate::k8s::{ApiError, Created, Deleted, Target};
use crate::volume::{self, VolumeWaiting};

/// Every Attachment of the handle, by a quorum LIST made now (rule R1).
pub(crate) async fn live_attachments(ctx: &Context, handle: &str) -> Result<Vec<Attachment>, ApiError> {
    let fields = format!("spec.fixed.handleName={handle}");
    let listed = list_live(&ctx.attachment_api(), Some(&fields)).await?;
    for attachment in &listed.items {
        ctx.attachments.apply(attachment.clone());
    }
    Ok(listed.items)
}

/// Creates the VolumeHandle, the lock on the driver's volume.
pub(crate) async fn make(ctx: &Context, seen: &Observed, volume: &Arc<Volume>) -> Result<Did, ApiError> {
    let Some(id) = handle_of(volume) else { return Ok(Did::Nothing) };
    let driver = seen.driver.clone();
    // Also a handle that CreateVolume answered: the node that made the call may lie, and whoever has the VolumeHandle has
    // the storage deleted.
    if let Some(naming) = persistent_volume_naming(ctx, volume, &driver, &id).await? {
        return keep_off(ctx, seen, volume, naming).await;
    }
    let name = lock::handle_name(&driver, &id);
    // Attachments that outlived an earlier VolumeHandle still lock the storage: start closed behind them, with the
    // instance that has them to detach.
    let left = live_attachments(ctx, &name).await?;
    let latest = left.iter().max_by_key(|a| a.spec.fixed.epoch);
    let epoch = latest.map_or(1, |latest| latest.spec.fixed.epoch + 1);
    let controller = latest.and_then(|latest| latest.spec.controller.clone());
    let handle = VolumeHandle {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            finalizers: Some(vec![FINALIZER.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: VolumeHandleSpec {
            driver_name: driver,
            volume_handle: id,
            volume: reference(volume),
            mode: volume.spec.capabilities.first().map(|u| u.access_mode).unwrap_or_default(),
            epoch,
            closing: !left.is_empty(),
            controller: volume.spec.assignment.as_ref().and_then(|a| a.controller.clone()).or(controller),
            writer: None,
            undoing: Vec::new(),
        },
        status: None,
    };
    match ctx.writer.create(&ctx.handle_api(), &handle).await? {
        Created::New(made) => ctx.handles.apply(made),
        Created::Exists => {
            if let Some(live) = get_live(&ctx.handle_api(), &name).await? {
                ctx.handles.apply(live);
            }
        }
    }
    Ok(Did::Step)
}

/// Another orchestrator has the storage: says so, and lets the Volume go without it if it is to be deleted.
pub(crate) async fn keep_off(
    ctx: &Context,
    seen: &Observed,
    volume: &Arc<Volume>,
    naming: Naming,
) -> Result<Did, ApiError> {
    let Naming { name, field, certain } = naming;
    if volume.metadata.deletion_timestamp.is_some() {
        return volumes::leave_storage(ctx, seen, volume, name).await;
    }
    let why = match volume.spec.volume_handle {
        None => VolumeWaiting::AnswerInPersistentVolume { name },
        Some(_) => VolumeWaiting::HandleInPersistentVolume { name, field, certain },
    };
    volumes::wait(ctx, volume, &why).await
}

fn reference(volume: &Volume) -> VolumeRef {
    let meta = &volume.metadata;
    VolumeRef {
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
    }
}

/// The PersistentVolume that keeps this Volume off its storage. One that only may stand for the same does so for a handle
/// that somebody named, and not for what the driver has just made.
pub(crate) async fn persistent_volume_naming(
    ctx: &Context,
    volume: &Volume,
    driver: &str,
    id: &str,
) -> Result<Option<Naming>, ApiError> {
    let naming = ctx.persistent_volumes.naming(driver, id).await?;
    Ok(naming.filter(|naming| naming.certain || volume.spec.volume_handle.is_some()))
}

/// The VolumeHandle names another Volume. Takes it over if that one is gone, by closing first.
pub(crate) async fn contest(ctx: &Context, seen: &Observed, volume: &Arc<Volume>) -> Result<Did, ApiError> {
    let Some(handle) = &seen.handle else { return Ok(Did::Nothing) };
    let owner = &handle.spec.volume;
    let live = get_live(&ctx.volume_api(&owner.namespace), &owner.name).await?;
    if live.is_some_and(|v| v.metadata.uid.as_deref() == Some(owner.uid.as_str())) {
        let owner = format!("{}/{}", owner.namespace, owner.name);
        return volumes::wait(ctx, volume, &VolumeWaiting::DuplicateHandle { owner }).await;
    }
    if let Some(to) = heir_without_volume(seen) {
        return move_to(ctx, seen, &to).await;
    }
    let spec = &handle.spec;
    if let Some(naming) =
        persistent_volume_naming(ctx, volume, &spec.driver_name, &spec.volume_handle).await?
    {
        return keep_off(ctx, seen, volume, naming).await;
    }
    if !handle.spec.closing {
        return begin_closing(ctx, seen).await;
    }
    if let Some(left) = earlier_than(ctx, handle, |_| false).await? {
        let by =
            format!("Attachment {} on node {}", left.metadata.name.unwrap_or_default(), left.spec.node_name);
        return volumes::wait(ctx, volume, &VolumeWaiting::InUse { by }).await;
    }
    let mode = volume.spec.capabilities.first().map(|u| u.access_mode).unwrap_or_default();
    let controller = volume.spec.assignment.as_ref().and_then(|a| a.controller.clone());
    let fields = json!({ "spec": {
        "closing": false, "volume": reference(volume), "mode": mode, "controller": controller, "writer": null } });
    write(ctx, handle, fields).await
}

/// Who is to make the calls for a VolumeHandle whose Volume is gone, if it cannot be the one that it names.
pub(crate) fn heir_without_volume(seen: &Observed) -> Option<ControllerRef> {
    let balancing = seen.plugin.as_ref()?.spec.balancing;
    volume::heir_without_volume(seen.handle_seen.as_ref()?, &seen.controllers, balancing)
}

/// An Attachment of an earlier epoch that is still there, by a quorum LIST, beside those that `may_stay`.
async fn earlier_than(
    ctx: &Context,
    handle: &VolumeHandle,
    may_stay: impl Fn(&Attachment) -> bool,
) -> Result<Option<Attachment>, ApiError> {
    let name = handle.metadata.name.as_deref().unwrap_or_default();
    let live = live_attachments(ctx, name).await?;
    Ok(live.into_iter().find(|a| a.spec.fixed.epoch < handle.spec.epoch && !may_stay(a)))
}

pub(crate) async fn write(
    ctx: &Context,
    handle: &VolumeHandle,
    fields: serde_json::Value,
) -> Result<Did, ApiError> {
    let written = ctx.writer.patch_main(&ctx.handle_api(), &Target::of(handle), fields).await?;
    ctx.handles.apply(written);
    Ok(Did::Step)
}

/// Says on the VolumeHandle that it is held, once.
pub(crate) async fn report(ctx: &Context, handle: &VolumeHandle) -> Result<Did, ApiError> {
    let owner = &handle.spec.volume;
    let ready = Desired {
        type_: READY,
        status: true,
        reason: "Held",
        message: format!("the volume is held for Volume {}/{}", owner.namespace, owner.name),
    };
    let generation = handle.metadata.generation;
    let mut all = handle.status.as_ref().map(|s| s.conditions.clone()).unwrap_or_default();
    conditions::set(&mut all, &ready, generation, Timestamp::now());
    let fields = json!({ "conditions": all, "observedGeneration": generation });
    let written = ctx.writer.patch_status(&ctx.handle_api(), &Target::of(handle), fields).await?;
    ctx.handles.apply(written);
    Ok(Did::Step)
}

/// No new use from here on: raises the epoch.
pub(crate) async fn begin_closing(ctx: &Context, seen: &Observed) -> Result<Did, ApiError> {
    let Some(handle) = &seen.handle else { return Ok(Did::Nothing) };
    write(ctx, handle, json!({ "spec": { "closing": true, "epoch": handle.spec.epoch + 1 } })).await
}

/// Opens the handle again at the same epoch, in this mode, once nothing of an earlier epoch is left. One that had no
/// controller instance may get its first.
pub(crate) async fn finish_closing(
    ctx: &Context,
    seen: &Observed,
    mode: AccessMode,
    first_controller: Option<&ControllerRef>,
) -> Result<Did, ApiError> {
    let Some(handle) = &seen.handle else { return Ok(Did::Nothing) };
    // Claims may use it for long, and the watch tells when they have left.
    if seen.locks_seen.iter().any(|a| a.epoch < handle.spec.epoch && !a.is_undo_only()) {
        return Ok(Did::Nothing);
    }
    // One that only undoes is kept apart by the entry in spec.undoing, in whatever mode.
    let fenced = |a: &Attachment| {
        let token = a.spec.fixed.undo_only.as_ref();
        token.is_some_and(|token| handle.spec.undoing.iter().any(|u| &u.token == token && !u.done))
    };
    if earlier_than(ctx, handle, fenced).await?.is_some() {
        return Ok(Did::Nothing);
    }
    let mut spec = json!({ "closing": false, "mode": mode, "writer": null });
    if let Some(first) = first_controller {
        tracing::info!(handle = handle.metadata.name, to = first.instance, "first controller instance");
        spec["controller"] = json!(first);
    }
    write(ctx, handle, json!({ "spec": spec })).await
}

/// Removes the VolumeHandle, after a quorum LIST found no Attachment.
pub(crate) async fn remove(ctx: &Context, seen: &Observed) -> Result<Did, ApiError> {
    let Some(handle) = &seen.handle else { return Ok(Did::Nothing) };
    let target = Target::of(handle.as_ref());
    if !live_attachments(ctx, &target.name).await?.is_empty() {
        return Ok(Did::Nothing);
    }
    if handle.metadata.deletion_timestamp.is_none() {
        match ctx.writer.delete(&ctx.handle_api(), &target.name, &target.uid, None).await? {
            Deleted::Gone => ctx.handles.remove_confirmed(&target.uid),
            Deleted::Marked(marked) => ctx.handles.apply(*marked),
        }
        return Ok(Did::Step);
    }
    match ctx.writer.remove_finalizer(&ctx.handle_api(), handle.as_ref(), FINALIZER).await? {
        None => ctx.handles.remove_confirmed(&target.uid),
        Some(left) => ctx.handles.apply(left),
    }
    Ok(Did::Step)
}

/// Names another controller instance: the old one is dead (rule R2).
pub(crate) async fn move_to(ctx: &Context, seen: &Observed, to: &ControllerRef) -> Result<Did, ApiError> {
    let Some(handle) = &seen.handle else { return Ok(Did::Nothing) };
    let Some(from) = &handle.spec.controller else { return Ok(Did::Nothing) };
    if !ctx.is_dead(seen, from).await? {
        return Ok(Did::Nothing);
    }
    tracing::warn!(handle = handle.metadata.name, to = to.instance, "controller instance is dead; moving");
    write(ctx, handle, json!({ "spec": { "controller": to } })).await
}

/// An Attachment that is due for a controller call and still names another instance than its handle.
pub(crate) fn misplaced(seen: &Observed) -> Option<&Arc<Attachment>> {
    let (handle, name) = (seen.handle_seen.as_ref()?, seen.handle.as_ref()?.metadata.name.as_deref()?);
    let mut all = seen.attachments_seen.iter().zip(&seen.attachments);
    all.find(|(a, _)| a.handle_name == name && is_misplaced(a, handle)).map(|(_, object)| object)
}
