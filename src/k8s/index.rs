//! Objects of a store by something that they say.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// UID of an object, shared between the maps.
pub(super) type Uid = Arc<str>;

/// Computes the keys under which an index finds an object.
pub(super) type IndexFn<K> = fn(&K) -> Vec<String>;

/// The name of an index of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Index(pub &'static str);

/// An index: the UIDs of the objects under each key.
pub(super) struct Keyed<K> {
    pub index: Index,
    keys: IndexFn<K>,
    map: HashMap<Box<str>, Uids>,
}

/// What an index has under one key. Mostly that is one object, and a set for it would take more than all else of the index.
enum Uids {
    One(Uid),
    Many(BTreeSet<Uid>),
}

impl<K> Keyed<K> {
    /// An index without objects.
    pub fn new(index: Index, keys: IndexFn<K>) -> Self {
        Self { index, keys, map: HashMap::new() }
    }

    /// The object with this UID was `old`, or none, and is `new`, or none.
    pub fn update(&mut self, uid: &Uid, old: Option<&K>, new: Option<&K>) {
        let before = old.map(self.keys).unwrap_or_default();
        let after = new.map(self.keys).unwrap_or_default();
        if before == after {
            return;
        }
        for key in before {
            if let Entry::Occupied(mut uids) = self.map.entry(key.into())
                && uids.get_mut().remove(uid)
            {
                uids.remove();
            }
        }
        for key in after {
            match self.map.entry(key.into()) {
                Entry::Occupied(mut uids) => uids.get_mut().insert(uid),
                Entry::Vacant(none) => drop(none.insert(Uids::One(uid.clone()))),
            }
        }
    }

    /// The UIDs under a key, in their order.
    pub fn under(&self, key: &str) -> impl Iterator<Item = &Uid> {
        self.map.get(key).into_iter().flat_map(Uids::iter)
    }

    /// The number of objects under a key.
    pub fn count(&self, key: &str) -> usize {
        self.map.get(key).map_or(0, Uids::len)
    }

    /// Whether it has no key.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Of each key one UID.
    pub fn one_of_each(&self) -> impl Iterator<Item = &Uid> {
        self.map.values().filter_map(|uids| uids.iter().next())
    }
}

impl Uids {
    fn insert(&mut self, uid: &Uid) {
        match self {
            Self::One(one) if one == uid => {}
            Self::One(one) => *self = Self::Many([one.clone(), uid.clone()].into()),
            Self::Many(all) => drop(all.insert(uid.clone())),
        }
    }

    /// Returns whether nothing is left.
    fn remove(&mut self, uid: &Uid) -> bool {
        match self {
            Self::One(one) => one == uid,
            Self::Many(all) => {
                all.remove(uid);
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

    fn iter(&self) -> impl Iterator<Item = &Uid> {
        let (one, many) = match self {
            Self::One(one) => (Some(one), None),
            Self::Many(all) => (None, Some(all)),
        };
        one.into_iter().chain(many.into_iter().flatten())
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
            steps in prop::collection::vec((0..5_u8, prop::option::of(prop::collection::vec(0..3_u8, 0..3))), 0..60),
        ) {
            let keys = |object: &Vec<u8>| object.iter().map(u8::to_string).collect();
            let mut index = Keyed::new(Index("i"), keys);
            let mut all: BTreeMap<Uid, Vec<u8>> = BTreeMap::new();
            for (uid, object) in steps {
                let uid = Uid::from(uid.to_string());
                index.update(&uid, all.get(&uid), object.as_ref());
                match object {
                    Some(object) => drop(all.insert(uid, object)),
                    None => drop(all.remove(&uid)),
                }
                let says = |key: u8| all.iter().filter(move |(_, object)| object.contains(&key)).map(|(uid, _)| uid);
                for key in 0..3 {
                    let found: Vec<_> = index.under(&key.to_string()).collect();
                    prop_assert_eq!(index.count(&key.to_string()), found.len());
                    prop_assert_eq!(found, says(key).collect::<Vec<_>>());
                }
                let ones: Vec<_> = index.one_of_each().collect();
                let keys = (0..3).filter(|key| says(*key).next().is_some()).count();
                prop_assert_eq!(ones.len(), keys);
                prop_assert!(ones.iter().all(|one| all.contains_key(*one)));
            }
        }
    }
}
