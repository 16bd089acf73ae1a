//! The data structure under a cache: objects by UID, fed by several streams and by our own writes.
//!
//! Rules (trap B25, rule R12):
//! - the newest resourceVersion of a UID wins, whoever delivers it;
//! - another UID under a known name means that the old object is gone and a new one is there;
//! - an object leaves when it is in none of the streams, and the resourceVersion at which it left is
//!   remembered, so that the late response of an earlier write cannot bring it back. A stream can: it tells in order,
//!   and one that was behind has what left the selection of another, or tells of its end in its turn.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    fmt,
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
};

use hashbrown::HashTable;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use slab::Slab;

use super::index::{Index, IndexFn, Keyed, Slot};

/// Tombstones kept. A late response is at most one request timeout old; at the 100 deletions per
/// second that one API server manages, this is more than a minute.
const TOMBSTONES: usize = 8192;

/// The name of an object with its namespace, which is empty for a kind that has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named<'a> {
    /// The object's namespace.
    pub namespace: &'a str,
    /// The object's own name.
    pub name: &'a str,
}

impl<'a> Named<'a> {
    /// The name that an object's metadata say.
    pub fn of(meta: &'a ObjectMeta) -> Self {
        let (namespace, name) = (meta.namespace.as_deref(), meta.name.as_deref());
        Self { namespace: namespace.unwrap_or_default(), name: name.unwrap_or_default() }
    }

    fn hash(&self, hasher: &RandomState) -> u64 {
        hasher.hash_one((self.namespace, self.name))
    }
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Who delivered an object.
#[derive(Clone, Copy, Debug)]
pub(super) enum Origin {
    /// A watch, by its number.
    Stream(u8),
    /// The response to a write or a live read of our own.
    Own,
}

impl Origin {
    /// Whether what it says of an object that left at a version says nothing of what became of it then.
    fn is_older_than(self, version: u64, left: u64) -> bool {
        match self {
            Self::Stream(_) => left == u64::MAX,
            Self::Own => version <= left,
        }
    }
}

/// What happened to one object: before and after.
pub(super) struct Change<K> {
    pub old: Option<Arc<K>>,
    pub new: Option<Arc<K>>,
}

struct Entry<K> {
    object: Arc<K>,
    version: u64,
    /// Streams that have it, one bit each.
    seen: u8,
    /// Set while the object is known only from a write of our own: one bit for each stream whose LIST did not have
    /// it.
    unseen: Option<u8>,
}

#[derive(Default)]
struct Tombstones {
    left_at: HashMap<Arc<str>, u64>,
    order: VecDeque<Arc<str>>,
}

impl Tombstones {
    fn put(&mut self, uid: &str, version: u64) {
        if let Some(known) = self.left_at.get_mut(uid) {
            *known = version.max(*known);
            return;
        }
        if self.order.len() >= TOMBSTONES
            && let Some(oldest) = self.order.pop_front()
        {
            self.left_at.remove(&oldest);
        }
        let uid: Arc<str> = uid.into();
        self.left_at.insert(uid.clone(), version);
        self.order.push_back(uid);
    }
}

/// Objects of one kind.
pub(super) struct Store<K> {
    entries: Slab<Entry<K>>,
    /// Where the objects are, by their UIDs and by their names, which are not kept a second time.
    uids: HashTable<Slot>,
    names: HashTable<Slot>,
    hasher: RandomState,
    indexes: Vec<Keyed<K>>,
    tombstones: Tombstones,
    streams: u8,
    highest: u64,
}

impl<K: Resource> Store<K> {
    /// An empty store fed by this many streams (at most 8).
    pub fn new(streams: u8) -> Self {
        Self {
            entries: Slab::new(),
            uids: HashTable::new(),
            names: HashTable::new(),
            hasher: RandomState::new(),
            indexes: Vec::new(),
            tombstones: Tombstones::default(),
            streams,
            highest: 0,
        }
    }

    /// Adds an index; called before the first object arrives.
    pub fn add_index(&mut self, index: Index, keys: IndexFn<K>) {
        self.indexes.push(Keyed::new(index, keys));
    }

    /// Takes in an object as of its resourceVersion.
    pub fn put(&mut self, object: K, origin: Origin) -> Vec<Change<K>> {
        let meta = object.meta();
        let Some(uid) = meta.uid.as_deref() else { return Vec::new() };
        let version = version(meta);
        self.highest = self.highest.max(version);
        if self.tombstones.left_at.get(uid).is_some_and(|left| origin.is_older_than(version, *left)) {
            return Vec::new();
        }
        if finished(meta) {
            return self.bury(uid, u64::MAX).into_iter().collect();
        }
        let mut changes = Vec::new();
        if let Some(holder) = self.slot_named(Named::of(meta)).map(|slot| &self.entries[slot])
            && holder.uid() != uid
        {
            // Names are taken in the order of resource versions: the older of the two no longer exists.
            if holder.version > version {
                self.tombstones.put(uid, u64::MAX);
                return changes;
            }
            let holder = holder.object.clone();
            changes.extend(self.bury(uid_of(holder.meta()), u64::MAX));
        }
        changes.extend(self.insert(object, version, origin));
        changes
    }

    fn insert(&mut self, object: K, version: u64, origin: Origin) -> Option<Change<K>> {
        if let Some(slot) = self.slot_of(uid_of(object.meta())) {
            let entry = &mut self.entries[slot];
            entry.mark(origin);
            // The same version is the same content: our own write, echoed by the watch, is no news.
            if version <= entry.version {
                return None;
            }
            // No API server lets an object change its name, and the table of names could not follow.
            if entry.named() != Named::of(object.meta()) {
                return None;
            }
            let object = Arc::new(object);
            let old = std::mem::replace(&mut entry.object, object.clone());
            entry.version = version;
            for index in &mut self.indexes {
                index.update(slot, Some(&old), Some(&object));
            }
            return Some(Change { old: Some(old), new: Some(object) });
        }
        let object = Arc::new(object);
        let mut entry = Entry { object: object.clone(), version, seen: 0, unseen: Some(0) };
        entry.mark(origin);
        let slot = self.entries.insert(entry);
        for index in &mut self.indexes {
            index.update(slot, None, Some(&object));
        }
        let Self { uids, names, entries, hasher, .. } = self;
        let by_uid = |slot: &Slot| hasher.hash_one(entries[*slot].uid());
        uids.insert_unique(by_uid(&slot), slot, by_uid);
        let by_name = |slot: &Slot| entries[*slot].named().hash(hasher);
        names.insert_unique(by_name(&slot), slot, by_name);
        Some(Change { old: None, new: Some(object) })
    }

    /// A stream delivered DELETED: the object has left its selection or is gone. While another stream
    /// has it, it stays, and the change says only that somebody should look.
    pub fn leave(&mut self, meta: &ObjectMeta, stream: u8) -> Vec<Change<K>> {
        let Some(uid) = meta.uid.as_deref() else { return Vec::new() };
        let version = version(meta);
        self.highest = self.highest.max(version);
        let Some(slot) = self.slot_of(uid) else {
            self.tombstones.put(uid, version);
            return Vec::new();
        };
        let entry = &mut self.entries[slot];
        entry.seen &= !bit(stream);
        entry.unseen = None;
        if entry.seen != 0 {
            let object = entry.object.clone();
            return vec![Change { old: Some(object.clone()), new: Some(object) }];
        }
        let left = version.max(entry.version);
        self.bury(uid, left).into_iter().collect()
    }

    /// A stream has listed everything it selects as of `version`: what it had and did not list has
    /// left it, unless we know a newer version than the list.
    pub fn listed(&mut self, listed: &HashSet<String>, version: u64, stream: u8) -> Vec<Change<K>> {
        self.highest = self.highest.max(version);
        let all = bits(self.streams);
        let mut left = Vec::new();
        for (_, entry) in &mut self.entries {
            if entry.version > version || listed.contains(entry.uid()) {
                continue;
            }
            entry.seen &= !bit(stream);
            if let Some(unseen) = &mut entry.unseen {
                *unseen |= bit(stream);
            }
            if entry.seen == 0 && entry.unseen.is_none_or(|unseen| unseen == all) {
                left.push(entry.object.clone());
            }
        }
        left.iter().filter_map(|object| self.bury(uid_of(object.meta()), version)).collect()
    }

    /// An answer shows an object that no stream selects any more.
    pub fn outgrow(&mut self, meta: &ObjectMeta) -> Option<Change<K>> {
        let (uid, version) = (meta.uid.as_deref()?, version(meta));
        let is_news = self.entries[self.slot_of(uid)?].version < version;
        if is_news { self.bury(uid, version) } else { None }
    }

    /// Removes a UID for good: a live GET has shown that it is gone.
    pub fn bury(&mut self, uid: &str, version: u64) -> Option<Change<K>> {
        self.tombstones.put(uid, version);
        let slot = self.slot_of(uid)?;
        let entry = self.entries.remove(slot);
        let by_uid = self.hasher.hash_one(entry.uid());
        let by_name = entry.named().hash(&self.hasher);
        for (table, hash) in [(&mut self.uids, by_uid), (&mut self.names, by_name)] {
            if let Ok(found) = table.find_entry(hash, |one| *one == slot) {
                found.remove();
            }
        }
        for index in &mut self.indexes {
            index.update(slot, Some(&entry.object), None);
        }
        Some(Change { old: Some(entry.object), new: None })
    }

    pub fn by_name(&self, named: Named<'_>) -> Option<Arc<K>> {
        self.slot_named(named).map(|slot| self.object(slot))
    }

    pub fn by_uid(&self, uid: &str) -> Option<Arc<K>> {
        self.slot_of(uid).map(|slot| self.object(slot))
    }

    /// The objects under a key of an index, in no order.
    pub fn by_index(&self, index: Index, key: &str) -> Vec<Arc<K>> {
        let slots = self.keyed(index).flat_map(|keyed| keyed.under(key));
        slots.map(|slot| self.object(slot)).collect()
    }

    /// The number of objects under a key of an index.
    pub fn count(&self, index: Index, key: &str) -> usize {
        self.keyed(index).map(|keyed| keyed.count(key)).sum()
    }

    /// Of each key of an index one object.
    pub fn one_of_each(&self, index: Index) -> Vec<Arc<K>> {
        let slots = self.keyed(index).flat_map(Keyed::one_of_each);
        slots.map(|slot| self.object(slot)).collect()
    }

    pub fn all(&self) -> Vec<Arc<K>> {
        self.entries.iter().map(|(_, entry)| entry.object.clone()).collect()
    }

    /// The newest resourceVersion that has been seen of this kind, from anywhere.
    pub fn highest(&self) -> u64 {
        self.highest
    }

    fn object(&self, slot: Slot) -> Arc<K> {
        self.entries[slot].object.clone()
    }

    fn keyed(&self, index: Index) -> impl Iterator<Item = &Keyed<K>> {
        self.indexes.iter().filter(move |keyed| keyed.index == index)
    }

    fn slot_of(&self, uid: &str) -> Option<Slot> {
        let has_it = |slot: &Slot| self.entries[*slot].uid() == uid;
        self.uids.find(self.hasher.hash_one(uid), has_it).copied()
    }

    fn slot_named(&self, named: Named<'_>) -> Option<Slot> {
        let has_it = |slot: &Slot| self.entries[*slot].named() == named;
        self.names.find(named.hash(&self.hasher), has_it).copied()
    }
}

fn uid_of(meta: &ObjectMeta) -> &str {
    meta.uid.as_deref().unwrap_or_default()
}

impl<K: Resource> Entry<K> {
    fn uid(&self) -> &str {
        uid_of(self.object.meta())
    }

    fn named(&self) -> Named<'_> {
        Named::of(self.object.meta())
    }
}

impl<K> Entry<K> {
    fn mark(&mut self, origin: Origin) {
        if let Origin::Stream(stream) = origin {
            self.seen |= bit(stream);
            self.unseen = None;
        }
    }
}

/// Whether an object is being deleted and nothing holds it any more. A grace period means that it still runs (Pods).
fn finished(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some()
        && meta.finalizers.as_ref().is_none_or(Vec::is_empty)
        && meta.deletion_grace_period_seconds.is_none_or(|seconds| seconds == 0)
}

/// Resource versions are compared as numbers (KEP-5504). One that is none counts as the oldest.
pub(super) fn version(meta: &ObjectMeta) -> u64 {
    meta.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(0)
}

fn bit(stream: u8) -> u8 {
    1_u8.checked_shl(stream.into()).unwrap_or(0)
}

fn bits(streams: u8) -> u8 {
    (0..streams).map(bit).fold(0, |all, one| all | one)
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
