//! PluginInstances in number: a rollout of the driver changes each of them, while a claim waits for its turn.

use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use moor::api::names::{DriverOn, instance_name};
use moor::api::{Plugin, PluginInstance};
use serde_json::{Value, json};

use crate::rig::fake::DRIVER;
use crate::rig::{Cluster, LOOK, Options, PATIENCE, Rig, is_whole, say, volume, volume_claim};

/// So many passes over Volumes a rollout may cost that lets one claim go and another come, however many nodes and
/// Volumes there are.
const MOST_PASSES: u64 = 50;
/// The Plugin of another driver, with an instance on one of the nodes.
const OTHER: &str = "other.example";

fn node(number: usize) -> String {
    format!("far-{number:04}")
}

/// Says what an agent would say of a driver that was just started.
async fn make_instance(cluster: &Cluster, node: &Node, driver: &str) {
    let name = node.metadata.name.as_deref().unwrap();
    let spec = json!({
        "pluginName": driver, "driverName": driver, "nodeName": name, "agent": name,
        "nodeUID": node.metadata.uid, "socketPath": "/none",
    });
    let labels = json!({"far": "yes"});
    let metadata = json!({"name": instance_name(DriverOn { driver, node: name }), "labels": labels});
    let instance = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
    let instances: Api<PluginInstance> = Api::all(cluster.admin.clone());
    instances.create(&PostParams::default(), &instance).await.unwrap();
    let healthy = driver == DRIVER;
    say_of(cluster, name, driver, json!({"healthy": healthy, "node": true, "nodeID": name, "version": "1"}))
        .await;
}

/// Makes a Node without a machine.
async fn make_node(cluster: &Cluster, number: usize) {
    let nodes: Api<Node> = Api::all(cluster.admin.clone());
    let object = json!({"metadata": {"name": node(number), "labels": {"far": "yes"}}});
    let made = nodes.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    make_instance(cluster, &made, DRIVER).await;
    if number == 0 {
        make_instance(cluster, &made, OTHER).await;
    }
}

async fn say_of(cluster: &Cluster, node: &str, driver: &str, status: Value) {
    let instances: Api<PluginInstance> = Api::all(cluster.admin.clone());
    let patch = Patch::Merge(json!({"status": status}));
    let name = instance_name(DriverOn { driver, node });
    instances.patch_status(&name, &PatchParams::default(), &patch).await.unwrap();
}

/// The driver's process is replaced on these nodes.
async fn roll_out(cluster: &Arc<Cluster>, nodes: std::ops::Range<usize>, version: &str) {
    futures::stream::iter(nodes)
        .for_each_concurrent(16, |number| async move {
            let ends = json!({"healthy": false, "gone": true, "lastError": "nobody listens"});
            say_of(cluster, &node(number), DRIVER, ends).await;
            let begins = json!({"healthy": true, "gone": false, "lastError": null, "version": version});
            say_of(cluster, &node(number), DRIVER, begins).await;
        })
        .await;
}

/// Changes the instance of the other driver and waits until the leader has counted that. Its watch has brought every
/// earlier change by then, and what those have asked for has been handed out before.
async fn until_all_is_handed_out(cluster: &Cluster, healthy: bool) {
    say_of(cluster, &node(0), OTHER, json!({"healthy": healthy})).await;
    let plugins: Api<Plugin> = Api::all(cluster.admin.clone());
    let counted = async {
        while plugins.get(OTHER).await.unwrap().status.is_none_or(|s| s.nodes_healthy != i64::from(healthy)) {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(PATIENCE, counted)
        .await
        .expect("the leader counts the instance of the other driver");
}

pub async fn a_rollout_looks_at_few_volumes(cluster: Arc<Cluster>) {
    let (nodes, number) = if is_whole() { (1000, 300) } else { (100, 60) };
    let rig = Rig::start(&cluster, Options::default()).await;
    let plugins: Api<Plugin> = Api::all(cluster.admin.clone());
    let other = serde_json::from_value(json!({"metadata": {"name": OTHER}, "spec": {}})).unwrap();
    plugins.create(&PostParams::default(), &other).await.unwrap();
    futures::stream::iter(0..nodes).for_each_concurrent(16, |number| make_node(&cluster, number)).await;
    let names: Vec<String> = (0..number).map(|n| format!("data-{n}")).collect();
    futures::stream::iter(&names)
        .for_each_concurrent(16, |name| {
            let rig = rig.clone();
            async move { rig.make_volume(&volume(name)).await }
        })
        .await;
    for name in &names {
        rig.until_volume_ready(name).await;
    }
    rig.make_claim(&volume_claim("first", &names[0], "node-2")).await;
    rig.until_ready("first").await;
    rig.make_claim(&volume_claim("next", &names[0], "node-1")).await;
    rig.until_says("next", "Held", &["first"]).await;
    until_all_is_handed_out(&cluster, true).await;

    let before = rig.passes("Volume").await;
    roll_out(&cluster, 0..nodes / 2, "2").await;
    rig.delete_claim("first").await;
    roll_out(&cluster, nodes / 2..nodes, "2").await;
    rig.until_ready("next").await;
    until_all_is_handed_out(&cluster, false).await;
    let passes = rig.passes("Volume").await - before;
    say(&format!("    {passes} passes over {number} Volumes while {nodes} nodes got a new driver"));
    assert!(passes <= MOST_PASSES, "{passes}");

    let far = ListParams::default().labels("far=yes");
    let instances: Api<PluginInstance> = Api::all(cluster.admin.clone());
    instances.delete_collection(&DeleteParams::default(), &far).await.unwrap();
    Api::<Node>::all(cluster.admin.clone()).delete_collection(&DeleteParams::default(), &far).await.unwrap();
    plugins.delete(OTHER, &DeleteParams::default()).await.unwrap();
    rig.remove(&["next"], &names).await;
}
