//! `spec.allow` of a Plugin: which namespaces may do with the driver's storage what is an administrator's right elsewhere.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Stands for every namespace.
pub const EVERY: &str = "*";

/// Which namespaces may do what with the driver. Asked when a Volume or a claim is taken up for the first time, before
/// a volume is modified, and before storage is deleted: what has been granted stays as it is when less is allowed later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Allow {
    /// Who may have volumes made, and snapshots of them: Volumes with spec.capacity, Snapshots with spec.volumeName. Unset: every
    /// namespace.
    #[serde(default = "Namespaces::every")]
    pub create: Namespaces,
    /// Who may name storage that exists: Volumes with spec.volumeHandle, Snapshots with spec.snapshotHandle. Such a namespace can read and write
    /// everything the driver reaches. Unset: none.
    #[serde(default)]
    pub register: Namespaces,
    /// Who may speak to the driver in its own words: spec.parameters, spec.mutableParameters, spec.volumeContext,
    /// spec.secrets and spec.mountOptions of Volumes, spec.mountOptions of claims, spec.parameters and spec.secretName of
    /// Snapshots. A StorageClass and a VolumeAttributesClass leave these to administrators. Unset: every namespace.
    #[serde(default = "Namespaces::every")]
    pub parameterise: Namespaces,
    /// Who may have storage deleted that it has only registered: deletionPolicy Delete beside spec.volumeHandle or
    /// spec.snapshotHandle.
    /// Unset: none.
    #[serde(default)]
    pub delete_registered: Namespaces,
}

impl Default for Allow {
    fn default() -> Self {
        let (every, none) = (Namespaces::every, Namespaces::default);
        Self { create: every(), register: none(), parameterise: every(), delete_registered: none() }
    }
}

/// Namespaces, by name or by label. None where nothing is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Namespaces {
    /// Names of namespaces, or "*" for all of them.
    #[serde(default)]
    #[schemars(schema_with = "super::schema::namespace_names")]
    pub namespaces: Vec<String>,
    /// Besides these, every namespace that has all of these labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "super::schema::labels")]
    pub match_labels: BTreeMap<String, String>,
}

impl Namespaces {
    /// All namespaces there are.
    #[must_use]
    pub fn every() -> Self {
        Self { namespaces: vec![EVERY.to_owned()], match_labels: BTreeMap::new() }
    }

    /// Whether a namespace with this name and these labels is one of these namespaces. Without labels to match
    /// nothing is matched by label: what is not given allows nobody.
    #[must_use]
    pub fn has(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        let is_named = self.namespaces.iter().any(|n| n == EVERY || n == name);
        let wanted = &self.match_labels;
        is_named || (!wanted.is_empty() && wanted.iter().all(|(key, value)| labels.get(key) == Some(value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(all: &[(&str, &str)]) -> BTreeMap<String, String> {
        all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn what_is_left_out_is_create_and_parameterise_for_all_and_the_rest_for_none() {
        let unset: Allow = serde_json::from_str("{}").unwrap();
        assert_eq!(unset, Allow::default());
        let may = |who: &Namespaces| who.has("any", &BTreeMap::new());
        assert!(may(&unset.create) && may(&unset.parameterise));
        assert!(!may(&unset.register) && !may(&unset.delete_registered));
    }

    #[test]
    fn a_namespace_is_found_by_its_name_or_by_all_of_the_labels() {
        let who: Namespaces =
            serde_json::from_str(r#"{"namespaces": ["a"], "matchLabels": {"x": "1", "y": "2"}}"#).unwrap();
        assert!(who.has("a", &BTreeMap::new()));
        assert!(who.has("b", &labels(&[("x", "1"), ("y", "2"), ("z", "3")])));
        assert!(!who.has("b", &labels(&[("x", "1")])), "one of two labels");
        assert!(!who.has("b", &labels(&[("x", "1"), ("y", "3")])), "another value");
        assert!(!who.has("ab", &BTreeMap::new()), "a longer name");
    }

    /// An empty selector of Kubernetes matches everything, which nobody means here.
    #[test]
    fn nothing_given_allows_nobody() {
        for nothing in ["{}", r#"{"namespaces": []}"#, r#"{"matchLabels": {}}"#] {
            let who: Namespaces = serde_json::from_str(nothing).unwrap();
            assert!(!who.has("a", &labels(&[("x", "1")])), "{nothing}");
        }
    }
}
