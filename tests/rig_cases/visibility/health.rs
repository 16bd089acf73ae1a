//! Each turn of a driver's health is one Event, on its Plugin and on the PluginInstance, also when it is well again.

use std::sync::Arc;

use futures::future::join_all;
use jiff::ToSpan as _;
use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use moor::api::conditions::{READY, SCHEDULABLE, find};
use moor::api::names::{DriverOn, instance_name};
use moor::api::{Plugin, PluginInstance};
use serde_json::json;

use crate::rig::fake::DRIVER;
use crate::rig::{CONTROLLER, Cluster, LOOK, Options, PATIENCE, Rig, volume, volume_claim};

const NODE: &str = "node-1";

/// How often it was told of the object with this UID that it is well, and that it is ill.
async fn told(cluster: &Cluster, uid: &str) -> [i32; 2] {
    let events: Api<Event> = Api::all(cluster.admin.clone());
    let mut told = [0, 0];
    for event in events.list(&ListParams::default()).await.unwrap().items {
        let is = event.regarding.as_ref().and_then(|of| of.uid.as_deref()) == Some(uid);
        let reason =
            ["Healthy", "Unhealthy"].iter().position(|reason| event.reason.as_deref() == Some(reason));
        if let Some(reason) = reason.filter(|_| is) {
            told[reason] += event.series.map_or(1, |series| series.count);
        }
    }
    told
}

impl Rig {
    /// Waits until a Volume says this of whether it is schedulable.
    async fn until_schedulable(&self, volume: &str, reason: &str, words: &str) {
        self.poll(&format!("{volume} says {reason}"), || async {
            let status = self.volume_api().get(volume).await.unwrap().status.unwrap_or_default();
            let said = find(&status.conditions, SCHEDULABLE);
            said.is_some_and(|said| said.reason == reason && said.message.contains(words))
        })
        .await;
    }

    /// Has the Plugin say since an hour ago what it says.
    async fn age_conditions(&self) {
        let mut status = self.plugin_api().get(DRIVER).await.unwrap().status.unwrap();
        status.conditions.iter_mut().for_each(|condition| condition.last_transition_time.0 -= 1.hour());
        let patch = Patch::Merge(json!({ "status": { "conditions": status.conditions } }));
        self.plugin_api().patch_status(DRIVER, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn versions_of(&self, volumes: &[&str]) -> Vec<Option<String>> {
        let volumes = volumes
            .iter()
            .map(|name| async { self.volume_api().get(name).await.unwrap().resource_version() });
        join_all(volumes).await
    }

    /// Waits until health was told so often, of the Plugin and of its instance.
    async fn until_health_is_told(&self, wanted: [i32; 2]) {
        let plugins: Api<Plugin> = Api::all(self.cluster.admin.clone());
        let instances: Api<PluginInstance> = Api::all(self.cluster.admin.clone());
        let instance = instances.get(&instance_name(DriverOn { driver: DRIVER, node: NODE })).await.unwrap();
        for uid in [plugins.get(DRIVER).await.unwrap().uid().unwrap(), instance.uid().unwrap()] {
            let look = async {
                while told(&self.cluster, &uid).await != wanted {
                    tokio::time::sleep(LOOK).await;
                }
            };
            let is_told = tokio::time::timeout(PATIENCE, look).await.is_ok();
            assert!(is_told, "{uid} has told {:?} and not {wanted:?}", told(&self.cluster, &uid).await);
        }
    }
}

pub async fn each_turn_of_a_drivers_health_is_one_event(cluster: Arc<Cluster>) {
    let nodes = vec![(NODE, true)];
    let rig = Rig::start(&cluster, Options { nodes, ..Options::default() }).await;
    rig.until_plugin_says(DRIVER, READY, "Healthy", &[]).await;
    rig.until_health_is_told([1, 0]).await;

    rig.fake.stop(NODE, &rig.plugin_dir(NODE));
    rig.until_plugin_says(DRIVER, READY, "Unhealthy", &["no socket of driver"]).await;
    rig.until_health_is_told([1, 1]).await;
    rig.fake.serve(NODE, &rig.plugin_dir(NODE), true);
    rig.until_health_is_told([2, 1]).await;

    // An agent that ends says so, and one that is killed leaves everything as it was.
    rig.stop(NODE).await;
    rig.run(NODE);
    rig.until_health_is_told([3, 2]).await;
    rig.restart(NODE);
    rig.make_volume(&volume("v")).await;
    rig.make_claim(&volume_claim("v", "v", NODE)).await;
    rig.until_ready("v").await;
    rig.remove(&["v"], &["v"]).await;
    rig.until_health_is_told([3, 2]).await;
}

/// All of moor ends in order, so the Plugin has nobody well for an hour. Then the leader is there again before the agent is.
pub async fn when_all_is_started_again_no_volume_is_written(cluster: Arc<Cluster>) {
    let nodes = vec![(NODE, true)];
    let rig = Rig::start(&cluster, Options { nodes, ..Options::default() }).await;
    rig.make_volume(&volume("v")).await;
    rig.until_volume_ready("v").await;
    rig.until_schedulable("v", "Schedulable", "has what a claim needs").await;
    let before = rig.versions_of(&["v"]).await;
    rig.stop(NODE).await;
    rig.until_plugin_says(DRIVER, READY, "Unhealthy", &[]).await;
    rig.stop(CONTROLLER).await;
    rig.age_conditions().await;

    rig.run(CONTROLLER);
    // It has looked at the Plugin's Volumes when it has taken up a new one.
    rig.make_volume(&volume("new")).await;
    rig.until_volume_says("new", "NoInstance", &[]).await;
    rig.run(NODE);
    rig.until_volume_ready("new").await;
    assert_eq!(rig.versions_of(&["v"]).await, before);
    rig.remove(&[] as &[&str], &["v", "new"]).await;
}

/// A driver whose controller is on one node: it is lost and comes back, and so does all of it, and the Plugin.
pub async fn a_volume_whose_plugin_has_nobody_healthy_says_so(cluster: Arc<Cluster>) {
    const OTHER: &str = "node-2";
    let nodes = vec![(NODE, true), (OTHER, false)];
    let rig = Rig::start(&cluster, Options { nodes, ..Options::default() }).await;
    let names = ["v", "waits"];
    rig.make_volume(&volume("v")).await;
    rig.until_volume_ready("v").await;
    rig.until_schedulable("v", "Schedulable", "has what a claim needs").await;
    rig.fake.stop(NODE, &rig.plugin_dir(NODE));
    rig.make_volume(&volume("waits")).await;
    for name in names {
        rig.until_schedulable(name, "NoHealthyInstance", "no healthy controller or no healthy node").await;
    }
    // What else becomes of the Plugin is no news, also to a new leader.
    let told = rig.versions_of(&names).await;
    rig.fake.stop(OTHER, &rig.plugin_dir(OTHER));
    rig.until_plugin(DRIVER, "has no healthy node", |plugin| {
        (plugin.status.as_ref()?.nodes_healthy == 0).then_some(())
    })
    .await;
    rig.restart_and_wait(CONTROLLER).await;
    assert_eq!(rig.versions_of(&names).await, told);
    for node in [NODE, OTHER] {
        rig.fake.serve(node, &rig.plugin_dir(node), node == NODE);
    }
    for name in names {
        rig.until_schedulable(name, "Schedulable", "has what a claim needs").await;
    }
    rig.delete_plugin().await;
    for name in names {
        rig.until_schedulable(name, "PluginNotFound", "create it").await;
    }
    rig.make_plugin().await;
    for name in names {
        rig.until_schedulable(name, "Schedulable", "has what a claim needs").await;
    }
    rig.remove(&[] as &[&str], &names).await;
}
