use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::api::conditions::{CallFailure, Condition, READY, Reason};
use crate::api::snapshot::SnapshotAssignment;

fn at(second: i64) -> Time {
    Time(Timestamp::from_second(second).unwrap())
}

fn content(status: &Value) -> VolumeSnapshotContent {
    let spec = json!({ "driver": "d" });
    serde_json::from_value(json!({ "metadata": { "name": "c" }, "spec": spec, "status": status })).unwrap()
}

fn snapshot(state: SnapshotState, confirmed: bool) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let handle = confirmed.then(|| "snap-1".to_owned());
    let assignment = SnapshotAssignment { snapshot_handle: handle, ..SnapshotAssignment::default() };
    snapshot.spec.assignment = Some(assignment);
    let status = snapshot.status.get_or_insert_default();
    (status.state, status.restore_size_bytes) = (state, Some(5));
    (status.snapshot_handle, status.creation_time) = (Some("snap-1".into()), Some(at(7)));
    snapshot
}

#[test]
fn what_the_snapshot_says_is_said_once_it_is_known_to_be_its_own() {
    let empty = content(&json!(null));
    let unready = ContentStatus { ready_to_use: Some(false), ..ContentStatus::default() };
    assert_eq!(empty.says(&snapshot(SnapshotState::Pending, false), &at(9)), unready);
    // An agent says so, and nobody has looked whose it is.
    assert_eq!(empty.says(&snapshot(SnapshotState::Ready, false), &at(9)), unready);
    let there = ContentStatus {
        snapshot_handle: Some("snap-1".into()),
        creation_time: Some(7_000_000_000),
        restore_size: Some(5),
        ..unready.clone()
    };
    assert_eq!(empty.says(&snapshot(SnapshotState::Created, true), &at(9)), there);
    let ready = ContentStatus { ready_to_use: Some(true), ..there };
    assert_eq!(empty.says(&snapshot(SnapshotState::Ready, true), &at(9)), ready);
    // A registered one has its handle from the beginning, and the driver has not been asked.
    assert_eq!(empty.says(&snapshot(SnapshotState::Pending, true), &at(9)), unready);
}

#[test]
fn a_driver_that_does_not_say_when_is_taken_to_have_done_it_now() {
    let mut said = snapshot(SnapshotState::Ready, true);
    let status = said.status.as_mut().unwrap();
    (status.creation_time, status.restore_size_bytes) = (None, None);
    let empty = content(&json!({}));
    let first = empty.says(&said, &at(9));
    assert_eq!((first.creation_time, first.restore_size), (Some(9_000_000_000), None));
    // It stays.
    let again = VolumeSnapshotContent { status: Some(first.clone()), ..empty };
    assert_eq!(again.says(&said, &at(10)), first);
}

#[test]
fn what_was_said_first_stays() {
    let said = json!({ "snapshotHandle": "old", "creationTime": 1, "restoreSize": 2, "readyToUse": true });
    let before = content(&said);
    let after = before.says(&snapshot(SnapshotState::Ready, true), &at(9));
    assert_eq!(Some(&after), before.status.as_ref());
    // Also while it is looked at anew.
    assert_eq!(Some(before.says(&snapshot(SnapshotState::Pending, true), &at(9))), before.status);
}

#[test]
fn what_goes_wrong_keeps_its_time_and_goes_when_it_is_over() {
    let mut failing_one = snapshot(SnapshotState::Pending, false);
    let error = CallFailure {
        rpc: "CreateSnapshot".into(),
        code: "ResourceExhausted".into(),
        message: "too many".into(),
    };
    failing_one.status.as_mut().unwrap().last_error = Some(error.into());
    let first = content(&json!(null)).says(&failing_one, &at(9));
    let words = "CreateSnapshot: ResourceExhausted: too many";
    assert_eq!(first.error, Some(ContentError { message: Some(words.into()), time: Some(at(9)) }));
    let told = VolumeSnapshotContent { status: Some(first.clone()), ..content(&json!(null)) };
    assert_eq!(told.says(&failing_one, &at(99)), first);
    assert_eq!(told.fails(words, &at(99)), first);
    assert_eq!(told.says(&snapshot(SnapshotState::Ready, true), &at(99)).error, None);
    assert_eq!(told.without_storage(), ContentStatus::default());
}

#[test]
fn what_comes_by_itself_is_no_error() {
    for (reason, status, is_told) in [
        (Reason::Creating, "False", false),
        (Reason::NotReadyToUse, "False", false),
        (Reason::VolumeNotReady, "False", true),
        (Reason::SnapshotShared, "False", true),
        (Reason::Ready, "True", false),
    ] {
        let mut waits = snapshot(SnapshotState::Pending, false);
        let condition = Condition {
            type_: READY.into(),
            status: status.into(),
            reason: reason.as_str().into(),
            message: "m".into(),
            last_transition_time: at(0),
            observed_generation: None,
        };
        waits.status.as_mut().unwrap().conditions = vec![condition];
        assert_eq!(goes_wrong(&waits).is_some(), is_told, "{reason:?}");
    }
}
