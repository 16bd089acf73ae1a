//! The mount namespaces of this machine, as far as the processes in them can be seen.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::mount_table::{Mount, Place, Table, text_of};

const NAMESPACE: &str = "ns/mnt";

/// A view of the mounts: what processes see that share a mount namespace and a root directory. The kernel shows to
/// each only what it can reach.
#[derive(Debug)]
pub(super) struct Space {
    /// The kernel's name of the namespace.
    pub namespace: PathBuf,
    /// The oldest process with this view.
    pub process: i32,
    /// The mount table of this view, as the kernel writes it.
    text: String,
    table: OnceLock<Table>,
}

impl Space {
    pub fn new(namespace: PathBuf, process: i32, text: String) -> Self {
        Self { namespace, process, text, table: OnceLock::new() }
    }

    /// The mount table of this view. Of a hundred containers hardly one has anything of a volume, so most tables are never taken
    /// apart: see [`Self::shows_any`].
    pub fn table(&self) -> &Table {
        self.table.get_or_init(|| Table::read(&self.text))
    }

    /// Whether a mount of the table has such a device and root.
    pub fn shows_any(&self, is_one: impl Fn(&str, &str) -> bool) -> bool {
        !Table::read_those(&self.text, |device, root, _| is_one(device, root)).all().is_empty()
    }

    /// Whether a mount of the table is mounted on one of these, by whatever way they are reached here.
    pub fn has_at(&self, mount: &Mount, places: &[Place]) -> bool {
        self.table().place_of(mount).is_some_and(|place| places.contains(&place))
    }

    /// Whether a mount of the table is mounted somewhere in one of these directories.
    pub fn has_within(&self, mount: &Mount, places: &[Place]) -> bool {
        let within = |place: Place| places.iter().any(|folder| place.is_within(folder));
        self.table().place_of(mount).is_some_and(within)
    }
}

/// Reads the views of all processes. `proc` is /proc.
pub(super) fn take(proc: &Path) -> io::Result<Vec<Space>> {
    let mut known: BTreeMap<(PathBuf, PathBuf), Option<Space>> = BTreeMap::new();
    for process in processes(proc)? {
        let folder = folder_of(proc, process);
        // One that has ended meanwhile, or may not be looked at.
        let Ok(namespace) = fs::read_link(folder.join(NAMESPACE)) else { continue };
        let root = fs::read_link(folder.join("root")).unwrap_or_default();
        let seen = known.entry((namespace.clone(), root)).or_default();
        if seen.is_none()
            && let Ok(table) = fs::read(folder.join("mountinfo"))
        {
            *seen = Some(Space::new(namespace, process, text_of(&table).into_owned()));
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
    fs::read_link(folder_of(proc, process).join(NAMESPACE)).ok()
}

/// What the kernel shows of a process. Where the first thread has ended and others go on, it shows namespaces, mounts and
/// files with these alone.
pub(super) fn folder_of(proc: &Path, process: i32) -> PathBuf {
    let folder = proc.join(process.to_string());
    let lives = |folder: &PathBuf| fs::read_link(folder.join(NAMESPACE)).is_ok();
    if lives(&folder) {
        return folder;
    }
    let threads = fs::read_dir(folder.join("task")).into_iter().flatten().flatten();
    threads.map(|thread| thread.path()).find(lives).unwrap_or(folder)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::device;
    use super::*;

    /// A process of which only a second thread is left. The kernel shows nothing of it where its first one would be.
    fn without_its_first_thread(proc: &Path) {
        let thread = proc.join("7/task/8");
        for folder in ["ns", "fd", "fdinfo"] {
            fs::create_dir_all(thread.join(folder)).unwrap();
        }
        symlink("mnt:[4]", thread.join("ns/mnt")).unwrap();
        symlink("/", thread.join("root")).unwrap();
        symlink("/proc/self/exe", thread.join("fd/3")).unwrap();
        fs::write(thread.join("fdinfo/3"), "flags:\t0100002\nmnt_id:\t21\n").unwrap();
        fs::write(thread.join("mountinfo"), "5 1 8:1 /vol /data rw - ext4 /dev/sda1 rw\n").unwrap();
        fs::create_dir_all(proc.join("7/ns")).unwrap();
    }

    #[test]
    fn a_process_whose_first_thread_has_ended_is_seen() {
        let proc = tempfile::tempdir().unwrap();
        without_its_first_thread(proc.path());
        let found = take(proc.path()).unwrap();
        let seen: Vec<_> = found.iter().map(|space| (space.process, space.table().all().len())).collect();
        assert_eq!(seen, [(7, 1)]);
        let files = device::open_files(proc.path(), &[]).unwrap();
        assert_eq!(files.into_keys().collect::<Vec<_>>(), [21]);
        let of = rustix::fs::stat("/proc/self/exe").unwrap().st_dev;
        let of = (rustix::fs::major(of), rustix::fs::minor(of));
        assert_eq!(device::users_of_file_system(proc.path(), of).unwrap(), [7]);
    }

    #[test]
    fn our_own_namespace_is_among_them() {
        let mine = fs::read_link("/proc/self/ns/mnt").unwrap();
        let found = take(Path::new("/proc")).unwrap();
        let own = found.iter().find(|space| space.namespace == mine).unwrap();
        assert!(!own.table().at(Path::new("/proc")).is_empty());
    }
}
