//! A mount that the API server has forgotten, and whose report goes too.

use std::fmt::Debug;
use std::fs;
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use moor::api::instance::UNDO_FORGOTTEN;
use moor::api::names::agent_lease_name;
use moor::api::names::{DriverOn, instance_name};
use moor::api::{Attachment, PluginInstance};
use moor::csi::Rpc;
use moor::heartbeat::Forgotten;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::cases;
use crate::rig::fake::DRIVER;
use crate::rig::{
    CONTROLLER, Case, Cluster, LOOK, NAMESPACE, Options, PATIENCE, Rig, condition, volume, volume_claim,
};

const HERE: &str = "node-1";
const THERE: &str = "node-2";

/// The object goes, and nobody undoes anything: first the finalizer is taken off, so it is never seen closing.
async fn tear_away<K: Clone + Debug + DeserializeOwned>(api: &Api<K>, name: &str) {
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    api.patch(name, &PatchParams::default(), &free).await.unwrap();
    api.delete(name, &DeleteParams::default()).await.unwrap();
}

/// A claim of volume `v` is mounted on [`THERE`]; then the API server forgets it and its Attachment while the agent is down
/// and its only record is spoilt. Returns the path and the Attachment's UID.
async fn forget(rig: &Rig, spoil: impl FnOnce()) -> (String, String) {
    rig.make_volume(&volume("v")).await;
    rig.make_claim(&volume_claim("user", "v", THERE)).await;
    let path = rig.until_ready("user").await;
    fs::write(format!("{path}/data"), "precious").unwrap();
    let lock = rig.read_attachment_of("user").await.metadata;
    rig.kill(THERE);
    spoil();
    tear_away::<Attachment>(&Api::all(rig.cluster.admin.clone()), &lock.name.unwrap()).await;
    tear_away(&rig.claim_api(), "user").await;
    rig.run(THERE);
    (path, lock.uid.unwrap())
}

/// The agent says it in a moment, in its Lease too.
async fn until_the_lease_says_so(rig: &Rig, node: &str) {
    let leases: Api<Lease> = Api::namespaced(rig.cluster.admin.clone(), NAMESPACE);
    let (name, end) = (agent_lease_name(node), Instant::now() + PATIENCE);
    while Forgotten::said_in(&leases.get(&name).await.unwrap()).is_empty() {
        assert!(Instant::now() < end, "the Lease {name} names nothing");
        tokio::time::sleep(LOOK).await;
    }
}

/// What another version may have written: of the node's only record no more can be read than which volume it is of.
fn make_unreadable(rig: &Rig) {
    let kept = ["driverName", "handleName", "volumeHandle"];
    rig.change_record(THERE, |record| {
        record.as_object_mut().unwrap().retain(|key, _| kept.contains(&&**key));
    });
}

/// Somebody deletes a Node whose machine goes on, and its PluginInstance goes with it by garbage collection. What is
/// mounted there keeps the volume from other nodes, whoever leads, until the machine is gone too.
async fn a_mount_is_reported_for_as_long_as_its_agent_lives(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options { supervised: false, ..Options::default() }).await;
    let (path, _) = forget(&rig, || make_unreadable(&rig)).await;
    let name = instance_name(DriverOn { driver: DRIVER, node: THERE });
    let reported = || {
        let all = cluster.instances.state();
        let instance = all.into_iter().find(|i| i.metadata.name.as_ref() == Some(&name))?;
        (!instance.status.as_ref()?.forgotten.is_empty()).then_some(())
    };
    cluster.until("the mount is reported", reported, || rig.story("v")).await;
    rig.make_claim(&volume_claim("rival", "v", HERE)).await;
    rig.until_says("rival", "Forgotten", &[THERE, "PluginInstance"]).await;

    until_the_lease_says_so(&rig, THERE).await;
    rig.delete_node(THERE).await;
    // As garbage collection does, which is not here.
    let instances: Api<PluginInstance> = Api::all(cluster.admin.clone());
    instances.delete(&name, &DeleteParams::default()).await.unwrap();
    rig.until_says("rival", "Forgotten", &[THERE, "Lease"]).await;
    // Another leader knows it too.
    rig.restart(CONTROLLER);
    rig.delete_claim("rival").await;
    rig.until_claim_gone("rival").await;
    rig.make_claim(&volume_claim("later", "v", HERE)).await;
    rig.until_says("later", "Forgotten", &[THERE, "Lease"]).await;
    assert_eq!(fs::read_to_string(format!("{path}/data")).unwrap(), "precious");

    rig.crash_node(THERE);
    rig.expire_lease(THERE).await;
    // Nobody detaches from a machine of which nothing is known: that is the storage's.
    rig.fake.backend().volumes.get_mut("v").unwrap().attached.remove(THERE);
    rig.until_ready("later").await;
    rig.delete_claim("later").await;
    rig.until_claim_gone("later").await;
    rig.delete_volume("v").await;
    rig.until_volume_gone("v").await;
}

/// Nobody knows which volume it was: it may be the one that is asked for, whichever that is.
async fn a_file_that_says_nothing_holds_up_its_node_until_it_is_dismissed(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options { supervised: false, ..Options::default() }).await;
    let (_, uid) = forget(&rig, || rig.tear_records(THERE)).await;

    rig.make_volume(&volume("asked")).await;
    rig.make_claim(&volume_claim("asked", "asked", THERE)).await;
    let instance = instance_name(DriverOn { driver: DRIVER, node: THERE });
    let order = format!("plugininstance {instance} {UNDO_FORGOTTEN}={uid}");
    rig.until_says("asked", "Forgotten", &[THERE, "its Attachment, which is gone", &order]).await;
    assert_eq!(rig.count("asked", Rpc::NodeStageVolume), 0);
    // On other nodes nothing is held up.
    rig.make_volume(&volume("free")).await;
    rig.make_claim(&volume_claim("free", "free", HERE)).await;
    rig.until_ready("free").await;

    // After a reboot nothing of it is mounted.
    rig.crash_node(THERE);
    rig.fake.backend().volumes.get_mut("v").unwrap().attached.remove(THERE);
    rig.boot_node(THERE, false);
    rig.until_says("asked", "Forgotten", &[&order]).await;
    let instances: Api<PluginInstance> = Api::all(cluster.admin.clone());
    let order = json!({"metadata": {"annotations": {UNDO_FORGOTTEN: uid}}});
    instances.patch(&instance, &PatchParams::default(), &Patch::Merge(order)).await.unwrap();
    rig.until_ready("asked").await;
    for name in ["asked", "free"] {
        rig.delete_claim(name).await;
        rig.until_claim_gone(name).await;
    }
    for name in ["asked", "free", "v"] {
        rig.delete_volume(name).await;
        rig.until_volume_gone(name).await;
    }
}

/// What is reported on a PluginInstance keeps it while its Plugin is gone, and it does not pass for one that works.
async fn a_report_without_its_plugin_is_not_healthy(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options { supervised: false, ..Options::default() }).await;
    forget(&rig, || make_unreadable(&rig)).await;
    let name = instance_name(DriverOn { driver: DRIVER, node: THERE });
    let status = || {
        let all = cluster.instances.state();
        all.into_iter().find(|i| i.metadata.name.as_ref() == Some(&name))?.status.clone()
    };
    let reported = || status().filter(|s| s.healthy && !s.forgotten.is_empty());
    cluster.until("the mount is reported", reported, || rig.story("v")).await;
    rig.delete_plugin().await;
    let ill = || status().filter(|s| !s.healthy);
    let left = cluster.until("it is not healthy", ill, || format!("{:?}", status())).await;
    let ready = condition(&left.conditions).unwrap();
    assert_eq!((&*ready.status, &*ready.reason), ("False", "NoPlugin"), "{}", ready.message);
    assert!(!left.forgotten.is_empty() && left.last_error.is_some());
    rig.make_plugin().await;
    cluster.until("it is healthy again", reported, || format!("{:?}", status())).await;
}

/// The cases of this module.
pub const CASES: &[Case] = cases![
    a_mount_is_reported_for_as_long_as_its_agent_lives,
    a_file_that_says_nothing_holds_up_its_node_until_it_is_dismissed,
    a_report_without_its_plugin_is_not_healthy,
];
