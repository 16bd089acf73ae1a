//! PluginInstances that are not what they say.

use std::sync::Arc;

use kube::{Api, Error};
use moor::api::names::{DriverOn, agent_lease_name, instance_name};
use moor::api::{Plugin, PluginInstance};
use serde_json::json;

use crate::rig::fake::DRIVER;
use crate::rig::{Cluster, Options, Rig, volume, volume_claim};

const HONEST: &str = "node-1";
const ROGUE: &str = "node-2";

/// No process is started again: the agent of the rogue node is not there to put anything right.
async fn start(cluster: &Arc<Cluster>) -> Arc<Rig> {
    let rig = Rig::start(cluster, Options { supervised: false, ..Options::default() }).await;
    rig.kill(ROGUE);
    rig
}

fn is_refused<T>(answer: &Result<T, Error>) -> bool {
    matches!(answer, Err(Error::Api(status)) if status.code == 403)
}

/// minikube names its nodes like this.
pub(super) async fn a_node_cannot_take_the_name_of_another(cluster: Arc<Cluster>) {
    let nodes = vec![("worker", true)];
    let rig = Rig::start(&cluster, Options { nodes, ..Options::default() }).await;
    let rogue = rig.rogue("worker").await;
    let neighbours = instance_name(DriverOn { driver: DRIVER, node: "worker-2" });
    for name in [&*neighbours, "worker-evil", "worker.evil", "worker-0123456789abc"] {
        assert!(is_refused(&rogue.make_instance(name, DRIVER).await), "it has made {name}");
    }
    rogue
        .make_instance(&instance_name(DriverOn { driver: "other.driver", node: "worker" }), "other.driver")
        .await
        .unwrap();
    rig.add_node("worker-2", false).await;
    rig.until_served("worker-2").await;
    assert!(is_refused(&rogue.say(&neighbours, json!({"healthy": false})).await), "it writes for worker-2");
}

/// What stands in names for the end of the longest names of nodes has the form of a hash.
pub(super) async fn the_longest_names_of_nodes_are_told_apart(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    for length in [240, 241, 242, 243, 244] {
        let node = "n".repeat(length);
        let rogue = rig.rogue_alone(&node).await;
        rogue.make_instance(&instance_name(DriverOn { driver: DRIVER, node: &node }), DRIVER).await.unwrap();
        rogue.make_lease(&agent_lease_name(&node)).await.unwrap();
        let other = format!("m{}", "n".repeat(length - 1));
        for name in [
            &*instance_name(DriverOn { driver: DRIVER, node: &other }),
            "n",
            &"n".repeat(210),
            &("n".repeat(252) + "z"),
        ] {
            assert!(is_refused(&rogue.make_instance(name, DRIVER).await), "{length}: it has made {name}");
        }
        for name in [&*agent_lease_name(&other), "moor-agent-n", &format!("moor-agent-{}-x", "n".repeat(210))]
        {
            assert!(is_refused(&rogue.make_lease(name).await), "{length}: it has made {name}");
        }
    }
}

/// The driver of new volumes is the Plugin's, whatever an instance says.
pub(super) async fn an_instance_of_another_driver_counts_nowhere(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    let rogue = rig.rogue(ROGUE).await;
    let foreign = rogue.make_first_instance("evil.example").await;
    let status = json!({"healthy": true, "controller": true, "node": true, "nodeID": "evil",
        "capabilities": {"controller": ["CREATE_DELETE_VOLUME", "PUBLISH_UNPUBLISH_VOLUME"]}});
    rogue.say(&foreign, status).await.unwrap();
    rig.until_out_of_order(&[&foreign, DRIVER]).await;

    rig.make_volume(&volume("plain")).await;
    rig.make_claim(&volume_claim("plain", "plain", HONEST)).await;
    rig.until_ready("plain").await;
    let attachment = rig.read_attachment_of("plain").await;
    assert_eq!(attachment.spec.fixed.driver_name, DRIVER);
    let plugins: Api<Plugin> = Api::all(cluster.admin.clone());
    let status = plugins.get(DRIVER).await.unwrap().status.unwrap();
    assert_eq!(status.driver_name.as_deref(), Some(DRIVER));
    assert_eq!(status.controllers_expected, 1, "{status:?}");
    rig.remove(&["plain"], &["plain"]).await;
}

/// Whatever a node says of itself, new volumes are not made there.
pub(super) async fn controller_calls_are_made_where_the_plugin_says(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    rig.patch_plugin(json!({"controllerNodes": {"names": [HONEST]}})).await;
    let rogue = rig.rogue(ROGUE).await;
    let capabilities = json!({"controller": ["CREATE_DELETE_VOLUME", "PUBLISH_UNPUBLISH_VOLUME"]});
    rogue.say_of_driver(json!({"healthy": true, "controller": true, "capabilities": capabilities})).await;
    rig.until_out_of_order(&[ROGUE, "spec.controllerNodes"]).await;

    let names: Vec<String> = (0..10).map(|n| format!("volume-{n}")).collect();
    for name in &names {
        rig.make_volume(&volume(name)).await;
    }
    for name in &names {
        rig.until_volume_ready(name).await;
        assert!(rig.is_called_by(name, HONEST).await, "{name}");
    }
    rig.remove(&[""; 0], &names).await;
}

/// A driver that has a Controller service somewhere is not used as one that has none.
pub(super) async fn labels_say_where_controller_calls_are_made(cluster: Arc<Cluster>) {
    const LABEL: &str = "node-restriction.kubernetes.io/storage";
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.patch_plugin(json!({"controllerNodes": {"matchLabels": {LABEL: "yes"}}})).await;
    rig.until_out_of_order(&[HONEST, "spec.controllerNodes"]).await;
    rig.make_volume(&volume("placed")).await;
    rig.make_claim(&volume_claim("placed", "placed", ROGUE)).await;
    rig.until_volume_says("placed", "NoInstance", &["spec.controllerNodes"]).await;
    rig.label_node(HONEST, LABEL, Some("no")).await;
    rig.label_node(HONEST, LABEL, Some("yes")).await;
    rig.until_ready("placed").await;
    assert!(rig.read_attachment_of("placed").await.spec.fixed.attach, "used without being attached");

    // What it has begun it ends.
    rig.label_node(HONEST, LABEL, None).await;
    rig.until_out_of_order(&[HONEST, "spec.controllerNodes"]).await;
    let instances: Api<PluginInstance> = Api::all(cluster.admin.clone());
    assert!(
        instances
            .get(&instance_name(DriverOn { driver: DRIVER, node: HONEST }))
            .await
            .unwrap()
            .status
            .unwrap()
            .controller
    );
    rig.remove(&["placed"], &["placed"]).await;
}
