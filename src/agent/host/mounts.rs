//! What is mounted at a path on this node.
//!
//! The kernel is asked about one path at a time (statx), which costs the same with ten mounts and with ten thousand.
//! Where it cannot say, /proc/self/mountinfo is read whole.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use std::{fs, io};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, CWD, FileType, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use tokio::sync::Semaphore;

use super::paths::HostPath;
use crate::mount_table::Table;

pub(crate) const TABLE: &str = "/proc/self/mountinfo";
/// A folder per block device, by its number.
const DEVICES: &str = "/sys/dev/block";

/// Longest wait for the kernel. A look at a dead network mount may never return.
const PATIENCE: Duration = Duration::from_secs(10);

/// Looks at a time, each of which takes a thread. One that hangs gives its place back when it is given up, so that others
/// go on; its thread stays.
static LOOKS: Semaphore = Semaphore::const_new(16);

/// Looks and other work at paths that were given up and have not come back, by number.
static GIVEN_UP: Mutex<BTreeMap<u64, (Work, PathBuf)>> = Mutex::new(BTreeMap::new());
/// Most of them. The runtime has 512 threads for such work, and records are written by them too.
const MOST_GIVEN_UP: usize = 128;

/// A kind of work at a path. Where one kind hangs another may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Look,
    Unmount,
}

/// The device behind a mount or a device file, as it is recorded and compared (rule R8). Opaque.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device(String);

impl Device {
    /// To be recorded.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }

    fn new(major: u32, minor: u32) -> Self {
        Self(format!("{major}:{minor}"))
    }

    /// A raw device. The kernel gives numbers again once a device is free, so its own count of disks is added where
    /// there is one: a loop device that was detached and attached to another file is another device (trap B12).
    fn raw(devices: &Path, major: u32, minor: u32) -> Self {
        let device = devices.join(format!("{major}:{minor}"));
        let sequence = fs::read_to_string(device.join("diskseq"))
            .or_else(|_| fs::read_to_string(device.join("../diskseq")));
        match sequence {
            Ok(sequence) => Self(format!("{major}:{minor}#{}", sequence.trim())),
            Err(_) => Self::new(major, minor),
        }
    }
}

/// The block device with this `major:minor`, with the kernel's count of disks; nothing if there is none.
pub(crate) fn disk(number: &str) -> Option<String> {
    let (major, minor) = number_of(number)?;
    let devices = Path::new(DEVICES);
    devices.join(number).exists().then(|| Device::raw(devices, major, minor).0)
}

/// The kernel's folder of what [`disk`] or a look at a raw device has given. Of the same number it may be another disk.
pub(crate) fn folder_of(device: &str) -> Option<HostPath> {
    let (major, minor) = number_of(device.split('#').next()?)?;
    Some(HostPath::recorded(&format!("{DEVICES}/{major}:{minor}")))
}

/// The `major` and `minor` of what [`disk`] or a look at a raw device has given, if it is still the same disk.
pub(crate) fn same_disk(device: &str) -> Option<(u32, u32)> {
    let number = device.split('#').next()?;
    (disk(number)? == device).then(|| number_of(number))?
}

/// The two parts of a `major:minor`.
pub(crate) fn number_of(number: &str) -> Option<(u32, u32)> {
    let (major, minor) = number.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// A look at or a change of the mounts of this node failed.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The path cannot be looked at.
    #[error("look what is mounted at {path}: {source}")]
    Look {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The kernel did not answer in time.
    #[error("look what is mounted at {path}: no answer in {} s, the file system behind it may be dead", PATIENCE.as_secs())]
    Hangs {
        /// The path.
        path: PathBuf,
    },
    /// Looks at other paths hang, as many as may.
    #[error(
        "look what is mounted at {path}: {MOST_GIVEN_UP} looks at other paths hang, the file systems behind them may be dead"
    )]
    OthersHang {
        /// The path.
        path: PathBuf,
    },
    /// A device does not say whether it is in use.
    #[error("ask whether a device is in use, by {path}: {source}")]
    Device {
        /// The file by which it was asked.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The node's mount namespace cannot be entered.
    #[error(
        "enter the mount namespace of the node, {namespace}: {source}; the agent has to be privileged, with hostPID"
    )]
    Enter {
        /// The file that stands for it.
        namespace: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The flags of a mount cannot be set or are not seen.
    #[error("set the flags of the mount at {path} on the node: {source}")]
    Flags {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The read-only mount of an earlier version cannot be taken off.
    #[error("unmount the read-only mount at {path}: {source}")]
    Uncover {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Unmounting without the driver failed (rule R4).
    #[error("unmount {path}: {source}")]
    Unmount {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl MountError {
    /// Whether the kernel refused to unmount because somebody uses the mount.
    #[must_use]
    pub fn says_busy(&self) -> bool {
        matches!(self, Self::Unmount { source, .. } if source.kind() == io::ErrorKind::ResourceBusy)
    }
}

/// What is mounted, or which raw device is, at `path`; nothing if neither. A file system that does not answer is in the
/// kernel's table all the same.
pub async fn look(path: &HostPath) -> Result<Option<Device>, MountError> {
    match bounded(path, look_now).await {
        Err(MountError::Hangs { .. }) => {
            let path = path.clone();
            bounded(&HostPath::recorded(TABLE), move |_| look_in_table(path.as_path())).await
        }
        answered => answered,
    }
}

/// Whether a raw device is at `path`. What cannot be looked at is a file system whose server is dead.
pub(crate) async fn is_device(path: &HostPath) -> Result<bool, MountError> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let look = move |path: &Path| {
        let found = rustix::fs::statx(CWD, path, flags, StatxFlags::TYPE);
        Ok(found.is_ok_and(|found| FileType::from_raw_mode(found.stx_mode.into()) == FileType::BlockDevice))
    };
    match bounded(path, look).await {
        Err(MountError::Hangs { .. }) => Ok(false),
        answered => answered,
    }
}

/// Whether the raw device at `path` takes writes, by the kernel's own word. A device that it does not know is not said to.
pub async fn is_writable_device(path: &HostPath) -> Result<bool, MountError> {
    bounded(path, |path| match rustix::fs::stat(path) {
        Ok(found) => {
            let number = found.st_rdev;
            let device = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
            let flag = fs::read_to_string(Path::new(DEVICES).join(device).join("ro"));
            Ok(flag.is_ok_and(|flag| flag.trim() == "0"))
        }
        Err(errno) => Err(MountError::Look { path: path.to_owned(), source: errno.into() }),
    })
    .await
}

/// Unmounts what is mounted at `path`: unless the kernel says that somebody uses it, or at once (MNT_DETACH), and then
/// whoever has a file open there is in no table any more. Nothing mounted there is success.
pub async fn take_off(path: &HostPath, busy_too: bool) -> Result<(), MountError> {
    let how = if busy_too { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    // A look that hangs there is no reason not to try: the kernel does not ask the file system to let go of its mount.
    bounded_for(Work::Unmount, path, move |path| match unmount(path, how | UnmountFlags::NOFOLLOW) {
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(errno) => Err(MountError::Unmount { path: path.to_owned(), source: errno.into() }),
    })
    .await
}

/// Looks at `path` on a thread of its own, and gives up when no answer comes.
pub(crate) async fn bounded<T: Send + 'static>(
    path: &HostPath,
    work: impl FnOnce(&Path) -> Result<T, MountError> + Send + 'static,
) -> Result<T, MountError> {
    bounded_for(Work::Look, path, work).await
}

async fn bounded_for<T: Send + 'static>(
    kind: Work,
    path: &HostPath,
    work: impl FnOnce(&Path) -> Result<T, MountError> + Send + 'static,
) -> Result<T, MountError> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let path = path.as_path().to_owned();
    let inner = path.clone();
    // Never closed, so there is always a permit to wait for.
    let _permit = LOOKS.acquire().await.ok();
    {
        let given_up = GIVEN_UP.lock();
        if given_up.values().any(|(of, hanging)| *of == kind && *hanging == path) {
            // No second thread goes where one has not come back from.
            return Err(MountError::Hangs { path });
        }
        if given_up.len() >= MOST_GIVEN_UP {
            return Err(MountError::OthersHang { path });
        }
    }
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let ended = Arc::new(AtomicBool::new(false));
    let end = ended.clone();
    let task = tokio::task::spawn_blocking(move || {
        let result = work(&inner);
        let mut given_up = GIVEN_UP.lock();
        end.store(true, Ordering::Relaxed);
        given_up.remove(&number);
        result
    });
    match tokio::time::timeout(PATIENCE, task).await {
        Ok(Ok(result)) => result,
        Ok(Err(ended)) => Err(MountError::Look { path, source: io::Error::other(ended) }),
        Err(_) => {
            let mut given_up = GIVEN_UP.lock();
            // Under the lock: it may have come back in this moment.
            if !ended.load(Ordering::Relaxed) {
                given_up.insert(number, (kind, path.clone()));
            }
            Err(MountError::Hangs { path })
        }
    }
}

fn look_now(path: &Path) -> Result<Option<Device>, MountError> {
    // DONT_SYNC: cached attributes are enough, and a network file system is not waited for.
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    match rustix::fs::statx(CWD, path, flags, StatxFlags::BASIC_STATS) {
        Ok(found) => {
            if FileType::from_raw_mode(found.stx_mode.into()) == FileType::BlockDevice {
                let devices = Path::new(DEVICES);
                return Ok(Some(Device::raw(devices, found.stx_rdev_major, found.stx_rdev_minor)));
            }
            if found.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
                let mounted = found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
                return Ok(mounted.then(|| Device::new(found.stx_dev_major, found.stx_dev_minor)));
            }
            look_in_table(path)
        }
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        // For example a FUSE mount whose server died: it is mounted and cannot be looked at.
        Err(_) => look_in_table(path),
    }
}

fn look_in_table(path: &Path) -> Result<Option<Device>, MountError> {
    let table =
        fs::read_to_string(TABLE).map_err(|source| MountError::Look { path: path.to_owned(), source })?;
    Ok(find(&table, path))
}

/// The device of the topmost mount at exactly `path` in the text of a mountinfo file.
fn find(table: &str, path: &Path) -> Option<Device> {
    Table::read(table).at(path).pop().map(|mount| Device(mount.device.clone()))
}

#[cfg(test)]
#[path = "mounts_tests.rs"]
pub(crate) mod tests;
