//! A driver that is written for one active controller, and processes of it on several nodes (rule R2, docs/adr/0039).

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::api::{Api, ListParams};
use moor::api::{Plugin, VolumeHandle};
use moor::csi::Rpc;
use serde_json::{Value, json};

use crate::cases;
use crate::rig::fake::DRIVER;
use crate::rig::{CONTROLLER, Case, Cluster, Entry, Options, Rig, is_whole, volume, volume_claim};

const NONE: &[&str] = &[];
const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];

async fn start(cluster: &Arc<Cluster>) -> Arc<Rig> {
    let nodes = NODES.map(|node| (node, true)).to_vec();
    Rig::start(cluster, Options { nodes, longest_call: 3, ..Options::default() }).await
}

/// The node of the active instance.
fn active(plugin: &Plugin) -> Option<String> {
    Some(plugin.active()?.agent.clone())
}

async fn until_active(rig: &Rig, but: Option<&str>) -> String {
    rig.until_plugin(DRIVER, "has an active instance", |plugin| {
        active(plugin).filter(|node| Some(node.as_str()) != but)
    })
    .await
}

async fn ready(rig: &Rig, keys: &[String]) {
    for key in keys {
        rig.make_volume(&volume(key)).await;
    }
    for key in keys {
        rig.until_volume_ready(key).await;
    }
}

fn keys(prefix: &str) -> Vec<String> {
    (0..6).map(|n| format!("{prefix}-{n}")).collect()
}

/// Who made the calls of the Controller service about these volumes, of those after `since`.
fn callers(rig: &Rig, keys: &[String], since: usize) -> BTreeSet<String> {
    let is_call =
        |entry: &Entry| entry.call().is_some_and(|call| is_controllers(call.rpc) && keys.contains(&call.key));
    let calls = rig.journal.since(since, is_call);
    calls.iter().filter_map(Entry::call).map(|call| call.node.clone()).collect()
}

fn is_controllers(rpc: Rpc) -> bool {
    matches!(
        rpc,
        Rpc::CreateVolume
            | Rpc::DeleteVolume
            | Rpc::ControllerPublishVolume
            | Rpc::ControllerUnpublishVolume
            | Rpc::ValidateVolumeCapabilities
    )
}

fn only(node: &str) -> BTreeSet<String> {
    [node.to_owned()].into()
}

/// Nobody has said how the calls are to be spread.
async fn one_instance_makes_all_calls_until_it_is_gone(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    rig.patch_plugin(json!({"balancing": Value::Null})).await;
    let first = until_active(&rig, None).await;
    let (before, after) = (keys("before"), keys("after"));
    ready(&rig, &before).await;
    assert_eq!(callers(&rig, &before, 0), only(&first));
    // Whoever leads next goes on with the same one.
    rig.restart_and_wait(CONTROLLER).await;

    // It ends in the middle of a call, which the next one finishes.
    let rpc = Rpc::ControllerPublishVolume;
    let user = NODES.into_iter().find(|node| *node != first).unwrap();
    rig.fake.hold(&before[0], rpc);
    rig.make_claim(&volume_claim("claim", &before[0], user)).await;
    rig.until_called(&before[0], rpc).await;
    rig.fake.stop(&first, &rig.plugin_dir(&first));
    let began = rig.journal.now();
    rig.fake.let_go(&before[0], rpc);
    ready(&rig, &after).await;
    let second = until_active(&rig, Some(&first)).await;
    assert_eq!(callers(&rig, &after, began), only(&second));
    rig.until_ready("claim").await;
    // What the first had made is the second's too, and stays so.
    rig.fake.serve(&first, &rig.plugin_dir(&first), true);
    rig.until_served(&first).await;
    let later = keys("later");
    ready(&rig, &later).await;
    assert_eq!(callers(&rig, &[before.clone(), later.clone()].concat(), began), only(&second));
    assert_eq!(until_active(&rig, None).await, second);
    rig.delete_claim("claim").await;
    rig.until_claim_gone("claim").await;
    let all = [before, after, later].concat();
    rig.remove(NONE, &all).await;
    assert_eq!(callers(&rig, &all, began), only(&second));
    rig.fake.assert_obeyed();
}

/// It says that it is not ready, and does not end. One that is well is asked every half a minute.
async fn an_active_instance_that_hangs_is_followed_by_another(cluster: Arc<Cluster>) {
    if !is_whole() {
        return;
    }
    let rig = start(&cluster).await;
    rig.patch_plugin(json!({"balancing": Value::Null, "healthTimeoutSeconds": 1})).await;
    let first = until_active(&rig, None).await;
    ready(&rig, &keys("before")).await;
    rig.fake.hold(&first, Rpc::Probe);
    rig.until_plugin(DRIVER, "counts one less", |plugin| {
        (plugin.status.as_ref()?.controllers_healthy == 2).then_some(())
    })
    .await;
    let began = rig.journal.now();
    let after = keys("after");
    ready(&rig, &after).await;
    let second = until_active(&rig, Some(&first)).await;
    assert_eq!(callers(&rig, &after, began), only(&second));
    rig.fake.let_go(&first, Rpc::Probe);
    rig.remove(NONE, &[keys("before"), after].concat()).await;
    rig.fake.assert_obeyed();
}

/// What was spread before comes together.
async fn a_plugin_that_says_so_later_gathers_what_it_has(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    let all: Vec<String> = (0..24).map(|n| format!("data-{n}")).collect();
    ready(&rig, &all).await;
    assert!(callers(&rig, &all, 0).len() > 1, "24 volumes of one instance");
    rig.patch_plugin(json!({"balancing": "SingleActive"})).await;
    let active = until_active(&rig, None).await;
    let handles: Api<VolumeHandle> = Api::all(rig.cluster.admin.clone());
    rig.poll("all are the active one's", || async {
        let all = handles.list(&ListParams::default()).await.unwrap();
        let callers = all.iter().filter_map(|handle| handle.spec.controller.as_ref());
        callers.map(|caller| caller.agent.clone()).collect::<BTreeSet<_>>() == only(&active)
    })
    .await;
    let began = rig.journal.now();
    rig.remove(NONE, &all).await;
    assert_eq!(callers(&rig, &all, began), only(&active));
    rig.fake.assert_obeyed();
}

/// The cases of this file.
pub const CASES: &[Case] = cases![
    one_instance_makes_all_calls_until_it_is_gone,
    an_active_instance_that_hangs_is_followed_by_another,
    a_plugin_that_says_so_later_gathers_what_it_has,
];
