use serde_json::{Value, json};

use super::*;

fn volume(spec: &Value, status: &Value) -> Volume {
    let provision = json!({ "name": "pvc-1", "driverName": "d", "storageClassName": "fast", "reclaimPolicy": "Retain",
        "accessModes": ["ReadWriteOnce"], "claim": { "namespace": "ns", "name": "data", "uid": "1" },
        "nodeExpandSecret": "infra/expand" });
    let mut whole = json!({ "pluginName": "p", "capacity": "1Gi", "persistentVolume": provision });
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let mut said = json!({ "state": "Ready", "volumeHandle": "vol-1", "capacityBytes": 1_073_741_824 });
    said.as_object_mut().unwrap().extend(status.as_object().unwrap().clone());
    let metadata = json!({ "name": "pvc-1", "namespace": "moor", "uid": "v" });
    serde_json::from_value(json!({ "metadata": metadata, "spec": whole, "status": said })).unwrap()
}

fn made(spec: &Value, status: &Value) -> Value {
    serde_json::to_value(persistent_volume(&volume(spec, status)).unwrap()).unwrap()
}

#[test]
fn it_is_what_the_stock_provisioner_writes() {
    let secrets = json!({ "controller": "infra/make", "nodeStage": "infra/stage" });
    let spec = json!({ "secrets": secrets, "mountOptions": { "fsType": "xfs", "mountFlags": ["noatime"] } });
    let status = json!({ "volumeContext": { "a": "b" },
        "accessibleTopology": [{ "segments": { "zone": "a", "rack": "1" } }, { "segments": { "zone": "b" } }] });
    let expected = json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {
            "name": "pvc-1",
            "finalizers": ["external-provisioner.volume.kubernetes.io/finalizer"],
            "annotations": {
                "pv.kubernetes.io/provisioned-by": "d",
                "volume.kubernetes.io/provisioner-deletion-secret-name": "make",
                "volume.kubernetes.io/provisioner-deletion-secret-namespace": "infra",
            },
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": { "storage": "1Gi" },
            "claimRef": { "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "ns", "name": "data",
                "uid": "1" },
            "csi": {
                "driver": "d", "volumeHandle": "vol-1", "fsType": "xfs",
                "volumeAttributes": { "a": "b", "storage.kubernetes.io/csiProvisionerIdentity": "moor-d" },
                "nodeStageSecretRef": { "namespace": "infra", "name": "stage" },
                "nodeExpandSecretRef": { "namespace": "infra", "name": "expand" },
            },
            "mountOptions": ["noatime"],
            "nodeAffinity": { "required": { "nodeSelectorTerms": [
                { "matchExpressions": [
                    { "key": "rack", "operator": "In", "values": ["1"] },
                    { "key": "zone", "operator": "In", "values": ["a"] } ] },
                { "matchExpressions": [{ "key": "zone", "operator": "In", "values": ["b"] }] },
            ] } },
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "fast",
            "volumeMode": "Filesystem",
        },
    });
    assert_eq!(made(&spec, &status), expected);
}

#[test]
fn what_is_not_given_is_left_out() {
    let pv = made(&json!({}), &json!({}));
    for field in
        ["/spec/mountOptions", "/spec/nodeAffinity", "/spec/csi/fsType", "/spec/volumeAttributesClassName"]
    {
        assert_eq!(pv.pointer(field), None, "{field}");
    }
    let name = "/metadata/annotations/volume.kubernetes.io~1provisioner-deletion-secret-name";
    assert_eq!(pv.pointer(name), Some(&json!("")), "an empty one says that there is none");
}

#[test]
fn a_raw_device_has_no_file_system_type() {
    let pv = made(&json!({ "capabilities": [{ "attachmentMode": "BlockDevice" }] }), &json!({}));
    assert_eq!(
        (pv.pointer("/spec/csi/fsType"), pv.pointer("/spec/volumeMode")),
        (None, Some(&json!("Block")))
    );
}

#[test]
fn its_size_is_the_drivers_word_where_there_is_one() {
    for (made_bytes, size) in [(0, "1Gi"), (1_610_612_736_i64, "1536Mi"), (1_073_741_825, "1073741825")] {
        let pv = made(&json!({}), &json!({ "capacityBytes": made_bytes }));
        assert_eq!(pv.pointer("/spec/capacity/storage"), Some(&json!(size)));
    }
}

#[test]
fn nothing_is_made_of_a_volume_that_is_not_provisioned_or_not_made() {
    let mut native = volume(&json!({}), &json!({}));
    native.spec.persistent_volume = None;
    assert_eq!(persistent_volume(&native), None);
    let mut pending = volume(&json!({}), &json!({}));
    pending.status.as_mut().unwrap().volume_handle = None;
    assert_eq!(persistent_volume(&pending), None);
}

#[test]
fn one_for_another_claim_or_of_other_storage_is_not_it() {
    let wanted = persistent_volume(&volume(&json!({}), &json!({}))).unwrap();
    let mut other_claim = wanted.clone();
    other_claim.spec.as_mut().unwrap().claim_ref.as_mut().unwrap().uid = Some("2".into());
    let other_storage = persistent_volume(&volume(&json!({}), &json!({ "volumeHandle": "vol-2" }))).unwrap();
    assert_eq!(compare(&wanted, &wanted.clone()), Match::Own { by_another: false });
    let mut stock = wanted.clone();
    let attributes = stock.spec.as_mut().unwrap().csi.as_mut().unwrap().volume_attributes.as_mut().unwrap();
    attributes.insert(IDENTITY.into(), "1700000000000-1-d.example.com".into());
    assert_eq!(compare(&wanted, &stock), Match::Own { by_another: true });
    for (other, words) in [(other_claim, "claimRef"), (other_storage, "other storage")] {
        assert!(matches!(compare(&wanted, &other), Match::Other(said) if said.contains(words)), "{words}");
    }
}
