//! The leader's next step for one Snapshot.
//!
//! ```text
//! Pending --Assign Create--> (agent: CreateSnapshot) --> Created --(the same call, until it is ready)--> Ready
//! Pending --Assign List, a handle was given--> (agent: ListSnapshots) --> Ready
//! Created, Ready: no other Snapshot stands for what the driver has answered (live list) --Assign with the handle-->
//! deleted: nothing is made of it (live list), no other Snapshot stands for the same (live list)
//!          --Assign Delete--> (agent: DeleteSnapshot) Deleted --Free--> gone
//! deleted with Retain: nothing is made of it (live list) --Free--> gone
//! ```

use super::caller::{chosen, follow};
use super::calls::caller;
use super::deletion::delete;
use super::reason::SnapshotWaiting;
use super::secrets;
use super::seen::{Look, Looked, Planned, Seen, SnapshotStep, confirmed, lost, places};
use crate::api::snapshot::{SnapshotAssignment, SnapshotOperation, SnapshotVolume};
use crate::api::{Snapshot, SnapshotState, Volume, VolumeHandle, VolumeState};

/// Plans the next step.
#[must_use]
pub fn plan(seen: &Seen<'_>, looked: &Looked) -> SnapshotStep {
    let planned = if seen.snapshot.metadata.deletion_timestamp.is_some() {
        delete(seen, looked)
    } else {
        bring_up(seen, looked)
    };
    planned.unwrap_or_else(SnapshotStep::Look)
}

fn bring_up(seen: &Seen<'_>, looked: &Looked) -> Planned {
    let Some(assignment) = &seen.snapshot.spec.assignment else { return first_assignment(seen, looked) };
    if let Some(state) = lost(seen, assignment, assignment.operation == SnapshotOperation::Create) {
        return Ok(SnapshotStep::Restore(state));
    }
    if seen.snapshot.source_is_gone() {
        let volume = seen.snapshot.spec.volume_name.clone().unwrap_or_default();
        return Ok(SnapshotStep::Wait(SnapshotWaiting::VolumeEnds(volume)));
    }
    if let Some(id) = unconfirmed(seen.snapshot, assignment) {
        let holders = looked.holders.as_ref().ok_or_else(|| Look::Holders(id.to_owned()))?;
        let Some(holder) = holders.first() else {
            return Ok(SnapshotStep::Assign(confirmed(assignment, id)));
        };
        let shared = SnapshotStep::Wait(SnapshotWaiting::Shared(holder.words.clone()));
        if seen.snapshot.state() == SnapshotState::Ready {
            return Ok(shared);
        }
        // It is asked for all the same whether it is ready.
        let step = follow(seen, looked, assignment)?;
        return Ok(if step == SnapshotStep::Idle { shared } else { step });
    }
    match (assignment.operation, seen.snapshot.state()) {
        (
            SnapshotOperation::Create | SnapshotOperation::List,
            SnapshotState::Pending | SnapshotState::Created,
        ) => follow(seen, looked, assignment),
        (
            SnapshotOperation::Create | SnapshotOperation::List,
            SnapshotState::Ready | SnapshotState::Deleted,
        )
        | (SnapshotOperation::Delete, _) => Ok(SnapshotStep::Idle),
    }
}

/// What an agent says that the driver has answered, of which nobody has looked yet whether it is another Snapshot's: a node may
/// lie, and so may a driver (rule R13).
fn unconfirmed<'a>(snapshot: &'a Snapshot, assignment: &SnapshotAssignment) -> Option<&'a str> {
    let is_there = matches!(snapshot.state(), SnapshotState::Created | SnapshotState::Ready);
    snapshot.said_handle().filter(|_| is_there && assignment.snapshot_handle.is_none())
}

fn first_assignment(seen: &Seen<'_>, looked: &Looked) -> Planned {
    if let Some(why) = kept_back(seen) {
        return Ok(SnapshotStep::Wait(why));
    }
    let spec = &seen.snapshot.spec;
    let plugin_name = seen.plugin_name.to_owned();
    let taken = seen.volume.and_then(|volume| Some((volume, ready(volume, seen.lock)?)));
    let (operation, controller) = match (&taken, &spec.snapshot_handle) {
        // Who makes the volume's controller calls takes its snapshots too (rule R2).
        (Some((volume, _)), _) => {
            let Some(controller) = caller(seen.lock, Some(volume)) else {
                let volume = volume.metadata.name.clone().unwrap_or_default();
                return Ok(SnapshotStep::Wait(SnapshotWaiting::NoCaller(volume)));
            };
            (SnapshotOperation::Create, Some(controller.clone()))
        }
        (None, Some(id)) => {
            // It may be about to be deleted as another Snapshot's.
            let holders = looked.holders.as_ref().ok_or_else(|| Look::Holders(id.clone()))?;
            if let Some(ends) = holders.iter().find(|holder| holder.ends) {
                return Ok(SnapshotStep::Wait(SnapshotWaiting::HandleEnds(ends.words.clone())));
            }
            (SnapshotOperation::List, chosen(seen))
        }
        (None, None) => return Ok(SnapshotStep::Idle),
    };
    let Some(controller) = controller else {
        return Ok(SnapshotStep::Wait(SnapshotWaiting::NoInstance(plugin_name)));
    };
    let named = match secrets::of(seen, taken.as_ref().map(|(volume, _)| *volume)) {
        Ok(named) => named,
        Err(lack) => return Ok(SnapshotStep::Wait(SnapshotWaiting::Secret(lack))),
    };
    Ok(SnapshotStep::Assign(SnapshotAssignment {
        operation,
        controller,
        plugin_name,
        driver_name: seen.driver.to_owned(),
        secret_name: named.of_volume,
        plugin_secret_name: named.of_plugin,
        snapshot_handle: spec.snapshot_handle.clone(),
        accessible_topology: places(seen).required.to_vec(),
        volume: taken.map(|(_, of)| of),
    }))
}

/// Why nothing can be begun for a Snapshot, as the caches say.
fn kept_back(seen: &Seen<'_>) -> Option<SnapshotWaiting> {
    let spec = &seen.snapshot.spec;
    if let Some(name) = &spec.volume_name {
        let Some(volume) = seen.volume else { return Some(SnapshotWaiting::NoVolume(name.clone())) };
        if volume.metadata.deletion_timestamp.is_some() {
            return Some(SnapshotWaiting::VolumeEnds(name.clone()));
        }
        if ready(volume, seen.lock).is_none() {
            return Some(SnapshotWaiting::VolumeNotReady(name.clone()));
        }
    }
    let plugin = seen.plugin_name.to_owned();
    if seen.plugin.balancing.is_none() {
        return Some(SnapshotWaiting::PluginNotFound(plugin));
    }
    if seen.plugin.ends {
        return Some(SnapshotWaiting::PluginEnds(plugin));
    }
    if let Some(older) = seen.plugin.older {
        return Some(SnapshotWaiting::DuplicateDriver { plugin, older: older.to_owned() });
    }
    if let Some(lack) = &seen.not_allowed {
        return Some(SnapshotWaiting::NotAllowed(lack.clone()));
    }
    match (spec.volume_name.is_some(), seen.takes) {
        (true, Some(false)) => Some(SnapshotWaiting::CannotSnapshot(plugin)),
        (true, None) => Some(SnapshotWaiting::NoInstance(plugin)),
        (true, Some(true)) | (false, _) => None,
    }
}

/// What a snapshot of this Volume names, if one can be taken of it now.
fn ready(volume: &Volume, lock: Option<&VolumeHandle>) -> Option<SnapshotVolume> {
    let uid = volume.metadata.uid.clone()?;
    let is_ready = volume.state() == VolumeState::Ready && volume.metadata.deletion_timestamp.is_none();
    let lock = lock.filter(|lock| is_ready && lock.spec.volume.uid == uid)?;
    let handle_name = lock.metadata.name.clone()?;
    Some(SnapshotVolume { uid, volume_handle: lock.spec.volume_handle.clone(), handle_name })
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
