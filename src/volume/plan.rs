//! The leader's next step for one Volume and its VolumeHandle.
//!
//! ```text
//! Pending --Assign--> (agent: Create | Validate) --> Created --MakeHandle, ReportReady--> Ready
//! deleted: wait for Attachments --BeginClosing--> quorum LIST --AssignDelete--> (agent) Deleted
//!          --RemoveHandle--> FreeVolume --> gone
//! made and unusable: stays Pending --JudgeRejected--> (agent) deletes it and then calls CreateVolume anew (`calls.rs`)
//! mode switch, first controller instance: BeginClosing --> quorum LIST --FinishClosing--> open at the next epoch
//!          (rule R3)
//! ```

use super::instance::{InstanceSeen, PluginSeen, choose, successor};
use super::reason::{Left, VolumeWaiting};
use crate::api::attachment::ControllerRef;
use crate::api::plugin::Balancing;
use crate::api::volume::{Rejected, Segments, VolumeAssignment, VolumeOperation};
use crate::api::{AccessMode, Volume, VolumeState};
use crate::attachment::HandleSeen;
use crate::plugin::allow::NotAllowed;

/// Everything the decision looks at.
#[derive(Clone, Debug)]
pub struct Seen<'a> {
    /// The Volume.
    pub volume: &'a Volume,
    /// Whether the Volume carries our finalizer.
    pub held: bool,
    /// The Volume's Plugin and its instances.
    pub plugin: PluginSeen<'a>,
    /// What the Volume asks for and its namespace may not have. It counts only for what has not been granted yet.
    pub not_allowed: Option<NotAllowed>,
    /// The instance that its own calls are assigned to is of the driver that would be asked now. It is not where the Plugin
    /// was made anew for another one, which knows other volumes by the same handles.
    pub same_driver: bool,
    /// Its VolumeHandle, by the handle that status or spec names.
    pub handle: Option<&'a HandleSeen>,
    /// What still uses the volume: a claim or an Attachment, in words.
    pub in_use_by: Option<String>,
    /// Mode that the first claim in line needs, if it is not the current one.
    pub wanted_mode: Option<AccessMode>,
}

/// One step. Every variant is at most one side effect, after the live reads that its doc names.
#[derive(Clone, Debug, PartialEq)]
pub enum VolumeStep {
    /// Nothing to do until something changes.
    Idle,
    /// Write the condition and wait.
    Wait(VolumeWaiting),
    /// Write finalizer and assignment in one patch.
    Assign(VolumeAssignment),
    /// Create the VolumeHandle. First GET it, and list PersistentVolumes: one that names the handle keeps this Volume off.
    MakeHandle,
    /// The VolumeHandle names another Volume: GET that one; if it is gone take over, else DuplicateHandle.
    ContestHandle,
    /// List PersistentVolumes: if none names what CreateVolume made and nobody can use, write that it may be deleted.
    JudgeRejected,
    /// Write that it may not be deleted yet: another instance is to delete it, and it is judged again for that one.
    JudgeAnew,
    /// Write that the Volume is Ready.
    ReportReady,
    /// Write closing and epoch + 1 on the VolumeHandle.
    BeginClosing,
    /// List its Attachments by quorum; if no earlier one is left clear closing and set what it is used with from now on.
    FinishClosing {
        /// Mode.
        mode: AccessMode,
        /// The instance of all its controller calls, if it had none.
        first_controller: Option<ControllerRef>,
    },
    /// List its Attachments and PersistentVolumes by quorum; if none is left or names it write the Delete operation.
    AssignDelete(Option<ControllerRef>),
    /// Write again what the VolumeHandle says: that the storage was made, and what the driver calls it.
    RestoreStatus,
    /// List its Attachments by quorum; if none is left remove the VolumeHandle.
    RemoveHandle,
    /// GET the VolumeHandle; if it is gone or another Volume's take the finalizer off.
    FreeVolume,
    /// Look whether this instance can still be making a call; if not, remove the VolumeHandle and take the finalizer off.
    GiveUp(ControllerRef),
    /// Write another controller instance on the VolumeHandle: the old one is dead (rule R2).
    MoveHandle(ControllerRef),
}

/// Plans the next step.
#[must_use]
pub fn plan(seen: &Seen<'_>) -> VolumeStep {
    if seen.volume.metadata.deletion_timestamp.is_some() { delete(seen) } else { bring_up(seen) }
}

/// The VolumeHandle, if this very Volume owns it.
fn own_handle<'a>(seen: &Seen<'a>) -> Option<&'a HandleSeen> {
    let uid = seen.volume.metadata.uid.as_deref().unwrap_or_default();
    seen.handle.filter(|h| h.volume_uid == uid)
}

fn state(seen: &Seen<'_>) -> VolumeState {
    seen.volume.status.as_ref().map_or_else(VolumeState::default, |s| s.state)
}

/// The volume that CreateVolume made and nobody can use, if there is one.
fn rejected<'a>(seen: &Seen<'a>) -> Option<&'a Rejected> {
    seen.volume.status.as_ref().and_then(|s| s.rejected.as_ref())
}

fn places<'a>(seen: &'a Seen<'_>) -> &'a [Segments] {
    let known = seen.volume.status.as_ref().map_or(&[][..], |s| &s.accessible_topology);
    match &seen.volume.spec.topology {
        Some(asked) if known.is_empty() && !asked.required.is_empty() => &asked.required,
        Some(asked) if known.is_empty() => &asked.preferred,
        _ => known,
    }
}

fn bring_up(seen: &Seen<'_>) -> VolumeStep {
    let spec = &seen.volume.spec;
    let plugin = || spec.plugin_name.clone();
    let Some(balancing) = seen.plugin.balancing else {
        return VolumeStep::Wait(VolumeWaiting::PluginNotFound { plugin: plugin() });
    };
    let key = seen.volume.metadata.uid.as_deref().unwrap_or_default();
    let Some(assignment) = &spec.assignment else {
        return match &seen.not_allowed {
            Some(lack) => VolumeStep::Wait(VolumeWaiting::NotAllowed(lack.clone())),
            None => first_assignment(seen, balancing, key),
        };
    };
    let current = assignment.controller.as_ref();
    let moved = current.and_then(|c| successor(c, seen.plugin.controllers, balancing, places(seen), key));
    match state(seen) {
        // Registered while no instance of the driver had the Controller service. As long as nobody uses the volume one
        // that came since takes it over without further ado.
        VolumeState::Pending if current.is_none() && !seen.plugin.controllers.is_empty() => {
            first_assignment(seen, balancing, key)
        }
        VolumeState::Pending if current.is_none() => handle_or_ready(seen, balancing, key),
        VolumeState::Pending => open_call(seen, assignment.operation, moved),
        VolumeState::Created => handle_or_ready(seen, balancing, key),
        VolumeState::Ready => open_handle(seen, balancing, key),
        VolumeState::Deleted => VolumeStep::Idle,
    }
}

fn first_assignment(seen: &Seen<'_>, balancing: Balancing, key: &str) -> VolumeStep {
    let plugin = seen.volume.spec.plugin_name.clone();
    let registers = seen.volume.spec.volume_handle.is_some();
    if let Some(older) = seen.plugin.older {
        return VolumeStep::Wait(VolumeWaiting::DuplicateDriver { plugin, older: older.to_owned() });
    }
    if seen.plugin.controllers.is_empty() && seen.plugin.names_controllers {
        let needs = "serves the Controller service on a node that its spec.controllerNodes selects";
        return VolumeStep::Wait(VolumeWaiting::NoInstance { plugin, needs });
    }
    if seen.plugin.controllers.is_empty() {
        // A driver without Controller service: nothing can be created or validated, registering is all.
        return match (registers, seen.plugin.any_healthy) {
            (_, false) => VolumeStep::Wait(VolumeWaiting::NoInstance { plugin, needs: "known" }),
            (true, true) => VolumeStep::Assign(VolumeAssignment {
                operation: VolumeOperation::Validate,
                controller: None,
            }),
            (false, true) => VolumeStep::Wait(VolumeWaiting::CannotCreate { plugin }),
        };
    }
    let Some(instance) = choose(seen.plugin.controllers, balancing, places(seen), key) else {
        let needs = "serves the Controller service where the volume is";
        return VolumeStep::Wait(VolumeWaiting::NoInstance { plugin, needs });
    };
    if !registers && !seen.plugin.can_create {
        return VolumeStep::Wait(VolumeWaiting::CannotCreate { plugin });
    }
    let operation = if registers { VolumeOperation::Validate } else { VolumeOperation::Create };
    VolumeStep::Assign(VolumeAssignment { operation, controller: Some(instance.to_ref()) })
}

/// The driver has the volume: its VolumeHandle comes before Ready.
fn handle_or_ready(seen: &Seen<'_>, balancing: Balancing, key: &str) -> VolumeStep {
    let assigned = seen.volume.spec.assignment.as_ref().and_then(|a| a.controller.as_ref());
    match (seen.handle, own_handle(seen)) {
        (None, _) => lock(seen, VolumeStep::MakeHandle),
        (Some(_), None) => lock(seen, VolumeStep::ContestHandle),
        (Some(_), Some(own)) if own.closing => finish_closing(seen, own, own.mode, balancing, key),
        // Made before the instance came that the Volume is assigned to by now.
        (Some(_), Some(own)) if own.controller.is_none() && assigned.is_some() => VolumeStep::BeginClosing,
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
fn finish_closing(
    seen: &Seen<'_>,
    own: &HandleSeen,
    mode: AccessMode,
    balancing: Balancing,
    key: &str,
) -> VolumeStep {
    if own.controller.is_some() {
        return VolumeStep::FinishClosing { mode, first_controller: None };
    }
    let assigned = seen.volume.spec.assignment.as_ref().and_then(|a| a.controller.clone());
    let chosen = || choose(seen.plugin.controllers, balancing, places(seen), key).map(InstanceSeen::to_ref);
    match assigned.or_else(chosen) {
        // Open it would be staged without being attached.
        None if seen.plugin.attaches => VolumeStep::Idle,
        first_controller => VolumeStep::FinishClosing { mode, first_controller },
    }
}

/// A Ready Volume: keep its VolumeHandle open, in the mode that is asked for, at a living instance.
fn open_handle(seen: &Seen<'_>, balancing: Balancing, key: &str) -> VolumeStep {
    let Some(own) = own_handle(seen) else {
        let step = if seen.handle.is_some() { VolumeStep::ContestHandle } else { VolumeStep::MakeHandle };
        return lock(seen, step);
    };
    if let Some(next) = heir(seen, own, balancing, key) {
        return VolumeStep::MoveHandle(next);
    }
    if own.closing {
        return finish_closing(seen, own, seen.wanted_mode.unwrap_or(own.mode), balancing, key);
    }
    // A controller instance that came after the Volume was Ready. Whether volumes are attached changes who is allowed, so
    // nobody new comes in before all have left that use it without.
    if own.controller.is_none() && seen.plugin.attaches {
        return VolumeStep::BeginClosing;
    }
    if seen.wanted_mode.is_some_and(|mode| mode != own.mode) {
        return VolumeStep::BeginClosing;
    }
    VolumeStep::Idle
}

/// Who takes the VolumeHandle over whose Volume was removed by hand, if its instance is dead: what was attached for that
/// Volume is still to be detached. Where the Volume was nobody says any more.
#[must_use]
pub fn heir_without_volume(
    handle: &HandleSeen,
    controllers: &[InstanceSeen],
    balancing: Balancing,
) -> Option<ControllerRef> {
    let current = handle.controller.as_ref()?;
    successor(current, controllers, balancing, &[], &handle.volume_uid).map(InstanceSeen::to_ref)
}

/// Who takes the VolumeHandle over from a dead instance. This comes before anything that waits for its
/// Attachments: nobody else could detach them.
fn heir(seen: &Seen<'_>, own: &HandleSeen, balancing: Balancing, key: &str) -> Option<ControllerRef> {
    let current = own.controller.as_ref()?;
    successor(current, seen.plugin.controllers, balancing, places(seen), key).map(InstanceSeen::to_ref)
}

fn delete(seen: &Seen<'_>) -> VolumeStep {
    if !seen.held {
        return VolumeStep::Idle;
    }
    let key = seen.volume.metadata.uid.as_deref().unwrap_or_default();
    if let (Some(own), Some(balancing)) = (own_handle(seen), seen.plugin.balancing)
        && let Some(next) = heir(seen, own, balancing, key)
    {
        return VolumeStep::MoveHandle(next);
    }
    if let Some(by) = &seen.in_use_by {
        return VolumeStep::Wait(VolumeWaiting::InUse { by: by.clone() });
    }
    let spec = &seen.volume.spec;
    let state = state(seen);
    let operation = spec.assignment.as_ref().map(|a| a.operation);
    let controller = spec.assignment.as_ref().and_then(|a| a.controller.clone());
    // An order to delete stands whatever the policy says since: the lock goes only after its agent has said that no call
    // is running any more (rule R3).
    let ordered = operation == Some(VolumeOperation::Delete);
    let of_handle = own_handle(seen).and_then(|own| own.controller.as_ref());
    let storage_goes = (controller.is_some() || of_handle.is_some()) && (ordered || spec.deletes_storage());
    // Asked again at the end: the policy may have been changed since the Volume was taken up.
    let has_storage = own_handle(seen).is_some()
        || (seen.handle.is_none() && matches!(state, VolumeState::Created | VolumeState::Ready));
    if let Some(lack) = seen.not_allowed.as_ref().filter(|_| storage_goes && has_storage && !ordered) {
        return VolumeStep::Wait(VolumeWaiting::NotAllowed(lack.clone()));
    }
    let heir_of_call = controller
        .as_ref()
        .and_then(|c| successor(c, seen.plugin.controllers, seen.plugin.balancing?, places(seen), key));
    let is_dead = |c: &&ControllerRef| seen.plugin.controllers.iter().any(|i| i.name == c.instance && i.dead);
    let unheard = controller.as_ref().filter(|_| heir_of_call.is_none()).filter(is_dead);
    if let Some(caller) = unheard.filter(|_| !spec.deletes_storage())
        && own_handle(seen).is_none_or(|own| own.closing)
        && matches!(
            (operation, state),
            (Some(VolumeOperation::Create), VolumeState::Pending)
                | (
                    Some(VolumeOperation::Delete),
                    VolumeState::Pending | VolumeState::Created | VolumeState::Ready
                )
        )
    {
        // Its owner leaves the storage, and the agent that would give the call up is gone, without an heir.
        return VolumeStep::GiveUp(caller.clone());
    }
    if let Some(own) = own_handle(seen) {
        return match (own.closing, storage_goes, state, operation) {
            (false, ..) => VolumeStep::BeginClosing,
            // A status that was lost: the VolumeHandle was made because the storage was. A creation that is repeated since
            // ends first, as DeleteVolume by another instance could come before its end. However it ends, also in that
            // nothing is made, or nothing that can be used, the storage is there.
            (true, true, VolumeState::Pending, Some(VolumeOperation::Create)) if rejected(seen).is_none() => {
                open_call(seen, VolumeOperation::Create, heir_of_call)
            }
            (true, true, VolumeState::Pending | VolumeState::Deleted, Some(VolumeOperation::Create))
            | (true, true, VolumeState::Pending, Some(VolumeOperation::Delete)) => VolumeStep::RestoreStatus,
            (true, true, VolumeState::Deleted, _) | (true, false, ..) => VolumeStep::RemoveHandle,
            (true, true, _, Some(VolumeOperation::Delete)) => match heir_of_call {
                Some(next) => VolumeStep::AssignDelete(Some(next.to_ref())),
                None => wait_for_caller(seen),
            },
            (true, true, _, _) => VolumeStep::AssignDelete(own.controller.clone().or(controller)),
        };
    }
    match (operation, state) {
        (Some(VolumeOperation::Create), VolumeState::Pending) => {
            open_call(seen, VolumeOperation::Create, heir_of_call)
        }
        // Made but not locked yet: without the lock another Volume could be using the same storage.
        (
            Some(VolumeOperation::Create | VolumeOperation::Validate),
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
            Some(VolumeOperation::Create | VolumeOperation::Validate),
            VolumeState::Created | VolumeState::Ready,
        )
        | (Some(VolumeOperation::Validate | VolumeOperation::Delete), VolumeState::Pending)
        | (Some(_), VolumeState::Deleted) => VolumeStep::FreeVolume,
    }
}

/// The step while the outcome of a call is open, or what was made and nobody can use is to be deleted: the agent goes
/// on until it knows, also for a deleted Volume, and after a dead instance its heir. That the storage may be deleted
/// is said to one instance.
fn open_call(seen: &Seen<'_>, operation: VolumeOperation, heir: Option<&InstanceSeen>) -> VolumeStep {
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
    match (heir, rejected(seen)) {
        (Some(_), Some(rejected)) if rejected.may_delete => VolumeStep::JudgeAnew,
        (Some(next), _) => {
            VolumeStep::Assign(VolumeAssignment { operation, controller: Some(next.to_ref()) })
        }
        // Its agent gives it up.
        (None, Some(_)) if given_up => wait_for_caller(seen),
        (None, Some(rejected)) if !rejected.may_delete => VolumeStep::JudgeRejected,
        (None, _) => wait_for_caller(seen),
    }
}

/// The step while the next call is its agent's to make, which says what comes of it, unless it is silent.
fn wait_for_caller(seen: &Seen<'_>) -> VolumeStep {
    let spec = &seen.volume.spec;
    let caller = spec.assignment.as_ref().and_then(|a| a.controller.as_ref());
    let Some(silent) = caller.filter(|c| seen.plugin.is_silent(c)) else { return VolumeStep::Idle };
    let (node, instance, plugin) = (silent.agent.clone(), silent.instance.clone(), spec.plugin_name.clone());
    let plugin_gone = seen.plugin.balancing.is_none();
    VolumeStep::Wait(VolumeWaiting::AgentNotHeard { node, instance, plugin, plugin_gone })
}

/// What the driver of the assigned instance may have of a Volume that it was to create. Agents write it before the call.
fn left_by_create(seen: &Seen<'_>) -> Option<Left> {
    let may_exist = seen.volume.status.as_ref().is_some_and(|s| s.may_exist);
    rejected(seen).map(|_| Left::Rejected).or(may_exist.then_some(Left::Perhaps))
}
