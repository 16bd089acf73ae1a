//! What is looked for before a Volume goes that was closed, and what is not looked for again.

use moor::api::AccessMode;
use moor::api::lock::attachment_name;

use super::live_looks::open;
use super::*;
use crate::fixtures::DRIVER_VOLUME;

/// Under it all grants have had one name, and a LIST is of all Attachments that there are.
#[test]
fn a_volume_handle_of_a_single_node_mode_asks_for_one_attachment_behind_its_last_closing() {
    let handle = HandleSeen { epoch: 2, closed_last: true, ..lock(true, "node-1") };
    let with = |handle: &HandleSeen, policy| {
        let mut volume = leaving(VolumeOperation::Create, "node-1", VolumeState::Ready);
        volume.spec.deletion_policy = Some(policy);
        Observed { volume: Some(volume), handle: Some(handle.clone()), ..open() }
    };
    for policy in [DeletionPolicy::Retain, DeletionPolicy::Delete] {
        let observed = with(&handle, policy);
        let mut looked = Looked { named_by: Some(None), copied_by: Some(None), ..Looked::default() };
        let name = attachment_name(DRIVER_VOLUME, AccessMode::SingleNodeWriter, "node-1");
        assert_eq!(asks(&observed, &looked), Look::Attachment { name: name.clone() });
        looked.attachments.insert(name.clone(), Some("att".into()));
        assert_eq!(step(&observed, &looked), LeaderStep::Rest);
        looked.attachments.insert(name, None);
        looked.handles.insert("handle".into(), Some(handle.clone()));
        let done = step(&observed, &looked);
        assert!(matches!(done, LeaderStep::RemoveHandle | LeaderStep::AssignVolume(_)), "{done:?}");
        let known = Observed { locks: vec![attachment()], ..observed };
        assert_eq!(step(&known, &looked), LeaderStep::Rest, "whatever its name is, it is there");
    }
    // Of several nodes each has a name of its own; and what was closed when it was made may have something else behind it.
    let shared = HandleSeen { mode: AccessMode::MultiNodeMultiWriter, ..handle.clone() };
    let made_closed = HandleSeen { closed_last: false, ..handle };
    for handle in [shared, made_closed] {
        assert_eq!(asks(&with(&handle, DeletionPolicy::Delete), &Looked::default()), Look::Locks);
    }
}

/// The order to delete it came behind the last closing, after a LIST that found no Attachment.
#[test]
fn behind_the_order_to_delete_nothing_is_listed_again() {
    let gone = leaving(VolumeOperation::Delete, "node-1", VolumeState::Deleted);
    let handle = Some(HandleSeen { epoch: 2, ..lock(true, "node-1") });
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
    looked.handles.insert(name.clone(), Some(lock(true, "node-1")));
    assert_eq!(step(&observed, &looked), LeaderStep::Rest);
    let of_another = HandleSeen { volume_uid: "another".into(), ..lock(true, "node-1") };
    for live in [None, Some(of_another)] {
        looked.handles.insert(name.clone(), live);
        assert_eq!(step(&observed, &looked), LeaderStep::FreeVolume);
    }
}
