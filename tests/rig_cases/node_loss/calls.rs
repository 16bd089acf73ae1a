//! Controller calls that a node made which is gone: another one makes the rest of them.

use std::sync::Arc;

use kube::api::{Patch, PatchParams};
use moor::csi::Rpc;
use serde_json::json;

use super::{LOST, NONE, OTHER, collect_instance, in_use};
use crate::rig::{Cluster, Options, Rig, registered, volume, volume_claim};

pub(super) async fn move_off_a_lost_node_that_made_them(cluster: Arc<Cluster>) {
    let nodes = vec![(OTHER, true), (LOST, true)];
    let rig = Rig::start(&cluster, Options { nodes, ..Options::default() }).await;
    // Which instance makes the calls follows from the Volume's UID: each is called from the lost node with a chance of a
    // half, so there are more until two are.
    let mut keys = Vec::new();
    let mut called_from_lost = 0;
    while called_from_lost < 2 {
        let key = format!("data-{}", keys.len());
        in_use(&rig, &key).await;
        called_from_lost += usize::from(rig.is_called_by(&key, LOST).await);
        keys.push(key);
    }
    rig.crash_node(LOST);
    rig.fake.backend().lost.insert(LOST.to_owned());
    rig.mark_out_of_service(LOST, true).await;
    for key in &keys {
        rig.delete_claim(key).await;
    }
    rig.expire_lease(LOST).await;
    for key in &keys {
        rig.until_claim_gone(key).await;
    }
    rig.mark_out_of_service(LOST, false).await;
    rig.boot_node(LOST, true);
    let volumes: Vec<&str> = keys.iter().map(String::as_str).collect();
    rig.remove(NONE, &volumes).await;
}

/// Garbage collection takes the PluginInstance of a Node that was deleted. Its calls move when they cannot run any more,
/// also those of volumes that are attached nowhere.
pub(super) async fn move_off_a_node_whose_instance_is_gone(cluster: Arc<Cluster>) {
    const CALLER: &str = "node-3";
    let nodes = vec![(OTHER, true), (LOST, false), (CALLER, true)];
    let rig = Rig::start(&cluster, Options { nodes, ..Options::default() }).await;
    let mut keys: Vec<String> = Vec::new();
    let last = loop {
        let key = format!("data-{}", keys.len());
        rig.make_volume(&volume(&key)).await;
        rig.until_volume_ready(&key).await;
        keys.push(key.clone());
        if rig.is_called_by(&key, CALLER).await {
            break key;
        }
    };
    rig.crash_node(CALLER);
    rig.delete_node(CALLER).await;
    collect_instance(&rig, CALLER).await;
    rig.make_claim(&volume_claim(&last, &last, LOST)).await;
    rig.until_told(&last, "Ready", "False", "PluginNotReady").await;
    rig.expire_lease(CALLER).await;
    rig.until_ready(&last).await;
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    rig.remove(&[&last], &keys).await;
}

/// Somebody has taken the finalizer off a Volume in use, and then the node goes that attached it: the rest of the undo is
/// made from another, by what the Attachment and the VolumeHandle know.
pub(super) async fn move_for_a_volume_that_was_removed_by_force(cluster: Arc<Cluster>) {
    const CALLER: &str = "node-3";
    let nodes = vec![(OTHER, true), (LOST, false), (CALLER, true)];
    let rig = Rig::start(&cluster, Options { nodes, ..Options::default() }).await;
    let mut others: Vec<String> = Vec::new();
    let removed = loop {
        let key = format!("data-{}", others.len());
        in_use(&rig, &key).await;
        if rig.is_called_by(&key, CALLER).await {
            break key;
        }
        others.push(key);
    };
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    rig.volume_api().patch(&removed, &PatchParams::default(), &free).await.unwrap();
    rig.delete_volume(&removed).await;
    rig.until_volume_gone(&removed).await;
    rig.crash_node(CALLER);
    rig.mark_out_of_service(CALLER, true).await;
    rig.expire_lease(CALLER).await;
    rig.delete_claim(&removed).await;
    rig.until_claim_gone(&removed).await;
    let detached = rig.journal.calls_of(&removed);
    let mut by = detached.iter().filter_map(|e| e.call().filter(|c| c.rpc == Rpc::ControllerUnpublishVolume));
    assert_eq!(by.next().map(|c| c.node.as_str()), Some(OTHER));
    // Whoever registers the volume next has its VolumeHandle.
    rig.make_volume(&registered("again", &format!("vol-{removed}"))).await;
    rig.until_volume_ready("again").await;
    others.push("again".to_owned());
    rig.remove(&others[..others.len() - 1], &others).await;
    rig.leaves(&[format!("vol-{removed}")], "what was registered is left");
}
