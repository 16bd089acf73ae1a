use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::api::caller::ControllerRef;
use crate::api::plugin::Balancing;
use crate::api::snapshot::MemberStatus;
use crate::api::volume::Segments;
use crate::api::{FINALIZER, Volume, VolumeHandle, VolumeState};
use crate::fixtures;
use crate::snapshot::Holder;
use crate::volume::{CallerNow, InstanceSeen, PluginSeen};

fn at(node: &str) -> ControllerRef {
    ControllerRef::new(format!("driver-{node}"), node, 0)
}

/// A Ready Volume, and its lock.
fn held(name: &str) -> (String, Option<Volume>, Option<VolumeHandle>) {
    let mut volume = Volume::default();
    volume.metadata.uid = Some(format!("uid-{name}"));
    volume.spec.plugin_name = "plugin".into();
    volume.spec.assignment.get_or_insert_default().controller = Some(at("node-1"));
    volume.status.get_or_insert_default().state = VolumeState::Ready;
    let mut lock = VolumeHandle::default();
    lock.metadata.name = Some(format!("h-{name}"));
    lock.spec.volume.uid = format!("uid-{name}");
    lock.spec.volume_handle = format!("vol-{name}");
    (name.to_owned(), Some(volume), Some(lock))
}

/// A group of the Volumes data and log.
struct Case {
    snapshot: Snapshot,
    volumes: Vec<(String, Option<Volume>, Option<VolumeHandle>)>,
    instances: Vec<InstanceSeen>,
    takes: Option<bool>,
    balancing: Balancing,
    looked: Looked,
}

impl Case {
    fn new() -> Self {
        let mut snapshot = Snapshot::default();
        snapshot.metadata.uid = Some("group".into());
        snapshot.spec.volume_names = vec!["data".into(), "log".into()];
        let instance = |node| InstanceSeen { healthy: true, serving: true, ..fixtures::instance(&at(node)) };
        Self {
            snapshot,
            volumes: vec![held("data"), held("log")],
            instances: vec![instance("node-1"), instance("node-2")],
            takes: Some(true),
            balancing: Balancing::Spread,
            looked: Looked::default(),
        }
    }

    /// One whose agent has answered.
    fn said(state: SnapshotState, members: &[(&str, &str)]) -> Self {
        let mut case = Self::new();
        case.snapshot.spec.assignment = Some(case.assigned());
        case.snapshot.metadata.finalizers = Some(vec![FINALIZER.into()]);
        let status = case.snapshot.status.get_or_insert_default();
        (status.state, status.snapshot_handle) = (state, Some("group-1".into()));
        let member = |(of, id): &(&str, &str)| MemberStatus {
            volume_handle: Some((*of).into()),
            snapshot_handle: (*id).into(),
            ..MemberStatus::default()
        };
        status.members = members.iter().map(member).collect();
        case
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
                secrets: None,
            },
            driver: "driver",
            takes: self.takes,
            finds: true,
            not_allowed: None,
            volumes: self.volumes.iter().map(seen).collect(),
            made_from: None,
        };
        plan(&seen, &self.looked)
    }

    fn assigned(&self) -> SnapshotAssignment {
        let SnapshotStep::Assign(assignment) = self.plan() else { panic!("{:?}", self.plan()) };
        *assignment
    }

    fn waits(&self) -> SnapshotWaiting {
        let SnapshotStep::Wait(why) = self.plan() else { panic!("{:?}", self.plan()) };
        why
    }

    fn second(&mut self) -> (&mut Volume, &mut VolumeHandle) {
        let (_, volume, lock) = &mut self.volumes[1];
        (volume.as_mut().unwrap(), lock.as_mut().unwrap())
    }
}

fn seen((name, volume, lock): &(String, Option<Volume>, Option<VolumeHandle>)) -> VolumeSeen<'_> {
    VolumeSeen { name, volume: volume.as_ref(), lock: lock.as_ref() }
}

fn holder(name: &str) -> Holder {
    let words = format!("Snapshot {name}");
    Holder { words, ends: false, ordered: false, has_it: false, registered: false }
}

#[test]
fn a_group_is_one_call_of_one_instance_whoever_makes_those_of_its_volumes() {
    let mut case = Case::new();
    case.second().1.spec.controller = Some(at("node-2"));
    let assignment = case.assigned();
    assert_eq!(assignment.operation, SnapshotOperation::Create);
    assert!(case.instances.iter().any(|instance| instance.name == assignment.controller.instance));
    case.instances.clear();
    assert_eq!(case.waits(), SnapshotWaiting::NoInstance("plugin".into()));
    let handles: Vec<_> = assignment.volumes.iter().map(|of| of.volume_handle.as_str()).collect();
    assert_eq!(handles, ["vol-data", "vol-log"], "in the order of their names");
    assert!(assignment.is_group && assignment.volume.is_none() && assignment.members.is_empty());
}

#[test]
fn a_group_of_what_does_not_go_together_says_what() {
    let told = |change: fn(&mut Case)| {
        let mut case = Case::new();
        change(&mut case);
        case.waits()
    };
    let far = |case: &mut Case| {
        let there = Segments { segments: [("zone".to_owned(), "b".to_owned())].into() };
        case.second().0.status.as_mut().unwrap().accessible_topology = vec![there];
        case.balancing = Balancing::PerTopology;
    };
    assert_eq!(told(far), SnapshotWaiting::PlacesDiffer("data".into(), "log".into()));
    let other = told(|case| case.second().0.spec.plugin_name = "other".into());
    assert_eq!(other, SnapshotWaiting::PluginsDiffer { volume: "log".into(), plugin: "plugin".into() });
    let own_secret = |case: &mut Case| {
        case.second().0.spec.secrets.get_or_insert_default().default = Some("own".into());
    };
    assert_eq!(told(own_secret), SnapshotWaiting::SecretsDiffer("data".into(), "log".into()));
    let mut named = Case::new();
    own_secret(&mut named);
    named.snapshot.spec.secret_name = Some("of-the-group".into());
    assert_eq!(named.assigned().secret_name, None, "its own counts");
    let missing = told(|case| case.volumes[1].1 = None);
    assert_eq!(missing, SnapshotWaiting::NoVolume { volume: "log".into(), field: "spec.volumeNames" });
    assert_eq!(told(|case| case.volumes[1].2 = None), SnapshotWaiting::VolumeNotReady("log".into()));
    let cannot = told(|case| case.takes = Some(false));
    assert_eq!(cannot, SnapshotWaiting::CannotSnapshotGroup("plugin".into()));
}

/// Rule R13, for each member: what is made of one is made of nobody else's.
#[test]
fn a_group_counts_when_nobody_else_has_it_or_one_of_its_members() {
    for state in [SnapshotState::Created, SnapshotState::Ready] {
        let mut case = Case::said(state, &[("vol-log", "snap-l"), ("vol-data", "snap-d")]);
        let ids = ["group-1", "snap-d", "snap-l"].map(str::to_owned).to_vec();
        assert_eq!(case.plan(), SnapshotStep::Look(Look::Holders(ids)));
        case.looked.holders = Some(vec![holder("victim")]);
        assert_eq!(case.waits(), SnapshotWaiting::Shared("Snapshot victim".into()));
        case.looked.holders = Some(Vec::new());
        let assignment = case.assigned();
        assert_eq!(assignment.snapshot_handle.as_deref(), Some("group-1"));
        let members: Vec<_> =
            assignment.members.iter().map(|member| member.snapshot_handle.as_str()).collect();
        assert_eq!(members, ["snap-d", "snap-l"], "in the order of the volumes");
    }
}

#[test]
fn a_group_without_one_member_of_each_volume_is_nobodys_answer() {
    for members in [
        &[("vol-data", "snap-d")][..],
        &[("vol-data", "snap-d"), ("vol-data", "snap-l")],
        &[("vol-data", "snap-d"), ("vol-log", "snap-l"), ("vol-log", "snap-m")],
        &[],
    ] {
        assert_eq!(
            Case::said(SnapshotState::Ready, members).waits(),
            SnapshotWaiting::NotWhole,
            "{members:?}"
        );
    }
}

#[test]
fn a_group_is_deleted_with_the_members_that_nobody_else_stands_for() {
    let members = [("vol-data", "snap-d"), ("vol-log", "snap-l")];
    let mut case = Case::said(SnapshotState::Ready, &members);
    case.looked.holders = Some(Vec::new());
    case.snapshot.spec.assignment = Some(case.assigned());
    case.snapshot.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    // What agents say since counts for nothing.
    case.snapshot.status.as_mut().unwrap().members[0].snapshot_handle = "victim".into();
    case.looked = Looked::default();
    assert_eq!(case.plan(), SnapshotStep::Look(Look::MadeFrom));
    case.looked.made_from = Some(None);
    let ids = ["group-1", "snap-d", "snap-l"].map(str::to_owned).to_vec();
    assert_eq!(case.plan(), SnapshotStep::Look(Look::Holders(ids)));
    case.looked.holders = Some(vec![holder("of-a-member")]);
    assert_eq!(case.waits(), SnapshotWaiting::Shared("Snapshot of-a-member".into()));
    case.looked.holders = Some(Vec::new());
    let ordered = case.assigned();
    assert_eq!(ordered.operation, SnapshotOperation::Delete);
    assert_eq!(ordered.members.len(), 2);
}

#[test]
fn a_group_that_exists_is_registered_with_its_members() {
    let mut case = Case::new();
    case.volumes.clear();
    case.snapshot.spec.volume_names.clear();
    case.snapshot.spec.snapshot_handle = Some("group-9".into());
    case.snapshot.spec.member_handles = vec!["a".into(), "b".into()];
    assert_eq!(
        case.plan(),
        SnapshotStep::Look(Look::Holders(["group-9", "a", "b"].map(str::to_owned).to_vec()))
    );
    case.looked.holders = Some(Vec::new());
    let assignment = case.assigned();
    assert_eq!((assignment.operation, assignment.is_group), (SnapshotOperation::List, true));
    assert_eq!(assignment.members.len(), 2);
    case.takes = Some(false);
    assert_eq!(case.waits(), SnapshotWaiting::CannotSnapshotGroup("plugin".into()));
}

/// Rule R2: it moves only from who can be making no call.
#[test]
fn the_call_of_a_group_moves_by_itself() {
    let mut case = Case::new();
    let assignment = case.assigned();
    let now = assignment.controller.clone();
    case.snapshot.spec.assignment = Some(assignment);
    for (_, _, lock) in &mut case.volumes {
        lock.as_mut().unwrap().spec.controller = Some(at("node-9"));
    }
    assert_eq!(case.plan(), SnapshotStep::Idle, "its volumes' calls have moved");
    for instance in case.instances.iter_mut().filter(|instance| instance.name == now.instance) {
        (instance.healthy, instance.serving, instance.silent, instance.dead) = (false, false, true, true);
    }
    assert_eq!(case.plan(), SnapshotStep::Look(Look::Caller(now.clone())));
    case.looked.callers.push((now.clone(), CallerNow::CutOff));
    assert_ne!(case.assigned().controller, now);
}
