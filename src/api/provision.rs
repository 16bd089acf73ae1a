//! What a Volume is provisioned for: `Volume.spec.persistentVolume`.
//!
//! A PersistentVolume is made of these words and of what the driver answers, and of nothing else: whoever leads then needs
//! no StorageClass any more, which may have been deleted meanwhile.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The PersistentVolume that is made of a Volume, and the PersistentVolumeClaim that asked for both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Provision {
    /// Name of the PersistentVolume.
    #[schemars(schema_with = "super::schema::object_name")]
    pub name: String,
    /// The PersistentVolumeClaim.
    pub claim: ProvisionedFor,
    /// The driver's name in the PersistentVolume.
    #[schemars(length(min = 1, max = 63))]
    pub driver_name: String,
    /// Name of the StorageClass.
    #[schemars(length(max = 253))]
    pub storage_class_name: String,
    /// What the StorageClass says is to become of the storage. Afterwards the PersistentVolume's own word counts.
    #[serde(default)]
    pub reclaim_policy: ReclaimPolicy,
    /// Access modes of the PersistentVolumeClaim, in Kubernetes' words.
    #[schemars(length(min = 1, max = 8), inner(length(max = 63)))]
    pub access_modes: Vec<String>,
    /// The node that the scheduler chose; absent where it is not asked (Immediate binding).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::object_name")]
    pub selected_node: Option<String>,
    /// Whether the driver is told where the volume is to be, so that another node may be another place.
    #[serde(default)]
    pub in_places: bool,
    /// Secret for ControllerExpandVolume, as namespace/name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    pub controller_expand_secret: Option<String>,
    /// Secret for NodeExpandVolume, as namespace/name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    pub node_expand_secret: Option<String>,
    /// Secret for ControllerModifyVolume, as namespace/name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    pub controller_modify_secret: Option<String>,
    /// Name of the VolumeAttributesClass with whose parameters the volume is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub volume_attributes_class_name: Option<String>,
    /// The volume is made as a copy of this claim's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_of: Option<CopyOf>,
}

/// What a volume is copied from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CopyOf {
    /// The PersistentVolumeClaim that has it.
    pub claim: ProvisionedFor,
    /// The volume, as its driver knows it.
    #[schemars(schema_with = "super::schema::volume_handle")]
    pub volume_handle: String,
}

/// A PersistentVolumeClaim by its names and its UID.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvisionedFor {
    /// Its namespace.
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Its UID.
    #[schemars(length(max = 63))]
    pub uid: String,
}

/// What becomes of a PersistentVolume's storage when nobody claims it any more (Kubernetes' own words).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ReclaimPolicy {
    /// It is deleted.
    #[default]
    Delete,
    /// It stays.
    Retain,
}

impl ReclaimPolicy {
    /// Kubernetes' word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delete => "Delete",
            Self::Retain => "Retain",
        }
    }
}

impl std::fmt::Display for ProvisionedFor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Name of the PersistentVolume, and of the Volume, that are made for the PersistentVolumeClaim with this UID. It is what
/// the stock provisioner gives, so that the storage is found again by its name whoever serves it.
#[must_use]
pub fn provisioned_name(claim_uid: &str) -> String {
    format!("pvc-{claim_uid}")
}
