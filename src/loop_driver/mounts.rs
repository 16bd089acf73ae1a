//! The mount table, and bind mounts.

use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, mount_remount,
    unmount as unmount_once,
};

use super::error::Error;

const TABLE: &str = "/proc/self/mountinfo";

/// One line of mountinfo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    /// Major and minor of the mounted file system's device.
    pub(super) device: (u32, u32),
    /// Where it is mounted.
    pub(super) point: PathBuf,
    /// Options of this mount, not of the file system.
    options: Vec<String>,
}

impl Mount {
    pub(super) fn is_read_only(&self) -> bool {
        self.options.iter().any(|option| option == "ro")
    }
}

/// What is mounted, from this process's point of view.
pub(super) fn table() -> Result<Vec<Mount>, Error> {
    let bytes = fs::read(TABLE).map_err(Error::io("read", Path::new(TABLE)))?;
    Ok(bytes.split(|byte| *byte == b'\n').filter_map(parse_line).collect())
}

/// What is mounted at `path`; of several over each other, the one that is seen.
pub(super) fn at(path: &Path) -> Result<Option<Mount>, Error> {
    Ok(table()?.into_iter().rev().find(|mount| mount.point == path))
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = std::str::from_utf8(fields.nth(2)?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let point = PathBuf::from(std::ffi::OsString::from_vec(unescape(fields.nth(1)?)));
    let options = std::str::from_utf8(fields.next()?).ok()?.split(',').map(str::to_owned).collect();
    Some(Mount { device: (major.parse().ok()?, minor.parse().ok()?), point, options })
}

/// The kernel writes blanks and backslashes as three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let escaped = (first == b'\\').then(|| tail.get(..3)).flatten();
        let value = escaped.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        if let Some(value) = value {
            plain.push(value);
            rest = &tail[3..];
        } else {
            plain.push(first);
            rest = tail;
        }
    }
    plain
}

/// `path` as the mount table names it: every link on the way resolved, but not the last part, which may not exist or may
/// be what is mounted on.
pub(super) fn resolve(field: &'static str, path: &str) -> Result<PathBuf, Error> {
    let path = Path::new(path);
    if !path.is_absolute() {
        return Err(Error::invalid(field, "must be an absolute path"));
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Error::invalid(field, "must name something below the root directory"));
    };
    match fs::canonicalize(parent) {
        Ok(parent) => Ok(parent.join(name)),
        // Nothing can be mounted below a directory that is not there; the caller finds out where it matters.
        Err(_) => Ok(path.to_owned()),
    }
}

/// Shows `source` at `target` as well.
pub(super) fn bind(source: &Path, target: &Path) -> Result<(), Error> {
    mount_bind(source, target).map_err(|errno| Error::io("bind mount", target)(errno.into()))
}

/// Shows `source` at `target` as well, where it refuses writes.
///
/// Making a mount read-only changes it in one mount namespace; the copies that propagation has made of it stay as they
/// were, so the consumer outside this container could write. Hence it is made read-only where nothing propagates, and
/// only then shown at the target: what is propagated is the finished mount.
pub(super) fn bind_read_only(source: &Path, target: &Path) -> Result<(), Error> {
    let apart = Apart::make()?;
    let made = apart.path.join("mount");
    fs::create_dir(&made).map_err(Error::io("make", &made))?;
    bind(source, &made)?;
    let bound = at(&made)?.map(|mount| mount.options).unwrap_or_default();
    let flags = MountFlags::BIND | MountFlags::RDONLY | kept_flags(&bound);
    let result = mount_remount(&made, flags, c"")
        .map_err(|errno| Error::io("remount read-only", &made)(errno.into()))
        .and_then(|()| bind(&made, target));
    unmount(&made)?;
    result
}

/// A directory in which mounts are seen by this mount namespace only. Gone when it is dropped.
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
            .map_err(|errno| Error::io("mount tmpfs", &apart.path)(errno.into()))?;
        mount_change(&apart.path, MountPropagationFlags::PRIVATE)
            .map_err(|errno| Error::io("make private", &apart.path)(errno.into()))?;
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

/// A remount replaces all of a mount's flags, so those that it has must be said again.
fn kept_flags(options: &[String]) -> MountFlags {
    let flag = |option: &String| match option.as_str() {
        "nosuid" => MountFlags::NOSUID,
        "nodev" => MountFlags::NODEV,
        "noexec" => MountFlags::NOEXEC,
        "noatime" => MountFlags::NOATIME,
        "nodiratime" => MountFlags::NODIRATIME,
        "relatime" => MountFlags::RELATIME,
        _ => MountFlags::empty(),
    };
    options.iter().map(flag).fold(MountFlags::empty(), |all, one| all | one)
}

/// Takes away everything that is mounted at `path`. Never lazily: a mount that is in use stays, and that is an error.
pub(super) fn unmount(path: &Path) -> Result<(), Error> {
    while at(path)?.is_some() {
        match unmount_once(path, UnmountFlags::NOFOLLOW) {
            Ok(()) => {}
            Err(Errno::BUSY) => {
                let what = format!("the mount at {}", String::from_utf8_lossy(path.as_os_str().as_bytes()));
                return Err(Error::Busy {
                    what,
                    reason: "a process has a file or its working directory there",
                });
            }
            Err(errno) => return Err(Error::io("unmount", path)(errno.into())),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_line() {
        let line = br"36 35 7:2 / /mnt/with\040blank\134 ro,nosuid,relatime shared:1 - ext4 /dev/loop2 ro";
        let mount = parse_line(line).unwrap();
        assert_eq!(mount.device, (7, 2));
        assert_eq!(mount.point, Path::new("/mnt/with blank\\"));
        assert!(mount.is_read_only());
        assert_eq!(kept_flags(&mount.options), MountFlags::NOSUID | MountFlags::RELATIME);
        assert_eq!(parse_line(b""), None);
    }

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
