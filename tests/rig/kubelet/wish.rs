//! How Pods use their volumes.

use std::collections::BTreeMap;

use moor::csi::proto::csi::v1 as wire;
use moor::csi::proto::csi::v1::volume_capability::{
    AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode,
};

/// What kubelet says of it in its calls.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    /// As a raw device.
    pub is_block: bool,
    pub read_only: bool,
    /// mountOptions of the PersistentVolume, and the SELinux context.
    pub flags: Vec<String>,
    /// The Pod's fsGroup, where the driver gives the volume to it.
    pub group: String,
    /// Tokens of the Pod's service account.
    pub tokens: Option<String>,
    /// The PersistentVolume, where it is there already, with what is bound to it.
    pub persistent_volume: Option<String>,
    /// The Secret that the PersistentVolume names for NodeStageVolume.
    pub stage_secrets: BTreeMap<String, String>,
}

impl Wish {
    /// Name of the PersistentVolume of the volume with this key.
    pub(super) fn volume(&self, key: &str) -> String {
        self.persistent_volume.clone().unwrap_or_else(|| format!("pv-{key}"))
    }

    pub(super) fn capability(&self) -> wire::VolumeCapability {
        let mount = MountVolume {
            mount_flags: self.flags.clone(),
            volume_mount_group: self.group.clone(),
            ..MountVolume::default()
        };
        let kind = if self.is_block { AccessType::Block(BlockVolume {}) } else { AccessType::Mount(mount) };
        wire::VolumeCapability {
            access_type: Some(kind),
            access_mode: Some(AccessMode { mode: Mode::SingleNodeMultiWriter.into() }),
        }
    }
}
