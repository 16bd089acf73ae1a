//! Storage and objects that do not have each other: what comes of comparing what drivers list with what there is.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::caller::is_first;

/// Most orphans, and most objects without storage, that one status names.
pub const MAX_NAMED: usize = 64;
/// Longest id that a Volume or a Snapshot can be registered with, in bytes.
pub const MAX_HANDLE: usize = 1024;

/// What a driver keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum StorageKind {
    /// A volume, which a Volume stands for.
    Volume,
    /// A snapshot, which a Snapshot stands for.
    Snapshot,
}

impl StorageKind {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::Volume, Self::Snapshot];

    /// The kind of object that stands for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Volume => "Volume",
            Self::Snapshot => "Snapshot",
        }
    }
}

/// Storage that moor has had made, that its driver lists, and that no object stands for. It is only told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OrphanedStorage {
    /// What it is.
    pub kind: StorageKind,
    /// Its id, as the driver knows it.
    #[schemars(length(min = 1, max = 1024))]
    pub handle: String,
    /// UID of the object that it was made for.
    #[schemars(length(max = 63))]
    pub uid: String,
    /// The name that its driver was given for it.
    #[schemars(length(max = 128))]
    pub create_name: String,
    /// Its size in bytes, if the driver says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<i64>,
    /// Since when it is reported.
    pub since: Time,
}

/// A Volume or a Snapshot whose storage its driver has listed before and does not list any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MissingStorage {
    /// What it is.
    pub kind: StorageKind,
    /// Namespace of the object.
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// Name of the object.
    #[schemars(length(max = 253))]
    pub name: String,
    /// UID of the object.
    #[schemars(length(max = 63))]
    pub uid: String,
}

/// What an agent has found by comparing what its driver lists with the objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StorageReport {
    /// Storage that no object stands for; the first ones, if there are more than fit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub orphans: Vec<OrphanedStorage>,
    /// How many of them are volumes, also those that are not named.
    #[serde(default, skip_serializing_if = "is_first")]
    #[schemars(range(min = 0))]
    pub orphaned_volumes: i64,
    /// How many of them are snapshots.
    #[serde(default, skip_serializing_if = "is_first")]
    #[schemars(range(min = 0))]
    pub orphaned_snapshots: i64,
    /// Objects whose storage is not listed; the first ones, if there are more than fit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub missing: Vec<MissingStorage>,
}
