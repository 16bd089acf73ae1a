//! What the leader remembers between passes over PersistentVolumeClaims and PersistentVolumes: what it has said about them,
//! and which of these wait for a Volume. Nothing is decided on it, but that a
//! deletion that this leader has ordered is not ordered once more.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::key::Key;

/// The same words are said again after this time, so that they are found while they are true.
const AGAIN: Duration = Duration::from_secs(300);

/// So long is told that another provisioner runs, after it was last seen to.
const TOLD: Duration = Duration::from_secs(3600);

/// What was said, and who waits.
#[derive(Default)]
pub(crate) struct Provisioning {
    told: Mutex<HashMap<Key, (String, Instant)>>,
    /// Passes by the UID of the Volume that they wait for.
    waiting: Mutex<HashMap<String, HashSet<Key>>>,
    /// UIDs of PersistentVolumes and VolumeSnapshotContents whose storage this leader has ordered to be deleted.
    ordered: Mutex<HashMap<Key, String>>,
    /// PersistentVolumes that another provisioner has made in moor's place, the last one of each Plugin.
    by_others: Mutex<HashMap<String, (String, Instant)>>,
    /// Why the scheduler does not go by the room of a Plugin's driver, where that has some to tell of.
    untold: Mutex<HashMap<String, String>>,
    /// Which of several PersistentVolumes of one storage ends last is found out by one at a time.
    pub(crate) last: tokio::sync::Mutex<()>,
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

    /// The storage of this object is being deleted. Another leader orders it again, which a driver answers with OK.
    pub(crate) fn ordered(&self, of: &Key, uid: &str) {
        self.ordered.lock().insert(of.clone(), uid.to_owned());
    }

    /// Whether this leader has ordered that the storage of this object be deleted.
    pub(crate) fn has_ordered(&self, of: &Key, uid: &str) -> bool {
        self.ordered.lock().get(of).is_some_and(|ordered| ordered == uid)
    }

    /// The object of this name is gone, or in use again.
    pub(crate) fn left(&self, of: &Key) {
        self.ordered.lock().remove(of);
        self.forget(of);
    }

    /// Another provisioner of this Plugin's driver has made a PersistentVolume that moor was to make.
    pub(crate) fn made_by_another(&self, plugin: &str, persistent_volume: &str) {
        self.by_others.lock().insert(plugin.to_owned(), (persistent_volume.to_owned(), Instant::now()));
    }

    /// The PersistentVolume that another provisioner of this Plugin's driver has made last, and how long that is still told.
    pub(crate) fn by_another(&self, plugin: &str) -> Option<(String, Duration)> {
        let mut all = self.by_others.lock();
        let (name, at) = all.get(plugin)?;
        let left = TOLD.saturating_sub(at.elapsed());
        if left.is_zero() {
            all.remove(plugin);
            return None;
        }
        Some((name.clone(), left))
    }

    /// Takes in why the scheduler does not go by the room of this Plugin's driver. Returns whether that is news.
    pub(crate) fn room_untold(&self, plugin: &str, why: Option<String>) -> bool {
        let mut untold = self.untold.lock();
        if untold.get(plugin) == why.as_ref() {
            return false;
        }
        match why {
            Some(why) => untold.insert(plugin.to_owned(), why),
            None => untold.remove(plugin),
        };
        true
    }

    /// Why the scheduler does not go by the room of this Plugin's driver.
    pub(crate) fn why_room_is_untold(&self, plugin: &str) -> Option<String> {
        self.untold.lock().get(plugin).cloned()
    }

    /// A pass waits for this Volume to change.
    pub(crate) fn wait(&self, volume_uid: &str, key: Key) {
        let mut waiting = self.waiting.lock();
        waiting.entry(volume_uid.to_owned()).or_default().insert(key);
    }

    /// The passes that wait for this Volume. They are asked for anew if they still do.
    pub(crate) fn waiting_for(&self, volume_uid: &str) -> HashSet<Key> {
        self.waiting.lock().remove(volume_uid).unwrap_or_default()
    }
}
