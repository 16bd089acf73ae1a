//! Writes VolumeHandles. A change of who is allowed first closes a VolumeHandle, then lists its Attachments, then
//! opens it (rule R3). Each is one side effect.

use kube::ResourceExt as _;
use kube::api::ObjectMeta;

use super::claims::held;
use super::context::Context;
use crate::api::caller::ControllerRef;
use crate::api::handle::{Writer, WriterRef};
use crate::api::volume::DeletionPolicy;
use crate::api::{
    AccessMode, AttachmentUid, ClaimUid, FINALIZER, Volume, VolumeClaim, VolumeHandle, VolumeHandleSpec, lock,
};
use crate::attachment::HandleSeen;
use crate::k8s::{ApiError, read};
use crate::volume::handle_of;

/// The VolumeHandle of a Volume, to be created.
pub(crate) fn new_of(
    volume: &Volume,
    driver: &str,
    epoch: i64,
    closing: bool,
    closed_for: Option<DeletionPolicy>,
    controller: Option<ControllerRef>,
) -> Option<VolumeHandle> {
    let id = handle_of(volume)?;
    Some(VolumeHandle {
        metadata: ObjectMeta {
            name: Some(lock::handle_name(lock::DriverVolume { driver, handle: id })),
            finalizers: Some(vec![FINALIZER.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: VolumeHandleSpec {
            driver_name: driver.to_owned(),
            volume_handle: id.to_owned(),
            volume: volume.reference(),
            mode: first_mode(volume),
            epoch,
            closing,
            closed_for,
            controller,
            writer: None,
        },
        status: None,
    })
}

/// Creates the VolumeHandle, the lock on the driver's volume.
pub(crate) async fn create(ctx: &Context, handle: &VolumeHandle) -> Result<bool, ApiError> {
    ctx.writer.create_in(&ctx.handles, handle).await?;
    Ok(true)
}

fn first_mode(volume: &Volume) -> AccessMode {
    volume.spec.capabilities.first().map(|u| u.access_mode).unwrap_or_default()
}

async fn write(
    ctx: &Context,
    handle: &VolumeHandle,
    change: impl FnOnce(&mut VolumeHandle),
) -> Result<bool, ApiError> {
    // Without the finalizer one that was closed for the last time says that it was open before.
    let mut after = if HandleSeen::of(handle).closed_for.is_some() { handle.clone() } else { held(handle) };
    change(&mut after);
    ctx.writer.update(&ctx.handles, handle, &after).await
}

/// Closes the VolumeHandle to new use, by raising its epoch if it was open. With the last closing, of a Volume that is deleted,
/// one that was open lets its finalizer go, which would take the deletion another write; whoever takes it over puts it on again.
pub(crate) async fn begin_closing(
    ctx: &Context,
    handle: &VolumeHandle,
    last: Option<DeletionPolicy>,
) -> Result<bool, ApiError> {
    let was_open = !handle.spec.closing;
    let change = |after: &mut VolumeHandle| {
        (after.spec.closing, after.spec.closed_for) = (true, last);
        // Once: of an Attachment whose epoch is not the one before it is certain that no call was made (`attachment/observed.rs`).
        after.spec.epoch += i64::from(was_open);
        if last.is_some() && was_open {
            after.finalizers_mut().retain(|finalizer| finalizer != FINALIZER);
        }
    };
    let written = write(ctx, handle, change).await?;
    let uid = handle.metadata.uid.as_deref().unwrap_or_default();
    let answer = ctx.handles.by_uid(uid).filter(|_| last.is_some());
    if answer.is_some_and(|answer| answer.spec.closing && answer.spec.closed_for.is_none()) {
        // The API server leaves out what its definition does not have.
        let message = "spec.closedFor is not in the CustomResourceDefinition of VolumeHandles, which is of an earlier version: apply \
                       those of this one"
            .to_owned();
        let request = read::request(&ctx.writer.api::<VolumeHandle>(""), "patch", &handle.name_any());
        return Err(ApiError::Invalid { request, message });
    }
    Ok(written)
}

/// Opens the VolumeHandle again at the same epoch, in this mode. One that had no controller instance may get its first.
pub(crate) async fn finish_closing(
    ctx: &Context,
    handle: &VolumeHandle,
    mode: AccessMode,
    first_controller: Option<&ControllerRef>,
) -> Result<bool, ApiError> {
    let change = |after: &mut VolumeHandle| {
        let spec = &mut after.spec;
        (spec.closing, spec.mode, spec.writer) = (false, mode, None);
        if let Some(first) = first_controller {
            tracing::info!(handle = handle.metadata.name, to = first.instance, "first controller instance");
            spec.controller = Some(first.clone());
        }
    };
    write(ctx, handle, change).await
}

/// Names this Volume in place of one that is gone, and opens the VolumeHandle for it.
pub(crate) async fn take_over(
    ctx: &Context,
    handle: &VolumeHandle,
    volume: &Volume,
) -> Result<bool, ApiError> {
    let change = |after: &mut VolumeHandle| {
        let spec = &mut after.spec;
        (spec.closing, spec.mode, spec.writer) = (false, first_mode(volume), None);
        spec.closed_for = None;
        spec.volume = volume.reference();
        spec.controller = volume.caller().cloned();
        *after = held(after);
    };
    write(ctx, handle, change).await
}

/// Names another controller instance on the VolumeHandle: the old one is dead (rule R2).
pub(crate) async fn move_to(
    ctx: &Context,
    handle: &VolumeHandle,
    to: &ControllerRef,
) -> Result<bool, ApiError> {
    tracing::warn!(handle = handle.metadata.name, to = to.instance, "controller instance is dead; moving");
    write(ctx, handle, |after| after.spec.controller = Some(to.clone())).await
}

/// Names the claim as the writer of mode MultiNodeSingleWriter, in place of whoever is named (`claim/writer.rs`).
pub(crate) async fn name_writer(
    ctx: &Context,
    handle: &VolumeHandle,
    claim: &VolumeClaim,
    (attachment, attachment_uid): (&str, &AttachmentUid),
) -> Result<bool, ApiError> {
    let meta = &claim.metadata;
    let key = |m: &Option<String>| m.clone().unwrap_or_default();
    let before = handle.spec.writer.as_ref();
    let writer = Writer {
        holder: WriterRef {
            claim: format!("{}/{}", key(&meta.namespace), key(&meta.name)),
            claim_uid: ClaimUid::of(&claim.metadata),
            attachment: attachment.to_owned(),
            attachment_uid: attachment_uid.clone(),
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
) -> Result<bool, ApiError> {
    write(ctx, handle, |after| after.spec.writer = Some(writer.clone().into())).await
}

/// Deletes the VolumeHandle as it was seen, for that it is not used holds of no other. At the next time takes its finalizer off,
/// should it have one: it was closed before its Volume was deleted, or it was deleted by hand.
pub(crate) async fn remove(ctx: &Context, handle: &VolumeHandle) -> Result<bool, ApiError> {
    if handle.metadata.deletion_timestamp.is_some() {
        return ctx.writer.free(&ctx.handles, handle, FINALIZER).await;
    }
    ctx.writer.delete_as_seen(&ctx.handles, handle).await?;
    Ok(true)
}
