//! Locks between calls, processes and nodes.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

/// The time between two looks at a lock that somebody else has.
const POLL: Duration = Duration::from_millis(10);

/// An exclusive file lock, held until dropped.
///
/// The kernel ties it to the open file, not to the process: a child that inherits the file keeps the lock even when the
/// driver is killed, so a restarted driver never works beside a mkfs that its predecessor has started.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Takes the lock, or gives `None` when another has had it for all of `patience`.
    pub(super) fn take(path: &Path, patience: Duration) -> io::Result<Option<Self>> {
        let end = Instant::now() + patience;
        loop {
            let file = File::options().read(true).append(true).create(true).mode(0o600).open(path)?;
            match file.try_lock() {
                Ok(()) if is_current(&file, path)? => {
                    return Ok(Some(Self { file, path: path.to_owned() }));
                }
                // Whoever had the lock has removed its file: a lock on that file guards nothing.
                Ok(()) => {}
                Err(TryLockError::WouldBlock) if Instant::now() >= end => return Ok(None),
                Err(TryLockError::WouldBlock) => thread::sleep(POLL),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }

    /// The lock as a child's standard input, which makes it last as long as the child.
    pub(super) fn for_child(&self) -> io::Result<Stdio> {
        self.file.try_clone().map(Stdio::from)
    }

    /// The lock's file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Ends the lock and removes its file, for something that exists no more.
    pub(super) fn remove(self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

/// Whether the file is the one at its path still.
fn is_current(file: &File, path: &Path) -> io::Result<bool> {
    let held = file.metadata()?;
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        found => found.map(|found| found.ino() == held.ino() && found.dev() == held.dev()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that another test is starting has a copy of every file until its program runs.
    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn excludes_and_releases() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = Lock::take(&path, Duration::ZERO).unwrap().unwrap();
        assert!(Lock::take(&path, Duration::from_millis(30)).unwrap().is_none());
        drop(first);
        assert!(Lock::take(&path, PATIENCE).unwrap().is_some());
    }

    #[test]
    fn a_removed_file_guards_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = Lock::take(&path, Duration::ZERO).unwrap().unwrap();
        let waiting = {
            let path = path.clone();
            thread::spawn(move || Lock::take(&path, PATIENCE).unwrap().unwrap())
        };
        thread::sleep(Duration::from_millis(50));
        first.remove().unwrap();
        let second = waiting.join().unwrap();
        assert!(path.exists(), "the waiting one holds a lock on a file that is there");
        assert!(Lock::take(&path, Duration::ZERO).unwrap().is_none());
        drop(second);
    }

    #[test]
    fn a_child_keeps_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let lock = Lock::take(&path, Duration::ZERO).unwrap().unwrap();
        let mut child =
            std::process::Command::new("sleep").arg("600").stdin(lock.for_child().unwrap()).spawn().unwrap();
        drop(lock);
        assert!(Lock::take(&path, Duration::ZERO).unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(Lock::take(&path, PATIENCE).unwrap().is_some());
    }
}
