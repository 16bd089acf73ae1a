//! What the leader remembers between passes over PersistentVolumeClaims and PersistentVolumes: what it has said about them,
//! and which of these wait for a Volume. Nothing is decided on it.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::key::Key;

/// The same words are said again after this time, so that they are found while they are true.
const AGAIN: Duration = Duration::from_secs(300);

/// What was said, and who waits.
#[derive(Default)]
pub(crate) struct Provisioning {
    told: Mutex<HashMap<Key, (String, Instant)>>,
    /// Passes by the UID of the Volume whose end they wait for.
    waiting: Mutex<HashMap<String, BTreeSet<String>>>,
}

impl Provisioning {
    /// Whether these words are news about an object. Then they count as said.
    pub(crate) fn is_news(&self, key: &Key, words: &str) -> bool {
        let mut told = self.told.lock();
        let said = told.get(key).is_some_and(|(said, at)| said == words && at.elapsed() < AGAIN);
        if !said {
            told.insert(key.clone(), (words.to_owned(), Instant::now()));
        }
        !said
    }

    /// Nothing more is to be said about an object.
    pub(crate) fn forget(&self, key: &Key) {
        self.told.lock().remove(key);
    }

    /// A PersistentVolume waits for this Volume to change.
    pub(crate) fn wait(&self, volume_uid: &str, persistent_volume: &str) {
        let mut waiting = self.waiting.lock();
        waiting.entry(volume_uid.to_owned()).or_default().insert(persistent_volume.to_owned());
    }

    /// The PersistentVolumes that wait for this Volume. They are asked for anew if they still do.
    pub(crate) fn waiting_for(&self, volume_uid: &str) -> BTreeSet<String> {
        self.waiting.lock().remove(volume_uid).unwrap_or_default()
    }
}
