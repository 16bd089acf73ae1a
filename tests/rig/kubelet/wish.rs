//! How Pods use their volumes.

use std::collections::BTreeMap;

use moor::api::names::{INLINE, INLINE_VOLUME};
use moor::csi::proto::csi::v1 as wire;
use moor::csi::proto::csi::v1::volume_capability::{
    AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode,
};
use serde_json::{Value, json};

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
    /// Name of the Volume that the Pods name themselves, without a PersistentVolume.
    pub inline: Option<String>,
    /// What else they say there.
    pub attributes: BTreeMap<String, String>,
    /// The file system that they say there.
    pub fs_type: String,
    /// The Secret that the PersistentVolume names for NodeStageVolume.
    pub stage_secrets: BTreeMap<String, String>,
}

impl Wish {
    /// Name of the PersistentVolume of the volume with this key; the key itself of a volume that Pods name.
    pub(super) fn volume(&self, key: &str) -> String {
        if self.inline.is_some() {
            return key.to_owned();
        }
        self.persistent_volume.clone().unwrap_or_else(|| format!("pv-{key}"))
    }

    /// How kubelet calls the volume to the driver.
    pub(super) fn volume_id(&self, key: &str) -> String {
        if self.inline.is_some() { format!("csi-{key}") } else { format!("vol-{key}") }
    }

    /// The volume in the Pod's spec.
    pub(super) fn in_pod(&self, key: &str) -> Value {
        let Some(volume) = &self.inline else {
            return json!([{"name": "data", "persistentVolumeClaim": {"claimName": key}}]);
        };
        let csi = json!({"driver": INLINE, "volumeAttributes": {INLINE_VOLUME: volume}});
        json!([{"name": key, "csi": csi}])
    }

    /// What the Pod says beside the Volume's name, and kubelet of the kind.
    pub(super) fn context(&self) -> BTreeMap<String, String> {
        let mut all = self.attributes.clone();
        all.insert("csi.storage.k8s.io/ephemeral".to_owned(), self.inline.is_some().to_string());
        all.extend(self.inline.iter().map(|volume| (INLINE_VOLUME.to_owned(), volume.clone())));
        all
    }

    pub(super) fn capability(&self) -> wire::VolumeCapability {
        let mount = MountVolume {
            fs_type: self.fs_type.clone(),
            mount_flags: self.flags.clone(),
            volume_mount_group: self.group.clone(),
        };
        let kind = if self.is_block { AccessType::Block(BlockVolume {}) } else { AccessType::Mount(mount) };
        wire::VolumeCapability {
            access_type: Some(kind),
            access_mode: Some(AccessMode { mode: Mode::SingleNodeMultiWriter.into() }),
        }
    }
}
