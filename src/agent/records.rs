//! The node's own records: one file per Attachment, on disk before the first call it speaks of (design R7).
//!
//! A file is replaced as a whole (write aside, fsync, rename, fsync of the directory), so after a crash there is the
//! old one or the new one. What cannot be read is reported and kept: it may be all that is known of a mount.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use super::doubts::Doubts;
use crate::attachment::record::{Done, Record};

const ASIDE: &str = "new";
/// Records that are written at a time.
const WRITES: usize = 32;
const UNREADABLE: &str = "unreadable";
const DISMISSED: &str = "dismissed";

/// A record cannot be stored, read or removed.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Making or listing the directory failed.
    #[error("open the records in {path}: {source}")]
    Open {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Storing failed; the call that the record speaks of must not be made.
    #[error("store the record {path}: {source}")]
    Store {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Removing failed.
    #[error("remove the record {path}: {source}")]
    Remove {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The task that does the file work ended early.
    #[error("the task that writes the record {uid} ended: {source}")]
    Task {
        /// UID of the Attachment.
        uid: String,
        /// Why.
        source: tokio::task::JoinError,
    },
}

/// A record as it is stored: what decides, and what the agent itself needs beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stored {
    /// What decisions look at.
    #[serde(flatten)]
    pub record: Record,
    /// Device that was mounted on the staging path after NodeStageVolume; nothing if the driver mounts nothing there.
    /// If it is not there any more, the volume is not staged any more either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staging_device: Option<String>,
    /// NodeStageVolume succeeded in this boot and NodeUnstageVolume has not since. A later final error of a repeated
    /// NodeStageVolume then does not mean that there is nothing to unstage.
    #[serde(default)]
    pub staged_once: bool,
}

impl Stored {
    /// Nothing that the record says of another boot is certain: what may have been mounted has to be made or undone
    /// again (design R8). What was never called stays so.
    pub fn enter_boot(&mut self, boot_id: &str) -> bool {
        if self.record.boot_id == boot_id {
            return false;
        }
        boot_id.clone_into(&mut self.record.boot_id);
        // Nothing is in use any more, whether the API server remembers it or not.
        self.record.forgotten = None;
        self.record.revision = 0;
        self.record.staged = doubted(self.record.staged);
        for target in self.record.targets.values_mut() {
            target.published = doubted(target.published);
            target.revision = 0;
        }
        self.staging_device = None;
        self.staged_once = false;
        true
    }

    /// UIDs of the Attachment and of the claims.
    fn uids(&self) -> impl Iterator<Item = String> {
        let record = &self.record;
        std::iter::once(&record.attachment_uid).chain(record.targets.keys()).cloned()
    }

    /// A claim's mount is not there any more: stage and publish are repeated before anybody relies on them.
    pub fn doubt(&mut self, claim_uid: &str) {
        // One that was in doubt already, since a reboot, says nothing new of a stage that may have been repeated since.
        if let Some(target) = self.record.targets.get_mut(claim_uid)
            && target.published == Done::Yes
        {
            target.published = Done::Maybe;
            self.record.staged = doubted(self.record.staged);
        }
    }
}

/// A file that is no record, and what can still be made out of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The file, under the name that it was given.
    pub path: PathBuf,
    /// UID of the Attachment, from the file's name.
    pub attachment_uid: String,
    /// Driver, VolumeHandle and volume id, if it is JSON that has them; else empty.
    pub driver_name: String,
    /// Name of the VolumeHandle.
    pub handle_name: String,
    /// Volume id.
    pub volume_handle: String,
}

impl Unreadable {
    fn of(path: PathBuf) -> Self {
        let text = fs::read(&path).unwrap_or_default();
        let json: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
        let field = |name: &str| json[name].as_str().unwrap_or_default().to_owned();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        Self {
            attachment_uid: name.split('.').next().unwrap_or_default().to_owned(),
            driver_name: field("driverName"),
            handle_name: field("handleName"),
            volume_handle: field("volumeHandle"),
            path,
        }
    }
}

/// All records of this node. The copy in memory is what is on disk.
#[derive(Debug)]
pub struct Records {
    directory: PathBuf,
    known: Mutex<HashMap<String, Stored>>,
    doubts: Doubts,
    unreadable: Mutex<Vec<Unreadable>>,
    /// Each write blocks a thread until the disk has it.
    writes: Semaphore,
}

impl Records {
    /// Reads the records in `directory`, making it if it is missing. Files that cannot be read are set aside under
    /// another name.
    pub fn open(directory: &Path) -> Result<Self, RecordError> {
        let fail = |source| RecordError::Open { path: directory.to_owned(), source };
        fs::create_dir_all(directory).map_err(fail)?;
        let mut known = HashMap::new();
        let mut unreadable = Vec::new();
        for entry in fs::read_dir(directory).map_err(fail)? {
            let path = entry.map_err(fail)?.path();
            match path.extension().and_then(|e| e.to_str()) {
                Some("json") => match read(&path) {
                    Some((uid, stored)) => {
                        known.insert(uid, stored);
                    }
                    None => unreadable.push(set_aside(&path).map_err(fail)?),
                },
                // A crash before the rename: the call it was written for has not been made.
                Some(ASIDE) => fs::remove_file(&path).map_err(fail)?,
                Some(UNREADABLE) => unreadable.push(path),
                _ => {}
            }
        }
        unreadable.sort();
        Ok(Self {
            directory: directory.to_owned(),
            known: Mutex::new(known),
            doubts: Doubts::open(directory).map_err(fail)?,
            unreadable: Mutex::new(unreadable.into_iter().map(Unreadable::of).collect()),
            writes: Semaphore::new(WRITES),
        })
    }

    /// The files that cannot be read.
    #[must_use]
    pub fn unreadable(&self) -> Vec<Unreadable> {
        self.lock_unreadable().clone()
    }

    /// Somebody has looked after the mounts of a file that cannot be read: it is kept, and no longer spoken of.
    pub fn dismiss(&self, attachment_uid: &str) -> Result<bool, RecordError> {
        let mut all = self.lock_unreadable();
        let Some(at) = all.iter().position(|u| u.attachment_uid == attachment_uid) else { return Ok(false) };
        let found = all.remove(at);
        let to = found.path.with_extension(DISMISSED);
        fs::rename(&found.path, to).map_err(|source| RecordError::Store { path: found.path, source })?;
        Ok(true)
    }

    /// The API server's history went back: whatever the records speak of may be forgotten there. On disk when this
    /// returns.
    pub fn doubt_all(&self) -> Result<(), RecordError> {
        let uids = self.known().values().flat_map(Stored::uids).collect::<Vec<_>>();
        let raised = self.doubts.raise(uids);
        raised.map_err(|source| RecordError::Open { path: self.directory.clone(), source })
    }

    /// UIDs that a record speaks of and that are in doubt.
    #[must_use]
    pub fn doubted(&self, stored: &Stored) -> Vec<String> {
        let uids: Vec<String> = stored.uids().collect();
        self.doubts.among(uids.iter())
    }

    /// VolumeHandles with a record that is in doubt.
    #[must_use]
    pub fn in_doubt(&self) -> std::collections::BTreeSet<String> {
        let all: Vec<Stored> = self.known().values().cloned().collect();
        let doubted = all.into_iter().filter(|stored| !self.doubted(stored).is_empty());
        doubted.map(|stored| stored.record.handle_name).collect()
    }

    /// The API server has the object with this UID.
    pub fn settle(&self, uid: &str) {
        self.doubts.settle(uid);
    }

    /// Nothing that a record speaks of is in doubt: it is of an earlier boot, and is undone.
    pub fn settle_all(&self, stored: &Stored) {
        stored.uids().for_each(|uid| self.settle(&uid));
    }

    /// The records of what is, or may be, mounted.
    #[must_use]
    pub fn with_traces(&self) -> Vec<Stored> {
        self.known().values().filter(|stored| stored.record.has_traces()).cloned().collect()
    }

    /// The records that the API server does not account for.
    #[must_use]
    pub fn forgotten(&self) -> Vec<Stored> {
        let known = self.known();
        let found = known.values().filter(|s| s.record.forgotten.is_some());
        let sorted: BTreeMap<_, _> = found.map(|s| (s.record.attachment_uid.clone(), s.clone())).collect();
        sorted.into_values().collect()
    }

    fn lock_unreadable(&self) -> MutexGuard<'_, Vec<Unreadable>> {
        self.unreadable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The record of an Attachment.
    #[must_use]
    pub fn get(&self, attachment_uid: &str) -> Option<Stored> {
        self.known().get(attachment_uid).cloned()
    }

    /// The records of a VolumeHandle, in the order of their UIDs.
    #[must_use]
    pub fn of_handle(&self, handle_name: &str) -> Vec<Stored> {
        let known = self.known();
        let found = known.values().filter(|s| s.record.handle_name == handle_name);
        let sorted: BTreeMap<_, _> = found.map(|s| (s.record.attachment_uid.clone(), s.clone())).collect();
        sorted.into_values().collect()
    }

    /// Names of the VolumeHandles that have a record.
    #[must_use]
    pub fn handles(&self) -> Vec<String> {
        self.known().values().map(|s| s.record.handle_name.clone()).collect()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known().len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Stores a record; it is on disk when this returns. Only one task may store records of one handle at a time.
    pub async fn put(&self, stored: Stored) -> Result<(), RecordError> {
        let uid = stored.record.attachment_uid.clone();
        let path = self.file(&uid);
        let fail = |source| RecordError::Store { path: path.clone(), source };
        let text = serde_json::to_vec(&stored).map_err(|e| fail(io::Error::other(e)))?;
        let to = path.clone();
        // The semaphore is never closed, so there is always a permit to wait for.
        let _permit = self.writes.acquire().await.ok();
        tokio::task::spawn_blocking(move || replace(&to, &text))
            .await
            .map_err(|source| RecordError::Task { uid: uid.clone(), source })?
            .map_err(fail)?;
        self.known().insert(uid, stored);
        Ok(())
    }

    /// Changes the copy in memory only, for what a look at the mounts has shown: it is looked at again after a restart.
    pub fn note(&self, stored: Stored) {
        self.known().insert(stored.record.attachment_uid.clone(), stored);
    }

    /// Removes a record. None is success.
    pub async fn remove(&self, attachment_uid: &str) -> Result<(), RecordError> {
        let path = self.file(attachment_uid);
        let (file, directory) = (path.clone(), self.directory.clone());
        let work = move || match fs::remove_file(&file) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(source),
            _ => File::open(directory).and_then(|d| d.sync_all()),
        };
        tokio::task::spawn_blocking(work)
            .await
            .map_err(|source| RecordError::Task { uid: attachment_uid.to_owned(), source })?
            .map_err(|source| RecordError::Remove { path, source })?;
        self.known().remove(attachment_uid);
        Ok(())
    }

    fn file(&self, uid: &str) -> PathBuf {
        self.directory.join(format!("{uid}.json"))
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Stored>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn doubted(done: Done) -> Done {
    if done == Done::Yes { Done::Maybe } else { done }
}

fn read(path: &Path) -> Option<(String, Stored)> {
    let stored: Stored = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    let uid = path.file_stem()?.to_str()?;
    (stored.record.attachment_uid == uid).then(|| (uid.to_owned(), stored))
}

/// Under another name, so that a new record of the same Attachment does not replace it.
fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let aside = (1_u32..10_000)
        .map(|n| path.with_extension(format!("{n}.{UNREADABLE}")))
        .find(|candidate| !candidate.exists())
        .unwrap_or_else(|| path.with_extension(UNREADABLE));
    fs::rename(path, &aside)?;
    Ok(aside)
}

/// Replaces a file as a whole; it is on disk when this returns.
pub(super) fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let aside = path.with_extension(ASIDE);
    let mut file = File::create(&aside)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&aside, path)?;
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

#[cfg(test)]
#[path = "records_tests.rs"]
pub(super) mod tests;
