//! The leader's next step for one Volume and its VolumeHandle.
//!
//! ```text
//! Pending --Assign--> (agent: Create | Validate) --> Created --MakeHandle, ReportReady--> Ready
//! Pending --Assign Adopt, MakeHandle, ReportReady--> Ready: a PersistentVolume has it, and nothing is called
//! deleted: wait for Attachments --BeginClosing--> quorum LIST --AssignDelete--> (agent) Deleted
//!          --RemoveHandle--> FreeVolume --> gone
//! made and unusable: stays Pending --JudgeRejected--> (agent) deletes it and then calls CreateVolume anew (`calls.rs`)
//! mode switch, first controller instance: BeginClosing --> quorum LIST --FinishClosing--> open at the next epoch
//!          (rule R3)
//! ```

use super::instance::{Places, PluginSeen};
use super::reason::{Left, VolumeWaiting};
use crate::api::attachment::ControllerRef;
use crate::api::volume::{VolumeAssignment, VolumeOperation};
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
    /// moor keeps the Volume for PersistentVolumes: by them Kubernetes has taken it, and no answer of the driver changes that.
    pub adopts: bool,
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

impl<'a> Seen<'a> {
    /// The VolumeHandle, if this very Volume owns it.
    fn own_handle(&self) -> Option<&'a HandleSeen> {
        self.handle.filter(|handle| handle.volume_uid == self.key())
    }

    /// What volumes are spread over instances by: the UID.
    fn key(&self) -> &'a str {
        self.volume.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Where the volume is, or before that is known, where it must and should be.
    fn places(&self) -> Places<'a> {
        let known = self.volume.status.as_ref().map_or(&[][..], |s| &s.accessible_topology);
        match &self.volume.spec.topology {
            Some(asked) if known.is_empty() => {
                let required = if asked.required.is_empty() { &asked.preferred } else { &asked.required };
                Places { required, preferred: &asked.preferred }
            }
            _ => Places { required: known, preferred: &[] },
        }
    }

    /// The instance that new work on the volume goes to.
    fn chosen(&self) -> Option<ControllerRef> {
        self.plugin.choose(self.places(), self.key())
    }

    /// The instance that takes over from `current`, if `current` may be left at all.
    fn successor(&self, current: &ControllerRef) -> Option<ControllerRef> {
        self.plugin.successor(current, self.places(), self.key())
    }

    /// Who takes the VolumeHandle over from a dead instance. This comes before anything that waits for its
    /// Attachments: nobody else could detach them.
    fn heir(&self) -> Option<ControllerRef> {
        self.successor(self.own_handle()?.controller.as_ref()?)
    }
}

fn bring_up(seen: &Seen<'_>) -> VolumeStep {
    let spec = &seen.volume.spec;
    if seen.plugin.balancing.is_none() {
        let plugin = spec.plugin_name.clone();
        return VolumeStep::Wait(VolumeWaiting::PluginNotFound { plugin });
    }
    let Some(assignment) = &spec.assignment else {
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
    if seen.plugin.controllers.is_empty() && seen.plugin.names_controllers {
        let needs = "serves the Controller service on a node that its spec.controllerNodes selects";
        return VolumeStep::Wait(VolumeWaiting::NoInstance { plugin, needs });
    }
    if seen.plugin.controllers.is_empty() {
        // A driver without Controller service: nothing can be created or validated, registering is all.
        return match (registers, seen.plugin.any_healthy) {
            (_, false) => VolumeStep::Wait(VolumeWaiting::NoInstance { plugin, needs: "known" }),
            (true, true) => {
                VolumeStep::Assign(VolumeAssignment { operation: taken_by(seen), controller: None })
            }
            (false, true) => VolumeStep::Wait(VolumeWaiting::CannotCreate { plugin }),
        };
    }
    let Some(chosen) = seen.chosen() else {
        let needs = "serves the Controller service where the volume is";
        return VolumeStep::Wait(VolumeWaiting::NoInstance { plugin, needs });
    };
    if !registers && !seen.plugin.can_create {
        return VolumeStep::Wait(VolumeWaiting::CannotCreate { plugin });
    }
    let operation = if registers { taken_by(seen) } else { VolumeOperation::Create };
    VolumeStep::Assign(VolumeAssignment { operation, controller: Some(chosen) })
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
            VolumeStep::BeginClosing
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
    if own.controller.is_some() {
        return VolumeStep::FinishClosing { mode, first_controller: None };
    }
    match seen.volume.caller().cloned().or_else(|| seen.chosen()) {
        // Open it would be staged without being attached.
        None if seen.plugin.attaches => VolumeStep::Idle,
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
        return VolumeStep::BeginClosing;
    }
    if seen.wanted_mode.is_some_and(|mode| mode != own.mode) {
        return VolumeStep::BeginClosing;
    }
    VolumeStep::Idle
}

fn delete(seen: &Seen<'_>) -> VolumeStep {
    if !seen.held {
        return VolumeStep::Idle;
    }
    if let Some(next) = seen.heir() {
        return VolumeStep::MoveHandle(next);
    }
    if let Some(by) = &seen.in_use_by {
        return VolumeStep::Wait(VolumeWaiting::InUse { by: by.clone() });
    }
    let (spec, state) = (&seen.volume.spec, seen.volume.state());
    let operation = spec.assignment.as_ref().map(|a| a.operation);
    let controller = seen.volume.caller();
    // An order to delete stands whatever the policy says since: the lock goes only after its agent has said that no call
    // is running any more (rule R3).
    let ordered = operation == Some(VolumeOperation::Delete);
    let of_handle = seen.own_handle().and_then(|own| own.controller.as_ref());
    let storage_goes = (controller.is_some() || of_handle.is_some()) && (ordered || spec.deletes_storage());
    // Asked again at the end: the policy may have been changed since the Volume was taken up.
    let has_storage = seen.own_handle().is_some()
        || (seen.handle.is_none() && matches!(state, VolumeState::Created | VolumeState::Ready));
    if let Some(lack) = seen.not_allowed.as_ref().filter(|_| storage_goes && has_storage && !ordered) {
        return VolumeStep::Wait(VolumeWaiting::NotAllowed(lack.clone()));
    }
    let heir_of_call = controller.and_then(|controller| seen.successor(controller));
    let unheard = controller.filter(|caller| heir_of_call.is_none() && seen.plugin.is_dead(caller));
    if let Some(caller) = unheard.filter(|_| !spec.deletes_storage())
        && seen.own_handle().is_none_or(|own| own.closing)
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
    if let Some(own) = seen.own_handle() {
        return match (own.closing, storage_goes, state, operation) {
            (false, ..) => VolumeStep::BeginClosing,
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
            (true, true, _, _) => VolumeStep::AssignDelete(own.controller.as_ref().or(controller).cloned()),
        };
    }
    match (operation, state) {
        (Some(VolumeOperation::Create), VolumeState::Pending) => {
            open_call(seen, VolumeOperation::Create, heir_of_call)
        }
        // Made but not locked yet: without the lock another Volume could be using the same storage.
        (
            Some(VolumeOperation::Create | VolumeOperation::Validate | VolumeOperation::Adopt),
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
            Some(VolumeOperation::Create | VolumeOperation::Validate | VolumeOperation::Adopt),
            VolumeState::Created | VolumeState::Ready,
        )
        | (
            Some(VolumeOperation::Validate | VolumeOperation::Adopt | VolumeOperation::Delete),
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
        (Some(next), _) => VolumeStep::Assign(VolumeAssignment { operation, controller: Some(next) }),
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

/// What the driver of the assigned instance may have of a Volume that it was to create. Agents write it before the call.
fn left_by_create(seen: &Seen<'_>) -> Option<Left> {
    let may_exist = seen.volume.status.as_ref().is_some_and(|s| s.may_exist);
    seen.volume.rejected().map(|_| Left::Rejected).or(may_exist.then_some(Left::Perhaps))
}
