//! What a deleted claim shows while its undo fails.

use std::sync::Arc;

use kube::api::{Patch, PatchParams};
use moor::api::ClaimState;
use moor::csi::Rpc;
use serde_json::json;
use tonic::Code;

use crate::cases;
use crate::rig::{Case, Cluster, Fault, Options, Rig, volume, volume_claim};

const NODE: &str = "node-2";
const OTHER: &str = "node-1";

async fn mounted(rig: &Rig, name: &str) {
    rig.make_volume(&volume(name)).await;
    rig.make_claim(&volume_claim(name, name, NODE)).await;
    rig.until_ready(name).await;
}

/// The driver denies the volume, and it is mounted.
pub async fn a_volume_that_the_driver_denies_names_the_way_out(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    mounted(&rig, "denied").await;
    rig.fake.fail("denied", Rpc::NodeUnpublishVolume, Fault::CodeBefore(Code::NotFound));
    rig.delete_claim("denied").await;
    let status = rig.until_says("denied", "NodeUnpublishFailed", &["NotFound", "spec.forceDetach"]).await;
    assert_eq!(status.state, ClaimState::Taken);
    rig.fake.heal("denied", Rpc::NodeUnpublishVolume);
    rig.remove(&["denied"], &["denied"]).await;
}

pub async fn a_claim_that_is_not_detached_is_not_shown_as_ready(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    mounted(&rig, "leaving").await;
    rig.fake.fail("leaving", Rpc::ControllerUnpublishVolume, Fault::CodeBefore(Code::Internal));
    rig.delete_claim("leaving").await;
    let status = rig.until_says("leaving", "ControllerUnpublishFailed", &[NODE, "Internal"]).await;
    assert_eq!(status.state, ClaimState::Taken);
    rig.fake.heal("leaving", Rpc::ControllerUnpublishVolume);
    rig.remove(&["leaving"], &["leaving"]).await;
}

/// Somebody's finalizer is on it: moor has let it go, and it is in nobody's way.
pub async fn a_claim_that_others_hold_keeps_nobody_off(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.make_volume(&volume("v")).await;
    let mut claim = volume_claim("held", "v", NODE);
    claim.metadata.finalizers = Some(vec!["example.com/theirs".to_owned()]);
    rig.make_claim(&claim).await;
    rig.until_ready("held").await;
    rig.delete_claim("held").await;
    let is_let_go = || cluster.claim("held").is_some_and(|claim| claim.is_let_go()).then_some(());
    cluster.until("moor lets it go", is_let_go, || rig.story("v")).await;

    rig.make_claim(&volume_claim("next", "v", OTHER)).await;
    rig.until_ready("next").await;
    rig.delete_claim("next").await;
    rig.until_claim_gone("next").await;
    rig.delete_volume("v").await;
    rig.until_volume_gone("v").await;
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    rig.claim_api().patch("held", &PatchParams::default(), &free).await.unwrap();
    rig.until_claim_gone("held").await;
    rig.assert_nothing_left().await;
}

/// The cases of this module.
pub const CASES: &[Case] = cases![
    a_volume_that_the_driver_denies_names_the_way_out,
    a_claim_that_is_not_detached_is_not_shown_as_ready,
    a_claim_that_others_hold_keeps_nobody_off,
];
