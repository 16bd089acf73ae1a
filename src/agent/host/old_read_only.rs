//! Takes off the covers: read-only mounts that an earlier version of moor laid over the targets of read-only claims
//! (ADR 8).
//!
//! They have appeared on the staging path and on the targets of other claims too, wherever these are one peer group with
//! the one that was covered. A record that speaks of one may be of a process that was killed before it was laid, or after
//! it was taken off.

use std::io;
use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use super::error::HostError;
use super::mount_flags::{Wanted, as_mounted, let_write, set, table};
use super::mount_namespace::MountNamespace;
use super::mounts::UNMOUNTS;
use super::paths::HostPath;
use crate::agent::failed_at::failed_at;
use crate::mount_table::Table;

/// Most covers that one path can have: each read-only neighbour adds some.
const MOST: usize = 1000;

/// Where covers of one Attachment may lie, and what the places are without.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    /// Staging and all targets.
    pub all: Vec<HostPath>,
    /// Targets of claims that do not write.
    pub readers: Vec<HostPath>,
    /// Targets of claims that do. One that was bound from a covered staging path is read-only itself.
    pub writers: Vec<HostPath>,
}

/// Takes the covers off; one that is in use only by `force`. What is to be read-only is so by itself right after
/// that.
pub(crate) async fn lift(node: &MountNamespace, places: Places, force: bool) -> Result<(), HostError> {
    let Some(first) = places.all.first().cloned() else { return Ok(()) };
    let node = node.clone();
    UNMOUNTS.at(&first, move |_| node.run(|| lift_now(&places, force))).await
}

fn lift_now(places: &Places, force: bool) -> Result<(), HostError> {
    let failed = |path| failed_at(path, HostError::Uncover);
    let all = &mut places.all.iter();
    let uncovered = all.try_for_each(|path| uncover(path.as_path(), force).map_err(failed(path.as_path())));
    // Also where one is left somewhere: a reader's may be off.
    for path in places.readers.iter().filter(|path| is_mounted(path)) {
        set(path.as_path(), Wanted::by(&[], true)).map_err(failed(path.as_path()))?;
    }
    uncovered?;
    for path in places.writers.iter().filter(|path| is_mounted(path)) {
        let_write(path.as_path()).map_err(failed(path.as_path()))?;
    }
    Ok(())
}

fn is_mounted(path: &HostPath) -> bool {
    let found = as_mounted(path.as_path()).and_then(|at| Ok(table()?.at(&at).pop().is_some()));
    found.unwrap_or(false)
}

fn uncover(path: &Path, force: bool) -> io::Result<()> {
    let path = match as_mounted(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        path => path?,
    };
    let how = if force { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    for _ in 0..MOST {
        if !is_covered(&table()?, &path) {
            return Ok(());
        }
        match unmount(&path, how | UnmountFlags::NOFOLLOW) {
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Err(io::Error::other("there are always more of them"))
}

/// The topmost mount at `path` is a read-only one of what is mounted right below it. That one may be read-only too by
/// now.
fn is_covered(table: &Table, path: &Path) -> bool {
    let mut here = table.at(path);
    let (Some(top), Some(below)) = (here.pop(), here.pop()) else { return false };
    (&top.device, &top.root) == (&below.device, &below.root) && top.has("ro")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 22 7:1 / /a rw,nosuid shared:9 - ext4 /dev/loop1 rw
41 40 7:1 / /a ro,nosuid shared:9 - ext4 /dev/loop1 rw
42 22 7:1 / /b rw - ext4 /dev/loop1 rw
43 22 7:1 / /c ro - ext4 /dev/loop1 rw
44 43 7:1 / /c ro - ext4 /dev/loop1 rw
45 22 7:1 /one /d rw - ext4 /dev/loop1 rw
46 45 7:1 /two /d ro - ext4 /dev/loop1 rw
49 22 7:1 / /f ro - ext4 /dev/loop1 rw
47 22 7:1 / /e\\040e rw - ext4 /dev/loop1 rw
48 47 7:1 / /e\\040e ro - ext4 /dev/loop1 rw
";

    #[test]
    fn only_a_read_only_mount_over_one_of_the_same_is_a_cover() {
        let covered = |path: &str| is_covered(&Table::read(SAMPLE), Path::new(path));
        assert!(covered("/a") && covered("/c") && covered("/e e"));
        for other in ["/b", "/d", "/f", "/", "/nowhere"] {
            assert!(!covered(other), "{other}");
        }
    }
}
