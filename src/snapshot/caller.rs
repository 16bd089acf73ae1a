//! Which instance makes a Snapshot's calls, and when another one does (rule R2).

use super::calls::caller;
use super::reason::SnapshotWaiting;
use super::seen::{Look, Looked, Planned, Seen, SnapshotStep, key, locks_of, places};
use crate::api::caller::ControllerRef;
use crate::api::conditions::Reason;
use crate::api::plugin::Balancing;
use crate::api::snapshot::{SnapshotAssignment, SnapshotOperation};
use crate::api::volume::Segments;
use crate::api::{Snapshot, SnapshotState};
use crate::volume::{CallerNow, InstanceSeen};

/// An unfinished call: it stays with whoever has it, unless that one can be making none.
pub(super) fn follow(seen: &Seen<'_>, looked: &Looked, assignment: &SnapshotAssignment) -> Planned {
    let now = &assignment.controller;
    // No instance makes the calls of all volumes of a group.
    let is_tied = assignment.operation == SnapshotOperation::Create && !assignment.is_group;
    let lock = locks_of(seen, assignment).into_iter().next().flatten().filter(|_| is_tied);
    // Without the volume's calls its agent makes none here, and those that it has made before were over when they moved.
    if let Some(of_volume) = caller(lock, seen.volumes.first().and_then(|of| of.volume)) {
        let stays = of_volume == now;
        return Ok(if stays { wait_for_caller(seen, now) } else { give(assignment, of_volume.clone()) });
    }
    let elsewhere = next_place(seen, Some(assignment));
    if is_not_there(seen.snapshot) {
        // Its agent has said so, and makes the call again only after a long while.
        return Ok(elsewhere.map_or_else(|| wait_for_caller(seen, now), |next| look_in(assignment, next)));
    }
    let next = match seen.plugin.successor(now, places(seen), key(seen)) {
        Some(next) => give(assignment, next),
        None => match elsewhere.filter(|_| seen.plugin.is_dead(now)) {
            Some(next) => look_in(assignment, next),
            None => return Ok(wait_for_caller(seen, now)),
        },
    };
    Ok(match looked_at(looked, now)? {
        CallerNow::MayCall => wait_for_caller(seen, now),
        CallerNow::CutOff | CallerNow::Relieved => next,
    })
}

/// An instance, and the place where it looks.
pub(super) type LooksIn = (ControllerRef, Vec<Segments>);

/// Where a snapshot that was registered is looked for next, or first. Where each place has storage of its own nobody knows which one
/// has it, so one after the other is asked, in an order that stays: None after the last one, and where any instance knows.
pub(super) fn next_place(seen: &Seen<'_>, now: Option<&SnapshotAssignment>) -> Option<LooksIn> {
    let is_local = seen.finds && seen.plugin.balancing == Some(Balancing::PerTopology);
    let looks = now.is_none_or(|now| now.operation == SnapshotOperation::List);
    let before = match now.map(|now| now.accessible_topology.first()) {
        _ if !is_local || !looks => return None,
        // It was taken up when the driver was not known to be one of these.
        Some(None) => return None,
        Some(before) => before,
        None => None,
    };
    let comes_after = |i: &&InstanceSeen| before.is_none_or(|before| i.topology > before.segments);
    let healthy = seen.plugin.controllers.iter().filter(|i| i.healthy && !i.topology.is_empty());
    let next = healthy.filter(comes_after).min_by_key(|i| (&i.topology, &i.name))?;
    Some((next.to_ref(), vec![Segments { segments: next.topology.clone() }]))
}

/// The same question, in another place.
fn look_in(assignment: &SnapshotAssignment, (controller, place): LooksIn) -> SnapshotStep {
    let assignment = SnapshotAssignment { controller, accessible_topology: place, ..assignment.clone() };
    SnapshotStep::Assign(Box::new(assignment))
}

/// Whether the instance that was asked last has answered that its driver has no such snapshot.
fn is_not_there(snapshot: &Snapshot) -> bool {
    snapshot.status.as_ref().is_some_and(|status| {
        let error = status.last_error.as_ref().map(|error| error.code.as_str());
        error == Some(Reason::SnapshotNotFound.as_str())
            && status.observed_generation == snapshot.metadata.generation
    })
}

/// The same call, of another instance.
pub(super) fn give(assignment: &SnapshotAssignment, controller: ControllerRef) -> SnapshotStep {
    SnapshotStep::Assign(Box::new(SnapshotAssignment { controller, ..assignment.clone() }))
}

pub(super) fn looked_at(looked: &Looked, caller: &ControllerRef) -> Result<CallerNow, Look> {
    let said = looked.callers.iter().find(|(of, _)| of == caller).map(|(_, said)| *said);
    said.ok_or_else(|| Look::Caller(caller.clone()))
}

/// The step while the next call is its agent's to make, which says what comes of it, unless it is silent.
pub(super) fn wait_for_caller(seen: &Seen<'_>, caller: &ControllerRef) -> SnapshotStep {
    if seen.plugin.is_silent(caller) {
        let (node, plugin) = (caller.agent.clone(), seen.plugin_name.to_owned());
        return SnapshotStep::Wait(SnapshotWaiting::AgentNotHeard { node, plugin });
    }
    SnapshotStep::Idle
}

/// Who calls DeleteSnapshot: who made the calls before, or where that one serves no more another one. Of a Snapshot that is ready
/// no call is running; of one that is not, one may be.
pub(super) fn deleter(
    seen: &Seen<'_>,
    looked: &Looked,
    now: &ControllerRef,
) -> Result<Option<ControllerRef>, Look> {
    let serves = |i: &InstanceSeen| i.name == now.instance && i.serving && !i.is_dead_for(now);
    if seen.plugin.balancing.is_none() || seen.plugin.controllers.iter().any(serves) {
        return Ok(Some(now.clone()));
    }
    // Where storage is local to nodes and nobody knows where this is, another instance would say that it is gone.
    let is_anywhere =
        seen.plugin.balancing == Some(Balancing::PerTopology) && places(seen).required.is_empty();
    if seen.snapshot.state() == SnapshotState::Ready && !is_anywhere {
        return Ok(chosen(seen));
    }
    if !seen.plugin.is_dead(now) {
        return Ok(Some(now.clone()));
    }
    Ok(match looked_at(looked, now)? {
        CallerNow::MayCall => Some(now.clone()),
        CallerNow::CutOff | CallerNow::Relieved => seen.plugin.successor(now, places(seen), key(seen)),
    })
}

/// The instance that new work goes to.
pub(super) fn chosen(seen: &Seen<'_>) -> Option<ControllerRef> {
    seen.plugin.choose(places(seen), key(seen))
}
