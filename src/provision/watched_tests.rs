use serde_json::json;

use super::*;

#[test]
fn a_claim_awaits_its_provisioner_until_it_is_bound() {
    let of = |annotations: serde_json::Value, volume: &str| -> WatchedClaim {
        let metadata = json!({ "name": "c", "namespace": "n", "uid": "u", "annotations": annotations,
            "labels": { "a": "b" } });
        let spec = json!({ "storageClassName": "s", "volumeName": volume, "accessModes": ["ReadWriteOnce"] });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
    };
    let key = "volume.kubernetes.io/storage-provisioner";
    let waiting = of(json!({ key: "d", SELECTED: "node", "mine": "x" }), "");
    assert!(waiting.awaits() && waiting.metadata.labels.is_none());
    assert_eq!(
        (waiting.provisioner(), waiting.selected_node(), waiting.class_name()),
        (Some("d"), Some("node"), "s")
    );
    assert_eq!(waiting.metadata.annotations.as_ref().unwrap().len(), 2, "only those that decide are kept");
    assert!(!of(json!({ key: "d" }), "pv").awaits(), "it is bound");
    assert!(!of(json!({}), "").awaits(), "nobody has been asked");
    let beta = of(
        json!({ "volume.beta.kubernetes.io/storage-provisioner": "d",
        "volume.beta.kubernetes.io/storage-class": "old" }),
        "",
    );
    assert_eq!((beta.provisioner(), beta.class_name()), (Some("d"), "old"));
}

#[test]
fn a_claim_names_the_volume_snapshot_of_which_its_volume_is_to_be_made() {
    let of = |field: &str, kind: &str| -> WatchedClaim {
        let spec = json!({ field: { "kind": kind, "name": "s" } });
        serde_json::from_value(json!({ "metadata": { "name": "c" }, "spec": spec })).unwrap()
    };
    for field in ["dataSource", "dataSourceRef"] {
        assert_eq!(of(field, "VolumeSnapshot").restores(), Some("s"));
        assert_eq!(of(field, "PersistentVolumeClaim").restores(), None);
        assert_eq!(
            (of(field, "VolumeSnapshot").copies(), of(field, "PersistentVolumeClaim").copies()),
            (None, Some("s"))
        );
    }
}

#[test]
fn a_claim_grows_that_is_bound_and_asks_for_more_than_it_has() {
    let of = |phase: &str, asks: &str, has: Option<&str>| -> WatchedClaim {
        let metadata = json!({ "name": "c", "namespace": "n", "uid": "u" });
        let spec = json!({ "volumeName": "pv", "resources": { "requests": { "storage": asks } } });
        let capacity = has.map(|has| json!({ "storage": has })).unwrap_or(json!({}));
        let status = json!({ "phase": phase, "capacity": capacity });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec, "status": status })).unwrap()
    };
    assert!(of("Bound", "2Gi", Some("1Gi")).grows());
    assert!(!of("Bound", "1Gi", Some("1024Mi")).grows() && !of("Bound", "1Gi", Some("2Gi")).grows());
    assert!(!of("Pending", "2Gi", Some("1Gi")).grows() && !of("Bound", "2Gi", None).grows());
    assert!(!of("Bound", "2Gi", Some("1Gi")).awaits());
}

#[test]
fn a_claim_modifies_that_is_bound_and_names_another_class() {
    let of = |phase: &str, asks: Option<&str>, has: Option<&str>, says: Option<&str>| -> WatchedClaim {
        let metadata = json!({ "name": "c", "namespace": "n", "uid": "u" });
        let spec = json!({ "volumeName": "pv", "volumeAttributesClassName": asks });
        let says = says.map(|word| json!({ "status": word, "targetVolumeAttributesClassName": "x" }));
        let status = json!({ "phase": phase, "currentVolumeAttributesClassName": has,
            "modifyVolumeStatus": says });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec, "status": status })).unwrap()
    };
    assert!(of("Bound", Some("gold"), None, None).modifies());
    assert!(of("Bound", Some("gold"), Some("silver"), None).modifies());
    assert!(of("Bound", None, None, Some("Infeasible")).modifies(), "it was taken back");
    assert!(of("Bound", Some("gold"), Some("gold"), Some("InProgress")).modifies());
    assert!(!of("Bound", Some("gold"), Some("gold"), None).modifies());
    assert!(!of("Bound", None, None, None).modifies() && !of("Bound", Some(""), None, None).modifies());
    assert!(!of("Pending", Some("gold"), None, None).modifies(), "it is made with it");
}

const SELECTED: &str = super::annotations::SELECTED_NODE;

#[test]
fn a_persistent_volume_ends_when_nobody_claims_it_or_it_is_deleted() {
    let of = |source: &str, phase: &str, deleted: bool| -> WatchedPersistentVolume {
        let mut metadata = json!({ "name": "pv", "uid": "u", "annotations": { "a": "b" } });
        if deleted {
            metadata["deletionTimestamp"] = json!("2025-01-01T00:00:00Z");
        }
        let spec = json!({ source: { "driver": "d", "volumeHandle": "h" } });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec, "status": { "phase": phase } }))
            .unwrap()
    };
    for (phase, deleted, ends) in [
        ("Bound", false, false),
        ("Available", false, false),
        ("Pending", false, false),
        ("Released", false, true),
        ("Failed", false, true),
        ("Bound", true, true),
    ] {
        assert_eq!(of("csi", phase, deleted).ends(), ends, "{phase} {deleted}");
        assert!(!of("nfs", phase, deleted).ends(), "{phase} {deleted}");
    }
    let bound = of("csi", "Bound", false);
    assert!(bound.metadata.annotations.is_none() && !bound.concerns());
    assert_eq!((bound.driver(), bound.volume_handle()), ("d", "h"));
}

#[test]
fn one_whose_storage_is_to_go_is_to_be_held() {
    let of = |source: &str, phase: &str, policy: &str, finalizer: &str| -> WatchedPersistentVolume {
        let metadata = json!({ "name": "pv", "uid": "u", "finalizers": [finalizer] });
        let spec = json!({ source: { "driver": "d" }, "persistentVolumeReclaimPolicy": policy });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec, "status": { "phase": phase } }))
            .unwrap()
    };
    assert!(of("csi", "Bound", "Delete", "other").concerns());
    for (source, phase, policy, finalizer) in [
        ("nfs", "Bound", "Delete", "other"),
        ("csi", "Available", "Delete", "other"),
        ("csi", "Bound", "Retain", "other"),
        ("csi", "Bound", "Delete", FINALIZER),
    ] {
        assert!(!of(source, phase, policy, finalizer).concerns(), "{source} {phase} {policy} {finalizer}");
    }
}
