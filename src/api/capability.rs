//! How a volume may be used: CSI's access modes and the two ways of showing it to a consumer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::sparse::Empty;

/// Who may use a volume at the same time, in CSI's seven modes (CSI VolumeCapability.AccessMode).
///
/// "Single node" counts nodes, not consumers: several claims on one node may share a volume.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum AccessMode {
    /// Read by one claim of one node: CSI has no mode for several.
    SingleNodeReader,
    /// Read and written by one node. Sent as SINGLE_NODE_MULTI_WRITER where the driver has it.
    #[default]
    SingleNodeWriter,
    /// Read and written by exactly one claim.
    SingleNodeSingleWriter,
    /// Read and written by several claims of one node.
    SingleNodeMultiWriter,
    /// Read by many nodes.
    MultiNodeReader,
    /// Read by many nodes, written by one claim.
    MultiNodeSingleWriter,
    /// Read and written by many nodes.
    MultiNodeMultiWriter,
}

impl AccessMode {
    /// Every mode, for tables.
    pub const ALL: [Self; 7] = [
        Self::SingleNodeReader,
        Self::SingleNodeWriter,
        Self::SingleNodeSingleWriter,
        Self::SingleNodeMultiWriter,
        Self::MultiNodeReader,
        Self::MultiNodeSingleWriter,
        Self::MultiNodeMultiWriter,
    ];

    /// The mode allows several nodes at once, so its Attachments are named per node.
    #[must_use]
    pub fn is_multi_node(self) -> bool {
        matches!(self, Self::MultiNodeReader | Self::MultiNodeSingleWriter | Self::MultiNodeMultiWriter)
    }

    /// The mode forbids every write.
    #[must_use]
    pub fn is_reader_only(self) -> bool {
        matches!(self, Self::SingleNodeReader | Self::MultiNodeReader)
    }

    /// Only one claim at a time may have a target on the node.
    #[must_use]
    pub fn is_single_claim(self) -> bool {
        matches!(self, Self::SingleNodeSingleWriter)
    }
}

impl std::fmt::Display for AccessMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self, f)
    }
}

/// How the consumer sees the volume.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum AttachmentMode {
    /// A mounted file system: the target path is a directory.
    #[default]
    FileSystem,
    /// A raw block device: the target path is a device file.
    BlockDevice,
}

impl std::fmt::Display for AttachmentMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self, f)
    }
}

/// How a volume is mounted. Flags can carry credentials, so Debug never shows them.
#[derive(Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MountOptions {
    /// File system to format and mount, for example ext4 or xfs. Empty: the driver's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub fs_type: Option<String>,
    /// Flags for the mount, for example noatime. At most 4 KiB in all (CSI size limits).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::schema::mount_flags")]
    pub mount_flags: Vec<String>,
}

impl Empty for MountOptions {
    const EMPTY: &'static Self = &Self { fs_type: None, mount_flags: Vec::new() };
}

impl std::fmt::Debug for MountOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MountOptions")
            .field("fs_type", &self.fs_type)
            .field("mount_flags", &format_args!("[{} redacted]", self.mount_flags.len()))
            .finish()
    }
}

/// One use of a volume that its Volume allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeUse {
    /// Who may use it at the same time.
    #[serde(default)]
    pub access_mode: AccessMode,
    /// How the consumer sees it.
    #[serde(default)]
    pub attachment_mode: AttachmentMode,
}
