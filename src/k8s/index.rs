//! Objects of a store by something that they say.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// Where a store has an object.
pub(super) type Slot = usize;

/// Computes the keys under which an index finds an object.
pub(super) type IndexFn<K> = fn(&K) -> Vec<String>;

/// The name of an index of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Index(pub &'static str);

/// An index: where the objects are under each key.
pub(super) struct Keyed<K> {
    pub index: Index,
    keys: IndexFn<K>,
    map: HashTable<(Digest, Slots)>,
    secret: RandomState,
}

/// What is kept of a key, which the objects say anyway: as many bits of it as a UID has. They depend on a secret of this process, so
/// that nobody who writes objects can have two keys taken for one.
type Digest = [u64; 2];

/// What an index has under one key. Mostly that is one object, and a set for it would take more than all else of the index.
enum Slots {
    One(Slot),
    #[allow(clippy::box_collection, reason = "the set itself is larger than a place")]
    Many(Box<BTreeSet<Slot>>),
}

impl<K> Keyed<K> {
    /// An index without objects.
    pub fn new(index: Index, keys: IndexFn<K>) -> Self {
        Self { index, keys, map: HashTable::new(), secret: RandomState::new() }
    }

    /// The object at this place was `old`, or there was none, and is `new`, or there is none.
    pub fn update(&mut self, slot: Slot, old: Option<&K>, new: Option<&K>) {
        let before = old.map(self.keys).unwrap_or_default();
        let after = new.map(self.keys).unwrap_or_default();
        if before == after {
            return;
        }
        for key in before {
            if let Entry::Occupied(mut found) = self.entry(self.digest(&key))
                && found.get_mut().1.remove(slot)
            {
                found.remove();
            }
        }
        for key in after {
            let digest = self.digest(&key);
            match self.entry(digest) {
                Entry::Occupied(mut found) => found.get_mut().1.insert(slot),
                Entry::Vacant(none) => drop(none.insert((digest, Slots::One(slot)))),
            }
        }
    }

    /// Where the objects under a key are.
    pub fn under(&self, key: &str) -> impl Iterator<Item = Slot> {
        self.found(key).into_iter().flat_map(Slots::iter)
    }

    /// The number of objects under a key.
    pub fn count(&self, key: &str) -> usize {
        self.found(key).map_or(0, Slots::len)
    }

    /// Whether it has no key.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Of each key where one object is.
    pub fn one_of_each(&self) -> impl Iterator<Item = Slot> {
        self.map.iter().filter_map(|(_, slots)| slots.iter().next())
    }

    fn digest(&self, key: &str) -> Digest {
        [self.secret.hash_one(key), self.secret.hash_one((key, "more"))]
    }

    fn found(&self, key: &str) -> Option<&Slots> {
        let digest = self.digest(key);
        self.map.find(digest[0], |(one, _)| *one == digest).map(|(_, slots)| slots)
    }

    fn entry(&mut self, digest: Digest) -> Entry<'_, (Digest, Slots)> {
        self.map.entry(digest[0], |(one, _)| *one == digest, |(one, _)| one[0])
    }
}

impl Slots {
    fn insert(&mut self, slot: Slot) {
        match self {
            Self::One(one) if *one == slot => {}
            Self::One(one) => *self = Self::Many(Box::new([*one, slot].into())),
            Self::Many(all) => drop(all.insert(slot)),
        }
    }

    /// Returns whether nothing is left.
    fn remove(&mut self, slot: Slot) -> bool {
        match self {
            Self::One(one) => *one == slot,
            Self::Many(all) => {
                all.remove(&slot);
                all.is_empty()
            }
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Many(all) => all.len(),
        }
    }

    fn iter(&self) -> impl Iterator<Item = Slot> {
        let (one, many) = match self {
            Self::One(one) => (Some(*one), None),
            Self::Many(all) => (None, Some(all)),
        };
        one.into_iter().chain(many.into_iter().flat_map(|all| all.iter().copied()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Objects are the keys that they say.
        #[test]
        fn what_is_found_is_what_says_the_key(
            steps in prop::collection::vec((0..5_usize, prop::option::of(prop::collection::vec(0..3_u8, 0..3))), 0..60),
        ) {
            let keys = |object: &Vec<u8>| object.iter().map(u8::to_string).collect();
            let mut index = Keyed::new(Index("i"), keys);
            let mut all: BTreeMap<Slot, Vec<u8>> = BTreeMap::new();
            for (slot, object) in steps {
                index.update(slot, all.get(&slot), object.as_ref());
                match object {
                    Some(object) => drop(all.insert(slot, object)),
                    None => drop(all.remove(&slot)),
                }
                let says = |key: u8| all.iter().filter(move |(_, object)| object.contains(&key)).map(|(slot, _)| *slot);
                for key in 0..3 {
                    let found: Vec<_> = index.under(&key.to_string()).collect();
                    prop_assert_eq!(index.count(&key.to_string()), found.len());
                    prop_assert_eq!(found, says(key).collect::<Vec<_>>());
                }
                let ones: Vec<_> = index.one_of_each().collect();
                let keys = (0..3).filter(|key| says(*key).next().is_some()).count();
                prop_assert_eq!(ones.len(), keys);
                prop_assert!(ones.iter().all(|one| all.contains_key(one)));
            }
        }
    }
}
