//! How an export ends, and whom it waits for.

use std::sync::Arc;

use moor::csi::Rpc;
use serde_json::json;

use super::{
    NODE, exported, kubelet_for, patch, start, status, until_exported, until_nothing_exported, until_says,
};
use crate::provision::objects::list;
use crate::rig::{Cluster, condition};

/// The claim of Kubernetes and its PersistentVolume are there for as long as a Pod has the volume.
pub async fn a_deleted_volume_waits_for_its_pods(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    rig.make_volume(&exported("v")).await;
    let persistent = until_exported(&rig, "v", "v").await;
    let kubelet = kubelet_for(&rig, NODE, &persistent).await;
    kubelet.mount("web", "v").await;
    rig.delete_volume("v").await;
    let words = until_says(&rig, "v", "ExportEnds").await;
    assert!(words.contains("Pod default/web on node node-1"), "{words}");
    let in_use = || async {
        let said = condition(&status(&rig, "v").await.conditions)?.clone();
        (said.reason == "InUse" && said.message.contains("Pod default/web")).then_some(())
    };
    rig.until("the Volume says for which Pod its deletion waits", in_use).await;
    assert!(rig.read_pvc("v").await.metadata.deletion_timestamp.is_none());
    assert_eq!((list(&rig.pv_api()).await.len(), rig.count("v", Rpc::DeleteVolume)), (1, 0));

    kubelet.unmount("web", "v").await;
    kubelet.give_up("v").await;
    rig.until_volume_gone("v").await;
    until_nothing_exported(&rig).await;
    assert_eq!(rig.count("v", Rpc::DeleteVolume), 1);
    rig.assert_nothing_left().await;
}

/// And may be wanted again.
pub async fn an_export_that_is_taken_back_leaves_the_storage(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    rig.make_volume(&exported("v")).await;
    let persistent = until_exported(&rig, "v", "v").await;
    let kubelet = kubelet_for(&rig, NODE, &persistent).await;
    kubelet.mount("web", "v").await;
    patch(&rig, "v", json!({ "persistentVolumeClaim": null })).await;
    until_says(&rig, "v", "ExportEnds").await;
    kubelet.unmount("web", "v").await;
    kubelet.give_up("v").await;
    until_nothing_exported(&rig).await;
    rig.until("nothing is said of it any more", || async {
        let status = status(&rig, "v").await;
        let says = status.conditions.iter().any(|c| c.type_ == moor::api::conditions::EXPORTED);
        (status.export.is_none() && !says).then_some(())
    })
    .await;

    // Under another name: the one before ends first.
    patch(&rig, "v", json!({ "persistentVolumeClaim": { "name": "data" } })).await;
    until_exported(&rig, "v", "data").await;
    patch(&rig, "v", json!({ "persistentVolumeClaim": { "name": "other" } })).await;
    rig.until("the first claim is gone", || async {
        rig.pvc_api().get_opt("data").await.unwrap().is_none().then_some(())
    })
    .await;
    rig.until("the second claim is there", || async { rig.pvc_api().get_opt("other").await.unwrap() }).await;
    until_exported(&rig, "v", "other").await;
    assert_eq!((rig.count("v", Rpc::CreateVolume), rig.count("v", Rpc::DeleteVolume)), (1, 0));
    rig.delete_volume("v").await;
    rig.until_volume_gone("v").await;
    until_nothing_exported(&rig).await;
    rig.assert_nothing_left().await;
}
