//! A PersistentVolumeClaim whose volume is to be made of a VolumeSnapshot: which Snapshot that stands for, and whether it may be.
//!
//! A VolumeSnapshot is a user's, in the user's namespace. What it says of a content counts only where the content, which only
//! administrators and the snapshot-controller write, says the same of it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::snapshot_content::SnapshotContent as _;
use super::volume_snapshots::{VolumeSnapshot, VolumeSnapshotContent};
use crate::api::volume::Segments;
use crate::api::{Snapshot, SnapshotState, quantity};

/// What the claim names, by live reads.
#[derive(Clone, Copy, Debug, Default)]
pub struct RestoreNow<'a> {
    /// Whether the cluster has VolumeSnapshots at all.
    pub is_defined: bool,
    /// The VolumeSnapshot.
    pub snapshot: Option<&'a VolumeSnapshot>,
    /// The content that it names.
    pub content: Option<&'a VolumeSnapshotContent>,
    /// The Snapshot that moor has made for the content.
    pub kept: Option<&'a Snapshot>,
}

/// Why no volume is made of a VolumeSnapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRestore {
    /// It is another namespace's.
    #[error(
        "spec.dataSourceRef.namespace: a volume is made of a VolumeSnapshot of its own namespace; name one of that, not of {0}"
    )]
    Elsewhere(String),
    /// The two do not name each other.
    #[error(
        "spec.dataSource: VolumeSnapshot {snapshot} names VolumeSnapshotContent {content}, and that is not for it; delete the \
         VolumeSnapshot and create one that the snapshot-controller binds"
    )]
    NotBound {
        /// The VolumeSnapshot.
        snapshot: String,
        /// The content.
        content: String,
    },
    /// It is another driver's.
    #[error(
        "spec.dataSource: VolumeSnapshot {snapshot} is of {of}, and only {driver} could make a volume of it here"
    )]
    OfAnother {
        /// The VolumeSnapshot.
        snapshot: String,
        /// Its driver.
        of: String,
        /// The driver that is to make the volume.
        driver: String,
    },
    /// One is a file system and the other one a device.
    #[error(
        "spec.volumeMode: VolumeSnapshot {0} is of a volume of the other mode, and its VolumeSnapshotContent has no annotation \
         snapshot.storage.kubernetes.io/allow-volume-mode-change: \"true\", which an administrator gives"
    )]
    OtherMode(String),
    /// It is to be smaller.
    #[error(
        "spec.resources.requests.storage: VolumeSnapshot {snapshot} needs {size}, and a volume that is made of it is not smaller"
    )]
    Smaller {
        /// The VolumeSnapshot.
        snapshot: String,
        /// What it needs.
        size: String,
    },
}

/// What such a claim waits for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreWaits {
    /// There are no VolumeSnapshots.
    #[error(
        "VolumeSnapshot {0}, of which the volume is to be made: the cluster has no such kind; install the definitions of \
         snapshot.storage.k8s.io and the snapshot-controller"
    )]
    NoKind(String),
    /// It is not there.
    #[error("VolumeSnapshot {0}, of which the volume is to be made, does not exist, or is being deleted")]
    NoSnapshot(String),
    /// The snapshot-controller has not bound it.
    #[error(
        "VolumeSnapshot {0}, of which the volume is to be made, is not bound to a VolumeSnapshotContent yet: the \
         snapshot-controller does that"
    )]
    NotBound(String),
    /// It is not ready.
    #[error("VolumeSnapshot {0}, of which the volume is to be made, is not ready to use{1}")]
    NotReady(String, String),
}

/// What comes of a claim that names a VolumeSnapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restored {
    /// The volume is to be made of the Snapshot of this name, in moor's namespace.
    From(String),
    /// It is not to be had yet.
    Waits(RestoreWaits),
    /// It cannot be.
    Refused(NoRestore),
}

/// Judges the VolumeSnapshot that `wanted` names. `driver` is who makes the volume, of so many `bytes`.
#[must_use]
pub fn restored(
    wanted: &PersistentVolumeClaim,
    name: &str,
    now: RestoreNow<'_>,
    driver: &str,
    bytes: i64,
) -> Restored {
    let name = name.to_owned();
    if !now.is_defined {
        return Restored::Waits(RestoreWaits::NoKind(name));
    }
    let there = now.snapshot.filter(|snapshot| snapshot.metadata.deletion_timestamp.is_none());
    let Some(snapshot) = there else { return Restored::Waits(RestoreWaits::NoSnapshot(name)) };
    let bound = snapshot.status.as_ref().and_then(|s| s.bound_volume_snapshot_content_name.as_deref());
    let (Some(content_name), Some(content)) = (bound.filter(|name| !name.is_empty()), now.content) else {
        return Restored::Waits(RestoreWaits::NotBound(name));
    };
    let (of, meta) = (&content.spec.volume_snapshot_ref, &snapshot.metadata);
    if of.uid.is_empty() {
        return Restored::Waits(RestoreWaits::NotBound(name));
    }
    let is_for = Some(&of.uid) == meta.uid.as_ref()
        && Some(&of.name) == meta.name.as_ref()
        && Some(&of.namespace) == meta.namespace.as_ref();
    if !is_for {
        return Restored::Refused(NoRestore::NotBound { snapshot: name, content: content_name.to_owned() });
    }
    if content.spec.driver != driver {
        let (of, driver) = (content.spec.driver.clone(), driver.to_owned());
        return Restored::Refused(NoRestore::OfAnother { snapshot: name, of, driver });
    }
    let is_block = |mode: Option<&str>| mode == Some("Block");
    let wanted_mode = wanted.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref());
    let source_mode = content.spec.source_volume_mode.as_deref();
    let is_other = source_mode.is_some() && is_block(wanted_mode) != is_block(source_mode);
    if is_other && !content.allows_mode_change() {
        return Restored::Refused(NoRestore::OtherMode(name));
    }
    let kept = now.kept.filter(|kept| is_usable(kept, content));
    let Some(kept) = kept.filter(|_| content.is_ready()) else {
        let error = content.status.as_ref().and_then(|status| status.error.as_ref()?.message.as_deref());
        let why = error.map(|error| format!(": {error}")).unwrap_or_default();
        return Restored::Waits(RestoreWaits::NotReady(name, why));
    };
    let said = kept.status.as_ref().and_then(|status| status.restore_size_bytes);
    let needs = said.max(content.status.as_ref().and_then(|status| status.restore_size));
    if let Some(size) = needs.filter(|needs| *needs > bytes) {
        return Restored::Refused(NoRestore::Smaller { snapshot: name, size: quantity::human(size) });
    }
    Restored::From(kept.metadata.name.clone().unwrap_or_default())
}

/// Whether volumes are made of it for this content now.
fn is_usable(kept: &Snapshot, content: &VolumeSnapshotContent) -> bool {
    let of = kept.spec.volume_snapshot_content.as_ref();
    of.is_some_and(|of| Some(&of.uid) == content.metadata.uid.as_ref())
        && kept.metadata.deletion_timestamp.is_none()
        && kept.state() == SnapshotState::Ready
        && kept.handle().is_some()
}

/// Whether what a Snapshot keeps is to be reached from this place, and not from everywhere.
pub(super) fn is_at(kept: &Snapshot, place: &BTreeMap<String, String>) -> bool {
    let places = kept.spec.assignment.as_ref().map(|assignment| &*assignment.accessible_topology);
    let has = |at: &Segments| at.segments.iter().all(|(key, value)| place.get(key) == Some(value));
    places.unwrap_or_default().iter().any(has)
}

#[cfg(test)]
#[path = "restore_tests.rs"]
mod tests;
