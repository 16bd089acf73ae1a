//! A volume that no claim uses any more stays attached for a while, unless somebody wants it otherwise (ADR 27).
//!
//! Nothing here is timed: where the time must not end it is an hour, and no case waits for that.

use std::sync::Arc;

use kube::Api;
use kube::api::ListParams;
use moor::api::{Attachment, AttachmentState};
use moor::csi::Rpc;
use serde_json::json;

use crate::cases;
use crate::rig::{CONTROLLER, Case, Cluster, Options, Rig, volume, volume_claim};

const HOUR: u32 = 3600;
const NO_CLAIM: [&str; 0] = [];
const ONCE: [&str; 6] = [
    "ControllerPublishVolume",
    "NodeStageVolume",
    "NodePublishVolume",
    "NodeUnpublishVolume",
    "NodeUnstageVolume",
    "ControllerUnpublishVolume",
];

async fn start(cluster: &Arc<Cluster>) -> Arc<Rig> {
    Rig::start(cluster, Options { linger: HOUR, ..Options::default() }).await
}

/// A claim `c` of a volume `v` was on node-2 and is gone; the volume lingers there.
async fn lingering(rig: &Rig) -> Attachment {
    rig.make_volume(&volume("v")).await;
    used_once(rig, "c", "node-2").await
}

/// Makes a claim, waits until it is Ready, deletes it and waits until it is gone. Returns its Attachment, which lingers.
async fn used_once(rig: &Rig, claim: &str, node: &str) -> Attachment {
    rig.make_claim(&volume_claim(claim, "v", node)).await;
    rig.until_ready(claim).await;
    let before = rig.read_attachment_of(claim).await;
    rig.delete_claim(claim).await;
    rig.until_claim_gone(claim).await;
    let now = attachments(rig).await;
    let same = now.iter().find(|a| a.metadata.uid == before.metadata.uid);
    let lingers = same.unwrap_or_else(|| panic!("it is gone: {now:?}"));
    assert_eq!(lingers.metadata.deletion_timestamp, None, "it closes");
    assert_eq!(lingers.status.as_ref().unwrap().state, AttachmentState::Attached);
    lingers.clone()
}

async fn attachments(rig: &Rig) -> Vec<Attachment> {
    let all: Api<Attachment> = Api::all(rig.cluster.admin.clone());
    all.list(&ListParams::default()).await.unwrap().items
}

/// Waits until the volume is detached for the time that is said.
async fn until_detached(rig: &Rig, times: usize) {
    let detached = || (rig.count("v", Rpc::ControllerUnpublishVolume) >= times).then_some(());
    rig.cluster.until("the volume is detached", detached, || rig.story("v")).await;
}

/// The calls about the volume after CreateVolume or the like: those that attach and mount, and their inverses.
fn calls(rig: &Rig) -> Vec<&'static str> {
    rig.journal.trace_of("v").into_iter().filter(|rpc| ONCE.contains(rpc)).collect()
}

/// Staged and published again, under the same Attachment, and neither detached nor attached.
async fn a_claim_that_comes_back_finds_its_volume_attached(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    let first = lingering(&rig).await;
    let second = used_once(&rig, "c", "node-2").await;
    assert_eq!(first.metadata.uid, second.metadata.uid);
    let mounted = &ONCE[1..5];
    assert_eq!(calls(&rig), [&ONCE[..1], mounted, mounted].concat());
    rig.remove(&NO_CLAIM, &["v"]).await;
    assert_eq!(calls(&rig), [&ONCE[..1], mounted, mounted, &ONCE[5..]].concat());
}

/// A claim that may not be beside the one before it waits for that one's end, and not for another Attachment.
async fn a_claim_that_waits_for_the_one_before_joins_what_that_one_leaves(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    let alone = json!([{"accessMode": "SingleNodeSingleWriter"}]);
    let mut exclusive = volume("v");
    exclusive.spec.capabilities = serde_json::from_value(alone).unwrap();
    rig.make_volume(&exclusive).await;
    let claim = |name| {
        let mut claim = volume_claim(name, "v", "node-2");
        claim.spec.access_mode = serde_json::from_value(json!("SingleNodeSingleWriter")).unwrap();
        claim
    };
    rig.make_claim(&claim("before")).await;
    rig.until_ready("before").await;
    rig.make_claim(&claim("after")).await;
    rig.until_told("after", "Ready", "False", "Held").await;
    rig.delete_claim("before").await;
    rig.until_ready("after").await;
    let mounts = [&ONCE[..5], &ONCE[1..3]].concat();
    assert_eq!(calls(&rig), mounts);
    rig.remove(&["before", "after"], &["v"]).await;
}

/// Whoever wants the volume on another node does not wait for the time.
async fn another_node_takes_the_volume_over_at_once(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    lingering(&rig).await;
    rig.make_claim(&volume_claim("other", "v", "node-1")).await;
    rig.until_ready("other").await;
    assert_eq!(calls(&rig), [&ONCE[..], &ONCE[..3]].concat());
    rig.remove(&["other"], &["v"]).await;
}

/// Nor does who wants it in another mode, on the same node.
async fn another_mode_does_not_wait(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    let mut both = volume("v");
    let modes = json!([{"accessMode": "SingleNodeWriter"}, {"accessMode": "MultiNodeMultiWriter"}]);
    both.spec.capabilities = serde_json::from_value(modes).unwrap();
    rig.make_volume(&both).await;
    used_once(&rig, "c", "node-2").await;
    let mut many = volume_claim("many", "v", "node-2");
    many.spec.access_mode = serde_json::from_value(json!("MultiNodeMultiWriter")).unwrap();
    rig.make_claim(&many).await;
    rig.until_ready("many").await;
    assert_eq!(calls(&rig), [&ONCE[..], &ONCE[..3]].concat());
    rig.remove(&["many"], &["v"]).await;
}

/// Nor does who deletes the Volume.
async fn a_volume_that_is_deleted_does_not_wait(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    lingering(&rig).await;
    rig.remove(&NO_CLAIM, &["v"]).await;
    assert_eq!(calls(&rig), ONCE);
}

/// A node that is cordoned, as for a drain, keeps nothing.
async fn a_node_that_is_cordoned_keeps_nothing(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    lingering(&rig).await;
    rig.cordon("node-2", true).await;
    until_detached(&rig, 1).await;
    assert_eq!(calls(&rig), ONCE);

    // Nor does anything begin to linger there.
    rig.make_claim(&volume_claim("c", "v", "node-2")).await;
    rig.until_ready("c").await;
    rig.delete_claim("c").await;
    rig.until_claim_gone("c").await;
    until_detached(&rig, 2).await;
    assert_eq!(calls(&rig), [ONCE, ONCE].concat());
    rig.remove(&NO_CLAIM, &["v"]).await;
}

/// A claim of another Volume waits for room on the node.
async fn a_full_node_makes_room(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options { linger: HOUR, max_volumes: 1, ..Options::default() }).await;
    lingering(&rig).await;
    rig.make_volume(&volume("w")).await;
    rig.make_claim(&volume_claim("w", "w", "node-2")).await;
    rig.until_ready("w").await;
    assert_eq!(calls(&rig), ONCE);
    rig.remove(&["w"], &["v", "w"]).await;
}

/// The next leader begins to count when it first sees the volume unused: it closes nothing, and a claim still joins.
async fn the_next_leader_lets_it_linger(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    let first = lingering(&rig).await;
    rig.restart_and_wait(CONTROLLER).await;
    let second = used_once(&rig, "c", "node-2").await;
    assert_eq!(first.metadata.uid, second.metadata.uid);
    rig.restart_and_wait("node-2").await;
    rig.make_claim(&volume_claim("other", "v", "node-1")).await;
    rig.until_ready("other").await;
    assert_eq!(calls(&rig), [&ONCE[..5], &ONCE[1..], &ONCE[..3]].concat());
    rig.remove(&["other"], &["v"]).await;
}

/// The time ends by itself, and nothing else has to happen.
async fn the_time_ends(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options { linger: 1, ..Options::default() }).await;
    rig.make_volume(&volume("v")).await;
    rig.make_claim(&volume_claim("c", "v", "node-2")).await;
    rig.until_ready("c").await;
    rig.delete_claim("c").await;
    rig.until_claim_gone("c").await;
    until_detached(&rig, 1).await;
    assert_eq!(calls(&rig), ONCE);
    rig.remove(&NO_CLAIM, &["v"]).await;
}

/// The cases of this module.
pub const CASES: &[Case] = cases![
    a_claim_that_comes_back_finds_its_volume_attached,
    a_claim_that_waits_for_the_one_before_joins_what_that_one_leaves,
    another_node_takes_the_volume_over_at_once,
    another_mode_does_not_wait,
    a_volume_that_is_deleted_does_not_wait,
    a_node_that_is_cordoned_keeps_nothing,
    a_full_node_makes_room,
    the_next_leader_lets_it_linger,
    the_time_ends,
];
