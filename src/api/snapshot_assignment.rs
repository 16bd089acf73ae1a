//! What is to be done for a Snapshot, and by whom.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::caller::ControllerRef;
use super::volume::Segments;

/// Who makes a Snapshot's calls, and what it is of. All but who and what never changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotAssignment {
    /// What is to be done.
    pub operation: SnapshotOperation,
    /// By whom.
    pub controller: ControllerRef,
    /// Name of the Plugin.
    #[schemars(length(max = 253))]
    pub plugin_name: String,
    /// The driver, as GetPluginInfo names it.
    #[schemars(length(max = 63))]
    pub driver_name: String,
    /// The volume that the snapshot is taken of. Absent for one that is registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<SnapshotVolume>,
    /// It is a group.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_group: bool,
    /// The volumes that a group is taken of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub volumes: Vec<SnapshotVolume>,
    /// The members of a group, in the order of `volumes`, when it is known that no other Snapshot stands for one of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub members: Vec<SnapshotMember>,
    /// The snapshot as its driver knows it, when it is known that no other Snapshot stands for it that the driver was to take.
    /// Nothing is made of it and nothing deleted by any other id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub snapshot_handle: Option<String>,
    /// Where the volume can be reached from, and so its snapshot; empty means everywhere, or that it is not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub accessible_topology: Vec<Segments>,
    /// The Secret that the Volume named when the snapshot was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    pub secret_name: Option<String>,
    /// The one of the Plugin, where the Volume named none, as namespace/name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    pub plugin_secret_name: Option<String>,
}

/// The volume that a snapshot is taken of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotVolume {
    /// Name of the Volume. Absent in Snapshots that earlier versions of moor took up, which have but one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub name: Option<String>,
    /// UID of the Volume.
    #[schemars(length(max = 63))]
    pub uid: String,
    /// The volume as its driver knows it.
    #[schemars(length(max = 1024))]
    pub volume_handle: String,
    /// Name of its VolumeHandle.
    #[schemars(length(max = 253))]
    pub handle_name: String,
}

/// A member of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotMember {
    /// The volume that it is of, as its driver knows it. Absent where that is not known, as of a group that is registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub volume_handle: Option<String>,
    /// The snapshot, as its driver knows it.
    #[schemars(length(max = 1024))]
    pub snapshot_handle: String,
}

/// A call that a Snapshot needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum SnapshotOperation {
    /// CreateSnapshot, of a group CreateVolumeGroupSnapshot, repeated until it is ready to use.
    #[default]
    Create,
    /// ListSnapshots for the handle that is registered, of a group GetVolumeGroupSnapshot, until it is ready to use.
    List,
    /// DeleteSnapshot, of a group DeleteVolumeGroupSnapshot.
    Delete,
}

impl SnapshotAssignment {
    /// The volumes that the snapshot is taken of: one, or those of a group.
    pub fn taken_of(&self) -> impl Iterator<Item = &SnapshotVolume> {
        self.volume.iter().chain(&self.volumes)
    }
}
