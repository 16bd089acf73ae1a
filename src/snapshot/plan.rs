//! The leader's next step for one Snapshot.
//!
//! ```text
//! Pending --Assign Create--> (agent: CreateSnapshot) --> Created --(the same call, until it is ready)--> Ready
//! Pending --Assign List, a handle was given--> (agent: ListSnapshots) --> Ready
//! (several Volumes: CreateVolumeGroupSnapshot; the members of a group that was given: GetVolumeGroupSnapshot)
//! Created, Ready: no other Snapshot stands for what the driver has answered (live list) --Assign with the handle-->
//! deleted: nothing is made of it (live list), no other Snapshot stands for the same (live list)
//!          --Assign Delete--> (agent: DeleteSnapshot) Deleted --Free--> gone
//! deleted with Retain: nothing is made of it (live list) --Free--> gone
//! ```

use super::caller::{chosen, follow, next_place};
use super::calls::caller;
use super::deletion::delete;
use super::reason::SnapshotWaiting;
use super::secrets;
use super::seen::{
    Look, Looked, NotWhole, Planned, Said, Seen, SnapshotStep, VolumeSeen, apart, confirmed, lost, places,
};
use crate::api::plugin::Balancing;
use crate::api::snapshot::{SnapshotAssignment, SnapshotMember, SnapshotOperation, SnapshotVolume};
use crate::api::{Snapshot, SnapshotState, VolumeState};

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
        return Ok(SnapshotStep::Wait(SnapshotWaiting::VolumeEnds(gone(seen))));
    }
    if is_unconfirmed(seen.snapshot, assignment) {
        let said = match Said::of(seen.snapshot, assignment) {
            Ok(Some(said)) => said,
            Ok(None) => return Ok(SnapshotStep::Idle),
            Err(NotWhole) => return Ok(SnapshotStep::Wait(SnapshotWaiting::NotWhole)),
        };
        let holders = looked.holders.as_ref().ok_or_else(|| Look::Holders(said.ids()))?;
        let Some(holder) = holders.first() else {
            return Ok(SnapshotStep::Assign(Box::new(confirmed(assignment, said))));
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

/// Whether an agent says that the driver has answered something, of which nobody has looked yet whether it is another Snapshot's:
/// a node may lie, and so may a driver (rule R13).
fn is_unconfirmed(snapshot: &Snapshot, assignment: &SnapshotAssignment) -> bool {
    let is_there = matches!(snapshot.state(), SnapshotState::Created | SnapshotState::Ready);
    is_there && snapshot.said_handle().is_some() && assignment.snapshot_handle.is_none()
}

/// The Volume that is deleted, or gone, before a snapshot of it was begun.
fn gone(seen: &Seen<'_>) -> String {
    let is_gone =
        |of: &&VolumeSeen<'_>| of.volume.is_none_or(|volume| volume.metadata.deletion_timestamp.is_some());
    let of = seen.volumes.iter().find(is_gone).or(seen.volumes.first());
    of.map(|of| of.name.to_owned()).unwrap_or_default()
}

fn first_assignment(seen: &Seen<'_>, looked: &Looked) -> Planned {
    if let Some(why) = kept_back(seen) {
        return Ok(SnapshotStep::Wait(why));
    }
    let (snapshot, spec) = (seen.snapshot, &seen.snapshot.spec);
    let plugin_name = seen.plugin_name.to_owned();
    let mut accessible_topology = places(seen).required.to_vec();
    let (operation, controller) = match &spec.snapshot_handle {
        // Of several volumes each may have its own.
        None if snapshot.is_group() => (SnapshotOperation::Create, chosen(seen)),
        // Who makes the volume's controller calls takes its snapshots too (rule R2).
        None => {
            let Some(of) = seen.volumes.first() else { return Ok(SnapshotStep::Idle) };
            let Some(controller) = caller(of.lock, of.volume) else {
                return Ok(SnapshotStep::Wait(SnapshotWaiting::NoCaller(of.name.to_owned())));
            };
            (SnapshotOperation::Create, Some(controller.clone()))
        }
        Some(id) => {
            // It may be about to be deleted as another Snapshot's.
            let ids = [id].into_iter().chain(&spec.member_handles).cloned();
            let holders = looked.holders.as_ref().ok_or_else(|| Look::Holders(ids.collect()))?;
            if let Some(ends) = holders.iter().find(|holder| holder.ends) {
                return Ok(SnapshotStep::Wait(SnapshotWaiting::HandleEnds(ends.words.clone())));
            }
            let controller = match next_place(seen, None) {
                Some((controller, place)) => {
                    accessible_topology = place;
                    Some(controller)
                }
                None => chosen(seen),
            };
            (SnapshotOperation::List, controller)
        }
    };
    let Some(controller) = controller else {
        return Ok(SnapshotStep::Wait(SnapshotWaiting::NoInstance(plugin_name)));
    };
    let named = match secrets::of(seen) {
        Ok(named) => named,
        Err(why) => return Ok(SnapshotStep::Wait(why)),
    };
    let taken: Vec<_> = seen.volumes.iter().filter_map(ready).collect();
    let (volume, volumes) =
        if snapshot.is_group() { (None, taken) } else { (taken.into_iter().next(), Vec::new()) };
    let member = |id: &String| SnapshotMember { volume_handle: None, snapshot_handle: id.clone() };
    Ok(SnapshotStep::Assign(Box::new(SnapshotAssignment {
        operation,
        controller,
        plugin_name,
        driver_name: seen.driver.to_owned(),
        secret_name: named.of_volume,
        plugin_secret_name: named.of_plugin,
        snapshot_handle: spec.snapshot_handle.clone(),
        accessible_topology,
        volume,
        is_group: snapshot.is_group(),
        volumes,
        members: spec.member_handles.iter().map(member).collect(),
    })))
}

/// Why nothing can be begun for a Snapshot, as the caches say.
fn kept_back(seen: &Seen<'_>) -> Option<SnapshotWaiting> {
    let spec = &seen.snapshot.spec;
    let plugin = seen.plugin_name.to_owned();
    for of in &seen.volumes {
        let name = of.name.to_owned();
        let Some(volume) = of.volume else {
            let field = if seen.snapshot.is_group() { "spec.volumeNames" } else { "spec.volumeName" };
            return Some(SnapshotWaiting::NoVolume { volume: name, field });
        };
        if volume.metadata.deletion_timestamp.is_some() {
            return Some(SnapshotWaiting::VolumeEnds(name));
        }
        if volume.spec.plugin_name != plugin {
            return Some(SnapshotWaiting::PluginsDiffer { volume: name, plugin });
        }
        if ready(of).is_none() {
            return Some(SnapshotWaiting::VolumeNotReady(name));
        }
    }
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
    if seen.plugin.balancing == Some(Balancing::PerTopology)
        && let Some((first, other)) = apart(seen)
    {
        return Some(SnapshotWaiting::PlacesDiffer(first.to_owned(), other.to_owned()));
    }
    // A driver without them cannot be asked for a group either.
    let (is_group, is_registered) = (seen.snapshot.is_group(), spec.snapshot_handle.is_some());
    match seen.takes {
        Some(false) if is_group => Some(SnapshotWaiting::CannotSnapshotGroup(plugin)),
        Some(false) if !is_registered => Some(SnapshotWaiting::CannotSnapshot(plugin)),
        None if !is_registered => Some(SnapshotWaiting::NoInstance(plugin)),
        Some(_) | None => None,
    }
}

/// What a snapshot of this Volume names, if one can be taken of it now.
fn ready(of: &VolumeSeen<'_>) -> Option<SnapshotVolume> {
    let volume = of.volume?;
    let uid = volume.metadata.uid.clone()?;
    let is_ready = volume.state() == VolumeState::Ready && volume.metadata.deletion_timestamp.is_none();
    let lock = of.lock.filter(|lock| is_ready && lock.spec.volume.uid == uid)?;
    let handle_name = lock.metadata.name.clone()?;
    Some(SnapshotVolume {
        name: Some(of.name.to_owned()),
        uid,
        volume_handle: lock.spec.volume_handle.clone(),
        handle_name,
    })
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "group_tests.rs"]
mod group_tests;
