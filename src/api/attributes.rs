//! What a driver is given with each call about a volume: `volumeAttributes` of a PersistentVolume, `volume_context` of CSI.

use std::collections::BTreeMap;

/// In a PersistentVolume's attributes: by which provisioner it was made. Each provisioner writes another one, and nothing of the
/// volume goes by it.
pub const IDENTITY: &str = "storage.kubernetes.io/csiProvisionerIdentity";

/// What a PersistentVolume has its driver given: what that gave when it made the volume, without the key that the provisioner has
/// added. A driver may refuse a context that is not its own.
#[must_use]
pub fn of_driver(attributes: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let own = attributes.iter().filter(|(key, _)| *key != IDENTITY);
    own.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The keys under which two volumes' attributes differ, without the one that names their provisioner. Only the keys may be told:
/// the values can be secret.
#[must_use]
pub fn differing<'a>(one: &'a BTreeMap<String, String>, other: &'a BTreeMap<String, String>) -> Vec<&'a str> {
    let changed = one.iter().filter(|(key, value)| other.get(*key) != Some(value));
    let added = other.iter().filter(|(key, _)| !one.contains_key(*key));
    let mut keys: Vec<_> = changed.chain(added).map(|(key, _)| key.as_str()).collect();
    keys.retain(|key| *key != IDENTITY);
    keys.sort_unstable();
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_that_are_missing_or_have_another_value() {
        let map = |all: &[(&str, &str)]| -> BTreeMap<String, String> {
            all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let one = map(&[("same", "1"), ("share", "a"), ("gone", "1"), (IDENTITY, "moor-d")]);
        let other = map(&[("same", "1"), ("share", "b"), ("added", "1"), (IDENTITY, "1700-d")]);
        assert_eq!(differing(&one, &other), ["added", "gone", "share"]);
        assert_eq!(differing(&one, &one), [""; 0]);
        assert_eq!(
            differing(&map(&[]), &map(&[(IDENTITY, "x")])),
            [""; 0],
            "nothing goes by the provisioner"
        );
    }
}
