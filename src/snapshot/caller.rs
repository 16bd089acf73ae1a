//! Which instance makes a Snapshot's calls, and when another one does (rule R2).

use super::calls::caller;
use super::reason::SnapshotWaiting;
use super::seen::{Look, Looked, Planned, Seen, SnapshotStep, key, locks_of, places};
use crate::api::SnapshotState;
use crate::api::attachment::ControllerRef;
use crate::api::plugin::Balancing;
use crate::api::snapshot::{SnapshotAssignment, SnapshotOperation};
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
    let Some(next) = seen.plugin.successor(now, places(seen), key(seen)) else {
        return Ok(wait_for_caller(seen, now));
    };
    Ok(match looked_at(looked, now)? {
        CallerNow::MayCall => wait_for_caller(seen, now),
        CallerNow::CutOff | CallerNow::Relieved => give(assignment, next),
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
