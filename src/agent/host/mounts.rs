//! What is mounted at a path on this node.
//!
//! The kernel is asked about one path at a time (statx), which costs the same with ten mounts and with ten thousand.
//! Where it cannot say, /proc/self/mountinfo is read whole.

use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::fs::{AtFlags, CWD, FileType, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use super::bounded::{Bounded, GivenUp, PATIENCE};
use super::directories;
use super::paths::HostPath;
use crate::mount_table::{Mount, Table};

pub(crate) const TABLE: &str = "/proc/self/mountinfo";
/// A folder per block device, by its number.
const DEVICES: &str = "/sys/dev/block";

/// Looks, at mounts whose file system may be dead.
static LOOKS: Bounded = Bounded::new(128);
/// Unmounts. The kernel does not ask a file system to let go of its mount, but whoever takes off the last one may have to
/// wait for its end.
static UNMOUNTS: Bounded = Bounded::new(128);
/// Questions to the kernel alone, which no mounted file system can keep it from answering.
static KERNEL: Bounded = Bounded::new(32);

/// File systems without anything behind them that could die. The node of a raw device is on one.
const IN_MEMORY: [&str; 3] = ["devtmpfs", "tmpfs", "ramfs"];
/// File systems whose files are of other device numbers than the table of mounts has.
const NUMBERED_APART: [&str; 4] = ["btrfs", "bcachefs", "ceph", "overlay"];

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
        "look what is mounted at {path}: as many looks at other paths hang as may, the file systems behind them may be \
         dead; bring those back, or unmount them and restart moor's agent on the node"
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
/// kernel's table all the same, and so is one that cannot be asked because as many others as may do not answer.
pub async fn look(path: &HostPath) -> Result<Option<Device>, MountError> {
    look_by(&LOOKS, path).await
}

async fn look_by(looks: &'static Bounded, path: &HostPath) -> Result<Option<Device>, MountError> {
    match run(looks, path, look_now).await {
        Err(MountError::Hangs { .. }) => {
            let path = path.clone();
            ask_kernel(&HostPath::recorded(TABLE), move |_| look_in_table(path.as_path())).await
        }
        Err(error @ MountError::OthersHang { .. }) => match may_hang(path).await? {
            // By its number it would not be known again.
            Some(mount) if NUMBERED_APART.contains(&mount.kind.as_str()) => Err(error),
            Some(mount) => Ok(Some(Device(mount.device))),
            None => run(&directories::BOUND, path, look_now).await,
        },
        answered => answered,
    }
}

/// Whether a raw device is at `path`. What cannot be looked at is a file system whose server is dead.
pub(crate) async fn is_device(path: &HostPath) -> Result<bool, MountError> {
    match bounded(path, |path| Ok(is_device_now(path))).await {
        Err(MountError::Hangs { .. }) => Ok(false),
        Err(MountError::OthersHang { .. }) => match may_hang(path).await? {
            Some(_) => Ok(false),
            None => run(&directories::BOUND, path, |path| Ok(is_device_now(path))).await,
        },
        answered => answered,
    }
}

fn is_device_now(path: &Path) -> bool {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let found = rustix::fs::statx(CWD, path, flags, StatxFlags::TYPE);
    found.is_ok_and(|found| FileType::from_raw_mode(found.stx_mode.into()) == FileType::BlockDevice)
}

/// The mount at `path` if a look there may hang, by the kernel's table; nothing where nothing is mounted, or what is in
/// memory only.
async fn may_hang(path: &HostPath) -> Result<Option<Mount>, MountError> {
    let path = path.clone();
    let read = move |_: &Path| {
        let found = read_table(path.as_path())?.at(path.as_path()).pop().cloned();
        Ok(found.filter(|mount| !IN_MEMORY.contains(&mount.kind.as_str())))
    };
    ask_kernel(&HostPath::recorded(TABLE), read).await
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
    // A look that hangs there is no reason not to try.
    unmounting(path, move |path| match unmount(path, how | UnmountFlags::NOFOLLOW) {
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
    run(&LOOKS, path, work).await
}

/// As [`bounded`], for what unmounts: looks that hang do not stop it.
pub(crate) async fn unmounting<T: Send + 'static>(
    path: &HostPath,
    work: impl FnOnce(&Path) -> Result<T, MountError> + Send + 'static,
) -> Result<T, MountError> {
    run(&UNMOUNTS, path, work).await
}

/// As [`bounded`], for what the kernel knows by itself and says in files of its own, such as `path`: looks that hang do not
/// stop it.
pub(crate) async fn ask_kernel<T: Send + 'static>(
    path: &HostPath,
    work: impl FnOnce(&Path) -> Result<T, MountError> + Send + 'static,
) -> Result<T, MountError> {
    run(&KERNEL, path, work).await
}

async fn run<T: Send + 'static>(
    bound: &'static Bounded,
    path: &HostPath,
    work: impl FnOnce(&Path) -> Result<T, MountError> + Send + 'static,
) -> Result<T, MountError> {
    let done = bound.run(path.as_path(), work).await;
    let path = || path.as_path().to_owned();
    done.unwrap_or_else(|given_up| {
        Err(match given_up {
            GivenUp::Hangs => MountError::Hangs { path: path() },
            GivenUp::OthersHang => MountError::OthersHang { path: path() },
            GivenUp::Ended(ended) => MountError::Look { path: path(), source: io::Error::other(ended) },
        })
    })
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

/// The device of the topmost mount at exactly `path` in the kernel's table.
fn look_in_table(path: &Path) -> Result<Option<Device>, MountError> {
    Ok(read_table(path)?.at(path).pop().map(|mount| Device(mount.device.clone())))
}

/// The table of mounts, to find `path` in it.
fn read_table(path: &Path) -> Result<Table, MountError> {
    let table = fs::read(TABLE).map_err(|source| MountError::Look { path: path.to_owned(), source })?;
    // Somebody else's path may be anything.
    Ok(Table::read(&String::from_utf8_lossy(&table)))
}

#[cfg(test)]
#[path = "mounts_tests.rs"]
pub(crate) mod tests;
