//! The folder of the targets, which no reboot outlives (interleavings B10).
//!
//! A target that stayed on the node's disk would be there before its volume is mounted again: a container runtime is root
//! and goes through closed parents, so a Pod would start on it and write to the node's own disk. In a tmpfs the path does
//! not exist until the agent makes it, and a Pod with a hostPath of type Directory waits. It is mounted where the node and
//! the drivers see it, as what drivers mount is.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::path::PathBuf;
use std::{fs, io};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::directories::{self, DirectoryError, Left};
use super::mounts::{self, MountError};
use super::paths::{HostPath, Paths};
use super::records::Records;

/// As much as drivers may leave beside their mounts. Nothing of ours takes room in it.
const OPTIONS: &CStr = c"mode=0755,size=1m";

/// The folder cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum TargetsError {
    /// It cannot be made.
    #[error(transparent)]
    Make(#[from] DirectoryError),
    /// What is mounted there cannot be seen.
    #[error(transparent)]
    Look(#[from] MountError),
    /// Mounting it failed.
    #[error("mount a tmpfs for targets at {path}: {source}")]
    Mount {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Makes the folder ready, before the first target is made.
pub(super) async fn prepare(paths: &Paths, records: &Records, boot_id: &str) -> Result<(), TargetsError> {
    mount_folder(&paths.targets()).await?;
    remove_old(paths, records, boot_id).await;
    Ok(())
}

/// Unmounts the folder if no record speaks of anything in it, as before an uninstall. The next agent mounts it again.
pub(super) fn leave(paths: &Paths, records: &Records) {
    let folder = paths.targets();
    let path = folder.as_path();
    let is_empty = || fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
    if records.is_empty() && is_empty() {
        // One that somebody looks into now stays, for the next agent or the reboot.
        match unmount(path, UnmountFlags::NOFOLLOW) {
            Ok(()) => tracing::info!(path = %folder, "unmounted the folder of the targets"),
            Err(errno) => tracing::warn!(path = %folder, "the folder of the targets stays mounted: {errno}"),
        }
    }
}

/// Unless an earlier agent of this boot has.
async fn mount_folder(folder: &HostPath) -> Result<(), TargetsError> {
    directories::make_folder(folder)?;
    if mounts::look(folder).await?.is_some() {
        return Ok(());
    }
    for entry in fs::read_dir(folder.as_path()).into_iter().flatten().flatten() {
        let target = Paths::target_in(folder, &entry.file_name());
        if mounts::look(&target).await?.is_some() {
            // Somebody has taken the tmpfs away, or mounted something over it, and claims have been mounted since.
            tracing::warn!(path = %target, "is mounted, so no folder of the targets is mounted over it before the next boot");
            return Ok(());
        }
    }
    let path = folder.as_path();
    // Devices are not refused: a driver may make the node of a raw volume there.
    mount("moor", path, "tmpfs", MountFlags::NOSUID | MountFlags::NOEXEC, OPTIONS)
        .map_err(|errno| TargetsError::Mount { path: path.to_owned(), source: errno.into() })?;
    tracing::info!(path = %folder, "mounted the folder of the targets");
    Ok(())
}

/// Removes what earlier boots have left of targets that an earlier version kept on the node's disk: a Pod finds them
/// before they are mounted. Those of records of this boot are left to their claims.
async fn remove_old(paths: &Paths, records: &Records, boot_id: &str) {
    let folder = paths.old_targets();
    let recorded = records.with_traces();
    let now = recorded.iter().filter(|stored| stored.record.boot_id == boot_id);
    let in_use: BTreeSet<&str> =
        now.flat_map(|s| s.record.targets.values()).map(|t| t.path.as_str()).collect();
    for entry in fs::read_dir(folder.as_path()).into_iter().flatten().flatten() {
        let target = Paths::target_in(&folder, &entry.file_name());
        if in_use.contains(target.text().as_str()) {
            continue;
        }
        match remove_unmounted(paths, &target).await {
            Ok(Some(Left::Content)) => {
                tracing::warn!(path = %target, "is not mounted and not empty: what is in it was written to the node's own disk");
            }
            Ok(_) => {}
            Err(error) => tracing::warn!("{error}"),
        }
    }
}

async fn remove_unmounted(paths: &Paths, target: &HostPath) -> Result<Option<Left>, TargetsError> {
    if mounts::look(target).await?.is_some() {
        return Ok(None);
    }
    let left = directories::remove_target(paths, target)?;
    if left == Left::Content {
        directories::close_parent(target)?;
    }
    Ok(Some(left))
}
