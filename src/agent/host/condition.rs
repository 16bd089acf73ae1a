//! How what is mounted at a path is: whether it is there, answers, takes writes, and how full it is.
//!
//! Whoever asks a file system is on its mount until that answers, and nobody can unmount it meanwhile. A file system of this
//! machine answers at once, and one in user space whose server has ended does, too. One across the network may not answer for
//! as long as its server is away, and then it could not even be given up: such a one is asked by its driver alone.

use std::io;
use std::path::Path;

use rustix::io::Errno;

use super::error::HostError;
use super::mounts::{self, KERNEL, TABLE};
use super::paths::HostPath;
use super::usage::{self, Usage};
use crate::mount_table::{Mount, Writes};

/// File systems of this machine whose device numbers are not those of a block device.
const LOCAL: [&str; 6] = ["tmpfs", "ramfs", "btrfs", "bcachefs", "zfs", "overlay"];
/// File systems that never take writes.
const READ_ONLY: [&str; 4] = ["squashfs", "iso9660", "erofs", "cramfs"];
/// What the kernel says where nothing is behind a mount any more.
const STALE: [Errno; 9] = [
    Errno::NOTCONN,
    Errno::CONNABORTED,
    Errno::STALE,
    Errno::IO,
    Errno::NXIO,
    Errno::NODEV,
    Errno::HOSTDOWN,
    Errno::SHUTDOWN,
    Errno::NOMEDIUM,
];

/// How something is that was mounted.
#[derive(Debug)]
pub(crate) enum Condition {
    /// Nothing is mounted.
    NotMounted,
    /// Nothing is behind it any more; in words.
    Stale(String),
    /// It does not answer.
    Hangs,
    /// It could not be asked.
    Unseen(HostError),
    /// It is there.
    There {
        /// The file system takes no writes.
        read_only: bool,
        /// How full it is; nothing where only its driver is asked.
        usage: Option<Usage>,
    },
}

/// How the file system is that is mounted at `path`.
pub(crate) async fn of_file_system(path: &HostPath) -> Condition {
    let at = path.clone();
    let read = move |_: &Path| mounts::in_table(at.as_path());
    let mount = match KERNEL.at(&HostPath::recorded(TABLE), read).await {
        Ok(Some(mount)) => mount,
        Ok(None) => return Condition::NotMounted,
        Err(error) => return Condition::Unseen(error),
    };
    if mount.writes == Writes::ShutDown {
        return Condition::Stale("the kernel has shut the file system down after an error".to_owned());
    }
    let read_only = mount.writes == Writes::Refused && !READ_ONLY.contains(&mount.kind.as_str());
    if !answers(&mount) {
        return Condition::There { read_only, usage: None };
    }
    match usage::of_file_system(path).await {
        Ok(usage) => Condition::There { read_only, usage: Some(usage) },
        Err(HostError::Hangs(_)) => Condition::Hangs,
        Err(HostError::Usage(failed)) if is_stale(&failed.source) => {
            Condition::Stale(failed.source.to_string())
        }
        Err(error) => Condition::Unseen(error),
    }
}

/// How the raw device is that is published at `path`, and its size in bytes.
pub(crate) async fn of_device(path: &HostPath) -> (Condition, Option<u64>) {
    let device = match mounts::look(path).await {
        Ok(Some(device)) => device,
        Ok(None) => return (Condition::NotMounted, None),
        Err(error) => return (Condition::Unseen(error), None),
    };
    let stale = |words: &str| (Condition::Stale(words.to_owned()), None);
    match usage::of_device(path, device.text()).await {
        Ok(0) => stale("nothing is behind its block device any more"),
        Ok(size) => (Condition::There { read_only: false, usage: None }, Some(size)),
        Err(HostError::Usage(failed)) if failed.source.kind() == io::ErrorKind::NotFound => {
            stale("its block device is gone from the node")
        }
        Err(error) => (Condition::Unseen(error), None),
    }
}

/// Whether the file system answers for itself, or says at once that it cannot.
fn answers(mount: &Mount) -> bool {
    let is_on_disk = !mount.device.starts_with("0:");
    is_on_disk || mount.kind.starts_with("fuse") || LOCAL.contains(&mount.kind.as_str())
}

fn is_stale(error: &io::Error) -> bool {
    Errno::from_io_error(error).is_some_and(|errno| STALE.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount_table::Table;

    #[test]
    fn nobody_but_the_driver_asks_across_the_network() {
        let table = Table::read(
            "1 0 8:1 / /a rw - ext4 /dev/sda1 rw\n2 0 0:9 / /b rw - nfs4 server:/x rw\n\
             3 0 0:8 / /c rw - fuse.sshfs x rw\n4 0 0:7 / /d rw - tmpfs none rw\n5 0 0:6 / /e rw - ceph x rw\n",
        );
        let asked: Vec<bool> = table.all().iter().map(answers).collect();
        assert_eq!(asked, [true, false, true, true, false]);
    }

    #[tokio::test]
    async fn a_directory_is_no_mount() {
        let dir = tempfile::tempdir().unwrap();
        let path = HostPath::recorded(dir.path().to_str().unwrap());
        assert!(matches!(of_file_system(&path).await, Condition::NotMounted));
        assert!(matches!(of_device(&path).await, (Condition::NotMounted, None)));
        let root = HostPath::recorded("/proc");
        assert!(
            matches!(of_file_system(&root).await, Condition::There { usage: None, .. }),
            "asked by nobody"
        );
    }

    #[test]
    fn the_kernels_words_for_what_is_gone_are_known() {
        assert!(is_stale(&io::Error::from_raw_os_error(Errno::NOTCONN.raw_os_error())));
        assert!(!is_stale(&io::Error::from_raw_os_error(Errno::ACCESS.raw_os_error())));
        assert!(!is_stale(&io::Error::other("words")));
    }
}
