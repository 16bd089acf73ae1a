//! What is looked for before a Volume goes that was closed, and what is not looked for again.

use moor::api::AccessMode;
use moor::api::lock::attachment_name;

use super::live_looks::open;
use super::*;
use crate::fixtures::DRIVER_VOLUME;

/// A deleted Volume that nothing was ordered of yet.
fn goes(policy: DeletionPolicy, handle: &HandleSeen) -> Observed {
    let mut volume = leaving(VolumeOperation::Create, "node-1", VolumeState::Ready);
    volume.spec.deletion_policy = Some(policy);
    Observed { volume: Some(volume), handle: Some(handle.clone()), ..open() }
}

/// Under it all grants have had one name, and a LIST is of all Attachments that there are.
#[test]
fn a_volume_handle_of_a_single_node_mode_asks_for_one_attachment_behind_its_last_closing() {
    let handle = HandleSeen { epoch: 2, let_go: true, ..closed("node-1") };
    let with = |handle: &HandleSeen, policy| {
        let handle = HandleSeen { closed_for: Some(policy), ..handle.clone() };
        goes(policy, &handle)
    };
    for policy in [DeletionPolicy::Retain, DeletionPolicy::Delete] {
        let observed = with(&handle, policy);
        let mut looked = Looked { named_by: Some(None), copied_by: Some(None), ..Looked::default() };
        let name = attachment_name(DRIVER_VOLUME, AccessMode::SingleNodeWriter, "node-1");
        assert_eq!(asks(&observed, &looked), Look::Attachment { name: name.clone() });
        looked.attachments.insert(name.clone(), Some("att".into()));
        assert_eq!(step(&observed, &looked), LeaderStep::Rest);
        looked.attachments.insert(name, None);
        looked.handles.insert("handle".into(), observed.handle.clone());
        looked.assigned = Some(observed.volume.as_ref().unwrap().spec.assignment.clone());
        let done = step(&observed, &looked);
        assert!(matches!(done, LeaderStep::RemoveHandle | LeaderStep::AssignVolume(_)), "{done:?}");
        let known = Observed { locks: vec![attachment()], ..observed };
        assert_eq!(step(&known, &looked), LeaderStep::Rest, "whatever its name is, it is there");
    }
    // Of several nodes each has a name of its own; and what was closed when it was made may have something else behind it.
    let shared = HandleSeen { mode: AccessMode::MultiNodeMultiWriter, ..handle.clone() };
    let made_closed = HandleSeen { let_go: false, ..handle };
    for handle in [shared, made_closed] {
        assert_eq!(asks(&with(&handle, DeletionPolicy::Delete), &Looked::default()), Look::Locks);
    }
}

/// The order to delete it came behind the last closing, after a LIST that found no Attachment.
#[test]
fn behind_the_order_to_delete_nothing_is_listed_again() {
    let gone = leaving(VolumeOperation::Delete, "node-1", VolumeState::Deleted);
    let handle = Some(HandleSeen { epoch: 2, ..closed("node-1") });
    let observed = Observed { volume: Some(gone), handle, ..open() };
    assert_eq!(step(&observed, &Looked::default()), LeaderStep::RemoveHandle);
    let held = Observed { locks: vec![attachment()], ..observed };
    assert_eq!(step(&held, &Looked::default()), LeaderStep::Rest, "whatever it is, it is there");
}

/// The lock first: nobody else could say what the driver's volume is.
#[test]
fn a_volume_goes_after_its_volume_handle() {
    let gone = leaving(VolumeOperation::Delete, "node-1", VolumeState::Deleted);
    let observed = Observed { volume: Some(gone), handle: None, ..open() };
    let mut looked = Looked::default();
    let Look::Handle { name } = asks(&observed, &looked) else { panic!("no look at the VolumeHandle") };
    looked.handles.insert(name.clone(), Some(closed("node-1")));
    assert_eq!(step(&observed, &looked), LeaderStep::Rest);
    let of_another = HandleSeen { volume_uid: "another".into(), ..closed("node-1") };
    for live in [None, Some(of_another)] {
        looked.handles.insert(name.clone(), live);
        assert_eq!(step(&observed, &looked), LeaderStep::FreeVolume);
    }
}

/// Its policy was changed since: while the VolumeHandle says that the storage stays nobody calls DeleteVolume, and while it says that the
/// storage goes nobody takes the lock away.
#[test]
fn what_a_volume_handle_was_closed_for_is_what_becomes_of_the_storage() {
    let looked = || Looked {
        locks: Some(Vec::new()),
        named_by: Some(None),
        copied_by: Some(None),
        ..Looked::default()
    };
    for (policy, other) in
        [(DeletionPolicy::Delete, DeletionPolicy::Retain), (DeletionPolicy::Retain, DeletionPolicy::Delete)]
    {
        let otherwise = goes(policy, &closed_for(other, "node-1"));
        assert_eq!(step(&otherwise, &looked()), LeaderStep::BeginClosing { last: Some(policy) });
        let unlooked = step(&otherwise, &Looked::default());
        assert_eq!(unlooked, LeaderStep::Look(Look::Locks), "what waits, waits first");
    }
}

/// Whoever ordered it looked at the VolumeHandle before it was closed for storage that stays, and at the Volume nobody has looked since.
#[test]
fn a_volume_handle_goes_without_the_call_after_a_look_for_an_order() {
    let observed = goes(DeletionPolicy::Retain, &closed_for(DeletionPolicy::Retain, "node-1"));
    let assigned = observed.volume.as_ref().unwrap().spec.assignment.clone();
    let ordered = leaving(VolumeOperation::Delete, "node-1", VolumeState::Ready).spec.assignment;
    let mut looked = Looked { locks: Some(Vec::new()), copied_by: Some(None), ..Looked::default() };
    assert_eq!(asks(&observed, &looked), Look::Assigned);
    for (live, expected) in
        [(ordered, LeaderStep::Rest), (None, LeaderStep::Rest), (assigned, LeaderStep::RemoveHandle)]
    {
        looked.assigned = Some(live);
        assert_eq!(step(&observed, &looked), expected);
    }
}

/// Its agent is gone for good, and its owner leaves the storage. An heir that was named meanwhile may be calling.
#[test]
fn a_volume_is_given_up_behind_a_look_for_its_heir() {
    let mut given_up = goes(DeletionPolicy::Retain, &closed("node-1"));
    given_up.volume.as_mut().unwrap().spec.assignment.as_mut().unwrap().operation = VolumeOperation::Delete;
    given_up.instances = vec![instance("node-1", true)];
    let mut looked = Looked::default();
    assert_eq!(asks(&given_up, &looked), Look::Caller(caller("node-1")));
    looked.callers.insert(caller("node-1"), CallerNow::CutOff);
    let closes = LeaderStep::BeginClosing { last: Some(DeletionPolicy::Retain) };
    assert_eq!(step(&given_up, &looked), closes);
    given_up.handle = Some(closed_for(DeletionPolicy::Retain, "node-1"));
    assert_eq!(asks(&given_up, &looked), Look::Locks, "it may have been opened since the order");
    (looked.locks, looked.copied_by) = (Some(Vec::new()), Some(None));
    assert_eq!(asks(&given_up, &looked), Look::Assigned);
    let mut assigned = given_up.volume.as_ref().unwrap().spec.assignment.clone();
    looked.assigned = Some(assigned.clone());
    assert_eq!(step(&given_up, &looked), LeaderStep::RemoveHandle);
    assigned.as_mut().unwrap().controller = Some(caller("node-2"));
    looked.assigned = Some(assigned);
    assert_eq!(step(&given_up, &looked), LeaderStep::Rest);
}

/// It was removed by hand, and whoever had not heard of the deletion has opened it again.
#[test]
fn an_order_is_carried_out_after_looks_behind_the_closing_that_is_for_it() {
    let mut ordered = goes(DeletionPolicy::Delete, &closed_for(DeletionPolicy::Retain, "node-1"));
    ordered.volume.as_mut().unwrap().spec.assignment.as_mut().unwrap().operation = VolumeOperation::Delete;
    let mut looked = Looked::default();
    assert_eq!(asks(&ordered, &looked), Look::Locks);
    looked.locks = Some(vec![attachment()]);
    assert_eq!(step(&ordered, &looked), LeaderStep::Rest);
    looked.locks = Some(Vec::new());
    assert!(matches!(asks(&ordered, &looked), Look::Copies { .. }));
    looked.copied_by = Some(None);
    assert!(matches!(asks(&ordered, &looked), Look::PersistentVolumes(_)));
    looked.named_by = Some(Some(Naming { name: "pv".into(), field: "spec.csi", certain: true }));
    let why = ordered.plan(&looked).volume_waits;
    assert!(
        matches!(why, Some(VolumeWaiting::OrderedInPersistentVolume { .. })),
        "its call may be running: {why:?}"
    );
    looked.named_by = Some(None);
    let closes = LeaderStep::BeginClosing { last: Some(DeletionPolicy::Delete) };
    assert_eq!(step(&ordered, &looked), closes);
    ordered.handle = Some(closed("node-1"));
    assert_eq!(step(&ordered, &Looked::default()), LeaderStep::Rest, "the call is its agent's to make");
}
