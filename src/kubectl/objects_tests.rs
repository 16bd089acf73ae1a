//! Objects as the unit tests of the pages look at them, at ten past midnight.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::scene::{Agent, Scene};

/// The moment at which everything is looked at.
pub(super) fn now() -> Timestamp {
    "2026-01-01T00:10:00Z".parse().unwrap()
}

/// Metadata of an object that was created at midnight.
pub(super) fn meta(namespace: Option<&str>, name: &str) -> Value {
    let mut meta =
        json!({ "name": name, "uid": format!("uid-{name}"), "creationTimestamp": "2026-01-01T00:00:00Z" });
    if let Some(namespace) = namespace {
        meta["namespace"] = json!(namespace);
    }
    meta
}

/// A condition that turned so many minutes past midnight.
pub(super) fn condition(type_: &str, status: bool, reason: &str, message: &str, minute: u32) -> Value {
    json!({ "type": type_, "status": if status { "True" } else { "False" }, "reason": reason, "message": message,
        "lastTransitionTime": format!("2026-01-01T00:{minute:02}:00Z") })
}

/// An object of these parts.
pub(super) fn object<K: serde::de::DeserializeOwned>(meta: &Value, spec: &Value, status: &Value) -> K {
    serde_json::from_value(json!({ "metadata": meta, "spec": spec, "status": status })).unwrap()
}

/// Two nodes, of which the second is silent. On the first a claim has a Volume, for which another one waits, and which has a
/// Snapshot.
pub(super) fn scene() -> Scene {
    let agent = |node: &str, renewed: &str| Agent {
        lease: format!("moor-agent-{node}"),
        renewed: Some(renewed.parse().unwrap()),
        lasts: 40,
        leftovers: false,
    };
    let attachment = json!({
        "volume": { "namespace": "shop", "name": "data", "uid": "uid-data" }, "volumeHandle": "vol-1",
        "nodeName": "node-1", "accessMode": "SingleNodeWriter",
        "controller": { "instance": "node-1-p", "agent": "node-1" },
        "fixed": { "handleName": "vh", "driverName": "d.example", "pluginName": "p", "pluginUID": "uid-p", "epoch": 1,
            "nodeUID": "uid-node-1", "nodeID": "id-1", "attach": true, "stage": true,
            "mountOptions": { "mountFlags": ["password=covert"] } },
    });
    let plugin = json!({ "driverName": "d.example", "version": "1.2", "controllersHealthy": 1, "controllersExpected": 1,
        "nodesHealthy": 1, "nodesExpected": 2, "conditions": [condition("Ready", true, "Healthy", "all well", 1)] });
    let handle = json!({ "driverName": "d.example", "volumeHandle": "vol-1", "mode": "SingleNodeWriter", "epoch": 1,
        "volume": { "namespace": "shop", "name": "data", "uid": "uid-data" } });
    Scene {
        now: now(),
        plugins: vec![object(&meta(None, "p"), &json!({ "driverName": "d.example" }), &plugin)],
        instances: vec![instance("node-1", true), instance("node-2", false)],
        volumes: vec![object(
            &meta(Some("shop"), "data"),
            &json!({ "pluginName": "p", "capacity": "1Gi", "mountOptions": { "mountFlags": ["password=covert"] } }),
            &json!({ "state": "Ready", "volumeHandle": "vol-1", "capacity": "1Gi", "handleName": "vh",
                "conditions": [condition("Ready", true, "Ready", "", 1)] }),
        )],
        snapshots: vec![object(
            &meta(Some("shop"), "before"),
            &json!({ "volumeName": "data" }),
            &json!({ "state": "Ready", "snapshotHandle": "snap-1", "restoreSize": "1Gi",
                "creationTime": "2026-01-01T00:05:00Z", "conditions": [condition("Ready", true, "Ready", "", 5)] }),
        )],
        claims: vec![holder(), waiter()],
        attachments: vec![object(
            &meta(None, "att"),
            &attachment,
            &json!({ "state": "Attached", "conditions": [condition("Ready", true, "Attached", "", 2)] }),
        )],
        handles: vec![object(&meta(None, "vh"), &handle, &json!({}))],
        agents: Some(vec![agent("node-1", "2026-01-01T00:09:57Z"), agent("node-2", "2026-01-01T00:07:00Z")]),
        unseen: Vec::new(),
        hidden: std::collections::BTreeSet::new(),
    }
}

fn instance(node: &str, healthy: bool) -> crate::api::PluginInstance {
    let spec = json!({ "pluginName": "p", "driverName": "d.example", "nodeName": node, "nodeUID": format!("uid-{node}"),
        "agent": node, "socketPath": "/run/d.sock" });
    let ready = if healthy {
        condition("Ready", true, "Healthy", "", 1)
    } else {
        condition("Ready", false, "Unhealthy", "Probe: Unavailable: no storage", 4)
    };
    let mut status = json!({ "healthy": healthy, "controller": node == "node-1", "node": true, "nodeID": format!("id-{node}"),
        "maxVolumes": 8, "version": "1.2", "conditions": [ready] });
    if !healthy {
        status["lastError"] = json!("Probe: Unavailable: no storage");
    }
    object(&meta(None, &format!("{node}-p")), &spec, &status)
}

/// A claim that has the Volume.
pub(super) fn holder() -> crate::api::VolumeClaim {
    let assignment = json!({ "attachment": "att", "attachmentUID": "uid-att", "handleName": "vh", "nodeName": "node-1",
        "nodeUID": "uid-node-1" });
    let spec = json!({ "volumeName": "data", "nodeName": "node-1", "assignment": assignment,
        "mountOptions": { "mountFlags": ["password=covert"] } });
    let ready = condition("Ready", true, "Published", "", 3);
    let status = json!({ "state": "Ready", "targetPath": "/var/lib/moor/a", "conditions": [ready] });
    object(&meta(Some("shop"), "a"), &spec, &status)
}

/// A claim that waits for the other one.
pub(super) fn waiter() -> crate::api::VolumeClaim {
    let words = "the volume is held by shop/a on node node-1 (Ready)";
    let waiting = json!({ "holder": "shop/a", "nodeName": "node-1", "state": "Ready", "since": "2026-01-01T00:03:00Z" });
    let status = json!({ "state": "Pending", "waitingFor": waiting, "conditions": [condition("Ready", false, "Held", words, 6)] });
    object(&meta(Some("shop"), "b"), &json!({ "volumeName": "data", "nodeName": "node-2" }), &status)
}

/// The same object as somebody has deleted it, eight minutes past midnight.
pub(super) fn deleted<K: kube::Resource>(mut object: K) -> K {
    let at = "2026-01-01T00:08:00Z".parse().unwrap();
    object.meta_mut().deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at));
    object
}
