//! Names that are locks: an Attachment's and a VolumeHandle's.
//!
//! A name is a full SHA-256 over length-prefixed parts, so no two different tuples can meet, written in
//! 52 characters of lowercase base32hex, which fits a DNS label.

use data_encoding::BASE32_DNSSEC;
use sha2::{Digest, Sha256};

use super::capability::AccessMode;

pub(super) fn name_of(form: &str, parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in std::iter::once(&form).chain(parts) {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    BASE32_DNSSEC.encode(&hash.finalize())
}

/// A volume as its driver knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverVolume<'a> {
    /// Name of the driver.
    pub driver: &'a str,
    /// The id by which the driver knows the volume.
    pub handle: &'a str,
}

/// Name of the VolumeHandle for a volume as its driver knows it.
#[must_use]
pub fn handle_name(DriverVolume { driver, handle }: DriverVolume<'_>) -> String {
    name_of("handle", &[driver, handle])
}

/// Name of the Attachment for one volume on one node: one per volume for single-node modes, one per
/// volume and node for the others. Creating it is the grant.
#[must_use]
pub fn attachment_name(volume: DriverVolume<'_>, mode: AccessMode, node: &str) -> String {
    let DriverVolume { driver, handle } = volume;
    if mode.is_multi_node() {
        name_of("multi-node", &[driver, handle, node])
    } else {
        name_of("single-node", &[driver, handle])
    }
}

/// Name of the socket on which kubelet is served a driver.
#[must_use]
pub fn socket_name(driver: &str) -> String {
    let mut name = name_of("kubelet-socket", &[driver]);
    name.truncate(16);
    name
}

/// What tells the claims of one Pod apart: the driver as kubelet knows it, the volume, and the path at which kubelet wants
/// it. 80 bits in 16 characters.
#[must_use]
pub fn pod_claim_hash(driver: &str, handle: &str, target: &str) -> String {
    let mut name = name_of("pod-claim", &[driver, handle, target]);
    name.truncate(16);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: DriverVolume<'_> = DriverVolume { driver: "d", handle: "h" };

    #[test]
    fn a_single_node_mode_has_one_name_for_all_nodes() {
        let on = |node| attachment_name(VOLUME, AccessMode::SingleNodeWriter, node);
        assert_eq!(on("node-1"), on("node-2"));
        assert_eq!(on("node-1").len(), 52);
    }

    #[test]
    fn a_multi_node_mode_has_a_name_per_node() {
        let on = |node| attachment_name(VOLUME, AccessMode::MultiNodeReader, node);
        assert_ne!(on("node-1"), on("node-2"));
        assert_ne!(on("node-1"), attachment_name(VOLUME, AccessMode::SingleNodeReader, "node-1"));
    }

    #[test]
    fn parts_cannot_run_into_each_other() {
        let name = |driver, handle| handle_name(DriverVolume { driver, handle });
        assert_ne!(name("ab", "c"), name("a", "bc"));
    }
}
