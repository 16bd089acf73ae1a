//! Claims that are to be copies of something.

use serde_json::{Value, json};

use super::super::super::restore::RestoreNow;
use super::super::super::source::CLONING_PROTECTION;
use super::*;
use crate::api::Snapshot;

#[test]
fn a_volume_is_made_of_the_snapshot_that_a_volume_snapshot_stands_for() {
    let source = json!({ "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s" });
    let (claim, class) = (claim(json!({}), json!({ "dataSource": source })), class(json!({})));
    let nowhere = request(&asked(&claim, &class));
    assert!(matches!(&nowhere, Request::Wait(w) if w.to_string().contains("no such kind")), "{nowhere:?}");
    let snapshot = json!({ "metadata": { "name": "s", "namespace": "ns", "uid": "u" }, "spec": {},
        "status": { "boundVolumeSnapshotContentName": "sc" } });
    let snapshot = serde_json::from_value(snapshot).unwrap();
    let content = json!({ "metadata": { "name": "sc", "uid": "c" },
        "spec": { "driver": DRIVER, "volumeSnapshotRef": { "name": "s", "namespace": "ns", "uid": "u" } },
        "status": { "readyToUse": true } });
    let content = serde_json::from_value(content).unwrap();
    let kept = json!({ "apiVersion": "moor.dev/v1alpha1", "kind": "Snapshot", "metadata": { "name": "content-c" },
        "spec": { "volumeSnapshotContent": { "name": "sc", "uid": "c" }, "assignment": { "operation": "Create",
            "controller": { "instance": "i", "agent": "a" }, "pluginName": "p", "driverName": "d",
            "snapshotHandle": "h" } },
        "status": { "state": "Ready" } });
    let kept = serde_json::from_value(kept).unwrap();
    let restore = RestoreNow {
        is_defined: true,
        snapshot: Some(&snapshot),
        content: Some(&content),
        kept: Some(&kept),
    };
    let source = SourceNow { restore, ..SourceNow::default() };
    let volume = made(request(&Asked { source, ..asked(&claim, &class) }));
    assert_eq!(volume.spec.source.unwrap().snapshot_name.as_deref(), Some("content-c"));
    assert!(volume.spec.persistent_volume.unwrap().copy_of.is_none());
}

/// The scheduler knows of no source.
#[test]
fn local_storage_is_copied_where_it_is_wherever_its_consumer_is_put() {
    let places = ["a", "b", "c"].map(|node| Place {
        node: node.to_owned(),
        healthy: true,
        segments: BTreeMap::from([("host".to_owned(), node.to_owned())]),
    });
    let kept = |at: Value| -> Snapshot {
        serde_json::from_value(
            json!({ "metadata": { "name": "content-c" }, "spec": { "assignment": { "operation": "Create",
            "controller": { "instance": "i", "agent": "a" }, "pluginName": "p", "driverName": "d",
            "accessibleTopology": at } } }),
        )
        .unwrap()
    };
    let known = kept(json!([{ "segments": { "host": "c" } }]));
    let unknown = kept(json!([]));
    let late = class(json!({ "volumeBindingMode": "WaitForFirstConsumer" }));
    let chosen = claim(json!({ "volume.kubernetes.io/selected-node": "b" }), json!({}));
    for (is_local, kept, first) in [(true, &known, "c"), (false, &known, "b"), (true, &unknown, "b")] {
        let restore = RestoreNow { kept: Some(kept), ..RestoreNow::default() };
        let source = SourceNow { restore, ..SourceNow::default() };
        let driver = Some(Served { is_local, ..served(&places) });
        let volume = made(request(&Asked { driver, source, ..asked(&chosen, &late) }));
        assert_eq!(volume.spec.topology.unwrap().preferred[0].segments["host"], first);
    }
}

#[test]
fn a_copy_is_made_of_what_stays_while_it_is_made() {
    let copying =
        claim(json!({}), json!({ "dataSource": { "kind": "PersistentVolumeClaim", "name": "from" } }));
    let class = class(json!({}));
    let source = |finalizers: &[&str]| -> PersistentVolumeClaim {
        let metadata = json!({ "name": "from", "namespace": "ns", "uid": "3-4", "finalizers": finalizers });
        let spec = json!({ "resources": { "requests": { "storage": "1Gi" } } });
        let whole = json!({ "metadata": metadata, "spec": spec, "status": { "phase": "Bound" } });
        serde_json::from_value(whole).unwrap()
    };
    let spec = json!({ "csi": { "driver": DRIVER, "volumeHandle": "h" }, "claimRef": { "uid": "3-4" } });
    let volume = serde_json::from_value(json!({ "metadata": { "name": "pv" }, "spec": spec })).unwrap();
    let of = |claim: Option<&PersistentVolumeClaim>| {
        let driver = Some(Served { clones: true, ..served(&[]) });
        let source = SourceNow { claim, volume: Some(&volume), ..SourceNow::default() };
        request(&Asked { driver, source, ..asked(&copying, &class) })
    };
    assert!(matches!(of(None), Request::Wait(waits) if waits.to_string().contains("from")));
    assert_eq!(of(Some(&source(&[]))), Request::Protect);
    let copy =
        made(of(Some(&source(&[CLONING_PROTECTION])))).spec.persistent_volume.unwrap().copy_of.unwrap();
    assert_eq!((copy.volume_handle.as_str(), copy.claim.to_string().as_str()), ("h", "ns/from"));
}
