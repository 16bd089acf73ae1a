//! How snapshots are taken: the classes, and what their parameters say to who takes snapshots and to the driver.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::ClusterResourceScope;
use serde::Deserialize;

use super::annotations::Annotations;
use super::parameters::{PREFIX, ParameterError, expand, for_driver, named};
use super::snapshot_content::{SnapshotClass, Words};

macro_rules! class {
    ($(#[$doc:meta])+ $name:ident, $group:literal, $version:literal, $plural:literal) => {
        $(#[$doc])+
        #[derive(Clone, Debug, Default, PartialEq, Deserialize)]
        pub struct $name {
            /// Its name.
            #[serde(default)]
            pub metadata: ObjectMeta,
            /// The driver.
            #[serde(default)]
            pub driver: String,
            /// What the driver is told, and Secrets.
            #[serde(default)]
            pub parameters: BTreeMap<String, String>,
        }

        impl SnapshotClass for $name {
            fn driver(&self) -> &str {
                &self.driver
            }

            fn parameters(&self) -> &BTreeMap<String, String> {
                &self.parameters
            }
        }

        impl Resource for $name {
            type DynamicType = ();
            type Scope = ClusterResourceScope;

            fn kind((): &()) -> Cow<'_, str> {
                stringify!($name).into()
            }

            fn group((): &()) -> Cow<'_, str> {
                $group.into()
            }

            fn version((): &()) -> Cow<'_, str> {
                $version.into()
            }

            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

class! {
    /// How snapshots of a driver are taken.
    VolumeSnapshotClass, "snapshot.storage.k8s.io", "v1", "volumesnapshotclasses"
}
class! {
    /// How snapshots of several volumes of a driver are taken at one moment.
    VolumeGroupSnapshotClass, "groupsnapshot.storage.k8s.io", "v1beta2", "volumegroupsnapshotclasses"
}

/// What classes call Secrets. The Secret of what makes and deletes the snapshot-controller reads, and writes it on the content.
const SECRETS: [&str; 4] = [
    "snapshotter-secret-",
    "snapshotter-list-secret-",
    "group-snapshotter-secret-",
    "group-snapshotter-get-secret-",
];

/// Parameters that were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// What the driver gets.
    pub(super) driver: BTreeMap<String, String>,
    /// The Secret of `ListSnapshots`, or `GetVolumeGroupSnapshot`, as namespace/name.
    pub(super) list_secret: Option<String>,
}

/// Reads the parameters of a class for the content of this name.
pub(super) fn resolve(
    parameters: &Annotations,
    words: &Words,
    content: &str,
) -> Result<Taken, ParameterError> {
    let known: Vec<_> =
        SECRETS.iter().flat_map(|kind| ["name", "namespace"].map(|half| key(kind, half))).collect();
    if let Some(key) = parameters.keys().find(|key| key.starts_with(PREFIX) && !known.contains(key)) {
        return Err(ParameterError::Unknown { key: key.clone() });
    }
    let (look, look_word) = (words.look_secret, words.look_word);
    let word = |word: &str| (look_word == format!("${{{word}}}")).then_some(content);
    let half = |half: &str| {
        let key = key(look, half);
        parameters.get(&key).map(|template| (key, template.as_str()))
    };
    let list_secret = match (half("namespace"), half("name")) {
        (None, None) => None,
        (Some(namespace), Some(name)) => {
            let found = [expand(&namespace, look_word, word)?, expand(&name, look_word, word)?];
            let [in_namespace, called] = found;
            Some(named((&namespace.0, in_namespace), (&name.0, called))?)
        }
        (Some((given, _)), None) => {
            return Err(ParameterError::HalfSecret { given, missing: key(look, "name") });
        }
        (None, Some((given, _))) => {
            return Err(ParameterError::HalfSecret { given, missing: key(look, "namespace") });
        }
    };
    Ok(Taken { driver: for_driver(parameters), list_secret })
}

fn key(kind: &str, half: &str) -> String {
    format!("{PREFIX}{kind}{half}")
}

#[cfg(test)]
mod tests {
    use super::super::snapshot_content::SnapshotContent as _;
    use super::super::volume_snapshots::VolumeSnapshotContent;
    use super::*;

    fn of(parameters: &[(&str, &str)]) -> Result<Taken, ParameterError> {
        let parameters = parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        resolve(&parameters.collect(), &VolumeSnapshotContent::WORDS, "content")
    }

    #[test]
    fn the_driver_gets_what_is_not_kubernetes_own() {
        let taken = of(&[
            ("tier", "cold"),
            ("csi.storage.k8s.io/snapshotter-secret-name", "${volumesnapshot.name}"),
            ("csi.storage.k8s.io/snapshotter-secret-namespace", "ns"),
            ("csi.storage.k8s.io/group-snapshotter-get-secret-name", "g"),
        ]);
        let taken = taken.unwrap();
        assert_eq!(taken.driver, BTreeMap::from([("tier".to_owned(), "cold".to_owned())]));
        assert_eq!(taken.list_secret, None);
        let unknown = of(&[("csi.storage.k8s.io/pvc/name", "v")]).unwrap_err();
        assert!(unknown.to_string().contains("csi.storage.k8s.io/pvc/name is not known"), "{unknown}");
    }

    #[test]
    fn a_content_has_its_own_secret_listed_by() {
        const NAME: &str = "csi.storage.k8s.io/snapshotter-list-secret-name";
        const NAMESPACE: &str = "csi.storage.k8s.io/snapshotter-list-secret-namespace";
        let taken = of(&[(NAME, "of-${volumesnapshotcontent.name}"), (NAMESPACE, "ns")]).unwrap();
        assert_eq!(taken.list_secret.as_deref(), Some("ns/of-content"));
        for (parameters, words) in [
            (vec![(NAME, "s")], "without csi.storage.k8s.io/snapshotter-list-secret-namespace"),
            (vec![(NAMESPACE, "ns")], "without csi.storage.k8s.io/snapshotter-list-secret-name;"),
            (vec![(NAME, "${volumesnapshot.name}"), (NAMESPACE, "ns")], "stands for nothing there"),
            (vec![(NAME, "s"), (NAMESPACE, "a.b")], "not the name of a namespace"),
            (vec![(NAME, "S"), (NAMESPACE, "ns")], "not the name of a Secret"),
        ] {
            let error = of(&parameters).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
