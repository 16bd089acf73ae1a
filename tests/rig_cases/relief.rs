//! A controller instance that is gone is relieved of the volumes whose calls it makes (rule R2, docs/adr/0037).

use std::sync::Arc;

use kube::api::{Api, ListParams, Patch, PatchParams};
use moor::api::names::{DriverOn, instance_name};
use moor::api::{PluginInstance, VolumeHandle};
use moor::csi::Rpc;
use serde_json::{Value, json};

use crate::cases;
use crate::rig::fake::DRIVER;
use crate::rig::{
    CONTROLLER, Case, Cluster, Entry, Options, Rig, Victim, Walk, is_whole, volume, volume_claim,
};

const HEIR: &str = "node-1";
const USER: &str = "node-2";
const CALLER: &str = "node-3";
const NONE: &[&str] = &[];

async fn start(cluster: &Arc<Cluster>, longest_call: u64) -> Arc<Rig> {
    let nodes = vec![(HEIR, true), (USER, false), (CALLER, true)];
    Rig::start(cluster, Options { nodes, longest_call, ..Options::default() }).await
}

/// A volume whose calls [`CALLER`] makes. Which instance does follows from the Volume's UID.
async fn called(rig: &Rig, key: &str) {
    loop {
        rig.make_volume(&volume(key)).await;
        rig.until_volume_ready(key).await;
        if rig.is_called_by(key, CALLER).await {
            return;
        }
        rig.delete_volume(key).await;
        rig.until_volume_gone(key).await;
    }
}

async fn attached(rig: &Rig, key: &str) {
    called(rig, key).await;
    rig.make_claim(&volume_claim(key, key, USER)).await;
    rig.until_ready(key).await;
}

async fn instance(rig: &Rig) -> Option<PluginInstance> {
    let instances: Api<PluginInstance> = Api::all(rig.cluster.admin.clone());
    instances.get_opt(&instance_name(DriverOn { driver: DRIVER, node: CALLER })).await.unwrap()
}

/// The tenure that it says to be relieved up to, if it has seen its present one.
async fn relieved(rig: &Rig) -> Option<i64> {
    let PluginInstance { metadata, status, .. } = instance(rig).await?;
    let status = status.unwrap();
    (status.observed_generation == metadata.generation).then_some(status.tenure)
}

/// Its driver goes, another makes what is due, and it comes back.
async fn is_succeeded(rig: &Rig, key: &str) {
    rig.fake.stop(CALLER, &rig.plugin_dir(CALLER));
    rig.delete_claim(key).await;
    rig.until_claim_gone(key).await;
    let detached = rig.journal.calls_of(key);
    let mut by =
        detached.iter().rev().filter_map(Entry::call).filter(|c| c.rpc == Rpc::ControllerUnpublishVolume);
    assert_eq!(by.next().map(|call| call.node.as_str()), Some(HEIR));
    // It goes when nothing is left for it.
    if let Some(now) = instance(rig).await {
        assert!(now.spec.tenure > 0 && now.relieved() == now.spec.tenure);
    }
    rig.fake.serve(CALLER, &rig.plugin_dir(CALLER), true);
    rig.until_served(CALLER).await;
    rig.remove(NONE, &[key]).await;
    rig.fake.assert_obeyed();
}

const WALK: Walk = Walk {
    prepare: |rig, key| Box::pin(async move { attached(&rig, &key).await }),
    go: |rig, key| Box::pin(async move { is_succeeded(&rig, &key).await }),
    is_step: |entry| {
        let by = (entry.actor.as_str(), entry.label());
        let tells = by == (CONTROLLER, "PATCH plugininstances".to_owned());
        let moves = is_whole()
            && entry.actor == CONTROLLER
            && ["volumehandles", "attachments"].iter().any(|kind| by.1.contains(kind));
        tells || moves || by == (CALLER, "PATCH plugininstances/status".to_owned())
    },
    passes: &["PATCH plugininstances", "PATCH plugininstances/status"],
};

/// Leader and agent are killed right before and right after they write to the instance; in the long form also where the leader
/// names the successor.
async fn whoever_dies_another_instance_takes_over(cluster: Arc<Cluster>) {
    let rig = start(&cluster, 3).await;
    WALK.sweep(&rig, Victim::Maker).await;
}

/// The tenure of the last write in which the agent said to be relieved, and whether a call about the volume was running then.
fn answered(rig: &Rig, key: &str, tenure: i64) -> bool {
    let says = |entry: &Entry| {
        entry.write().is_some_and(|write| {
            write.kind == "plugininstances"
                && write.body.pointer("/status/tenure").and_then(Value::as_i64) == Some(tenure)
        })
    };
    let said = rig.journal.since(0, says);
    let began = said.first().expect("it has answered").began;
    let calls = rig.journal.calls_of(key);
    calls
        .iter()
        .filter(|entry| entry.began < began)
        .all(|entry| entry.ended.is_some_and(|(at, _)| at < began))
}

/// The driver is well and at a call while its instance is relieved. The rest is its own again, in the later tenure.
async fn a_call_that_runs_is_waited_for(cluster: Arc<Cluster>) {
    const TENURE: i64 = 7;
    let rig = start(&cluster, 20).await;
    called(&rig, "data").await;
    let rpc = Rpc::ControllerPublishVolume;
    rig.fake.hold("data", rpc);
    rig.make_claim(&volume_claim("data", "data", USER)).await;
    rig.until_called("data", rpc).await;
    let instances: Api<PluginInstance> = Api::all(rig.cluster.admin.clone());
    let name = instance_name(DriverOn { driver: DRIVER, node: CALLER });
    let relieve = |tenure: i64| Patch::Merge(json!({"spec": {"tenure": tenure}}));
    instances.patch(&name, &PatchParams::default(), &relieve(TENURE)).await.unwrap();
    rig.poll("its agent has heard of it", || async { relieved(&rig).await.is_some() }).await;
    assert_eq!(relieved(&rig).await, Some(0), "its call runs");
    rig.fake.let_go("data", rpc);
    rig.until_ready("data").await;
    rig.poll("it is relieved", || async { relieved(&rig).await == Some(TENURE) }).await;
    assert!(answered(&rig, "data", TENURE), "{}", rig.story("data"));
    let error = instances.patch(&name, &PatchParams::default(), &relieve(TENURE - 1)).await.unwrap_err();
    assert!(error.to_string().contains("spec.tenure only grows"), "{error}");
    // What is attached stays until something is due.
    let given = || async {
        let handles: Api<VolumeHandle> = Api::all(rig.cluster.admin.clone());
        let handle = handles.list(&ListParams::default()).await.unwrap().items.remove(0);
        handle.spec.controller.map(|controller| (controller.agent.clone(), controller.tenure))
    };
    rig.poll("it is given the rest anew", || async { given().await == Some((CALLER.to_owned(), TENURE)) })
        .await;
    rig.remove(&["data"], &["data"]).await;
    assert_eq!(rig.count("data", rpc), 1);
    rig.fake.assert_obeyed();
}

/// The cases of this module.
pub const CASES: &[Case] = cases![whoever_dies_another_instance_takes_over, a_call_that_runs_is_waited_for];
