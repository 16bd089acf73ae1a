//! What a volume is made from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a volume is made from: another volume of the same driver, or what a snapshot has kept of one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSource {
    /// Name of a Volume of this namespace and this Plugin, of which the volume is a copy. It must be Ready, and cannot be deleted
    /// while it is copied. A volume in use is copied as its driver does that. With `snapshotName` it says of which Volume of a
    /// group the snapshot is, and needs not be there any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::object_name")]
    pub volume_name: Option<String>,
    /// Name of a Snapshot of this namespace and this Plugin. It must be Ready, and cannot be deleted while a volume is made of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::object_name")]
    pub snapshot_name: Option<String>,
}

/// What the source of a volume was when its calls were assigned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AssignedSource {
    /// UID of the Volume or the Snapshot.
    #[schemars(length(max = 63))]
    pub uid: String,
    /// The volume that is copied, as the driver knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub volume_handle: Option<String>,
    /// The snapshot that is restored, as the driver knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub snapshot_handle: Option<String>,
}
