//! Volumes of users that Pods use by a PersistentVolumeClaim: `Volume.spec.persistentVolumeClaim`.

mod crashes;
mod ends;
mod lies;

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use moor::api::conditions::EXPORTED;
use moor::api::export::Export;
use moor::api::names;
use moor::api::{Volume, VolumeStatus};
use moor::csi::Rpc;
use serde_json::{Value, json};

use crate::cases;
use crate::inline;
use crate::provision::objects::list;
use crate::rig::fake::DRIVER;
use crate::rig::fake::backend::Expand;
use crate::rig::{Binder, Case, Cluster, Kubelet, Options, Rig, Wish, is_final, volume, volume_claim};

const NODE: &str = "node-1";

async fn start(cluster: &Arc<Cluster>) -> (Arc<Rig>, Binder) {
    start_with(cluster, Options::default()).await
}

async fn start_with(cluster: &Arc<Cluster>, options: Options) -> (Arc<Rig>, Binder) {
    let rig = Rig::start(cluster, options).await;
    (rig, Binder::start(&cluster.admin))
}

/// A Volume that is to be exported under this name. Kubelets here know a Pod's claim by the key of its volume.
fn exported_as(key: &str, claim: &str) -> Volume {
    let mut made = volume(key);
    made.spec.persistent_volume_claim = Some(Export { name: claim.to_owned() });
    made
}

fn exported(key: &str) -> Volume {
    exported_as(key, key)
}

/// The status of a Volume, read live.
async fn status(rig: &Rig, volume: &str) -> VolumeStatus {
    rig.volume_api().get(volume).await.unwrap().status.unwrap_or_default()
}

/// Waits until a Volume says this of its export, and returns the words.
async fn until_says(rig: &Rig, volume: &str, reason: &str) -> String {
    rig.until(&format!("Volume {volume} says {reason}"), || async {
        let found = rig.volume_api().get_opt(volume).await.unwrap()?;
        let said = found.status?.conditions.into_iter().find(|c| c.type_ == EXPORTED)?;
        (said.reason == reason).then_some(said.message)
    })
    .await
}

/// Waits until a Volume is exported and Kubernetes has bound the two. Returns the PersistentVolume.
async fn until_exported(rig: &Rig, volume: &str, claim: &str) -> PersistentVolume {
    until_says(rig, volume, "Exported").await;
    rig.until_bound(claim).await
}

/// Waits until nothing is left of any export.
async fn until_nothing_exported(rig: &Rig) {
    rig.until("no PersistentVolume and no PersistentVolumeClaim is left", || async {
        let (volumes, claims) = (list(&rig.pv_api()).await, list(&rig.pvc_api()).await);
        (volumes.is_empty() && claims.is_empty()).then_some(())
    })
    .await;
}

/// The kubelet of a node, whose Pods use what is exported of a Volume.
async fn kubelet_for(rig: &Rig, node: &str, persistent: &PersistentVolume) -> Kubelet {
    let wish = Wish { persistent_volume: Some(persistent.name_any()), ..Wish::default() };
    rig.kubelet(node).await.wishing(wish)
}

async fn patch(rig: &Rig, volume: &str, spec: Value) {
    let patch = Patch::Merge(json!({ "spec": spec }));
    rig.volume_api().patch(volume, &PatchParams::default(), &patch).await.unwrap();
}

/// All that Kubernetes needs is there, and a Pod's claim finds the Volume itself.
async fn pods_and_claims_use_it_side_by_side(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    rig.patch_plugin(json!({ "toleratesSecondTarget": true })).await;
    rig.make_volume(&exported("v")).await;
    let persistent = until_exported(&rig, "v", "v").await;
    let uid = rig.volume_api().get("v").await.unwrap().metadata.uid.unwrap();
    assert_eq!(persistent.name_any(), names::export(&uid));
    let recorded = status(&rig, "v").await.export.unwrap();
    assert_eq!(recorded.persistent_volume_uid, persistent.metadata.uid);
    let spec = persistent.spec.clone().unwrap();
    assert_eq!(spec.persistent_volume_reclaim_policy.as_deref(), Some("Retain"));
    let csi = spec.csi.unwrap();
    assert_eq!((csi.driver.as_str(), csi.volume_handle.as_str()), (DRIVER, "vol-v"));
    let claim = rig.read_pvc("v").await;
    assert_eq!(spec.claim_ref.unwrap().uid, claim.metadata.uid);
    assert_eq!(claim.spec.unwrap().resources.unwrap().requests.unwrap()["storage"].0, "1Mi");

    let kubelet = kubelet_for(&rig, NODE, &persistent).await;
    kubelet.mount("web", "v").await;
    let claims = list(&rig.claim_api()).await;
    assert!(claims.len() == 1 && claims[0].spec.volume_name == "v", "{claims:?}");
    rig.make_claim(&volume_claim("native", "v", NODE)).await;
    rig.until_ready("native").await;
    assert_eq!(rig.count("v", Rpc::ControllerPublishVolume), 1);
    assert!(list(&rig.provisioned_api()).await.is_empty(), "nothing is imported");

    kubelet.unmount("web", "v").await;
    rig.delete_claim("native").await;
    rig.until_claim_gone("native").await;
    // Not before: both had what is staged at kubelet's path.
    kubelet.give_up("v").await;
    rig.delete_volume("v").await;
    rig.until_volume_gone("v").await;
    until_nothing_exported(&rig).await;
    assert_eq!(rig.count("v", Rpc::DeleteVolume), 1);
    rig.assert_nothing_left().await;
}

/// A Pod that names the Volume itself may go on for days with what was staged for another one. kubelet, which does nothing else
/// with a volume while it waits for an answer, is told so at once.
async fn giving_up_what_others_use_is_refused_without_waiting(cluster: Arc<Cluster>) {
    let (rig, _binder) = start_with(&cluster, Options { inline_volumes: true, ..Options::default() }).await;
    inline::announce(&rig).await;
    rig.make_volume(&exported("v")).await;
    let persistent = until_exported(&rig, "v", "v").await;
    let of_claims = kubelet_for(&rig, NODE, &persistent).await;
    of_claims.mount("web", "v").await;
    let naming = inline::kubelet(&rig, NODE, inline::naming("v")).await;
    naming.mount("other", "own").await;
    assert_eq!(rig.count("v", Rpc::NodeStageVolume), 1);

    of_claims.unmount("web", "v").await;
    // The longest that kubelet waits: the case would go on for as long.
    let refused = of_claims.unstage("v").await.unwrap_err();
    assert!(!is_final(refused.code()) && refused.message().contains("for no PersistentVolume"), "{refused}");
    // Another Pod of the claim need not wait for that.
    of_claims.mount("web-again", "v").await;
    of_claims.unmount("web-again", "v").await;
    naming.unmount("other", "own").await;
    of_claims.give_up("v").await;
    rig.delete_volume("v").await;
    rig.until_volume_gone("v").await;
    until_nothing_exported(&rig).await;
    rig.assert_nothing_left().await;
}

/// Of two Volumes with one name the first has it, and what was there before both has it for good.
async fn a_claim_of_somebody_else_is_not_touched(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    rig.make_pvc("data", "none", json!({})).await;
    let before = rig.read_pvc("data").await;
    rig.make_volume(&exported_as("first", "data")).await;
    let words = until_says(&rig, "first", "ExportNameTaken").await;
    assert!(words.contains("default/data") && words.contains("not made for this Volume"), "{words}");
    assert!(list(&rig.pv_api()).await.is_empty() && status(&rig, "first").await.export.is_none());
    let after = rig.read_pvc("data").await;
    assert_eq!(before.metadata.resource_version, after.metadata.resource_version);

    rig.delete_pvc("data").await;
    until_exported(&rig, "first", "data").await;
    rig.make_volume(&exported_as("second", "data")).await;
    let words = until_says(&rig, "second", "ExportNameTaken").await;
    assert!(words.contains("Volume default/first"), "{words}");
    // One that goes takes nothing of the other's along.
    rig.delete_volume("second").await;
    rig.until_volume_gone("second").await;
    until_exported(&rig, "first", "data").await;
    rig.delete_volume("first").await;
    rig.until_volume_gone("first").await;
    until_nothing_exported(&rig).await;
}

/// What was deleted by hand is made anew, with the same storage.
async fn what_is_removed_by_hand_comes_back(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    rig.make_volume(&exported("v")).await;
    let before = until_exported(&rig, "v", "v").await;
    let uid = rig.read_pvc("v").await.metadata.uid;
    rig.delete_pvc("v").await;
    let is_new = || async {
        let found = rig.pvc_api().get_opt("v").await.unwrap().filter(|found| found.metadata.uid != uid)?;
        (found.status?.phase.as_deref() == Some("Bound")).then_some(())
    };
    rig.until("another claim is bound", is_new).await;
    assert_eq!(rig.until_bound("v").await.metadata.uid, before.metadata.uid);
    until_says(&rig, "v", "Exported").await;

    let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    rig.pv_api().patch(&before.name_any(), &PatchParams::default(), &free).await.unwrap();
    rig.pv_api().delete(&before.name_any(), &DeleteParams::default()).await.unwrap();
    let anew = || async {
        let found = rig.pv_api().get_opt(&before.name_any()).await.unwrap()?;
        let recorded = status(&rig, "v").await.export?.persistent_volume_uid;
        (found.metadata.uid != before.metadata.uid && recorded == found.metadata.uid).then_some(())
    };
    rig.until("another PersistentVolume is made and recorded", anew).await;
    until_exported(&rig, "v", "v").await;
    assert_eq!(rig.count("v", Rpc::DeleteVolume), 0);
    rig.delete_volume("v").await;
    rig.until_volume_gone("v").await;
    until_nothing_exported(&rig).await;
}

async fn the_persistent_volume_has_the_size_of_the_volume(cluster: Arc<Cluster>) {
    let (rig, _binder) =
        start_with(&cluster, Options { expand: Expand::ByController, ..Options::default() }).await;
    rig.make_volume(&exported("v")).await;
    until_exported(&rig, "v", "v").await;
    patch(&rig, "v", json!({ "capacity": "3Mi" })).await;
    rig.until("the PersistentVolume has 3Mi", || async {
        let capacity = rig.until_bound("v").await.spec?.capacity?;
        (capacity["storage"].0 == "3Mi").then_some(())
    })
    .await;
    // Kubernetes lets no claim without a class ask for more.
    let more = Patch::Merge(json!({ "spec": { "resources": { "requests": { "storage": "3Mi" } } } }));
    let refused = rig.pvc_api().patch("v", &PatchParams::default(), &more).await.unwrap_err().to_string();
    assert!(refused.contains("dynamically provisioned"), "{refused}");
    rig.delete_volume("v").await;
    rig.until_volume_gone("v").await;
    until_nothing_exported(&rig).await;
}

/// The cases of this module.
pub const CASES: &[Case] = cases![
    pods_and_claims_use_it_side_by_side,
    giving_up_what_others_use_is_refused_without_waiting,
    a_claim_of_somebody_else_is_not_touched,
    what_is_removed_by_hand_comes_back,
    the_persistent_volume_has_the_size_of_the_volume,
    ends::a_deleted_volume_waits_for_its_pods,
    ends::an_export_that_is_taken_back_leaves_the_storage,
    lies::what_cannot_be_exported_is_refused,
    lies::a_pod_has_no_volume_that_is_not_exported,
    lies::a_persistent_volume_that_poses_as_the_export_keeps_the_storage,
    crashes::the_leader_may_die_at_every_write,
    crashes::the_api_server_may_go_away_at_every_write,
];
