//! Objects that a backup brings back as they were.

use std::sync::Arc;

use kube::Error;
use moor::api::{Volume, VolumeClaim};
use serde_json::{Value, json};

use crate::cases;
use crate::rig::{Case, Cluster, Options, Rig, SPACE, volume, volume_claim};

pub const CASES: &[Case] = cases![what_was_granted_is_restored_by_the_resource_modifier];

/// What Velero leaves of an object: no status, and of the metadata what is not the API server's.
fn backed_up<K: serde::Serialize>(kind: &str, object: &K) -> Value {
    let object = serde_json::to_value(object).unwrap();
    let meta = &object["metadata"];
    let kept = ["name", "namespace", "labels", "annotations", "finalizers"].map(|key| (key, &meta[key]));
    let kept: serde_json::Map<String, Value> = kept
        .into_iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(k, v)| (k.to_owned(), v.clone()))
        .collect();
    json!({ "apiVersion": "moor.dev/v1alpha1", "kind": kind, "metadata": kept, "spec": object["spec"] })
}

/// A JSON merge patch (RFC 7386).
fn merge(target: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else { return target.clone_from(patch) };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in fields {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut target[key], value);
        }
    }
}

/// Applies the rules of docs/velero-resource-modifier.yaml for this kind.
fn modify(plural: &str, object: &mut Value) {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/velero-resource-modifier.yaml");
    let map: Value = serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let rules: Value = serde_saphyr::from_str(map["data"]["modifiers.yaml"].as_str().unwrap()).unwrap();
    let group = format!("{plural}.moor.dev");
    let rules = rules["resourceModifierRules"].as_array().unwrap();
    let of_kind: Vec<_> = rules.iter().filter(|rule| rule["conditions"]["groupResource"] == group).collect();
    assert!(!of_kind.is_empty(), "{plural}");
    for patch in of_kind.iter().flat_map(|rule| rule["mergePatches"].as_array().unwrap()) {
        merge(object, &serde_json::from_str(patch["patchData"].as_str().unwrap()).unwrap());
    }
}

async fn create(rig: &Rig, plural: &str, object: &Value) -> Result<String, Error> {
    let path = format!("/apis/moor.dev/v1alpha1/namespaces/{SPACE}/{plural}");
    let request = http::Request::post(path).header("content-type", "application/json");
    rig.cluster.admin.request_text(request.body(object.to_string().into_bytes()).unwrap()).await
}

/// As they are they are refused: they speak of an Attachment and an agent of then.
async fn what_was_granted_is_restored_by_the_resource_modifier(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.make_volume(&volume("v")).await;
    rig.make_claim(&volume_claim("c", "v", "node-2")).await;
    rig.until_ready("c").await;
    let granted: VolumeClaim = rig.read_claim("c").await;
    let assigned: Volume = rig.volume_api().get("v").await.unwrap();
    let mut all =
        [("volumes", backed_up("Volume", &assigned)), ("volumeclaims", backed_up("VolumeClaim", &granted))];
    rig.remove(&["c"], &["v"]).await;

    for (plural, object) in &mut all {
        assert!(object["spec"]["assignment"].is_object() && object["metadata"]["finalizers"].is_array());
        match create(&rig, plural, object).await {
            Err(Error::Api(status)) => assert!(status.message.contains("remove it"), "{status}"),
            other => panic!("{plural}: {other:?}"),
        }
        modify(plural, object);
        create(&rig, plural, object).await.unwrap();
    }
    rig.until_ready("c").await;
    rig.remove(&["c"], &["v"]).await;
}
