//! How a Plugin's volumes are served to Pods: `Plugin.spec.kubernetes`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the driver's volumes are served to Pods, by way of PersistentVolumes and kubelet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Kubernetes {
    /// Whether kubelets are served, a CSIDriver object is made, and PersistentVolumes are provisioned.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// The driver's name in PersistentVolumes, StorageClasses and its CSIDriver object. Absent: the driver's own. Another name
    /// lets moor be tried beside an installation of the driver that has its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    pub driver_name: Option<String>,
    /// Hand what kubelet says of the Pod on to the driver, in the volume context of NodePublishVolume.
    #[serde(default)]
    pub pass_pod_info: bool,
    /// Tell the driver in CreateVolume's parameters for which PersistentVolumeClaim it makes a volume
    /// (csi.storage.k8s.io/pvc/name, pvc/namespace and pv/name).
    #[serde(default)]
    pub extra_create_metadata: bool,
    /// A volume that waits for its first consumer is made where that one's node is, and nowhere else. Otherwise the driver
    /// is told of other places too, and that this one is the best.
    #[serde(default)]
    pub strict_topology: bool,
    /// The file system of volumes whose StorageClass names none (csi.storage.k8s.io/fstype), as external-provisioner's
    /// --default-fstype. Without one the driver chooses, and kubelet gives no volume to a Pod's fsGroup unless fsGroupPolicy is
    /// File. It counts for volumes that are made from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub default_fs_type: Option<String>,
    /// What the CSIDriver object says.
    #[serde(default)]
    pub csi_driver: CsiDriver,
}

impl Default for Kubernetes {
    fn default() -> Self {
        Self {
            enabled: true,
            driver_name: None,
            pass_pod_info: false,
            extra_create_metadata: false,
            strict_topology: false,
            default_fs_type: None,
            csi_driver: CsiDriver::default(),
        }
    }
}

fn yes() -> bool {
    true
}

/// What the CSIDriver object of a driver says, as far as it is not moor that decides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CsiDriver {
    /// When kubelet changes owner and permissions of a volume to the Pod's fsGroup.
    #[serde(default)]
    pub fs_group_policy: FsGroupPolicy,
    /// The driver takes a SELinux context as a mount option.
    #[serde(default)]
    pub se_linux_mount: bool,
    /// kubelet publishes a volume again every minute or so, for drivers whose volumes change with the Pod's tokens.
    #[serde(default)]
    pub requires_republish: bool,
    /// Tokens of the Pod's service account that the driver gets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub token_requests: Vec<TokenRequest>,
    /// Delete a CSIDriver object of this name that somebody else has made, and make another one, however often it comes
    /// back. End the driver's external-attacher first: what it has attached is not detached by this.
    #[serde(default)]
    pub replace: bool,
}

/// When kubelet changes a volume to the Pod's fsGroup (Kubernetes' own words).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FsGroupPolicy {
    /// Of a volume that one node writes and that has a file system type.
    #[default]
    ReadWriteOnceWithFSType,
    /// Always.
    File,
    /// Never.
    None,
}

/// A token of a Pod's service account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenRequest {
    /// For whom it is; empty is the API server.
    #[schemars(length(max = 253))]
    pub audience: String,
    /// How long it lasts, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 600, max = 4_294_967_296_i64))]
    pub expiration_seconds: Option<i64>,
}
