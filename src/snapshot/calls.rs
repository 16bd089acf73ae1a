//! Which of a Snapshot's calls its agent makes, and what live reads have to say right before one. As for Volumes
//! (`volume/calls.rs`), everything that allows a call is read live after the last wait.

use crate::api::caller::ControllerRef;
use crate::api::snapshot::{SnapshotAssignment, SnapshotOperation, SnapshotVolume};
use crate::api::{Snapshot, SnapshotState, Volume, VolumeHandle};

/// A call of a Snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SnapshotCall {
    /// CreateSnapshot, also to hear whether it is ready by now; of a group CreateVolumeGroupSnapshot.
    Create,
    /// ListSnapshots, for the handle that is registered; of a group GetVolumeGroupSnapshot.
    List,
    /// DeleteSnapshot; of a group DeleteVolumeGroupSnapshot.
    Delete,
}

/// One step. Every variant is at most one side effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AgentStep {
    /// Nothing to do until something changes.
    Idle,
    /// The call, after [`standing`] said that it may be made.
    Call(SnapshotCall),
    /// Write `Deleted` without the call: nothing was ever asked of the driver.
    NeverBegun,
    /// Write `Deleted` without the call: the owner of a deleted Snapshot wants what the driver keeps to stay, if there is
    /// anything. Without an answer from the driver this is the way out.
    GiveUp(SnapshotCall),
}

/// Plans the next step for a Snapshot whose calls are assigned to an instance of `agent`.
#[must_use]
pub fn plan(snapshot: &Snapshot, agent: &str) -> AgentStep {
    let Some(assignment) = snapshot.spec.assignment.as_ref().filter(|a| a.controller.agent == agent) else {
        return AgentStep::Idle;
    };
    let deleted = snapshot.metadata.deletion_timestamp.is_some();
    let call = match (assignment.operation, snapshot.state()) {
        (SnapshotOperation::Create, SnapshotState::Pending) if deleted && !snapshot.may_exist() => {
            return AgentStep::NeverBegun;
        }
        (SnapshotOperation::Create, SnapshotState::Pending) if snapshot.source_is_gone() => {
            return AgentStep::Idle;
        }
        // Also for a deleted Snapshot: a call may have been made, so it is repeated until its outcome is known.
        (SnapshotOperation::Create, SnapshotState::Pending) => SnapshotCall::Create,
        (SnapshotOperation::Create, SnapshotState::Created) if !deleted => SnapshotCall::Create,
        (SnapshotOperation::List, SnapshotState::Pending | SnapshotState::Created) if !deleted => {
            SnapshotCall::List
        }
        (SnapshotOperation::Delete, SnapshotState::Created | SnapshotState::Ready) => SnapshotCall::Delete,
        (
            SnapshotOperation::Create,
            SnapshotState::Created | SnapshotState::Ready | SnapshotState::Deleted,
        )
        | (
            SnapshotOperation::List,
            SnapshotState::Pending | SnapshotState::Created | SnapshotState::Ready | SnapshotState::Deleted,
        )
        | (SnapshotOperation::Delete, SnapshotState::Pending | SnapshotState::Deleted) => {
            return AgentStep::Idle;
        }
    };
    if deleted && !snapshot.spec.deletes_storage() { AgentStep::GiveUp(call) } else { AgentStep::Call(call) }
}

/// What live reads say about a call that was prepared from a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// It may be sent.
    Valid,
    /// The Snapshot is gone.
    Gone,
    /// The Snapshot has changed in what decides about the call or goes into it: plan again.
    Changed,
    /// Create, and nobody holds a volume for the Volume that the snapshot is to be of: it may be somebody else's.
    NotHeld,
    /// Create, of one volume, and another instance makes its controller calls (rule R2).
    NotHolder,
    /// Create, and nothing was begun before a Volume was deleted: by now nobody may wait for it.
    SourceEnds,
}

/// What was read live of a volume that a snapshot is taken of.
#[derive(Clone, Copy, Debug, Default)]
pub struct SourceNow<'a> {
    /// The Volume of that name.
    pub volume: Option<&'a Volume>,
    /// The VolumeHandle.
    pub lock: Option<&'a VolumeHandle>,
}

/// Compares what a call was prepared from with the live Snapshot of that name, and with its volumes, in the order of
/// its assignment.
#[must_use]
pub fn standing(
    call: SnapshotCall,
    prepared: &Snapshot,
    live: Option<&Snapshot>,
    sources: &[SourceNow<'_>],
) -> Standing {
    let Some(live) = live.filter(|live| live.metadata.uid == prepared.metadata.uid) else {
        return Standing::Gone;
    };
    if !is_same(prepared, live) {
        return Standing::Changed;
    }
    match call {
        SnapshotCall::List | SnapshotCall::Delete => Standing::Valid,
        SnapshotCall::Create => taken_now(live, sources),
    }
}

fn taken_now(live: &Snapshot, sources: &[SourceNow<'_>]) -> Standing {
    let Some(assignment) = &live.spec.assignment else { return Standing::Changed };
    let of: Vec<_> = assignment.taken_of().collect();
    if of.is_empty() || of.len() != sources.len() {
        return Standing::NotHeld;
    }
    let is_new = !live.may_exist() && live.state() == SnapshotState::Pending;
    let each = of.into_iter().zip(sources).map(|(of, source)| one_now(assignment, of, *source, is_new));
    each.into_iter().find(|standing| *standing != Standing::Valid).unwrap_or(Standing::Valid)
}

/// Whether the call may be made as far as this volume is concerned. `is_new`: nothing was begun.
fn one_now(
    assignment: &SnapshotAssignment,
    of: &SnapshotVolume,
    source: SourceNow<'_>,
    is_new: bool,
) -> Standing {
    let is_of = |volume: &&Volume| volume.metadata.uid.as_ref() == Some(&of.uid);
    let volume = source.volume.filter(is_of);
    let ends = volume.is_none_or(|volume| volume.metadata.deletion_timestamp.is_some());
    if ends && is_new {
        return Standing::SourceEnds;
    }
    let is_lock =
        |lock: &&VolumeHandle| lock.spec.volume.uid == of.uid && lock.spec.volume_handle == of.volume_handle;
    let Some(lock) = source.lock.filter(is_lock) else { return Standing::NotHeld };
    match caller(Some(lock), volume) {
        // No instance makes the calls of all volumes of a group.
        _ if assignment.is_group => Standing::Valid,
        Some(calls) if *calls == assignment.controller => Standing::Valid,
        // Nobody will name one.
        None if volume.is_none() => Standing::NotHeld,
        Some(_) | None => Standing::NotHolder,
    }
}

/// Who makes the controller calls of a volume, and so takes its snapshots (rule R2): who its VolumeHandle names, or where that
/// names nobody, as of a driver that does not attach, who makes the Volume's own.
#[must_use]
pub fn caller<'a>(lock: Option<&'a VolumeHandle>, volume: Option<&'a Volume>) -> Option<&'a ControllerRef> {
    let lock = lock?;
    let is_of = |volume: &&Volume| volume.metadata.uid.as_ref() == Some(&lock.spec.volume.uid);
    lock.spec.controller.as_ref().or_else(|| volume.filter(is_of)?.caller())
}

/// Whether two versions of a Snapshot are the same in what decides about its calls and goes into them.
#[must_use]
pub fn is_same(one: &Snapshot, other: &Snapshot) -> bool {
    one.metadata.uid == other.metadata.uid && decisive(one) == decisive(other)
}

/// The parts of a Snapshot that decide about its calls: the generation, which spec, assignment and deletion raise, and of the
/// status what leads from one call to the next.
fn decisive(snapshot: &Snapshot) -> impl PartialEq + '_ {
    let meta = &snapshot.metadata;
    let id = snapshot.status.as_ref().and_then(|s| s.snapshot_handle.as_ref());
    let (state, source_gone) = (snapshot.state(), snapshot.source_is_gone());
    (meta.generation, meta.deletion_timestamp.is_some(), &snapshot.spec.assignment, state, id, source_gone)
}

#[cfg(test)]
#[path = "calls_tests.rs"]
mod tests;
