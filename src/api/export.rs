//! How a Volume is used by Pods: `Volume.spec.persistentVolumeClaim` and what is made for it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The PersistentVolumeClaim by which Pods use a Volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Export {
    /// Name of the PersistentVolumeClaim, in the Volume's namespace. One of that name that is there already is not touched.
    #[schemars(schema_with = "super::schema::object_name")]
    pub name: String,
}

/// What is made for `spec.persistentVolumeClaim`. It is written before anything is made, and goes when all of it is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Exported {
    /// Name of the PersistentVolumeClaim.
    #[schemars(length(max = 253))]
    pub persistent_volume_claim: String,
    /// Name of the PersistentVolume.
    #[schemars(length(max = 253))]
    pub persistent_volume: String,
    /// UID of the PersistentVolume, once it is made: another one of its name is not this Volume's.
    #[serde(rename = "persistentVolumeUID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub persistent_volume_uid: Option<String>,
}
