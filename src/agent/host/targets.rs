//! The folder of the targets, which no reboot outlives (trap B10).
//!
//! A target that stayed on the node's disk would be there before its volume is mounted again: a container runtime is root
//! and goes through closed parents, so a Pod would start on it and write to the node's own disk. In a tmpfs the path does
//! not exist until the agent makes it, and a Pod with a hostPath of type Directory waits. It is mounted where the node and
//! the drivers see it, as what drivers mount is.

use std::collections::BTreeSet;
use std::ffi::{CStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tokio::sync::Mutex;

use super::directories::{self, Left};
use super::error::HostError;
use super::mounts;
use super::paths::{HostPath, Paths};
use super::users;
use crate::agent::failed_at::failed_at;
use crate::agent::records::store::Records;

/// As much as drivers may leave beside their mounts. Nothing of ours takes room in it.
const OPTIONS: &CStr = c"mode=0755,size=1m";

/// The folder, on which a tmpfs is mounted before the first target is made in it.
#[derive(Debug)]
pub(crate) struct Targets {
    paths: Paths,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    is_ready: bool,
    /// Targets with content on the node's disk, under the folder.
    hidden: BTreeSet<PathBuf>,
}

impl Targets {
    /// Makes the folder ready, and removes what earlier agents have left. A disk that takes no writes stops neither the
    /// agent, which has to undo what is mounted, nor the undo.
    pub async fn prepare(paths: &Paths, records: &Records, boot_id: &str) -> Self {
        let targets = Self { paths: paths.clone(), state: Mutex::default() };
        if let Err(error) = targets.make_ready().await {
            tracing::error!("{error}; nothing is published before that succeeds");
        }
        remove_old(paths, records, boot_id).await;
        remove_staging(paths, records).await;
        targets
    }

    /// The folder as it is before anybody has made it ready.
    #[cfg(test)]
    pub fn unprepared(paths: &Paths) -> Self {
        Self { paths: paths.clone(), state: Mutex::default() }
    }

    /// Makes the folder ready, if it is not yet: before a target is made.
    pub async fn make_ready(&self) -> Result<(), HostError> {
        let mut state = self.state.lock().await;
        if !state.is_ready {
            state.hidden = mount_folder(&self.paths).await?;
            state.is_ready = true;
        }
        Ok(())
    }

    /// What there is to tell about this target, once: it is on the node's disk too, under the folder and with content.
    pub async fn hidden(&self, target: &HostPath) -> Option<String> {
        let hides = self.state.lock().await.hidden.remove(target.as_path());
        hides.then(|| told(&self.paths, target))
    }

    /// Unmounts the folder if no record speaks of anything in it, as before an uninstall. The next agent mounts it again.
    pub async fn leave(&self, records: &Records) {
        let folder = self.paths.targets();
        let path = folder.as_path();
        let is_empty = || fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
        if self.state.lock().await.is_ready && records.is_empty() && is_empty() {
            // One that somebody looks into now stays, for the next agent or the reboot.
            match unmount(path, UnmountFlags::NOFOLLOW) {
                Ok(()) => tracing::info!(path = %folder, "unmounted the folder of the targets"),
                Err(errno) => {
                    tracing::warn!(path = %folder, "the folder of the targets stays mounted: {errno}");
                }
            }
        }
    }
}

fn told(paths: &Paths, target: &HostPath) -> String {
    let folder = paths.targets();
    let above = folder.as_path().parent().unwrap_or(folder.as_path()).display();
    format!(
        "{target} was written to on the node's own disk while nothing was mounted there; that is not in the volume, is kept, \
         and hidden under the folder of the targets: `mount --bind {above} /mnt` on the node shows it below /mnt"
    )
}

/// Unless an earlier agent of this boot has. Returns the targets that lie under it with content: of a Pod whose path was
/// made for it after a reboot, before there was an agent.
async fn mount_folder(paths: &Paths) -> Result<BTreeSet<PathBuf>, HostError> {
    let folder = &paths.targets();
    let mut hidden = BTreeSet::new();
    directories::make_folder(folder).await?;
    if mounts::look(folder).await?.is_some() {
        return Ok(hidden);
    }
    let names = directories::names(folder).await?;
    let under: Vec<_> = names.iter().map(|name| Paths::target_in(folder, name)).collect();
    for target in &under {
        if mounts::look(target).await?.is_some() {
            // Somebody has taken the tmpfs away, or mounted something over it, and claims have been mounted since.
            tracing::warn!(path = %target, "is mounted, so no folder of the targets is mounted over it before the next boot");
            return Ok(hidden);
        }
    }
    for target in under {
        if directories::remove_target(paths, &target).await? == Left::Content {
            tracing::error!("{}", told(paths, &target));
            hidden.insert(target.as_path().to_owned());
        }
    }
    // Devices are not refused: a driver may make the node of a raw volume there.
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    let lay = move |path: &Path| {
        let laid = mount("moor", path, "tmpfs", flags, OPTIONS);
        laid.map_err(|errno| failed_at(path, HostError::MountTargets)(errno.into()))
    };
    directories::bounded(folder, lay).await?;
    tracing::info!(path = %folder, "mounted the folder of the targets");
    Ok(hidden)
}

/// Removes what earlier boots have left of targets that an earlier version kept on the node's disk: a Pod finds them
/// before they are mounted. Those of records of this boot are left to their claims.
async fn remove_old(paths: &Paths, records: &Records, boot_id: &str) {
    let folder = paths.old_targets();
    let recorded = records.with_traces();
    let now = recorded.iter().filter(|stored| stored.record.boot_id == boot_id);
    let in_use: BTreeSet<&str> =
        now.flat_map(|s| s.record.targets.values()).map(|t| t.path.as_str()).collect();
    for name in names_in(&folder).await {
        let target = Paths::target_in(&folder, &name);
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

async fn names_in(folder: &HostPath) -> Vec<OsString> {
    let names = directories::names(folder).await;
    names.inspect_err(|error| tracing::warn!("{error}")).unwrap_or_default()
}

async fn remove_unmounted(paths: &Paths, target: &HostPath) -> Result<Option<Left>, HostError> {
    if mounts::look(target).await?.is_some() {
        return Ok(None);
    }
    let left = directories::remove_target(paths, target).await?;
    if left == Left::Content {
        directories::close_parent(paths, target).await?;
    }
    Ok(Some(left))
}

/// Removes the staging directories that earlier agents could not remove from a disk that took no writes. Not one that a
/// record speaks of, be it one that cannot be read, and not one on which anybody has something mounted: the kernel would
/// end that with the directory.
async fn remove_staging(paths: &Paths, records: &Records) {
    let folder = paths.staging_folder();
    for name in names_in(&folder).await {
        let Some((uid, path)) = name.to_str().and_then(|uid| Some((uid, paths.staging(uid).ok()?))) else {
            continue;
        };
        let unreadable =
            records.unreadable().iter().any(|unreadable| unreadable.attachment_uid.as_str() == uid);
        if unreadable || records.get(&uid.into()).is_some() {
            continue;
        }
        match users::is_mounted_somewhere(uid, &path).await {
            Ok(true) => tracing::warn!(path = %path, "is mounted, and no record speaks of it"),
            Ok(false) => match directories::remove_staging(paths, &path).await {
                Ok(Left::Nothing) => tracing::info!(path = %path, "removed, as no record speaks of it"),
                Ok(Left::Content | Left::Empty) => {}
                Err(error) => tracing::warn!("{error}"),
            },
            Err(error) => tracing::warn!("{error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::sched::{CloneFlags, unshare};
    use rustix::mount::{MountPropagationFlags, mount_change, mount_remount};

    use super::*;

    /// An agent that cannot start cannot undo either.
    #[test]
    fn a_disk_that_takes_no_writes_stops_no_start() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let (kubelet, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let in_a_namespace_of_its_own = || {
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
            mount("tmpfs", kubelet.path(), "tmpfs", MountFlags::RDONLY, None).unwrap();
            let (paths, records) = (Paths::below(kubelet.path()), Records::open(state.path()).unwrap());
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let targets = runtime.block_on(Targets::prepare(&paths, &records, "boot"));
            let error = runtime.block_on(targets.make_ready()).unwrap_err().to_string();
            assert!(error.contains("Read-only file system"), "{error}");
            mount_remount(kubelet.path(), MountFlags::empty(), "").unwrap();
            runtime.block_on(targets.make_ready()).unwrap();
            assert!(runtime.block_on(mounts::look(&paths.targets())).unwrap().is_some());
            runtime.block_on(targets.leave(&records));
            assert_eq!(runtime.block_on(mounts::look(&paths.targets())).unwrap(), None);
        };
        std::thread::scope(|scope| scope.spawn(in_a_namespace_of_its_own).join().unwrap());
    }
}
