//! Making and removing the few directories that are ours: rmdir only, never recursive (rule R11).

use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::paths::{HostPath, Paths};

/// Mode of a staging directory: it is for the plugin alone.
const STAGING: u32 = 0o750;
/// Mode of a target's parent while nothing is mounted on the target: nobody but root gets through, so nobody writes
/// to the node's own disk by mistake (trap B10).
const CLOSED: u32 = 0o000;
/// Mode of a target's parent while something is mounted on the target.
const OPEN: u32 = 0o755;

/// A directory of ours could not be made or removed.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// Making it failed.
    #[error("make the directory {path}: {source}")]
    Make {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Changing its mode failed.
    #[error("change the mode of {path}: {source}")]
    Mode {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Removing it failed, because something is mounted there.
    #[error("remove the empty directory {path}: {source}")]
    Remove {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

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
pub fn make_staging(path: &HostPath) -> Result<(), DirectoryError> {
    make(path.as_path(), STAGING)
}

/// Makes the folder of the targets.
pub fn make_folder(path: &HostPath) -> Result<(), DirectoryError> {
    make(path.as_path(), OPEN)
}

/// Makes the parent of a target and keeps it closed (CSI NodePublishVolume: the plugin makes the target).
pub fn make_parent(target: &HostPath) -> Result<(), DirectoryError> {
    let parent = parent(target.as_path());
    make(parent, CLOSED)?;
    set_mode(parent, CLOSED)
}

/// Lets consumers through to a target on which something is mounted.
pub fn open_parent(target: &HostPath) -> Result<(), DirectoryError> {
    set_mode(parent(target.as_path()), OPEN)
}

/// Closes the way to a target on which nothing is mounted any more. No parent is success.
pub fn close_parent(target: &HostPath) -> Result<(), DirectoryError> {
    match set_mode(parent(target.as_path()), CLOSED) {
        Err(DirectoryError::Mode { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Removes a target that is not mounted, and its parent. Paths that are not ours are left alone.
pub fn remove_target(paths: &Paths, target: &HostPath) -> Result<Left, DirectoryError> {
    if !paths.owns(target) {
        return Ok(Left::Nothing);
    }
    match remove(target.as_path())? {
        Left::Nothing => remove(parent(target.as_path())),
        left @ (Left::Empty | Left::Content) => Ok(left),
    }
}

/// Removes a staging directory that is not mounted. A path that is not ours is left alone.
pub fn remove_staging(paths: &Paths, staging: &HostPath) -> Result<Left, DirectoryError> {
    if paths.owns(staging) { remove(staging.as_path()) } else { Ok(Left::Nothing) }
}

fn make(path: &Path, mode: u32) -> Result<(), DirectoryError> {
    let fail = |source| DirectoryError::Make { path: path.to_owned(), source };
    if let Some(above) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(OPEN).create(above).map_err(fail)?;
    }
    match fs::DirBuilder::new().mode(mode).create(path) {
        Err(source) if source.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other.map_err(fail),
    }
}

fn set_mode(path: &Path, mode: u32) -> Result<(), DirectoryError> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .map_err(|source| DirectoryError::Mode { path: path.to_owned(), source })
}

#[allow(clippy::wildcard_enum_match_arm, reason = "the kinds of errors are not ours and grow")]
fn remove(path: &Path) -> Result<Left, DirectoryError> {
    let removed = match fs::remove_dir(path) {
        // The empty file on which a block device was bound; the driver should have removed it.
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => remove_empty_file(path),
        other => other.map(|()| Left::Nothing),
    };
    removed.or_else(|source| match source.kind() {
        io::ErrorKind::NotFound => Ok(Left::Nothing),
        io::ErrorKind::DirectoryNotEmpty => Ok(Left::Content),
        io::ErrorKind::ResourceBusy => Err(DirectoryError::Remove { path: path.to_owned(), source }),
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
    use nix::sched::{CloneFlags, unshare};
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change, mount_remount};

    use super::*;

    fn setup() -> (tempfile::TempDir, Paths) {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::below(dir.path());
        (dir, paths)
    }

    #[test]
    fn a_target_has_only_its_parent_made_and_closed() {
        let (_dir, paths) = setup();
        let target = paths.target("c").unwrap();
        make_parent(&target).unwrap();
        let parent = target.as_path().parent().unwrap();
        assert_eq!(fs::metadata(parent).unwrap().permissions().mode() & 0o777, CLOSED);
        assert!(!target.as_path().exists());
        open_parent(&target).unwrap();
        assert_eq!(fs::metadata(parent).unwrap().permissions().mode() & 0o777, OPEN);
        make_parent(&target).unwrap();
        assert_eq!(fs::metadata(parent).unwrap().permissions().mode() & 0o777, CLOSED);
    }

    #[test]
    fn removal_takes_empty_directories_and_empty_files_only() {
        let (_dir, paths) = setup();
        let target = paths.target("c").unwrap();
        make_parent(&target).unwrap();
        fs::create_dir(target.as_path()).unwrap();
        fs::write(target.as_path().join("data"), "x").unwrap();
        assert_eq!(remove_target(&paths, &target).unwrap(), Left::Content);
        assert!(target.as_path().join("data").exists());
        fs::remove_file(target.as_path().join("data")).unwrap();
        assert_eq!(remove_target(&paths, &target).unwrap(), Left::Nothing);
        assert!(!target.as_path().parent().unwrap().exists());
        assert_eq!(remove_target(&paths, &target).unwrap(), Left::Nothing);
        make_parent(&target).unwrap();
        fs::write(target.as_path(), "").unwrap();
        assert_eq!(remove_target(&paths, &target).unwrap(), Left::Nothing);
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
            make_staging(&staging).unwrap();
            make_parent(&target).unwrap();
            fs::create_dir(target.as_path()).unwrap();
            mount_remount(dir.path(), MountFlags::RDONLY, "").unwrap();
            assert_eq!(remove_staging(&paths, &staging).unwrap(), Left::Empty);
            assert_eq!(remove_target(&paths, &target).unwrap(), Left::Empty);
            mount_remount(dir.path(), MountFlags::empty(), "").unwrap();
            mount("tmpfs", staging.as_path(), "tmpfs", MountFlags::empty(), None).unwrap();
            assert!(remove_staging(&paths, &staging).is_err(), "something is mounted there");
        };
        std::thread::scope(|scope| scope.spawn(in_a_namespace_of_its_own).join().unwrap());
    }

    #[test]
    fn a_foreign_path_is_left_alone() {
        let (dir, paths) = setup();
        let other = HostPath::recorded(dir.path().join("pods").to_str().unwrap());
        fs::create_dir(other.as_path()).unwrap();
        assert_eq!(remove_staging(&paths, &other).unwrap(), Left::Nothing);
        assert!(other.as_path().exists());
    }
}
