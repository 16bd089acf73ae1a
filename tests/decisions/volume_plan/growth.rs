//! A Volume whose capacity was raised: who is to make it larger, and when.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use moor::api::conditions::{CallFailure, Desired, Reason, set};
use moor::api::volume::{Expansion, ExpansionFailure};
use moor::volume::growth::{Fails, failed, fails};

use super::*;

const MI: i64 = 1 << 20;

/// A Ready Volume of 1Mi that is to have 3Mi.
fn growing(operation: VolumeOperation) -> Row {
    let mut row = row(Ready, Some(operation)).handle("v-uid", false);
    row.volume.spec.capacity = Some(Quantity("3Mi".into()));
    row.volume.status.as_mut().unwrap().capacity_bytes = Some(MI);
    row.grows = Some(Grows::ByController);
    row
}

fn order(to: &ControllerRef) -> VolumeStep {
    VolumeStep::Assign(VolumeAssignment {
        operation: Expand,
        controller: Some(to.clone()),
        ..VolumeAssignment::default()
    })
}

fn blocked(mut row: Row) -> Row {
    let error = CallFailure {
        rpc: "ControllerExpandVolume".into(),
        code: "FailedPrecondition".into(),
        message: "attached".into(),
    };
    row.volume.status.as_mut().unwrap().expansion_failure =
        Some(ExpansionFailure { capacity_bytes: 3 * MI, error, outcome_unknown: false }.into());
    row
}

/// What keeps the next call from being made says nothing of the one before.
#[test]
fn a_growth_that_may_be_under_way_stays_so_until_the_driver_says_otherwise() {
    let mut row = growing(Expand);
    let said = |row: &mut Row, code: &str| {
        let error =
            CallFailure { rpc: "ControllerExpandVolume".into(), code: code.into(), message: String::new() };
        let before = row.volume.clone();
        failed(row.volume.status.as_mut().unwrap(), &before, error);
        fails(&row.volume).unwrap()
    };
    assert!(matches!(said(&mut row, "SecretNotFound"), Fails::NotAsked(_)));
    assert!(matches!(said(&mut row, "DeadlineExceeded"), Fails::Perhaps(_)));
    assert!(matches!(said(&mut row, "PluginNotRunning"), Fails::Perhaps(_)));
    assert!(matches!(said(&mut row, "SecretNotFound"), Fails::Perhaps(_)));
    assert!(matches!(said(&mut row, "Internal"), Fails::Certainly(_)));
    assert!(matches!(said(&mut row, "SecretNotFound"), Fails::NotAsked(_)));
    assert!(matches!(said(&mut row, "DeadlineExceeded"), Fails::Perhaps(_)));
    row.volume.spec.capacity = Some(Quantity("4Mi".into()));
    assert!(matches!(said(&mut row, "SecretNotFound"), Fails::Perhaps(_)), "the call for 3Mi may run");
}

#[test]
fn the_instance_of_the_handle_is_ordered_once() {
    assert_eq!(growing(Create).plan(), order(&c1()));
    assert_eq!(growing(Expand).plan(), VolumeStep::Idle);
    let mut done = growing(Expand);
    done.volume.status.as_mut().unwrap().capacity_bytes = Some(3 * MI);
    assert_eq!(done.plan(), VolumeStep::Idle);
    // Others than a Ready Volume of this driver's wait.
    let other = Row { same_driver: false, ..growing(Create) };
    assert_eq!(other.plan(), VolumeStep::Idle);
    let closing = growing(Create).handle("v-uid", true);
    assert_eq!(closing.plan(), open_in(AccessMode::SingleNodeWriter));
    // What was created without a size that is known has what was asked for.
    let mut lost = growing(Create);
    lost.volume.status.as_mut().unwrap().capacity_bytes = None;
    assert_eq!(lost.plan(), VolumeStep::Idle);
    assert_eq!(lost.registered().plan(), order(&c1()), "of a registered one nothing is known");
}

/// Attaching and growing are the same instance's, so the order follows the VolumeHandle, which is moved first.
#[test]
fn the_order_follows_the_handle_from_a_dead_instance() {
    let mut row = growing(Expand);
    row.controllers = vec![instance(&c1(), false, true), instance(&c2(), true, false)];
    assert_eq!(row.plan(), VolumeStep::MoveHandle(c2()));
    row.handle.as_mut().unwrap().controller = Some(c2());
    let back = VolumeStep::Assign(VolumeAssignment {
        operation: Create,
        controller: Some(c1()),
        ..VolumeAssignment::default()
    });
    assert_eq!(row.plan(), back, "the first one may be heard again");
    row.volume.spec.assignment.as_mut().unwrap().operation = Create;
    assert_eq!(row.plan(), order(&c2()));
    let mut detached = growing(Expand);
    detached.attaches = false;
    detached.handle.as_mut().unwrap().controller = None;
    assert_eq!(detached.plan(), VolumeStep::Idle, "its own instance lives");
    detached.controllers = vec![instance(&c1(), false, true), instance(&c2(), true, false)];
    assert_eq!(detached.plan(), order(&c2()));
}

#[test]
fn a_driver_without_the_call_leaves_it_to_nodes_or_says_so() {
    let by = |grows| Row { grows, ..growing(Create) }.plan();
    assert_eq!(by(None), VolumeStep::Idle, "it is not known yet");
    assert_eq!(by(Some(Grows::OnNodes)), VolumeStep::ReportExpanded(Some(3 * MI)));
    let VolumeStep::Wait(why) = by(Some(Grows::NotAtAll)) else { panic!("it says nothing") };
    assert!(why.reason() == Reason::CannotExpand && why.message().contains("lower spec.capacity"), "{why:?}");
    let mut reported = growing(Create);
    reported.grows = Some(Grows::OnNodes);
    let expansion = Expansion { capacity_bytes: 3 * MI, node_expansion_required: true };
    reported.volume.status.as_mut().unwrap().expansion = Some(expansion);
    assert_eq!(reported.plan(), VolumeStep::Idle);
}

#[test]
fn a_volume_that_grows_only_unused_has_its_order_taken_back_while_it_is_used() {
    let used = |operation| {
        let mut row = blocked(growing(operation));
        row.in_use_by = Some("claim team/a".into());
        row
    };
    let back = VolumeStep::Assign(VolumeAssignment {
        operation: Create,
        controller: Some(c1()),
        ..VolumeAssignment::default()
    });
    assert_eq!(used(Expand).plan(), back);
    let VolumeStep::Wait(why) = used(Create).plan() else { panic!("it does not wait") };
    assert!(why.reason() == Reason::ExpandsUnused && why.message().contains("claim team/a"), "{why:?}");
    assert_eq!(blocked(growing(Create)).plan(), order(&c1()), "nobody uses it any more");
    assert_eq!(blocked(growing(Expand)).plan(), VolumeStep::Idle, "its agent tries again");
    let registered = used(Expand).registered();
    let back = VolumeStep::Assign(VolumeAssignment {
        operation: Validate,
        controller: Some(c1()),
        ..VolumeAssignment::default()
    });
    assert_eq!(registered.plan(), back);
}

#[test]
fn a_failure_of_what_is_not_wanted_any_more_is_taken_back() {
    let mut row = growing(Expand);
    let status = row.volume.status.as_mut().unwrap();
    let failed = Desired::new(Reason::ExpandVolumeFailed, "no");
    set(&mut status.conditions, &failed, Some(1), jiff::Timestamp::UNIX_EPOCH);
    assert_eq!(row.plan(), VolumeStep::Idle);
    row.volume.spec.capacity = Some(Quantity("1Mi".into()));
    assert_eq!(row.plan(), VolumeStep::ReportExpanded(None));
}

#[test]
fn a_lost_status_is_told_again_by_the_call_that_made_it() {
    let mut row = growing(Expand);
    row.volume.status = None;
    let again = VolumeStep::Assign(VolumeAssignment {
        operation: Create,
        controller: Some(c1()),
        ..VolumeAssignment::default()
    });
    assert_eq!(row.plan(), again);
}

/// Its call may be running, and nobody else may come to the storage before its agent says that it is not.
#[test]
fn the_lock_of_a_deleted_volume_outlives_its_call() {
    let left = |closing| {
        let mut row = growing(Expand).owns(closing).deleted();
        row.volume.spec.deletion_policy = Some(DeletionPolicy::Retain);
        row
    };
    assert_eq!(left(false).plan(), closes(DeletionPolicy::Retain));
    assert_eq!(left(true).plan(), VolumeStep::Idle);
    let mut ended = left(true);
    ended.volume.status.as_mut().unwrap().state = Deleted;
    assert_eq!(ended.plan(), VolumeStep::RemoveHandle);
    let mut dead = left(true);
    dead.controllers = vec![instance(&c1(), false, true)];
    assert_eq!(dead.plan(), VolumeStep::GiveUp(c1()));
    // Its VolumeHandle went to another instance, so that the first one can be making none.
    let mut moved = left(true);
    moved.handle.as_mut().unwrap().controller = Some(c2());
    assert_eq!(moved.plan(), VolumeStep::RemoveHandle);
    let deleting = growing(Expand).closed().deleted();
    assert_eq!(deleting.plan(), VolumeStep::AssignDelete(Some(c1())), "the same agent, after its call");
}
