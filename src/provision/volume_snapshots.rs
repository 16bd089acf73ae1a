//! The kinds of snapshot.storage.k8s.io, by which Kubernetes' users have snapshots taken, and what their controllers say to each
//! other on them. The definitions are not Kubernetes' own: a cluster has them if somebody has installed them.
//!
//! The snapshot-controller, which is one for the cluster, makes a VolumeSnapshotContent of each VolumeSnapshot, binds the two, and
//! copies what the content's status says. For each driver somebody else heeds the contents: csi-snapshotter, or moor.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use serde::{Deserialize, Serialize};

use super::annotations::annotation;
use super::content_status::goes_wrong;
use super::snapshot_class::VolumeSnapshotClass;
use super::snapshot_content::{Given, SnapshotContent, SnapshotRef, Words};
use crate::api::volume::DeletionPolicy;
use crate::api::{Snapshot, SnapshotState};

/// API group of the kinds.
pub const GROUP: &str = "snapshot.storage.k8s.io";

/// On a content: it is a member of a VolumeGroupSnapshotContent.
const OF_GROUP: &str = "groupsnapshot.storage.k8s.io/volumeGroupSnapshotHandle";
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

impl ContentError {
    /// The same words as in `said` keep the time at which they were first said.
    pub(super) fn of(said: Option<Self>, words: &str, now: &Time) -> Self {
        let said = said.filter(|said| said.message.as_deref() == Some(words));
        said.unwrap_or_else(|| Self { message: Some(words.to_owned()), time: Some(now.clone()) })
    }
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

impl VolumeSnapshotContent {
    /// Whether volumes of another mode may be made of it.
    #[must_use]
    pub fn allows_mode_change(&self) -> bool {
        annotation(self.metadata.annotations.as_ref(), ALLOW_MODE_CHANGE) == Some("true")
    }

    /// The group that it is a member of, as its driver knows that.
    #[must_use]
    pub fn group(&self) -> Option<&str> {
        let said = self.status.as_ref().and_then(|status| status.volume_group_snapshot_handle.as_deref());
        said.or_else(|| annotation(self.metadata.annotations.as_ref(), OF_GROUP))
    }

    fn said(&self) -> ContentStatus {
        self.status.clone().unwrap_or_default()
    }
}

impl SnapshotContent for VolumeSnapshotContent {
    type Class = VolumeSnapshotClass;

    const IS_GROUP: bool = false;
    const WORDS: Words = Words {
        of: "VolumeSnapshot",
        reference: "spec.volumeSnapshotRef",
        class_field: "spec.volumeSnapshotClassName",
        finalizer: "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection",
        being_deleted: "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted",
        being_created: "snapshot.storage.kubernetes.io/volumesnapshot-being-created",
        secret: [
            "snapshot.storage.kubernetes.io/deletion-secret-name",
            "snapshot.storage.kubernetes.io/deletion-secret-namespace",
        ],
        create_name: "snapshot",
        told: "volumesnapshot",
        look_secret: "snapshotter-list-secret-",
        look_word: "${volumesnapshotcontent.name}",
    };

    fn driver(&self) -> &str {
        &self.spec.driver
    }

    fn deletion_policy(&self) -> Option<DeletionPolicy> {
        self.spec.deletion_policy
    }

    fn class_name(&self) -> Option<&str> {
        self.spec.volume_snapshot_class_name.as_deref()
    }

    fn reference(&self) -> &SnapshotRef {
        &self.spec.volume_snapshot_ref
    }

    fn volume_handles(&self) -> Vec<&str> {
        self.spec.source.volume_handle.as_deref().into_iter().collect()
    }

    fn given(&self) -> Option<Given> {
        self.spec.source.snapshot_handle.clone().map(Given::one)
    }

    fn said_there(&self) -> Option<Given> {
        self.said_handle().map(|id| Given::one(id.to_owned()))
    }

    fn error(status: &ContentStatus) -> Option<&str> {
        status.error.as_ref()?.message.as_deref()
    }

    fn said_handle(&self) -> Option<&str> {
        self.status.as_ref()?.snapshot_handle.as_deref()
    }

    fn is_ready(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.ready_to_use == Some(true))
    }

    fn is_of_group(&self) -> bool {
        self.group().is_some()
    }

    fn says(&self, snapshot: &Snapshot, now: &Time) -> ContentStatus {
        let (mut status, said) = (self.said(), snapshot.status.clone().unwrap_or_default());
        // Before it is known to be this Snapshot's the driver's answer counts for nothing.
        if let Some(handle) = snapshot.handle().filter(|_| snapshot.state() >= SnapshotState::Created) {
            status.snapshot_handle.get_or_insert_with(|| handle.to_owned());
            // The snapshot-controller takes a content without one for one that is not taken yet.
            status.creation_time.get_or_insert(nanoseconds(said.creation_time.as_ref().unwrap_or(now)));
            status.restore_size = status.restore_size.or(said.restore_size_bytes.filter(|bytes| *bytes > 0));
        }
        let is_ready = snapshot.state() == SnapshotState::Ready && snapshot.handle().is_some();
        // What was ready once is not called otherwise because it is looked at anew.
        status.ready_to_use = Some(is_ready || self.is_ready());
        status.error = goes_wrong(snapshot).map(|words| ContentError::of(status.error.take(), &words, now));
        status
    }

    fn fails(&self, words: &str, now: &Time) -> ContentStatus {
        let mut status = self.said();
        status.ready_to_use.get_or_insert(false);
        status.error = Some(ContentError::of(status.error.take(), words, now));
        status
    }

    fn without_storage(&self) -> ContentStatus {
        let volume_group_snapshot_handle = self.said().volume_group_snapshot_handle;
        ContentStatus { volume_group_snapshot_handle, ..ContentStatus::default() }
    }
}

/// A moment as these kinds say it: in nanoseconds since 1970.
pub(super) fn nanoseconds(moment: &Time) -> i64 {
    moment.0.as_second().saturating_mul(1_000_000_000)
}

#[cfg(test)]
#[path = "content_status_tests.rs"]
mod tests;
