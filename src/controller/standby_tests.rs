use std::mem::discriminant;
use std::sync::Arc;

use futures::FutureExt as _;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::super::events;
use super::super::known::site;
use super::super::objects_tests::{attachment, claim, key_of};
use super::*;
use crate::api::Volume;
use crate::api::lock::{DriverVolume, handle_name};
use crate::api::names::imported_volume;
use crate::provision::CLONING_PROTECTION;

fn read<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

fn meta(namespace: Option<&str>, name: &str) -> Value {
    json!({ "name": name, "namespace": namespace, "uid": name, "resourceVersion": "1" })
}

fn volume(namespace: &str, name: &str, more: &Value) -> Volume {
    let mut spec = json!({ "pluginName": "p" });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    read(json!({ "metadata": meta(Some(namespace), name), "spec": spec }))
}

fn watched() -> Arc<Known> {
    let known = Arc::new(Known::new(site(), Duration::from_secs(60), Duration::ZERO));
    events::connect(&known);
    known
}

/// With a pass of each kind of which there are many.
fn filled() -> Arc<Known> {
    let known = watched();
    let own = known.namespace.clone();
    known.volumes.apply(volume("a", "data", &json!({ "persistentVolumeClaim": { "name": "data" } })));
    let gone = json!({ "namespace": "a", "name": "gone", "uid": "u" });
    let source = json!({ "namespace": "a", "name": "source", "uid": "s" });
    let made = json!({ "name": "pvc-u", "claim": gone, "driverName": "d", "storageClassName": "", "accessModes": [],
        "copyOf": { "claim": source, "volumeHandle": "x" } });
    known.volumes.apply(volume(&own, "pvc-u", &json!({ "persistentVolume": made })));
    known.volumes.apply(volume(
        &own,
        &imported_volume(&handle_name(DriverVolume { driver: "d", handle: "y" })),
        &json!({ "volumeHandle": "y" }),
    ));
    known.claims.apply(claim("a", "waits", "not there"));
    known.attachments.apply(attachment("left", "driver", "node-1"));
    let of = json!({ "namespace": "a", "name": "removed", "uid": "r" });
    known.handles.apply(read(json!({ "metadata": meta(None, "h"),
        "spec": { "driverName": "d", "volumeHandle": "x", "volume": of, "mode": "SingleNodeWriter", "epoch": 1 } })));
    let of = json!({ "name": "gone", "uid": "c" });
    known.snapshots.apply(read(json!({ "metadata": meta(Some(&own), "content-c"),
        "spec": { "volumeName": "data", "volumeSnapshotContent": of } })));
    let bound = |name: &str, more: Value| json!({ "metadata": meta(Some("a"), name), "spec": { "volumeName": "pv" }, "status": more });
    let mut grows = bound("grows", json!({ "phase": "Bound", "capacity": { "storage": "1Gi" } }));
    grows["spec"]["resources"] = json!({ "requests": { "storage": "2Gi" } });
    let mut modifies = bound("modifies", json!({ "phase": "Bound" }));
    modifies["spec"]["volumeAttributesClassName"] = json!("gold");
    let mut awaits = json!({ "metadata": meta(Some("a"), "awaits"), "spec": {} });
    awaits["metadata"]["annotations"] = json!({ "volume.kubernetes.io/storage-provisioner": "d" });
    let mut copied = bound("copied", json!({ "phase": "Bound" }));
    copied["metadata"]["finalizers"] = json!([CLONING_PROTECTION]);
    for claim in [grows, modifies, awaits, copied] {
        known.pvcs.apply(read(claim));
    }
    known.pvs.apply(read(json!({ "metadata": meta(None, "pv"), "status": { "phase": "Released" },
        "spec": { "csi": { "driver": "d", "volumeHandle": "y" }, "persistentVolumeReclaimPolicy": "Delete" } })));
    let spec = json!({ "driver": "d", "deletionPolicy": "Delete", "source": { "volumeHandle": "x" },
        "volumeSnapshotRef": { "name": "s", "namespace": "a" } });
    known.contents.apply(read(json!({ "metadata": meta(None, "there"), "spec": spec })));
    let spec = json!({ "driver": "d", "deletionPolicy": "Delete", "source": { "volumeHandles": ["x"] },
        "volumeGroupSnapshotRef": { "name": "g", "namespace": "a" } });
    known.group_contents.apply(read(json!({ "metadata": meta(None, "group"), "spec": spec })));
    known
}

async fn queued(known: &Known) -> HashSet<Key> {
    let mut all = HashSet::new();
    for _ in 0..known.queue.len() {
        all.insert(known.queue.next().await);
    }
    all
}

/// Who has watched for long begins with what a new process begins with.
#[tokio::test]
async fn nothing_is_dropped_that_there_is_something_to_do_about() {
    let (new, standby) = (filled(), filled());
    forget_gone(&standby);
    let kept = queued(&standby).await;
    let all = queued(&new).await;
    let missing: Vec<_> = all.difference(&kept).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let kinds: HashSet<_> = all.iter().filter(|key| key.about() != "Plugin").map(discriminant).collect();
    assert_eq!(kinds.len(), 11, "{all:?}");
}

/// The controller that stands by for months sees each Volume of each Pod.
#[tokio::test]
async fn what_is_gone_is_dropped() {
    let known = watched();
    known.volumes.apply(volume("a", "data", &json!({})));
    for number in 0..100 {
        let name = format!("v-{number}");
        let named = ProvisionedFor { namespace: "a".into(), name: name.clone(), uid: name.clone() };
        let volume_key = || VolumeKey { namespace: "a".into(), name: name.clone() };
        known.volumes.apply(volume("a", &name, &json!({})));
        known.claims.apply(claim("a", &name, &name));
        for key in [
            Key::Snapshot(volume_key()),
            Key::Export(volume_key()),
            Key::Import(name.clone()),
            Key::Provision(named.clone()),
            Key::Resize(named.clone()),
            Key::Modify(named.clone()),
            Key::Copied(named),
            Key::PersistentVolume(name.clone()),
            Key::Content(name.clone()),
            Key::GroupContent(name.clone()),
        ] {
            known.queue.sweep(key);
        }
        known.queue.add_after(key_of("b", &name), Duration::from_secs(1));
        known.claims.remove_confirmed(&format!("a-{name}"));
        known.volumes.remove_confirmed(&name);
    }
    forget_gone(&known);
    let mut left = queued(&known).await;
    left.retain(|key| key.about() != "Plugin");
    assert_eq!(left, HashSet::from([key_of("a", "data")]));
}

#[test]
fn the_leaders_lease_is_told_of_and_no_other() {
    let known = watched();
    let changed = told_of(&known.lease_cache, "moor-controller");
    let is_told = || changed.notified().now_or_never().is_some();
    let lease = |name: &str, version: u32| -> Lease {
        read(
            json!({ "metadata": { "name": name, "namespace": known.namespace, "uid": name, "resourceVersion": version.to_string() } }),
        )
    };
    known.lease_cache.apply(lease("moor-agent-node-1", 1));
    assert!(!is_told(), "of an agent");
    known.lease_cache.apply(lease("moor-controller", 2));
    assert!(is_told() && !is_told(), "once");
    known.lease_cache.apply(lease("moor-controller", 3));
    assert!(is_told(), "of a renewal");
    known.lease_cache.remove_confirmed("moor-controller");
    assert!(is_told(), "that it is gone");
}
