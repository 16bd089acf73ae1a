//! Steps that another orchestrator's PersistentVolume forbids: locking storage, and having it deleted.

use super::look::Look;
use super::plan::LeaderStep;
use super::scene::Scene;
use super::volume::{
    Due, free, heir_without_volume, in_use_by, may_move, move_handle, moves_from, remove_handle,
};
use crate::api::Volume;
use crate::api::attachment::ControllerRef;
use crate::api::conditions::READY;
use crate::api::volume::{VolumeAssignment, VolumeOperation};
use crate::volume::persistent_volume::Naming;
use crate::volume::{Left, VolumeWaiting, handle_of, is_of_driver};

/// Creates the VolumeHandle, the lock on the driver's volume.
///
/// Also one that CreateVolume answered is looked for among PersistentVolumes: the node that made the call may lie, and
/// whoever has the VolumeHandle has the storage deleted.
pub(super) fn make_handle(scene: &Scene<'_>) -> Due {
    let Some((volume, id)) = scene.volume.and_then(|volume| Some((volume, handle_of(volume)?))) else {
        return Due::Nothing;
    };
    match named_by(scene, volume, scene.driver, id) {
        Err(look) => return Due::Step(LeaderStep::Look(look)),
        Ok(Some(named)) => return keep_off(scene, volume, named),
        Ok(None) => {}
    }
    // Attachments that outlived an earlier VolumeHandle still lock the storage: it starts closed behind them, with the
    // instance that has them to detach.
    let Some(left) = &scene.looked.locks else { return Due::Step(LeaderStep::Look(Look::Locks)) };
    let latest = left.iter().max_by_key(|a| a.epoch);
    let assigned = volume.spec.assignment.as_ref().and_then(|a| a.controller.clone());
    Due::Step(LeaderStep::CreateHandle {
        epoch: latest.map_or(1, |latest| latest.epoch + 1),
        closing: !left.is_empty(),
        controller: assigned.or_else(|| latest.and_then(|latest| latest.controller.clone())),
    })
}

/// Takes over a VolumeHandle that names another Volume, if that one is gone: by closing it first.
pub(super) fn contest_handle(scene: &Scene<'_>) -> Due {
    let (Some(volume), Some(handle)) = (scene.volume, scene.handle) else { return Due::Nothing };
    match scene.looked.owner_exists {
        None => return Due::Step(LeaderStep::Look(Look::Owner)),
        Some(true) => return Due::Wait(VolumeWaiting::DuplicateHandle { owner: handle.owner.clone() }),
        Some(false) => {}
    }
    if let Some(to) = heir_without_volume(scene) {
        return move_handle(scene, to);
    }
    match named_by(scene, volume, scene.driver, &handle.volume_handle) {
        Err(look) => return Due::Step(LeaderStep::Look(look)),
        Ok(Some(named)) => return keep_off(scene, volume, named),
        Ok(None) => {}
    }
    if !handle.closing {
        return Due::Step(LeaderStep::BeginClosing);
    }
    let Some(live) = &scene.looked.locks else { return Due::Step(LeaderStep::Look(Look::Locks)) };
    match live.iter().find(|a| a.epoch < handle.epoch) {
        Some(left) => {
            let by = format!("Attachment {} on node {}", left.name, left.node);
            Due::Wait(VolumeWaiting::InUse { by })
        }
        None => Due::Step(LeaderStep::TakeOver),
    }
}

/// Has DeleteVolume called, after a quorum LIST found no Attachment and another that no PersistentVolume names it.
pub(super) fn delete(scene: &Scene<'_>, to: Option<ControllerRef>) -> Due {
    let Some(volume) = scene.volume else { return Due::Nothing };
    match &scene.looked.locks {
        None => return Due::Step(LeaderStep::Look(Look::Locks)),
        Some(live) if !live.is_empty() => return Due::Nothing,
        Some(_) => {}
    }
    match scene.reports_have_ended() {
        Err(look) => return Due::Step(LeaderStep::Look(look)),
        Ok(false) => return Due::Nothing,
        Ok(true) => {}
    }
    let order = VolumeAssignment { operation: VolumeOperation::Delete, controller: to };
    let from = moves_from(scene, &order);
    match may_move(scene, from) {
        Err(look) => return Due::Step(LeaderStep::Look(look)),
        Ok(false) => return Due::Nothing,
        Ok(true) => {}
    }
    // An order that was given stands: its call may be running. To another instance it is given anew, after what may have
    // come since.
    let ordered = volume.spec.assignment.as_ref().is_some_and(|now| now.operation == order.operation);
    let is_new = !ordered || from.is_some();
    if let Some(handle) = scene.handle.filter(|_| is_new) {
        match named_by(scene, volume, scene.driver, &handle.volume_handle) {
            Err(look) => return Due::Step(LeaderStep::Look(look)),
            Ok(Some(named)) => return leave(scene, volume, named.name.clone()),
            Ok(None) => {}
        }
    }
    Due::Step(LeaderStep::AssignVolume(order))
}

/// Lets the agent delete what CreateVolume made and nobody can use, after a quorum LIST found no PersistentVolume that
/// names it: a node may lie about what it has made, and agents may not read PersistentVolumes.
pub(super) fn judge_rejected(scene: &Scene<'_>) -> Due {
    let Some(volume) = scene.volume else { return Due::Nothing };
    let rejected = volume.status.as_ref().and_then(|status| status.rejected.as_ref());
    let caller = volume.spec.assignment.as_ref().and_then(|a| a.controller.as_ref());
    let (Some(rejected), Some(_)) = (rejected, caller) else { return Due::Nothing };
    // A restored etcd may have forgotten that it was of use since, and a node that uses it says so.
    if let Some(by) = in_use_by(scene).filter(|_| !scene.forgotten.is_empty()) {
        return Due::Wait(VolumeWaiting::InUse { by });
    }
    match scene.reports_have_ended() {
        Err(look) => return Due::Step(LeaderStep::Look(look)),
        Ok(ended) if scene.cautious || !ended => return Due::Nothing,
        Ok(_) => {}
    }
    // The Plugin may be gone, or made anew for another driver, which knows other volumes by such handles. A PluginInstance
    // is believed only under the name that is made of its driver.
    let known = std::iter::once(scene.driver).chain(scene.driver_of_caller);
    let Some(driver) = known.into_iter().find(|driver| is_of_driver(volume, driver)) else {
        let plugin = volume.spec.plugin_name.clone();
        return Due::Wait(VolumeWaiting::DriverNotThere { plugin, left: Left::Rejected });
    };
    match named_by(scene, volume, driver, &rejected.volume_handle) {
        Err(look) => Due::Step(LeaderStep::Look(look)),
        Ok(Some(named)) => keep_off(scene, volume, named),
        Ok(None) => Due::Step(LeaderStep::AllowDeletion(true)),
    }
}

/// The PersistentVolume that keeps this Volume off its storage. One that only may stand for the same does so for a handle
/// that somebody named, and not for what the driver has just made.
fn named_by<'a>(
    scene: &Scene<'a>,
    volume: &Volume,
    driver: &str,
    id: &str,
) -> Result<Option<&'a Naming>, Look> {
    match &scene.looked.named_by {
        None => Err(Look::PersistentVolumes { driver: driver.to_owned(), volume_handle: id.to_owned() }),
        Some(named) => {
            let counts = |named: &&Naming| named.certain || volume.spec.volume_handle.is_some();
            Ok(named.as_ref().filter(counts))
        }
    }
}

/// Keeps the Volume off storage that a PersistentVolume names: it waits, and if it is deleted it goes without
/// DeleteVolume.
fn keep_off(scene: &Scene<'_>, volume: &Volume, named: &Naming) -> Due {
    let Naming { name, field, certain } = named.clone();
    if volume.metadata.deletion_timestamp.is_some() {
        return leave(scene, volume, name);
    }
    Due::Wait(match volume.spec.volume_handle {
        None => VolumeWaiting::AnswerInPersistentVolume { name },
        Some(_) => VolumeWaiting::HandleInPersistentVolume { name, field, certain },
    })
}

/// Ends a deleted Volume whose storage a PersistentVolume names: without DeleteVolume, and not before that was said. The
/// object goes in a moment, and its conditions with it.
fn leave(scene: &Scene<'_>, volume: &Volume, name: String) -> Due {
    let left = VolumeWaiting::StorageLeft { name };
    let said = volume.status.iter().flat_map(|status| &status.conditions);
    if !said
        .into_iter()
        .any(|c| c.type_ == READY && c.reason == left.reason().as_str() && c.message == left.message())
    {
        return Due::Step(LeaderStep::TellStorageLeft(left));
    }
    if scene.own_handle().is_some() { remove_handle(scene) } else { free(scene) }
}
