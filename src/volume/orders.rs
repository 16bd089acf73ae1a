//! Which call the instance of a Ready volume is ordered to make: to make it larger, to have it be otherwise, to confirm how it
//! is to be used, or none.
//!
//! There is one order at a time, so that there is one call at a time. Where both are due and one is refused, or cannot even be
//! asked for, the other one has its turn. A growth that fails is called again as soon as it has its next turn. A modification
//! that fails keeps its back-off whatever is ordered in between (`agent/calls/retry.rs`), so two that always fail do not
//! chase each other. So does a question about an edit.

use super::edit;
use super::growth::{self, Fails};
use super::modification;
use super::seen::{Seen, VolumeStep, Wish};
use crate::api::volume::{VolumeAssignment, VolumeOperation};
use crate::attachment::HandleSeen;

/// The next step towards what a Ready volume is asked to be, whose VolumeHandle is open.
pub(super) fn follow(seen: &Seen<'_>, own: &HandleSeen) -> VolumeStep {
    let (call, waits) = match (growth::wish(seen), modification::wish(seen)) {
        (Wish::Write(step), _) | (_, Wish::Write(step)) => return step,
        (Wish::Call, Wish::Call) => (Some(turn(seen)), None),
        (Wish::Call, Wish::Wait(why)) => (Some(VolumeOperation::Expand), Some(why)),
        (Wish::Call, Wish::Nothing) => (Some(VolumeOperation::Expand), None),
        (Wish::Wait(why), Wish::Call) => (Some(VolumeOperation::Modify), Some(why)),
        (Wish::Nothing, Wish::Call) => (Some(VolumeOperation::Modify), None),
        (Wish::Wait(why), Wish::Wait(_) | Wish::Nothing) | (Wish::Nothing, Wish::Wait(why)) => {
            (None, Some(why))
        }
        (Wish::Nothing, Wish::Nothing) => (None, None),
    };
    let call = match edit::wish(seen, own) {
        Wish::Write(step) => return step,
        Wish::Call if call.is_none_or(|other| has_turn(seen, other)) => Some(VolumeOperation::Revalidate),
        Wish::Call | Wish::Wait(_) | Wish::Nothing => call,
    };
    let step = match (call, &waits) {
        (Some(operation), _) => order(seen, own, operation),
        (None, Some(_)) => rest(seen),
        // What was ordered and is done stays as it is.
        (None, None) => VolumeStep::Idle,
    };
    match (step, waits) {
        (VolumeStep::Idle, Some(why)) => VolumeStep::Wait(why),
        (step, _) => step,
    }
}

/// Which of two calls that are due comes next.
fn turn(seen: &Seen<'_>) -> VolumeOperation {
    let volume = seen.volume;
    let (size, attributes) = (growth::fails(volume), modification::fails(volume));
    let gives_way = |fails: &Option<Fails>| match fails {
        Some(Fails::Certainly(_) | Fails::Always(_) | Fails::NotAsked(_)) => true,
        // What may be under way comes to an end first.
        Some(Fails::Perhaps(_)) | None => false,
    };
    match volume.spec.assignment.as_ref().map(|assignment| assignment.operation) {
        // What has not failed comes at once, and what has after the next failure of the other.
        Some(VolumeOperation::Expand)
            if gives_way(&size) && (growth::has_just_failed(volume) || attributes.is_none()) =>
        {
            VolumeOperation::Modify
        }
        Some(VolumeOperation::Modify)
            if gives_way(&attributes) && (modification::has_just_failed(volume) || size.is_none()) =>
        {
            VolumeOperation::Expand
        }
        Some(VolumeOperation::Modify) => VolumeOperation::Modify,
        Some(_) | None if modification::is_open(volume) => VolumeOperation::Modify,
        Some(_) | None => VolumeOperation::Expand,
    }
}

/// Whether an edit comes before another call that is due. What has not failed comes at once, and what has after the next failure
/// of the other; so two that always fail do not chase each other, as a question to the driver keeps its back-off.
fn has_turn(seen: &Seen<'_>, other: VolumeOperation) -> bool {
    let volume = seen.volume;
    let ordered = volume.spec.assignment.as_ref().map(|assignment| assignment.operation);
    if ordered == Some(VolumeOperation::Revalidate) {
        // What has never been tried does not wait for the back-off of a question that was answered with no.
        let is_new = match other {
            VolumeOperation::Expand => growth::fails(volume).is_none(),
            VolumeOperation::Modify => modification::fails(volume).is_none(),
            VolumeOperation::Create
            | VolumeOperation::Validate
            | VolumeOperation::Adopt
            | VolumeOperation::Revalidate
            | VolumeOperation::Delete => false,
        };
        return !(edit::has_just_failed(volume) || (edit::is_refused(volume) && is_new));
    }
    let other_failed = match other {
        VolumeOperation::Expand => {
            let is_open = matches!(growth::fails(volume), Some(Fails::Perhaps(_)));
            growth::has_just_failed(volume) && !is_open
        }
        VolumeOperation::Modify => modification::has_just_failed(volume) && !modification::is_open(volume),
        VolumeOperation::Create
        | VolumeOperation::Validate
        | VolumeOperation::Adopt
        | VolumeOperation::Revalidate
        | VolumeOperation::Delete => false,
    };
    other_failed || (ordered != Some(other) && !edit::is_refused(volume))
}

/// The call is ordered of who makes the controller calls of the VolumeHandle, so that no two are made beside each other.
fn order(seen: &Seen<'_>, own: &HandleSeen, operation: VolumeOperation) -> VolumeStep {
    let Some(assignment) = &seen.volume.spec.assignment else { return VolumeStep::Idle };
    let caller = assignment.controller.as_ref();
    let to = match (&own.controller, caller) {
        (Some(of_handle), _) => Some(of_handle.clone()),
        (None, Some(caller)) => Some(seen.successor(caller).unwrap_or_else(|| caller.clone())),
        (None, None) => seen.chosen(),
    };
    let Some(to) = to else { return VolumeStep::Idle };
    let stays = caller == Some(&to);
    let mut ordered = seen.volume.assignment(operation, Some(to));
    if operation == VolumeOperation::Revalidate {
        ordered.edit = Some(Box::new(edit::next(seen.volume)));
    }
    if *assignment == ordered {
        return VolumeStep::Idle;
    }
    if !stays && is_order(assignment.operation) && own.controller.is_some() {
        // The VolumeHandle was taken from its caller, who could be making no call then and makes none without it. By now
        // that one may be back, so this is no takeover from somebody who is dead.
        return take_back(seen, assignment);
    }
    VolumeStep::Assign(ordered)
}

/// No call is due: one that was ordered, and waits for something now, is taken back.
fn rest(seen: &Seen<'_>) -> VolumeStep {
    match &seen.volume.spec.assignment {
        Some(assignment) if is_order(assignment.operation) => take_back(seen, assignment),
        Some(_) | None => VolumeStep::Idle,
    }
}

fn take_back(seen: &Seen<'_>, assignment: &VolumeAssignment) -> VolumeStep {
    VolumeStep::Assign(VolumeAssignment { operation: before(seen), ..assignment.clone() })
}

/// Whether an operation is an order to a volume that is Ready, which others may follow.
pub(super) fn is_order(operation: VolumeOperation) -> bool {
    match operation {
        VolumeOperation::Expand | VolumeOperation::Modify | VolumeOperation::Revalidate => true,
        VolumeOperation::Create
        | VolumeOperation::Validate
        | VolumeOperation::Adopt
        | VolumeOperation::Delete => false,
    }
}

/// The order under which the volume came to be, which asks for nothing any more.
pub(super) fn before(seen: &Seen<'_>) -> VolumeOperation {
    match (seen.volume.spec.volume_handle.is_some(), seen.adopts) {
        (false, _) => VolumeOperation::Create,
        (true, true) => VolumeOperation::Adopt,
        (true, false) => VolumeOperation::Validate,
    }
}
