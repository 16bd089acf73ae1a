//! What a plugin can do, as sets; and what is asked of a volume, as CSI's VolumeCapability.

use std::collections::BTreeSet;

use super::proto::csi::v1 as wire;
use super::proto::csi::v1::volume_capability::{AccessType, BlockVolume, MountVolume, access_mode::Mode};
use crate::api::capability::{AccessMode, AttachmentMode};

/// Capabilities of the controller service (CSI ControllerGetCapabilities).
pub use wire::controller_service_capability::rpc::Type as ControllerCapability;
/// Capabilities of the group controller service (CSI GroupControllerGetCapabilities).
pub use wire::group_controller_service_capability::rpc::Type as GroupCapability;
/// Capabilities of the node service (CSI NodeGetCapabilities).
pub use wire::node_service_capability::rpc::Type as NodeCapability;
/// Capabilities of the plugin as a whole (CSI GetPluginCapabilities).
pub use wire::plugin_capability::service::Type as PluginService;
/// When a volume can be enlarged (CSI GetPluginCapabilities).
pub use wire::plugin_capability::volume_expansion::Type as Expansion;

/// The capabilities that a driver has and this version of moor knows, in the protocol's order. What a newer driver has
/// beyond them is not for us and is left out without an error; so is UNKNOWN, the protocol's zero.
pub(super) fn known<T: TryFrom<i32> + Default + Ord>(numbers: impl IntoIterator<Item = i32>) -> BTreeSet<T> {
    numbers.into_iter().filter_map(|number| T::try_from(number).ok()).filter(|t| *t != T::default()).collect()
}

/// What GetPluginCapabilities says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginCapabilities {
    /// The services and whether topology matters.
    pub services: BTreeSet<PluginService>,
    /// When volumes can be enlarged; empty if the driver does not say.
    pub expansion: BTreeSet<Expansion>,
}

impl PluginCapabilities {
    pub(super) fn from_wire(capabilities: &[wire::PluginCapability]) -> Self {
        use wire::plugin_capability::Type;
        let kinds = || capabilities.iter().filter_map(|capability| capability.r#type.as_ref());
        Self {
            services: known(kinds().filter_map(|kind| match kind {
                Type::Service(service) => Some(service.r#type),
                Type::VolumeExpansion(_) => None,
            })),
            expansion: known(kinds().filter_map(|kind| match kind {
                Type::VolumeExpansion(expansion) => Some(expansion.r#type),
                Type::Service(_) => None,
            })),
        }
    }
}

/// Which of CSI's single-node writer modes a service takes. Older drivers know only SINGLE_NODE_WRITER, whose meaning
/// for several consumers on the node the spec leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SingleNode {
    /// Only SINGLE_NODE_WRITER.
    WriterOnly,
    /// SINGLE_NODE_SINGLE_WRITER and SINGLE_NODE_MULTI_WRITER (the capability SINGLE_NODE_MULTI_WRITER).
    SingleAndMulti,
}

impl SingleNode {
    /// Which modes may be sent to a controller service.
    #[must_use]
    pub fn of(service: &BTreeSet<ControllerCapability>) -> Self {
        let has = service.contains(&ControllerCapability::SingleNodeMultiWriter);
        if has { Self::SingleAndMulti } else { Self::WriterOnly }
    }
}

/// The mode as it is sent. A driver without the newer modes gets SINGLE_NODE_WRITER for all three; that only one claim
/// uses the volume is then kept by moor alone (rule R5).
#[must_use]
pub fn mode(mode: AccessMode, single_node: SingleNode) -> Mode {
    match (mode, single_node) {
        (AccessMode::SingleNodeReader, _) => Mode::SingleNodeReaderOnly,
        (AccessMode::MultiNodeReader, _) => Mode::MultiNodeReaderOnly,
        (AccessMode::MultiNodeSingleWriter, _) => Mode::MultiNodeSingleWriter,
        (AccessMode::MultiNodeMultiWriter, _) => Mode::MultiNodeMultiWriter,
        (AccessMode::SingleNodeSingleWriter, SingleNode::SingleAndMulti) => Mode::SingleNodeSingleWriter,
        (AccessMode::SingleNodeWriter | AccessMode::SingleNodeMultiWriter, SingleNode::SingleAndMulti) => {
            Mode::SingleNodeMultiWriter
        }
        (
            AccessMode::SingleNodeWriter
            | AccessMode::SingleNodeSingleWriter
            | AccessMode::SingleNodeMultiWriter,
            SingleNode::WriterOnly,
        ) => Mode::SingleNodeWriter,
    }
}

/// The capability as it is sent. File system and flags say nothing about a raw device and are left out for one.
#[must_use]
pub fn to_proto(
    access_mode: AccessMode,
    attachment_mode: AttachmentMode,
    fs_type: Option<&str>,
    mount_flags: &[String],
    single_node: SingleNode,
) -> wire::VolumeCapability {
    let access_type = match attachment_mode {
        AttachmentMode::BlockDevice => AccessType::Block(BlockVolume {}),
        AttachmentMode::FileSystem => AccessType::Mount(MountVolume {
            fs_type: fs_type.unwrap_or_default().to_owned(),
            mount_flags: mount_flags.to_vec(),
            ..MountVolume::default()
        }),
    };
    let mode = mode(access_mode, single_node).into();
    wire::VolumeCapability {
        access_type: Some(access_type),
        access_mode: Some(wire::volume_capability::AccessMode { mode }),
    }
}

/// The capability for a group that the driver gives the volume to (the node capability VOLUME_MOUNT_GROUP). A raw device has
/// none.
#[must_use]
pub fn for_group(mut capability: wire::VolumeCapability, group: &str) -> wire::VolumeCapability {
    if let Some(AccessType::Mount(mount)) = &mut capability.access_type {
        group.clone_into(&mut mount.volume_mount_group);
    }
    capability
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capability_from_a_newer_protocol_is_left_out() {
        let known = known::<ControllerCapability>([1, 0, 2, 9999, -1]);
        let names: Vec<_> = known.iter().map(ControllerCapability::as_str_name).collect();
        assert_eq!(names, ["CREATE_DELETE_VOLUME", "PUBLISH_UNPUBLISH_VOLUME"]);
    }

    #[test]
    fn plugin_capabilities_are_sorted_by_kind() {
        use wire::plugin_capability::{Service, Type, VolumeExpansion};
        let of = |kind| wire::PluginCapability { r#type: Some(kind) };
        let capabilities = PluginCapabilities::from_wire(&[
            of(Type::Service(Service { r#type: 1 })),
            of(Type::VolumeExpansion(VolumeExpansion { r#type: 1 })),
            of(Type::Service(Service { r#type: 77 })),
            wire::PluginCapability { r#type: None },
        ]);
        assert!(capabilities.services.contains(&PluginService::ControllerService));
        assert!(!capabilities.services.contains(&PluginService::VolumeAccessibilityConstraints));
        assert!(capabilities.expansion.contains(&Expansion::Online));
    }

    /// Each use has its own words on the wire, with the newer modes and without; there is no default that another one falls back to.
    #[test]
    fn every_use_is_sent_in_its_own_words() {
        let flags = ["noatime".to_owned()];
        let expected = [
            (AccessMode::SingleNodeReader, Mode::SingleNodeReaderOnly, Mode::SingleNodeReaderOnly),
            (AccessMode::SingleNodeWriter, Mode::SingleNodeMultiWriter, Mode::SingleNodeWriter),
            (AccessMode::SingleNodeSingleWriter, Mode::SingleNodeSingleWriter, Mode::SingleNodeWriter),
            (AccessMode::SingleNodeMultiWriter, Mode::SingleNodeMultiWriter, Mode::SingleNodeWriter),
            (AccessMode::MultiNodeReader, Mode::MultiNodeReaderOnly, Mode::MultiNodeReaderOnly),
            (AccessMode::MultiNodeSingleWriter, Mode::MultiNodeSingleWriter, Mode::MultiNodeSingleWriter),
            (AccessMode::MultiNodeMultiWriter, Mode::MultiNodeMultiWriter, Mode::MultiNodeMultiWriter),
        ];
        assert_eq!(expected.map(|(access, ..)| access), AccessMode::ALL);
        let mount =
            MountVolume { fs_type: "xfs".into(), mount_flags: flags.to_vec(), ..MountVolume::default() };
        let types = [
            (AttachmentMode::FileSystem, AccessType::Mount(mount)),
            (AttachmentMode::BlockDevice, AccessType::Block(BlockVolume {})),
        ];
        for (access, newer, older) in expected {
            for (attachment, access_type) in &types {
                for (single, sent) in [(SingleNode::SingleAndMulti, newer), (SingleNode::WriterOnly, older)] {
                    let found = to_proto(access, *attachment, Some("xfs"), &flags, single);
                    let mode = wire::volume_capability::AccessMode { mode: sent.into() };
                    let access_type = Some(access_type.clone());
                    assert_eq!(found, wire::VolumeCapability { access_type, access_mode: Some(mode) });
                }
            }
        }
    }

    #[test]
    fn single_node_writer_is_sent_as_multi_writer_where_the_driver_has_it() {
        let with = SingleNode::of(&BTreeSet::from([ControllerCapability::SingleNodeMultiWriter]));
        assert_eq!(mode(AccessMode::SingleNodeWriter, with), Mode::SingleNodeMultiWriter);
        assert_eq!(mode(AccessMode::SingleNodeSingleWriter, with), Mode::SingleNodeSingleWriter);
    }

    #[test]
    fn an_older_driver_never_sees_the_newer_modes() {
        let without = SingleNode::of(&BTreeSet::new());
        for access in AccessMode::ALL {
            let sent = mode(access, without);
            assert!(!matches!(sent, Mode::SingleNodeMultiWriter | Mode::SingleNodeSingleWriter), "{access}");
            assert_ne!(sent, Mode::Unknown);
        }
    }

    #[test]
    fn a_raw_device_carries_no_mount_options() {
        let flags = ["noatime".to_owned()];
        let sent = to_proto(
            AccessMode::SingleNodeWriter,
            AttachmentMode::BlockDevice,
            Some("ext4"),
            &flags,
            SingleNode::WriterOnly,
        );
        assert_eq!(sent.access_type, Some(AccessType::Block(BlockVolume {})));
    }
}
