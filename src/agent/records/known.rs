//! The records in memory, and which there are of each VolumeHandle.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use super::stored::Stored;
use crate::api::AttachmentUid;

/// All records by the UID of their Attachment. Every pass asks for those of its VolumeHandle, which are few of many.
#[derive(Debug, Default)]
pub(super) struct Known {
    records: HashMap<AttachmentUid, Stored>,
    of_handle: HashMap<String, BTreeSet<AttachmentUid>>,
}

impl Known {
    /// Takes a record in, in place of an older one of its Attachment.
    pub fn insert(&mut self, stored: Stored) {
        let uid = stored.record.attachment_uid.clone();
        self.remove(&uid);
        self.of_handle.entry(stored.record.handle_name.clone()).or_default().insert(uid.clone());
        self.records.insert(uid, stored);
    }

    /// Forgets the record of an Attachment.
    pub fn remove(&mut self, uid: &AttachmentUid) {
        let Some(stored) = self.records.remove(uid) else { return };
        if let Entry::Occupied(mut of_it) = self.of_handle.entry(stored.record.handle_name) {
            of_it.get_mut().remove(uid);
            if of_it.get().is_empty() {
                of_it.remove();
            }
        }
    }

    /// The record of an Attachment.
    pub fn get(&self, uid: &AttachmentUid) -> Option<&Stored> {
        self.records.get(uid)
    }

    /// The records of a VolumeHandle, in the order of their UIDs.
    pub fn of_handle(&self, handle_name: &str) -> impl Iterator<Item = &Stored> {
        let uids = self.of_handle.get(handle_name).into_iter().flatten();
        uids.filter_map(|uid| self.records.get(uid))
    }

    /// All records, in no order.
    pub fn values(&self) -> impl Iterator<Item = &Stored> {
        self.records.values()
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.records.len()
    }
}

impl FromIterator<Stored> for Known {
    fn from_iter<I: IntoIterator<Item = Stored>>(all: I) -> Self {
        let mut known = Self::default();
        all.into_iter().for_each(|stored| known.insert(stored));
        known
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stored(uid: u8, handle: u8) -> Stored {
        let mut stored = Stored::default();
        stored.record.attachment_uid = format!("uid-{uid}").as_str().into();
        stored.record.handle_name = format!("handle-{handle}");
        stored
    }

    proptest! {
        #[test]
        fn those_of_a_handle_are_found_as_by_looking_at_all(
            steps in prop::collection::vec((0..6_u8, prop::option::of(0..3_u8)), 0..60),
        ) {
            let mut known = Known::default();
            for (uid, handle) in steps {
                match handle {
                    Some(handle) => known.insert(stored(uid, handle)),
                    None => known.remove(&stored(uid, 0).record.attachment_uid),
                }
                for handle in 0..3 {
                    let name = stored(0, handle).record.handle_name;
                    let mut all: Vec<_> = known.values().filter(|s| s.record.handle_name == name).collect();
                    all.sort_by(|one, other| one.record.attachment_uid.cmp(&other.record.attachment_uid));
                    prop_assert_eq!(known.of_handle(&name).collect::<Vec<_>>(), all);
                }
                prop_assert!(known.of_handle.values().all(|uids| !uids.is_empty()));
            }
        }
    }
}
