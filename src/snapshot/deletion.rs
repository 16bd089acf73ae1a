//! How a deleted Snapshot goes.

use super::caller::{deleter, follow, looked_at};
use super::reason::SnapshotWaiting;
use super::seen::{Holder, Look, Looked, NotWhole, Planned, Said, Seen, SnapshotStep, confirmed, lost};
use crate::api::SnapshotState;
use crate::api::snapshot::{SnapshotAssignment, SnapshotOperation};
use crate::volume::CallerNow;

/// The next step of a Snapshot that is deleted.
pub(super) fn delete(seen: &Seen<'_>, looked: &Looked) -> Planned {
    if !seen.held {
        return Ok(SnapshotStep::Idle);
    }
    let (snapshot, Some(assignment)) = (seen.snapshot, &seen.snapshot.spec.assignment) else {
        return Ok(SnapshotStep::Free);
    };
    let deletes = snapshot.spec.deletes_storage();
    // What is known to be there, or was registered to be deleted, is not left because its status was lost.
    let is_there = assignment.operation != SnapshotOperation::List || deletes;
    if let Some(state) = lost(seen, assignment, is_there) {
        return Ok(SnapshotStep::Restore(state));
    }
    match (assignment.operation, snapshot.state()) {
        // The agent repeats the call until it is known what it made, or gives it up.
        (SnapshotOperation::Create, SnapshotState::Pending) => return open_call(seen, looked, assignment),
        // Nothing of ours is there, and the driver was only asked.
        (SnapshotOperation::List | SnapshotOperation::Delete, SnapshotState::Pending)
        | (_, SnapshotState::Deleted) => return Ok(SnapshotStep::Free),
        // An order stands whatever the policy says since: its agent says that no call is running any more.
        (SnapshotOperation::Delete, SnapshotState::Created | SnapshotState::Ready) => {
            return open_call(seen, looked, assignment);
        }
        (
            SnapshotOperation::Create | SnapshotOperation::List,
            SnapshotState::Created | SnapshotState::Ready,
        ) => {}
    }
    if let Some(by) = &seen.made_from {
        return Ok(SnapshotStep::Wait(SnapshotWaiting::InUse(by.clone())));
    }
    if let (Some(lack), true) = (&seen.not_allowed, deletes) {
        return Ok(SnapshotStep::Wait(SnapshotWaiting::NotAllowed(lack.clone())));
    }
    if let Some(by) = looked.made_from.clone().ok_or(Look::MadeFrom)? {
        return Ok(SnapshotStep::Wait(SnapshotWaiting::InUse(by)));
    }
    let confirmed = assignment.snapshot_handle.clone();
    let said = match confirmed.map(|id| Said { id, members: assignment.members.clone() }) {
        _ if !deletes => None,
        Some(said) => Some(said),
        None => match Said::of(snapshot, assignment) {
            Ok(said) => said,
            Err(NotWhole) => return Ok(SnapshotStep::Wait(SnapshotWaiting::NotWhole)),
        },
    };
    match said {
        Some(said) => order_deletion(seen, looked, assignment, said),
        None => Ok(SnapshotStep::Free),
    }
}

/// Orders DeleteSnapshot, unless another Snapshot stands for the same, or for a member of the same group.
fn order_deletion(seen: &Seen<'_>, looked: &Looked, assignment: &SnapshotAssignment, said: Said) -> Planned {
    let holders = looked.holders.as_ref().ok_or_else(|| Look::Holders(said.ids()))?;
    // One that ends too and has not come so far does not wait for this one either: a second deletion finds nothing.
    let stands = |holder: &&Holder| !holder.ends || holder.ordered;
    if let Some(holder) = holders.iter().find(stands) {
        return Ok(SnapshotStep::Wait(SnapshotWaiting::Shared(holder.words.clone())));
    }
    let Some(controller) = deleter(seen, looked, &assignment.controller)? else {
        return Ok(SnapshotStep::Wait(SnapshotWaiting::CannotDelete(seen.plugin_name.to_owned())));
    };
    let operation = SnapshotOperation::Delete;
    Ok(SnapshotStep::Assign(Box::new(SnapshotAssignment {
        operation,
        controller,
        ..confirmed(assignment, said)
    })))
}

/// The step while a deleted Snapshot's call is its agent's to end. It goes without where its owner leaves what the driver keeps, and
/// the agent, which would say so, is gone without an heir.
fn open_call(seen: &Seen<'_>, looked: &Looked, assignment: &SnapshotAssignment) -> Planned {
    let (step, now) = (follow(seen, looked, assignment)?, &assignment.controller);
    let is_left = !seen.snapshot.spec.deletes_storage() && seen.plugin.is_dead(now);
    if !is_left || matches!(step, SnapshotStep::Assign(_)) {
        return Ok(step);
    }
    Ok(match looked_at(looked, now)? {
        CallerNow::MayCall => step,
        CallerNow::CutOff | CallerNow::Relieved => SnapshotStep::Free,
    })
}
