//! Writes Volumes: assignment, Ready, conditions, release. Each is one side effect.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::caches::BY_PLUGIN;
use super::claims::held;
use super::context::Context;
use crate::api::conditions::{self, Desired, Reason, SCHEDULABLE};
use crate::api::volume::{CreatedWith, Expansion, GrantedUse, VolumeAssignment, VolumeOperation};
use crate::api::{FINALIZER, Volume, VolumeHandle, VolumeState, VolumeStatus, quantity};
use crate::k8s::ApiError;
use crate::k8s::events::EventReason;
use crate::volume::schedulable::{self, OfVolume, turn};
use crate::volume::{VolumeWaiting, growth, handle_of, modification, on_nodes};

/// Writes finalizer and assignment in one patch.
pub(crate) async fn assign(ctx: &Context, volume: &Volume, to: &VolumeAssignment) -> Result<bool, ApiError> {
    let mut assigned = held(volume);
    let mut to = to.clone();
    if volume.spec.assignment.is_none() {
        // What the spec says cannot be edited before the Volume is Ready.
        to.granted = Some(GrantedUse::asked(&volume.spec));
        let creates = to.operation == VolumeOperation::Create;
        to.created_with = CreatedWith::asked(&volume.spec).ok().filter(|_| creates).map(Box::new);
    }
    assigned.spec.assignment = Some(to);
    ctx.writer.update(&ctx.volumes, volume, &assigned).await
}

/// Writes whether the agent may delete what CreateVolume made and nobody can use.
pub(crate) async fn allow_deletion(
    ctx: &Context,
    volume: &Volume,
    may_delete: bool,
) -> Result<bool, ApiError> {
    let mut status = volume.status.clone().unwrap_or_default();
    status.rejected.iter_mut().for_each(|rejected| rejected.may_delete = may_delete);
    ctx.writer.update_status(&ctx.volumes, volume, &status).await
}

/// Writes that claims are granted from now on.
pub(crate) async fn report_ready(
    ctx: &Context,
    volume: &Volume,
    handle: Option<&Arc<VolumeHandle>>,
) -> Result<bool, ApiError> {
    let id = handle_of(volume);
    let ready = Desired::new(Reason::Ready, "claims are granted");
    let change = |status: &mut VolumeStatus| {
        status.state = VolumeState::Ready;
        status.volume_handle = id.map(str::to_owned);
        status.handle_name = handle.and_then(|h| h.metadata.name.clone());
        if volume.spec.volume_handle.is_some() && !volume.spec.volume_context.is_empty() {
            status.volume_context.clone_from(&volume.spec.volume_context);
        }
    };
    record(ctx, volume, &ready, change).await
}

/// Writes that the volume has the size that is asked for: `by_nodes`, in bytes, where its driver makes it larger on nodes alone.
pub(crate) async fn report_expanded(
    ctx: &Context,
    volume: &Volume,
    by_nodes: Option<i64>,
) -> Result<bool, ApiError> {
    let new = by_nodes.map(|capacity_bytes| Expansion { capacity_bytes, node_expansion_required: true });
    let expansion = new.or_else(|| volume.status.as_ref()?.expansion);
    let expanded = match expansion.filter(|expansion| expansion.node_expansion_required) {
        Some(owed) => on_nodes::grown(volume, owed),
        None => Desired::new(Reason::Expanded, "the volume has the size that is asked for"),
    };
    let change = |status: &mut VolumeStatus| {
        status.expansion = expansion;
        status.expansion_failure = None;
        forget_failure(status, growth::CALL);
    };
    record(ctx, volume, &expanded, change).await
}

/// Writes that nodes have followed to this size in bytes, so that none owes anything any more. Where no call made the storage
/// larger they have.
pub(crate) async fn report_followed(ctx: &Context, volume: &Volume, bytes: i64) -> Result<bool, ApiError> {
    let change = |status: &mut VolumeStatus| {
        if status.capacity_bytes.is_none_or(|made| made < bytes) {
            (status.capacity, status.capacity_bytes) = (Some(quantity::human(bytes)), Some(bytes));
        }
        let capacity_bytes = status.expansion.map_or(bytes, |expansion| expansion.capacity_bytes.min(bytes));
        status.expansion = Some(Expansion { capacity_bytes, node_expansion_required: false });
    };
    record(ctx, volume, &on_nodes::followed(bytes), change).await
}

/// Writes that the driver has the mutable parameters that are asked for, or is asked for none any more.
pub(crate) async fn report_modified(ctx: &Context, volume: &Volume) -> Result<bool, ApiError> {
    let change = |status: &mut VolumeStatus| {
        status.modification = None;
        forget_failure(status, modification::CALL);
    };
    let modified =
        Desired::new(Reason::Modified, "no other mutable parameters are asked for than the driver has");
    record(ctx, volume, &modified, change).await
}

/// The last failure of this call is not waited for any more.
pub(super) fn forget_failure(status: &mut VolumeStatus, call: &str) {
    if status.last_error.as_ref().is_some_and(|error| error.rpc == call) {
        (status.last_error, status.attempts, status.next_retry) = (None, None, None);
    }
}

/// Writes into the status what the VolumeHandle says, and with `state_too` that the storage was made: the agent goes by it.
pub(crate) async fn restore_status(
    ctx: &Context,
    volume: &Volume,
    handle: &VolumeHandle,
    state_too: bool,
) -> Result<bool, ApiError> {
    let said = volume.status.as_ref().and_then(|s| s.volume_handle.as_deref());
    let (name, is) = (&volume.metadata.name, &handle.spec.volume_handle);
    tracing::error!(volume = name, said, is, "its status was edited or lost; written again");
    let mut status = volume.status.clone().unwrap_or_default();
    status.volume_handle = Some(is.clone());
    status.handle_name.clone_from(&handle.metadata.name);
    if state_too {
        (status.state, status.source_gone) = (VolumeState::Created, false);
    }
    ctx.writer.update_status(&ctx.volumes, volume, &status).await
}

/// Writes what the Volume waits for, if it does not say so already.
pub(crate) async fn wait(ctx: &Context, volume: &Volume, why: &VolumeWaiting) -> Result<bool, ApiError> {
    let waiting = Desired { reason: why.reason(), message: why.message() };
    record(ctx, volume, &waiting, |_| {}).await
}

/// Writes a condition, with the one that says whether it is schedulable, and what `change` makes of the status; nothing if nothing
/// changes.
pub(crate) async fn record(
    ctx: &Context,
    volume: &Volume,
    condition: &Desired,
    change: impl FnOnce(&mut VolumeStatus),
) -> Result<bool, ApiError> {
    let generation = volume.metadata.generation;
    let mut status = volume.status.clone().unwrap_or_default();
    change(&mut status);
    let schedulable = schedulable(ctx, volume).ok().filter(|_| volume.metadata.deletion_timestamp.is_none());
    for desired in schedulable.iter().chain([condition]) {
        conditions::set(&mut status.conditions, desired, generation, Timestamp::now());
    }
    status.observed_generation = generation;
    ctx.writer.update_status(&ctx.volumes, volume, &status).await
}

/// Whether claims could be served anew, as the Volume is to say now; or after which time it may.
pub(super) fn schedulable(ctx: &Context, volume: &Volume) -> Result<Desired, Duration> {
    let name = &volume.spec.plugin_name;
    let said = volume.status.as_ref().and_then(|status| conditions::find(&status.conditions, SCHEDULABLE));
    let others = ctx.volumes.count(BY_PLUGIN, name);
    let of_volume = OfVolume {
        is_begun: volume.spec.assignment.is_some(),
        is_denied: said.is_some_and(|said| said.status == "False"),
        looked_since: ctx.leads_since(),
        turn: turn(volume.metadata.uid.as_deref().unwrap_or_default(), others),
    };
    schedulable::schedulable(name, ctx.plugins.get(name).as_deref(), of_volume, Timestamp::now())
}

/// Says that the storage stays: in a condition, and in an Event, since the object goes in a moment.
pub(crate) async fn tell_storage_left(
    ctx: &Context,
    volume: &Arc<Volume>,
    why: &VolumeWaiting,
) -> Result<bool, ApiError> {
    wait(ctx, volume, why).await?;
    ctx.recorder.tell(volume, EventReason::StorageLeft, "Release", why.message());
    Ok(true)
}

/// Takes the finalizer off a deleted Volume.
pub(crate) async fn free(ctx: &Context, volume: &Volume) -> Result<bool, ApiError> {
    let freed = ctx.writer.free(&ctx.volumes, volume, FINALIZER).await?;
    tracing::info!(namespace = volume.metadata.namespace, volume = volume.metadata.name, "released");
    Ok(freed)
}
