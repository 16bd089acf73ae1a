//! A read-only mount over what a driver has mounted writable for a read-only claim.
//!
//! Most drivers bind first and make their mount read-only after that. The flag stays in the driver's mount namespace: the
//! node and everybody else has had a copy of the mount from before it (mount_namespaces(7)). Kubernetes leaves it to the
//! container runtime to make it read-only; here the claim's path is the product. A mount that has the flag when it is
//! attached takes it along, so the same tree is attached again, on top of the driver's own and at the same path:
//!
//! ```text
//! a thread in a mount namespace of its own: remount its copy of the target read-only, open_tree(OPEN_TREE_CLONE)
//! here: move_mount onto the target, from where it is copied to the node and to the driver
//! ```
//!
//! It is lifted before NodeUnpublishVolume: the driver finds its own mount.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::{fs, thread};

use nix::sched::{CloneFlags, unshare};
use rustix::fs::{CWD, StatVfsMountFlags};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount_change,
    mount_remount, move_mount, open_tree, unmount,
};

use super::mounts::{MountError, TABLE, bounded, mounts_at};
use super::paths::HostPath;

/// Covers what is mounted at `path`.
pub(super) async fn lay(path: &HostPath) -> Result<(), MountError> {
    bounded(path, |path| attach(path).map_err(|source| MountError::Cover { path: path.to_owned(), source }))
        .await
}

/// Takes the cover off, if there is one. Not while it is in use, but by `force`.
pub(super) async fn lift(path: &HostPath, force: bool) -> Result<(), MountError> {
    bounded(path, move |path| {
        let failed = |source| MountError::Uncover { path: path.to_owned(), source };
        if !is_covered(&fs::read_to_string(TABLE).map_err(failed)?, path) {
            return Ok(());
        }
        let how = if force { UnmountFlags::DETACH } else { UnmountFlags::empty() };
        match unmount(path, how | UnmountFlags::NOFOLLOW) {
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
            Err(errno) => Err(failed(errno.into())),
        }
    })
    .await
}

fn attach(path: &Path) -> io::Result<()> {
    // Its namespace ends with the thread.
    let tree = thread::scope(|scope| scope.spawn(|| read_only_copy(path)).join());
    let tree = tree.map_err(|_| io::Error::other("the thread that copies it has ended"))??;
    move_mount(&tree, "", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    Ok(())
}

fn read_only_copy(path: &Path) -> io::Result<OwnedFd> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    // What is unmounted elsewhere in this moment goes from here too.
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    mount_remount(path, MountFlags::BIND | MountFlags::RDONLY | flags_of(path)?, "")?;
    Ok(open_tree(CWD, path, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?)
}

/// The flags that a mount has: a remount takes away what it does not name.
fn flags_of(path: &Path) -> io::Result<MountFlags> {
    let found = rustix::fs::statvfs(path)?.f_flag;
    let known = [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ];
    let present = known.into_iter().filter(|(flag, _)| found.contains(*flag));
    Ok(present.fold(MountFlags::empty(), |all, (_, flag)| all | flag))
}

/// The topmost mount at `path` is a read-only one of what is mounted right below it. That one may be read-only too by
/// now: a new process has the node's copies, and the driver's own flag may be the node's.
fn is_covered(table: &str, path: &Path) -> bool {
    let mut from_the_top = mounts_at(table, path).rev();
    let (Some(top), Some(below)) = (from_the_top.next(), from_the_top.next()) else { return false };
    let same = (top.device, top.root) == (below.device, below.root);
    same && top.flags.split(',').any(|flag| flag == "ro")
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
        let covered = |path: &str| is_covered(SAMPLE, Path::new(path));
        assert!(covered("/a") && covered("/c") && covered("/e e"));
        for other in ["/b", "/d", "/f", "/", "/nowhere"] {
            assert!(!covered(other), "{other}");
        }
    }
}
