use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::api::caller::ControllerRef;
use crate::api::volume::{DeletionPolicy, Rejected, VolumeAssignment};

use VolumeOperation::{Create, Delete, Expand, Modify, Revalidate, Validate};
use VolumeState::{Created, Deleted, Pending, Ready};

fn volume(operation: VolumeOperation, state: VolumeState, deleted: bool) -> Volume {
    let mut volume = Volume::default();
    volume.metadata.uid = Some("v".into());
    volume.metadata.generation = Some(3);
    volume.metadata.deletion_timestamp = deleted.then_some(Time(Timestamp::UNIX_EPOCH));
    let controller = Some(ControllerRef::new("i", "me", 0));
    volume.spec.assignment = Some(VolumeAssignment { operation, controller, ..VolumeAssignment::default() });
    let status = volume.status.get_or_insert_default();
    (status.state, status.volume_handle) = (state, (state >= Created).then(|| "id".into()));
    volume
}

fn reject(volume: &mut Volume) {
    let rejected = Rejected { volume_handle: "made".into(), reason: "too small".into(), may_delete: true };
    volume.status.as_mut().unwrap().rejected = Some(rejected.into());
}

fn lock(owner: &str, closing: bool) -> VolumeHandle {
    let mut lock = VolumeHandle::default();
    (lock.spec.volume.uid, lock.spec.closing, lock.spec.volume_handle) = (owner.into(), closing, "id".into());
    lock.spec.closed_for = closing.then_some(DeletionPolicy::Delete);
    lock
}

#[test]
fn each_operation_is_due_until_its_state_is_reached() {
    for (operation, state, deleted, expected) in [
        (Create, Pending, false, Some(VolumeCall::Create)),
        (Create, Pending, true, Some(VolumeCall::Create)),
        (Create, Created, false, None),
        (Create, Ready, true, None),
        (Validate, Pending, false, Some(VolumeCall::Validate)),
        (Validate, Pending, true, None),
        (Revalidate, Ready, false, None),
        (Revalidate, Pending, false, None),
        (Delete, Ready, true, Some(VolumeCall::Delete)),
        (Delete, Created, true, Some(VolumeCall::Delete)),
        (Delete, Deleted, true, None),
        (Delete, Pending, true, None),
    ] {
        let volume = volume(operation, state, deleted);
        let expected = expected.map_or(AgentStep::Idle, AgentStep::Call);
        assert_eq!(plan(&volume, "me"), expected, "{operation:?} {state:?} {deleted}");
        assert_eq!(plan(&volume, "other"), AgentStep::Idle);
    }
}

#[test]
fn what_nobody_can_use_is_deleted_before_anything_else_is_made() {
    for deleted in [false, true] {
        let mut volume = volume(Create, Pending, deleted);
        reject(&mut volume);
        assert_eq!(plan(&volume, "me"), AgentStep::Call(VolumeCall::DeleteRejected));
        assert_eq!(id_to_delete(VolumeCall::DeleteRejected, &volume), Some("made"));
        // Not before the leader has looked whose it is.
        volume.status.as_mut().unwrap().rejected.as_mut().unwrap().may_delete = false;
        assert_eq!(plan(&volume, "me"), AgentStep::Idle);
    }
}

#[test]
fn retain_gives_up_what_only_its_driver_could_answer() {
    for policy in [None, Some(DeletionPolicy::Delete), Some(DeletionPolicy::Retain)] {
        let retained = policy == Some(DeletionPolicy::Retain);
        let given_up = |mut volume: Volume| {
            volume.spec.deletion_policy = policy;
            matches!(plan(&volume, "me"), AgentStep::GiveUp(_))
        };
        let mut unusable = volume(Create, Pending, true);
        reject(&mut unusable);
        assert_eq!(given_up(unusable.clone()), retained);
        unusable.metadata.deletion_timestamp = None;
        assert!(!given_up(unusable));
        assert!(!given_up(volume(Create, Pending, false)));
        assert_eq!(given_up(volume(Create, Pending, true)), retained);
        assert_eq!(given_up(volume(Delete, Ready, true)), retained);
        assert!(!given_up(volume(Validate, Pending, false)));
    }
}

#[test]
fn a_call_is_made_only_for_the_volume_that_it_was_planned_for() {
    let planned = volume(Create, Pending, false);
    let of = |live: Option<&Volume>| standing(VolumeCall::Create, &planned, live, None);
    assert_eq!(of(Some(&planned)), Standing::Valid);
    assert_eq!(of(None), Standing::Gone);
    let changed = |change: fn(&mut Volume)| {
        let mut live = planned.clone();
        change(&mut live);
        of(Some(&live))
    };
    assert_eq!(changed(|v| v.metadata.uid = Some("next".into())), Standing::Gone);
    assert_eq!(changed(|v| v.metadata.generation = Some(4)), Standing::Changed);
    assert_eq!(changed(|v| v.status.as_mut().unwrap().state = Created), Standing::Changed);
    assert_eq!(changed(reject), Standing::Changed);
    let assigned = |v: &mut Volume| v.spec.assignment.as_mut().unwrap().operation = Delete;
    assert_eq!(changed(assigned), Standing::Changed);
    assert_eq!(changed(|v| v.status.as_mut().unwrap().attempts = Some(7)), Standing::Valid);
}

#[test]
fn storage_is_deleted_only_behind_its_own_closed_lock() {
    let planned = volume(Delete, Ready, true);
    let of = |lock: Option<&VolumeHandle>| standing(VolumeCall::Delete, &planned, Some(&planned), lock);
    assert_eq!(of(Some(&lock("v", true))), Standing::Valid);
    assert_eq!(of(None), Standing::NotClosed);
    assert_eq!(of(Some(&lock("v", false))), Standing::NotClosed);
    assert_eq!(of(Some(&lock("another", true))), Standing::NotClosed);
    let mut of_another_volume = lock("v", true);
    of_another_volume.spec.volume_handle = "other".into();
    assert_eq!(of(Some(&of_another_volume)), Standing::NotClosed);
    // For another mode it may be opened again, and for storage that stays it may go at any moment.
    for closed_for in [None, Some(DeletionPolicy::Retain)] {
        let mut otherwise = lock("v", true);
        otherwise.spec.closed_for = closed_for;
        assert_eq!(of(Some(&otherwise)), Standing::NotClosedForIt, "{closed_for:?}");
    }
}

#[test]
fn what_has_a_lock_is_not_deleted_as_unusable() {
    let mut planned = volume(Create, Pending, false);
    reject(&mut planned);
    let of =
        |lock: Option<&VolumeHandle>| standing(VolumeCall::DeleteRejected, &planned, Some(&planned), lock);
    assert_eq!(of(None), Standing::Valid);
    assert_eq!(of(Some(&lock("v", false))), Standing::Own, "its own, after its status was lost");
    assert_eq!(of(Some(&lock("another", false))), Standing::Locked);
}

/// A Ready Volume of one byte that is to have two.
fn growing(deleted: bool) -> Volume {
    let mut growing = volume(Expand, Ready, deleted);
    growing.spec.capacity = Some(Quantity("2".into()));
    growing.status.as_mut().unwrap().capacity_bytes = Some(1);
    growing
}

#[test]
fn a_volume_grows_until_it_has_its_size_or_is_deleted() {
    assert_eq!(plan(&growing(false), "me"), AgentStep::Call(VolumeCall::Expand));
    assert_eq!(plan(&growing(false), "other"), AgentStep::Idle);
    let mut done = growing(false);
    done.status.as_mut().unwrap().capacity_bytes = Some(2);
    assert_eq!(plan(&done, "me"), AgentStep::Idle);
    // The order to delete is what comes next, or that nothing is running lets it go.
    assert_eq!(plan(&growing(true), "me"), AgentStep::Idle);
    let mut left = growing(true);
    left.spec.deletion_policy = Some(DeletionPolicy::Retain);
    assert_eq!(plan(&left, "me"), AgentStep::GiveUp(VolumeCall::Expand));
    assert_eq!(plan(&volume(Expand, Pending, false), "me"), AgentStep::Idle);
}

/// A Ready Volume that is to be otherwise.
fn modified(deleted: bool) -> Volume {
    let mut modified = volume(Modify, Ready, deleted);
    modified.spec.mutable_parameters = [("tier".to_owned(), "gold".to_owned())].into();
    modified
}

#[test]
fn a_volume_is_modified_until_it_is_as_asked_for_or_deleted() {
    assert_eq!(plan(&modified(false), "me"), AgentStep::Call(VolumeCall::Modify));
    assert_eq!(plan(&modified(false), "other"), AgentStep::Idle);
    let mut done = modified(false);
    done.status.as_mut().unwrap().mutable_parameters.clone_from(&done.spec.mutable_parameters);
    assert_eq!(plan(&done, "me"), AgentStep::Idle);
    assert_eq!(plan(&modified(true), "me"), AgentStep::Idle);
    let mut left = modified(true);
    left.spec.deletion_policy = Some(DeletionPolicy::Retain);
    assert_eq!(plan(&left, "me"), AgentStep::GiveUp(VolumeCall::Modify));
    assert_eq!(plan(&volume(Modify, Pending, false), "me"), AgentStep::Idle);
    // Nothing else is called under another order.
    let mut growing = modified(false);
    growing.spec.assignment.as_mut().unwrap().operation = Expand;
    assert_eq!(plan(&growing, "me"), AgentStep::Idle);
}

#[test]
fn a_modification_is_given_up_when_its_lock_is_closed() {
    let left = modified(true);
    let mut own = lock("v", false);
    for call in [VolumeCall::Expand, VolumeCall::Modify] {
        assert!(!may_give_up(call, &left, Some(&own)), "somebody may use it");
        assert!(may_give_up(call, &left, None));
        assert!(may_give_up(call, &left, Some(&lock("another", false))));
    }
    assert!(may_give_up(VolumeCall::Create, &left, Some(&own)));
    own.spec.closing = true;
    assert!(!may_give_up(VolumeCall::Modify, &left, Some(&own)), "for another mode");
    own.spec.closed_for = Some(DeletionPolicy::Retain);
    assert!(may_give_up(VolumeCall::Modify, &left, Some(&own)));
}

#[test]
fn only_who_makes_the_handles_calls_makes_it_larger_or_modifies_it() {
    for (call, volume) in [(VolumeCall::Expand, growing(false)), (VolumeCall::Modify, modified(false))] {
        only_the_holder(call, &volume);
    }
}

fn only_the_holder(call: VolumeCall, growing: &Volume) {
    let of = |lock: Option<&VolumeHandle>| standing(call, growing, Some(growing), lock);
    let mut held = lock("v", false);
    assert_eq!(of(Some(&held)), Standing::Valid, "nothing is attached, so nobody else calls");
    held.spec.controller = growing.caller().cloned();
    assert_eq!(of(Some(&held)), Standing::Valid);
    held.spec.controller = Some(ControllerRef::new("j", "you", 0));
    assert_eq!(of(Some(&held)), Standing::NotHolder);
    assert_eq!(of(Some(&lock("w", false))), Standing::NotHolder);
    assert_eq!(of(None), Standing::NotHolder);
}

#[test]
fn who_creates_knows_whether_it_was_called_before() {
    for (said, remembered, created_before, before) in [
        (None, false, false, false),
        (None, true, false, true),
        (None, false, true, true),
        (Some(false), true, true, false),
        (Some(true), false, false, true),
    ] {
        let mut volume = volume(Create, Pending, false);
        volume.status.as_mut().unwrap().may_exist = said;
        volume.spec.assignment.as_mut().unwrap().created_before = created_before;
        assert_eq!(
            may_have_been_created(&volume, remembered),
            before,
            "{said:?} {remembered} {created_before}"
        );
        assert_eq!(volume.may_exist(), said.unwrap_or(true), "nobody else can know");
        // Once the status has said that there is nothing, whoever has read that relies on it.
        assert_eq!(is_noted_before(&volume), said == Some(false));
        let source = AssignedSource { uid: "s".into(), ..AssignedSource::default() };
        volume.spec.assignment.as_mut().unwrap().source = Some(source.into());
        assert_eq!(
            is_noted_before(&volume),
            said != Some(true),
            "{said:?}: the source may go before the call"
        );
        assert_eq!(volume.may_exist(), said == Some(true), "{said:?}: it is noted first");
        assert_eq!(may_have_been_created(&volume, true), said == Some(true));
    }
}

#[test]
fn a_creation_that_moves_may_have_been_called() {
    let to = |agent: &str, tenure| ControllerRef::new("i", agent, tenure);
    for (said, state, before) in [
        (None, Pending, true),
        (Some(true), Pending, true),
        (Some(false), Pending, false),
        (None, Created, false),
    ] {
        let mut volume = volume(Create, state, false);
        volume.status.as_mut().unwrap().may_exist = said;
        let mut given = |to| {
            let assignment = volume.assignment(Create, Some(to));
            volume.spec.assignment = Some(assignment.clone());
            assignment.created_before
        };
        assert!(!given(to("me", 0)), "it is given as it was");
        assert_eq!(given(to("me", 1)), before, "{said:?}: the instance has a new tenure");
        assert_eq!(given(to("me", 1)), before, "it stays said");
        assert_eq!(given(to("other", 1)), before);
    }
    let mut new = volume(Create, Pending, false);
    new.spec.assignment = None;
    assert!(!new.assignment(Create, Some(to("me", 0))).created_before, "nobody had it");
}
