//! What a VolumeSnapshotClass's parameters say to who takes snapshots, and what is left for the driver.

use std::collections::BTreeMap;

use super::annotations::Annotations;
use super::parameters::{PREFIX, ParameterError, expand, for_driver, named};

/// The Secret of CreateSnapshot and DeleteSnapshot: the snapshot-controller reads it, and writes it on the content.
const SNAPSHOTTER: &str = "snapshotter-secret-";
/// The Secret of `ListSnapshots`.
const LIST: &str = "snapshotter-list-secret-";
/// Secrets of groups of snapshots, which a class may have too.
const OF_GROUPS: [&str; 2] = ["group-snapshotter-secret-", "group-snapshotter-get-secret-"];

const IN_LIST: &str = "${volumesnapshotcontent.name}";

/// Parameters that were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// What the driver gets.
    pub(super) driver: BTreeMap<String, String>,
    /// The Secret of `ListSnapshots`, as namespace/name.
    pub(super) list_secret: Option<String>,
}

/// Reads the parameters of a VolumeSnapshotClass for the content of this name.
pub(super) fn resolve(parameters: &Annotations, content: &str) -> Result<Taken, ParameterError> {
    let kinds = [SNAPSHOTTER, LIST].into_iter().chain(OF_GROUPS);
    let known: Vec<_> = kinds.flat_map(|kind| ["name", "namespace"].map(|half| key(kind, half))).collect();
    if let Some(key) = parameters.keys().find(|key| key.starts_with(PREFIX) && !known.contains(key)) {
        return Err(ParameterError::Unknown { key: key.clone() });
    }
    let word = |word: &str| (word == "volumesnapshotcontent.name").then_some(content);
    let half = |half: &str| {
        let key = key(LIST, half);
        parameters.get(&key).map(|template| (key, template.as_str()))
    };
    let list_secret = match (half("namespace"), half("name")) {
        (None, None) => None,
        (Some(namespace), Some(name)) => {
            let found = [expand(&namespace, IN_LIST, word)?, expand(&name, IN_LIST, word)?];
            let [in_namespace, called] = found;
            Some(named((&namespace.0, in_namespace), (&name.0, called))?)
        }
        (Some((given, _)), None) => {
            return Err(ParameterError::HalfSecret { given, missing: key(LIST, "name") });
        }
        (None, Some((given, _))) => {
            return Err(ParameterError::HalfSecret { given, missing: key(LIST, "namespace") });
        }
    };
    Ok(Taken { driver: for_driver(parameters), list_secret })
}

fn key(kind: &str, half: &str) -> String {
    format!("{PREFIX}{kind}{half}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(parameters: &[(&str, &str)]) -> Result<Taken, ParameterError> {
        let parameters = parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        resolve(&parameters.collect(), "content")
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
