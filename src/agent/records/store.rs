//! The node's own records: one file per Attachment, on disk before the first call it speaks of (rule R7).
//!
//! A file is replaced as a whole (write aside, fsync, rename, fsync of the directory), so after a crash there is the
//! old one or the new one. What cannot be read is reported and kept: it may be all that is known of a mount.
//!
//! A disk that takes no writes stops what makes something, and not what undoes it. The copy in memory then says less than
//! the file, which is written or removed later. A crash before that leaves a file that says too much: what it speaks of is
//! undone once more, which CSI allows at any time, and until then nothing else of its VolumeHandle is made here. For the
//! same reason nothing of a VolumeHandle is written before its files are as they should be: the undo of an old one must
//! not come after the staging of a new one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::files;
pub use super::files::{RecordError, Unreadable};
use super::known::Known;
use super::state_disk::StateDisk;
pub use super::stored::Stored;
use crate::agent::failed_at::failed_at;
use crate::agent::host::paths::HostPath;
use crate::agent::restore::doubts::Doubts;
use crate::api::AttachmentUid;
use crate::attachment::record::{Record, TargetRecord};
use crate::disk;

/// Records that are written at a time.
const WRITES: usize = 32;

/// All records of this node. The copy in memory is what is on disk, or less.
#[derive(Debug)]
pub struct Records {
    directory: PathBuf,
    known: Mutex<Known>,
    /// Files that may say more than the copy in memory: UID of the Attachment, and the VolumeHandle's name.
    deferred: Mutex<BTreeMap<AttachmentUid, String>>,
    doubts: Doubts,
    unreadable: Mutex<Vec<Unreadable>>,
    /// The disk on which the records are.
    pub disk: StateDisk,
    /// Bounds the writes at a time, each of which blocks a thread until the disk has it.
    writes: Semaphore,
}

impl Records {
    /// Reads the records in `directory`, making it if it is missing. Files that are no records are set aside under
    /// another name.
    pub fn open(directory: &Path) -> Result<Self, RecordError> {
        let fail = failed_at(directory, RecordError::Open);
        fs::create_dir_all(directory).map_err(&fail)?;
        let found = files::read_all(directory)?;
        Ok(Self {
            directory: directory.to_owned(),
            known: Mutex::new(found.records.into_iter().collect()),
            deferred: Mutex::default(),
            doubts: Doubts::open(directory).map_err(&fail)?,
            unreadable: Mutex::new(found.unreadable),
            disk: StateDisk::tried(directory),
            writes: Semaphore::new(WRITES),
        })
    }

    /// The files that cannot be read.
    #[must_use]
    pub fn unreadable(&self) -> Vec<Unreadable> {
        self.unreadable.lock().clone()
    }

    /// Puts a file away that cannot be read, after somebody has looked after its mounts: it is kept, and no longer
    /// spoken of. Returns what it was.
    pub async fn dismiss(&self, attachment_uid: &AttachmentUid) -> Result<Option<Unreadable>, RecordError> {
        let found = self.unreadable().into_iter().find(|u| u.attachment_uid == *attachment_uid);
        let Some(unreadable) = found else { return Ok(None) };
        let path = unreadable.path.clone();
        let done = on_thread(move || files::dismiss(&path)).await;
        done.map_err(failed_at(&unreadable.path, RecordError::Store))?;
        self.unreadable.lock().retain(|u| u.path != unreadable.path);
        Ok(Some(unreadable))
    }

    /// Puts everything that the records speak of in doubt, because the API server's history went back. It is on disk
    /// when this returns.
    pub fn doubt_all(&self) -> Result<(), RecordError> {
        let uids = self.known.lock().values().flat_map(Stored::uids).collect::<Vec<_>>();
        self.doubts.raise(uids).map_err(failed_at(&self.directory, RecordError::Open))
    }

    /// UIDs that a record speaks of and that are in doubt.
    #[must_use]
    pub fn doubted(&self, stored: &Stored) -> Vec<String> {
        let uids: Vec<String> = stored.uids().collect();
        self.doubts.among(uids.iter())
    }

    /// VolumeHandles with a record that is in doubt.
    #[must_use]
    pub fn in_doubt(&self) -> BTreeSet<String> {
        let doubted = self.those(|stored| !self.doubted(stored).is_empty()).into_iter();
        doubted.map(|stored| stored.record.handle_name).collect()
    }

    /// Ends the doubt about an object that the API server has.
    pub fn settle(&self, uid: &str) {
        self.doubts.settle(uid);
    }

    /// Ends the doubt about everything that a record speaks of: it is of an earlier boot, and is undone.
    pub fn settle_all(&self, stored: &Stored) {
        stored.uids().for_each(|uid| self.settle(&uid));
    }

    /// Shows the records of a driver, in no order.
    pub fn visit(&self, driver: &str, look: impl FnMut(&Stored)) {
        self.known.lock().values().filter(|stored| stored.record.driver_name == driver).for_each(look);
    }

    /// Names of the drivers that have a record.
    #[must_use]
    pub fn drivers(&self) -> BTreeSet<String> {
        self.known.lock().values().map(|stored| stored.record.driver_name.clone()).collect()
    }

    /// The records of what is, or may be, mounted.
    #[must_use]
    pub fn with_traces(&self) -> Vec<Stored> {
        self.those(|stored| stored.record.has_traces())
    }

    /// Whether something is true of a record of what is, or may be, mounted.
    #[must_use]
    pub fn any_with_traces(&self, is_one: impl Fn(&Stored) -> bool) -> bool {
        self.known.lock().values().any(|stored| stored.record.has_traces() && is_one(stored))
    }

    /// What is asked of each record of what is, or may be, mounted, in no order. A node has hundreds of records.
    #[must_use]
    pub fn of_traces<T>(&self, ask: impl Fn(&Record) -> Option<T>) -> Vec<T> {
        let known = self.known.lock();
        known.values().filter(|stored| stored.record.has_traces()).filter_map(|s| ask(&s.record)).collect()
    }

    /// The records that the API server does not account for.
    #[must_use]
    pub fn forgotten(&self) -> Vec<Stored> {
        self.those(|stored| stored.record.forgotten.is_some())
    }

    /// The record of an Attachment.
    #[must_use]
    pub fn get(&self, attachment_uid: &AttachmentUid) -> Option<Stored> {
        self.known.lock().get(attachment_uid).cloned()
    }

    /// The records of a VolumeHandle, in the order of their UIDs.
    #[must_use]
    pub fn of_handle(&self, handle_name: &str) -> Vec<Stored> {
        self.known.lock().of_handle(handle_name).cloned().collect()
    }

    /// The records of which something is true, in the order of their UIDs.
    fn those(&self, is_one: impl Fn(&Stored) -> bool) -> Vec<Stored> {
        let mut found: Vec<_> = self.known.lock().values().filter(|stored| is_one(stored)).cloned().collect();
        found.sort_by(|one, other| one.record.attachment_uid.cmp(&other.record.attachment_uid));
        found
    }

    /// The record with a target at this path, and the target: any of them where a Pod has two volumes of one name.
    #[must_use]
    pub fn at(&self, path: &HostPath) -> Option<(Stored, TargetRecord)> {
        self.with_target(|target| target.path == path.text())
    }

    /// The record with the target at this path of the claim of this name, and the target.
    #[must_use]
    pub fn of_claim_at(&self, claim_name: &str, path: &HostPath) -> Option<(Stored, TargetRecord)> {
        self.with_target(|target| target.path == path.text() && target.name == claim_name)
    }

    fn with_target(&self, is_it: impl Fn(&TargetRecord) -> bool) -> Option<(Stored, TargetRecord)> {
        let known = self.known.lock();
        let mut found = known.values().filter_map(|stored| {
            let target = stored.record.targets.values().find(|target| is_it(target))?;
            Some((stored.clone(), target.clone()))
        });
        found.next()
    }

    /// Names of the VolumeHandles that have a record.
    #[must_use]
    pub fn handles(&self) -> Vec<String> {
        self.known.lock().values().map(|s| s.record.handle_name.clone()).collect()
    }

    /// How many records there are of a driver.
    #[must_use]
    pub fn number_of(&self, driver: &str) -> usize {
        self.known.lock().values().filter(|s| s.record.driver_name == driver).count()
    }

    /// How many records there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.lock().len()
    }

    /// Whether there is no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Stores a record that something is about to be made by; it is on disk when this returns. Only one task may store
    /// records of one handle at a time.
    pub async fn put(&self, stored: Stored) -> Result<(), RecordError> {
        self.catch_up(&stored.record.handle_name).await?;
        self.write(&stored).await?;
        self.note(stored);
        Ok(())
    }

    /// Stores a record that says no more than the file does, because something was undone. What the disk does not take is
    /// left to [`Self::catch_up`].
    pub async fn put_or_defer(&self, stored: Stored) {
        if let Err(error) = self.write(&stored).await {
            tracing::warn!("{error}; it is written when the disk takes it");
        }
        self.note(stored);
    }

    /// Changes the copy in memory only, for what a look at the mounts has shown: it is looked at again after a restart.
    pub fn note(&self, stored: Stored) {
        self.known.lock().insert(stored);
    }

    /// Removes a record, for its Attachment is undone, and with it what could not be read of the same Attachment: a
    /// version that can would undo it again, under the mounts of another one. None is success. What the disk does not take
    /// is left to [`Self::catch_up`]. Returns whether there was a file that could not be read.
    pub async fn remove(&self, attachment_uid: &AttachmentUid) -> bool {
        let handle = self.get(attachment_uid).map(|stored| stored.record.handle_name);
        self.known.lock().remove(attachment_uid);
        let had_more = {
            let mut all = self.unreadable.lock();
            let before = all.len();
            all.retain(|unreadable| unreadable.attachment_uid != *attachment_uid);
            all.len() < before
        };
        if let Err(error) = self.unlink(attachment_uid, handle.unwrap_or_default()).await {
            tracing::warn!("{error}; it is removed when the disk takes it");
        }
        had_more
    }

    /// Brings the files of a VolumeHandle to what is in memory. Called by whoever may store its records.
    pub async fn catch_up(&self, handle_name: &str) -> Result<(), RecordError> {
        let all = self.deferred.lock().clone();
        for (uid, handle) in all.into_iter().filter(|(_, handle)| handle == handle_name) {
            match self.get(&uid) {
                Some(stored) => self.write(&stored).await?,
                // No record could be written in place of a file that cannot be read: the file is all there is.
                None if self.unreadable().iter().any(|file| file.attachment_uid == uid) => {
                    self.deferred.lock().remove(&uid);
                }
                None => self.unlink(&uid, handle).await?,
            }
        }
        Ok(())
    }

    /// VolumeHandles whose files may say more than is true.
    #[must_use]
    pub fn deferred_handles(&self) -> BTreeSet<String> {
        self.deferred.lock().values().cloned().collect()
    }

    async fn write(&self, stored: &Stored) -> Result<(), RecordError> {
        let (uid, handle) = (&stored.record.attachment_uid, stored.record.handle_name.clone());
        let path = self.file(uid);
        self.keep_unreadable(&path).await?;
        let fail = failed_at(&path, RecordError::Store);
        let text = serde_json::to_vec(stored).map_err(|error| fail(error.into()))?;
        let to = path.clone();
        self.on_disk(uid, handle, move || disk::replace(&to, &text)).await.map_err(fail)
    }

    async fn unlink(&self, uid: &AttachmentUid, handle: String) -> Result<(), RecordError> {
        let (directory, of) = (self.directory.clone(), uid.to_owned());
        let done = self.on_disk(uid, handle, move || files::remove(&directory, &of)).await;
        done.map_err(failed_at(&self.file(uid), RecordError::Remove))
    }

    /// Changes the file of a record. If that fails, the file may say anything between before and after.
    async fn on_disk(
        &self,
        uid: &AttachmentUid,
        handle: String,
        work: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        self.deferred.lock().insert(uid.clone(), handle);
        // The semaphore is never closed, so there is always a permit to wait for.
        let _permit = self.writes.acquire().await.ok();
        let done = on_thread(work).await;
        match &done {
            Ok(()) => drop(self.deferred.lock().remove(uid)),
            Err(error) => self.disk.failed(error),
        }
        done
    }

    /// Sets aside a file that is no record and has kept its name because it could not be renamed.
    async fn keep_unreadable(&self, path: &Path) -> Result<(), RecordError> {
        if !self.unreadable.lock().iter().any(|unreadable| unreadable.path == path) {
            return Ok(());
        }
        let from = path.to_owned();
        let aside = on_thread(move || files::set_aside(&from)).await;
        let aside = aside.map_err(failed_at(path, RecordError::Store))?;
        let mut all = self.unreadable.lock();
        all.iter_mut().filter(|u| u.path == path).for_each(|unreadable| unreadable.path.clone_from(&aside));
        Ok(())
    }

    fn file(&self, uid: &str) -> PathBuf {
        files::file_of(&self.directory, uid)
    }
}

/// Does file work on a thread that may block, for as long as the disk takes.
async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|ended| Err(ended.into()))
}

#[cfg(test)]
#[path = "store_tests.rs"]
pub(crate) mod tests;
