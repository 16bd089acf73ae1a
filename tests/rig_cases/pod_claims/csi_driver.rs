//! The CSIDriver object of a Plugin.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::storage::v1::CSIDriver;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use moor::api::conditions::PODS;
use moor::csi::Rpc;
use serde_json::json;

use crate::provision::class;
use crate::rig::fake::DRIVER;
use crate::rig::{Binder, Cluster, LOOK, Options, PATIENCE, Rig, volume};

fn all(cluster: &Cluster) -> Api<CSIDriver> {
    Api::all(cluster.admin.clone())
}

/// Waits until the CSIDriver of this name is so, or is not there.
async fn until(
    cluster: &Cluster,
    name: &str,
    is_so: impl Fn(Option<&CSIDriver>) -> bool,
) -> Option<CSIDriver> {
    let end = Instant::now() + PATIENCE;
    loop {
        let found = all(cluster).get_opt(name).await.unwrap();
        if is_so(found.as_ref()) {
            return found;
        }
        assert!(Instant::now() < end, "it never is: {found:?}");
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits until the Plugin says this of Pods. Returns the message.
async fn until_plugin_says(rig: &Rig, reason: &str) -> String {
    rig.until_plugin_says(DRIVER, PODS, reason, &[]).await
}

/// Made with the Plugin, put right when somebody changes or deletes it, and gone with the Plugin.
pub(super) async fn a_plugin_has_a_csi_driver_that_stays_as_it_should_be(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let made = until(&cluster, DRIVER, |found| found.is_some()).await.unwrap();
    assert_eq!((made.spec.attach_required, made.spec.pod_info_on_mount), (Some(false), Some(true)));
    assert_eq!(made.spec.fs_group_policy.as_deref(), Some("ReadWriteOnceWithFSType"));
    until_plugin_says(&rig, "Served").await;

    let patch = |spec| Patch::Merge(json!({"spec": spec}));
    let by_hand = patch(json!({"podInfoOnMount": false, "storageCapacity": true}));
    all(&cluster).patch(DRIVER, &PatchParams::default(), &by_hand).await.unwrap();
    let is_right = |found: Option<&CSIDriver>| {
        found
            .is_some_and(|d| (d.spec.pod_info_on_mount, d.spec.storage_capacity) == (Some(true), Some(false)))
    };
    until(&cluster, DRIVER, is_right).await;
    rig.patch_plugin(json!({"kubernetes": {"csiDriver": {"fsGroupPolicy": "None"}}})).await;
    until(&cluster, DRIVER, |d| d.is_some_and(|d| d.spec.fs_group_policy.as_deref() == Some("None"))).await;

    let before = made.metadata.uid;
    all(&cluster).delete(DRIVER, &DeleteParams::default()).await.unwrap();
    until(&cluster, DRIVER, |found| found.is_some_and(|d| d.metadata.uid != before)).await;

    // Another name, and then none.
    rig.patch_plugin(json!({"kubernetes": {"driverName": "trial.example.com"}})).await;
    until(&cluster, "trial.example.com", |found| found.is_some()).await;
    until(&cluster, DRIVER, |found| found.is_none()).await;
    rig.patch_plugin(json!({"kubernetes": {"enabled": false}})).await;
    until(&cluster, "trial.example.com", |found| found.is_none()).await;
    until_plugin_says(&rig, "NotServed").await;
    rig.patch_plugin(json!({"kubernetes": null})).await;
    until(&cluster, DRIVER, |found| found.is_some()).await;
    rig.delete_plugin().await;
    until(&cluster, DRIVER, |found| found.is_none()).await;
    assert_eq!(rig.journal.since(0, |e| e.call().is_some_and(|c| c.rpc == Rpc::CreateVolume)).len(), 0);
}

/// Something applies its own idea of the object whenever moor has put it right. That it takes longer from time to time is a lower
/// bound, which no load breaks.
pub(super) async fn one_that_is_changed_back_each_time_is_put_right_less_often(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    until(&cluster, DRIVER, |found| found.is_some()).await;
    let is_right = |found: Option<&CSIDriver>| found.is_some_and(|d| d.spec.pod_info_on_mount == Some(true));
    let mut took = Vec::new();
    for _ in 0..3 {
        let theirs = Patch::Merge(json!({"spec": {"podInfoOnMount": false}}));
        all(&cluster).patch(DRIVER, &PatchParams::default(), &theirs).await.unwrap();
        let since = Instant::now();
        until(&cluster, DRIVER, is_right).await;
        took.push(since.elapsed());
    }
    assert!(took[1] + took[2] > Duration::from_secs(3), "{took:?}");
    // What is wanted otherwise comes at once, and nobody waits for it.
    rig.patch_plugin(json!({"kubernetes": {"csiDriver": {"fsGroupPolicy": "None"}}})).await;
    until(&cluster, DRIVER, |d| d.is_some_and(|d| d.spec.fs_group_policy.as_deref() == Some("None"))).await;
    rig.delete_plugin().await;
    until(&cluster, DRIVER, |found| found.is_none()).await;
}

/// That of the driver's own installation, whose external-attacher may be at work.
pub(super) async fn one_that_says_attach_is_told_of_and_replaced_only_by_order(cluster: Arc<Cluster>) {
    let foreign = || -> CSIDriver {
        serde_json::from_value(json!({"metadata": {"name": DRIVER}, "spec": {"attachRequired": true}}))
            .unwrap()
    };
    let made = all(&cluster).create(&PostParams::default(), &foreign()).await.unwrap();
    let rig = Rig::start(&cluster, Options::default()).await;
    let said = until_plugin_says(&rig, "CSIDriverConflict").await;
    for part in ["kubectl delete csidriver", "kubectl patch plugin", "external-attacher"] {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(all(&cluster).get(DRIVER).await.unwrap().metadata.uid, made.metadata.uid, "it is not touched");
    let is_counted = |so_many| rig.gauge("moor_plugins_kept_from_pods", so_many);
    rig.poll("it is counted", || is_counted(1)).await;
    let handle = rig.fake.backend().add("unserved");
    cluster.bind("unserved", "unserved", &json!({"driver": DRIVER, "volumeHandle": handle})).await;
    let pod = rig.make_pod_of("unserved", "node-1", "unserved", handle).await;
    let refused = rig.ask(&pod, |_| {}).await;
    let said = rig.until_kept_claim_says(&refused, "PodNotEntitled").await;
    assert!(said.contains("no Plugin serves its driver"), "{said}");

    // By one of the two commands, and by the other one when it has come back.
    all(&cluster).delete(DRIVER, &DeleteParams::default()).await.unwrap();
    until_plugin_says(&rig, "Served").await;
    rig.poll("it is counted no more", || is_counted(0)).await;
    let replaced = || async {
        all(&cluster).delete(DRIVER, &DeleteParams::default()).await.unwrap();
        // Whoever is first has the name.
        all(&cluster).create(&PostParams::default(), &foreign()).await.is_ok()
    };
    while !replaced().await {}
    until_plugin_says(&rig, "CSIDriverConflict").await;
    rig.patch_plugin(json!({"kubernetes": {"csiDriver": {"replace": true}}})).await;
    until(&cluster, DRIVER, |d| d.is_some_and(|d| d.spec.attach_required == Some(false))).await;
    until_plugin_says(&rig, "Served").await;
}

/// Its external-provisioner makes the volumes: moor does not, and changes nothing of the object either, though that is almost
/// as moor's own would be. When somebody takes it away, what waits is moor's.
pub(super) async fn what_another_installation_serves_is_left_to_it(cluster: Arc<Cluster>) {
    let theirs = json!({
        "metadata": {"name": DRIVER},
        "spec": {"attachRequired": false, "podInfoOnMount": true, "tokenRequests": [{"audience": "vault"}]},
    });
    let theirs: CSIDriver = serde_json::from_value(theirs).unwrap();
    let before = all(&cluster).create(&PostParams::default(), &theirs).await.unwrap();
    let rig = Rig::start(&cluster, Options::default()).await;
    let _binder = Binder::start(&cluster.admin);
    let said = until_plugin_says(&rig, "CSIDriverConflict").await;
    assert!(said.contains("leaves it alone"), "{said}");
    rig.make_class(&class("theirs", &json!({"parameters": {"key": "v"}}))).await;
    rig.make_pvc("unmade", "theirs", json!({})).await;
    rig.until_asked("unmade").await;
    // Whoever comes later is served, so the claim has been looked at.
    rig.make_volume(&volume("native")).await;
    rig.until_volume_ready("native").await;
    let made = rig.provisioned_api().list(&ListParams::default()).await.unwrap();
    assert!(made.items.is_empty() && rig.events_of("unmade").await.is_empty(), "{made:?}");
    let after = all(&cluster).get(DRIVER).await.unwrap();
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version);

    all(&cluster).delete(DRIVER, &DeleteParams::default()).await.unwrap();
    rig.until_bound("unmade").await;
    until_plugin_says(&rig, "Served").await;
    rig.delete_pvc("unmade").await;
    rig.until_nothing_provisioned().await;
    rig.delete_volume("native").await;
    rig.until_volume_gone("native").await;
    rig.assert_nothing_left().await;
}
