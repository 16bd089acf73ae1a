//! Objects that the API server has and this version cannot read: an older or newer schema, a hand in etcd.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::PartialObjectMeta;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error as _};
use serde_json::value::RawValue;

use super::store::version;

/// An object that cannot be read.
#[derive(Clone, Debug, PartialEq)]
pub struct Unreadable {
    /// The object's metadata, which can be read.
    pub metadata: ObjectMeta,
    /// What is wrong with the object, without the value that is wrong, which may be a mount flag.
    pub why: String,
}

/// An object as it was sent. One that cannot be read does not hide the others of its list.
///
/// kube has `DeserializeGuard` for that, which takes each object apart into a tree of values, copies that, and makes the object of
/// the copy: twice the time, and code for each type once more. This one is read from its own text, so an event of a watch has to
/// name its type before its object, as API servers write it; another one ends the watch with an error.
#[derive(Clone, Debug)]
pub struct Sent<K>(pub Result<K, Unreadable>);

impl<'de, K: Resource + DeserializeOwned> Deserialize<'de> for Sent<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let why = match serde_json::from_str(text.get()) {
            Ok(object) => return Ok(Self(Ok(object))),
            Err(error) => without_value(&error.to_string()),
        };
        let partial: PartialObjectMeta<K> = serde_json::from_str(text.get())
            .map_err(|error| D::Error::custom(format!("metadata: {}", without_value(&error.to_string()))))?;
        Ok(Self(Err(Unreadable { metadata: partial.metadata, why })))
    }
}

impl<K: Resource> Resource for Sent<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(of: &K::DynamicType) -> Cow<'_, str> {
        K::kind(of)
    }

    fn group(of: &K::DynamicType) -> Cow<'_, str> {
        K::group(of)
    }

    fn version(of: &K::DynamicType) -> Cow<'_, str> {
        K::version(of)
    }

    fn plural(of: &K::DynamicType) -> Cow<'_, str> {
        K::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.as_ref().map_or_else(|unreadable| &unreadable.metadata, K::meta)
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.as_mut().map_or_else(|unreadable| &mut unreadable.metadata, K::meta_mut)
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

/// The reader's words without the value, as `invalid type, expected i64` of `invalid type: string "x", expected i64 at line 1 column 2`.
fn without_value(error: &str) -> String {
    let said = error.rsplit_once(" at line ").map_or(error, |(said, _)| said);
    if ["missing field ", "duplicate field "].iter().any(|what| said.starts_with(what)) {
        return said.to_owned();
    }
    let what = ["invalid type", "invalid value", "invalid length", "unknown variant", "unknown field"];
    let what = what.into_iter().find(|what| said.starts_with(what));
    match what.zip(said.rsplit_once(", expected ")) {
        Some((what, (_, expected))) => format!("{what}, expected {expected}"),
        None => "a field has a value that it cannot have".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use kube::api::{ObjectList, WatchEvent};

    use super::*;
    use crate::api::Plugin;

    fn unreadable(uid: &str) -> Unreadable {
        let metadata = ObjectMeta { uid: Some(uid.to_owned()), ..ObjectMeta::default() };
        Unreadable { metadata, why: "why".to_owned() }
    }

    #[test]
    fn what_was_found_instead_is_not_repeated() {
        let rows = [
            (
                "invalid type: string \"x, expected y at line 2\", expected a sequence at line 1 column 5",
                "invalid type, expected a sequence",
            ),
            (
                "unknown variant `covert`, expected one of `A`, `B` at line 1 column 5",
                "unknown variant, expected one of `A`, `B`",
            ),
            (
                "invalid type: integer `7`, expected a string at line 1 column 5",
                "invalid type, expected a string",
            ),
            ("missing field `spec` at line 1 column 5", "missing field `spec`"),
            ("covert, expected x is not a quantity", "a field has a value that it cannot have"),
            ("unknown variant `covert`, there are no variants", "a field has a value that it cannot have"),
        ];
        for (error, shown) in rows {
            assert_eq!(without_value(error), shown);
        }
    }

    #[test]
    fn of_an_object_that_cannot_be_read_its_metadata_can() {
        let list = |items: &str| {
            let text = format!(
                r#"{{"kind": "PluginList", "apiVersion": "v1", "metadata": {{}}, "items": {items}}}"#
            );
            serde_json::from_str::<ObjectList<Sent<Plugin>>>(&text)
        };
        let good = r#"{"metadata": {"name": "good"}, "spec": {}}"#;
        let bad = r#"{"metadata": {"name": "bad"}, "spec": {"controllerConcurrency": "covert"}}"#;
        let found = list(&format!("[{bad}, {good}]")).unwrap().items;
        assert!(found[1].0.is_ok() && found[1].meta().name.as_deref() == Some("good"));
        let unreadable = found[0].0.as_ref().unwrap_err();
        assert_eq!(
            (found[0].meta().name.as_deref(), &*unreadable.why),
            (Some("bad"), "invalid type, expected i64")
        );
        let event = format!(r#"{{"type": "MODIFIED", "object": {bad}}}"#);
        let event = serde_json::from_str::<WatchEvent<Sent<Plugin>>>(&event).unwrap();
        assert!(matches!(event, WatchEvent::Modified(Sent(Err(of))) if of == *unreadable));
        let nameless = list(r#"[{"metadata": {"name": 7}, "spec": "covert"}]"#).unwrap_err().to_string();
        assert!(
            nameless.contains("metadata: invalid type, expected a string") && !nameless.contains("covert"),
            "{nameless}"
        );
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
