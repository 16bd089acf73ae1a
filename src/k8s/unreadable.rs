//! Objects that the API server has and this version cannot read: an older or newer schema, a hand in etcd.

use std::collections::{BTreeMap, HashSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::error_boundary::InvalidObject;

use super::store::version;

/// An object that cannot be read.
#[derive(Clone, Debug, PartialEq)]
pub struct Unreadable {
    /// The object's metadata, which can be read.
    pub metadata: ObjectMeta,
    /// What is wrong with the object, without the value that is wrong, which may be a mount flag.
    pub why: String,
}

impl Unreadable {
    pub(super) fn of(invalid: &InvalidObject) -> Self {
        Self { metadata: invalid.metadata.clone(), why: without_value(&invalid.error) }
    }
}

/// The unreadable objects of one cache, by UID, each with the stream that delivered it.
#[derive(Debug, Default)]
pub(super) struct UnreadableSet {
    all: BTreeMap<String, (u8, Unreadable)>,
}

impl UnreadableSet {
    pub(super) fn put(&mut self, unreadable: Unreadable, stream: u8) {
        let uid = unreadable.metadata.uid.clone().unwrap_or_default();
        self.all.insert(uid, (stream, unreadable));
    }

    /// Drops an object that could be read in a version as new as this. An older one, of a stream that lags, tells nothing.
    pub(super) fn read(&mut self, meta: &ObjectMeta) {
        let uid = meta.uid.as_ref();
        let known = uid.and_then(|uid| self.all.get(uid));
        if known.is_some_and(|(_, unreadable)| version(&unreadable.metadata) <= version(meta)) {
            self.remove(uid);
        }
    }

    /// Drops an object that is gone.
    pub(super) fn remove(&mut self, uid: Option<&String>) {
        if let Some(uid) = uid {
            self.all.remove(uid);
        }
    }

    /// Drops the objects that a stream has delivered before and does not list any more.
    pub(super) fn listed(&mut self, listed: &HashSet<String>, stream: u8) {
        self.all.retain(|uid, (by, _)| *by != stream || listed.contains(uid));
    }

    pub(super) fn all(&self) -> Vec<Unreadable> {
        self.all.values().map(|(_, unreadable)| unreadable.clone()).collect()
    }
}

/// The reader's words without the value, as `Invalid type` and `i64` of `Invalid type string "x". Expected i64`.
fn without_value(error: &str) -> String {
    let said: Vec<&str> = error.split_whitespace().take(2).collect();
    match (error.rsplit_once(". Expected "), said.as_slice()) {
        (Some((_, expected)), [first, second]) => format!("{first} {second}, expected {expected}"),
        (None, ["Missing" | "Duplicate", "field"]) => error.to_owned(),
        _ => "a field has a value that it cannot have".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unreadable(uid: &str) -> Unreadable {
        let metadata = ObjectMeta { uid: Some(uid.to_owned()), ..ObjectMeta::default() };
        Unreadable { metadata, why: "why".to_owned() }
    }

    #[test]
    fn what_was_found_instead_is_not_repeated() {
        let rows = [
            (
                "Invalid type string \"x. Expected y\". Expected a sequence",
                "Invalid type, expected a sequence",
            ),
            ("Unknown variant covert. Expected one of A, B", "Unknown variant, expected one of A, B"),
            ("Invalid type integer `7`. Expected a string", "Invalid type, expected a string"),
            ("Missing field spec", "Missing field spec"),
            ("covert is not a quantity", "a field has a value that it cannot have"),
        ];
        for (error, shown) in rows {
            assert_eq!(without_value(error), shown);
        }
    }

    #[test]
    fn it_is_known_until_it_is_read_or_gone() {
        let mut set = UnreadableSet::default();
        set.put(unreadable("a"), 0);
        set.put(unreadable("b"), 1);
        set.put(unreadable("c"), 0);
        set.listed(&HashSet::from(["a".to_owned()]), 0);
        let known =
            |set: &UnreadableSet| set.all().into_iter().filter_map(|u| u.metadata.uid).collect::<Vec<_>>();
        assert_eq!(known(&set), ["a", "b"], "the other stream has not listed");
        set.remove(Some(&"a".to_owned()));
        assert_eq!(known(&set), ["b"]);
    }

    #[test]
    fn an_older_version_of_a_lagging_stream_does_not_make_it_readable() {
        let mut set = UnreadableSet::default();
        let mut bad = unreadable("a");
        bad.metadata.resource_version = Some("20".to_owned());
        let meta =
            |version: &str| ObjectMeta { resource_version: Some(version.to_owned()), ..bad.metadata.clone() };
        let (older, newer) = (meta("19"), meta("21"));
        set.put(bad, 0);
        set.read(&older);
        assert_eq!(set.all().len(), 1);
        set.read(&newer);
        assert!(set.all().is_empty());
    }
}
