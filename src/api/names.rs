//! Names that are made of a node's name: those of its PluginInstances and of its agent's Lease.
//!
//! The admission policies of the chart compare them, so both have a form that a policy can check: the node's whole name
//! and, for an instance, the hash of its driver. Where that would be longer than a name may be, the beginning of the node's
//! name and a hash that stands for the whole of it. A policy cannot compute the hash, so of two nodes with such names and
//! one beginning it cannot tell which is meant; whoever reads an instance can, and does.

use std::collections::BTreeMap;

use super::lock::name_of;

/// Longest name of an object.
const LONGEST: usize = 253;
/// Characters of a whole hash.
const HASH: usize = 52;
/// Characters of a driver's hash behind the whole name of a node.
const DRIVER: usize = 12;
/// What the names of the agents' Leases begin with.
pub const AGENTS: &str = "moor-agent-";

/// The driver by which a Pod names a Volume of its namespace itself, in spec.volumes[].csi. No driver of any Plugin.
pub const INLINE: &str = "moor.dev";
/// The attribute by which it does.
pub const INLINE_VOLUME: &str = "volume";

/// What the names of Volumes begin with that are made of PersistentVolumes.
const IMPORTED: &str = "pv-";
/// What the names of CSIStorageCapacity objects begin with, as those of external-provisioner do.
const CAPACITIES: &str = "csisc-";

/// What the names of Snapshots begin with that are made for VolumeSnapshotContents.
const OF_CONTENT: &str = "content-";

/// What the names of PersistentVolumes begin with by which Volumes are exported.
const EXPORTED: &str = "moor-";

/// The name by which a driver recognises a repetition of CreateVolume or CreateSnapshot: what the object says, else one that is made
/// of its UID.
#[must_use]
pub fn create_name(said: Option<&str>, uid: Option<&str>) -> String {
    said.map_or_else(|| format!("moor-{}", uid.unwrap_or_default()), str::to_owned)
}

/// A driver on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverOn<'a> {
    /// Name of the driver.
    pub driver: &'a str,
    /// Name of the node.
    pub node: &'a str,
}

/// Name of the PluginInstance of a driver on a node: the same before and after every restart, so that work assigned to
/// it stays assigned.
#[must_use]
pub fn instance_name(DriverOn { driver, node }: DriverOn<'_>) -> String {
    if node.len() + 1 + DRIVER > LONGEST {
        return beginning(node, LONGEST - HASH) + &name_of("plugin-instance", &[node, driver]);
    }
    let hash = name_of("handle", &["plugin-instance", driver]);
    format!("{node}-{}", hash.get(..DRIVER).unwrap_or(&hash))
}

/// Name of the Lease of an agent (its node's name, for the agent of a node).
#[must_use]
pub fn agent_lease_name(agent: &str) -> String {
    if AGENTS.len() + agent.len() > LONGEST {
        let rest = LONGEST - HASH - AGENTS.len();
        return format!("{AGENTS}{}{}", beginning(agent, rest), name_of("agent-lease", &[agent]));
    }
    format!("{AGENTS}{agent}")
}

/// The agent whose Lease has this name; None of another Lease, and of one whose name may stand for a longer one.
#[must_use]
pub fn agent_of_lease(name: &str) -> Option<&str> {
    name.strip_prefix(AGENTS).filter(|_| name.len() < LONGEST)
}

/// Name of the Volume that the controller makes of a PersistentVolume when a Pod first asks for it.
#[must_use]
pub fn imported_volume(handle_name: &str) -> String {
    format!("{IMPORTED}{handle_name}")
}

/// The name of the VolumeHandle of a Volume that has such a name; None of any other.
#[must_use]
pub fn handle_of_import(volume: &str) -> Option<&str> {
    volume.strip_prefix(IMPORTED).filter(|handle| handle.len() == HASH)
}

/// Name of the PersistentVolume by which a Volume is exported. Nobody can know it before the Volume is there.
#[must_use]
pub fn export(volume_uid: &str) -> String {
    format!("{EXPORTED}{volume_uid}")
}

/// Name of the Snapshot that is made for the VolumeSnapshotContent with this UID.
#[must_use]
pub fn snapshot_of_content(content_uid: &str) -> String {
    format!("{OF_CONTENT}{content_uid}")
}

/// UID of the Volume that a PersistentVolume of such a name would be the export of; None of any other name.
#[must_use]
pub fn exported_by(persistent_volume: &str) -> Option<&str> {
    persistent_volume.strip_prefix(EXPORTED)
}

/// Name of the CSIStorageCapacity object that says how much room a driver has for volumes of a StorageClass in a place. It
/// says everything that cannot be changed in the object, so that a class that was made anew gets another one.
#[must_use]
pub fn capacity_name(driver: &str, class_uid: &str, segments: &BTreeMap<String, String>) -> String {
    let place = segments.iter().flat_map(|(key, value)| [key.as_str(), value.as_str()]);
    let parts: Vec<_> = [driver, class_uid].into_iter().chain(place).collect();
    format!("{CAPACITIES}{}", name_of("storage-capacity", &parts))
}

/// Whether an object may have this name: what the schema lets through for one.
#[must_use]
pub fn is_object_name(name: &str) -> bool {
    name.len() <= LONGEST && name.split('.').all(is_part)
}

/// Whether a namespace may have this name.
#[must_use]
pub fn is_namespace_name(name: &str) -> bool {
    name.len() <= 63 && is_part(name)
}

fn is_part(part: &str) -> bool {
    let is_end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    part.starts_with(is_end) && part.ends_with(is_end) && part.chars().all(|c| is_end(c) || c == '-')
}

/// The names of nodes are ASCII.
fn beginning(name: &str, most: usize) -> String {
    name.chars().take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(node: &str, driver: &str) -> String {
        instance_name(DriverOn { driver, node })
    }

    #[test]
    fn an_instance_is_named_after_node_and_driver() {
        let name = instance("node-1", "loop.moor.dev");
        assert!(name.starts_with("node-1-") && name.len() == "node-1-".len() + 12, "{name}");
        assert_eq!(name, instance("node-1", "loop.moor.dev"));
        assert_ne!(name, instance("node-1", "other"));
        assert_ne!(name, instance("node-2", "loop.moor.dev"));
    }

    #[test]
    fn a_lease_is_named_after_its_agent() {
        assert_eq!(agent_lease_name("node-1"), "moor-agent-node-1");
        assert_eq!(agent_of_lease("moor-agent-node-1"), Some("node-1"));
        assert_eq!(agent_of_lease("moor-controller"), None);
    }

    #[test]
    fn an_object_is_named_as_the_api_server_takes_it() {
        let longest = "n".repeat(253);
        for name in ["a", "0", "data-0", "a.b-c.0", "a--b", longest.as_str()] {
            assert!(is_object_name(name), "{name}");
        }
        let longer = "n".repeat(254);
        for name in
            ["", "-", "-a", "a-", "a..b", ".a", "a.", "a.-b", "A", "a_b", "a/b", "é", "a b", longer.as_str()]
        {
            assert!(!is_object_name(name), "{name}");
        }
    }

    /// A Node's name may be as long as any name.
    #[test]
    fn the_longest_names_of_nodes_have_names_that_fit_and_differ() {
        for length in 200..=253 {
            let (one, other) = ("n".repeat(length), "n".repeat(length - 1) + "m");
            let names = [
                (instance(&one, "d"), instance(&other, "d")),
                (instance(&one, "e"), instance(&one, "d")),
                (agent_lease_name(&one), agent_lease_name(&other)),
            ];
            for (a, b) in names {
                assert!(a.len() <= 253 && a != b, "{length}: {a} {b}");
            }
            let lease = agent_lease_name(&one);
            assert!(agent_of_lease(&lease).is_none_or(|agent| agent == one), "{length}");
        }
    }
}
