//! The objects that the decisions look at.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use moor::api::caller::ControllerRef;
use moor::api::names::{DriverOn, instance_name};
use moor::api::snapshot::{
    MemberStatus, SnapshotAssignment, SnapshotMember, SnapshotOperation, SnapshotVolume,
};
use moor::api::volume::{AssignedSource, VolumeAssignment, VolumeOperation, VolumeSource};
use moor::api::{FINALIZER, Snapshot, SnapshotState, Volume, VolumeHandle};

use super::state::{Config, Copied, Kept, Objects, Order, Origin};
use crate::fixtures::DRIVER;

pub const NODE: &str = "node-1";
const ID: &str = "vol-1";
/// What the Volume is made of: of a group its member.
const SNAPSHOT_ID: &str = "snap-1";
const GROUP_ID: &str = "group-1";

pub fn controller() -> ControllerRef {
    let instance = instance_name(DriverOn { driver: DRIVER, node: NODE });
    ControllerRef::new(instance, NODE, 0)
}

fn meta(name: &str, held: bool, deleted: bool) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.into()),
        namespace: Some("default".into()),
        uid: Some(format!("{name}-uid")),
        finalizers: held.then(|| vec![FINALIZER.into()]),
        deletion_timestamp: deleted.then_some(Time(jiff::Timestamp::UNIX_EPOCH)),
        ..ObjectMeta::default()
    }
}

pub fn origin(config: &Config, origin: &Origin) -> Volume {
    let mut volume = Volume { metadata: meta("origin", true, origin.deleted), ..Volume::default() };
    let operation = if origin.ordered { VolumeOperation::Delete } else { VolumeOperation::Create };
    volume.spec.plugin_name = "plugin".into();
    volume.spec.capacity = Some(Quantity("1Mi".into()));
    volume.spec.deletion_policy = Some(config.volume);
    volume.spec.assignment =
        Some(VolumeAssignment { operation, controller: Some(controller()), ..VolumeAssignment::default() });
    let status = volume.status.get_or_insert_default();
    (status.state, status.volume_handle) = (origin.state, Some(ID.into()));
    volume
}

pub fn lock(config: &Config, closing: bool) -> VolumeHandle {
    let mut lock = VolumeHandle::default();
    lock.metadata.name = Some("handle".into());
    (lock.spec.driver_name, lock.spec.volume_handle) = (DRIVER.into(), ID.into());
    lock.spec.volume.uid = "origin-uid".into();
    (lock.spec.closing, lock.spec.controller) = (closing, Some(controller()));
    // Only when the Volume is deleted, which has one policy here.
    lock.spec.closed_for = closing.then_some(config.volume);
    lock
}

pub fn kept(config: &Config, kept: &Kept) -> Snapshot {
    let mut snapshot = Snapshot { metadata: meta("kept", kept.held, kept.deleted), ..Snapshot::default() };
    if config.group {
        snapshot.spec.volume_names = vec!["origin".into()];
    } else {
        snapshot.spec.volume_name = Some("origin".into());
    }
    snapshot.spec.deletion_policy = Some(config.snapshot);
    let id = if config.group { GROUP_ID } else { SNAPSHOT_ID };
    let operation = match kept.order {
        Order::None => None,
        Order::Make => Some(SnapshotOperation::Create),
        Order::Delete => Some(SnapshotOperation::Delete),
    };
    snapshot.spec.assignment = operation.map(|operation| SnapshotAssignment {
        operation,
        controller: controller(),
        plugin_name: "plugin".into(),
        driver_name: DRIVER.into(),
        volume: (!config.group).then(of_origin),
        is_group: config.group,
        volumes: config.group.then(of_origin).into_iter().collect(),
        members: (config.group && kept.confirmed).then(member).into_iter().collect(),
        snapshot_handle: kept.confirmed.then(|| id.into()),
        secret_name: None,
        plugin_secret_name: None,
        accessible_topology: Vec::new(),
    });
    let status = snapshot.status.get_or_insert_default();
    (status.state, status.may_exist, status.source_gone) = (kept.state, kept.may_exist, kept.source_gone);
    let is_there = kept.state != SnapshotState::Pending;
    status.snapshot_handle = is_there.then(|| id.into());
    let said = MemberStatus {
        volume_handle: Some(ID.into()),
        snapshot_handle: SNAPSHOT_ID.into(),
        ..MemberStatus::default()
    };
    status.members = (config.group && is_there).then_some(said).into_iter().collect();
    snapshot
}

fn of_origin() -> SnapshotVolume {
    SnapshotVolume {
        name: Some("origin".into()),
        uid: "origin-uid".into(),
        volume_handle: ID.into(),
        handle_name: "handle".into(),
    }
}

fn member() -> SnapshotMember {
    SnapshotMember { volume_handle: Some(ID.into()), snapshot_handle: SNAPSHOT_ID.into() }
}

pub fn copied(config: &Config, copied: &Copied) -> Volume {
    let mut volume = Volume { metadata: meta("copied", copied.held, copied.deleted), ..Volume::default() };
    volume.spec.plugin_name = "plugin".into();
    volume.spec.capacity = Some(Quantity("1Mi".into()));
    volume.spec.source = Some(Box::new(VolumeSource {
        snapshot_name: Some("kept".into()),
        volume_name: config.group.then(|| "origin".into()),
    }));
    volume.spec.assignment = (copied.order != Order::None).then(|| VolumeAssignment {
        controller: Some(controller()),
        source: Some(Box::new(AssignedSource {
            uid: "kept-uid".into(),
            volume_handle: None,
            snapshot_handle: Some(SNAPSHOT_ID.into()),
        })),
        ..VolumeAssignment::default()
    });
    let status = volume.status.get_or_insert_default();
    (status.state, status.may_exist, status.source_gone) =
        (copied.state, Some(copied.may_exist), copied.source_gone);
    volume
}

/// Whether something is being made of the first Volume, as these objects say.
pub fn copied_by(config: &Config, seen: &Objects) -> Option<String> {
    let snapshot = seen.kept.map(|it| kept(config, &it))?;
    moor::snapshot::is_taken_of(&snapshot, "origin-uid").then(|| "Snapshot kept".into())
}

/// Whether a Volume is being made of the Snapshot, as these objects say.
pub fn made_from(config: &Config, seen: &Objects) -> Option<String> {
    let volume = seen.copied.map(|it| copied(config, &it))?;
    moor::snapshot::is_being_made(&volume).then(|| "Volume copied".into())
}
