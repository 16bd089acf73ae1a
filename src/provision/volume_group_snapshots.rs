//! The kinds of groupsnapshot.storage.k8s.io, by which Kubernetes' users have snapshots of several volumes taken at one moment.
//!
//! As with VolumeSnapshots the snapshot-controller makes a VolumeGroupSnapshotContent of each VolumeGroupSnapshot. Of what the
//! content's status says it makes a VolumeSnapshotContent and a VolumeSnapshot of each member, and ends these with the group.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use serde::{Deserialize, Serialize};

use super::content_status::goes_wrong;
use super::snapshot_class::VolumeGroupSnapshotClass;
use super::snapshot_content::{Given, SnapshotContent, SnapshotRef, Words};
use super::volume_snapshots::{ContentError, nanoseconds};
use crate::api::snapshot::{MemberStatus, SnapshotAssignment};
use crate::api::volume::DeletionPolicy;
use crate::api::{Snapshot, SnapshotState};

/// What a driver keeps of several volumes, and for which VolumeGroupSnapshot. Of the versions it is the one that all releases of the
/// snapshot-controller since 8.4 serve.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "groupsnapshot.storage.k8s.io",
    version = "v1beta2",
    kind = "VolumeGroupSnapshotContent",
    plural = "volumegroupsnapshotcontents",
    schema = "disabled",
    status = "GroupContentStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "What a driver keeps of several volumes, and for which VolumeGroupSnapshot."
)]
#[serde(rename_all = "camelCase")]
pub struct GroupContentSpec {
    /// The driver, by its name in PersistentVolumes.
    #[serde(default)]
    pub driver: String,
    /// What becomes of what the driver keeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<DeletionPolicy>,
    /// What it is of.
    #[serde(default)]
    pub source: GroupSource,
    /// Name of its VolumeGroupSnapshotClass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_group_snapshot_class_name: Option<String>,
    /// The VolumeGroupSnapshot that it is for.
    #[serde(default)]
    pub volume_group_snapshot_ref: SnapshotRef,
}

/// What a content is of. One of the two is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupSource {
    /// The volumes of which snapshots are to be taken, as their driver knows them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volume_handles: Vec<String>,
    /// The group that exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_snapshot_handles: Option<GroupHandles>,
}

/// A group that exists, as its driver knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupHandles {
    /// The group.
    #[serde(default)]
    pub volume_group_snapshot_handle: String,
    /// Its members.
    #[serde(default)]
    pub volume_snapshot_handles: Vec<String>,
}

/// What is said of a content.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupContentStatus {
    /// The group, as its driver knows it. Absent before it is taken, and when it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_group_snapshot_handle: Option<String>,
    /// The moment that it shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<Time>,
    /// Volumes can be made of all members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    /// What goes wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ContentError>,
    /// The members.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volume_snapshot_info_list: Vec<MemberInfo>,
}

/// What is said of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberInfo {
    /// The volume that it is of, as its driver knows it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub volume_handle: String,
    /// The snapshot, as its driver knows it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub snapshot_handle: String,
    /// The moment that it shows, in nanoseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<i64>,
    /// Volumes can be made of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    /// What a volume made of it needs at least, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_size: Option<i64>,
}

impl VolumeGroupSnapshotContent {
    /// The group that it stands for, as its driver knows it and as far as the content says.
    #[must_use]
    pub fn handle(&self) -> Option<&str> {
        let given = self.spec.source.group_snapshot_handles.as_ref();
        given.map(|given| given.volume_group_snapshot_handle.as_str()).or(self.said_handle())
    }

    fn said(&self) -> GroupContentStatus {
        self.status.clone().unwrap_or_default()
    }
}

impl SnapshotContent for VolumeGroupSnapshotContent {
    type Class = VolumeGroupSnapshotClass;

    const IS_GROUP: bool = true;
    const WORDS: Words = Words {
        of: "VolumeGroupSnapshot",
        reference: "spec.volumeGroupSnapshotRef",
        class_field: "spec.volumeGroupSnapshotClassName",
        finalizer: "groupsnapshot.storage.kubernetes.io/volumegroupsnapshotcontent-bound-protection",
        being_deleted: "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-deleted",
        being_created: "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-created",
        secret: [
            "groupsnapshot.storage.kubernetes.io/deletion-secret-name",
            "groupsnapshot.storage.kubernetes.io/deletion-secret-namespace",
        ],
        create_name: "groupsnapshot",
        told: "volumegroupsnapshot",
        look_secret: "group-snapshotter-get-secret-",
        look_word: "${volumegroupsnapshotcontent.name}",
    };

    fn driver(&self) -> &str {
        &self.spec.driver
    }

    fn deletion_policy(&self) -> Option<DeletionPolicy> {
        self.spec.deletion_policy
    }

    fn class_name(&self) -> Option<&str> {
        self.spec.volume_group_snapshot_class_name.as_deref()
    }

    fn reference(&self) -> &SnapshotRef {
        &self.spec.volume_group_snapshot_ref
    }

    fn volume_handles(&self) -> Vec<&str> {
        self.spec.source.volume_handles.iter().map(String::as_str).collect()
    }

    fn given(&self) -> Option<Given> {
        let given = self.spec.source.group_snapshot_handles.as_ref()?;
        let members = given.volume_snapshot_handles.clone();
        Some(Given { handle: given.volume_group_snapshot_handle.clone(), members })
    }

    fn said_there(&self) -> Option<Given> {
        let handle = self.said_handle()?.to_owned();
        let said = self.status.iter().flat_map(|status| &status.volume_snapshot_info_list);
        let members: Vec<_> = said.map(|info| info.snapshot_handle.clone()).collect();
        (!members.is_empty()).then_some(Given { handle, members })
    }

    fn error(status: &GroupContentStatus) -> Option<&str> {
        status.error.as_ref()?.message.as_deref()
    }

    fn said_handle(&self) -> Option<&str> {
        self.status.as_ref()?.volume_group_snapshot_handle.as_deref()
    }

    fn is_ready(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.ready_to_use == Some(true))
    }

    fn is_of_group(&self) -> bool {
        false
    }

    fn says(&self, snapshot: &Snapshot, now: &Time) -> GroupContentStatus {
        let (mut status, said) = (self.said(), snapshot.status.clone().unwrap_or_default());
        let is_ready = snapshot.state() == SnapshotState::Ready && snapshot.handle().is_some();
        // Before it is known to be this Snapshot's the driver's answer counts for nothing.
        if let Some(handle) = snapshot.handle().filter(|_| snapshot.state() >= SnapshotState::Created) {
            status.volume_group_snapshot_handle.get_or_insert_with(|| handle.to_owned());
            let taken = said.creation_time.as_ref().unwrap_or(now);
            let taken = status.creation_time.get_or_insert_with(|| taken.clone()).clone();
            let info = |member: &MemberStatus| info(member, &taken);
            let of = snapshot.spec.assignment.as_ref();
            let members: Vec<_> =
                said.members.iter().filter(|member| is_known(of, member)).map(info).collect();
            // The snapshot-controller makes the members' objects of it at once, and does not take it well to find them there when it
            // comes again because the group is ready.
            if is_ready && !members.is_empty() {
                status.volume_snapshot_info_list = members;
            }
        }
        // What was ready once is not called otherwise because it is looked at anew.
        status.ready_to_use = Some(is_ready || self.is_ready());
        status.error = goes_wrong(snapshot).map(|words| ContentError::of(status.error.take(), &words, now));
        status
    }

    fn fails(&self, words: &str, now: &Time) -> GroupContentStatus {
        let mut status = self.said();
        status.ready_to_use.get_or_insert(false);
        status.error = Some(ContentError::of(status.error.take(), words, now));
        status
    }

    fn without_storage(&self) -> GroupContentStatus {
        GroupContentStatus::default()
    }
}

/// Whether a member that an agent says is one that the group is known to have: of another one nothing is said.
fn is_known(of: Option<&SnapshotAssignment>, said: &MemberStatus) -> bool {
    of.is_some_and(|of| of.members.iter().any(|known| known.snapshot_handle == said.snapshot_handle))
}

fn info(member: &MemberStatus, taken: &Time) -> MemberInfo {
    MemberInfo {
        volume_handle: member.volume_handle.clone().unwrap_or_default(),
        snapshot_handle: member.snapshot_handle.clone(),
        creation_time: Some(nanoseconds(taken)),
        ready_to_use: Some(member.ready_to_use),
        restore_size: member.restore_size_bytes,
    }
}

#[cfg(test)]
#[path = "volume_group_snapshots_tests.rs"]
mod tests;
