//! Volumes that their users raise themselves.

use std::sync::Arc;

use kube::Api;
use kube::api::{Patch, PatchParams};
use moor::api::conditions::EXPANDED;
use moor::api::{Volume, VolumeHandle, VolumeState};
use moor::csi::Rpc;
use serde_json::json;

use super::{MI, calls};
use crate::provision::objects::list;
use crate::rig::fake::backend::Expand;
use crate::rig::{Cluster, Options, Rig, volume, volume_claim};

const NO_CLAIM: [&str; 0] = [];

async fn start(cluster: &Arc<Cluster>, expand: Expand) -> Arc<Rig> {
    // A call that is held back is not to end by its deadline.
    let rig = Rig::start(cluster, Options { expand, longest_call: 60, ..Options::default() }).await;
    rig.make_volume(&volume("v")).await;
    rig.until_volume_ready("v").await;
    rig
}

async fn raise(rig: &Rig, size: &str) -> Result<Volume, kube::Error> {
    let patch = Patch::Merge(json!({ "spec": { "capacity": size } }));
    rig.volume_api().patch("v", &PatchParams::default(), &patch).await
}

/// Waits until the Volume says this of its growth, and returns the words.
async fn until_says(rig: &Rig, reason: &str) -> String {
    let look = || {
        let volume = rig.cluster.volume("v")?;
        let status = volume.status.clone()?;
        let said = status.conditions.into_iter().find(|c| c.type_ == EXPANDED)?;
        let is_new = said.observed_generation == volume.metadata.generation;
        (is_new && said.reason == reason).then_some(said.message)
    };
    rig.cluster.until(&format!("Volume v says {reason}"), look, || rig.story("v")).await
}

/// CreateVolume is repeated until its outcome is known, with the arguments that it had.
pub async fn a_capacity_is_not_changed_while_the_volume_is_made(cluster: Arc<Cluster>) {
    let rig = Rig::start(
        &cluster,
        Options { expand: Expand::ByController, longest_call: 60, ..Options::default() },
    )
    .await;
    rig.fake.hold("v", Rpc::CreateVolume);
    rig.make_volume(&volume("v")).await;
    rig.until_called("v", Rpc::CreateVolume).await;
    let refused = raise(&rig, "3Mi").await.unwrap_err().to_string();
    assert!(refused.contains("spec.capacity cannot be changed before the Volume is Ready"), "{refused}");
    rig.fake.let_go("v", Rpc::CreateVolume);
    rig.until_volume_ready("v").await;
    let taken = Patch::Merge(json!({ "spec": { "capacity": null } }));
    let refused = rig.volume_api().patch("v", &PatchParams::default(), &taken).await.unwrap_err().to_string();
    assert!(refused.contains("spec.capacity"), "{refused}");
    raise(&rig, "3Mi").await.unwrap();
    until_says(&rig, "Expanded").await;
    rig.remove(&NO_CLAIM, &["v"]).await;
}

pub async fn a_volume_grows_when_its_capacity_is_raised(cluster: Arc<Cluster>) {
    let rig = start(&cluster, Expand::ByController).await;
    rig.make_claim(&volume_claim("c", "v", "node-2")).await;
    rig.until_ready("c").await;
    raise(&rig, "3Mi").await.unwrap();
    assert!(until_says(&rig, "Expanded").await.contains("3Mi"));
    let status = rig.volume_api().get("v").await.unwrap().status.unwrap();
    assert_eq!((status.capacity.as_deref(), status.capacity_bytes), (Some("3Mi"), Some(3 * MI)));
    assert_eq!(calls(&rig, "v").len(), 1);
    // It is Ready all the while, and never smaller.
    rig.until_ready("c").await;
    let refused = raise(&rig, "2Mi").await.unwrap_err().to_string();
    assert!(refused.contains("spec.capacity cannot be below status.capacityBytes"), "{refused}");
    // Nobody asks any more for what cannot be had.
    rig.fake.backend().most = 3 * MI;
    raise(&rig, "9Mi").await.unwrap();
    assert!(until_says(&rig, "ExpandVolumeFailed").await.contains("the storage is smaller"));
    let ready = rig.volume_api().get("v").await.unwrap().status.unwrap().conditions;
    assert!(ready.iter().any(|c| c.type_ == "Ready" && c.status == "True"), "{ready:?}");
    raise(&rig, "3Mi").await.unwrap();
    until_says(&rig, "Expanded").await;
    assert!(rig.volume_api().get("v").await.unwrap().status.unwrap().last_error.is_none());
    rig.remove(&["c"], &["v"]).await;
    rig.assert_nothing_left().await;
}

pub async fn a_volume_that_is_used_waits_where_the_driver_wants_it_so(cluster: Arc<Cluster>) {
    let rig = start(&cluster, Expand::Unused).await;
    // So that one comes before the other goes, and the volume is used all the time.
    rig.patch_plugin(json!({ "toleratesSecondTarget": true })).await;
    rig.make_claim(&volume_claim("c", "v", "node-2")).await;
    rig.until_ready("c").await;
    raise(&rig, "3Mi").await.unwrap();
    let words = until_says(&rig, "ExpandsUnused").await;
    assert!(words.contains("claim") && words.contains('c'), "{words}");
    let asked = calls(&rig, "v").len();
    rig.make_claim(&volume_claim("d", "v", "node-2")).await;
    rig.until_ready("d").await;
    rig.delete_claim("c").await;
    rig.until_claim_gone("c").await;
    until_says(&rig, "ExpandsUnused").await;
    assert_eq!(calls(&rig, "v").len(), asked, "it is not asked while it is used: {}", rig.story("v"));
    rig.delete_claim("d").await;
    until_says(&rig, "Expanded").await;
    assert_eq!(rig.fake.backend().volumes["v"].grown, 3 * MI);
    rig.remove(&NO_CLAIM, &["v"]).await;
    rig.assert_nothing_left().await;
}

/// CSI wants one call for a volume at a time, and the driver here complains of two.
pub async fn nothing_is_attached_beside_a_call_that_makes_it_larger(cluster: Arc<Cluster>) {
    let rig = start(&cluster, Expand::ByController).await;
    rig.fake.hold("v", Rpc::ControllerExpandVolume);
    raise(&rig, "3Mi").await.unwrap();
    rig.until_called("v", Rpc::ControllerExpandVolume).await;
    rig.make_claim(&volume_claim("c", "v", "node-2")).await;
    // It is granted, so that its agent knows of it.
    rig.until_claim_says("c", "Attaching").await;
    assert_eq!(rig.count("v", Rpc::ControllerPublishVolume), 0, "{}", rig.story("v"));
    rig.fake.let_go("v", Rpc::ControllerExpandVolume);
    rig.until_ready("c").await;
    until_says(&rig, "Expanded").await;
    rig.fake.assert_obeyed();
    rig.remove(&["c"], &["v"]).await;
    rig.assert_nothing_left().await;
}

/// Whoever reclaims what it is used for says only then whether the storage goes.
pub async fn a_volume_that_is_used_is_not_given_up(cluster: Arc<Cluster>) {
    let rig = start(&cluster, Expand::ByController).await;
    let policy = |policy| Patch::Merge(json!({ "spec": { "deletionPolicy": policy } }));
    let keep = policy("Retain");
    rig.volume_api().patch("v", &PatchParams::default(), &keep).await.unwrap();
    rig.make_claim(&volume_claim("c", "v", "node-2")).await;
    rig.until_ready("c").await;
    rig.fake.backend().most = MI;
    raise(&rig, "3Mi").await.unwrap();
    until_says(&rig, "ExpandVolumeFailed").await;
    rig.delete_volume("v").await;
    // Its agent has the time to do what it wants.
    rig.make_volume(&volume("w")).await;
    rig.until_volume_ready("w").await;
    rig.volume_api().patch("v", &PatchParams::default(), &policy("Delete")).await.unwrap();
    rig.delete_claim("c").await;
    rig.until_volume_gone("v").await;
    assert_eq!(rig.count("v", Rpc::DeleteVolume), 1, "{}", rig.story("v"));
    rig.remove(&NO_CLAIM, &["w"]).await;
    rig.assert_nothing_left().await;
}

/// The lock on the storage is kept for as long as its driver may be at it.
pub async fn a_volume_that_is_left_waits_for_the_end_of_its_call(cluster: Arc<Cluster>) {
    let rig = start(&cluster, Expand::ByController).await;
    let keep = Patch::Merge(json!({ "spec": { "deletionPolicy": "Retain" } }));
    rig.volume_api().patch("v", &PatchParams::default(), &keep).await.unwrap();
    rig.fake.hold("v", Rpc::ControllerExpandVolume);
    raise(&rig, "3Mi").await.unwrap();
    rig.until_called("v", Rpc::ControllerExpandVolume).await;
    rig.delete_volume("v").await;
    let handles: Api<VolumeHandle> = Api::all(rig.cluster.admin.clone());
    rig.until("the VolumeHandle is closed", || async {
        list(&handles).await.iter().any(|handle| handle.spec.closing).then_some(())
    })
    .await;
    // The leader has had the time to do what it wants.
    rig.make_volume(&volume("w")).await;
    rig.until_volume_ready("w").await;
    let held = list(&handles).await.into_iter().any(|handle| handle.spec.volume_handle == "vol-v");
    assert!(held, "{}", rig.story("v"));
    rig.fake.let_go("v", Rpc::ControllerExpandVolume);
    rig.until_volume_gone("v").await;
    assert_eq!(rig.count("v", Rpc::DeleteVolume), 0);
    rig.leaves(&["vol-v"], "Retain");
}

/// A driver knows a repeated CreateVolume by its arguments, among them the size that the volume had at first.
pub async fn a_grown_volume_whose_status_is_lost_is_created_as_at_first(cluster: Arc<Cluster>) {
    let rig = start(&cluster, Expand::ByController).await;
    raise(&rig, "3Mi").await.unwrap();
    until_says(&rig, "Expanded").await;
    let lost = Patch::Merge(json!({ "status": null }));
    rig.volume_api().patch_status("v", &PatchParams::default(), &lost).await.unwrap();
    let has = |bytes| {
        let status = rig.cluster.volume("v")?.status.clone()?;
        (status.state == VolumeState::Ready && status.capacity_bytes == Some(bytes)).then_some(())
    };
    let again = || (rig.count("v", Rpc::CreateVolume) == 2).then_some(());
    rig.cluster.until("CreateVolume is repeated", again, || rig.story("v")).await;
    rig.cluster.until("the volume is Ready and has 3Mi", || has(3 * MI), || rig.story("v")).await;
    rig.remove(&NO_CLAIM, &["v"]).await;
}
