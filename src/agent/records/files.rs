//! The files in which the records are kept: read, replaced as a whole, removed, and set aside where they are no records.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::stored::Stored;
use crate::agent::failed_at::{FailedAt, failed_at};
use crate::api::AttachmentUid;
use crate::api::attachment::Fixed;
use crate::disk::{ASIDE, sync};

/// A record cannot be stored, read or removed.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Making or listing the directory failed.
    #[error("open the records in {0}")]
    Open(FailedAt),
    /// The disk does not give a file. What is in it may be all that is known of a mount, so nothing is done without it.
    #[error(
        "read the record {0}; the agent does not start without it and tries again; if it stays so, repair the disk, or move \
         the file away and reboot the node, which ends the mounts that it speaks of"
    )]
    Read(FailedAt),
    /// Storing failed; the call that the record speaks of must not be made.
    #[error("store the record {0}")]
    Store(FailedAt),
    /// Removing failed.
    #[error("remove the record {0}")]
    Remove(FailedAt),
}

/// Extension of a record.
const RECORD: &str = "json";
const UNREADABLE: &str = "unreadable";
const DISMISSED: &str = "dismissed";

/// A file among the records that cannot be read as one, and what can still be made out of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The file, under the name that it was given.
    pub path: PathBuf,
    /// UID of the Attachment, from the file's name.
    pub attachment_uid: AttachmentUid,
    /// Driver, VolumeHandle and volume id, if it is JSON that has them; else empty.
    pub driver_name: String,
    /// Name of the VolumeHandle.
    pub handle_name: String,
    /// Volume id.
    pub volume_handle: String,
}

/// The records and the unreadable files of a directory.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub records: Vec<Stored>,
    pub unreadable: Vec<Unreadable>,
}

/// Reads a directory. A file that is no record is set aside under another name, and tried again at each start: another
/// version may have written it. One that the disk does not give is another matter: it may be a record like any other.
pub(crate) fn read_all(directory: &Path) -> Result<Found, RecordError> {
    let fail = failed_at(directory, RecordError::Open);
    let mut found = Found::default();
    let mut aside = Vec::new();
    for entry in fs::read_dir(directory).map_err(&fail)? {
        let path = entry.map_err(&fail)?.path();
        match path.extension().and_then(|e| e.to_str()) {
            Some(RECORD) => match read(&path)? {
                (_, Some(stored)) => found.records.push(stored),
                (text, None) => {
                    found.unreadable.push(Unreadable::of(set_aside(&path).map_err(&fail)?, &text));
                }
            },
            // A crash before the rename: the call it was written for has not been made.
            Some(ASIDE) => unless_read_only(fs::remove_file(&path)).map_err(&fail)?,
            Some(UNREADABLE) => aside.push(path),
            _ => {}
        }
    }
    // The newest first.
    aside.sort();
    for path in aside.into_iter().rev() {
        let (text, stored) = read(&path)?;
        match stored.filter(|stored| take_back(&path, stored)) {
            Some(stored) => found.records.push(stored),
            // It is no record, or has a newer one beside it, or cannot be given its name back.
            None => found.unreadable.push(Unreadable::of(path, &text)),
        }
    }
    found.unreadable.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// What is in a file, and the record if it is the one that the file is named after.
fn read(path: &Path) -> Result<(Vec<u8>, Option<Stored>), RecordError> {
    let text = fs::read(path).map_err(failed_at(path, RecordError::Read))?;
    let stored: Option<Stored> = serde_json::from_slice(&text).ok();
    let named = stored.filter(|stored| stored.record.attachment_uid.as_str() == uid_of(path));
    Ok((text, named))
}

/// UID of the Attachment: a file is named by it, whatever follows.
fn uid_of(path: &Path) -> &str {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    name.split('.').next().unwrap_or_default()
}

/// Makes a file that can be read now a record again. Not over one that has been written since.
fn take_back(path: &Path, stored: &Stored) -> bool {
    let Some(directory) = path.parent() else { return false };
    let to = file_of(directory, &stored.record.attachment_uid);
    if to.exists() {
        return false;
    }
    match fs::rename(path, &to) {
        Ok(()) => {
            tracing::info!(path = %to.display(), "a record can be read again");
            true
        }
        Err(error) => {
            tracing::warn!(path = %path.display(), "a record can be read again and not be renamed: {error}");
            false
        }
    }
}

/// Gives a file another name, so that a new record of the same Attachment does not replace it. Where nothing can be
/// written, no new record can be either.
pub(crate) fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let aside = (1_u32..10_000)
        .map(|n| path.with_extension(format!("{n}.{UNREADABLE}")))
        .find(|candidate| !candidate.exists())
        .unwrap_or_else(|| path.with_extension(UNREADABLE));
    match fs::rename(path, &aside) {
        Ok(()) => Ok(aside),
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => Ok(path.to_owned()),
        Err(error) => Err(error),
    }
}

/// Keeps a file that somebody has looked after, and no longer counts it.
pub(crate) fn dismiss(path: &Path) -> io::Result<()> {
    fs::rename(path, path.with_extension(DISMISSED))
}

fn unless_read_only(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => Ok(()),
        other => other,
    }
}

/// The file of a record.
pub(crate) fn file_of(directory: &Path, uid: &str) -> PathBuf {
    directory.join(format!("{uid}.{RECORD}"))
}

/// Removes the record of an Attachment; that is on disk when this returns. None is success. Files of it that could not be
/// read go first: one that outlived the record would be taken back as one.
pub(crate) fn remove(directory: &Path, uid: &str) -> io::Result<()> {
    let mut had_more = false;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        // An order may have dismissed it a moment ago, since the Attachment that it speaks of was undone already.
        if path.extension().is_some_and(|e| e == UNREADABLE || e == DISMISSED) && uid_of(&path) == uid {
            fs::remove_file(&path)?;
            had_more = true;
        }
    }
    if had_more {
        sync(directory)?;
    }
    match fs::remove_file(file_of(directory, uid)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => sync(directory),
    }
}

impl Unreadable {
    /// Whether an unreadable file may be of the VolumeHandle of an Attachment. A file that names none may be of any,
    /// unless something else says of which Attachment's volume it is (`is_known`).
    pub(crate) fn may_be_of(&self, attachment: &Fixed, is_known: bool) -> bool {
        if !self.handle_name.is_empty() {
            return self.handle_name == attachment.handle_name;
        }
        !is_known && (self.driver_name.is_empty() || self.driver_name == attachment.driver_name)
    }

    fn of(path: PathBuf, text: &[u8]) -> Self {
        let json: serde_json::Value = serde_json::from_slice(text).unwrap_or_default();
        let field = |name: &str| json[name].as_str().unwrap_or_default().to_owned();
        Self {
            attachment_uid: uid_of(&path).into(),
            driver_name: field("driverName"),
            handle_name: field("handleName"),
            volume_handle: field("volumeHandle"),
            path,
        }
    }
}
