//! The storage says otherwise than moor's objects: what is found, told and undone (rule R11, trap B15).

use std::sync::Arc;

use crate::cases;
use crate::rig::{CONTROLLER, Case, Cluster, Fault, Options, Rig, registered, volume, volume_claim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use moor::api::conditions::DRIFTED;
use moor::csi::Rpc;
use moor::csi::proto::csi::v1::ControllerUnpublishVolumeRequest;
use prost::Message as _;
use tonic::Code;

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

/// Waits for listings that began after now.
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

fn is_reported(rig: &Rig, key: &str) -> bool {
    let handles = rig.cluster.handles.state();
    let of = handles.iter().find(|handle| handle.spec.volume_handle == format!("vol-{key}"));
    of.is_some_and(|handle| handle.status.as_ref().is_some_and(|s| s.drift.is_some()))
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

/// In use on one node, and attached to another one too: detached there, once, and nothing else happens.
async fn an_attachment_that_nobody_claims_is_detached_once(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    rig.make_volume(&volume("twice")).await;
    rig.make_claim(&volume_claim("twice", "twice", HERE)).await;
    rig.until_ready("twice").await;
    // Until it was seen what is told.
    rig.fake.hold("twice", Rpc::ControllerUnpublishVolume);
    attach_by_hand(&rig, "twice", THERE);
    let told = until_condition(&rig, "twice", "True").await;
    assert_eq!(told.reason, "AttachmentUnexpected", "{}", told.message);
    assert!(told.message.contains(THERE), "{}", told.message);
    until_listed(&rig, 2).await;
    until_condition(&rig, "twice", "True").await;
    rig.fake.let_go("twice", Rpc::ControllerUnpublishVolume);
    until_condition(&rig, "twice", "False").await;
    assert!(!is_attached(&rig, "twice", THERE) && is_attached(&rig, "twice", HERE));
    assert_eq!((detachments(&rig, "twice", THERE), detachments(&rig, "twice", HERE)), (1, 0));

    // Nothing differs any more: listings go on and nothing is written.
    until_listed(&rig, 2).await;
    let since = rig.journal.now();
    until_listed(&rig, 3).await;
    let writes = rig.journal.since(since, |e| e.write().is_some_and(|w| w.kind != "leases"));
    assert!(writes.is_empty(), "{}", crate::rig::Journal::text(&writes));
    assert_eq!(detachments(&rig, "twice", THERE), 1);
    remove(&rig, &["twice"]).await;
}

/// The driver says OK and goes on listing it: moor does not go on detaching.
async fn a_driver_that_lists_it_still_is_not_asked_again(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    rig.make_volume(&volume("stuck")).await;
    rig.until_volume_ready("stuck").await;
    rig.fake.backend().stuck.insert("stuck".to_owned());
    attach_by_hand(&rig, "stuck", THERE);
    let told = || {
        let conditions = rig.cluster.volume("stuck")?.status.clone()?.conditions;
        let drifted = conditions.into_iter().find(|c| c.type_ == DRIFTED)?;
        drifted.message.contains("it was detached there").then_some(())
    };
    cluster.until("it says that it was detached", told, || rig.story("stuck")).await;
    until_listed(&rig, 3).await;
    assert!(is_reported(&rig, "stuck"));
    assert_eq!(detachments(&rig, "stuck", THERE), 1);
    rig.fake.backend().volumes.get_mut("stuck").unwrap().attached.clear();
    until_condition(&rig, "stuck", "False").await;
    rig.delete_volume("stuck").await;
    rig.until_volume_gone("stuck").await;
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

/// Reported while nobody leads, then a claim for that very node: it has the attachment, and nothing is undone.
async fn a_claim_that_arrives_first_wins(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    rig.make_volume(&volume("won")).await;
    rig.until_volume_ready("won").await;
    rig.stop(CONTROLLER).await;
    attach_by_hand(&rig, "won", THERE);
    let reported = || is_reported(&rig, "won").then_some(());
    cluster.until("the agent reports", reported, || rig.story("won")).await;
    rig.make_claim(&volume_claim("won", "won", THERE)).await;
    rig.run(CONTROLLER);
    rig.until_ready("won").await;
    until_listed(&rig, 3).await;
    let gone = || (!is_reported(&rig, "won")).then_some(());
    cluster.until("nothing differs any more", gone, || rig.story("won")).await;
    assert!(is_attached(&rig, "won", THERE));
    assert_eq!(detachments(&rig, "won", THERE), 0);
    remove(&rig, &["won"]).await;
}

/// The driver takes its time to detach: a claim for that node waits for it and is attached after it.
async fn a_claim_that_comes_later_waits_for_the_undo(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    rig.make_volume(&volume("later")).await;
    rig.until_volume_ready("later").await;
    rig.fake.fail("later", Rpc::ControllerUnpublishVolume, Fault::CodeBefore(Code::Unavailable));
    attach_by_hand(&rig, "later", THERE);
    let tried = || (detachments(&rig, "later", THERE) > 0).then_some(());
    cluster.until("it is being detached", tried, || rig.story("later")).await;
    rig.make_claim(&volume_claim("later", "later", THERE)).await;
    let waits = || {
        let waiting = rig.cluster.claim("later")?.status.clone()?.waiting_for?;
        waiting.holder.starts_with("Attachment/").then_some(())
    };
    cluster.until("the claim says whom it waits for", waits, || rig.story("later")).await;
    rig.restart(HERE);
    rig.restart(CONTROLLER);
    rig.fake.heal("later", Rpc::ControllerUnpublishVolume);
    rig.until_ready("later").await;
    let trace = rig.journal.trace_of("later");
    let last = |name: &str| trace.iter().rposition(|call| *call == name);
    let (undone, attached) = (last("ControllerUnpublishVolume"), last("ControllerPublishVolume"));
    assert!(undone < attached, "{trace:?}");
    until_condition(&rig, "later", "False").await;
    assert!(is_attached(&rig, "later", THERE));
    remove(&rig, &["later"]).await;
}

/// The cases of this module.
pub const CASES: &[Case] = cases![
    an_attachment_that_nobody_claims_is_detached_once,
    a_driver_that_lists_it_still_is_not_asked_again,
    a_registered_volume_is_only_reported,
    an_attachment_that_vanished_is_only_reported,
    a_claim_that_arrives_first_wins,
    a_claim_that_comes_later_waits_for_the_undo,
];
