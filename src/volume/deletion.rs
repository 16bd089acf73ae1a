//! The leader's next step for a Volume that is deleted: what comes before its VolumeHandle goes, and what without one.

use super::calls::may_be_calling;
use super::orders::is_order;
use super::reason::VolumeWaiting;
use super::seen::{Seen, VolumeStep};
use super::waits::{lock, open_call, wait_for_caller};
use crate::api::VolumeState;
use crate::api::caller::ControllerRef;
use crate::api::volume::{DeletionPolicy, VolumeOperation};

/// Plans the next step for a Volume that is deleted.
pub(super) fn plan(seen: &Seen<'_>) -> VolumeStep {
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
        && seen.own_handle().is_none_or(|own| own.closed_for.is_some())
        && may_be_calling(operation, state)
    {
        // Its owner leaves the storage, and the agent that would give the call up is gone, without an heir.
        return VolumeStep::GiveUp(caller.clone());
    }
    if let Some(own) = seen.own_handle() {
        return match (own.closed_for.is_some(), storage_goes, state, operation) {
            // Under an order its call may be made as soon as it is closed for that, and who uses it is looked at before: it was removed
            // by hand, and opened by whoever has not heard of the deletion.
            (false, ..) => {
                VolumeStep::BeginClosing { last: Some(DeletionPolicy::of(storage_goes && !ordered)) }
            }
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
            // What has seen the call end once is to see that it may be made again.
            (true, true, VolumeState::Pending, Some(VolumeOperation::Delete))
                if own.closed_for == Some(DeletionPolicy::Delete) =>
            {
                VolumeStep::BeginClosing { last: Some(DeletionPolicy::Retain) }
            }
            (true, true, VolumeState::Pending | VolumeState::Deleted, Some(VolumeOperation::Create))
            | (true, true, VolumeState::Pending, Some(VolumeOperation::Delete)) => VolumeStep::RestoreStatus,
            (true, true, VolumeState::Deleted, _) | (true, false, ..) => VolumeStep::RemoveHandle,
            (true, true, _, Some(VolumeOperation::Delete)) => match heir_of_call {
                Some(next) => VolumeStep::AssignDelete(Some(next)),
                // Where its owner leaves the storage by now its agent gives it up.
                None if own.closed_for == Some(DeletionPolicy::Delete) || !spec.deletes_storage() => {
                    wait_for_caller(seen)
                }
                None => VolumeStep::AssignDelete(controller.cloned()),
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
    let Some(operation) = seen.volume.spec.assignment.as_ref().map(|a| a.operation) else {
        return VolumeStep::FreeVolume;
    };
    let is_ordered = operation == VolumeOperation::Delete;
    match seen.volume.state() {
        VolumeState::Pending if operation == VolumeOperation::Create => open_call(seen, operation, heir),
        // Its agent makes no call without the lock: one that was removed by hand is made again, and closed.
        VolumeState::Created | VolumeState::Ready if is_ordered && seen.handle.is_none() => {
            lock(seen, VolumeStep::MakeHandle)
        }
        VolumeState::Created | VolumeState::Ready if is_ordered => wait_for_caller(seen),
        // Made but not locked yet: without the lock another Volume could be using the same storage.
        VolumeState::Created | VolumeState::Ready
            if storage_goes && (seen.handle.is_none() || !seen.same_driver) =>
        {
            lock(seen, VolumeStep::MakeHandle)
        }
        // The driver has nothing of it, or what it has stays or is another's.
        VolumeState::Pending | VolumeState::Created | VolumeState::Ready | VolumeState::Deleted => {
            VolumeStep::FreeVolume
        }
    }
}
