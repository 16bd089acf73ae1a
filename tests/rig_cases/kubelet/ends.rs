//! A driver that is served to Pods no longer.

use std::sync::Arc;

use k8s_openapi::api::storage::v1::CSIDriver;
use kube::Api;
use kube::api::DeleteParams;
use moor::api::Plugin;
use moor::api::conditions::PODS;
use serde_json::json;

use super::NODE;
use super::plain::{identity, is_work};
use crate::rig::fake::DRIVER;
use crate::rig::{CONTROLLER, Cluster, Kubelet, Options, Rig};

async fn has_csi_driver(cluster: &Cluster) -> bool {
    let found = Api::<CSIDriver>::all(cluster.admin.clone()).get_opt(DRIVER).await.unwrap();
    found.is_some_and(|found| found.metadata.deletion_timestamp.is_none())
}

/// What the Plugin says of Pods: reason and message.
pub(super) async fn said(cluster: &Cluster) -> (String, String) {
    let plugin = Api::<Plugin>::all(cluster.admin.clone()).get(DRIVER).await.unwrap();
    let mut conditions = plugin.status.unwrap_or_default().conditions.into_iter();
    conditions.find(|c| c.type_ == PODS).map(|c| (c.reason.into(), c.message)).unwrap_or_default()
}

/// A rig whose CSIDriver object moor has made, and a Pod with a volume.
async fn with_pod(cluster: &Arc<Cluster>) -> (Arc<Rig>, Kubelet) {
    let rig = Rig::start(cluster, Options::default()).await;
    rig.poll("moor makes the CSIDriver object", || has_csi_driver(cluster)).await;
    let kubelet = rig.kubelet(NODE).await;
    rig.make_volume_for_pods("data").await;
    kubelet.mount("pod-a", "data").await;
    (rig, kubelet)
}

/// By hand, under a Pod: it is made again, kubelet does not register the driver anew, and what is mounted is not touched.
pub(super) async fn a_csi_driver_object_that_is_deleted_is_made_again(cluster: Arc<Cluster>) {
    let (rig, kubelet) = with_pod(&cluster).await;
    let all: Api<CSIDriver> = Api::all(cluster.admin.clone());
    let before = all.get(DRIVER).await.unwrap().metadata.uid;
    let (since, link) = (rig.journal.now(), identity(&kubelet));
    all.delete(DRIVER, &DeleteParams::default()).await.unwrap();
    let is_another = || async {
        let found = all.get_opt(DRIVER).await.unwrap();
        found.is_some_and(|found| found.metadata.uid != before)
    };
    rig.poll("it is made again", is_another).await;
    kubelet.mount("pod-a", "data").await;
    let made = rig.journal.since(since, is_work);
    assert!(made.is_empty(), "{made:?}");
    assert_eq!(identity(&kubelet), link, "kubelet would register another one");
    leave(&rig, &kubelet).await;
    rig.remove_for_pods("data").await;
}

async fn leave(rig: &Rig, kubelet: &Kubelet) {
    kubelet.unmount("pod-a", "data").await;
    kubelet.give_up("data").await;
    rig.until_no_pod_claims().await;
}

async fn until_forgotten(rig: &Rig, cluster: &Cluster, kubelet: &Kubelet) {
    rig.poll("the link is gone", || async { kubelet.link().is_none() }).await;
    rig.poll("the CSIDriver object is gone", || async { !has_csi_driver(cluster).await }).await;
    // The link goes first.
    let sockets = rig.kubelet_dir(NODE).join("plugins/kubernetes.io/csi/moor.dev/sockets");
    let left = || std::fs::read_dir(&sockets).into_iter().flatten().flatten().count();
    rig.poll("the sockets are gone", || async { left() == 0 }).await;
}

pub(super) async fn what_pods_have_is_served_until_they_end(cluster: Arc<Cluster>) {
    let (rig, kubelet) = with_pod(&cluster).await;
    rig.patch_plugin(json!({"kubernetes": {"enabled": false}})).await;
    rig.poll("the Plugin says who is in the way", || async { said(&cluster).await.0 == "StillServed" }).await;
    let (_, words) = said(&cluster).await;
    assert!(words.contains(&format!("Pod default/pod-a on node {NODE}")), "{words}");
    // What a restarted process finds out anew.
    rig.restart_and_wait(NODE).await;
    assert!(kubelet.link().is_some() && has_csi_driver(&cluster).await, "ended under the Pod");
    leave(&rig, &kubelet).await;
    until_forgotten(&rig, &cluster, &kubelet).await;
    rig.poll("the Plugin says that it is over", || async { said(&cluster).await.0 == "NotServed" }).await;
    rig.remove_for_pods("data").await;
}

pub(super) async fn what_pods_have_of_a_plugin_that_is_gone_is_served_until_they_end(cluster: Arc<Cluster>) {
    let (rig, kubelet) = with_pod(&cluster).await;
    let rest = rig.journal.now();
    rig.delete_plugin().await;
    rig.restart_and_wait(NODE).await;
    assert!(kubelet.link().is_some() && has_csi_driver(&cluster).await, "ended under the Pod");
    leave(&rig, &kubelet).await;
    until_forgotten(&rig, &cluster, &kubelet).await;
    let made = rig.journal.since(rest, |entry| entry.call().is_some());
    assert!(!made.is_empty(), "its driver was not asked to undo it");
}

pub(super) async fn nothing_is_left_at_kubelets_when_moor_is_uninstalled(cluster: Arc<Cluster>) {
    let (rig, kubelet) = with_pod(&cluster).await;
    let (may, words) = rig.pre_delete().await;
    assert!(!may && words.contains("Pod default/pod-a for PersistentVolume pv-data on node"), "{words}");
    assert!(kubelet.link().is_some() && has_csi_driver(&cluster).await);
    leave(&rig, &kubelet).await;
    let (may, words) = rig.pre_delete().await;
    assert!(may && !words.contains("this is left"), "{words}");
    until_forgotten(&rig, &cluster, &kubelet).await;
    let (reason, words) = said(&cluster).await;
    assert!(reason == "NotServed" && words.contains("is being uninstalled"), "{reason}: {words}");

    // Another installation.
    rig.restart(CONTROLLER);
    rig.poll("it is served again", || async {
        has_csi_driver(&cluster).await && kubelet.link().is_some() && said(&cluster).await.0 == "Served"
    })
    .await;
    rig.remove_for_pods("data").await;
}
