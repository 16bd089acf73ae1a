//! What a Volume is made from, and what is made of one.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use moor::api::names::{DriverOn, instance_name};
use moor::api::snapshot::{MemberStatus, SnapshotAssignment, SnapshotMember, SnapshotVolume};
use moor::api::volume::{AssignedSource, VolumeSource};
use moor::api::{Snapshot, SnapshotState};
use moor::snapshot::is_being_made;
use moor::volume::calls::{self, AgentStep};
use moor::volume::{SourceLack, SourceSeen};

use super::*;
use crate::fixtures::DRIVER;

/// What `spec.source` names, owned.
pub enum Source {
    Nothing,
    Volume(Option<Box<Volume>>, Option<bool>),
    Snapshot(Option<Box<Snapshot>>),
    Member(Box<Snapshot>, Option<&'static str>),
}

impl Source {
    pub fn seen(&self) -> SourceSeen<'_> {
        match self {
            Self::Nothing => SourceSeen::Nothing,
            Self::Volume(volume, clones) => SourceSeen::Volume {
                name: "first",
                volume: volume.as_deref(),
                clones: *clones,
                driver: DRIVER,
            },
            Self::Snapshot(snapshot) => SourceSeen::Snapshot {
                name: "kept",
                snapshot: snapshot.as_deref(),
                member: None,
                driver: DRIVER,
            },
            Self::Member(snapshot, member) => SourceSeen::Snapshot {
                name: "kept",
                snapshot: Some(snapshot),
                member: *member,
                driver: DRIVER,
            },
        }
    }
}

fn from(source: Source) -> Row {
    let mut row = row(Pending, None);
    row.volume.spec.capacity = Some(Quantity("2Gi".into()));
    let (volume_name, snapshot_name) = match &source {
        Source::Nothing => (None, None),
        Source::Volume(..) => (Some("first".into()), None),
        Source::Snapshot(_) => (None, Some("kept".into())),
        Source::Member(_, member) => (member.map(str::to_owned), Some("kept".into())),
    };
    row.volume.spec.source = Some(Box::new(VolumeSource { volume_name, snapshot_name }));
    row.source = source;
    row
}

fn first() -> Box<Volume> {
    let mut volume = Volume::default();
    let instance = instance_name(DriverOn { driver: DRIVER, node: "node-1" });
    let controller = Some(ControllerRef::new(instance, "node-1", 0));
    volume.spec.assignment = Some(VolumeAssignment { controller, ..VolumeAssignment::default() });
    volume.metadata.uid = Some("first-uid".into());
    volume.spec.plugin_name = "loop".into();
    let status = volume.status.get_or_insert_default();
    (status.state, status.volume_handle, status.capacity_bytes) =
        (Ready, Some("vol-1".into()), Some(1 << 30));
    Box::new(volume)
}

fn kept() -> Box<Snapshot> {
    let mut snapshot = Snapshot::default();
    snapshot.metadata.uid = Some("kept-uid".into());
    snapshot.spec.assignment = Some(SnapshotAssignment {
        plugin_name: "loop".into(),
        driver_name: DRIVER.into(),
        snapshot_handle: Some("snap-1".into()),
        ..SnapshotAssignment::default()
    });
    let status = snapshot.status.get_or_insert_default();
    (status.state, status.snapshot_handle) = (SnapshotState::Ready, Some("snap-1".into()));
    status.restore_size_bytes = Some(1 << 30);
    Box::new(snapshot)
}

fn waits(row: &Row) -> SourceLack {
    match row.plan() {
        VolumeStep::Wait(VolumeWaiting::Source(lack)) => lack,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_copy_names_what_its_source_was_when_it_was_assigned() {
    let VolumeStep::Assign(to) = from(Source::Volume(Some(first()), Some(true))).plan() else { panic!() };
    let source = to.source.unwrap();
    assert_eq!((source.uid.as_str(), source.volume_handle.as_deref()), ("first-uid", Some("vol-1")));
    assert_eq!(to.operation, Create);
    let VolumeStep::Assign(to) = from(Source::Snapshot(Some(kept()))).plan() else { panic!() };
    assert_eq!(to.source.unwrap().snapshot_handle.as_deref(), Some("snap-1"));
}

#[test]
fn a_source_that_cannot_be_used_says_why() {
    let of_volume = |change: fn(&mut Volume)| {
        let mut volume = first();
        change(&mut volume);
        waits(&from(Source::Volume(Some(volume), Some(true))))
    };
    assert_eq!(waits(&from(Source::Volume(None, None))), SourceLack::Missing("Volume first".into()));
    let cannot = SourceLack::CannotCopy("loop".into());
    assert_eq!(waits(&from(Source::Volume(Some(first()), Some(false)))), cannot);
    let not_ready = SourceLack::NotReady("Volume first".into());
    assert_eq!(
        waits(&from(Source::Volume(Some(first()), None))),
        not_ready,
        "nobody has said whether it copies"
    );
    assert_eq!(of_volume(|v| v.status.as_mut().unwrap().state = Created), not_ready);
    let ends = |v: &mut Volume| v.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    assert_eq!(of_volume(ends), SourceLack::Ends("Volume first".into()));
    let other = SourceLack::OfOther { object: "Volume first".into(), plugin: "nfs".into() };
    assert_eq!(of_volume(|v| v.spec.plugin_name = "nfs".into()), other);
    let anew = SourceLack::OtherDriver("Volume first".into());
    let by_other = |v: &mut Volume| {
        v.spec.assignment = Some(VolumeAssignment { controller: Some(c1()), ..VolumeAssignment::default() });
    };
    assert_eq!(of_volume(by_other), anew, "no instance of the driver has this name");
    assert_eq!(of_volume(|v| v.spec.assignment = None), not_ready, "nobody makes its calls");
    let larger = SourceLack::Larger { object: "Volume first".into(), size: "4Gi".into() };
    assert_eq!(of_volume(|v| v.status.as_mut().unwrap().capacity_bytes = Some(4 << 30)), larger);

    let of_snapshot = |change: fn(&mut Snapshot)| {
        let mut snapshot = kept();
        change(&mut snapshot);
        waits(&from(Source::Snapshot(Some(snapshot))))
    };
    assert_eq!(waits(&from(Source::Snapshot(None))), SourceLack::Missing("Snapshot kept".into()));
    let not_ready = SourceLack::NotReady("Snapshot kept".into());
    assert_eq!(of_snapshot(|s| s.status.as_mut().unwrap().state = SnapshotState::Created), not_ready);
    let ends = |s: &mut Snapshot| s.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    assert_eq!(of_snapshot(ends), SourceLack::Ends("Snapshot kept".into()));
    let other = SourceLack::OfOther { object: "Snapshot kept".into(), plugin: "nfs".into() };
    assert_eq!(of_snapshot(|s| s.spec.assignment.as_mut().unwrap().plugin_name = "nfs".into()), other);
    let anew = SourceLack::OtherDriver("Snapshot kept".into());
    assert_eq!(of_snapshot(|s| s.spec.assignment.as_mut().unwrap().driver_name = "d2".into()), anew);
    let unconfirmed = |s: &mut Snapshot| s.spec.assignment.as_mut().unwrap().snapshot_handle = None;
    assert_eq!(of_snapshot(unconfirmed), not_ready, "it may be another's");
    let larger = SourceLack::Larger { object: "Snapshot kept".into(), size: "4Gi".into() };
    assert_eq!(of_snapshot(|s| s.status.as_mut().unwrap().restore_size_bytes = Some(4 << 30)), larger);
}

/// Of a group that of the Volume which is named, whatever the order in which agents say its members.
#[test]
fn a_volume_is_made_of_the_member_of_a_group() {
    let group = || {
        let mut group = kept();
        group.spec.volume_names = vec!["data".into(), "log".into()];
        let ids = [("vol-d", "snap-d"), ("vol-l", "snap-l")];
        let member = |(of, id): (&str, &str)| SnapshotMember {
            volume_handle: Some(of.into()),
            snapshot_handle: id.into(),
        };
        let assignment = group.spec.assignment.as_mut().unwrap();
        assignment.members = ids.into_iter().map(member).collect();
        let volume = |(name, of): (&str, &str)| SnapshotVolume {
            name: Some(name.into()),
            volume_handle: of.into(),
            ..SnapshotVolume::default()
        };
        // The names may be put into another order since.
        assignment.volumes = vec![volume(("log", "vol-l")), volume(("data", "vol-d"))];
        let said = |(of, id): (&str, &str), bytes| MemberStatus {
            volume_handle: Some(of.into()),
            snapshot_handle: id.into(),
            restore_size_bytes: Some(bytes),
            ready_to_use: true,
        };
        group.status.as_mut().unwrap().members = vec![said(ids[1], 4 << 30), said(ids[0], 1 << 30)];
        group
    };
    let VolumeStep::Assign(to) = from(Source::Member(group(), Some("data"))).plan() else { panic!() };
    assert_eq!(to.source.unwrap().snapshot_handle.as_deref(), Some("snap-d"));
    let told = |member| waits(&from(Source::Member(group(), member)));
    let larger = SourceLack::Larger { object: "Snapshot kept".into(), size: "4Gi".into() };
    assert_eq!(told(Some("log")), larger);
    let which = |told| assert!(matches!(told, SourceLack::WhichMember { .. }), "{told}");
    which(told(None));
    which(told(Some("other")));
    assert_eq!(
        waits(&from(Source::Member(kept(), Some("data")))),
        SourceLack::NotGroup("Snapshot kept".into())
    );
    let mut registered = group();
    registered.spec.volume_names.clear();
    registered.spec.member_handles = vec!["snap-d".into()];
    let lack = waits(&from(Source::Member(registered, Some("data"))));
    assert_eq!(lack, SourceLack::RegisteredGroup("Snapshot kept".into()));
    let mut unconfirmed = group();
    unconfirmed.spec.assignment.as_mut().unwrap().members.clear();
    let lack = waits(&from(Source::Member(unconfirmed, Some("data"))));
    assert_eq!(lack, SourceLack::NotReady("Snapshot kept".into()));
}

/// CreateVolume is repeated with the same source, whoever makes the call.
#[test]
fn the_source_stays_with_the_assignment() {
    let mut row = from(Source::Snapshot(Some(kept())));
    let VolumeStep::Assign(to) = row.plan() else { panic!() };
    row.volume.spec.assignment = Some(to.clone());
    let moved = row.volume.assignment(Create, Some(c2()));
    assert_eq!((moved.source, moved.controller), (to.source, Some(c2())));
}

/// Neither its agent nor its leader makes anything of it, and nobody waits for it.
#[test]
fn nothing_comes_of_a_volume_whose_source_went_before_it_was_begun() {
    let mut unmade = row(Pending, Some(Create));
    let source = AssignedSource { uid: "kept-uid".into(), ..AssignedSource::default() };
    unmade.volume.spec.assignment.as_mut().unwrap().source = Some(source.into());
    assert!(is_being_made(&unmade.volume));
    unmade.volume.status.as_mut().unwrap().source_gone = true;
    assert!(!is_being_made(&unmade.volume));
    assert_eq!(waits(&unmade), SourceLack::Gone);
    // Made before its status was lost.
    let mut made = row(Pending, Some(Create)).handle("v-uid", false);
    made.volume.status.as_mut().unwrap().source_gone = true;
    assert_eq!(made.plan(), VolumeStep::RestoreStatus);
    let agent = &c1().agent;
    assert_eq!(calls::plan(&unmade.volume, agent), AgentStep::Idle);
    assert_eq!(calls::plan(&unmade.deleted().volume, agent), AgentStep::NeverBegun);
}

#[test]
fn a_volume_waits_for_what_is_made_of_it() {
    let mut row = row(Ready, Some(Create)).handle("v-uid", false).deleted();
    row.copied_by = Some("Snapshot s".into());
    assert_eq!(row.plan(), VolumeStep::Wait(VolumeWaiting::Copied { by: "Snapshot s".into() }));
    row.copied_by = None;
    assert_eq!(row.plan(), closes(DeletionPolicy::Delete));
}
