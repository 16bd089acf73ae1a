//! A driver in two parts: the part with the Controller service comes when volumes are in use already.

use std::sync::Arc;

use kube::api::{DeleteParams, Patch, PatchParams};
use moor::api::volume::DeletionPolicy;
use moor::csi::Rpc;
use serde_json::json;

use super::{NODE, UNDO, course};
use crate::rig::{Cluster, Options, Rig, registered, volume_claim};

pub async fn a_controller_that_comes_later_attaches_for_the_next_claim(cluster: Arc<Cluster>) {
    let nodes = vec![(NODE, false)];
    let rig = Rig::start(&cluster, Options { nodes, attach: false, ..Options::default() }).await;
    let handle = rig.fake.backend().add("late");
    rig.make_volume(&registered("late", &handle)).await;
    rig.make_claim(&volume_claim("early", "late", NODE)).await;
    rig.until_ready("early").await;

    rig.fake.backend().attach = true;
    rig.add_node("node-1", true).await;
    rig.until_served("node-1").await;
    // Before that it would join.
    let closed = || cluster.handles.state().into_iter().find(|handle| handle.spec.closing);
    cluster.until("the VolumeHandle is closed", closed, || rig.story("early")).await;
    let since = rig.journal.now();
    rig.make_claim(&volume_claim("next", "late", NODE)).await;
    rig.until_says("next", "NotAttached", &["default/early", NODE, "delete the claims"]).await;
    // Who has it keeps it, also when its agent looks again.
    rig.restart(NODE);
    // Served by the new process, which had the other claim before it when it started.
    rig.in_use("witness").await;
    rig.until_ready("early").await;
    assert_eq!(course(&rig.calls_since(since, "late")), [""; 0]);

    rig.delete_claim("early").await;
    rig.until_claim_gone("early").await;
    rig.until_ready("next").await;
    let next = ["ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume"];
    assert_eq!(course(&rig.calls_since(since, "late")), [&UNDO[..2], &next[..]].concat());

    let since = rig.journal.now();
    rig.delete_claim("next").await;
    rig.until_claim_gone("next").await;
    assert_eq!(course(&rig.calls_since(since, "late")), UNDO);
    assert_eq!(rig.count("late", Rpc::ControllerPublishVolume), 1);
    rig.delete_claim("witness").await;
    rig.until_claim_gone("witness").await;
    rig.delete_volume("witness").await;
    rig.until_volume_gone("witness").await;
    rig.remove_volume("late").await;
}

/// The part that has come says that there is another one. Taken without that, the volume would be staged without being attached.
pub async fn a_volume_waits_for_a_controller_that_the_driver_says_it_has(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options { nodes: vec![], ..Options::default() }).await;
    rig.fake.backend().says_controller = true;
    rig.add_node(NODE, false).await;
    rig.until_served(NODE).await;
    let handle = rig.fake.backend().add("v");
    rig.make_volume(&registered("v", &handle)).await;
    rig.make_claim(&volume_claim("v", "v", NODE)).await;
    rig.until_volume_says("v", "NoInstance", &["Controller service", "spec.roles"]).await;
    let pod = rig.make_pod_volume("web", NODE).await;
    let claim = rig.ask(&pod, |_| {}).await;
    rig.add_node("node-1", true).await;
    rig.until_ready("v").await;
    rig.until_granted(&claim).await;
    assert_eq!(rig.count("v", Rpc::ValidateVolumeCapabilities), 1);
    rig.until_called("web", Rpc::ControllerPublishVolume).await;
    rig.kept_claims().delete(&claim, &DeleteParams::default()).await.unwrap();
    rig.until_kept_claim_gone(&claim).await;
    rig.remove_pod("web").await;
    rig.delete_pvc("web").await;
    rig.remove(&["v"], &["v"]).await;

    // A driver that says it and has none is there too.
    rig.patch_plugin(json!({"roles": "Node"})).await;
    let handle = rig.fake.backend().add("alone");
    rig.make_volume(&registered("alone", &handle)).await;
    rig.until_volume_ready("alone").await;
    rig.remove_volume("alone").await;
}

/// Storage that its owner wants deleted is not left to nobody because the part that deletes has not come yet.
pub async fn storage_is_deleted_by_a_controller_that_comes_later(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options { nodes: vec![(NODE, false)], ..Options::default() }).await;
    for name in ["goes", "stays"] {
        let handle = rig.fake.backend().add(name);
        let mut volume = registered(name, &handle);
        volume.spec.deletion_policy = Some(DeletionPolicy::Delete);
        rig.make_volume(&volume).await;
        rig.until_volume_ready(name).await;
        rig.delete_volume(name).await;
        rig.until_volume_says(name, "NoInstance", &["spec.deletionPolicy", "DeleteVolume", "Retain"]).await;
    }
    let retain = Patch::Merge(json!({ "spec": { "deletionPolicy": "Retain" } }));
    rig.volume_api().patch("stays", &PatchParams::default(), &retain).await.unwrap();
    rig.until_volume_gone("stays").await;

    rig.add_node("node-1", true).await;
    rig.until_volume_gone("goes").await;
    assert_eq!(["goes", "stays"].map(|name| rig.count(name, Rpc::DeleteVolume)), [1, 0]);
    assert!(!rig.has_storage("goes") && rig.has_storage("stays"));
    rig.assert_nothing_left().await;
}

/// Rule R2. A Deployment's controller Pod may go to another node for good, and both nodes are as well as before.
pub async fn calls_move_when_a_controller_has_left_its_node(cluster: Arc<Cluster>) {
    const LEFT: &str = "node-3";
    let nodes = vec![("node-1", true), (NODE, false), (LEFT, true)];
    let rig = Rig::start(&cluster, Options { nodes, ..Options::default() }).await;
    let mut keys: Vec<String> = Vec::new();
    let last = loop {
        let key = format!("data-{}", keys.len());
        rig.in_use(&key).await;
        keys.push(key.clone());
        if rig.is_called_by(&key, LEFT).await {
            break key;
        }
    };
    // One that is back in a moment keeps its calls.
    rig.fake.stop(LEFT, &rig.plugin_dir(LEFT));
    rig.fake.serve(LEFT, &rig.plugin_dir(LEFT), true);
    rig.until_served(LEFT).await;
    rig.fake.stop(LEFT, &rig.plugin_dir(LEFT));
    for key in &keys {
        rig.delete_claim(key).await;
    }
    for key in &keys {
        rig.until_claim_gone(key).await;
    }
    let detached = rig.journal.calls_of(&last);
    let by: Vec<_> = detached
        .iter()
        .filter_map(|e| e.call().filter(|c| c.rpc == Rpc::ControllerUnpublishVolume))
        .map(|c| c.node.as_str())
        .collect();
    assert_eq!(by, ["node-1"]);
    for key in &keys {
        rig.remove_volume(key).await;
    }
}
