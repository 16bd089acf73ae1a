//! What a live look can forbid, one by one: the caches allow the step, and only what was read last keeps it back.

use std::collections::BTreeSet;

use moor::api::handle::{Writer, WriterRef};
use moor::api::plugin::Balancing;
use moor::api::{AccessMode, AttachmentState, ClaimState};
use moor::claim::{ClaimSeen, VolumeSeen};

use super::*;
use crate::fixtures::{claim, granted, node};

/// The Volume of [`leaving`] before it is deleted.
fn kept(state: VolumeState) -> Volume {
    let mut volume = leaving(VolumeOperation::Create, "node-1", state);
    volume.metadata.deletion_timestamp = None;
    volume
}

/// A Volume that is Ready and open, at an instance that works.
pub fn open() -> Observed {
    Observed {
        volume: Some(kept(VolumeState::Ready)),
        volume_seen: Some(VolumeSeen { uid: "v".into(), ..fixtures::volume() }),
        instances: vec![instance("node-1", false)],
        handle: Some(lock(false, "node-1")),
        nodes: vec![node("node-1")],
        ..Observed::default()
    }
}

fn waits(observed: &Observed, looked: &Looked) -> VolumeWaiting {
    observed.plan(looked).volume_waits.expect("it waits")
}

fn in_persistent_volume() -> Naming {
    Naming { name: "pv".into(), field: "spec.csi", certain: true }
}

/// A node that is gone, or marked as off, may be back with what it reported.
#[test]
fn nothing_is_granted_or_deleted_before_reports_have_ended() {
    let grants = Observed { claims: vec![claim("a")], ended_reports: true, ..open() };
    let deletes = Observed {
        volume: Some(leaving(VolumeOperation::Create, "node-1", VolumeState::Ready)),
        handle: Some(closed("node-1")),
        ended_reports: true,
        ..open()
    };
    for observed in [grants, deletes] {
        let (locks, named_by, copied_by) = (Some(Vec::new()), Some(None), Some(None));
        let handles = [("handle".to_owned(), observed.handle.clone())].into();
        let mut looked = Looked { locks, named_by, copied_by, handles, ..Looked::default() };
        assert_eq!(asks(&observed, &looked), Look::EndedReports);
        looked.reports_have_ended = Some(false);
        assert_eq!(step(&observed, &looked), LeaderStep::Rest);
        looked.reports_have_ended = Some(true);
        let done = step(&observed, &looked);
        assert!(
            matches!(done, LeaderStep::CreateAttachment { .. } | LeaderStep::AssignVolume(_)),
            "{done:?}"
        );
    }
}

/// N14: a claim that is gone may still be mounted on the Attachment on which it wrote.
#[test]
fn a_writer_comes_after_the_one_before_it_has_let_go() {
    let mode = AccessMode::MultiNodeSingleWriter;
    let on = AttachmentSeen { volume_uid: "v".into(), mode, ..attachment() };
    let on = AttachmentSeen {
        name: moor::api::lock::attachment_name(
            moor::api::lock::DriverVolume { driver: DRIVER, handle: "vol-1" },
            mode,
            &on.node,
        ),
        ..on
    };
    let of = |claim: &str, attachment: &str| WriterRef {
        claim: format!("default/{claim}"),
        claim_uid: claim.into(),
        attachment: format!("name-{attachment}"),
        attachment_uid: attachment.into(),
    };
    let waiting = ClaimSeen { mode, node: Some(on.node.clone()), ..claim("b") };
    let held_by = |holder| {
        let writer = Writer { holder, grant: 2, released: true, after: Some(of("a", "u0")) };
        let uses = vec![moor::api::capability::VolumeUse { access_mode: mode, ..Default::default() }];
        Observed {
            volume_seen: Some(VolumeSeen { uid: "v".into(), uses, ..fixtures::volume() }),
            handle: Some(HandleSeen { mode, writer: Some(writer), ..lock(false, "node-1") }),
            nodes: vec![moor::claim::NodeSeen { uid: on.node_uid.clone(), ..node(&on.node) }],
            claims: vec![waiting.clone()],
            attachments: vec![on.clone()],
            locks: vec![on.clone()],
            ..open()
        }
    };
    let (assigned, names) = (held_by(of("b", &on.uid)), held_by(of("c", "u1")));
    for observed in [assigned, names] {
        let mut looked = Looked::default();
        assert_eq!(asks(&observed, &looked), Look::Claim { key: "default/a".into(), uid: "a".into() });
        let writes = granted("a", &fixtures::attachment("u0"));
        let gone = ClaimSeen { yielded: Some("u0".into()), ..writes.clone() };
        looked.claims.insert("a".into(), Some(gone));
        let next = step(&observed, &looked);
        assert!(matches!(next, LeaderStep::AssignClaim { .. } | LeaderStep::NameWriter { .. }), "{next:?}");
        for before in [Some(writes), None] {
            let mut looked = Looked { claims: [("a".into(), before)].into(), ..Looked::default() };
            assert_eq!(asks(&observed, &looked), Look::Attachment { name: "name-u0".into() });
            looked.attachments.insert("name-u0".into(), Some("u0".into()));
            assert_eq!(step(&observed, &looked), LeaderStep::Rest);
            looked.attachments.insert("name-u0".into(), None);
            assert_eq!(step(&observed, &looked), next);
        }
    }
}

#[test]
fn a_claim_is_freed_when_its_attachment_is_gone_and_it_is_no_writer_any_more() {
    let on = attachment();
    let leaving = ClaimSeen { deleted: true, ..granted("a", &on) };
    let observed = Observed { claims: vec![leaving.clone()], ..open() };
    let mut looked = Looked::default();
    assert_eq!(asks(&observed, &looked), Look::Attachment { name: on.name.clone() });
    looked.attachments.insert(on.name.clone(), Some(on.uid.clone()));
    assert_eq!(step(&observed, &looked), LeaderStep::Rest, "the cache is behind");
    for now in [None, Some("another".into())] {
        looked.attachments.insert(on.name.clone(), now);
        assert_eq!(step(&observed, &looked), LeaderStep::FreeClaim { claim: "a".into() });
    }
    // Afterwards nobody could tell it from one that was removed by hand.
    let holder = WriterRef { claim_uid: "a".into(), attachment_uid: on.uid, ..WriterRef::default() };
    let writer = Some(Writer { holder, grant: 1, released: false, after: None });
    let wrote = Observed {
        handle: Some(HandleSeen { writer, ..lock(false, "node-1") }),
        claims: vec![ClaimSeen { state: ClaimState::NodeDetached, ..leaving }],
        ..open()
    };
    assert!(matches!(step(&wrote, &Looked::default()), LeaderStep::RetireWriter(_)));
}

/// Rule R4: it is by the users' word that a node is lost that nobody vouches for.
#[test]
fn a_force_detach_is_by_the_claims_as_they_are_now() {
    let forced = ClaimSeen { deleted: true, force: true, ..granted("a", &attachment()) };
    let alive = granted("b", &attachment());
    let here =
        NodeNow::There { uid: String::new(), out_of_service: false, boot_id: String::new(), node_id: None };
    let observed = Observed {
        claims: vec![forced.clone()],
        attachments: vec![AttachmentSeen { deleted: true, ..attachment() }],
        nodes_of: [("att".into(), silent(here.clone()))].into(),
        ..Observed::default()
    };
    let mut looked = Looked::default();
    assert_eq!(asks(&observed, &looked), Look::Users { attachment: "att".into() });
    looked.users.insert("att".into(), vec![forced.clone(), alive]);
    looked.nodes.insert("att".into(), silent(here));
    assert_eq!(step(&observed, &looked), LeaderStep::Rest, "another has come");
    looked.users.insert("att".into(), vec![forced]);
    assert!(matches!(step(&observed, &looked), LeaderStep::DeclareLost { .. }));
}

/// Trap N8: the call is left out only where nobody can ever make it.
#[test]
fn a_call_is_left_out_when_its_instance_is_cut_off_and_its_node_gone() {
    let controller = Some(caller("node-1"));
    let lost = AttachmentSeen { deleted: true, lost: true, controller, ..attachment() };
    let observed = Observed {
        plugin: Some(Balancing::PerTopology),
        instances: vec![instance("node-1", true)],
        nodes_of: [("att".into(), silent(NodeNow::Gone))].into(),
        attachments: vec![lost.clone()],
        ..Observed::default()
    };
    let mut looked = Looked::default();
    assert_eq!(asks(&observed, &looked), Look::Node { attachment: "att".into() });
    let uid = lost.node_uid.clone();
    let back = NodeNow::There { uid, out_of_service: false, boot_id: String::new(), node_id: None };
    let instance = caller("node-1");
    for (now, caller_now, step_now) in [
        (NodeNow::Gone, CallerNow::CutOff, LeaderStep::Abandon { attachment: "att".into() }),
        (NodeNow::Gone, CallerNow::Relieved, LeaderStep::Rest),
        (NodeNow::Gone, CallerNow::MayCall, LeaderStep::Rest),
        (back, CallerNow::CutOff, LeaderStep::Rest),
    ] {
        looked.nodes.insert("att".into(), silent(now.clone()));
        looked.callers.clear();
        assert_eq!(asks(&observed, &looked), Look::Caller(caller("node-1")));
        looked.callers.insert(instance.clone(), caller_now);
        assert_eq!(step(&observed, &looked), step_now, "{now:?} {caller_now:?}");
    }
}

/// Its machine may have started since `spec.lost` was written.
#[test]
fn what_no_call_cuts_off_is_freed_while_its_node_is_out() {
    let lost = AttachmentSeen { deleted: true, lost: true, attach: false, ..attachment() };
    let observed = Observed { attachments: vec![lost], ..Observed::default() };
    let mut looked = Looked::default();
    assert_eq!(asks(&observed, &looked), Look::Node { attachment: "att".into() });
    looked.nodes.insert("att".into(), NodeFacts { silent: false, ..silent(NodeNow::Gone) });
    assert_eq!(step(&observed, &looked), LeaderStep::Rest);
    looked.nodes.insert("att".into(), silent(NodeNow::Gone));
    assert_eq!(step(&observed, &looked), LeaderStep::FreeAttachment { attachment: "att".into() });
}

#[test]
fn storage_is_locked_when_no_persistent_volume_names_it_and_behind_what_is_attached() {
    let made = Observed { volume: Some(kept(VolumeState::Created)), handle: None, ..open() };
    let mut looked = Looked::default();
    let names = Look::PersistentVolumes(CsiSource { driver: DRIVER.into(), volume_handle: "vol-1".into() });
    assert_eq!(asks(&made, &looked), names);
    looked.named_by = Some(Some(in_persistent_volume()));
    assert_eq!(step(&made, &looked), LeaderStep::Rest);
    assert!(matches!(waits(&made, &looked), VolumeWaiting::AnswerInPersistentVolume { .. }));
    looked.named_by = Some(None);
    assert_eq!(asks(&made, &looked), Look::Locks);
    // The instance of one that is attached stays: a call of theirs may be running, or begin.
    let attached = AttachmentSeen { epoch: 4, controller: Some(caller("node-2")), ..attachment() };
    let leaving = AttachmentSeen { epoch: 3, state: AttachmentState::NodeDetached, ..attached.clone() };
    let without = AttachmentSeen { attach: false, ..attached.clone() };
    let undone = AttachmentSeen { state: AttachmentState::ControllerDetached, ..attached.clone() };
    for (left, epoch, closing, named) in [
        (vec![], 1, false, "node-1"),
        (vec![undone], 5, true, "node-1"),
        (vec![without], 5, true, "node-1"),
        (vec![attached.clone()], 5, true, "node-2"),
        (vec![leaving, attached], 5, true, "node-2"),
    ] {
        looked.locks = Some(left);
        let (closed_for, controller) = (None, Some(caller(named)));
        assert_eq!(step(&made, &looked), LeaderStep::CreateHandle { epoch, closing, closed_for, controller });
    }
}

/// Else nobody would be named who detaches it. Whether a PersistentVolume names the storage is asked before that is deleted.
#[test]
fn the_storage_of_a_deleted_volume_is_locked_for_what_is_attached_alone() {
    let volume = leaving(VolumeOperation::Create, "node-1", VolumeState::Ready);
    let attached = AttachmentSeen { epoch: 4, volume_uid: "v".into(), deleted: true, ..attachment() };
    let attachments = vec![attached.clone()];
    let left = Observed { volume: Some(volume), handle: None, attachments, ..open() };
    let mut looked = Looked { named_by: Some(Some(in_persistent_volume())), ..Looked::default() };
    assert_eq!(asks(&left, &looked), Look::Locks);
    looked.locks = Some(vec![]);
    assert!(matches!(step(&left, &looked), LeaderStep::TellStorageLeft(_)), "the cache is behind");
    looked.locks = Some(vec![attached]);
    assert!(matches!(step(&left, &looked), LeaderStep::CreateHandle { epoch: 5, closed_for: Some(_), .. }));
}

/// What CreateVolume answered may be what the stock stack has.
#[test]
fn what_nobody_can_use_is_left_to_the_persistent_volume_that_names_it() {
    let mut volume = kept(VolumeState::Pending);
    let rejected = Rejected { volume_handle: "x".into(), reason: String::new(), may_delete: false };
    volume.status.as_mut().unwrap().rejected = Some(rejected.into());
    let observed = Observed { volume: Some(volume), handle: None, ..open() };
    let looked = Looked { named_by: Some(Some(in_persistent_volume())), ..Looked::default() };
    assert_eq!(step(&observed, &looked), LeaderStep::Rest);
    assert!(matches!(waits(&observed, &looked), VolumeWaiting::AnswerInPersistentVolume { .. }));
}

/// Rule R3: nothing of the one before may be left.
#[test]
fn a_volume_handle_is_taken_over_when_its_volume_is_gone_and_nothing_is_left() {
    let of_another = |closing| {
        let handle = HandleSeen { volume_uid: "another".into(), epoch: 3, ..lock(closing, "node-1") };
        Observed { volume: Some(kept(VolumeState::Created)), handle: Some(handle), ..open() }
    };
    let mut looked = Looked::default();
    assert_eq!(asks(&of_another(true), &looked), Look::Owner);
    looked = Looked { owner_exists: Some(true), named_by: Some(None), locks: Some(vec![]), ..looked };
    assert_eq!(step(&of_another(true), &looked), LeaderStep::Rest);
    assert!(matches!(waits(&of_another(true), &looked), VolumeWaiting::DuplicateHandle { .. }));
    looked.owner_exists = Some(false);
    assert_eq!(step(&of_another(false), &looked), LeaderStep::BeginClosing { last: None });
    assert!(matches!(asks(&of_another(true), &looked), Look::Copies { .. }), "of the one that is gone");
    looked.copied_by = Some(None);
    assert_eq!(step(&of_another(true), &looked), LeaderStep::TakeOver);
    looked.locks = Some(vec![AttachmentSeen { epoch: 2, ..attachment() }]);
    assert_eq!(step(&of_another(true), &looked), LeaderStep::Rest);
    assert!(matches!(waits(&of_another(true), &looked), VolumeWaiting::InUse { .. }));
}

#[test]
fn a_volume_handle_is_opened_removed_and_ordered_away_when_nothing_is_left() {
    let opens = Observed { handle: Some(HandleSeen { epoch: 2, ..lock(true, "node-1") }), ..open() };
    let with = |policy| {
        let mut volume = leaving(VolumeOperation::Create, "node-1", VolumeState::Ready);
        volume.spec.deletion_policy = Some(policy);
        let handle = HandleSeen { epoch: 2, ..closed_for(policy, "node-1") };
        Observed { volume: Some(volume), handle: Some(handle), ..open() }
    };
    for observed in [opens.clone(), with(DeletionPolicy::Retain), with(DeletionPolicy::Delete)] {
        let mut looked = Looked { named_by: Some(None), ..Looked::default() };
        assert_eq!(asks(&observed, &looked), Look::Locks);
        looked.locks = Some(vec![attachment()]);
        assert_eq!(step(&observed, &looked), LeaderStep::Rest);
        looked.locks = Some(Vec::new());
        let is_deleted = observed.volume.as_ref().is_some_and(|v| v.metadata.deletion_timestamp.is_some());
        if is_deleted {
            assert!(matches!(asks(&observed, &looked), Look::Copies { .. }), "a snapshot that no cache has");
            looked.copied_by = Some(Some("Snapshot s".into()));
            assert_eq!(waits(&observed, &looked), VolumeWaiting::Copied { by: "Snapshot s".into() });
            looked.copied_by = Some(None);
        }
        // The order carries nothing of the VolumeHandle, which somebody may have opened since, and the removal nothing of the Volume.
        if step(&observed, &looked) == LeaderStep::Look(Look::Assigned) {
            looked.assigned = Some(observed.volume.as_ref().unwrap().spec.assignment.clone());
        } else if let LeaderStep::Look(look) = step(&observed, &looked) {
            assert_eq!(look, Look::Handle { name: "handle".into() });
            for since in [None, Some(HandleSeen { epoch: 3, ..lock(true, "node-1") })] {
                looked.handles.insert("handle".into(), since);
                assert_eq!(step(&observed, &looked), LeaderStep::Rest);
            }
            looked.handles.insert("handle".into(), observed.handle.clone());
        }
        let done = step(&observed, &looked);
        assert!(
            matches!(
                done,
                LeaderStep::FinishClosing { .. } | LeaderStep::RemoveHandle | LeaderStep::AssignVolume(_)
            ),
            "{done:?}"
        );
    }
    let used = AttachmentSeen { state: AttachmentState::NodeDetached, deleted: true, ..attachment() };
    let known = Observed { locks: vec![used], ..opens };
    assert_eq!(step(&known, &Looked::default()), LeaderStep::Rest, "the watch tells when it is gone");
}

/// So that they are read at once.
#[test]
fn what_is_listed_is_known_before_any_list_is_read() {
    let goes = Observed {
        volume: Some(leaving(VolumeOperation::Create, "node-1", VolumeState::Ready)),
        handle: Some(HandleSeen { epoch: 2, ..closed("node-1") }),
        ..open()
    };
    let comes = Observed { volume: Some(kept(VolumeState::Created)), handle: None, ..open() };
    for (observed, lists) in [(goes, 3), (comes, 2)] {
        let (mut looked, mut asked) = (Looked::default(), BTreeSet::new());
        while let LeaderStep::Look(look) = step(&observed, &looked) {
            if matches!(look, Look::Handle { .. }) {
                break;
            }
            assert!(looked.suppose_nothing(&look), "{look:?} is no list");
            asked.insert(format!("{look:?}"));
        }
        assert_eq!(asked.len(), lists, "{asked:?}");
    }
    let mut looked = Looked::default();
    let get = Look::Owner;
    assert!(!looked.suppose_nothing(&get) && looked.owner_exists.is_none());
}
