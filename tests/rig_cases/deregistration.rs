//! A driver that has left a node for good is no part of its Plugin any more, and one that is needed there stays.

use std::sync::Arc;

use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use moor::api::PluginInstance;
use moor::api::names::{DriverOn, instance_name};
use moor::csi::Rpc;

use crate::cases;
use crate::rig::fake::DRIVER;
use crate::rig::{Case, Cluster, Entry, Options, Rig, volume, volume_claim};

const HEIR: &str = "node-1";
const USED: &str = "node-2";
const LEFT: &str = "node-3";

async fn is_registered(rig: &Rig, node: &str) -> bool {
    let instances: Api<PluginInstance> = Api::all(rig.cluster.admin.clone());
    instances.get_opt(&instance_name(DriverOn { driver: DRIVER, node })).await.unwrap().is_some()
}

async fn is_gone(rig: &Rig, node: &str) -> bool {
    let instances: Api<PluginInstance> = Api::all(rig.cluster.admin.clone());
    let instance = instances.get(&instance_name(DriverOn { driver: DRIVER, node })).await.unwrap();
    instance.status.is_some_and(|status| status.gone)
}

/// What was told of the driver having left nodes.
async fn told(rig: &Rig) -> Vec<String> {
    let events: Api<Event> = Api::all(rig.cluster.admin.clone());
    let events = events.list(&ListParams::default()).await.unwrap().items.into_iter();
    events
        .filter(|event| event.reason.as_deref() == Some("Deregistered"))
        .filter_map(|event| event.note)
        .collect()
}

/// A volume on a node that stays, whose calls were made by the driver that leaves, and are another's then.
async fn a_driver_that_has_left_is_not_waited_for(cluster: Arc<Cluster>) {
    let nodes = vec![(HEIR, true), (USED, false), (LEFT, true)];
    let rig = Rig::start(&cluster, Options { nodes, ..Options::default() }).await;
    let mut keys: Vec<String> = Vec::new();
    let used = loop {
        let key = format!("data-{}", keys.len());
        rig.make_volume(&volume(&key)).await;
        rig.make_claim(&volume_claim(&key, &key, USED)).await;
        rig.until_ready(&key).await;
        keys.push(key.clone());
        if rig.is_called_by(&key, LEFT).await {
            break key;
        }
    };
    // Both go, in an order that leaves no doubt who could have been taken off first.
    for node in [USED, LEFT] {
        rig.fake.stop(node, &rig.plugin_dir(node));
        rig.poll("its agent sees it", || is_gone(&rig, node)).await;
    }
    rig.poll("it is taken off", || async { !is_registered(&rig, LEFT).await }).await;
    assert!(is_registered(&rig, USED).await, "a volume is mounted there");
    rig.until_plugin(DRIVER, "counts those that are left", |plugin| {
        (plugin.status.as_ref()?.nodes_expected == 2).then_some(())
    })
    .await;
    rig.poll("it is told", || async { told(&rig).await.len() == 1 }).await;
    assert!(told(&rig).await[0].contains(&format!("has left node {LEFT}")), "{:?}", told(&rig).await);

    rig.fake.serve(USED, &rig.plugin_dir(USED), false);
    rig.delete_claim(&used).await;
    rig.until_claim_gone(&used).await;
    let detached = rig.journal.calls_of(&used);
    let mut by =
        detached.iter().rev().filter_map(Entry::call).filter(|c| c.rpc == Rpc::ControllerUnpublishVolume);
    assert_eq!(by.next().map(|call| call.node.as_str()), Some(HEIR));

    rig.fake.serve(LEFT, &rig.plugin_dir(LEFT), true);
    rig.until_served(LEFT).await;
    rig.make_volume(&volume("again")).await;
    rig.make_claim(&volume_claim("again", "again", LEFT)).await;
    rig.until_ready("again").await;
    keys.push("again".to_owned());
    let claims: Vec<_> = keys.iter().filter(|key| **key != used).cloned().collect();
    rig.remove(&claims, &keys).await;

    // The agent leaves a node on which its driver goes on, as when others are selected for agents.
    rig.stop(LEFT).await;
    rig.poll("it is taken off", || async { !is_registered(&rig, LEFT).await }).await;
    rig.poll("it is told", || async { told(&rig).await.iter().any(|note| note.contains("no agent")) }).await;
    rig.run(LEFT);
    rig.until_served(LEFT).await;
    rig.fake.assert_obeyed();
}

/// The cases of this module.
pub const CASES: &[Case] = cases![a_driver_that_has_left_is_not_waited_for];
