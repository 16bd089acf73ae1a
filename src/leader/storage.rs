//! Steps that another orchestrator's PersistentVolume forbids: locking storage, and having it deleted.

use super::look::Look;
use super::release::{free, remove_handle};
use super::scene::Scene;
use super::step::{Due, LeaderStep};
use super::takeover::{heir_without_volume, may_move, move_handle, moves_from};
use crate::api::caller::ControllerRef;
use crate::api::conditions::READY;
use crate::api::volume::{DeletionPolicy, VolumeOperation};
use crate::api::{AttachmentState, Volume};
use crate::attachment::AttachmentSeen;
use crate::volume::persistent_volume::{CsiSource, Naming};
use crate::volume::{Left, VolumeWaiting, handle_of};

/// Creates the VolumeHandle, the lock on the driver's volume.
///
/// Also one that CreateVolume answered is looked for among PersistentVolumes: the node that made the call may lie, and
/// whoever has the VolumeHandle has the storage deleted.
pub(super) fn make_handle(scene: &Scene<'_>) -> Result<Due, Look> {
    let Some((volume, id)) = scene.volume.and_then(|volume| Some((volume, handle_of(volume)?))) else {
        return Ok(Due::Nothing);
    };
    // What is still attached of a deleted Volume has to be detached, whoever names the storage: before DeleteVolume that is looked
    // for in any case.
    let is_deleted = volume.metadata.deletion_timestamp.is_some();
    let is_attached = is_deleted && !scene.live_locks()?.is_empty();
    if !is_attached && let Some(named) = kept_off_by(scene, volume, scene.of_driver(id))? {
        return keep_off(scene, volume, named);
    }
    // Attachments that outlived an earlier VolumeHandle still lock the storage: it starts closed behind them, with the
    // instance that has them to detach, which may be at a call of theirs, or be about to make one before this is written, and is
    // not always the Volume's (rule R2).
    let left = scene.live_locks()?;
    let latest = left.iter().max_by_key(|a| a.epoch);
    let is_at_work = |a: &&AttachmentSeen| a.attach && a.state != AttachmentState::ControllerDetached;
    let at_work = left.iter().filter(is_at_work).max_by_key(|a| a.epoch);
    let at_work = at_work.and_then(|a| a.controller.as_ref());
    Ok(Due::Step(LeaderStep::CreateHandle {
        epoch: latest.map_or(1, |latest| latest.epoch + 1),
        // Of a Volume that goes it is made to have the storage deleted, by a call that may be running since it was removed by hand:
        // open, somebody who has not heard of the deletion would grant it.
        closing: is_deleted || !left.is_empty(),
        // Who uses the storage is looked for behind this, before the call may be made.
        closed_for: is_deleted.then_some(DeletionPolicy::Retain),
        controller: at_work.or(volume.caller()).or_else(|| latest?.controller.as_ref()).cloned(),
    }))
}

/// Takes over a VolumeHandle that names another Volume, if that one is gone: by closing it first.
pub(super) fn contest_handle(scene: &Scene<'_>) -> Result<Due, Look> {
    let (Some(volume), Some(handle)) = (scene.volume, scene.handle) else { return Ok(Due::Nothing) };
    if scene.looked.owner_exists.ok_or(Look::Owner)? {
        return Ok(Due::Wait(VolumeWaiting::DuplicateHandle { owner: handle.owner.clone() }));
    }
    if let Some(to) = heir_without_volume(scene) {
        return move_handle(scene, to);
    }
    if let Some(named) = kept_off_by(scene, volume, scene.of_driver(&handle.volume_handle))? {
        return keep_off(scene, volume, named);
    }
    if !handle.closing {
        return Ok(Due::Step(LeaderStep::BeginClosing { last: None }));
    }
    Ok(match scene.live_locks()?.iter().find(|a| a.epoch < handle.epoch) {
        Some(left) => {
            let by = format!("Attachment {} on node {}", left.name, left.node);
            Due::Wait(VolumeWaiting::InUse { by })
        }
        // A snapshot of the Volume that is gone may still be taken.
        None => match scene.copied_by(&handle.volume_uid)? {
            Some(by) => Due::Wait(VolumeWaiting::InUse { by: by.to_owned() }),
            None => Due::Step(LeaderStep::TakeOver),
        },
    })
}

/// Has DeleteVolume called, after live reads found no Attachment, and that no PersistentVolume names it.
pub(super) fn delete(scene: &Scene<'_>, to: Option<ControllerRef>) -> Result<Due, Look> {
    let Some(volume) = scene.volume else { return Ok(Due::Nothing) };
    if let Some(name) = scene.locked_by()? {
        return Ok(Due::Wait(VolumeWaiting::InUse { by: format!("Attachment {name}") }));
    }
    if !scene.reports_have_ended()? {
        return Ok(Due::Nothing);
    }
    let order = volume.assignment(VolumeOperation::Delete, to);
    let from = moves_from(scene, &order);
    if !may_move(scene, from)? {
        return Ok(Due::Nothing);
    }
    // An order that was given stands: its call may be running. To another instance it is given anew, and where the VolumeHandle is
    // not closed for it any more it is as if it were: after what may have come since.
    let ordered = volume.spec.assignment.as_ref().is_some_and(|now| now.operation == order.operation);
    let is_closed = scene.handle.is_some_and(|handle| handle.closed_for == Some(DeletionPolicy::Delete));
    let stands = ordered && is_closed;
    let is_new = !stands || from.is_some();
    let uid = volume.metadata.uid.as_deref().unwrap_or_default();
    if !stands && let Some(by) = scene.copied_by(uid)? {
        return Ok(Due::Wait(VolumeWaiting::Copied { by: by.to_owned() }));
    }
    if let Some(handle) = scene.handle.filter(|_| is_new)
        && let Some(named) = named_by(scene, volume, scene.of_driver(&handle.volume_handle))?
    {
        if ordered && from.is_none() {
            let (name, field) = (named.name.clone(), named.field);
            return Ok(Due::Wait(VolumeWaiting::OrderedInPersistentVolume { name, field }));
        }
        return leave(scene, volume, named.name.clone());
    }
    if !is_closed {
        return Ok(Due::Step(LeaderStep::BeginClosing { last: Some(DeletionPolicy::Delete) }));
    }
    // Last of all: the order carries the version of the Volume alone.
    if is_new && !scene.handle_stands()? {
        return Ok(Due::Nothing);
    }
    Ok(Due::Step(LeaderStep::AssignVolume(order)))
}

/// Lets the agent delete what CreateVolume made and nobody can use, after a quorum LIST found no PersistentVolume that
/// names it: a node may lie about what it has made, and agents may not read PersistentVolumes.
pub(super) fn judge_rejected(scene: &Scene<'_>) -> Result<Due, Look> {
    let Some(volume) = scene.volume else { return Ok(Due::Nothing) };
    let (Some(rejected), Some(_)) = (volume.rejected(), volume.caller()) else { return Ok(Due::Nothing) };
    // A restored etcd may have forgotten that it was of use since, and a node that uses it says so.
    if let Some(by) = scene.in_use_by().filter(|_| !scene.forgotten.is_empty()) {
        return Ok(Due::Wait(VolumeWaiting::InUse { by }));
    }
    if !scene.reports_have_ended()? || scene.cautious {
        return Ok(Due::Nothing);
    }
    let Some(driver) = scene.driver_of_calls else {
        let plugin = volume.spec.plugin_name.clone();
        return Ok(Due::Wait(VolumeWaiting::DriverNotThere { plugin, left: Left::Rejected }));
    };
    let made = CsiSource { driver: driver.to_owned(), volume_handle: rejected.volume_handle.clone() };
    match named_by(scene, volume, made)? {
        Some(named) => keep_off(scene, volume, named),
        None => Ok(Due::Step(LeaderStep::AllowDeletion(true))),
    }
}

/// As [`named_by`], for who is to lock the storage. A Volume that moor keeps for PersistentVolumes is theirs: all that name
/// it share it. What they name under another name of the driver than kubelets come to moor with is somebody else's. A Volume
/// that goes locks its storage only to have it deleted.
fn kept_off_by<'a>(scene: &Scene<'a>, volume: &Volume, of: CsiSource) -> Result<Option<&'a Naming>, Look> {
    let is_theirs = scene.kept_as == Some(of.driver.as_str()) && volume.metadata.deletion_timestamp.is_none();
    if is_theirs { Ok(None) } else { named_by(scene, volume, of) }
}

/// The PersistentVolume that keeps this Volume off its storage. One that only may stand for the same does so for a handle
/// that somebody named, and not for what the driver has just made.
fn named_by<'a>(scene: &Scene<'a>, volume: &Volume, made: CsiSource) -> Result<Option<&'a Naming>, Look> {
    match &scene.looked.named_by {
        None => Err(Look::PersistentVolumes(made)),
        Some(named) => {
            let counts = |named: &&Naming| named.certain || volume.spec.volume_handle.is_some();
            Ok(named.as_ref().filter(counts))
        }
    }
}

/// Keeps the Volume off storage that a PersistentVolume names: it waits, and if it is deleted it goes without
/// DeleteVolume.
fn keep_off(scene: &Scene<'_>, volume: &Volume, named: &Naming) -> Result<Due, Look> {
    let Naming { name, field, certain } = named.clone();
    if volume.metadata.deletion_timestamp.is_some() {
        return leave(scene, volume, name);
    }
    Ok(Due::Wait(match volume.spec.volume_handle {
        None => VolumeWaiting::AnswerInPersistentVolume { name },
        Some(_) => VolumeWaiting::HandleInPersistentVolume { name, field, certain },
    }))
}

/// Ends a deleted Volume whose storage a PersistentVolume names: without DeleteVolume, and not before that was said. The
/// object goes in a moment, and its conditions with it.
fn leave(scene: &Scene<'_>, volume: &Volume, name: String) -> Result<Due, Look> {
    let left = VolumeWaiting::StorageLeft { name };
    let said = volume.status.iter().flat_map(|status| &status.conditions);
    if !said
        .into_iter()
        .any(|c| c.type_ == READY && c.reason == left.reason().as_str() && c.message == left.message())
    {
        return Ok(Due::Step(LeaderStep::TellStorageLeft(left)));
    }
    if scene.own_handle().is_some() { remove_handle(scene) } else { free(scene) }
}
