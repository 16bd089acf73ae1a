//! This machine and this process on it: the boot, and the lock that lets one agent per node speak to drivers.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use super::error::HostError;
use crate::agent::failed_at::failed_at;

/// Time between attempts to get the lock.
const RETRY: Duration = Duration::from_millis(250);

/// Id of this boot of the node; with it a mount of an earlier boot is told from one of now (rule R8).
pub fn boot_id(file: &Path) -> Result<String, HostError> {
    fs::read_to_string(file).map(|id| id.trim().to_owned()).map_err(HostError::BootId)
}

/// The right to speak to this node's drivers, held until it is dropped or the process ends, however it ends
/// (trap B26: locks per volume are worth nothing if two agents hold them).
#[derive(Debug)]
pub struct NodeLock {
    _file: File,
}

impl NodeLock {
    /// Waits for the lock `agent.lock` in `state_dir`. `me` is left in the file for those who wait. May be cancelled.
    pub async fn acquire(state_dir: &Path, me: &str) -> Result<Self, HostError> {
        fs::create_dir_all(state_dir).map_err(failed_at(state_dir, HostError::StateDir))?;
        let path = state_dir.join("agent.lock");
        let fail = failed_at(&path, HostError::Lock);
        let how =
            |writes| File::options().read(true).write(writes).create(writes).truncate(false).open(&path);
        let opened = match how(true) {
            // What is mounted has to be undone, and can be.
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => how(false),
            other => other,
        };
        let mut file = opened.map_err(&fail)?;
        let mut told = false;
        // Asked again and again: a thread that waits in the kernel could not be told to end.
        while let Err(refused) = file.try_lock() {
            if let TryLockError::Error(source) = refused {
                return Err(fail(source));
            }
            if !std::mem::replace(&mut told, true) {
                let mut holder = String::new();
                let _ = file.read_to_string(&mut holder);
                tracing::warn!(
                    lock = %path.display(),
                    holder = holder.trim(),
                    "another agent runs on this node; waiting until it ends"
                );
            }
            tokio::time::sleep(RETRY).await;
        }
        if let Err(error) = file.set_len(0).and_then(|()| file.write_all_at(me.as_bytes(), 0)) {
            tracing::warn!(lock = %path.display(), "the lock does not say who holds it: {error}");
        }
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_has_an_id() {
        assert_eq!(boot_id(Path::new("/proc/sys/kernel/random/boot_id")).unwrap().len(), 36);
    }

    #[tokio::test]
    async fn the_second_agent_waits_for_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let first = NodeLock::acquire(dir.path(), "first").await.unwrap();
        let path = dir.path().to_owned();
        let second = tokio::spawn(async move { NodeLock::acquire(&path, "second").await });
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!second.is_finished());
        assert_eq!(fs::read_to_string(dir.path().join("agent.lock")).unwrap(), "first");
        drop(first);
        second.await.unwrap().unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("agent.lock")).unwrap(), "second");
    }
}
