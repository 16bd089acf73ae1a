//! Making and removing the few directories that are ours: rmdir only, never recursive (rule R11).
//!
//! They are on kubelet's disk, which may hang while all else is well. So the work is done on threads of its own and given up
//! after a while: a task that waited for it would keep others from running, the renewals of the Lease too. While work at a
//! path has not come back nothing else is done there, so that none overtakes another.

use std::ffi::OsString;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::{fs, io};

use super::bounded::{Bounded, GivenUp};
use super::error::HostError;
use super::paths::{HostPath, Paths};
use crate::agent::failed_at::failed_at;

/// Mode of a staging directory: it is for the plugin alone.
const STAGING: u32 = 0o750;
/// Mode of a target's parent while nothing is mounted on the target: nobody but root gets through, so nobody writes
/// to the node's own disk by mistake (trap B10).
const CLOSED: u32 = 0o000;
/// Mode of a target's parent while something is mounted on the target.
const OPEN: u32 = 0o755;

/// Work at directories of moor's own on which nothing is mounted.
pub(super) static BOUND: Bounded = Bounded::new(64);

/// What is left of a path after removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing.
    Nothing,
    /// The directory is not empty: somebody wrote to it while nothing was mounted, or the driver left something. It is
    /// kept and reported.
    Content,
    /// An empty directory on a disk that takes no writes. Nobody waits for it to go.
    Empty,
}

/// Makes the staging directory (CSI NodeStageVolume: the CO makes it).
pub async fn make_staging(path: &HostPath) -> Result<(), HostError> {
    bounded(path, |path| make(path, STAGING)).await
}

/// Makes the folder of the targets.
pub async fn make_folder(path: &HostPath) -> Result<(), HostError> {
    bounded(path, |path| make(path, OPEN)).await
}

/// Makes the parent of a target and keeps it closed (CSI NodePublishVolume: the plugin makes the target). That of a Pod's
/// target is kubelet's: made again after kubelet has removed it, it would stay for ever.
pub async fn make_parent(paths: &Paths, target: &HostPath) -> Result<(), HostError> {
    if !paths.owns(target) {
        let is_there = |target: &Path| {
            let missing = || HostError::NoParent(parent(target).to_owned());
            if parent(target).is_dir() { Ok(()) } else { Err(missing()) }
        };
        return bounded(target, is_there).await;
    }
    let work = |target: &Path| {
        make(parent(target), CLOSED)?;
        set_mode(parent(target), CLOSED)
    };
    bounded(target, work).await
}

/// Lets consumers through to a target on which something is mounted.
pub async fn open_parent(paths: &Paths, target: &HostPath) -> Result<(), HostError> {
    if !paths.owns(target) {
        return Ok(());
    }
    bounded(target, |target| set_mode(parent(target), OPEN)).await
}

/// Closes the way to a target on which nothing is mounted any more. No parent is success.
pub async fn close_parent(paths: &Paths, target: &HostPath) -> Result<(), HostError> {
    if !paths.owns(target) {
        return Ok(());
    }
    match bounded(target, |target| set_mode(parent(target), CLOSED)).await {
        Err(HostError::Mode(failed)) if failed.source.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Removes a target that is not mounted, and its parent. Paths that are not ours are left alone.
pub async fn remove_target(paths: &Paths, target: &HostPath) -> Result<Left, HostError> {
    if !paths.owns(target) {
        return Ok(Left::Nothing);
    }
    let work = |target: &Path| match remove(target)? {
        Left::Nothing => remove(parent(target)),
        left @ (Left::Empty | Left::Content) => Ok(left),
    };
    bounded(target, work).await
}

/// Removes a staging directory that is not mounted. A path that is not ours is left alone.
pub async fn remove_staging(paths: &Paths, staging: &HostPath) -> Result<Left, HostError> {
    if paths.owns(staging) { bounded(staging, remove).await } else { Ok(Left::Nothing) }
}

/// Whether there is anything at a target on which nothing is mounted.
pub async fn is_there(target: &HostPath) -> Result<bool, HostError> {
    bounded(target, |target| Ok(fs::symlink_metadata(target).is_ok())).await
}

/// Names of what is in a folder; none of one that cannot be read.
pub async fn names(folder: &HostPath) -> Result<Vec<OsString>, HostError> {
    let list = |folder: &Path| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        Ok(entries.map(|entry| entry.file_name()).collect())
    };
    bounded(folder, list).await
}

/// Does work at a directory on a thread of its own, and gives up when it does not end.
pub(super) async fn bounded<T: Send + 'static>(
    path: &HostPath,
    work: impl FnOnce(&Path) -> Result<T, HostError> + Send + 'static,
) -> Result<T, HostError> {
    let path = path.as_path();
    BOUND.run(path, work).await.unwrap_or_else(|given_up| {
        Err(match given_up {
            GivenUp::Hangs => HostError::DiskHangs(path.to_owned()),
            GivenUp::OthersHang => HostError::OtherDisksHang(path.to_owned()),
            GivenUp::Ended(ended) => failed_at(path, HostError::Directory)(io::Error::other(ended)),
        })
    })
}

fn make(path: &Path, mode: u32) -> Result<(), HostError> {
    let fail = failed_at(path, HostError::Make);
    if let Some(above) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(OPEN).create(above).map_err(&fail)?;
    }
    match fs::DirBuilder::new().mode(mode).create(path) {
        Err(source) if source.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other.map_err(fail),
    }
}

fn set_mode(path: &Path, mode: u32) -> Result<(), HostError> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed_at(path, HostError::Mode))
}

#[allow(clippy::wildcard_enum_match_arm, reason = "the kinds of errors are not ours and grow")]
fn remove(path: &Path) -> Result<Left, HostError> {
    let removed = match fs::remove_dir(path) {
        // The empty file on which a block device was bound; the driver should have removed it.
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => remove_empty_file(path),
        other => other.map(|()| Left::Nothing),
    };
    removed.or_else(|source| match source.kind() {
        io::ErrorKind::NotFound => Ok(Left::Nothing),
        io::ErrorKind::DirectoryNotEmpty => Ok(Left::Content),
        io::ErrorKind::ResourceBusy => Err(failed_at(path, HostError::Remove)(source)),
        _ => {
            tracing::warn!(path = %path.display(), "it is empty and stays: {source}");
            Ok(Left::Empty)
        }
    })
}

fn remove_empty_file(path: &Path) -> io::Result<Left> {
    let file = fs::symlink_metadata(path)?;
    if !file.is_file() || file.len() > 0 {
        return Ok(Left::Content);
    }
    fs::remove_file(path)?;
    Ok(Left::Nothing)
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;
    use std::time::Duration;

    use nix::sched::{CloneFlags, unshare};
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change, mount_remount};

    use super::super::bounded::PATIENCE;
    use super::*;

    /// Its threads see the mounts of the one that asks.
    fn wait<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(work)
    }

    fn setup() -> (tempfile::TempDir, Paths) {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::below(dir.path());
        (dir, paths)
    }

    #[test]
    fn a_target_has_only_its_parent_made_and_closed() {
        let (_dir, paths) = setup();
        let target = paths.target("c").unwrap();
        wait(make_parent(&paths, &target)).unwrap();
        let parent = target.as_path().parent().unwrap();
        assert_eq!(fs::metadata(parent).unwrap().permissions().mode() & 0o777, CLOSED);
        assert!(!target.as_path().exists());
        wait(open_parent(&paths, &target)).unwrap();
        assert_eq!(fs::metadata(parent).unwrap().permissions().mode() & 0o777, OPEN);
        wait(make_parent(&paths, &target)).unwrap();
        assert_eq!(fs::metadata(parent).unwrap().permissions().mode() & 0o777, CLOSED);
    }

    #[test]
    fn removal_takes_empty_directories_and_empty_files_only() {
        let (_dir, paths) = setup();
        let target = paths.target("c").unwrap();
        wait(make_parent(&paths, &target)).unwrap();
        fs::create_dir(target.as_path()).unwrap();
        fs::write(target.as_path().join("data"), "x").unwrap();
        assert_eq!(wait(remove_target(&paths, &target)).unwrap(), Left::Content);
        assert!(target.as_path().join("data").exists());
        fs::remove_file(target.as_path().join("data")).unwrap();
        assert_eq!(wait(remove_target(&paths, &target)).unwrap(), Left::Nothing);
        assert!(!target.as_path().parent().unwrap().exists());
        assert_eq!(wait(remove_target(&paths, &target)).unwrap(), Left::Nothing);
        wait(make_parent(&paths, &target)).unwrap();
        fs::write(target.as_path(), "").unwrap();
        assert_eq!(wait(remove_target(&paths, &target)).unwrap(), Left::Nothing);
    }

    /// As on a disk that was remounted read-only after an error.
    #[test]
    fn what_cannot_be_removed_holds_up_nobody() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let (dir, paths) = setup();
        let in_a_namespace_of_its_own = || {
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
            mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), None).unwrap();
            let (staging, target) = (paths.staging("a").unwrap(), paths.target("c").unwrap());
            wait(make_staging(&staging)).unwrap();
            wait(make_parent(&paths, &target)).unwrap();
            fs::create_dir(target.as_path()).unwrap();
            mount_remount(dir.path(), MountFlags::RDONLY, "").unwrap();
            assert_eq!(wait(remove_staging(&paths, &staging)).unwrap(), Left::Empty);
            assert_eq!(wait(remove_target(&paths, &target)).unwrap(), Left::Empty);
            mount_remount(dir.path(), MountFlags::empty(), "").unwrap();
            mount("tmpfs", staging.as_path(), "tmpfs", MountFlags::empty(), None).unwrap();
            assert!(wait(remove_staging(&paths, &staging)).is_err(), "something is mounted there");
        };
        std::thread::scope(|scope| scope.spawn(in_a_namespace_of_its_own).join().unwrap());
    }

    #[test]
    fn a_foreign_path_is_left_alone() {
        let (dir, paths) = setup();
        let other = HostPath::recorded(dir.path().join("pods").to_str().unwrap());
        fs::create_dir(other.as_path()).unwrap();
        assert_eq!(wait(remove_staging(&paths, &other)).unwrap(), Left::Nothing);
        assert!(other.as_path().exists());
        let target = HostPath::recorded(other.as_path().join("uid/mount").to_str().unwrap());
        assert!(matches!(wait(make_parent(&paths, &target)), Err(HostError::NoParent(_))));
        let above = other.as_path().join("uid");
        fs::create_dir(&above).unwrap();
        let mode = || fs::metadata(&above).unwrap().permissions().mode();
        let before = mode();
        wait(make_parent(&paths, &target)).unwrap();
        wait(open_parent(&paths, &target)).unwrap();
        wait(close_parent(&paths, &target)).unwrap();
        assert_eq!(mode(), before);
    }

    /// As when kubelet's disk hangs: a task that waits for it would keep the Lease from being renewed.
    #[test]
    fn a_disk_that_hangs_keeps_no_task_from_running() {
        let Ok(server) = fs::File::options().read(true).write(true).open("/dev/fuse") else { return };
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let at = dir.path().to_owned();
        let (options, point) =
            (format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd()), at.clone());
        let in_a_namespace_of_its_own = move || {
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
            let options = std::ffi::CString::new(options).unwrap();
            mount("none", &point, "fuse", MountFlags::empty(), options.as_c_str()).unwrap();
            let (paths, staging) = (Paths::below(&at), Paths::below(&at).staging("a").unwrap());
            wait(async {
                tokio::time::pause();
                let others = async {
                    tokio::task::yield_now().await;
                    tell.send(()).unwrap();
                    tokio::time::advance(PATIENCE * 2).await;
                };
                let (made, ()) = tokio::join!(make_staging(&staging), others);
                assert!(matches!(made, Err(HostError::DiskHangs(_))), "{made:?}");
                let removed = remove_staging(&paths, &staging).await;
                assert!(matches!(removed, Err(HostError::DiskHangs(_))), "none overtakes: {removed:?}");
                tell.send(()).unwrap();
            });
        };
        // It ends with the mount, which ends with the server.
        let thread = std::thread::spawn(in_a_namespace_of_its_own);
        for what in ["other tasks run", "what hangs is given up"] {
            assert!(told.recv_timeout(Duration::from_secs(20)).is_ok(), "{what}");
        }
        drop(server);
        thread.join().unwrap();
    }
}
