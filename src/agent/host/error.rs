//! What can fail on this machine: its boot and lock, its directories and its mounts.

use std::io;
use std::path::PathBuf;

use super::bounded::PATIENCE;
use crate::agent::failed_at::FailedAt;

/// Something on this machine could not be looked at, made or undone.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// Without the boot's id no mount can be recognised.
    #[error("read the boot id: {0}")]
    BootId(#[source] io::Error),
    /// The state directory cannot be made.
    #[error("make the state directory {0}; it has to be on a writable disk of the node")]
    StateDir(FailedAt),
    /// The lock file cannot be opened or locked.
    #[error("lock {0}")]
    Lock(FailedAt),
    /// A directory of moor's own cannot be made.
    #[error("make the directory {0}")]
    Make(FailedAt),
    /// The parent of a target is kubelet's to make, and is not there.
    #[error("{0} is not there, in which kubelet wants the volume: the Pod may be gone")]
    NoParent(PathBuf),
    /// The mode of a directory of moor's own cannot be changed.
    #[error("change the mode of {0}")]
    Mode(FailedAt),
    /// A directory of moor's own cannot be removed, because something is mounted there.
    #[error("remove the empty directory {0}")]
    Remove(FailedAt),
    /// The disk with moor's own directories did not answer in time.
    #[error("make, open, close or remove the directory {0}: no answer in {patience} s, its disk may be dead", patience = PATIENCE.as_secs())]
    DiskHangs(PathBuf),
    /// Work at other directories hangs, as much as may.
    #[error(
        "make, open, close or remove the directory {0}: as much work at others hangs as may, their disk may be dead"
    )]
    OtherDisksHang(PathBuf),
    /// The thread that works at a directory of moor's own ended early.
    #[error("make, open, close or remove the directory {0}")]
    Directory(FailedAt),
    /// The folder of the targets cannot be mounted.
    #[error("mount a tmpfs for targets at {0}")]
    MountTargets(FailedAt),
    /// A path cannot be looked at.
    #[error("look what is mounted at {0}")]
    Look(FailedAt),
    /// How full a volume is cannot be found out.
    #[error("ask how full the volume at {0} is")]
    Usage(FailedAt),
    /// The kernel did not answer in time.
    #[error("look what is mounted at {0}: no answer in {patience} s, the file system behind it may be dead", patience = PATIENCE.as_secs())]
    Hangs(PathBuf),
    /// Looks at other paths hang, as many as may.
    #[error(
        "look what is mounted at {0}: as many looks at other paths hang as may, the file systems behind them may be dead; \
         bring those back, or unmount them and restart moor's agent on the node"
    )]
    OthersHang(PathBuf),
    /// A device does not say whether it is in use, by the file by which it was asked.
    #[error("ask whether a device is in use, by {0}")]
    Device(FailedAt),
    /// The node's mount namespace cannot be entered, by the file that stands for it.
    #[error("enter the mount namespace of the node, {0}; the agent has to be privileged, with hostPID")]
    Enter(FailedAt),
    /// The flags of a mount cannot be set or are not seen.
    #[error("set the flags of the mount at {} on the node: {}", .0.path.display(), .0.source)]
    Flags(FailedAt),
    /// The read-only mount of an earlier version cannot be taken off.
    #[error("unmount the read-only mount at {0}")]
    Uncover(FailedAt),
    /// Unmounting without the driver failed (rule R4).
    #[error("unmount {0}")]
    Unmount(FailedAt),
}

impl HostError {
    /// Whether the kernel refused to unmount because somebody uses the mount.
    #[must_use]
    pub fn says_busy(&self) -> bool {
        matches!(self, Self::Unmount(failed) if failed.source.kind() == io::ErrorKind::ResourceBusy)
    }
}
