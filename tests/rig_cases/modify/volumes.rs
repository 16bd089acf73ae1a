//! Volumes whose users change their mutable parameters themselves.

use std::sync::Arc;

use kube::api::{Patch, PatchParams};
use moor::api::conditions::MODIFIED;
use moor::api::{Volume, VolumeState};
use moor::csi::Rpc;
use serde_json::{Value, json};
use tonic::Code;

use super::{asked, assert_gold_before_silver, has, tier};
use crate::rig::{Cluster, Fault, Options, Rig, volume, volume_claim};

const NO_CLAIM: [&str; 0] = [];

async fn start(cluster: &Arc<Cluster>) -> Arc<Rig> {
    // A call that is held back is not to end by its deadline.
    Rig::start(cluster, Options { modify: true, longest_call: 60, ..Options::default() }).await
}

async fn change(rig: &Rig, parameters: &Value) -> Result<Volume, kube::Error> {
    let patch = Patch::Merge(json!({ "spec": { "mutableParameters": parameters } }));
    rig.volume_api().patch("v", &PatchParams::default(), &patch).await
}

/// Waits until the Volume says this of its parameters, and returns the words.
async fn until_says(rig: &Rig, reason: &str) -> String {
    let look = || {
        let volume = rig.cluster.volume("v")?;
        let status = volume.status.clone()?;
        let said = status.conditions.into_iter().find(|c| c.type_ == MODIFIED)?;
        let is_new = said.observed_generation == volume.metadata.generation;
        (is_new && said.reason == reason).then_some(said.message)
    };
    rig.cluster.until(&format!("Volume v says {reason}"), look, || rig.story("v")).await
}

/// CreateVolume is repeated until its outcome is known, with the arguments that it had.
pub async fn parameters_are_not_changed_while_the_volume_is_made(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    rig.fake.hold("v", Rpc::CreateVolume);
    rig.make_volume(&volume("v")).await;
    rig.until_called("v", Rpc::CreateVolume).await;
    let refused = change(&rig, &json!({ "tier": "gold" })).await.unwrap_err().to_string();
    assert!(
        refused.contains("spec.mutableParameters cannot be changed before the Volume is Ready"),
        "{refused}"
    );
    rig.fake.let_go("v", Rpc::CreateVolume);
    rig.until_volume_ready("v").await;
    change(&rig, &json!({ "tier": "gold" })).await.unwrap();
    until_says(&rig, "Modified").await;
    rig.remove(&NO_CLAIM, &["v"]).await;
}

pub async fn a_volume_is_modified_when_its_parameters_are_changed(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    rig.make_volume(&volume("v")).await;
    rig.make_claim(&volume_claim("c", "v", "node-2")).await;
    rig.until_ready("c").await;
    change(&rig, &json!({ "tier": "gold" })).await.unwrap();
    until_says(&rig, "Modified").await;
    let status = rig.volume_api().get("v").await.unwrap().status.unwrap();
    assert_eq!((status.mutable_parameters, status.modification), (tier("gold"), None));
    assert_eq!((asked(&rig, "v"), has(&rig, "v")), (vec![tier("gold")], tier("gold")));
    // It is Ready all the while, and says why the driver does not follow.
    change(&rig, &json!({ "tier": null, "colour": "red" })).await.unwrap();
    assert!(until_says(&rig, "ModifyVolumeFailed").await.contains("there is no parameter colour"));
    let status = rig.volume_api().get("v").await.unwrap().status.unwrap();
    assert!(status.conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True"), "{status:?}");
    assert!(status.mutable_parameters.is_empty(), "nobody knows what it has");
    rig.until_ready("c").await;
    change(&rig, &json!({ "tier": "gold", "colour": null })).await.unwrap();
    until_says(&rig, "Modified").await;
    assert_eq!(asked(&rig, "v").last(), Some(&tier("gold")), "it is asked for what it had");
    let status = rig.volume_api().get("v").await.unwrap().status.unwrap();
    assert!(status.last_error.is_none() && status.mutable_parameters == tier("gold"), "{status:?}");
    // Without any there is nothing to ask.
    let calls = asked(&rig, "v").len();
    change(&rig, &Value::Null).await.unwrap();
    rig.remove(&["c"], &["v"]).await;
    assert_eq!(asked(&rig, "v").len(), calls);
    rig.assert_nothing_left().await;
}

/// A node in wrong hands writes what it likes as what is under way, and whoever makes the calls after it would go on with it.
pub async fn an_agent_says_nothing_is_under_way_that_nobody_asked_for(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    rig.make_volume(&volume("v")).await;
    rig.until_volume_ready("v").await;
    let caller =
        rig.volume_api().get("v").await.unwrap().spec.assignment.unwrap().controller.unwrap().agent.clone();
    let rogue = rig.rogue(&caller).await;
    let lie = || json!({ "modification": { "parameters": { "tier": "dear" }, "outcomeUnknown": true } });
    let refused = rogue.say_of_volume("v", lie()).await.unwrap_err().to_string();
    assert!(refused.contains("status.modification"), "{refused}");
    change(&rig, &json!({ "tier": "gold" })).await.unwrap();
    until_says(&rig, "Modified").await;
    let refused = rogue.say_of_volume("v", lie()).await.unwrap_err().to_string();
    assert!(refused.contains("status.modification"), "{refused}");
    assert_eq!(asked(&rig, "v"), [tier("gold")]);
    rig.remove(&NO_CLAIM, &["v"]).await;
    rig.assert_nothing_left().await;
}

/// It may have been done, so it is repeated first, by when the Volume asks for something else for long.
pub async fn what_is_asked_for_during_a_call_of_unknown_outcome_comes_after_it(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    rig.make_volume(&volume("v")).await;
    rig.until_volume_ready("v").await;
    rig.fake.fail("v", Rpc::ControllerModifyVolume, Fault::CodeAfter(Code::Unavailable));
    change(&rig, &json!({ "tier": "gold" })).await.unwrap();
    until_says(&rig, "ModifyVolumeFailed").await;
    change(&rig, &json!({ "tier": "silver" })).await.unwrap();
    rig.fake.heal("v", Rpc::ControllerModifyVolume);
    let is_silver = || {
        let status = rig.cluster.volume("v")?.status.clone()?;
        (status.mutable_parameters == tier("silver")).then_some(())
    };
    rig.cluster.until("the driver has taken silver", is_silver, || rig.story("v")).await;
    assert_gold_before_silver(&rig, "v");
    assert_eq!(has(&rig, "v"), tier("silver"));
    rig.remove(&NO_CLAIM, &["v"]).await;
    rig.assert_nothing_left().await;
}

/// What an administrator has left to himself the driver is not asked for.
pub async fn a_namespace_that_may_not_parameterise_changes_nothing(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    rig.make_volume(&volume("v")).await;
    rig.until_volume_ready("v").await;
    rig.patch_plugin(json!({ "allow": { "parameterise": { "namespaces": [] } } })).await;
    change(&rig, &json!({ "tier": "gold" })).await.unwrap();
    let words = until_says(&rig, "ModifyNotAllowed").await;
    assert!(words.contains("spec.mutableParameters") && words.contains("spec.allow.parameterise"), "{words}");
    assert!(asked(&rig, "v").is_empty());
    rig.patch_plugin(json!({ "allow": { "parameterise": { "namespaces": ["*"] } } })).await;
    until_says(&rig, "Modified").await;
    assert_eq!(asked(&rig, "v"), [tier("gold")]);
    rig.remove(&NO_CLAIM, &["v"]).await;
    rig.assert_nothing_left().await;
}

/// CSI wants one call for a volume at a time, and the driver here complains of two.
pub async fn nothing_is_attached_beside_a_call_that_modifies(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    rig.make_volume(&volume("v")).await;
    rig.until_volume_ready("v").await;
    rig.fake.hold("v", Rpc::ControllerModifyVolume);
    change(&rig, &json!({ "tier": "gold" })).await.unwrap();
    rig.until_called("v", Rpc::ControllerModifyVolume).await;
    rig.make_claim(&volume_claim("c", "v", "node-2")).await;
    // It is granted, so that its agent knows of it.
    rig.until_claim_says("c", "Attaching").await;
    assert_eq!(rig.count("v", Rpc::ControllerPublishVolume), 0, "{}", rig.story("v"));
    rig.fake.let_go("v", Rpc::ControllerModifyVolume);
    rig.until_ready("c").await;
    until_says(&rig, "Modified").await;
    rig.fake.assert_obeyed();
    rig.remove(&["c"], &["v"]).await;
    rig.assert_nothing_left().await;
}

/// A driver knows a repeated CreateVolume by its arguments, among them the parameters that the volume had at first.
pub async fn a_modified_volume_whose_status_is_lost_is_created_as_at_first(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    rig.make_volume(&volume("v")).await;
    rig.until_volume_ready("v").await;
    change(&rig, &json!({ "tier": "gold" })).await.unwrap();
    until_says(&rig, "Modified").await;
    let lost = Patch::Merge(json!({ "status": null }));
    rig.volume_api().patch_status("v", &PatchParams::default(), &lost).await.unwrap();
    let again = || (rig.count("v", Rpc::CreateVolume) == 2).then_some(());
    rig.cluster.until("CreateVolume is repeated", again, || rig.story("v")).await;
    // What is seen may be of before the loss.
    let is_asked = || (asked(&rig, "v").len() > 1).then_some(());
    rig.cluster.until("the driver is asked for gold again", is_asked, || rig.story("v")).await;
    let is_gold = || {
        let status = rig.cluster.volume("v")?.status.clone()?;
        (status.state == VolumeState::Ready && status.mutable_parameters == tier("gold")).then_some(())
    };
    rig.cluster.until("the volume is Ready and gold", is_gold, || rig.story("v")).await;
    assert_eq!((asked(&rig, "v"), has(&rig, "v")), (vec![tier("gold"), tier("gold")], tier("gold")));
    rig.remove(&NO_CLAIM, &["v"]).await;
}
