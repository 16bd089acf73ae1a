//! The storage says otherwise than moor's objects: what is found and told, and that nothing is done (rule R11, trap B15).

use std::sync::Arc;

use crate::cases;
use crate::rig::{Case, Cluster, Options, Rig, registered, volume, volume_claim};
use moor::api::conditions::{Condition, DRIFTED};
use moor::csi::Rpc;
use moor::csi::proto::csi::v1::ControllerUnpublishVolumeRequest;
use prost::Message as _;

const HERE: &str = "node-1";
const THERE: &str = "node-2";

async fn start(cluster: &Arc<Cluster>) -> Arc<Rig> {
    // No call ends before its driver answers.
    Rig::start(cluster, Options { audit_interval: 1, longest_call: 600, ..Options::default() }).await
}

/// Somebody else attaches the volume, as far as moor can tell.
fn attach_by_hand(rig: &Rig, key: &str, node: &str) {
    rig.fake.backend().volumes.get_mut(key).unwrap().attached.insert(node.to_owned(), Vec::new());
}

fn is_attached(rig: &Rig, key: &str, node: &str) -> bool {
    rig.fake.backend().volumes[key].attached.contains_key(node)
}

/// How often the driver was asked to detach the volume from the node.
fn detachments(rig: &Rig, key: &str, node: &str) -> usize {
    let calls = rig.journal.calls_of(key);
    let calls = calls.iter().filter_map(|entry| entry.call());
    let detaching = calls.filter(|call| call.rpc == Rpc::ControllerUnpublishVolume);
    let nodes = detaching
        .map(|call| ControllerUnpublishVolumeRequest::decode(call.arguments.as_slice()).unwrap().node_id);
    nodes.filter(|id| id == node).count()
}

fn listings(rig: &Rig, since: usize) -> usize {
    let of = |entry: &crate::rig::Entry| entry.call().is_some_and(|call| call.rpc == Rpc::ListVolumes);
    rig.journal.since(since, of).iter().filter(|entry| entry.is_ok()).count()
}

/// Waits for listings that began after now. Each that shows nothing new is twice as long in coming as the one before, up to
/// sixteen times the interval, so a case that asks for several waits for most of a minute.
async fn until_listed(rig: &Rig, times: usize) {
    let since = rig.journal.now();
    let listed = || (listings(rig, since) >= times).then_some(());
    rig.cluster.until("the driver is listed", listed, || format!("{} times", listings(rig, since))).await;
}

async fn until_condition(rig: &Rig, name: &str, status: &str) -> Condition {
    let look = || {
        let conditions = rig.cluster.volume(name)?.status.as_ref()?.conditions.clone();
        conditions.into_iter().find(|c| c.type_ == DRIFTED && c.status == status)
    };
    rig.cluster.until(&format!("{name} is Drifted={status}"), look, || rig.story(name)).await
}

async fn remove(rig: &Rig, names: &[&str]) {
    for name in names {
        rig.delete_claim(name).await;
        rig.until_claim_gone(name).await;
        rig.delete_volume(name).await;
        rig.until_volume_gone(name).await;
    }
    rig.assert_nothing_left().await;
}

/// In use on one node, and attached to another one too: told, with what to do, and left to people.
async fn an_attachment_that_nobody_claims_is_only_reported(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    rig.make_volume(&volume("twice")).await;
    rig.make_claim(&volume_claim("twice", "twice", HERE)).await;
    rig.until_ready("twice").await;
    let calls = rig.journal.calls_of("twice").len();
    attach_by_hand(&rig, "twice", THERE);
    let told = until_condition(&rig, "twice", "True").await;
    assert_eq!(told.reason, "AttachmentUnexpected", "{}", told.message);
    assert!(told.message.contains(&format!("spec.nodeName {THERE}")), "{}", told.message);
    until_listed(&rig, 1).await;
    assert_eq!(rig.journal.calls_of("twice").len(), calls, "{}", rig.story("twice"));
    assert!(is_attached(&rig, "twice", THERE) && is_attached(&rig, "twice", HERE));
    rig.fake.backend().volumes.get_mut("twice").unwrap().attached.remove(THERE);
    until_condition(&rig, "twice", "False").await;

    // Nothing differs any more: listings go on and nothing is written.
    until_listed(&rig, 1).await;
    let since = rig.journal.now();
    until_listed(&rig, 1).await;
    let writes = rig.journal.since(since, |e| e.write().is_some_and(|w| w.kind != "leases"));
    assert!(writes.is_empty(), "{}", crate::rig::Journal::text(&writes));
    remove(&rig, &["twice"]).await;
}

/// What the condition says: a claim for that node takes the attachment over, and its end detaches it.
async fn a_claim_for_that_node_detaches_it(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    rig.make_volume(&volume("left")).await;
    rig.until_volume_ready("left").await;
    attach_by_hand(&rig, "left", THERE);
    until_condition(&rig, "left", "True").await;
    rig.make_claim(&volume_claim("sweeper", "left", THERE)).await;
    rig.until_ready("sweeper").await;
    until_condition(&rig, "left", "False").await;
    assert_eq!(detachments(&rig, "left", THERE), 0);
    rig.delete_claim("sweeper").await;
    rig.until_claim_gone("sweeper").await;
    assert!(!is_attached(&rig, "left", THERE));
    assert_eq!(detachments(&rig, "left", THERE), 1);
    rig.delete_volume("left").await;
    rig.until_volume_gone("left").await;
    rig.assert_nothing_left().await;
}

/// The driver attaches a volume of one node to no second one. A claim for another node waits for what the driver names,
/// says what to do, and is attached when that is over.
async fn a_claim_elsewhere_waits_for_what_the_driver_names(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    rig.make_volume(&volume("taken")).await;
    rig.until_volume_ready("taken").await;
    attach_by_hand(&rig, "taken", THERE);
    rig.make_claim(&volume_claim("waits", "taken", HERE)).await;
    let words = ["FailedPrecondition", "taken is attached to node-2", "storage's own tools", "spec.nodeName"];
    rig.until_says("waits", "Attaching", &words).await;
    until_listed(&rig, 2).await;
    assert_eq!(rig.journal.trace_of("taken").iter().filter(|call| **call == "NodeStageVolume").count(), 0);
    rig.fake.backend().volumes.get_mut("taken").unwrap().attached.remove(THERE);
    rig.until_ready("waits").await;
    rig.delete_claim("waits").await;
    rig.until_claim_gone("waits").await;
    rig.delete_volume("taken").await;
    rig.until_volume_gone("taken").await;
    rig.assert_nothing_left().await;
}

/// A registered volume may be somebody else's too.
async fn a_registered_volume_is_only_reported(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    let handle = rig.fake.backend().add("theirs");
    rig.make_volume(&registered("theirs", &handle)).await;
    rig.until_volume_ready("theirs").await;
    attach_by_hand(&rig, "theirs", THERE);
    let told = until_condition(&rig, "theirs", "True").await;
    assert!(told.message.contains("registered") && told.message.contains(THERE), "{}", told.message);
    until_listed(&rig, 3).await;
    assert!(is_attached(&rig, "theirs", THERE));
    assert_eq!(detachments(&rig, "theirs", THERE), 0);
    rig.fake.backend().volumes.get_mut("theirs").unwrap().attached.clear();
    until_condition(&rig, "theirs", "False").await;
    rig.delete_volume("theirs").await;
    rig.until_volume_gone("theirs").await;
    rig.assert_nothing_left().await;
}

/// Detached behind a workload's back: told, with the claim's name, and left to people.
async fn an_attachment_that_vanished_is_only_reported(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    rig.make_volume(&volume("vanished")).await;
    rig.make_claim(&volume_claim("vanished", "vanished", HERE)).await;
    rig.until_ready("vanished").await;
    let calls = rig.journal.calls_of("vanished").len();
    let arguments = rig.fake.backend().volumes.get_mut("vanished").unwrap().attached.remove(HERE).unwrap();
    let told = until_condition(&rig, "vanished", "True").await;
    assert_eq!(told.reason, "AttachmentMissing", "{}", told.message);
    assert!(told.message.contains("default/vanished") && told.message.contains(HERE), "{}", told.message);
    until_listed(&rig, 2).await;
    assert_eq!(rig.journal.calls_of("vanished").len(), calls, "{}", rig.story("vanished"));
    rig.fake.backend().volumes.get_mut("vanished").unwrap().attached.insert(HERE.to_owned(), arguments);
    until_condition(&rig, "vanished", "False").await;
    remove(&rig, &["vanished"]).await;
}

/// The cases of this module.
pub const CASES: &[Case] = cases![
    an_attachment_that_nobody_claims_is_only_reported,
    a_claim_for_that_node_detaches_it,
    a_claim_elsewhere_waits_for_what_the_driver_names,
    a_registered_volume_is_only_reported,
    an_attachment_that_vanished_is_only_reported,
];
