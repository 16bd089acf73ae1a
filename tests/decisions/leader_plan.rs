//! The leader's plan as a whole: which of several things that are due comes first, and which live looks come before it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use moor::api::caller::ControllerRef;
use moor::api::names::{DriverOn, instance_name};
use moor::api::volume::{DeletionPolicy, Rejected, VolumeAssignment, VolumeOperation};
use moor::api::{FINALIZER, Volume, VolumeState};
use moor::attachment::loss::{Machine, NodeFacts, NodeNow};
use moor::attachment::{AttachmentSeen, HandleSeen};
use moor::claim::{ForgottenSeen, Mount};
use moor::leader::{LeaderStep, Look, Looked};
use moor::volume::CallerNow;
use moor::volume::persistent_volume::{CsiSource, Naming};
use moor::volume::{InstanceSeen, VolumeWaiting};

use super::fixtures::{self, DRIVER};
use super::observed::Observed;

mod deletion;
mod expansion;
mod linger;
mod live_looks;
mod pods;
mod properties;

fn caller(agent: &str) -> ControllerRef {
    ControllerRef::new(instance_name(DriverOn { driver: DRIVER, node: agent }), agent, 0)
}

fn instance(agent: &str, dead: bool) -> InstanceSeen {
    InstanceSeen { healthy: !dead, serving: !dead, dead, ..fixtures::instance(&caller(agent)) }
}

/// A deleted Volume whose storage goes, with this order of its own.
fn leaving(operation: VolumeOperation, agent: &str, state: VolumeState) -> Volume {
    let mut volume = Volume::default();
    volume.metadata.uid = Some("v".into());
    volume.metadata.finalizers = Some(vec![FINALIZER.into()]);
    volume.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    volume.spec.deletion_policy = Some(DeletionPolicy::Delete);
    volume.spec.assignment =
        Some(VolumeAssignment { operation, controller: Some(caller(agent)), ..VolumeAssignment::default() });
    let status = volume.status.get_or_insert_default();
    status.state = state;
    status.volume_handle = (state != VolumeState::Pending).then(|| "vol-1".into());
    volume
}

fn lock(closing: bool, agent: &str) -> HandleSeen {
    HandleSeen { volume_uid: "v".into(), closing, controller: Some(caller(agent)), ..fixtures::handle() }
}

/// Closed for the last time.
fn closed_for(policy: DeletionPolicy, agent: &str) -> HandleSeen {
    HandleSeen { closed_for: Some(policy), ..lock(true, agent) }
}

/// The same, for a deletion.
fn closed(agent: &str) -> HandleSeen {
    closed_for(DeletionPolicy::Delete, agent)
}

fn attachment() -> AttachmentSeen {
    fixtures::attachment("att")
}

fn silent(now: NodeNow) -> NodeFacts {
    NodeFacts { machine: Machine::default(), now, silent: true, heard: Vec::new() }
}

fn step(observed: &Observed, looked: &Looked) -> LeaderStep {
    observed.plan(looked).step
}

fn asks(observed: &Observed, looked: &Looked) -> Look {
    match step(observed, looked) {
        LeaderStep::Look(look) => look,
        other => panic!("{other:?} without a look"),
    }
}

#[test]
fn an_attachment_that_nobody_is_known_to_have_used_is_closed_after_a_look_at_the_claims() {
    let observed = Observed { attachments: vec![attachment()], ..Observed::default() };
    let mut looked = Looked::default();
    assert_eq!(asks(&observed, &looked), Look::Users { attachment: "att".into() });
    looked.users.insert("att".into(), vec![fixtures::claim("a")]);
    assert_eq!(step(&observed, &looked), LeaderStep::Rest, "somebody uses it");
    looked.users.insert("att".into(), Vec::new());
    assert_eq!(step(&observed, &looked), LeaderStep::Close { attachment: "att".into() });
    let cautious = Observed { cautious: true, ..observed };
    assert_eq!(step(&cautious, &looked), LeaderStep::Rest, "whoever uses it may be missing");
}

/// Rule R4: nothing that a cache says counts.
#[test]
fn a_node_is_declared_lost_by_what_was_read_last() {
    let nodes_of = [("att".into(), silent(NodeNow::Gone))].into();
    let observed = Observed { attachments: vec![attachment()], nodes_of, ..Observed::default() };
    let mut looked = Looked::default();
    assert_eq!(asks(&observed, &looked), Look::Node { attachment: "att".into() });
    looked.nodes.insert("att".into(), NodeFacts { silent: false, ..silent(NodeNow::Gone) });
    looked.users.insert("att".into(), vec![fixtures::claim("a")]);
    assert_eq!(step(&observed, &looked), LeaderStep::Rest, "its agent is heard");
    looked.nodes.insert("att".into(), silent(NodeNow::Gone));
    assert!(matches!(step(&observed, &looked), LeaderStep::DeclareLost { .. }));
}

/// A PersistentVolume that names the storage may have come since the first look.
#[test]
fn an_order_to_delete_stands_for_the_instance_that_has_it() {
    let by = |operation, agents: [bool; 2]| Observed {
        volume: Some(leaving(operation, "node-1", VolumeState::Ready)),
        instances: vec![instance("node-1", agents[0]), instance("node-2", agents[1])],
        handle: Some(closed("node-1")),
        ..Observed::default()
    };
    let mut looked = Looked { locks: Some(Vec::new()), copied_by: Some(None), ..Looked::default() };
    let names = Look::PersistentVolumes(CsiSource { driver: DRIVER.into(), volume_handle: "vol-1".into() });
    let first = by(VolumeOperation::Create, [false, false]);
    assert_eq!(asks(&first, &looked), names);
    let stands = by(VolumeOperation::Delete, [false, false]);
    assert_eq!(step(&stands, &looked), LeaderStep::Rest, "its call may be running");
    let mut moves = by(VolumeOperation::Delete, [true, false]);
    moves.handle = Some(closed("node-2"));
    assert_eq!(asks(&moves, &looked), Look::Caller(caller("node-1")));
    looked.callers.insert(caller("node-1"), CallerNow::MayCall);
    assert_eq!(step(&moves, &looked), LeaderStep::Rest, "it may be calling");
    looked.callers.insert(caller("node-1"), CallerNow::Relieved);
    assert_eq!(asks(&moves, &looked), names, "it is looked at again for the heir");
    looked.named_by = Some(None);
    assert_eq!(asks(&moves, &looked), Look::Handle { name: "handle".into() });
    looked.handles.insert("handle".into(), moves.handle.clone());
    assert!(matches!(step(&moves, &looked), LeaderStep::AssignVolume(_)));
    looked.named_by = Some(Some(Naming { name: "pv".into(), field: "spec.csi", certain: true }));
    assert!(matches!(step(&moves, &looked), LeaderStep::TellStorageLeft(_)));
    looked.named_by = Some(Some(Naming { name: "pv".into(), field: "spec.nfs", certain: false }));
    assert!(matches!(step(&moves, &looked), LeaderStep::AssignVolume(_)), "the driver made it itself");
}

/// Of a Plugin that is gone the instance is left, and says whose it is; any other driver's name is not believed.
#[test]
fn what_nobody_can_use_is_judged_without_the_plugin() {
    let mut volume = leaving(VolumeOperation::Create, "node-1", VolumeState::Pending);
    let rejected = Rejected { volume_handle: "x".into(), reason: String::new(), may_delete: false };
    volume.status.as_mut().unwrap().rejected = Some(rejected.into());
    let by = |driver, driver_of_caller| Observed {
        volume: Some(volume.clone()),
        plugin: None,
        driver,
        driver_of_caller,
        instances: vec![instance("node-1", false)],
        ..Observed::default()
    };
    let names = Look::PersistentVolumes(CsiSource { driver: DRIVER.into(), volume_handle: "x".into() });
    let mut looked = Looked::default();
    assert_eq!(asks(&by("", Some(DRIVER)), &looked), names);
    assert_eq!(asks(&by("d2", Some(DRIVER)), &looked), names, "it was made anew");
    let waits = by("d2", None).plan(&looked).volume_waits;
    assert!(matches!(waits, Some(VolumeWaiting::DriverNotThere { .. })), "{waits:?}");
    looked.named_by = Some(None);
    assert_eq!(step(&by(DRIVER, None), &looked), LeaderStep::AllowDeletion(true));
    let restored = Observed { cautious: true, ..by(DRIVER, None) };
    assert_eq!(step(&restored, &looked), LeaderStep::Rest, "it may have been of use since");
    let mount = Mount::Reported("gone".into());
    let forgotten = vec![ForgottenSeen { node: "node-1".into(), instance: "i".into(), mount }];
    let mounted = Observed { forgotten, ..by(DRIVER, None) };
    let waits = mounted.plan(&looked).volume_waits;
    assert!(matches!(waits, Some(VolumeWaiting::InUse { .. })), "{waits:?}");
    let off = Observed { ended_reports: true, ..by(DRIVER, None) };
    assert_eq!(asks(&off, &looked), Look::EndedReports, "caches say that its node is off");
    looked.reports_have_ended = Some(false);
    assert_eq!(step(&off, &looked), LeaderStep::Rest);
}

/// Nobody else could detach, so an instance that is dead is succeeded before anything waits for its Attachments.
#[test]
fn a_volume_moves_its_calls_before_it_waits() {
    let mut volume = leaving(VolumeOperation::Create, "node-1", VolumeState::Ready);
    volume.metadata.deletion_timestamp = None;
    let observed = Observed {
        volume: Some(volume),
        instances: vec![instance("node-1", true), instance("node-2", false)],
        handle: Some(lock(false, "node-1")),
        locks: vec![attachment()],
        ..Observed::default()
    };
    let mut looked = Looked::default();
    assert_eq!(asks(&observed, &looked), Look::Caller(caller("node-1")));
    looked.callers.insert(caller("node-1"), CallerNow::CutOff);
    assert_eq!(step(&observed, &looked), LeaderStep::MoveHandle(caller("node-2")));
}

/// Somebody edited the status, and DeleteVolume goes by it.
#[test]
fn a_status_that_names_another_volume_is_put_right_first() {
    let mut volume = leaving(VolumeOperation::Create, "node-1", VolumeState::Ready);
    volume.status.as_mut().unwrap().volume_handle = Some("another".into());
    let observed =
        Observed { volume: Some(volume), handle: Some(lock(true, "node-1")), ..Observed::default() };
    let looked = Looked { locks: Some(Vec::new()), ..Looked::default() };
    assert_eq!(step(&observed, &looked), LeaderStep::RestoreStatus { state_too: false });
}

/// Rule R12: without the Plugin no instance is believed, so nobody takes over, and that is what the Volume says.
#[test]
fn an_undo_whose_caller_is_lost_waits_for_the_plugin_and_says_so() {
    let lost = InstanceSeen { silent: true, ..instance("node-1", true) };
    let mut observed = Observed {
        plugin: None,
        volume: Some(leaving(VolumeOperation::Create, "node-1", VolumeState::Ready)),
        instances: vec![lost.clone()],
        handle: Some(lock(false, "node-1")),
        locks: vec![AttachmentSeen { controller: Some(caller("node-1")), ..attachment() }],
        ..Observed::default()
    };
    let mut looked = Looked::default();
    let waits = |observed: &Observed| {
        let plan = observed.plan(&Looked::default());
        assert_eq!(plan.step, LeaderStep::Rest);
        plan.volume_waits.map(|why| why.message()).unwrap_or_default()
    };
    let attached = waits(&observed);
    assert!(attached.contains("node-1") && attached.contains("does not exist"), "{attached}");
    let mut deleting = observed.clone();
    deleting.volume = Some(leaving(VolumeOperation::Delete, "node-1", VolumeState::Ready));
    (deleting.handle, deleting.locks) = (Some(closed("node-1")), Vec::new());
    let deleting = waits(&deleting);
    assert!(deleting.contains("node-1") && deleting.contains("does not exist"), "{deleting}");
    // The Plugin is there again, and with it what its instances say.
    observed.plugin = Observed::default().plugin;
    observed.instances = vec![lost, instance("node-2", false)];
    assert_eq!(asks(&observed, &looked), Look::Caller(caller("node-1")));
    looked.callers.insert(caller("node-1"), CallerNow::CutOff);
    assert_eq!(step(&observed, &looked), LeaderStep::MoveHandle(caller("node-2")));
}
