//! The end of a Volume and of its VolumeHandle, after the live reads that have to come before.

use super::look::Look;
use super::scene::Scene;
use super::step::{Due, LeaderStep};
use super::takeover::may_move;
use crate::api::caller::ControllerRef;
use crate::api::volume::{DeletionPolicy, VolumeOperation};
use crate::api::{VolumeState, lock};
use crate::volume::{VolumeWaiting, handle_of};

/// Lets the Volume go without its call, if the instance that has it can be making none (rule R2).
pub(super) fn give_up(scene: &Scene<'_>, caller: &ControllerRef) -> Result<Due, Look> {
    if !may_move(scene, Some(caller))? {
        return Ok(Due::Nothing);
    }
    if scene.own_handle().is_some() { remove_handle(scene) } else { free(scene) }
}

/// Removes the VolumeHandle, after live reads found no Attachment, and nothing that is being made of the Volume.
///
/// Before DeleteVolume was ordered under a VolumeHandle that is closed for it both were looked for, behind its closing: since then
/// nobody is granted the Volume, and nothing begins of it.
///
/// Where that call has not ended the VolumeHandle says first that there is to be none, and then the Volume is read: an order that was
/// given before is seen, and whoever is to carry out a later one reads the VolumeHandle (`volume/calls.rs`). It is removed as it was
/// seen, so that it stays where somebody has closed it for a deletion since.
pub(super) fn remove_handle(scene: &Scene<'_>) -> Result<Due, Look> {
    let (Some(volume), Some(own)) = (scene.volume, scene.own_handle()) else { return Ok(Due::Nothing) };
    let now = volume.spec.assignment.as_ref();
    let ordered = now.is_some_and(|now| now.operation == VolumeOperation::Delete);
    let is_looked_for = ordered && own.closed_for == Some(DeletionPolicy::Delete);
    let is_locked = if is_looked_for { !scene.locks.is_empty() } else { scene.locked_by()?.is_some() };
    if is_locked {
        return Ok(Due::Nothing);
    }
    if !is_looked_for && let Some(by) = scene.copied_by(&own.volume_uid)? {
        return Ok(Due::Wait(VolumeWaiting::Copied { by: by.to_owned() }));
    }
    let has_ended = is_looked_for && volume.state() == VolumeState::Deleted;
    if !has_ended && own.closed_for != Some(DeletionPolicy::Retain) {
        return Ok(Due::Step(LeaderStep::BeginClosing { last: Some(DeletionPolicy::Retain) }));
    }
    if !has_ended && scene.assigned()? != now {
        return Ok(Due::Nothing);
    }
    Ok(Due::Step(LeaderStep::RemoveHandle))
}

/// Lets the Volume go, after a GET showed that its VolumeHandle is gone or another's.
pub(super) fn free(scene: &Scene<'_>) -> Result<Due, Look> {
    let Some(volume) = scene.volume else { return Ok(Due::Nothing) };
    // The name in its status too: by now nobody may be left to say what the driver is called.
    let computed = handle_of(volume)
        .map(|id| lock::handle_name(lock::DriverVolume { driver: scene.driver, handle: id }));
    let recorded = volume.status.as_ref().and_then(|status| status.handle_name.clone());
    for name in computed.into_iter().chain(recorded) {
        let Some(live) = scene.looked.handles.get(&name) else { return Err(Look::Handle { name }) };
        if live.as_ref().is_some_and(|live| Some(&live.volume_uid) == volume.metadata.uid.as_ref()) {
            return Ok(Due::Nothing);
        }
    }
    Ok(Due::Step(LeaderStep::FreeVolume))
}
