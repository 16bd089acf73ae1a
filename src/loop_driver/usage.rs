//! How a volume is to be used: CSI's VolumeCapability, checked.

use std::fmt;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::error::Error;
use super::filesystem::FileSystem;
use crate::csi::proto::csi::v1::VolumeCapability;
use crate::csi::proto::csi::v1::volume_capability::AccessType;
/// CSI's access modes, which `build.rs` lets serde store.
pub(super) use crate::csi::proto::csi::v1::volume_capability::access_mode::Mode;

/// The mount options that make mount(8) do something else than mount the device where it is told.
const REFUSED_FLAGS: [&str; 14] = [
    "bind",
    "rbind",
    "move",
    "remount",
    "loop",
    "offset",
    "sizelimit",
    "user",
    "users",
    "owner",
    "group",
    "helper",
    "defaults_mode",
    "fd",
];
/// The beginnings of further mount options that make mount(8) do something else.
const REFUSED_PREFIXES: [&str; 3] = ["X-mount", "x-mount", "make-"];

impl Mode {
    /// Whether several nodes may have the volume at once.
    pub(super) fn is_multi_node(self) -> bool {
        matches!(self, Self::MultiNodeReaderOnly | Self::MultiNodeSingleWriter | Self::MultiNodeMultiWriter)
    }

    /// Whether no node may write.
    pub(super) fn is_reader_only(self) -> bool {
        matches!(self, Self::SingleNodeReaderOnly | Self::MultiNodeReaderOnly)
    }

    /// Whether one node may have the volume at several targets. A driver with SINGLE_NODE_MULTI_WRITER has to refuse
    /// that for the older SINGLE_NODE_WRITER.
    pub(super) fn allows_several_targets(self) -> bool {
        self.is_multi_node() || self == Self::SingleNodeMultiWriter
    }
}

/// A raw device, or a mounted file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Access {
    Block,
    /// A mount of the file system that is asked for; `None` leaves it to the driver.
    Mount(Option<FileSystem>),
}

/// The part of a capability that has to be the same from attach to publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Terms {
    pub(super) mode: Mode,
    pub(super) access: Access,
}

impl fmt::Display for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let access = match self.access {
            Access::Block => "block",
            Access::Mount(None) => "mount",
            Access::Mount(Some(kind)) => kind.name(),
        };
        write!(f, "{:?} {access}", self.mode)
    }
}

/// A checked capability. Its `Debug` shows no flags, which may be secret.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) terms: Terms,
    pub(super) flags: Vec<String>,
}

impl fmt::Debug for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {} mount flags", self.terms, self.flags.len())
    }
}

impl Usage {
    /// Checks the capability of one call.
    pub(super) fn require(capability: Option<&VolumeCapability>) -> Result<Self, Error> {
        Self::parse(capability.ok_or(Error::Missing("volume_capability"))?, "volume_capability")
    }

    /// Checks a list of capabilities of which every one has to be possible.
    pub(super) fn require_all(capabilities: &[VolumeCapability]) -> Result<Vec<Self>, Error> {
        if capabilities.is_empty() {
            return Err(Error::Missing("volume_capabilities"));
        }
        capabilities.iter().map(|capability| Self::parse(capability, "volume_capabilities")).collect()
    }

    fn parse(capability: &VolumeCapability, field: &'static str) -> Result<Self, Error> {
        let mode = capability.access_mode.as_ref().ok_or(Error::Missing("access_mode"))?.mode;
        let mode = Mode::try_from(mode).ok().filter(|mode| *mode != Mode::Unknown).ok_or_else(|| {
            Error::invalid(field, format!("access mode {mode} is not one that this driver has"))
        })?;
        match capability.access_type.as_ref().ok_or(Error::Missing("access_type"))? {
            AccessType::Block(_) => {
                Ok(Self { terms: Terms { mode, access: Access::Block }, flags: Vec::new() })
            }
            AccessType::Mount(mount) => {
                if !mount.volume_mount_group.is_empty() {
                    return Err(Error::invalid(field, "volume_mount_group is not offered by this driver"));
                }
                let kind = match mount.fs_type.as_str() {
                    "" => None,
                    name => Some(FileSystem::parse(name).ok_or_else(|| {
                        Error::invalid(field, format!("fs_type {name:?} is not one of ext4, xfs"))
                    })?),
                };
                check_mode_of_mount(mode, field)?;
                check_flags(&mount.mount_flags, field)?;
                let terms = Terms { mode, access: Access::Mount(kind) };
                Ok(Self { terms, flags: mount.mount_flags.clone() })
            }
        }
    }

    /// A digest that stands for the flags in the driver's files, where the flags themselves may not be.
    pub(super) fn flags_digest(&self) -> String {
        let mut digest = Sha256::new();
        for flag in &self.flags {
            digest.update(flag.len().to_le_bytes());
            digest.update(flag);
        }
        HEXLOWER.encode(&digest.finalize())
    }

    /// Whether the flags say read-only.
    pub(super) fn says_read_only(&self) -> bool {
        self.flags.iter().flat_map(|flag| flag.split(',')).any(|flag| flag == "ro")
    }
}

/// Refuses a file system that several nodes have and one writes. ext4 and xfs belong to one kernel at a time: a
/// second node that mounts what a first one writes sees damage, and makes more of it.
fn check_mode_of_mount(mode: Mode, field: &'static str) -> Result<(), Error> {
    if matches!(mode, Mode::MultiNodeSingleWriter | Mode::MultiNodeMultiWriter) {
        let reason = "a file system of this driver is not for several nodes of which one writes: use block, or \
                      MULTI_NODE_READER_ONLY";
        return Err(Error::invalid(field, reason));
    }
    Ok(())
}

fn check_flags(flags: &[String], field: &'static str) -> Result<(), Error> {
    let refused = |flag: &str| {
        let name = flag.split('=').next().unwrap_or(flag);
        REFUSED_FLAGS.contains(&name) || REFUSED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    };
    // The flag is not repeated, because it may hold a credential.
    if let Some(at) = flags.iter().position(|flag| flag.is_empty() || flag.split(',').any(refused)) {
        return Err(Error::invalid(field, format!("mount flag number {} is not allowed", at + 1)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csi::proto::csi::v1::volume_capability::{AccessMode, BlockVolume, MountVolume};
    use tonic::Code;

    fn mount(mode: Mode, fs_type: &str, flags: &[&str]) -> VolumeCapability {
        let mount_flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let volume = MountVolume { fs_type: fs_type.into(), mount_flags, ..Default::default() };
        VolumeCapability {
            access_mode: Some(AccessMode { mode: mode.into() }),
            access_type: Some(AccessType::Mount(volume)),
        }
    }

    fn refused(capability: &VolumeCapability) -> String {
        let error = Usage::require(Some(capability)).unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        error.to_string()
    }

    #[test]
    fn needs_every_part() {
        assert!(matches!(Usage::require(None), Err(Error::Missing("volume_capability"))));
        let whole = mount(Mode::SingleNodeWriter, "", &[]);
        refused(&VolumeCapability { access_mode: None, ..whole.clone() });
        refused(&VolumeCapability { access_type: None, ..whole });
        refused(&mount(Mode::Unknown, "", &[]));
        assert!(matches!(Usage::require_all(&[]), Err(Error::Missing("volume_capabilities"))));
    }

    #[test]
    fn a_mode_of_a_newer_protocol_is_refused() {
        let mut capability = mount(Mode::SingleNodeWriter, "", &[]);
        capability.access_mode = Some(AccessMode { mode: 99 });
        refused(&capability);
    }

    #[test]
    fn file_systems_are_for_one_writing_node() {
        for mode in [Mode::MultiNodeMultiWriter, Mode::MultiNodeSingleWriter] {
            refused(&mount(mode, "ext4", &[]));
            let block = VolumeCapability {
                access_mode: Some(AccessMode { mode: mode.into() }),
                access_type: Some(AccessType::Block(BlockVolume {})),
            };
            assert!(Usage::require(Some(&block)).is_ok());
        }
        assert!(Usage::require(Some(&mount(Mode::MultiNodeReaderOnly, "xfs", &[]))).is_ok());
        refused(&mount(Mode::SingleNodeWriter, "btrfs", &[]));
    }

    #[test]
    fn flags_are_checked_and_never_repeated() {
        for flag in ["bind", "noatime,remount", "X-mount.mkdir", "offset=4096", ""] {
            let text = refused(&mount(Mode::SingleNodeWriter, "", &["noatime", flag]));
            assert!(text.contains("number 2") && (flag.is_empty() || !text.contains(flag)), "{text}");
        }
        let usage = Usage::require(Some(&mount(Mode::SingleNodeWriter, "", &["password=x"]))).unwrap();
        assert!(!format!("{usage:?}").contains("password"));
    }

    #[test]
    fn the_digest_tells_flags_apart() {
        let digest = |flags: &[&str]| {
            Usage::require(Some(&mount(Mode::SingleNodeWriter, "", flags))).unwrap().flags_digest()
        };
        assert_ne!(digest(&["a", "b"]), digest(&["ab"]));
        assert_ne!(digest(&["a", "b"]), digest(&["b", "a"]));
        assert_eq!(digest(&["a"]), digest(&["a"]));
    }

    #[test]
    fn which_modes_share() {
        assert!(Mode::SingleNodeMultiWriter.allows_several_targets());
        assert!(Mode::MultiNodeReaderOnly.allows_several_targets());
        assert!(!Mode::SingleNodeWriter.allows_several_targets());
        assert!(!Mode::SingleNodeSingleWriter.allows_several_targets());
        assert!(Mode::MultiNodeReaderOnly.is_reader_only() && !Mode::MultiNodeSingleWriter.is_reader_only());
    }
}
