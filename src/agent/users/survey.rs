//! The mount namespaces of this machine, as far as the processes in them can be seen.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::agent::mount_table::{Mount, Place, Table};

/// What processes see that share a mount namespace and a root directory. The kernel shows to each only what it can
/// reach.
#[derive(Debug)]
pub(super) struct Space {
    /// The kernel's name of the namespace.
    pub namespace: PathBuf,
    /// The oldest of its processes.
    pub process: i32,
    /// Its mount table.
    pub table: Table,
}

impl Space {
    /// Whether a mount of the table is mounted on one of these, by whatever way they are reached here.
    pub fn has_at(&self, mount: &Mount, places: &[Place]) -> bool {
        self.table.place_of(mount).is_some_and(|place| places.contains(&place))
    }

    /// Whether a mount of the table is mounted somewhere in one of these directories.
    pub fn has_within(&self, mount: &Mount, places: &[Place]) -> bool {
        let within = |place: Place| places.iter().any(|folder| place.is_within(folder));
        self.table.place_of(mount).is_some_and(within)
    }
}

/// Looks into all of them. `proc` is /proc.
pub(super) fn take(proc: &Path) -> io::Result<Vec<Space>> {
    let mut known: BTreeMap<(PathBuf, PathBuf), Option<Space>> = BTreeMap::new();
    for process in processes(proc)? {
        // One that has ended meanwhile, or may not be looked at.
        let Some(namespace) = namespace(proc, process) else { continue };
        let root = fs::read_link(proc.join(process.to_string()).join("root")).unwrap_or_default();
        let seen = known.entry((namespace.clone(), root)).or_default();
        if seen.is_none()
            && let Ok(table) = fs::read(proc.join(process.to_string()).join("mountinfo"))
        {
            // A path that is no text must not hide the others.
            let table = Table::read(&String::from_utf8_lossy(&table));
            *seen = Some(Space { namespace, process, table });
        }
    }
    Ok(known.into_values().flatten().collect())
}

/// Numbers of all processes, in their order.
pub(super) fn processes(proc: &Path) -> io::Result<Vec<i32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(proc)? {
        found.extend(entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()));
    }
    found.sort_unstable();
    Ok(found)
}

/// The mount namespace of a process.
pub(super) fn namespace(proc: &Path, process: i32) -> Option<PathBuf> {
    fs::read_link(proc.join(process.to_string()).join("ns/mnt")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_namespace_is_among_them() {
        let mine = fs::read_link("/proc/self/ns/mnt").unwrap();
        let found = take(Path::new("/proc")).unwrap();
        let own = found.iter().find(|space| space.namespace == mine).unwrap();
        assert!(!own.table.at(Path::new("/proc")).is_empty());
    }
}
