//! What is mounted at a path on this node.
//!
//! The kernel is asked about one path at a time (statx), which costs the same with ten mounts and with ten thousand.
//! Where it cannot say, /proc/self/mountinfo is read whole.

use std::path::Path;
use std::{fs, io};

use rustix::fs::{AtFlags, CWD, FileType, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use super::bounded::{Bounded, GivenUp};
use super::directories;
use super::error::HostError;
use super::paths::HostPath;
use crate::agent::failed_at::failed_at;
use crate::mount_table::{Mount, Table, text_of};

pub(crate) const TABLE: &str = "/proc/self/mountinfo";
/// A folder per block device, by its number.
pub(super) const DEVICES: &str = "/sys/dev/block";

/// Looks, at mounts whose file system may be dead.
pub(super) static LOOKS: Bounded = Bounded::new(128);
/// What unmounts, which looks that hang do not stop. The kernel does not ask a file system to let go of its mount, but whoever
/// takes off the last one may have to wait for its end.
pub(super) static UNMOUNTS: Bounded = Bounded::new(128);
/// Questions about what the kernel knows by itself and says in files of its own, which no mounted file system can keep it
/// from answering, and looks that hang do not stop.
pub(super) static KERNEL: Bounded = Bounded::new(32);

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

/// What is mounted, or which raw device is, at `path`; nothing if neither. A file system that does not answer is in the
/// kernel's table all the same, and so is one that cannot be asked because as many others as may do not answer.
pub async fn look(path: &HostPath) -> Result<Option<Device>, HostError> {
    look_by(&LOOKS, path).await
}

async fn look_by(looks: &'static Bounded, path: &HostPath) -> Result<Option<Device>, HostError> {
    match looks.at(path, look_now).await {
        Err(HostError::Hangs(_)) => {
            let path = path.clone();
            KERNEL.at(&HostPath::recorded(TABLE), move |_| look_in_table(path.as_path())).await
        }
        Err(error @ HostError::OthersHang(_)) => match may_hang(path).await? {
            // By its number it would not be known again.
            Some(mount) if NUMBERED_APART.contains(&mount.kind.as_str()) => Err(error),
            Some(mount) => Ok(Some(Device(mount.device))),
            None => directories::BOUND.at(path, look_now).await,
        },
        answered => answered,
    }
}

/// Whether anything is mounted at `path` or below it, by the kernel's table.
pub(crate) async fn is_mounted_within(path: &HostPath) -> Result<bool, HostError> {
    let path = path.clone();
    let read = move |_: &Path| {
        let table = read(path.as_path())?;
        let within = |_: &str, _: &str, point: &str| Path::new(point).starts_with(path.as_path());
        Ok(!Table::read_those(&text_of(&table), within).all().is_empty())
    };
    KERNEL.at(&HostPath::recorded(TABLE), read).await
}

/// Whether a raw device is at `path`. What cannot be looked at is a file system whose server is dead.
pub(crate) async fn is_device(path: &HostPath) -> Result<bool, HostError> {
    match LOOKS.at(path, |path| Ok(is_device_now(path))).await {
        Err(HostError::Hangs(_)) => Ok(false),
        Err(HostError::OthersHang(_)) => match may_hang(path).await? {
            Some(_) => Ok(false),
            None => directories::BOUND.at(path, |path| Ok(is_device_now(path))).await,
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
async fn may_hang(path: &HostPath) -> Result<Option<Mount>, HostError> {
    let path = path.clone();
    let read = move |_: &Path| {
        Ok(in_table(path.as_path())?.filter(|mount| !IN_MEMORY.contains(&mount.kind.as_str())))
    };
    KERNEL.at(&HostPath::recorded(TABLE), read).await
}

/// Whether the raw device at `path` takes writes, by the kernel's own word. A device that it does not know is not said to.
pub async fn is_writable_device(path: &HostPath) -> Result<bool, HostError> {
    LOOKS
        .at(path, |path| match rustix::fs::stat(path) {
            Ok(found) => {
                let number = found.st_rdev;
                let device = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
                let flag = fs::read_to_string(Path::new(DEVICES).join(device).join("ro"));
                Ok(flag.is_ok_and(|flag| flag.trim() == "0"))
            }
            Err(errno) => Err(failed_at(path, HostError::Look)(errno.into())),
        })
        .await
}

/// Unmounts what is mounted at `path`: unless the kernel says that somebody uses it, or at once (MNT_DETACH), and then
/// whoever has a file open there is in no table any more. Nothing mounted there is success.
pub async fn take_off(path: &HostPath, busy_too: bool) -> Result<(), HostError> {
    let how = if busy_too { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    // A look that hangs there is no reason not to try.
    UNMOUNTS
        .at(path, move |path| match unmount(path, how | UnmountFlags::NOFOLLOW) {
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
            Err(errno) => Err(failed_at(path, HostError::Unmount)(errno.into())),
        })
        .await
}

impl Bounded {
    /// Does `work` at `path` on a thread of its own, and gives up when no answer comes.
    pub async fn at<T: Send + 'static>(
        &'static self,
        path: &HostPath,
        work: impl FnOnce(&Path) -> Result<T, HostError> + Send + 'static,
    ) -> Result<T, HostError> {
        let path = path.as_path();
        self.run(path, work).await.unwrap_or_else(|given_up| {
            Err(match given_up {
                GivenUp::Hangs => HostError::Hangs(path.to_owned()),
                GivenUp::OthersHang => HostError::OthersHang(path.to_owned()),
                GivenUp::Ended(ended) => failed_at(path, HostError::Look)(io::Error::other(ended)),
            })
        })
    }
}

fn look_now(path: &Path) -> Result<Option<Device>, HostError> {
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
fn look_in_table(path: &Path) -> Result<Option<Device>, HostError> {
    Ok(in_table(path)?.map(|mount| Device(mount.device)))
}

/// What is mounted at exactly `path`, by the kernel's table; of several over each other the one that is seen.
pub(super) fn in_table(path: &Path) -> Result<Option<Mount>, HostError> {
    let table = read(path)?;
    Ok(Table::read_at(&text_of(&table), path).at(path).pop().cloned())
}

/// The kernel's table, to find `path` in it.
fn read(path: &Path) -> Result<Vec<u8>, HostError> {
    fs::read(TABLE).map_err(failed_at(path, HostError::Look))
}

#[cfg(test)]
#[path = "mounts_tests.rs"]
pub(crate) mod tests;
