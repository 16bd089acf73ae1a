use std::collections::BTreeMap;

use super::*;
use crate::api::FINALIZER;
use crate::api::caller::ControllerRef;
use crate::api::conditions::{CallFailure, Reason};
use crate::api::plugin::Balancing;
use crate::api::secrets::SecretTemplates;
use crate::api::volume::{DeletionPolicy, Segments};
use crate::api::{Volume, VolumeHandle, VolumeState};
use crate::fixtures;
use crate::snapshot::Holder;
use crate::volume::InstanceSeen;
use crate::volume::{CallerNow, PluginSeen};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

#[path = "registered_tests.rs"]
mod registered;
#[path = "secrets_tests.rs"]
mod secrets;

fn at(node: &str) -> ControllerRef {
    ControllerRef::new(format!("driver-{node}"), node, 0)
}

fn delete(meta: &mut ObjectMeta) {
    meta.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
}

/// A Snapshot of a Ready Volume, with all that is known of both.
struct Case {
    snapshot: Snapshot,
    volume: Option<Volume>,
    lock: Option<VolumeHandle>,
    instances: Vec<InstanceSeen>,
    takes: Option<bool>,
    balancing: Balancing,
    made_from: Option<String>,
    secrets: Option<SecretTemplates>,
    looked: Looked,
}

impl Case {
    fn new() -> Self {
        let mut volume = Volume::default();
        volume.metadata.uid = Some("vol".into());
        volume.spec.plugin_name = "plugin".into();
        volume.spec.assignment.get_or_insert_default().controller = Some(at("node-1"));
        volume.status.get_or_insert_default().state = VolumeState::Ready;
        let mut lock = VolumeHandle::default();
        lock.metadata.name = Some("h".into());
        lock.spec.volume.uid = "vol".into();
        lock.spec.volume_handle = "vol-1".into();
        let mut snapshot = Snapshot::default();
        snapshot.metadata.uid = Some("snap".into());
        snapshot.spec.volume_name = Some("data".into());
        Self {
            snapshot,
            volume: Some(volume),
            lock: Some(lock),
            instances: vec![healthy("node-1"), healthy("node-2")],
            takes: Some(true),
            balancing: Balancing::Spread,
            made_from: None,
            secrets: None,
            looked: Looked::default(),
        }
    }

    fn assigned(operation: SnapshotOperation, state: SnapshotState) -> Self {
        let mut case = Self::new();
        let SnapshotStep::Assign(assignment) = case.plan() else { panic!("it is taken") };
        let is_there = state > SnapshotState::Pending;
        let snapshot_handle = is_there.then(|| "snap-1".to_owned());
        let status = case.snapshot.status.get_or_insert_default();
        (status.state, status.snapshot_handle) = (state, snapshot_handle.clone());
        case.snapshot.spec.assignment =
            Some(SnapshotAssignment { operation, snapshot_handle, ..*assignment });
        case.snapshot.metadata.finalizers = Some(vec![FINALIZER.into()]);
        case
    }

    fn assignment(&mut self) -> &mut SnapshotAssignment {
        self.snapshot.spec.assignment.as_mut().unwrap()
    }

    fn deleted(mut self) -> Self {
        delete(&mut self.snapshot.metadata);
        self
    }

    fn dead(mut self, node: &str) -> Self {
        for instance in self.instances.iter_mut().filter(|instance| instance.agent == node) {
            (instance.healthy, instance.serving, instance.silent, instance.dead) = (false, false, true, true);
        }
        self
    }

    fn looked(mut self, node: &str, said: CallerNow) -> Self {
        self.looked.callers.push((at(node), said));
        self
    }

    fn plan(&self) -> SnapshotStep {
        let seen = Seen {
            snapshot: &self.snapshot,
            held: self.snapshot.metadata.finalizers.is_some(),
            plugin_name: "plugin",
            plugin: PluginSeen {
                balancing: Some(self.balancing),
                is_local: false,
                active: None,
                ends: false,
                older: None,
                controllers: &self.instances,
                controllers_said: None,
                any_healthy: true,
                can_create: true,
                attaches: true,
                grows: None,
                modifies: None,
                secrets: self.secrets.as_ref(),
            },
            driver: "driver",
            takes: self.takes,
            finds: true,
            not_allowed: None,
            volumes: self.snapshot.spec.volumes().map(|name| self.of(name)).collect(),
            made_from: self.made_from.clone(),
        };
        plan(&seen, &self.looked)
    }

    fn of<'a>(&'a self, name: &'a str) -> VolumeSeen<'a> {
        VolumeSeen { name, volume: self.volume.as_ref(), lock: self.lock.as_ref() }
    }

    /// Who is given which call.
    fn given(&self) -> (SnapshotOperation, String) {
        let SnapshotStep::Assign(assignment) = self.plan() else { panic!("{:?}", self.plan()) };
        (assignment.operation, assignment.controller.agent.clone())
    }

    fn waits(&self) -> SnapshotWaiting {
        let SnapshotStep::Wait(why) = self.plan() else { panic!("{:?}", self.plan()) };
        why
    }
}

fn healthy(node: &str) -> InstanceSeen {
    InstanceSeen { healthy: true, serving: true, ..fixtures::instance(&at(node)) }
}

#[test]
fn it_is_taken_by_who_makes_the_volumes_calls() {
    let mut case = Case::new();
    assert_eq!(case.given(), (SnapshotOperation::Create, "node-1".into()), "the Volume's caller");
    case.lock.as_mut().unwrap().spec.controller = Some(at("node-2"));
    assert_eq!(case.given(), (SnapshotOperation::Create, "node-2".into()), "the lock says so");
    let SnapshotStep::Assign(assignment) = case.plan() else { panic!() };
    assert_eq!(assignment.volume.unwrap().volume_handle, "vol-1");
}

#[test]
fn what_cannot_be_taken_says_why() {
    let told = |change: fn(&mut Case)| {
        let mut case = Case::new();
        change(&mut case);
        case.waits()
    };
    assert_eq!(
        told(|case| case.volume = None),
        SnapshotWaiting::NoVolume { volume: "data".into(), field: "spec.volumeName" }
    );
    assert_eq!(told(|case| case.lock = None), SnapshotWaiting::VolumeNotReady("data".into()));
    let pending = |case: &mut Case| {
        case.volume.as_mut().unwrap().status.as_mut().unwrap().state = VolumeState::Pending;
    };
    assert_eq!(told(pending), SnapshotWaiting::VolumeNotReady("data".into()));
    let ends = |case: &mut Case| delete(&mut case.volume.as_mut().unwrap().metadata);
    assert_eq!(told(ends), SnapshotWaiting::VolumeEnds("data".into()));
    assert_eq!(told(|case| case.takes = Some(false)), SnapshotWaiting::CannotSnapshot("plugin".into()));
    assert_eq!(told(|case| case.takes = None), SnapshotWaiting::NoInstance("plugin".into()));
    let uncalled = |case: &mut Case| case.volume.as_mut().unwrap().spec.assignment = None;
    assert_eq!(told(uncalled), SnapshotWaiting::NoCaller("data".into()));
}

fn holder(name: &str, ends: bool) -> Holder {
    Holder { words: format!("Snapshot {name}"), ends, ordered: false, has_it: false, registered: false }
}

/// Rule R13: a node that lies about what it has taken would have others' snapshots restored and deleted.
#[test]
fn what_an_agent_says_counts_when_nobody_else_has_it() {
    for state in [SnapshotState::Created, SnapshotState::Ready] {
        let mut case = Case::assigned(SnapshotOperation::Create, state);
        case.assignment().snapshot_handle = None;
        assert_eq!(case.snapshot.handle(), None);
        assert_eq!(case.plan(), SnapshotStep::Look(Look::Holders(vec!["snap-1".into()])));
        case.looked.holders = Some(vec![holder("victim", false)]);
        assert_eq!(case.waits(), SnapshotWaiting::Shared("Snapshot victim".into()));
        // Nor is it deleted under that one.
        delete(&mut case.snapshot.metadata);
        case.looked.made_from = Some(None);
        assert_eq!(case.waits(), SnapshotWaiting::Shared("Snapshot victim".into()));
        case.looked.holders = Some(Vec::new());
        let SnapshotStep::Assign(deletion) = case.plan() else { panic!() };
        assert_eq!(deletion.snapshot_handle.as_deref(), Some("snap-1"), "by the id that was looked for");
        case.snapshot.metadata.deletion_timestamp = None;
        let SnapshotStep::Assign(assignment) = case.plan() else { panic!() };
        assert_eq!(assignment.operation, SnapshotOperation::Create);
        assert_eq!(assignment.snapshot_handle.as_deref(), Some("snap-1"));
    }
}

#[test]
fn nothing_comes_of_one_whose_volume_went_before_it_was_begun() {
    let mut case = Case::assigned(SnapshotOperation::Create, SnapshotState::Pending).dead("node-1");
    assert!(crate::snapshot::is_taken_of(&case.snapshot, "vol"));
    case.snapshot.status.as_mut().unwrap().source_gone = true;
    assert_eq!(case.waits(), SnapshotWaiting::VolumeEnds("data".into()));
    assert!(!crate::snapshot::is_taken_of(&case.snapshot, "vol"), "nobody waits for it");
}

#[test]
fn a_call_moves_with_the_volumes_lock() {
    let mut case = Case::assigned(SnapshotOperation::Create, SnapshotState::Pending);
    assert_eq!(case.plan(), SnapshotStep::Idle);
    case.lock.as_mut().unwrap().spec.controller = Some(at("node-2"));
    assert_eq!(case.given(), (SnapshotOperation::Create, "node-2".into()), "node-1 makes no call without it");
}

/// Rule R2: of a volume whose lock names nobody it moves with the Volume's own calls, and never before them.
#[test]
fn without_a_lock_it_moves_with_the_volumes_own_calls() {
    let mut case = Case::assigned(SnapshotOperation::Create, SnapshotState::Pending).dead("node-1");
    let told = SnapshotWaiting::AgentNotHeard { node: "node-1".into(), plugin: "plugin".into() };
    assert_eq!(case.waits(), told);
    case.volume.as_mut().unwrap().spec.assignment.as_mut().unwrap().controller = Some(at("node-2"));
    assert_eq!(case.given(), (SnapshotOperation::Create, "node-2".into()));
}

/// Rule R2.
#[test]
fn a_question_moves_only_from_who_can_be_making_no_call() {
    let case = || Case::assigned(SnapshotOperation::List, SnapshotState::Pending).dead("node-1");
    assert_eq!(case().plan(), SnapshotStep::Look(Look::Caller(at("node-1"))));
    let told = SnapshotWaiting::AgentNotHeard { node: "node-1".into(), plugin: "plugin".into() };
    assert_eq!(case().looked("node-1", CallerNow::MayCall).waits(), told);
    assert_eq!(case().looked("node-1", CallerNow::CutOff).given().1, "node-2");
}

#[test]
fn a_deleted_one_goes_after_all_that_is_made_of_it_and_all_that_stands_for_it() {
    let mut case = Case::assigned(SnapshotOperation::Create, SnapshotState::Ready).deleted();
    case.made_from = Some("Volume copy".into());
    assert_eq!(case.waits(), SnapshotWaiting::InUse("Volume copy".into()));
    case.made_from = None;
    assert_eq!(case.plan(), SnapshotStep::Look(Look::MadeFrom));
    case.looked.made_from = Some(Some("Volume unseen".into()));
    assert_eq!(case.waits(), SnapshotWaiting::InUse("Volume unseen".into()));
    case.looked.made_from = Some(None);
    assert_eq!(case.plan(), SnapshotStep::Look(Look::Holders(vec!["snap-1".into()])));
    case.looked.holders = Some(vec![holder("other", false)]);
    assert_eq!(case.waits(), SnapshotWaiting::Shared("Snapshot other".into()));
    // Of two that end nobody waits for the other, until one is ordered.
    case.looked.holders = Some(vec![Holder { ordered: true, ..holder("other", true) }]);
    assert_eq!(case.waits(), SnapshotWaiting::Shared("Snapshot other".into()));
    case.looked.holders = Some(vec![holder("other", true)]);
    assert_eq!(case.given(), (SnapshotOperation::Delete, "node-1".into()));
}

/// The instance that took it may have left its node long ago, and its PluginInstance with it.
#[test]
fn a_ready_one_is_deleted_by_another_where_the_one_before_serves_no_more() {
    let mut case = Case::assigned(SnapshotOperation::Create, SnapshotState::Ready).deleted();
    (case.looked.made_from, case.looked.holders) = (Some(None), Some(Vec::new()));
    case.instances.retain(|instance| instance.agent != "node-1");
    assert_eq!(case.given(), (SnapshotOperation::Delete, "node-2".into()));
    // A node that has no such snapshot would say that it is gone.
    case.balancing = Balancing::PerTopology;
    assert_eq!(case.given(), (SnapshotOperation::Delete, "node-1".into()));
    case.balancing = Balancing::Spread;
    // One that is not ready may be asked about just then.
    case.snapshot.status.as_mut().unwrap().state = SnapshotState::Created;
    assert_eq!(case.given(), (SnapshotOperation::Delete, "node-1".into()));
}

/// Nothing that is known to be at the driver is forgotten with a status.
#[test]
fn a_lost_status_is_written_again() {
    let mut case = Case::assigned(SnapshotOperation::Create, SnapshotState::Ready);
    case.snapshot.status = None;
    assert_eq!(case.plan(), SnapshotStep::Restore(SnapshotState::Created));
    // Its volume was kept until it was ready.
    (case.volume, case.lock) = (None, None);
    assert_eq!(case.plan(), SnapshotStep::Restore(SnapshotState::Ready));
    for operation in [SnapshotOperation::Create, SnapshotOperation::List, SnapshotOperation::Delete] {
        let mut case = Case::assigned(operation, SnapshotState::Ready).deleted();
        (case.snapshot.status, case.lock) = (None, None);
        assert_eq!(case.plan(), SnapshotStep::Restore(SnapshotState::Ready), "{operation:?}");
    }
}

#[test]
fn one_that_is_retained_goes_without_a_call_and_still_waits_for_what_is_made_of_it() {
    let mut case = Case::assigned(SnapshotOperation::Create, SnapshotState::Ready).deleted();
    case.snapshot.spec.deletion_policy = Some(DeletionPolicy::Retain);
    assert_eq!(case.plan(), SnapshotStep::Look(Look::MadeFrom));
    case.looked.made_from = Some(None);
    assert_eq!(case.plan(), SnapshotStep::Free);
}

#[test]
fn an_open_call_is_its_agents_also_when_the_snapshot_is_deleted() {
    let case = Case::assigned(SnapshotOperation::Create, SnapshotState::Pending).deleted();
    assert_eq!(case.plan(), SnapshotStep::Idle);
    let ordered = Case::assigned(SnapshotOperation::Delete, SnapshotState::Ready).deleted();
    assert_eq!(ordered.plan(), SnapshotStep::Idle);
    let done = Case::assigned(SnapshotOperation::Delete, SnapshotState::Deleted).deleted();
    assert_eq!(done.plan(), SnapshotStep::Free);
    let only_looked_for = Case::assigned(SnapshotOperation::List, SnapshotState::Pending).deleted();
    assert_eq!(only_looked_for.plan(), SnapshotStep::Free);
}

#[test]
fn the_deletion_moves_to_an_heir_and_without_one_waits_or_is_given_up() {
    let all_dead = |case: Case| case.dead("node-1").dead("node-2");
    let case = || Case::assigned(SnapshotOperation::Delete, SnapshotState::Ready).deleted();
    let moved = case().dead("node-1").looked("node-1", CallerNow::CutOff);
    assert_eq!(moved.given(), (SnapshotOperation::Delete, "node-2".into()));
    let silent = SnapshotWaiting::AgentNotHeard { node: "node-1".into(), plugin: "plugin".into() };
    assert_eq!(all_dead(case()).waits(), silent);
    let mut left = all_dead(case());
    left.snapshot.spec.deletion_policy = Some(DeletionPolicy::Retain);
    assert_eq!(left.plan(), SnapshotStep::Look(Look::Caller(at("node-1"))));
    assert_eq!(left.looked("node-1", CallerNow::CutOff).plan(), SnapshotStep::Free);
    let mut unordered = all_dead(Case::assigned(SnapshotOperation::Create, SnapshotState::Ready).deleted());
    (unordered.looked.made_from, unordered.looked.holders) = (Some(None), Some(Vec::new()));
    unordered.snapshot.status.as_mut().unwrap().state = SnapshotState::Created;
    let unordered = unordered.looked("node-1", CallerNow::CutOff);
    assert_eq!(unordered.waits(), SnapshotWaiting::CannotDelete("plugin".into()));
}

#[test]
fn what_nobody_has_taken_up_just_goes() {
    let mut case = Case::new();
    delete(&mut case.snapshot.metadata);
    assert_eq!(case.plan(), SnapshotStep::Idle, "it has no finalizer of ours");
    case.snapshot.metadata.finalizers = Some(vec![FINALIZER.into()]);
    assert_eq!(case.plan(), SnapshotStep::Free);
}
