//! The kinds of snapshot.storage.k8s.io, by which Kubernetes' users have snapshots taken, and what their controllers say to each
//! other on them. The definitions are not Kubernetes' own: a cluster has them if somebody has installed them.
//!
//! The snapshot-controller, which is one for the cluster, makes a VolumeSnapshotContent of each VolumeSnapshot, binds the two, and
//! copies what the content's status says. For each driver somebody else heeds the contents: csi-snapshotter, or moor.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::core::ClusterResourceScope;
use kube::{CustomResource, Resource};
use serde::{Deserialize, Serialize};

use super::annotations::annotation;
use crate::api::volume::DeletionPolicy;

/// API group of the kinds.
pub const GROUP: &str = "snapshot.storage.k8s.io";

/// Finalizer by which a bound content stays. The snapshot-controller puts it on, and who heeds the driver takes it off.
pub const CONTENT_FINALIZER: &str = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";

/// On a content: its VolumeSnapshot is being deleted. The snapshot-controller writes it.
const BEING_DELETED: &str = "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted";
/// On a content: csi-snapshotter may be taking the snapshot. It reads that itself, and nobody else does.
const BEING_CREATED: &str = "snapshot.storage.kubernetes.io/volumesnapshot-being-created";
/// On a content: it is a member of a VolumeGroupSnapshotContent.
const OF_GROUP: &str = "groupsnapshot.storage.k8s.io/volumeGroupSnapshotHandle";
/// On a content: name and namespace of the Secret of its calls, which the snapshot-controller has found by the class.
const SECRET: [&str; 2] = [
    "snapshot.storage.kubernetes.io/deletion-secret-name",
    "snapshot.storage.kubernetes.io/deletion-secret-namespace",
];
/// On a content: an administrator allows volumes of another mode to be made of it.
const ALLOW_MODE_CHANGE: &str = "snapshot.storage.kubernetes.io/allow-volume-mode-change";

/// What a driver keeps, and for which VolumeSnapshot: a snapshot that is to be taken (`volumeHandle`), or one that exists.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "snapshot.storage.k8s.io",
    version = "v1",
    kind = "VolumeSnapshotContent",
    plural = "volumesnapshotcontents",
    schema = "disabled",
    status = "ContentStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "What a driver keeps of a volume, and for which VolumeSnapshot."
)]
#[serde(rename_all = "camelCase")]
pub struct ContentSpec {
    /// The driver, by its name in PersistentVolumes.
    #[serde(default)]
    pub driver: String,
    /// What becomes of what the driver keeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<DeletionPolicy>,
    /// What it is of.
    #[serde(default)]
    pub source: ContentSource,
    /// Whether the volume was a file system or a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_volume_mode: Option<String>,
    /// Name of its VolumeSnapshotClass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_class_name: Option<String>,
    /// The VolumeSnapshot that it is for.
    #[serde(default)]
    pub volume_snapshot_ref: SnapshotRef,
}

/// What a content is of. One of the two is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContentSource {
    /// The volume of which a snapshot is to be taken, as its driver knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_handle: Option<String>,
    /// The snapshot that exists, as its driver knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_handle: Option<String>,
}

/// The VolumeSnapshot that a content is for. Without a UID the two are not bound yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotRef {
    /// Its group and version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Its kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Its name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its namespace.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its version when the two were bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// Its UID.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// What is said of a content.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContentStatus {
    /// The snapshot, as its driver knows it. Absent before it is taken, and when it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_handle: Option<String>,
    /// The moment that it shows, in nanoseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<i64>,
    /// What a volume made of it needs at least, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_size: Option<i64>,
    /// Volumes can be made of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    /// What goes wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ContentError>,
    /// The group that it was taken with, as its driver knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_group_snapshot_handle: Option<String>,
}

/// What goes wrong with a content. The snapshot-controller copies it to the VolumeSnapshot, where users read it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ContentError {
    /// In words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When it was first said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
}

/// A user's wish for a snapshot, as far as it says which content it is bound to. moor reads it and never writes it.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "snapshot.storage.k8s.io",
    version = "v1",
    kind = "VolumeSnapshot",
    plural = "volumesnapshots",
    namespaced,
    schema = "disabled",
    status = "VolumeSnapshotStatus",
    derive = "Default",
    doc = "A user's wish for a snapshot."
)]
pub struct VolumeSnapshotSpec {}

/// What the snapshot-controller says of a VolumeSnapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotStatus {
    /// Name of the content. It counts only where that one names the VolumeSnapshot too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_volume_snapshot_content_name: Option<String>,
}

/// How snapshots of a driver are taken. It has no spec.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct VolumeSnapshotClass {
    /// Its name.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The driver.
    #[serde(default)]
    pub driver: String,
    /// What the driver is told, and Secrets.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
}

impl Resource for VolumeSnapshotClass {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "VolumeSnapshotClass".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "volumesnapshotclasses".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl VolumeSnapshotContent {
    /// What is said of it.
    #[must_use]
    pub fn said(&self) -> ContentStatus {
        self.status.clone().unwrap_or_default()
    }

    /// Whether volumes can be made of it, as its status says.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.ready_to_use == Some(true))
    }

    /// The snapshot, as its driver knows it and its status says.
    #[must_use]
    pub fn said_handle(&self) -> Option<&str> {
        self.status.as_ref()?.snapshot_handle.as_deref()
    }

    /// Whether its storage is a group's, with which it goes.
    #[must_use]
    pub fn is_of_group(&self) -> bool {
        let said = self.status.as_ref().is_some_and(|status| status.volume_group_snapshot_handle.is_some());
        said || self.has(OF_GROUP)
    }

    /// Whether it is deleted, and its VolumeSnapshot with it, or that has never been bound to it. One whose VolumeSnapshot is
    /// there stays as it is.
    #[must_use]
    pub fn ends(&self) -> bool {
        let unbound =
            self.spec.source.snapshot_handle.is_some() && self.spec.volume_snapshot_ref.uid.is_empty();
        self.metadata.deletion_timestamp.is_some() && (unbound || self.has(BEING_DELETED))
    }

    /// Whether it stays until somebody has seen to what the driver keeps.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == CONTENT_FINALIZER)
    }

    /// Whether csi-snapshotter has left word that it may be taking the snapshot.
    #[must_use]
    pub fn is_being_created(&self) -> bool {
        self.has(BEING_CREATED)
    }

    /// The same without that word.
    #[must_use]
    pub fn created(&self) -> Self {
        let mut created = self.clone();
        created.metadata.annotations.get_or_insert_default().remove(BEING_CREATED);
        created
    }

    /// Whether volumes of another mode may be made of it.
    #[must_use]
    pub fn allows_mode_change(&self) -> bool {
        annotation(self.metadata.annotations.as_ref(), ALLOW_MODE_CHANGE) == Some("true")
    }

    /// The Secret of its calls, as namespace/name. An error where only one half is given.
    pub(super) fn secret(&self) -> Result<Option<String>, HalfSecret> {
        let annotations = self.metadata.annotations.as_ref();
        match SECRET.map(|key| annotation(annotations, key)) {
            [Some(name), Some(namespace)] => Ok(Some(format!("{namespace}/{name}"))),
            [None, None] => Ok(None),
            [Some(_), None] => Err(HalfSecret { given: SECRET[0], missing: SECRET[1] }),
            [None, Some(_)] => Err(HalfSecret { given: SECRET[1], missing: SECRET[0] }),
        }
    }

    fn has(&self, key: &str) -> bool {
        self.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(key))
    }
}

/// One half of a Secret's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the annotation {given} is given without {missing}; a Secret needs both, or neither")]
pub struct HalfSecret {
    given: &'static str,
    missing: &'static str,
}
