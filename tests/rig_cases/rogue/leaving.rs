//! What a node leaves behind that is off or gone: reports, and its agent's Lease.

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::DeleteParams;
use moor::api::names::{DriverOn, agent_lease_name, instance_name};
use moor::api::{PluginInstance, lock};
use serde_json::json;

use crate::rig::fake::DRIVER;
use crate::rig::{Cluster, LOOK, NAMESPACE, Options, PATIENCE, Rig, volume, volume_claim};

const HERE: &str = "node-1";
const ROGUE: &str = "node-2";

fn forgotten(handle_name: &str) -> serde_json::Value {
    json!({"handleName": handle_name, "attachmentUID": "never-was", "reason": "WentBack"})
}

/// As many as can be described, and what they say of others.
pub(super) async fn a_report_holds_up_what_it_names_until_its_node_is_off(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options { supervised: false, ..Options::default() }).await;
    rig.kill(ROGUE);
    let rogue = rig.rogue(ROGUE).await;
    let mut all: Vec<_> = (0..255).map(|n| forgotten(&format!("no-volume-{n}"))).collect();
    all.push(forgotten(&lock::handle_name(lock::DriverVolume { driver: DRIVER, handle: "vol-described" })));
    let named = lock::handle_name(lock::DriverVolume { driver: DRIVER, handle: "vol-named" });
    rogue.say_of_driver(json!({"forgotten": all, "forgottenHandles": [named]})).await;
    rig.until_out_of_order(&[
        &instance_name(DriverOn { driver: DRIVER, node: ROGUE }),
        "does not account for",
    ])
    .await;

    for name in ["other", "described", "named"] {
        rig.make_volume(&volume(name)).await;
        rig.make_claim(&volume_claim(name, name, HERE)).await;
    }
    rig.until_ready("other").await;
    rig.until_says("described", "Forgotten", &[ROGUE]).await;
    rig.until_says("named", "Forgotten", &[ROGUE]).await;

    rig.expire_lease(ROGUE).await;
    rig.mark_out_of_service(ROGUE, true).await;
    rig.until_ready("described").await;
    rig.until_ready("named").await;
    let all = ["other", "described", "named"];
    rig.remove(&all, &all).await;
}

async fn until_gone(leases: &Api<Lease>, name: &str) {
    let end = Instant::now() + PATIENCE;
    while leases.get_opt(name).await.unwrap().is_some() {
        assert!(Instant::now() < end, "the Lease {name} stays");
        tokio::time::sleep(LOOK).await;
    }
}

/// Autoscaling gives every machine a name of its own.
pub(super) async fn the_lease_of_a_node_that_is_gone_goes_with_the_last_object_that_names_it(
    cluster: Arc<Cluster>,
) {
    let rig = Rig::start(&cluster, Options { supervised: false, ..Options::default() }).await;
    let leases: Api<Lease> = Api::namespaced(cluster.admin.clone(), NAMESPACE);
    rig.crash_node(ROGUE);
    rig.expire_lease(ROGUE).await;
    rig.delete_node(ROGUE).await;
    // As garbage collection does, which is not here.
    let instances: Api<PluginInstance> = Api::all(cluster.admin.clone());
    instances
        .delete(&instance_name(DriverOn { driver: DRIVER, node: ROGUE }), &DeleteParams::default())
        .await
        .unwrap();
    until_gone(&leases, &agent_lease_name(ROGUE)).await;
    assert!(leases.get_opt(&agent_lease_name(HERE)).await.unwrap().is_some());

    // A machine that comes under that name is a new one.
    rig.add_node(ROGUE, false).await;
    rig.until_served(ROGUE).await;
    rig.make_volume(&volume("again")).await;
    rig.make_claim(&volume_claim("again", "again", ROGUE)).await;
    rig.until_ready("again").await;
    rig.remove(&["again"], &["again"]).await;
}
