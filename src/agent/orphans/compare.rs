//! Compares what a driver lists with what there is. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::ledger::Entries;
use super::said::Said;
use crate::api::storage::{MAX_HANDLE, MAX_NAMED, MissingStorage, OrphanedStorage, StorageKind};

/// Storage that is listed and was recognised: its size in bytes, and the UID of the object that it was made for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Recognised {
    pub bytes: i64,
    pub uid: String,
}

/// What is listed and was recognised, by id.
pub(super) type Recognition = HashMap<String, Recognised>;

/// The ids that are listed, were made for moor, and for which no object of these answers: neither by its id nor by being the one that
/// they were made for, which may not know its id yet. The objects are those of all drivers, as they were after the listing.
pub(super) fn without_object(listed: &Recognition, entries: &Entries, objects: &[Said]) -> BTreeSet<String> {
    let ids = objects.iter().flat_map(|said| said.id.iter().chain(&said.rejected).chain(&said.members));
    let ids: HashSet<&String> = ids.collect();
    let uids: HashSet<&str> = objects.iter().map(|said| said.uid.as_str()).collect();
    let names: HashSet<&str> = objects.iter().filter_map(|said| said.made_as.as_deref()).collect();
    let is_orphan = |(id, found): &(&String, &Recognised)| {
        let name = entries.get(&found.uid).and_then(|entry| entry.name.as_deref());
        let is_known = ids.contains(id) || uids.contains(found.uid.as_str());
        // What nobody could register nobody could put right.
        name.is_some_and(|name| !names.contains(name)) && !is_known && id.len() <= MAX_HANDLE && is_plain(id)
    };
    listed.iter().filter(is_orphan).map(|(id, _)| id.clone()).collect()
}

/// Whether an id can be shown.
fn is_plain(id: &str) -> bool {
    !id.chars().any(char::is_control)
}

/// UIDs of the objects whose storage is not listed, though it was listed once, and they stood for it when the listing before was
/// made. Of `judged` objects; `before` are the ids of that time by UID.
pub(super) fn without_storage<'a>(
    listed: &Recognition,
    entries: &Entries,
    judged: impl Iterator<Item = &'a Said>,
    before: &BTreeMap<String, String>,
) -> BTreeSet<String> {
    let is_missing = |said: &&Said| {
        let Some(id) = said.id.as_ref().filter(|_| said.stands) else { return false };
        let entry = entries.get(&said.uid).filter(|entry| entry.id.as_ref() == Some(id));
        let was_there = entry.is_some_and(|entry| entry.listed) && before.get(&said.uid) == Some(id);
        // What is told stays told, also by an agent that is started anew or takes over.
        (was_there || said.is_missed) && !listed.contains_key(id)
    };
    judged.filter(is_missing).map(|said| said.uid.clone()).collect()
}

/// What is to be reported of the ids without object: what was found at the listing before too, or is reported already, by `since`.
/// Returns the first of them, and how many there are.
pub(super) fn orphans(
    kind: StorageKind,
    found: &BTreeSet<String>,
    earlier: &BTreeSet<String>,
    since: &BTreeMap<String, Time>,
    now: &Time,
    (listed, entries): (&Recognition, &Entries),
) -> (Vec<OrphanedStorage>, i64) {
    let is_confirmed = |id: &&String| earlier.contains(*id) || since.contains_key(*id);
    let confirmed: Vec<&String> = found.iter().filter(is_confirmed).collect();
    let told = |id: &&String| {
        let Recognised { bytes, uid } = listed.get(*id)?;
        Some(OrphanedStorage {
            kind,
            handle: (*id).clone(),
            uid: uid.clone(),
            create_name: entries.get(uid)?.name.clone()?,
            bytes: Some(*bytes).filter(|bytes| *bytes > 0),
            since: since.get(*id).unwrap_or(now).clone(),
        })
    };
    let named = confirmed.iter().filter_map(told).take(MAX_NAMED).collect();
    (named, i64::try_from(confirmed.len()).unwrap_or(i64::MAX))
}

/// What is to be reported of the objects without storage: those of the listing before too, and those that are told so already.
pub(super) fn missing(
    found: &BTreeSet<String>,
    earlier: &BTreeSet<String>,
    objects: &[Said],
) -> Vec<MissingStorage> {
    let is_confirmed =
        |said: &&Said| found.contains(&said.uid) && (earlier.contains(&said.uid) || said.is_missed);
    let told = |said: &Said| MissingStorage {
        kind: said.kind,
        namespace: said.namespace.clone(),
        name: said.name.clone(),
        uid: said.uid.clone(),
    };
    objects.iter().filter(is_confirmed).map(told).take(MAX_NAMED).collect()
}

#[cfg(test)]
#[path = "compare_tests.rs"]
mod tests;
