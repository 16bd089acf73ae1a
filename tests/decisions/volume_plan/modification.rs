//! A Volume whose mutable parameters were changed: who is to have the driver follow, and in which turn with a growth.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use moor::api::conditions::{CallFailure, Desired, Reason, set};
use moor::api::volume::ExpansionFailure;
use moor::volume::growth::Fails;
use moor::volume::modification::{begins, due, ends, failed, fails, is_open, kept_back};

use super::*;

const MI: i64 = 1 << 20;

fn tier(tier: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("tier".to_owned(), tier.to_owned())])
}

/// A Ready Volume that has silver and is to have gold.
fn changed(operation: VolumeOperation) -> Row {
    let mut row = row(Ready, Some(operation)).handle("v-uid", false);
    row.volume.spec.mutable_parameters = tier("gold");
    row.volume.status.as_mut().unwrap().mutable_parameters = tier("silver");
    row.modifies = Some(true);
    row
}

/// The same, and it is to grow too.
fn both(operation: VolumeOperation) -> Row {
    let mut row = changed(operation);
    row.volume.spec.capacity = Some(Quantity("3Mi".into()));
    row.volume.status.as_mut().unwrap().capacity_bytes = Some(MI);
    row.grows = Some(Grows::ByController);
    row
}

fn order(operation: VolumeOperation) -> VolumeStep {
    VolumeStep::Assign(VolumeAssignment { operation, controller: Some(c1()), ..VolumeAssignment::default() })
}

fn error(rpc: &str, code: &str) -> CallFailure {
    CallFailure { rpc: rpc.into(), code: code.into(), message: "no".into() }
}

/// The Volume has not been changed since this was said, or it has.
fn say(row: &mut Row, reason: Reason, fresh: bool) {
    let generation = row.volume.metadata.generation.map(|generation| generation - i64::from(!fresh));
    let said = Desired::new(reason, "no");
    set(&mut row.volume.status.as_mut().unwrap().conditions, &said, generation, jiff::Timestamp::UNIX_EPOCH);
}

fn not_modified(mut row: Row, code: &str, fresh: bool) -> Row {
    row.volume.metadata.generation.get_or_insert(3);
    let call = error("ControllerModifyVolume", code);
    failed(row.volume.status.as_mut().unwrap(), &tier("gold"), call, false);
    say(&mut row, Reason::ModifyVolumeFailed, fresh);
    row
}

fn not_grown(mut row: Row, code: &str, fresh: bool) -> Row {
    row.volume.metadata.generation.get_or_insert(3);
    let error = error("ControllerExpandVolume", code);
    row.volume.status.as_mut().unwrap().expansion_failure =
        Some(ExpansionFailure { capacity_bytes: 3 * MI, error, outcome_unknown: false }.into());
    say(&mut row, Reason::ExpandVolumeFailed, fresh);
    row
}

#[test]
fn the_instance_of_the_handle_is_ordered_once() {
    assert_eq!(changed(Create).plan(), order(Modify));
    assert_eq!(changed(Modify).plan(), VolumeStep::Idle);
    let mut done = changed(Modify);
    done.volume.status.as_mut().unwrap().mutable_parameters = tier("gold");
    assert_eq!(done.plan(), VolumeStep::Idle);
    let mut none = changed(Create);
    none.volume.spec.mutable_parameters.clear();
    assert_eq!(none.plan(), VolumeStep::Idle, "what is not named stays as it is");
    assert_eq!(changed(Validate).registered().plan(), order(Modify));
    let other = Row { same_driver: false, ..changed(Create) };
    assert_eq!(other.plan(), VolumeStep::Idle);
    let closing = changed(Create).handle("v-uid", true);
    assert_eq!(closing.plan(), open_in(AccessMode::SingleNodeWriter));
}

#[test]
fn the_order_follows_the_handle_from_a_dead_instance() {
    let mut row = changed(Modify);
    row.controllers = vec![instance(&c1(), false, true), instance(&c2(), true, false)];
    assert_eq!(row.plan(), VolumeStep::MoveHandle(c2()));
    row.handle.as_mut().unwrap().controller = Some(c2());
    assert_eq!(row.plan(), order(Create), "the first one may be heard again");
}

#[test]
fn a_driver_without_the_call_is_named() {
    let by = |modifies| Row { modifies, ..changed(Create) }.plan();
    assert_eq!(by(None), VolumeStep::Idle, "it is not known yet");
    let VolumeStep::Wait(why) = by(Some(false)) else { panic!("it says nothing") };
    assert!(why.reason() == Reason::CannotModify && why.message().contains("MODIFY_VOLUME"), "{why:?}");
}

#[test]
fn what_the_namespace_may_not_choose_is_not_asked_for() {
    let mut row = changed(Create);
    row.not_allowed = Some(lack(Right::Parameterise));
    let VolumeStep::Wait(why) = row.plan() else { panic!("it says nothing") };
    assert!(why.reason() == Reason::ModifyNotAllowed && why.message().contains("status.mutableParameters"));
    row.volume.spec.mutable_parameters = tier("silver");
    assert_eq!(row.plan(), VolumeStep::Idle, "it has that");
}

/// Its agent may be calling, so the order is not taken back, whoever says no since.
#[test]
fn what_may_be_under_way_goes_on() {
    let open = |operation| {
        let mut row = changed(operation);
        begins(row.volume.status.as_mut().unwrap(), &tier("gold"));
        row
    };
    for operation in [Modify, Create] {
        let expected = if operation == Modify { VolumeStep::Idle } else { order(Modify) };
        assert_eq!(Row { modifies: Some(false), ..open(operation) }.plan(), expected);
        assert_eq!(Row { not_allowed: Some(lack(Right::Parameterise)), ..open(operation) }.plan(), expected);
    }
}

#[test]
fn a_failure_of_what_is_not_wanted_any_more_is_taken_back() {
    let mut row = not_modified(changed(Modify), "InvalidArgument", true);
    assert_eq!(row.plan(), VolumeStep::Idle);
    row.volume.spec.mutable_parameters.clear();
    assert_eq!(row.plan(), VolumeStep::ReportModified);
}

#[test]
fn a_lost_status_is_told_again_by_the_call_that_made_it() {
    let mut row = changed(Modify);
    row.volume.status = None;
    assert_eq!(row.plan(), order(Create));
}

/// Its call may be running, and nobody else may come to the storage before its agent says that it is not.
#[test]
fn the_lock_of_a_deleted_volume_outlives_its_call() {
    let left = |closing| {
        let mut row = changed(Modify).owns(closing).deleted();
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
}

#[test]
fn of_two_calls_one_is_ordered_at_a_time() {
    assert_eq!(both(Create).plan(), order(Expand));
    assert_eq!(both(Expand).plan(), VolumeStep::Idle);
    assert_eq!(both(Modify).plan(), VolumeStep::Idle, "what was begun ends first");
    let mut open = both(Create);
    begins(open.volume.status.as_mut().unwrap(), &tier("bronze"));
    assert_eq!(open.plan(), order(Modify), "its outcome is not known");
}

#[test]
fn what_is_refused_gives_way_to_the_other() {
    for code in ["OutOfRange", "Internal"] {
        assert_eq!(not_grown(both(Expand), code, true).plan(), order(Modify), "{code}");
        assert_eq!(not_grown(both(Expand), code, false).plan(), order(Modify), "{code}, and changed since");
    }
    assert_eq!(not_grown(both(Expand), "Aborted", true).plan(), VolumeStep::Idle, "it may be under way");
    for code in ["InvalidArgument", "NotFound"] {
        assert_eq!(not_modified(both(Modify), code, true).plan(), order(Expand), "{code}");
        assert_eq!(
            not_modified(both(Modify), code, false).plan(),
            order(Expand),
            "{code}, and changed since"
        );
    }
    // An order is a change too: whoever has it now is tried before the other one has its turn again.
    let refused = |operation, grown: bool| {
        not_modified(not_grown(both(operation), "OutOfRange", grown), "InvalidArgument", !grown).plan()
    };
    assert_eq!(refused(Modify, true), VolumeStep::Idle);
    assert_eq!(refused(Modify, false), order(Expand));
    assert_eq!(refused(Expand, false), VolumeStep::Idle);
    assert_eq!(refused(Expand, true), order(Modify));
    // What is asked for anew has not been refused.
    let mut anew = not_modified(not_grown(both(Expand), "OutOfRange", false), "InvalidArgument", false);
    anew.volume.spec.mutable_parameters = tier("bronze");
    assert_eq!(anew.plan(), order(Modify));
}

/// Whoever asks for the one need not wait until somebody makes the Secret of the other.
#[test]
fn what_cannot_be_asked_for_gives_way_to_the_other() {
    for code in ["SecretNotFound", "SecretUnreadable", "PluginNotRunning", "BadArguments"] {
        assert_eq!(not_grown(both(Expand), code, true).plan(), order(Modify), "{code}");
        assert_eq!(not_modified(both(Modify), code, true).plan(), order(Expand), "{code}");
        let mut open = both(Modify);
        begins(open.volume.status.as_mut().unwrap(), &tier("gold"));
        kept_back(open.volume.status.as_mut().unwrap(), &tier("gold"), error("ControllerModifyVolume", code));
        say(&mut open, Reason::ModifyVolumeFailed, true);
        assert_eq!(open.plan(), VolumeStep::Idle, "{code}: an earlier call may be under way");
        let neither = not_modified(not_grown(both(Expand), code, false), code, true).plan();
        assert_eq!(neither, VolumeStep::Idle, "{code}: it is tried before the other one has its turn again");
    }
}

#[test]
fn a_growth_that_waits_lets_the_other_through() {
    let mut row = not_grown(both(Expand), "FailedPrecondition", true);
    row.in_use_by = Some("claim team/a".into());
    assert_eq!(row.plan(), order(Modify));
    row.volume.spec.assignment.as_mut().unwrap().operation = Modify;
    let VolumeStep::Wait(why) = row.plan() else { panic!("it does not say what waits") };
    assert_eq!(why.reason(), Reason::ExpandsUnused);
    row.volume.spec.mutable_parameters = tier("silver");
    assert_eq!(row.plan(), order(Create), "nothing is to be called");
}

#[test]
fn what_the_driver_has_is_not_known_from_the_call_to_its_answer() {
    let mut volume = changed(Modify).volume;
    assert_eq!(due(&volume), Some(&tier("gold")));
    begins(volume.status.as_mut().unwrap(), &tier("gold"));
    volume.spec.mutable_parameters = tier("silver");
    assert_eq!(due(&volume), Some(&tier("gold")), "it is repeated as it was");
    assert!(is_open(&volume) && fails(&volume).is_none());
    let unavailable = error("ControllerModifyVolume", "Unavailable");
    failed(volume.status.as_mut().unwrap(), &tier("gold"), unavailable, true);
    assert_eq!(fails(&volume), Some(Fails::Perhaps("ControllerModifyVolume: Unavailable: no".into())));
    // It has refused: it may have what it had, or something of both.
    let invalid = error("ControllerModifyVolume", "InvalidArgument");
    failed(volume.status.as_mut().unwrap(), &tier("gold"), invalid, false);
    assert_eq!((due(&volume), fails(&volume)), (Some(&tier("silver")), None));
    volume.spec.mutable_parameters = tier("gold");
    assert_eq!(fails(&volume), Some(Fails::Always("ControllerModifyVolume: InvalidArgument: no".into())));
    begins(volume.status.as_mut().unwrap(), &tier("gold"));
    assert_eq!(fails(&volume), None, "nothing is said of this attempt yet");
    // What keeps a call back says nothing of one before it.
    let secret = || error("ControllerModifyVolume", "SecretNotFound");
    kept_back(volume.status.as_mut().unwrap(), &tier("silver"), secret());
    assert!(due(&volume) == Some(&tier("gold")) && is_open(&volume));
    let mut untouched = changed(Modify).volume;
    kept_back(untouched.status.as_mut().unwrap(), &tier("gold"), secret());
    assert_eq!(untouched.status.as_ref().unwrap().mutable_parameters, tier("silver"));
    let why = Fails::Certainly("ControllerModifyVolume: SecretNotFound: no".into());
    assert_eq!((is_open(&untouched), fails(&untouched)), (false, Some(why)));
    ends(volume.status.as_mut().unwrap(), tier("gold"));
    assert_eq!((due(&volume), is_open(&volume)), (None, false));
}
