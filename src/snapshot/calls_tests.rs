use super::*;
use crate::api::caller::ControllerRef;
use crate::api::snapshot::{SnapshotAssignment, SnapshotVolume};
use crate::api::volume::DeletionPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

const NODE: &str = "node-1";

fn at(node: &str) -> ControllerRef {
    ControllerRef::new(format!("driver-{node}"), node, 0)
}

fn snapshot(operation: SnapshotOperation, state: SnapshotState) -> Snapshot {
    let mut snapshot = Snapshot::default();
    snapshot.metadata.uid = Some("snap".into());
    snapshot.spec.volume_name = Some("data".into());
    snapshot.spec.assignment = Some(SnapshotAssignment {
        operation,
        controller: at(NODE),
        volume: Some(SnapshotVolume {
            name: None,
            uid: "vol".into(),
            volume_handle: "vol-1".into(),
            handle_name: "h".into(),
        }),
        ..SnapshotAssignment::default()
    });
    snapshot.status.get_or_insert_default().state = state;
    snapshot
}

fn deleted(mut snapshot: Snapshot) -> Snapshot {
    delete(&mut snapshot.metadata);
    snapshot
}

fn delete(meta: &mut ObjectMeta) {
    meta.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
}

fn called(mut snapshot: Snapshot) -> Snapshot {
    snapshot.status.get_or_insert_default().may_exist = true;
    snapshot
}

fn volume() -> Volume {
    let mut volume = Volume::default();
    volume.metadata.uid = Some("vol".into());
    volume
}

fn lock(controller: Option<ControllerRef>) -> VolumeHandle {
    let mut lock = VolumeHandle::default();
    lock.spec.volume.uid = "vol".into();
    lock.spec.volume_handle = "vol-1".into();
    lock.spec.controller = controller;
    lock
}

#[test]
fn nothing_is_called_for_a_snapshot_that_was_deleted_before_anything_was() {
    let pending = snapshot(SnapshotOperation::Create, SnapshotState::Pending);
    assert_eq!(plan(&pending, NODE), AgentStep::Call(SnapshotCall::Create));
    assert_eq!(plan(&pending, "node-2"), AgentStep::Idle);
    assert_eq!(plan(&deleted(pending.clone()), NODE), AgentStep::NeverBegun);
    // So it is where its volume went before.
    let mut orphan = pending.clone();
    orphan.status.get_or_insert_default().source_gone = true;
    assert_eq!(plan(&orphan, NODE), AgentStep::Idle);
    assert_eq!(plan(&deleted(orphan), NODE), AgentStep::NeverBegun);
    // Whether there is one is found out, to delete it.
    let begun = deleted(called(pending));
    assert_eq!(plan(&begun, NODE), AgentStep::Call(SnapshotCall::Create));
    let mut given_up = begun;
    given_up.spec.deletion_policy = Some(DeletionPolicy::Retain);
    assert_eq!(plan(&given_up, NODE), AgentStep::GiveUp(SnapshotCall::Create));
}

#[test]
fn one_that_is_not_ready_is_asked_for_again() {
    let created = snapshot(SnapshotOperation::Create, SnapshotState::Created);
    assert_eq!(plan(&created, NODE), AgentStep::Call(SnapshotCall::Create));
    assert_eq!(plan(&deleted(created), NODE), AgentStep::Idle, "its deletion is ordered first");
    let ready = snapshot(SnapshotOperation::Create, SnapshotState::Ready);
    assert_eq!(plan(&ready, NODE), AgentStep::Idle);
    let ordered = deleted(snapshot(SnapshotOperation::Delete, SnapshotState::Created));
    assert_eq!(plan(&ordered, NODE), AgentStep::Call(SnapshotCall::Delete));
    let gone = deleted(snapshot(SnapshotOperation::Delete, SnapshotState::Deleted));
    assert_eq!(plan(&gone, NODE), AgentStep::Idle);
}

#[test]
fn nothing_is_begun_of_a_volume_that_is_being_deleted() {
    let pending = snapshot(SnapshotOperation::Create, SnapshotState::Pending);
    let mut ending = volume();
    delete(&mut ending.metadata);
    let mut other = volume();
    other.metadata.uid = Some("other".into());
    let lock = lock(Some(at(NODE)));
    let judged = |snapshot: &Snapshot, volume: Option<&Volume>| {
        let source = SourceNow { volume, lock: Some(&lock) };
        standing(SnapshotCall::Create, snapshot, Some(snapshot), &[source])
    };
    assert_eq!(judged(&pending, Some(&volume())), Standing::Valid);
    for ended in [None, Some(&ending), Some(&other)] {
        assert_eq!(judged(&pending, ended), Standing::SourceEnds);
        // Whoever deletes the volume waits for what was begun before.
        assert_eq!(judged(&called(pending.clone()), ended), Standing::Valid);
    }
}

/// Rule R2: who makes the volume's controller calls makes this one.
#[test]
fn the_volumes_lock_says_who_calls() {
    let begun = called(snapshot(SnapshotOperation::Create, SnapshotState::Pending));
    let mut called_elsewhere = volume();
    called_elsewhere.spec.assignment.get_or_insert_default().controller = Some(at("node-2"));
    let judged = |volume: &Volume, lock: Option<&VolumeHandle>| {
        let source = SourceNow { volume: Some(volume), lock };
        standing(SnapshotCall::Create, &begun, Some(&begun), &[source])
    };
    assert_eq!(judged(&volume(), None), Standing::NotHeld);
    assert_eq!(judged(&volume(), Some(&lock(None))), Standing::NotHolder, "nobody calls");
    let mut called_here = volume();
    called_here.spec.assignment.get_or_insert_default().controller = Some(at(NODE));
    assert_eq!(judged(&called_here, Some(&lock(None))), Standing::Valid);
    assert_eq!(judged(&called_elsewhere, Some(&lock(None))), Standing::NotHolder);
    assert_eq!(judged(&called_elsewhere, Some(&lock(Some(at(NODE))))), Standing::Valid);
    assert_eq!(judged(&volume(), Some(&lock(Some(at("node-2"))))), Standing::NotHolder);
    let mut of_other = lock(Some(at(NODE)));
    of_other.spec.volume.uid = "other".into();
    assert_eq!(judged(&volume(), Some(&of_other)), Standing::NotHeld);
}

#[test]
fn a_call_is_made_for_the_snapshot_that_it_was_prepared_from() {
    let ready = deleted(snapshot(SnapshotOperation::Delete, SnapshotState::Ready));
    let judged = |live: Option<&Snapshot>| standing(SnapshotCall::Delete, &ready, live, &[]);
    assert_eq!(judged(Some(&ready)), Standing::Valid);
    assert_eq!(judged(None), Standing::Gone);
    let mut anew = ready.clone();
    anew.metadata.uid = Some("another".into());
    assert_eq!(judged(Some(&anew)), Standing::Gone);
    let mut edited = ready.clone();
    edited.metadata.generation = Some(9);
    assert_eq!(judged(Some(&edited)), Standing::Changed);
    let mut orphan = ready.clone();
    orphan.status.get_or_insert_default().source_gone = true;
    assert_eq!(judged(Some(&orphan)), Standing::Changed);
    let mut other_id = ready.clone();
    other_id.status.get_or_insert_default().snapshot_handle = Some("x".into());
    assert_eq!(judged(Some(&other_id)), Standing::Changed);
}

/// One call is made for all its volumes, so each has to be held.
#[test]
fn a_group_is_taken_while_every_one_of_its_volumes_is_held_here() {
    let mut group = snapshot(SnapshotOperation::Create, SnapshotState::Pending);
    group.spec.volume_name = None;
    group.spec.volume_names = vec!["data".into(), "log".into()];
    let assignment = group.spec.assignment.as_mut().unwrap();
    let one = assignment.volume.take().unwrap();
    let other = SnapshotVolume {
        name: Some("log".into()),
        uid: "vol2".into(),
        volume_handle: "vol-2".into(),
        handle_name: "h2".into(),
    };
    assignment.volumes = vec![one, other];
    assignment.is_group = true;
    let (volume, lock) = (volume(), lock(Some(at(NODE))));
    let (mut other_volume, mut other_lock) = (volume.clone(), lock.clone());
    other_volume.metadata.uid = Some("vol2".into());
    (other_lock.spec.volume.uid, other_lock.spec.volume_handle) = ("vol2".into(), "vol-2".into());
    let first = SourceNow { volume: Some(&volume), lock: Some(&lock) };
    let says = |second: SourceNow<'_>| standing(SnapshotCall::Create, &group, Some(&group), &[first, second]);
    let second = SourceNow { volume: Some(&other_volume), lock: Some(&other_lock) };
    assert_eq!(says(second), Standing::Valid);
    assert_eq!(says(SourceNow { lock: None, ..second }), Standing::NotHeld);
    assert_eq!(says(SourceNow { lock: Some(&lock), ..second }), Standing::NotHeld, "the first one's");
    assert_eq!(says(SourceNow { volume: None, ..second }), Standing::SourceEnds);
    let mut elsewhere = other_lock.clone();
    elsewhere.spec.controller = Some(at("node-2"));
    assert_eq!(
        says(SourceNow { lock: Some(&elsewhere), ..second }),
        Standing::Valid,
        "each may have its own"
    );
    assert_eq!(standing(SnapshotCall::Create, &group, Some(&group), &[first]), Standing::NotHeld);
}
