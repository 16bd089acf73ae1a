//! Claims and Attachments as the caches hold them, for the tests of the controller.

use super::key::{Key, VolumeKey};
use crate::api::attachment::{AttachmentSpec, Fixed};
use crate::api::claim::VolumeClaimSpec;
use crate::api::{Attachment, VolumeClaim};

/// The pass over a Volume.
pub(super) fn key_of(namespace: &str, name: &str) -> Key {
    Key::Volume(VolumeKey { namespace: namespace.into(), name: name.into() })
}

/// A claim on the Volume of this name.
pub(super) fn claim(namespace: &str, name: &str, volume: &str) -> VolumeClaim {
    let spec = VolumeClaimSpec { volume_name: volume.into(), ..VolumeClaimSpec::default() };
    let mut claim = VolumeClaim::new(name, spec);
    claim.metadata.namespace = Some(namespace.into());
    claim.metadata.uid = Some(format!("{namespace}-{name}"));
    claim.metadata.resource_version = Some("1".into());
    claim
}

/// An Attachment of some volume of the driver to the node.
pub(super) fn attachment(name: &str, driver: &str, node: &str) -> Attachment {
    let fixed = Fixed { driver_name: driver.into(), ..Fixed::default() };
    let spec = AttachmentSpec { node_name: node.into(), fixed, ..AttachmentSpec::default() };
    let mut attachment = Attachment::new(name, spec);
    attachment.metadata.uid = Some(name.into());
    attachment.metadata.resource_version = Some("1".into());
    attachment
}
