//! The disk with a node's records takes no writes: what is said, what goes on and what does not.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use kube::Api;
use kube::api::{Patch, PatchParams};
use moor::api::conditions::READY;
use moor::api::instance::{FORCE_UNDO, Service, UNDO_FORGOTTEN};
use moor::api::names::{DriverOn, instance_name};
use moor::api::{PluginInstance, PluginInstanceStatus};
use moor::csi::Rpc;
use serde_json::json;

use crate::cases;
use crate::rig::fake::DRIVER;
use crate::rig::{Case, Cluster, Options, Rig, volume, volume_claim};

const NODE: &str = "node-2";
/// The condition's reason, on claims and on the PluginInstance.
const REASON: &str = "StateNotWritable";

/// Volumes that are mounted on [`NODE`], and one that waits at its driver to be attached there. Claim and Volume have
/// one name.
async fn set_up(rig: &Rig) {
    for name in ["held", "kept"] {
        rig.make_volume(&volume(name)).await;
        rig.make_claim(&volume_claim(name, name, NODE)).await;
        rig.until_ready(name).await;
    }
    // More than on the other node, which is then the one with less to do.
    for name in ["a", "b", "c"] {
        rig.make_volume(&volume(name)).await;
        rig.make_claim(&volume_claim(name, name, "node-1")).await;
        rig.until_ready(name).await;
    }
    rig.make_volume(&volume("next")).await;
    rig.until_volume_ready("next").await;
    rig.fake.hold("next", Rpc::ControllerPublishVolume);
    rig.make_claim(&volume_claim("next", "next", NODE)).await;
    let attaching = || (rig.count("next", Rpc::ControllerPublishVolume) > 0).then_some(());
    rig.cluster.until("the next volume is being attached", attaching, || rig.story("next")).await;
}

fn instance(rig: &Rig) -> Option<Arc<PluginInstance>> {
    rig.cluster.instances.state().into_iter().find(|i| i.spec.node_name == NODE)
}

/// Waits until the PluginInstance says that nothing may be mounted on [`NODE`].
async fn until_withheld(rig: &Rig, why: &str) {
    let withheld = |s: &PluginInstanceStatus| {
        let told = s.conditions.iter().any(|c| c.type_ == READY && c.status == "False" && c.reason == REASON);
        told && !s.is_healthy_for(Service::Node) && s.last_error.as_ref().is_some_and(|e| e.contains(why))
    };
    let look = || instance(rig)?.status.as_ref().is_some_and(withheld).then_some(());
    rig.cluster.until("the instance is not healthy for Node", look, || format!("{:?}", instance(rig))).await;
}

/// What is the same whatever the reason for which the disk takes no writes. `mend` ends that.
async fn nothing_is_made_and_everything_is_undone(rig: &Rig, why: &str, mend: impl Fn()) {
    rig.fake.let_go("next", Rpc::ControllerPublishVolume);
    // A step that failed, like any other.
    let told = rig.until_told("next", READY, "False", REASON).await;
    assert!(told.contains(why) && told.contains("records") && told.contains(NODE), "{told}");
    until_withheld(rig, why).await;
    assert_eq!(rig.count("next", Rpc::NodeStageVolume), 0, "staged without a record");

    // Nothing new comes here, although there is less to do here.
    rig.make_volume(&volume("any")).await;
    let mut claim = volume_claim("any", "any", NODE);
    claim.spec.node_name = None;
    rig.make_claim(&claim).await;
    rig.until_ready("any").await;
    let assigned = rig.read_claim("any").await.spec.assignment.unwrap().node_name;
    assert_eq!(assigned, "node-1");

    // What is there is undone, once.
    rig.delete_claim("held").await;
    rig.until_claim_gone("held").await;
    for rpc in [Rpc::NodeUnpublishVolume, Rpc::NodeUnstageVolume, Rpc::ControllerUnpublishVolume] {
        assert_eq!(rig.count("held", rpc), 1, "{rpc}");
    }

    // An agent that starts now is up, leaves alone what is in use, and undoes what goes.
    rig.restart_and_wait(NODE).await;
    until_withheld(rig, why).await;
    rig.delete_claim("kept").await;
    rig.until_claim_gone("kept").await;
    assert_eq!(rig.count("kept", Rpc::NodePublishVolume), 1);
    // The room that an old record had may be enough for a new one.
    let recorded = format!("{}.json", rig.read_attachment_of("next").await.metadata.uid.unwrap());
    let staged = rig.count("next", Rpc::NodeStageVolume) > 0;
    assert!(!staged || rig.records(NODE).contains(&recorded), "staged without a record");

    mend();
    rig.until_served(NODE).await;
    rig.until_ready("next").await;
    // What was undone meanwhile is on the disk too, at the latest when an agent starts.
    rig.restart_and_wait(NODE).await;
    let next = || (rig.staged(NODE).len() == 1).then_some(());
    rig.cluster.until("one volume is staged", next, || format!("{:?}", rig.staged(NODE))).await;
    let one = || (rig.records(NODE).len() == 1).then_some(());
    rig.cluster.until("one record is left", one, || format!("{:?}", rig.records(NODE))).await;
    let names = ["a", "b", "c", "any", "next"];
    rig.remove(&names, &names).await;
    rig.remove(&[""; 0], &["held", "kept"]).await;
}

async fn a_disk_that_turns_read_only(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options { nodes: vec![("node-1", true)], ..Options::default() }).await;
    rig.make_staging_disk(NODE);
    rig.add_node(NODE, false).await;
    rig.until_served(NODE).await;
    set_up(&rig).await;
    rig.protect_disk(NODE);
    nothing_is_made_and_everything_is_undone(&rig, "Read-only file system", || rig.lift_disk(NODE)).await;
}

async fn a_disk_that_is_full(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options { nodes: vec![("node-1", true)], ..Options::default() }).await;
    rig.make_small_disk(NODE);
    rig.add_node(NODE, false).await;
    rig.until_served(NODE).await;
    set_up(&rig).await;
    rig.fill_disk(NODE);
    let mend = || rig.empty_disk(NODE);
    nothing_is_made_and_everything_is_undone(&rig, "No space left on device", mend).await;
}

/// What the records said their Attachments say too, and a volume is detached after that is undone. `spoil` has the agent
/// start without them.
async fn what_is_mounted_is_undone_without_its_record(cluster: &Arc<Cluster>, spoil: impl Fn(&Rig)) {
    let rig = Rig::start(cluster, Options::default()).await;
    for name in ["gone", "stays"] {
        rig.make_volume(&volume(name)).await;
        rig.make_claim(&volume_claim(name, name, NODE)).await;
    }
    let path = rig.until_ready("gone").await;
    rig.until_ready("stays").await;
    rig.kill(NODE);
    spoil(&rig);
    rig.delete_claim("gone").await;
    rig.run(NODE);
    rig.until_claim_gone("gone").await;
    assert!(!Path::new(&path).exists(), "{path} is left");
    assert_undone(&rig, "gone");
    rig.until_ready("stays").await;
    // What was undone is not spoken of any more, by no file either.
    rig.remove(&["stays"], &["stays"]).await;
    rig.remove(&[""; 0], &["gone"]).await;
}

/// Asserts that the volume was detached after it was undone.
fn assert_undone(rig: &Rig, name: &str) {
    let calls = rig.journal.trace_of(name);
    let undone = ["NodeUnpublishVolume", "NodeUnstageVolume", "ControllerUnpublishVolume"];
    assert!(calls.ends_with(&undone), "{calls:?}");
}

async fn a_record_that_is_torn(cluster: Arc<Cluster>) {
    what_is_mounted_is_undone_without_its_record(&cluster, |rig| rig.tear_records(NODE)).await;
}

/// The disk of an earlier boot is gone, or somebody gave the agent another directory: what is mounted is there still.
async fn records_that_are_lost(cluster: Arc<Cluster>) {
    let lose = |rig: &Rig| fs::remove_dir_all(rig.state_dir(NODE).join("records")).unwrap();
    what_is_mounted_is_undone_without_its_record(&cluster, lose).await;
}

/// Its Attachment is there, and says what it could speak of: to put the file away would undo nothing.
async fn an_order_does_not_put_away_what_can_be_undone(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options { nodes: vec![("node-1", true)], ..Options::default() }).await;
    rig.make_small_disk(NODE);
    rig.add_node(NODE, false).await;
    rig.until_served(NODE).await;
    rig.make_volume(&volume("v")).await;
    rig.make_claim(&volume_claim("c", "v", NODE)).await;
    rig.until_ready("c").await;
    let uid = rig.read_attachment_of("c").await.metadata.uid.unwrap();
    rig.kill(NODE);
    rig.tear_records(NODE);
    rig.fill_disk(NODE);
    rig.delete_claim("c").await;
    let instances: Api<PluginInstance> = Api::all(cluster.admin.clone());
    let order = json!({"metadata": {"annotations": {UNDO_FORGOTTEN: uid, FORCE_UNDO: uid}}});
    let name = instance_name(DriverOn { driver: DRIVER, node: NODE });
    instances.patch(&name, &PatchParams::default(), &Patch::Merge(order)).await.unwrap();
    rig.run(NODE);
    rig.until_told("c", READY, "False", REASON).await;
    // Whoever writes that has looked for orders before.
    until_withheld(&rig, "No space left on device").await;
    let files = rig.records(NODE);
    assert!(files.iter().all(|file| !file.ends_with("dismissed")), "{files:?}");
    rig.empty_disk(NODE);
    rig.until_claim_gone("c").await;
    assert_undone(&rig, "v");
    rig.remove(&[""; 0], &["v"]).await;
}

/// The cases of this module.
pub const CASES: &[Case] = cases![
    a_disk_that_turns_read_only,
    a_disk_that_is_full,
    a_record_that_is_torn,
    records_that_are_lost,
    an_order_does_not_put_away_what_can_be_undone,
];
