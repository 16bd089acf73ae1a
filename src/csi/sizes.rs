//! CSI's size limits, checked before a call because a driver may cut or refuse what is longer (CSI "Size Limits"). What
//! a driver has answered is not held to them: to refuse it would be to forget what its undo needs. What it answers about
//! its node is: no undo needs that.

use std::collections::BTreeMap;

use super::proto::csi::v1::volume_capability::AccessType;
use super::proto::csi::v1::{CapacityRange, VolumeCapability};
use super::redact::mount_flags;
use super::rpc::Rpc;

/// Bytes in a string for which the spec says nothing else: volume ids, names, file system types.
pub const STRING_LIMIT: usize = 128;
/// Bytes of keys and values together in a map.
pub const MAP_LIMIT: usize = 4096;
/// Bytes of all mount flags together.
pub const MOUNT_FLAGS_LIMIT: usize = 4096;
/// Bytes in a node id.
pub const NODE_ID_LIMIT: usize = 256;
/// Segments in a topology that can be kept: the schema's bound for a PluginInstance.
pub const TOPOLOGY_SEGMENTS: usize = 64;
/// Bytes of a key or a value in such a topology.
pub const TOPOLOGY_TEXT: usize = 4096;
/// Bytes in a path. The spec leaves it to the operating system; this is PATH_MAX with its closing NUL.
pub const PATH_LIMIT: usize = 4095;
/// Characters in a plugin's name.
pub const PLUGIN_NAME_LIMIT: usize = 63;

/// A value that CSI does not allow in this field, in words. Names the field and never the value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SizeError(pub(super) String);

/// An optional string of at most 128 bytes.
pub fn text(field: &'static str, value: &str) -> Result<(), SizeError> {
    limited(field, value.len(), STRING_LIMIT)
}

/// A required volume or snapshot id. Of any length: drivers give longer ones than CSI's 128 bytes, and what a driver gave
/// is what its other calls, the undo above all, have to name.
pub fn id(field: &'static str, value: &str) -> Result<(), SizeError> {
    required(field, value)
}

/// A required name that we give, at most 128 bytes and without control characters (CSI CreateVolume).
pub fn name(field: &'static str, value: &str) -> Result<(), SizeError> {
    required(field, value)?;
    text(field, value)?;
    refuse_if(value.chars().any(char::is_control), || format!("{field} has control characters"))
}

/// A required node id of at most 256 bytes (CSI NodeGetInfo).
pub fn node_id(value: &str) -> Result<(), SizeError> {
    required("node_id", value)?;
    limited("node_id", value.len(), NODE_ID_LIMIT)
}

/// The segments of a place, as many and as long as a PluginInstance has room for: one that does not fit would have all of
/// its status refused, and with it that its driver is ill, or gone. The schema bounds values only, and a key is as long as
/// it likes.
pub fn topology(segments: &BTreeMap<String, String>) -> Result<(), SizeError> {
    const FIELD: &str = "accessible_topology";
    refuse_if(segments.len() > TOPOLOGY_SEGMENTS, || {
        format!("{FIELD} has {} segments, a PluginInstance takes {TOPOLOGY_SEGMENTS}", segments.len())
    })?;
    let longest = segments.iter().map(|(key, value)| key.len().max(value.len())).max().unwrap_or(0);
    refuse_if(longest > TOPOLOGY_TEXT, || {
        format!("{FIELD} has a key or a value of {longest} bytes, a PluginInstance takes {TOPOLOGY_TEXT}")
    })
}

/// A map that we give, of at most 4 KiB. Contexts are the driver's own and handed on as they came.
pub fn map(field: &'static str, map: &BTreeMap<String, String>) -> Result<(), SizeError> {
    limited(field, map.iter().map(|(key, value)| key.len() + value.len()).sum(), MAP_LIMIT)
}

/// A required absolute path.
pub fn path(field: &'static str, value: &str) -> Result<(), SizeError> {
    required(field, value)?;
    limited(field, value.len(), PATH_LIMIT)?;
    let leads_elsewhere =
        !value.starts_with('/') || value.contains('\0') || value.split('/').any(|part| part == "..");
    refuse_if(leads_elsewhere, || format!("{field} is not an absolute path without '..' and NUL"))
}

/// An absolute path, or none.
pub fn optional_path(field: &'static str, value: &str) -> Result<(), SizeError> {
    if value.is_empty() { Ok(()) } else { path(field, value) }
}

/// A plugin's name: labels of letters, digits and inner dashes, parted by dots (CSI GetPluginInfo).
pub fn plugin_name(value: &str) -> Result<(), SizeError> {
    let is_label = |label: &str| {
        let alphanumeric = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        alphanumeric(label.chars().next())
            && alphanumeric(label.chars().next_back())
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    refuse_if(value.len() > PLUGIN_NAME_LIMIT || !value.split('.').all(is_label), || {
        format!("the plugin name is not a domain name of at most {PLUGIN_NAME_LIMIT} characters")
    })
}

/// A required volume capability, complete and within its limits (CSI VolumeCapability).
pub fn capability(capability: &VolumeCapability) -> Result<(), SizeError> {
    let (Some(access), Some(_)) = (&capability.access_type, &capability.access_mode) else {
        return Err(SizeError("volume_capability names no access type or no access mode".to_owned()));
    };
    limited("mount_flags", mount_flags(capability).iter().map(String::len).sum(), MOUNT_FLAGS_LIMIT)?;
    if let AccessType::Mount(mount) = access {
        text("fs_type", &mount.fs_type)?;
        text("volume_mount_group", &mount.volume_mount_group)?;
    }
    Ok(())
}

/// A required list of capabilities.
pub fn capabilities(capabilities: &[VolumeCapability]) -> Result<(), SizeError> {
    refuse_if(capabilities.is_empty(), || "volume_capabilities is empty".to_owned())?;
    capabilities.iter().try_for_each(capability)
}

/// How large a volume is to be, or nothing (CSI CapacityRange).
pub fn range(range: Option<&CapacityRange>) -> Result<(), SizeError> {
    let Some(&CapacityRange { required_bytes, limit_bytes }) = range else { return Ok(()) };
    refuse_if(required_bytes < 0 || limit_bytes < 0, || "capacity_range has a negative size".to_owned())?;
    refuse_if(required_bytes == 0 && limit_bytes == 0, || "capacity_range names no size".to_owned())?;
    refuse_if(limit_bytes > 0 && limit_bytes < required_bytes, || {
        format!("capacity_range wants at least {required_bytes} bytes and at most {limit_bytes}")
    })
}

/// Says of an answer that it is larger than CSI allows. It is kept all the same.
pub(super) fn tell_of_answer(rpc: Rpc, check: Result<(), SizeError>) {
    if let Err(error) = check {
        tracing::warn!(%rpc, "the driver's answer is kept although {error}");
    }
}

fn required(field: &'static str, value: &str) -> Result<(), SizeError> {
    refuse_if(value.is_empty(), || format!("{field} is empty"))
}

fn limited(field: &'static str, bytes: usize, limit: usize) -> Result<(), SizeError> {
    refuse_if(bytes > limit, || format!("{field} has {bytes} bytes, CSI allows {limit}"))
}

fn refuse_if(wrong: bool, what: impl FnOnce() -> String) -> Result<(), SizeError> {
    if wrong { Err(SizeError(what())) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::super::proto::csi::v1::volume_capability::{AccessMode, MountVolume};
    use super::*;

    #[test]
    fn a_volume_id_is_as_long_as_its_driver_made_it() {
        assert_eq!(id("volume_id", &"x".repeat(1024)), Ok(()));
        assert_eq!(id("volume_id", ""), Err(SizeError("volume_id is empty".to_owned())));
    }

    #[test]
    fn a_name_has_at_most_128_bytes() {
        assert_eq!(name("name", &"x".repeat(128)), Ok(()));
        let error = name("name", &"x".repeat(129)).unwrap_err();
        assert_eq!(error.to_string(), "name has 129 bytes, CSI allows 128");
    }

    #[test]
    fn a_node_id_has_at_most_256_bytes() {
        assert_eq!(node_id(&"n".repeat(256)), Ok(()));
        assert!(node_id(&"n".repeat(257)).is_err());
    }

    #[test]
    fn a_map_counts_keys_and_values_together() {
        let fits = BTreeMap::from([("k".repeat(96), "v".repeat(4000))]);
        assert_eq!(map("volume_context", &fits), Ok(()));
        let over = BTreeMap::from([("k".repeat(97), "v".repeat(4000))]);
        let error = map("secrets", &over).unwrap_err();
        assert_eq!(error.to_string(), "secrets has 4097 bytes, CSI allows 4096");
    }

    #[test]
    fn a_path_longer_than_128_bytes_is_allowed() {
        assert_eq!(path("target_path", &format!("/{}", "p".repeat(300))), Ok(()));
        assert!(path("target_path", &format!("/{}", "p".repeat(5000))).is_err());
    }

    #[test]
    fn a_path_that_leads_elsewhere_is_refused() {
        for bad in ["relative", "/a/../b", "/a\0b", "/.."] {
            assert!(path("target_path", bad).is_err(), "{bad:?}");
        }
        assert_eq!(path("target_path", "/a/..b/c"), Ok(()));
    }

    #[test]
    fn a_plugin_name_is_a_domain_name() {
        for good in ["ebs.csi.aws.com", "a", "loop.moor.dev", "x-1.y"] {
            assert_eq!(plugin_name(good), Ok(()), "{good}");
        }
        for bad in ["", ".", "a..b", "-a.b", "a-.b", "a_b", "a/b", &"a".repeat(64)] {
            let error = plugin_name(bad).unwrap_err();
            assert_eq!(
                error.to_string(),
                "the plugin name is not a domain name of at most 63 characters",
                "{bad}"
            );
        }
    }

    #[test]
    fn mount_flags_have_at_most_4_kib_together() {
        let with = |flags: Vec<String>| VolumeCapability {
            access_type: Some(AccessType::Mount(MountVolume {
                mount_flags: flags,
                ..MountVolume::default()
            })),
            access_mode: Some(AccessMode::default()),
        };
        assert_eq!(capability(&with(vec!["f".repeat(2048); 2])), Ok(()));
        assert!(capability(&with(vec!["f".repeat(2049); 2])).is_err());
        assert!(capability(&VolumeCapability::default()).is_err());
    }

    #[test]
    fn a_size_that_contradicts_itself_is_refused() {
        let of = |required_bytes, limit_bytes| range(Some(&CapacityRange { required_bytes, limit_bytes }));
        assert_eq!(range(None), Ok(()));
        for (required, limit) in [(1, 0), (1, 1), (0, 1), (i64::MAX, 0)] {
            assert_eq!(of(required, limit), Ok(()), "{required} to {limit}");
        }
        for (required, limit) in [(0, 0), (-1, 0), (0, -1), (2, 1)] {
            assert!(of(required, limit).is_err(), "{required} to {limit}");
        }
    }

    #[test]
    fn a_name_has_no_control_characters() {
        assert!(name("name", "moor-\u{7}").is_err());
        assert_eq!(name("name", "moor-1"), Ok(()));
    }
}
