//! A Volume that is made where its first claim is: `spec.binding` WaitForFirstClaim.

use std::sync::Arc;

use kube::api::{Patch, PatchParams, PostParams};
use moor::api::{Volume, VolumeClaim};
use moor::csi::Rpc;
use serde_json::{Value, json};

use crate::cases;
use crate::rig::fake::{DRIVER, ZONE};
use crate::rig::{CONTROLLER, Case, Cluster, Options, Rig, SPACE, volume_claim};

async fn start(cluster: &Arc<Cluster>) -> Arc<Rig> {
    let nodes = vec![("node-1", true), ("node-2", true)];
    Rig::start(cluster, Options { nodes, topology: true, ..Options::default() }).await
}

fn late(name: &str, more: &Value) -> Volume {
    let mut spec = json!({
        "pluginName": DRIVER, "capacity": "1Mi", "parameters": {"key": name}, "binding": "WaitForFirstClaim",
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": SPACE}, "spec": spec})).unwrap()
}

/// A claim that names no node.
fn anywhere(name: &str, volume: &str, selects: &Value) -> VolumeClaim {
    let spec = json!({"volumeName": volume, "nodeSelector": selects});
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": SPACE}, "spec": spec})).unwrap()
}

fn at(zone: &str) -> Value {
    json!({"segments": {ZONE: zone}})
}

/// The zone in which a Volume was made.
async fn zone(rig: &Rig, volume: &str) -> String {
    let status = rig.volume_api().get(volume).await.unwrap().status.unwrap();
    status.accessible_topology[0].segments[ZONE].clone()
}

async fn a_volume_is_made_where_its_first_claim_is(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    // Whatever says how calls are spread: that follows from the place.
    rig.patch_plugin(json!({"balancing": null})).await;
    for node in ["node-1", "node-2"] {
        rig.make_volume(&late(node, &json!({}))).await;
        rig.until_volume_says(node, "WaitsForFirstClaim", &["create a VolumeClaim", node]).await;
        assert_eq!(rig.count(node, Rpc::CreateVolume), 0);
        rig.make_claim(&volume_claim(node, node, node)).await;
        rig.until_ready(node).await;
        assert_eq!(zone(&rig, node).await, node);
    }
    // Of several the oldest that has a node. Who has none is told why.
    rig.make_volume(&late("any", &json!({"topology": {"required": [at("node-2")]}}))).await;
    rig.make_claim(&volume_claim("wrong", "any", "node-1")).await;
    rig.until_says("wrong", "NodeNotUsable", &["cannot be reached from there"]).await;
    rig.make_claim(&anywhere("nowhere", "any", &json!({"disk": "none"}))).await;
    rig.until_says("nowhere", "NoNode", &["2 without the labels of spec.nodeSelector"]).await;
    assert_eq!(rig.count("any", Rpc::CreateVolume), 0);
    rig.restart_and_wait(CONTROLLER).await;
    rig.make_claim(&anywhere("any", "any", &json!({}))).await;
    rig.until_ready("any").await;
    assert_eq!(zone(&rig, "any").await, "node-2");
    rig.remove(&["wrong", "nowhere", "any", "node-1", "node-2"], &["any", "node-1", "node-2"]).await;
    rig.fake.assert_obeyed();
}

/// CreateVolume is repeated as it was made first, whoever comes and goes meanwhile.
async fn the_place_stays_what_it_was_first(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    let fault = crate::rig::Fault::CodeBefore(tonic::Code::Unavailable);
    rig.fake.fail("data", Rpc::CreateVolume, fault);
    rig.make_volume(&late("data", &json!({}))).await;
    rig.make_claim(&volume_claim("first", "data", "node-2")).await;
    rig.until_called("data", Rpc::CreateVolume).await;
    rig.delete_claim("first").await;
    rig.until_claim_gone("first").await;
    rig.make_claim(&volume_claim("second", "data", "node-1")).await;
    rig.restart_and_wait(CONTROLLER).await;
    rig.fake.heal("data", Rpc::CreateVolume);
    rig.until_volume_ready("data").await;
    assert_eq!(zone(&rig, "data").await, "node-2");
    rig.until_says("second", "NodeNotUsable", &["cannot be reached from there"]).await;
    rig.delete_claim("second").await;
    rig.make_claim(&anywhere("third", "data", &json!({}))).await;
    rig.until_ready("third").await;
    rig.remove(&["third"], &["data"]).await;
    rig.fake.assert_obeyed();
}

async fn what_cannot_wait_is_refused(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    for more in [
        json!({"volumeHandle": "h", "parameters": null, "capacity": null}),
        json!({"persistentVolumeClaim": {"name": "pods"}}),
    ] {
        let error = rig.volume_api().create(&PostParams::default(), &late("wrong", &more)).await.unwrap_err();
        assert!(error.to_string().contains("spec.binding"), "{error}");
    }
    rig.make_volume(&late("data", &json!({}))).await;
    let export = Patch::Merge(json!({"spec": {"persistentVolumeClaim": {"name": "pods"}}}));
    let error = rig.volume_api().patch("data", &PatchParams::default(), &export).await.unwrap_err();
    assert!(error.to_string().contains("can be added when the volume is made"), "{error}");
    let now = Patch::Merge(json!({"spec": {"binding": "Immediate"}}));
    let error = rig.volume_api().patch("data", &PatchParams::default(), &now).await.unwrap_err();
    assert!(error.to_string().contains("spec.binding is immutable"), "{error}");
    rig.delete_volume("data").await;
    rig.until_volume_gone("data").await;
}

/// The cases of this file.
pub const CASES: &[Case] = cases![
    a_volume_is_made_where_its_first_claim_is,
    the_place_stays_what_it_was_first,
    what_cannot_wait_is_refused,
];
