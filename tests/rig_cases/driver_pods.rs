//! The Pods that moor runs for drivers. Nobody here makes them of their workloads, so they are made by hand.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use moor::api::PluginInstance;
use moor::api::conditions::DEPLOYED;
use moor::api::names::{DriverOn, instance_name};
use serde_json::json;

use crate::cases;
use crate::rig::fake::DRIVER;
use crate::rig::{Case, Cluster, NAMESPACE, Options, Rig, pod_template};

const NODE: &str = "node-1";
const IMAGE: &str = "a:1";

fn pods(rig: &Rig) -> Api<Pod> {
    Api::namespaced(rig.cluster.admin.clone(), NAMESPACE)
}

/// Makes a Pod of a Plugin's workload on the node. Returns its UID.
async fn make_pod(rig: &Rig, plugin: &str, service: &str) -> String {
    let labels = json!({"moor.dev/plugin": plugin, "moor.dev/service": service});
    let owner = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "gone", "uid": "gone", "controller": true});
    let metadata = json!({"name": format!("of-{service}"), "labels": labels, "ownerReferences": [owner]});
    let mut spec = pod_template(IMAGE)["spec"].clone();
    spec["nodeName"] = json!(NODE);
    spec["serviceAccountName"] = json!("moor-agent");
    spec["automountServiceAccountToken"] = json!(false);
    let pod = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
    pods(rig).create(&PostParams::default(), &pod).await.unwrap().uid().unwrap()
}

/// Two drivers at one socket, of which the one that ends takes the other one's away.
async fn a_daemon_set_is_not_made_before_the_pods_of_the_last_one_have_ended(cluster: Arc<Cluster>) {
    const NAME: &str = "run.test";
    let rig = Rig::start(&cluster, Options::default()).await;
    let sets: Api<DaemonSet> = Api::namespaced(rig.cluster.admin.clone(), NAMESPACE);
    let is_made = || async { sets.get_opt("plugin-run.test-node").await.unwrap().is_some() };
    make_pod(&rig, NAME, "node").await;
    rig.make_plugin_named(NAME, json!({"node": {"template": pod_template(IMAGE)}})).await;
    let words = format!("Pod of-node on node {NODE}, of the DaemonSet before, has not ended");
    rig.until_plugin_says(NAME, DEPLOYED, "RollingOut", &[&words]).await;
    assert!(!is_made().await);
    pods(&rig).delete("of-node", &DeleteParams::default().grace_period(0)).await.unwrap();
    rig.poll("it is made", is_made).await;
    rig.plugin_api().delete(NAME, &DeleteParams::default()).await.unwrap();
    rig.until_plugin_is_gone(NAME).await;
}

/// A controller was there first, so that the instance says the place of its socket for ever.
async fn a_plugin_that_follows_another_one_has_its_instances(cluster: Arc<Cluster>) {
    const NEXT: &str = "next";
    let rig = Rig::start(&cluster, Options { nodes: vec![(NODE, true)], ..Options::default() }).await;
    let instances: Api<PluginInstance> = Api::all(rig.cluster.admin.clone());
    let name = instance_name(DriverOn { driver: DRIVER, node: NODE });
    let spec = || async { instances.get_opt(&name).await.unwrap().map(|instance| instance.spec) };
    rig.fake.stop(NODE, &rig.plugin_dir(NODE));
    rig.patch_plugin(json!({"controller": {"template": pod_template(IMAGE)}})).await;
    let uid = make_pod(&rig, DRIVER, "controller").await;
    let volumes = rig.kubelet_dir(NODE).join("pods").join(uid).join("volumes/kubernetes.io~empty-dir");
    fs::create_dir_all(&volumes).unwrap();
    // A path of that length cannot be listened at.
    let short = rig.kubelet_dir(NODE).join("pod");
    symlink(short.join(DRIVER), volumes.join("csi")).unwrap();
    instances.delete(&name, &DeleteParams::default()).await.unwrap();
    rig.fake.serve(NODE, &short, true);
    let is_in_pod = |spec: &moor::api::PluginInstanceSpec| spec.socket_path.contains("/pods/*/");
    rig.poll("the controller is found", || async { spec().await.as_ref().is_some_and(is_in_pod) }).await;

    rig.make_plugin_named(NEXT, json!({"driverName": DRIVER, "balancing": "Spread"})).await;
    rig.fake.serve(NODE, &rig.plugin_dir(NODE), true);
    rig.delete_plugin().await;
    let is_next = || async { spec().await.is_some_and(|spec| spec.plugin_name == NEXT) };
    rig.poll("it is the next one's", is_next).await;
    rig.until_plugin(NEXT, "counts it", |plugin| (plugin.status.as_ref()?.nodes_healthy == 1).then_some(()))
        .await;
    pods(&rig).delete("of-controller", &DeleteParams::default().grace_period(0)).await.unwrap();
    let force = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    rig.plugin_api().patch(NEXT, &PatchParams::default(), &force).await.unwrap();
    rig.plugin_api().delete(NEXT, &DeleteParams::default()).await.unwrap();
}

/// The cases of this file.
pub const CASES: &[Case] = cases![
    a_daemon_set_is_not_made_before_the_pods_of_the_last_one_have_ended,
    a_plugin_that_follows_another_one_has_its_instances,
];
