//! What this agent knows to have been moor's, on its disk: ids and names of volumes and snapshots outlive their objects there, so that
//! storage is recognised that no object stands for any more, also when etcd was restored from a backup (docs/adr/0041).
//!
//! It only says what may be told. Without it, as on another node or a new disk, less is recognised.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::said::Said;
use crate::api::storage::{OrphanedStorage, StorageKind};
use crate::disk;

/// Most volumes, and most snapshots, of one driver that are remembered.
const MOST: usize = 200_000;
/// Bytes of a UUID as it is printed.
const UUID: usize = 36;

/// What is remembered of one volume or snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// The name that its driver was given for it; None of what was registered, which is not moor's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its id, once that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Of a group the ids of its members.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<String>,
    /// Its driver has listed it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub listed: bool,
}

impl Entry {
    /// The ids under which a driver may list it.
    pub fn ids(&self) -> impl Iterator<Item = &String> {
        self.id.iter().chain(&self.members)
    }
}

/// Entries by the UIDs of the objects that they are of.
pub(super) type Entries = BTreeMap<String, Entry>;

/// Entries by driver, and by kind.
type Content = BTreeMap<String, BTreeMap<StorageKind, Entries>>;

/// The ledger of this agent.
#[derive(Debug)]
pub(crate) struct Ledger {
    path: PathBuf,
    content: Mutex<Content>,
    /// What is on the disk.
    written: Mutex<Content>,
}

impl Ledger {
    /// Opens the file at `path`, which may not be there. One that cannot be read is as one that is not there.
    pub fn open(path: &Path) -> Self {
        let read = match std::fs::read(path) {
            Ok(bytes) => serde_json::from_slice::<Content>(&bytes).map_err(io::Error::from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Content::new()),
            Err(error) => Err(error),
        };
        let content = read.unwrap_or_else(|error| {
            tracing::warn!(path = %path.display(), %error, "what was moor's is not known any more: orphans of before are not recognised");
            Content::new()
        });
        Self { path: path.to_owned(), written: Mutex::new(content.clone()), content: Mutex::new(content) }
    }

    /// Remembers what an object says. An id that is known stays until there is another one.
    pub(super) fn take_in(&self, driver: &str, said: &Said) {
        let id = said.id.as_ref().or(said.rejected.as_ref());
        self.change(driver, said.kind, &said.uid, |entry| {
            entry.name.clone_from(&said.made_as);
            if !said.members.is_empty() {
                entry.members.clone_from(&said.members);
            }
            if let Some(id) = id.filter(|id| entry.id.as_ref() != Some(id)) {
                entry.id = Some(id.clone());
                entry.listed = false;
            }
        });
    }

    /// Remembers what another agent has found, so that it stays told when this one takes over.
    pub fn take_in_orphan(&self, driver: &str, orphan: &OrphanedStorage) {
        self.change(driver, orphan.kind, &orphan.uid, |entry| {
            entry.name = Some(orphan.create_name.clone());
            entry.id.get_or_insert_with(|| orphan.handle.clone());
            entry.listed = true;
        });
    }

    fn change(&self, driver: &str, kind: StorageKind, uid: &str, change: impl FnOnce(&mut Entry)) {
        let mut content = self.content.lock();
        let entries = content.entry(driver.to_owned()).or_default().entry(kind).or_default();
        if entries.len() < MOST || entries.contains_key(uid) {
            change(entries.entry(uid.to_owned()).or_default());
        }
    }

    /// What is remembered of a driver.
    pub(super) fn entries(&self, driver: &str, kind: StorageKind) -> Entries {
        self.content.lock().get(driver).and_then(|of| of.get(&kind)).cloned().unwrap_or_default()
    }

    /// Takes in a listing: these entries were listed, and these are of nothing that is there any more.
    pub(super) fn settle<'a>(
        &self,
        driver: &str,
        kind: StorageKind,
        listed: impl Iterator<Item = &'a String>,
        gone: impl Iterator<Item = &'a String>,
    ) {
        let mut content = self.content.lock();
        let Some(entries) = content.get_mut(driver).and_then(|of| of.get_mut(&kind)) else { return };
        for uid in listed {
            if let Some(entry) = entries.get_mut(uid) {
                entry.listed = true;
            }
        }
        for uid in gone {
            entries.remove(uid);
        }
    }

    /// Writes what is not on the disk yet. Blocks.
    pub(super) fn write(&self) -> io::Result<()> {
        let content = self.content.lock().clone();
        let mut written = self.written.lock();
        if *written == content {
            return Ok(());
        }
        disk::replace(&self.path, &serde_json::to_vec(&content)?)?;
        *written = content;
        Ok(())
    }
}

/// By what an entry is found in what a driver lists.
#[derive(Debug)]
pub(super) struct Index {
    by_id: HashMap<String, String>,
    by_name: HashMap<String, String>,
}

impl Index {
    pub fn of(entries: &Entries) -> Self {
        // What was made for moor stays so when somebody has registered it since.
        let (made, registered): (Vec<_>, Vec<_>) =
            entries.iter().partition(|(_, entry)| entry.name.is_some());
        let ids = registered.into_iter().chain(made);
        let ids = ids.flat_map(|(uid, entry)| entry.ids().map(move |id| (id.clone(), uid.clone())));
        let names =
            entries.iter().filter_map(|(uid, entry)| Some((core_of(entry.name.as_ref()?), uid.clone())));
        Self { by_id: ids.collect(), by_name: names.collect() }
    }

    /// UID of the object that this is of: by its id, or by a name that a driver has put into its id or its context.
    pub fn find<'a>(&self, id: &'a str, others: impl Iterator<Item = &'a str>) -> Option<&String> {
        let named = || std::iter::once(id).chain(others).find_map(|text| self.named_in(text));
        self.by_id.get(id).or_else(named)
    }

    fn named_in(&self, text: &str) -> Option<&String> {
        let in_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let words = text.split(|c| !in_name(c)).filter(|word| !word.is_empty());
        words.chain(uuids(text)).find_map(|word| self.by_name.get(word))
    }
}

/// What a name is recognised by. Drivers cut names and put more around them; a UUID in one is there once in the world.
fn core_of(name: &str) -> String {
    uuids(name).next().unwrap_or(name).to_owned()
}

/// The UUIDs in a text.
fn uuids(text: &str) -> impl Iterator<Item = &str> {
    let starts = text.char_indices().map(|(start, _)| start);
    starts.filter_map(|start| text.get(start..start + UUID)).filter(|word| is_uuid(word))
}

fn is_uuid(word: &str) -> bool {
    word.len() == UUID
        && word.bytes().enumerate().all(|(place, byte)| match place {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
        })
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
