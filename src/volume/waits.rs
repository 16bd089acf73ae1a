//! The steps while something is waited for: a call whose outcome is open, its agent, or the driver that has the storage.

use super::reason::{Left, VolumeWaiting};
use super::seen::{Seen, VolumeStep};
use crate::api::caller::ControllerRef;
use crate::api::volume::VolumeOperation;

/// Lets a step towards the VolumeHandle pass, unless the handle would be locked under another driver than the one
/// that has the storage.
pub(super) fn lock(seen: &Seen<'_>, step: VolumeStep) -> VolumeStep {
    if seen.same_driver { step } else { wait_for_driver(seen, Left::Unlocked) }
}

fn wait_for_driver(seen: &Seen<'_>, left: Left) -> VolumeStep {
    VolumeStep::Wait(VolumeWaiting::DriverNotThere { plugin: seen.volume.spec.plugin_name.clone(), left })
}

/// The step while the outcome of a call is open, or what was made and nobody can use is to be deleted: the agent goes
/// on until it knows, also for a deleted Volume, and after a dead instance its heir. That the storage may be deleted
/// is said to one instance.
pub(super) fn open_call(
    seen: &Seen<'_>,
    operation: VolumeOperation,
    heir: Option<ControllerRef>,
) -> VolumeStep {
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
pub(super) fn wait_for_caller(seen: &Seen<'_>) -> VolumeStep {
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
