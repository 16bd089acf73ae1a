//! The leader's next step for one Volume and its VolumeHandle.
//!
//! ```text
//! Pending --Assign--> (agent: Create | Validate) --> Created --MakeHandle, ReportReady--> Ready
//! Pending --Assign Adopt, MakeHandle, ReportReady--> Ready: a PersistentVolume has it, and nothing is called
//! deleted: wait for Attachments and for the end of an export --BeginClosing--> live looks --AssignDelete--> (agent) Deleted
//!          --RemoveHandle--> FreeVolume --> gone
//! made and unusable: stays Pending --JudgeRejected--> (agent) deletes it and then calls CreateVolume anew (`calls.rs`)
//! Ready --Assign Expand | Modify | Revalidate--> (agent) as asked for; by nodes alone --ReportExpanded (`orders.rs`)
//! Ready, adopted without a caller --Assign Adopt--> (nobody calls) the same, with who is to call DeleteVolume one day
//! mode switch, first controller instance: BeginClosing --> quorum LIST --FinishClosing--> open at the next epoch (rule R3)
//! ```

use super::deletion;
use super::instance::SaidBy;
use super::orders::{before, follow, is_order};
use super::reason::VolumeWaiting;
use super::secrets;
use super::seen::{Seen, VolumeStep};
use super::source::{self, SourceLack};
use super::waits::{lock, open_call};
use crate::api::volume::{VolumeAssignment, VolumeOperation};
use crate::api::{AccessMode, VolumeState};
use crate::attachment::HandleSeen;

/// Plans the next step.
#[must_use]
pub fn plan(seen: &Seen<'_>) -> VolumeStep {
    if seen.volume.metadata.deletion_timestamp.is_some() { deletion::plan(seen) } else { bring_up(seen) }
}

fn bring_up(seen: &Seen<'_>) -> VolumeStep {
    let spec = &seen.volume.spec;
    if seen.plugin.balancing.is_none() {
        return VolumeStep::Wait(VolumeWaiting::PluginNotFound { plugin: spec.plugin_name.clone() });
    }
    let Some(assignment) = &spec.assignment else {
        if seen.plugin.ends {
            return VolumeStep::Wait(VolumeWaiting::PluginEnds { plugin: spec.plugin_name.clone() });
        }
        return match &seen.not_allowed {
            Some(lack) => VolumeStep::Wait(VolumeWaiting::NotAllowed(lack.clone())),
            None => first_assignment(seen),
        };
    };
    let current = assignment.controller.as_ref();
    let moved = current.and_then(|current| seen.successor(current));
    match seen.volume.state() {
        // Registered while no instance of the driver had the Controller service. As long as nobody uses the volume one
        // that came since takes it over without further ado.
        VolumeState::Pending if current.is_none() && !seen.plugin.controllers.is_empty() => {
            first_assignment(seen)
        }
        VolumeState::Pending if current.is_none() => handle_or_ready(seen),
        VolumeState::Pending if assignment.operation == VolumeOperation::Adopt => handle_or_ready(seen),
        // Its status was lost: CreateVolume tells it again.
        VolumeState::Pending if is_order(assignment.operation) => {
            VolumeStep::Assign(VolumeAssignment { operation: before(seen), ..assignment.clone() })
        }
        // Its status was lost since it was made: what it was made of may have gone meanwhile.
        VolumeState::Pending if seen.volume.source_is_gone() && seen.own_handle().is_some() => {
            VolumeStep::RestoreStatus
        }
        VolumeState::Pending if seen.volume.source_is_gone() => {
            VolumeStep::Wait(VolumeWaiting::Source(SourceLack::Gone))
        }
        VolumeState::Pending => open_call(seen, assignment.operation, moved),
        VolumeState::Created => handle_or_ready(seen),
        VolumeState::Ready => open_handle(seen),
        VolumeState::Deleted => VolumeStep::Idle,
    }
}

fn first_assignment(seen: &Seen<'_>) -> VolumeStep {
    let plugin = seen.volume.spec.plugin_name.clone();
    let registers = seen.volume.spec.volume_handle.is_some();
    if let Some(older) = seen.plugin.older {
        return VolumeStep::Wait(VolumeWaiting::DuplicateDriver { plugin, older: older.to_owned() });
    }
    if let Some(by) = seen.plugin.controllers_said.filter(|_| seen.plugin.controllers.is_empty()) {
        let needs = match by {
            SaidBy::Plugin => "serves the Controller service on a node that its spec.controllerNodes selects",
            SaidBy::Pods => {
                "serves the Controller service in a Pod of its spec.controller; see its conditions Deployed and Ready"
            }
            SaidBy::Driver => {
                "serves the Controller service, which the driver says that it has: start that part of it, or set spec.roles of \
                 the Plugin to Node if there is none"
            }
        };
        return VolumeStep::Wait(VolumeWaiting::NoInstance { plugin, needs });
    }
    if seen.plugin.controllers.is_empty() {
        // A driver without Controller service: nothing can be created or validated, registering is all.
        return match (registers, seen.plugin.any_healthy) {
            (_, false) => VolumeStep::Wait(VolumeWaiting::NoInstance { plugin, needs: "known" }),
            (true, true) => {
                let operation = taken_by(seen);
                secrets::assign(seen, VolumeAssignment { operation, ..VolumeAssignment::default() })
            }
            (false, true) => VolumeStep::Wait(VolumeWaiting::CannotCreate { plugin }),
        };
    }
    if seen.volume.is_to_be_placed() && seen.first_place.is_none() {
        return VolumeStep::Wait(VolumeWaiting::FirstClaim { volume: seen.name() });
    }
    let Some(chosen) = seen.chosen() else {
        if let Some(active) = seen.plugin.waits_for_active() {
            let instance = active.instance.clone();
            return VolumeStep::Wait(VolumeWaiting::ActiveNotThere { plugin, instance });
        }
        let needs = "serves the Controller service where the volume is";
        return VolumeStep::Wait(VolumeWaiting::NoInstance { plugin, needs });
    };
    if !registers && !seen.plugin.can_create {
        return VolumeStep::Wait(VolumeWaiting::CannotCreate { plugin });
    }
    let operation = if registers { taken_by(seen) } else { VolumeOperation::Create };
    let source = match source::assigned(seen.volume, seen.source) {
        Ok(source) => source,
        Err(lack) => return VolumeStep::Wait(VolumeWaiting::Source(lack)),
    };
    let place =
        seen.first_place.clone().filter(|place| seen.volume.is_to_be_placed() && !place.segments.is_empty());
    secrets::assign(
        seen,
        VolumeAssignment {
            place,
            source: source.map(Box::new),
            ..seen.volume.assignment(operation, Some(chosen))
        },
    )
}

/// How a volume is taken that exists.
fn taken_by(seen: &Seen<'_>) -> VolumeOperation {
    if seen.adopts { VolumeOperation::Adopt } else { VolumeOperation::Validate }
}

/// The driver has the volume: its VolumeHandle comes before Ready.
fn handle_or_ready(seen: &Seen<'_>) -> VolumeStep {
    match (seen.handle, seen.own_handle()) {
        (None, _) => lock(seen, VolumeStep::MakeHandle),
        (Some(_), None) => lock(seen, VolumeStep::ContestHandle),
        (Some(_), Some(own)) if own.closing => finish_closing(seen, own, own.mode),
        // Made before the instance came that the Volume is assigned to by now.
        (Some(_), Some(own)) if own.controller.is_none() && seen.volume.caller().is_some() => {
            VolumeStep::BeginClosing { last: None }
        }
        (Some(_), Some(_)) => VolumeStep::ReportReady,
    }
}

/// Opens the VolumeHandle again. One without controller instance gets the Volume's, else one that came since.
fn finish_closing(seen: &Seen<'_>, own: &HandleSeen, mode: AccessMode) -> VolumeStep {
    let first = || seen.volume.caller().cloned().or_else(|| seen.chosen());
    match own.controller.as_ref().map_or_else(first, |_| None) {
        // By all that is known its Volume was deleted, and DeleteVolume may be running.
        _ if own.closed_for.is_some() || own.let_go => {
            VolumeStep::Wait(VolumeWaiting::HandleClosed { handle: own.name.clone() })
        }
        // Open it would be staged without being attached.
        None if own.controller.is_none() && seen.plugin.attaches => VolumeStep::Idle,
        first_controller => VolumeStep::FinishClosing { mode, first_controller },
    }
}

/// A Ready Volume: keep its VolumeHandle open, in the mode that is asked for, at a living instance.
fn open_handle(seen: &Seen<'_>) -> VolumeStep {
    let Some(own) = seen.own_handle() else {
        let step = if seen.handle.is_some() { VolumeStep::ContestHandle } else { VolumeStep::MakeHandle };
        return lock(seen, step);
    };
    if let Some(next) = seen.heir() {
        return VolumeStep::MoveHandle(next);
    }
    if own.closing {
        return finish_closing(seen, own, seen.wanted_mode.unwrap_or(own.mode));
    }
    // A controller instance that came after the Volume was Ready. Whether volumes are attached changes who is allowed, so
    // nobody new comes in before all have left that use it without.
    if own.controller.is_none() && seen.plugin.attaches {
        return VolumeStep::BeginClosing { last: None };
    }
    if seen.wanted_mode.is_some_and(|mode| mode != own.mode) {
        return VolumeStep::BeginClosing { last: None };
    }
    first_caller(seen, own).map_or_else(|| follow(seen, own), VolumeStep::Assign)
}

/// Who makes the calls of a Volume whose VolumeHandle names nobody, as its driver attaches nothing, where nobody was there when
/// it was taken, or that one is gone: without a caller it could not be deleted, nor snapshots be taken of it. What it was ordered
/// stays as it is, so that no call can be running beside those of the one that is named here.
fn first_caller(seen: &Seen<'_>, own: &HandleSeen) -> Option<VolumeAssignment> {
    let assignment = seen.volume.spec.assignment.as_ref().filter(|_| own.controller.is_none())?;
    let current = assignment.controller.as_ref();
    let next = current.map_or_else(|| seen.chosen(), |current| seen.successor(current))?;
    Some(VolumeAssignment { controller: Some(next), ..assignment.clone() })
}
