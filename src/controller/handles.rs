//! Writes VolumeHandles. A change of who is allowed first closes a VolumeHandle, then lists its Attachments, then
//! opens it (rule R3). Each is one side effect.

use std::sync::Arc;

use jiff::Timestamp;
use kube::api::ObjectMeta;
use serde_json::{Value, json};

use super::context::Context;
use super::pass::Did;
use crate::api::attachment::ControllerRef;
use crate::api::attachment::VolumeRef;
use crate::api::conditions::{self, Desired, Reason};
use crate::api::handle::{Writer, WriterRef};
use crate::api::{AccessMode, FINALIZER, Volume, VolumeClaim, VolumeHandle, VolumeHandleSpec, lock};
use crate::k8s::read::get_live;
use crate::k8s::{ApiError, Created, Deleted, Target};
use crate::volume::handle_of;

/// The VolumeHandle of a Volume, to be created.
pub(crate) fn new_of(
    volume: &Volume,
    driver: &str,
    epoch: i64,
    closing: bool,
    controller: Option<ControllerRef>,
) -> Option<VolumeHandle> {
    let id = handle_of(volume)?;
    Some(VolumeHandle {
        metadata: ObjectMeta {
            name: Some(lock::handle_name(driver, id)),
            finalizers: Some(vec![FINALIZER.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: VolumeHandleSpec {
            driver_name: driver.to_owned(),
            volume_handle: id.to_owned(),
            volume: reference(volume),
            mode: first_mode(volume),
            epoch,
            closing,
            controller,
            writer: None,
        },
        status: None,
    })
}

/// Creates the VolumeHandle, the lock on the driver's volume.
pub(crate) async fn create(ctx: &Context, handle: &VolumeHandle) -> Result<Did, ApiError> {
    match ctx.writer.create(&ctx.handle_api(), handle).await? {
        Created::New(made) => ctx.handles.apply(made),
        Created::Exists => {
            let name = handle.metadata.name.as_deref().unwrap_or_default();
            if let Some(live) = get_live(&ctx.handle_api(), name).await? {
                ctx.handles.apply(live);
            }
        }
    }
    Ok(Did::Step)
}

fn reference(volume: &Volume) -> VolumeRef {
    let meta = &volume.metadata;
    VolumeRef {
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
    }
}

fn first_mode(volume: &Volume) -> AccessMode {
    volume.spec.capabilities.first().map(|u| u.access_mode).unwrap_or_default()
}

/// Writes once on the VolumeHandle that it is Ready.
pub(crate) async fn report(ctx: &Context, handle: &VolumeHandle) -> Result<Did, ApiError> {
    let owner = &handle.spec.volume;
    let message = format!("the volume is held for Volume {}/{}", owner.namespace, owner.name);
    let ready = Desired { reason: Reason::HandleHeld, message };
    let generation = handle.metadata.generation;
    let mut all = handle.status.as_ref().map(|s| s.conditions.clone()).unwrap_or_default();
    conditions::set(&mut all, &ready, generation, Timestamp::now());
    let fields = json!({ "conditions": all, "observedGeneration": generation });
    let written = ctx.writer.patch_status(&ctx.handle_api(), &Target::of(handle), fields).await?;
    ctx.handles.apply(written);
    Ok(Did::Step)
}

async fn write(ctx: &Context, handle: &VolumeHandle, spec: Value) -> Result<Did, ApiError> {
    let fields = json!({ "spec": spec });
    let written = ctx.writer.patch_main(&ctx.handle_api(), &Target::of(handle), fields).await?;
    ctx.handles.apply(written);
    Ok(Did::Step)
}

/// Closes the VolumeHandle to new use, by raising its epoch.
pub(crate) async fn begin_closing(ctx: &Context, handle: &VolumeHandle) -> Result<Did, ApiError> {
    write(ctx, handle, json!({ "closing": true, "epoch": handle.spec.epoch + 1 })).await
}

/// Opens the VolumeHandle again at the same epoch, in this mode. One that had no controller instance may get its first.
pub(crate) async fn finish_closing(
    ctx: &Context,
    handle: &VolumeHandle,
    mode: AccessMode,
    first_controller: Option<&ControllerRef>,
) -> Result<Did, ApiError> {
    let mut spec = json!({ "closing": false, "mode": mode, "writer": null });
    if let Some(first) = first_controller {
        tracing::info!(handle = handle.metadata.name, to = first.instance, "first controller instance");
        spec["controller"] = json!(first);
    }
    write(ctx, handle, spec).await
}

/// Names this Volume in place of one that is gone, and opens the VolumeHandle for it.
pub(crate) async fn take_over(
    ctx: &Context,
    handle: &VolumeHandle,
    volume: &Volume,
) -> Result<Did, ApiError> {
    let controller = volume.spec.assignment.as_ref().and_then(|a| a.controller.clone());
    let (volume, mode) = (reference(volume), first_mode(volume));
    let spec = json!({
        "closing": false, "volume": volume, "mode": mode, "controller": controller, "writer": null
    });
    write(ctx, handle, spec).await
}

/// Names another controller instance on the VolumeHandle: the old one is dead (rule R2).
pub(crate) async fn move_to(
    ctx: &Context,
    handle: &VolumeHandle,
    to: &ControllerRef,
) -> Result<Did, ApiError> {
    tracing::warn!(handle = handle.metadata.name, to = to.instance, "controller instance is dead; moving");
    write(ctx, handle, json!({ "controller": to })).await
}

/// Names the claim as the writer of mode MultiNodeSingleWriter, in place of whoever is named (`claim/writer.rs`).
pub(crate) async fn name_writer(
    ctx: &Context,
    handle: &VolumeHandle,
    claim: &VolumeClaim,
    (attachment, attachment_uid): (&str, &str),
) -> Result<Did, ApiError> {
    let meta = &claim.metadata;
    let key = |m: &Option<String>| m.clone().unwrap_or_default();
    let before = handle.spec.writer.as_ref();
    let writer = Writer {
        holder: WriterRef {
            claim: format!("{}/{}", key(&meta.namespace), key(&meta.name)),
            claim_uid: key(&meta.uid),
            attachment: attachment.to_owned(),
            attachment_uid: attachment_uid.to_owned(),
        },
        grant: before.map_or(1, |w| w.grant + 1),
        released: false,
        after: before.filter(|w| !w.released).map(|w| w.holder.clone()),
    };
    write_writer(ctx, handle, &writer).await
}

/// Writes the writer's lock, guarded by the version that was seen.
pub(crate) async fn write_writer(
    ctx: &Context,
    handle: &VolumeHandle,
    writer: &Writer,
) -> Result<Did, ApiError> {
    let mut fields = json!(writer);
    // A merge patch keeps what it does not mention.
    if writer.after.is_none() {
        fields["after"] = Value::Null;
    }
    write(ctx, handle, json!({ "writer": fields })).await
}

/// Deletes the VolumeHandle, and at the next time takes its finalizer off.
pub(crate) async fn remove(ctx: &Context, handle: &Arc<VolumeHandle>) -> Result<Did, ApiError> {
    let target = Target::of(handle.as_ref());
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
