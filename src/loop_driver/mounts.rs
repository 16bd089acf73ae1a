//! The mount table, and bind mounts.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, mount_remount,
    unmount as unmount_once,
};

use super::error::Error;
use crate::mount_table::{Mount, Table, text_of};

const TABLE: &str = "/proc/self/mountinfo";

/// What is mounted, from this process's point of view.
pub(super) fn table() -> Result<Table, Error> {
    let bytes = fs::read(TABLE).map_err(Error::io("read", Path::new(TABLE)))?;
    Ok(Table::read(&text_of(&bytes)))
}

/// What is mounted at `path`; of several over each other, the one that is seen.
pub(super) fn at(path: &Path) -> Result<Option<Mount>, Error> {
    Ok(table()?.at(path).pop().cloned())
}

/// The path in a field of a request, as the mount table names it: every link on the way is resolved, but not the last part,
/// which may not exist or may be what is mounted on.
pub(super) fn resolve(field: &'static str, path: &str) -> Result<PathBuf, Error> {
    let path = Path::new(path);
    if !path.is_absolute() {
        return Err(Error::invalid(field, "must be an absolute path"));
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Error::invalid(field, "must name something below the root directory"));
    };
    // Nothing can be mounted below a directory that is not there; the caller finds out where it matters.
    Ok(fs::canonicalize(parent).map_or_else(|_| path.to_owned(), |parent| parent.join(name)))
}

/// Shows `source` at `target` as well.
pub(super) fn bind(source: &Path, target: &Path) -> Result<(), Error> {
    mount_bind(source, target).map_err(Error::io("bind mount", target))
}

/// Shows `source` at `target` as well, in such a way that nobody can write there.
///
/// Making a mount read-only changes it in one mount namespace; the copies that propagation has made of it stay as they
/// were, so the consumer outside this container could write. Hence it is made read-only where nothing propagates, and
/// only then shown at the target: what is propagated is the finished mount.
pub(super) fn bind_read_only(source: &Path, target: &Path) -> Result<(), Error> {
    let apart = Apart::make()?;
    let made = apart.path.join("mount");
    fs::create_dir(&made).map_err(Error::io("make", &made))?;
    bind(source, &made)?;
    // A remount replaces all of a mount's flags, so those that it has must be said again.
    let kept = at(&made)?.map_or(MountFlags::empty(), |mount| mount.flags());
    let flags = MountFlags::BIND | MountFlags::RDONLY | kept;
    let result = mount_remount(&made, flags, c"")
        .map_err(Error::io("remount read-only", &made))
        .and_then(|()| bind(&made, target));
    unmount(&made)?;
    result
}

/// A directory in which mounts are seen by this mount namespace only. It goes when this is dropped.
struct Apart {
    path: PathBuf,
}

impl Apart {
    fn make() -> Result<Self, Error> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = Path::new("/run").join(format!("moor-loop.{}.{number}", std::process::id()));
        fs::create_dir(&path).map_err(Error::io("make", &path))?;
        let apart = Self { path };
        // Only a mount has a propagation of its own.
        mount(c"moor-loop", &apart.path, c"tmpfs", MountFlags::empty(), c"mode=700")
            .map_err(Error::io("mount tmpfs", &apart.path))?;
        mount_change(&apart.path, MountPropagationFlags::PRIVATE)
            .map_err(Error::io("make private", &apart.path))?;
        Ok(apart)
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        // Whatever is left here is seen by nobody and ends with this mount namespace.
        let _ = unmount(&self.path);
        let _ = fs::remove_dir(&self.path);
    }
}

/// Takes away everything that is mounted at `path`. A mount that is in use stays, and that is an error: a lazy unmount would
/// only hide that somebody still writes.
pub(super) fn unmount(path: &Path) -> Result<(), Error> {
    while at(path)?.is_some() {
        unmount_once(path, UnmountFlags::NOFOLLOW).map_err(|errno| match errno {
            Errno::BUSY => Error::Busy {
                what: format!("the mount at {}", path.display()),
                reason: "a process has a file or its working directory there",
            },
            errno => Error::io("unmount", path)(errno),
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_real_table_has_a_root() {
        assert!(at(Path::new("/")).unwrap().is_some());
    }

    #[test]
    fn resolves_links_on_the_way_only() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap().join("real");
        fs::create_dir(&real).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let resolved = resolve("target_path", link.join("x").to_str().unwrap()).unwrap();
        assert_eq!(resolved, real.join("x"));
        assert!(resolve("target_path", "relative/x").is_err());
        assert!(resolve("target_path", "/").is_err());
    }
}
