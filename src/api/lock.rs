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

/// Name of the VolumeHandle for a volume as its driver knows it.
#[must_use]
pub fn handle_name(driver: &str, handle: &str) -> String {
    name_of("handle", &[driver, handle])
}

/// Name of the Attachment for one handle on one node: one per handle for single-node modes, one per
/// handle and node for the others. Creating it is the grant.
#[must_use]
pub fn attachment_name(driver: &str, handle: &str, mode: AccessMode, node: &str) -> String {
    if mode.is_multi_node() {
        name_of("multi-node", &[driver, handle, node])
    } else {
        name_of("single-node", &[driver, handle])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_node_mode_has_one_name_for_all_nodes() {
        let on = |node| attachment_name("d", "h", AccessMode::SingleNodeWriter, node);
        assert_eq!(on("node-1"), on("node-2"));
        assert_eq!(on("node-1").len(), 52);
    }

    #[test]
    fn a_multi_node_mode_has_a_name_per_node() {
        let on = |node| attachment_name("d", "h", AccessMode::MultiNodeReader, node);
        assert_ne!(on("node-1"), on("node-2"));
        assert_ne!(on("node-1"), attachment_name("d", "h", AccessMode::SingleNodeReader, "node-1"));
    }

    #[test]
    fn parts_cannot_run_into_each_other() {
        assert_ne!(handle_name("ab", "c"), handle_name("a", "bc"));
    }
}
