//! Nodes that fall silent, are lost, come back, or are replaced, with real processes (rule R4).
//!
//! A machine that is cut off is an agent that was killed: its mounts stay. One that crashes loses them.

mod calls;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::cases;
use crate::rig::fake::DRIVER;
use crate::rig::{CONTROLLER, Case, Cluster, Entry, Options, Rig, volume, volume_claim};
use kube::api::{Api, DeleteParams, ListParams};
use moor::api::{
    ClaimState, Plugin, PluginInstance,
    conditions::{READY, SILENT},
    names::{DriverOn, instance_name},
};
use moor::csi::Rpc;

const LOST: &str = "node-2";
const NONE: &[&str] = &[];
const OTHER: &str = "node-1";

/// A volume that is mounted on the node that is going to be lost. Claim and Volume have one name.
async fn in_use(rig: &Rig, key: &str) -> String {
    rig.make_volume(&volume(key)).await;
    rig.make_claim(&volume_claim(key, key, LOST)).await;
    let target = rig.until_ready(key).await;
    fs::write(Path::new(&target).join("word"), key).unwrap();
    target
}

/// The machine is cut off: it runs on, and nobody hears of it.
async fn cut_off(rig: &Rig, node: &str) {
    rig.kill(node);
    rig.expire_lease(node).await;
}

/// Waits until a node that has returned has undone by its record what it still had.
async fn until_clean(rig: &Rig, node: &str) {
    let clean = || rig.leaks_on(node).is_empty().then_some(());
    rig.cluster.until("the returned node is clean", clean, || rig.leaks_on(node).join("\n")).await;
}

/// Garbage collection takes the PluginInstance of a Node that is gone, and the leader has seen it: its watch of claims does
/// not wait for that of instances, so a claim that is made at once may still be granted on what the instance once said.
async fn collect_instance(rig: &Rig, node: &str) {
    let known = |so_many: usize| {
        move |plugin: &Plugin| {
            let expected = plugin.status.as_ref()?.nodes_expected;
            (usize::try_from(expected) == Ok(so_many)).then_some(())
        }
    };
    let instances: Api<PluginInstance> = Api::all(rig.cluster.admin.clone());
    let instances_now = instances.list(&ListParams::default()).await.unwrap().items.len();
    rig.until_plugin(DRIVER, "counts all instances", known(instances_now)).await;
    instances
        .delete(&instance_name(DriverOn { driver: DRIVER, node }), &DeleteParams::default())
        .await
        .unwrap();
    rig.until_plugin(DRIVER, "counts the instances that are left", known(instances_now - 1)).await;
}

async fn is_lost(rig: &Rig, claim: &str) -> bool {
    rig.read_attachment_of(claim).await.spec.lost.is_some()
}

async fn state(rig: &Rig, claim: &str) -> ClaimState {
    rig.read_claim(claim).await.status.unwrap().state
}

async fn silence_alone_frees_nothing(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    in_use(&rig, "kept").await;
    rig.crash_node(LOST);
    rig.expire_lease(LOST).await;
    let message = rig.until_told("kept", SILENT, "True", "NoHeartbeat").await;
    for way in ["kubectl delete node node-2", "node.kubernetes.io/out-of-service", "spec.forceDetach"] {
        assert!(message.contains(way), "{message}");
    }
    rig.delete_claim("kept").await;
    rig.make_claim(&volume_claim("next", "kept", OTHER)).await;
    rig.until_told("next", "Ready", "False", "Held").await;
    assert!(!is_lost(&rig, "kept").await);
    rig.boot_node(LOST, false);
    rig.until_claim_gone("kept").await;
    let target = rig.until_ready("next").await;
    assert_eq!(fs::read_to_string(Path::new(&target).join("word")).unwrap(), "kept");
    rig.remove(&["next"], &["kept"]).await;
}

async fn a_new_leader_takes_back_only_what_it_knows(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    in_use(&rig, "kept").await;
    cut_off(&rig, LOST).await;
    rig.until_told("kept", SILENT, "True", "NoHeartbeat").await;
    let since = rig.journal.now();
    rig.restart(CONTROLLER);
    // Once this is done the new leader has looked at everything.
    rig.make_volume(&volume("other")).await;
    rig.until_volume_ready("other").await;
    let about_kept = |e: &Entry| {
        e.write().is_some_and(|w| w.kind == "volumeclaims" && w.name == "kept" && e.actor == CONTROLLER)
    };
    let written = rig.journal.since(since, about_kept);
    assert!(written.is_empty(), "{written:?}");
    rig.run(LOST);
    let silent = || {
        let claim = rig.cluster.claim("kept")?;
        let mut all = claim.status.as_ref()?.conditions.iter();
        all.all(|c| c.type_ != SILENT).then_some(())
    };
    rig.cluster.until("the silence is over", silent, || rig.story("kept")).await;
    rig.remove(&["kept"], &["kept", "other"]).await;
}

async fn a_node_out_of_service_is_lost_and_comes_back_clean(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    in_use(&rig, "leaving").await;
    in_use(&rig, "living").await;
    rig.delete_claim("leaving").await;
    rig.until_claim_gone("leaving").await;
    rig.make_claim(&volume_claim("leaving", "leaving", LOST)).await;
    rig.until_ready("leaving").await;
    cut_off(&rig, LOST).await;
    rig.delete_claim("leaving").await;
    rig.until_told("leaving", SILENT, "True", "NoHeartbeat").await;
    let since = rig.journal.now();
    rig.mark_out_of_service(LOST, true).await;
    rig.until_claim_gone("leaving").await;
    let message = rig.until_told("living", "Ready", "False", "NodeLost").await;
    assert!(message.contains("OutOfService") && message.contains(LOST), "{message}");
    assert_eq!(state(&rig, "living").await, ClaimState::Lost);
    // The mounts of the machine that is cut off are still there, and the volume is free.
    rig.make_claim(&volume_claim("next", "living", OTHER)).await;
    let target = rig.until_ready("next").await;
    assert_eq!(fs::read_to_string(Path::new(&target).join("word")).unwrap(), "living");
    let node_calls = rig.journal.since(since, |e| e.call().is_some_and(|c| c.node == LOST));
    assert!(node_calls.is_empty(), "{node_calls:?}");
    assert!(!rig.leaks_on(LOST).is_empty(), "nothing is left to be cleaned: this shows nothing");
    // Back in service it cleans up by its record, also for the claim that is there and lost.
    rig.mark_out_of_service(LOST, false).await;
    rig.run(LOST);
    until_clean(&rig, LOST).await;
    assert_eq!(state(&rig, "living").await, ClaimState::Lost);
    rig.remove(&["living", "next"], NONE).await;
    rig.make_claim(&volume_claim("again", "living", LOST)).await;
    rig.until_ready("again").await;
    rig.remove(&["again"], &["leaving", "living"]).await;
}

/// Interleavings B8. What the old mount has yet to write would go into a volume that others have used since.
async fn a_node_that_is_back_gets_a_volume_only_when_it_is_clean(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    in_use(&rig, "data").await;
    cut_off(&rig, LOST).await;
    rig.delete_claim("data").await;
    rig.mark_out_of_service(LOST, true).await;
    rig.until_claim_gone("data").await;
    rig.mark_out_of_service(LOST, false).await;
    // A leader that has not seen the node fall silent knows no more than its Lease says.
    rig.restart(CONTROLLER);
    let since = rig.journal.now();
    rig.make_claim(&volume_claim("again", "data", LOST)).await;
    rig.until_told("again", "Ready", "False", "NodeNotUsable").await;
    // The driver there does not get the old mount undone for now.
    rig.fake.hold("data", Rpc::NodeUnpublishVolume);
    rig.run(LOST);
    let unpublishes =
        |e: &Entry| e.call().is_some_and(|c| c.node == LOST && c.rpc == Rpc::NodeUnpublishVolume);
    let begun = || (!rig.journal.since(since, unpublishes).is_empty()).then_some(());
    rig.cluster.until("the node begins to undo", begun, || rig.story("again")).await;
    let waits = || {
        let claim = rig.cluster.claim("again")?;
        let mut all = claim.status.as_ref()?.conditions.iter();
        all.any(|c| c.reason == "NodeNotUsable" && c.message.contains("undone")).then_some(())
    };
    rig.cluster.until("the claim says what it waits for", waits, || rig.story("again")).await;
    // Whoever goes elsewhere does not wait for that.
    rig.make_claim(&volume_claim("next", "data", OTHER)).await;
    rig.until_ready("next").await;
    let attached = |e: &Entry| e.call().is_some_and(|c| c.rpc == Rpc::ControllerPublishVolume);
    assert_eq!(rig.journal.since(since, attached).len(), 1, "{}", rig.story("again"));
    rig.fake.let_go("data", Rpc::NodeUnpublishVolume);
    until_clean(&rig, LOST).await;
    rig.delete_claim("next").await;
    rig.until_ready("again").await;
    rig.remove(&["again", "next"], &["data"]).await;
}

async fn a_deleted_node_with_a_live_agent_stays_in_charge(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    in_use(&rig, "kept").await;
    rig.delete_node(LOST).await;
    let message = rig.until_told("kept", SILENT, "False", "HeardThoughGone").await;
    assert!(message.contains("Node node-2 was deleted"), "{message}");
    assert!(!is_lost(&rig, "kept").await);
    rig.remove(&["kept"], &["kept"]).await;
}

async fn a_deleted_node_is_lost_once_it_is_silent(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    in_use(&rig, "kept").await;
    rig.crash_node(LOST);
    rig.fake.backend().lost.insert(LOST.to_owned());
    rig.delete_node(LOST).await;
    rig.expire_lease(LOST).await;
    rig.until_told("kept", "Ready", "False", "NodeLost").await;
    rig.delete_claim("kept").await;
    rig.until_claim_gone("kept").await;
    rig.make_claim(&volume_claim("next", "kept", OTHER)).await;
    rig.until_ready("next").await;
    // A machine of the same name and another boot, which has the record's disk: it cleans and serves.
    rig.make_node(LOST).await;
    rig.boot_node(LOST, false);
    rig.remove(&["next"], &["kept"]).await;
}

async fn a_machine_that_is_registered_anew_keeps_its_volume(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    in_use(&rig, "kept").await;
    let uid = rig.read_attachment_of("kept").await.spec.fixed.node_uid;
    // Down only for as long as its Lease lasts.
    rig.crash_node(LOST);
    rig.delete_node(LOST).await;
    rig.make_node(LOST).await;
    rig.boot_node(LOST, false);
    // Mounted again, by an Attachment for the Node that there is now.
    let look = || {
        let now = rig.cluster.attachment_of("kept")?;
        let state = rig.cluster.claim("kept")?.status.as_ref()?.state;
        (now.spec.fixed.node_uid != uid && state == ClaimState::Ready).then_some(())
    };
    rig.cluster.until("the claim is Ready under the new Node", look, || rig.story("kept")).await;
    rig.remove(&["kept"], &["kept"]).await;
}

/// Its Node is deleted under it twice. At last it falls silent, and only its Lease tells that.
async fn a_machine_that_was_registered_anew_stays_in_charge(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    in_use(&rig, "kept").await;
    rig.delete_node(LOST).await;
    rig.make_node(LOST).await;
    cut_off(&rig, LOST).await;
    rig.until_told("kept", SILENT, "True", "NoHeartbeat").await;
    rig.run(LOST);
    let anew = rig.read_node(LOST).await.metadata.uid.unwrap();
    let runs = || rig.cluster.instances.state().iter().any(|i| i.spec.node_uid == anew).then_some(());
    rig.cluster.until("the agent runs under the new UID", runs, || rig.story("kept")).await;
    rig.delete_node(LOST).await;
    rig.until_told("kept", SILENT, "False", "HeardThoughGone").await;
    assert!(!is_lost(&rig, "kept").await);
    rig.crash_node(LOST);
    rig.fake.backend().lost.insert(LOST.to_owned());
    collect_instance(&rig, LOST).await;
    rig.expire_lease(LOST).await;
    rig.until_told("kept", "Ready", "False", "NodeLost").await;
    rig.make_node(LOST).await;
    rig.boot_node(LOST, false);
    rig.remove(&["kept"], &["kept"]).await;
}

async fn force_detach_needs_every_claim_and_frees_a_cut_off_node(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    in_use(&rig, "first").await;
    rig.make_claim(&volume_claim("second", "first", LOST)).await;
    rig.until_ready("second").await;
    cut_off(&rig, LOST).await;
    rig.delete_claim("first").await;
    rig.force_detach("first").await;
    let message = rig.until_told("first", SILENT, "True", "ForceDetachRefused").await;
    assert!(message.contains("default/second"), "{message}");
    assert!(!is_lost(&rig, "first").await);
    rig.fake.backend().lost.insert(LOST.to_owned());
    rig.delete_claim("second").await;
    rig.force_detach("second").await;
    rig.until_claim_gone("first").await;
    rig.until_claim_gone("second").await;
    rig.make_claim(&volume_claim("next", "first", OTHER)).await;
    rig.until_ready("next").await;
    rig.run(LOST);
    until_clean(&rig, LOST).await;
    rig.remove(&["next"], &["first"]).await;
}

/// Nothing cuts such a node off: only somebody's word that the machine is off frees the volume.
async fn a_driver_that_does_not_attach_waits_for_somebodys_word(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options { attach: false, ..Options::default() }).await;
    in_use(&rig, "data").await;
    rig.crash_node(LOST);
    rig.expire_lease(LOST).await;
    rig.delete_claim("data").await;
    rig.force_detach("data").await;
    let message = rig.until_told("data", SILENT, "True", "ForceDetachRefused").await;
    assert!(message.contains("ControllerPublishVolume"), "{message}");
    rig.make_claim(&volume_claim("next", "data", OTHER)).await;
    rig.until_told("next", "Ready", "False", "Held").await;
    assert!(!is_lost(&rig, "data").await);
    rig.mark_out_of_service(LOST, true).await;
    rig.until_claim_gone("data").await;
    let target = rig.until_ready("next").await;
    assert_eq!(fs::read_to_string(Path::new(&target).join("word")).unwrap(), "data");
    rig.mark_out_of_service(LOST, false).await;
    rig.boot_node(LOST, false);
    until_clean(&rig, LOST).await;
    rig.delete_claim("next").await;
    rig.make_claim(&volume_claim("again", "data", LOST)).await;
    rig.until_ready("again").await;
    rig.remove(&["again", "next"], &["data"]).await;
}

/// What its agent said last of the driver there is not so any more, as far as anybody knows.
async fn the_driver_on_a_silent_node_counts_as_unhealthy(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    cut_off(&rig, LOST).await;
    rig.until_plugin_says(DRIVER, READY, "Healthy", &["nodes 1/2", "nothing is heard", LOST]).await;
    rig.run(LOST);
    let said = rig.until_plugin_says(DRIVER, READY, "Healthy", &["nodes 2/2"]).await;
    assert!(!said.contains("heard"), "{said}");
    rig.assert_nothing_left().await;
}

/// The cases of this module.
pub const CASES: &[Case] = cases![
    silence_alone_frees_nothing,
    the_driver_on_a_silent_node_counts_as_unhealthy,
    a_new_leader_takes_back_only_what_it_knows,
    a_node_out_of_service_is_lost_and_comes_back_clean,
    a_node_that_is_back_gets_a_volume_only_when_it_is_clean,
    a_deleted_node_with_a_live_agent_stays_in_charge,
    a_deleted_node_is_lost_once_it_is_silent,
    a_machine_that_is_registered_anew_keeps_its_volume,
    a_machine_that_was_registered_anew_stays_in_charge,
    force_detach_needs_every_claim_and_frees_a_cut_off_node,
    a_driver_that_does_not_attach_waits_for_somebodys_word,
    calls::move_off_a_lost_node_that_made_them,
    calls::move_off_a_node_whose_instance_is_gone,
    calls::move_for_a_volume_that_was_removed_by_force,
];
