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

use super::calls::may_be_calling;
use super::instance::SaidBy;
use super::orders::{before, follow, is_order};
use super::reason::{Left, VolumeWaiting};
use super::secrets;
use super::seen::{Seen, VolumeStep};
use super::source::{self, SourceLack};
use crate::api::caller::ControllerRef;
use crate::api::volume::{VolumeAssignment, VolumeOperation};
use crate::api::{AccessMode, VolumeState};
use crate::attachment::HandleSeen;

/// Plans the next step.
#[must_use]
pub fn plan(seen: &Seen<'_>) -> VolumeStep {
    if seen.volume.metadata.deletion_timestamp.is_some() { delete(seen) } else { bring_up(seen) }
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
            VolumeStep::BeginClosing { last: false }
        }
        (Some(_), Some(_)) => VolumeStep::ReportReady,
    }
}

/// Lets a step towards the VolumeHandle pass, unless the handle would be locked under another driver than the one
/// that has the storage.
fn lock(seen: &Seen<'_>, step: VolumeStep) -> VolumeStep {
    if seen.same_driver { step } else { wait_for_driver(seen, Left::Unlocked) }
}

fn wait_for_driver(seen: &Seen<'_>, left: Left) -> VolumeStep {
    VolumeStep::Wait(VolumeWaiting::DriverNotThere { plugin: seen.volume.spec.plugin_name.clone(), left })
}

/// Opens the VolumeHandle again. One without controller instance gets the Volume's, else one that came since.
fn finish_closing(seen: &Seen<'_>, own: &HandleSeen, mode: AccessMode) -> VolumeStep {
    let first = || seen.volume.caller().cloned().or_else(|| seen.chosen());
    match own.controller.as_ref().map_or_else(first, |_| None) {
        // By all that is known its Volume was deleted, and DeleteVolume may be running.
        _ if own.closed_last => VolumeStep::Wait(VolumeWaiting::HandleClosed { handle: own.name.clone() }),
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
        return VolumeStep::BeginClosing { last: false };
    }
    if seen.wanted_mode.is_some_and(|mode| mode != own.mode) {
        return VolumeStep::BeginClosing { last: false };
    }
    first_caller(seen, own).map_or_else(|| follow(seen, own), VolumeStep::Assign)
}

/// Who makes the calls of a Volume whose VolumeHandle names nobody, as its driver attaches nothing, where nobody was there when
/// it was taken, or that one is gone: without a caller it could not be deleted, nor snapshots be taken of it. What it was ordered
/// stays as it is, so that no call can be running beside those of the one that is named here.
fn first_caller(seen: &Seen<'_>, own: &HandleSeen) -> Option<VolumeAssignment> {
    let assignment = seen.volume.spec.assignment.as_ref().filter(|_| own.controller.is_none())?;
    let next = match &assignment.controller {
        None => seen.chosen(),
        Some(caller) => seen.successor(caller),
    };
    Some(VolumeAssignment { controller: Some(next?), ..assignment.clone() })
}

fn delete(seen: &Seen<'_>) -> VolumeStep {
    if !seen.held {
        return VolumeStep::Idle;
    }
    if let Some(next) = seen.heir() {
        return VolumeStep::MoveHandle(next);
    }
    let (spec, state) = (&seen.volume.spec, seen.volume.state());
    let is_made = matches!(state, VolumeState::Created | VolumeState::Ready);
    if let Some(by) = &seen.in_use_by {
        // Removed by force: without it nobody says who detaches what is left when the instance of that is dead.
        let is_known = seen.same_driver && seen.plugin.balancing.is_some();
        if seen.handle.is_none() && seen.has_attachments && is_known && is_made {
            return VolumeStep::MakeHandle;
        }
        return VolumeStep::Wait(VolumeWaiting::InUse { by: by.clone() });
    }
    if let Some(exported) = seen.volume.status.as_ref().and_then(|status| status.export.as_ref()) {
        let namespace = seen.volume.metadata.namespace.as_deref().unwrap_or_default();
        let claim = format!("{namespace}/{}", exported.persistent_volume_claim);
        return VolumeStep::Wait(VolumeWaiting::Exported { claim });
    }
    let operation = spec.assignment.as_ref().map(|a| a.operation);
    let controller = seen.volume.caller();
    // An order to delete stands whatever the policy says since: the lock goes only after its agent has said that no call
    // is running any more (rule R3).
    let ordered = operation == Some(VolumeOperation::Delete);
    let is_to_go = ordered || spec.deletes_storage();
    let has_storage = seen.own_handle().is_some() || (seen.handle.is_none() && is_made);
    let deleter = deleter(seen);
    // After the order nothing begins.
    if let Some(by) = seen.copied_by.as_ref().filter(|_| !ordered) {
        return VolumeStep::Wait(VolumeWaiting::Copied { by: by.clone() });
    }
    if is_to_go && has_storage && !ordered {
        // Asked again at the end: the policy may have been changed since the Volume was taken up.
        if let Some(lack) = &seen.not_allowed {
            return VolumeStep::Wait(VolumeWaiting::NotAllowed(lack.clone()));
        }
        // Freed now, the Volume would leave the storage to nobody, against what its owner has said.
        if deleter.is_none() {
            return VolumeStep::Wait(VolumeWaiting::CannotDelete { plugin: spec.plugin_name.clone() });
        }
    }
    let storage_goes = is_to_go && deleter.is_some();
    let heir_of_call = controller.and_then(|controller| seen.successor(controller));
    let unheard = controller.filter(|caller| heir_of_call.is_none() && seen.plugin.is_dead(caller));
    if let Some(caller) = unheard.filter(|_| !spec.deletes_storage())
        && seen.own_handle().is_none_or(|own| own.closing)
        && may_be_calling(operation, state)
    {
        // Its owner leaves the storage, and the agent that would give the call up is gone, without an heir.
        return VolumeStep::GiveUp(caller.clone());
    }
    if let Some(own) = seen.own_handle() {
        return match (own.closing, storage_goes, state, operation) {
            (false, ..) => VolumeStep::BeginClosing { last: true },
            // Its agent says that no call is running. One that has lost the VolumeHandle to another can be making none.
            (true, false, VolumeState::Created | VolumeState::Ready, Some(ordered))
                if is_order(ordered)
                    && (own.controller.is_none() || own.controller.as_ref() == controller) =>
            {
                open_call(seen, ordered, heir_of_call)
            }
            // A status that was lost: the VolumeHandle was made because the storage was. A creation that is repeated since
            // ends first, as DeleteVolume by another instance could come before its end. However it ends, also in that
            // nothing is made, or nothing that can be used, the storage is there.
            (true, true, VolumeState::Pending, Some(VolumeOperation::Create))
                if seen.volume.rejected().is_none() =>
            {
                open_call(seen, VolumeOperation::Create, heir_of_call)
            }
            (true, true, VolumeState::Pending | VolumeState::Deleted, Some(VolumeOperation::Create))
            | (true, true, VolumeState::Pending, Some(VolumeOperation::Delete)) => VolumeStep::RestoreStatus,
            (true, true, VolumeState::Deleted, _) | (true, false, ..) => VolumeStep::RemoveHandle,
            (true, true, _, Some(VolumeOperation::Delete)) => match heir_of_call {
                Some(next) => VolumeStep::AssignDelete(Some(next)),
                None => wait_for_caller(seen),
            },
            (true, true, _, _) => VolumeStep::AssignDelete(deleter),
        };
    }
    delete_unlocked(seen, storage_goes, heir_of_call)
}

/// Who calls DeleteVolume: whoever makes the volume's calls. One that was registered while no instance of its driver had the
/// Controller service has nobody, so any instance may that has come since: no call of another can be running. Its VolumeHandle
/// says that the instances are of the driver which has the storage.
fn deleter(seen: &Seen<'_>) -> Option<ControllerRef> {
    let own = seen.own_handle();
    let named = own.and_then(|own| own.controller.as_ref()).or_else(|| seen.volume.caller());
    named.cloned().or_else(|| own.and_then(|_| seen.chosen()))
}

/// What is left to do for a Volume that is to be deleted and has no VolumeHandle, or none of its own. `heir` is who takes its
/// call over, if that is due.
fn delete_unlocked(seen: &Seen<'_>, storage_goes: bool, heir: Option<ControllerRef>) -> VolumeStep {
    let operation = seen.volume.spec.assignment.as_ref().map(|a| a.operation);
    match (operation, seen.volume.state()) {
        (Some(VolumeOperation::Create), VolumeState::Pending) => {
            open_call(seen, VolumeOperation::Create, heir)
        }
        // Made but not locked yet: without the lock another Volume could be using the same storage.
        (
            Some(
                VolumeOperation::Create
                | VolumeOperation::Validate
                | VolumeOperation::Adopt
                | VolumeOperation::Expand
                | VolumeOperation::Modify
                | VolumeOperation::Revalidate,
            ),
            VolumeState::Created | VolumeState::Ready,
        ) if storage_goes && (seen.handle.is_none() || !seen.same_driver) => {
            lock(seen, VolumeStep::MakeHandle)
        }
        // Its agent makes no call without the lock: one that was removed by hand is made again, and closed.
        (Some(VolumeOperation::Delete), VolumeState::Ready | VolumeState::Created)
            if seen.handle.is_none() =>
        {
            lock(seen, VolumeStep::MakeHandle)
        }
        (Some(VolumeOperation::Delete), VolumeState::Ready | VolumeState::Created) => wait_for_caller(seen),
        // The driver has nothing of it, or what it has stays or is another's.
        (None, _)
        | (
            Some(
                VolumeOperation::Create
                | VolumeOperation::Validate
                | VolumeOperation::Adopt
                | VolumeOperation::Expand
                | VolumeOperation::Modify
                | VolumeOperation::Revalidate,
            ),
            VolumeState::Created | VolumeState::Ready,
        )
        | (
            Some(
                VolumeOperation::Validate
                | VolumeOperation::Adopt
                | VolumeOperation::Expand
                | VolumeOperation::Modify
                | VolumeOperation::Revalidate
                | VolumeOperation::Delete,
            ),
            VolumeState::Pending,
        )
        | (Some(_), VolumeState::Deleted) => VolumeStep::FreeVolume,
    }
}

/// The step while the outcome of a call is open, or what was made and nobody can use is to be deleted: the agent goes
/// on until it knows, also for a deleted Volume, and after a dead instance its heir. That the storage may be deleted
/// is said to one instance.
fn open_call(seen: &Seen<'_>, operation: VolumeOperation, heir: Option<ControllerRef>) -> VolumeStep {
    let deleted = seen.volume.metadata.deletion_timestamp.is_some();
    let given_up = deleted && !seen.volume.spec.deletes_storage();
    if heir.is_some() && operation == VolumeOperation::Create && !seen.same_driver {
        // Another driver would make a second volume, or delete one that is nobody's here by that handle.
        match left_by_create(seen) {
            Some(left) if !given_up => return wait_for_driver(seen, left),
            None if !deleted => {}
            Some(_) | None => return VolumeStep::FreeVolume,
        }
    }
    match (heir, seen.volume.rejected()) {
        (Some(_), Some(rejected)) if rejected.may_delete => VolumeStep::JudgeAnew,
        (Some(next), _) => VolumeStep::Assign(seen.volume.assignment(operation, Some(next))),
        // Its agent gives it up.
        (None, Some(_)) if given_up => wait_for_caller(seen),
        (None, Some(rejected)) if !rejected.may_delete => VolumeStep::JudgeRejected,
        (None, _) => wait_for_caller(seen),
    }
}

/// The step while the next call is its agent's to make, which says what comes of it, unless it is silent.
fn wait_for_caller(seen: &Seen<'_>) -> VolumeStep {
    let spec = &seen.volume.spec;
    let silent = seen.volume.caller().filter(|caller| seen.plugin.is_silent(caller));
    let Some(silent) = silent else { return VolumeStep::Idle };
    let (node, instance, plugin) = (silent.agent.clone(), silent.instance.clone(), spec.plugin_name.clone());
    let plugin_gone = seen.plugin.balancing.is_none();
    VolumeStep::Wait(VolumeWaiting::AgentNotHeard { node, instance, plugin, plugin_gone })
}

/// What the driver of the assigned instance may have of a Volume that it was to create.
fn left_by_create(seen: &Seen<'_>) -> Option<Left> {
    let perhaps = seen.volume.may_exist().then_some(Left::Perhaps);
    seen.volume.rejected().map(|_| Left::Rejected).or(perhaps)
}
