//! Whoever dies while nodes follow, the next one goes on.

use std::sync::Arc;

use moor::csi::Rpc;

use super::{MI, NODE, asked, claim, end, make, raise, start, until_grown};
use crate::rig::fake::backend::Expand;
use crate::rig::{CONTROLLER, Cluster, Entry, Rig, Victim, Walk, volume, volume_claim};

const WALK: Walk = Walk {
    prepare: |rig, key| Box::pin(async move { prepare(&rig, &key).await }),
    go: |rig, key| Box::pin(async move { grow(&rig, &key).await }),
    is_step,
    passes: &["attachments", "attachments/status", "volumes/status", "NodeExpandVolume"],
};

/// What the leader and the node's agent do after the storage has the size, and what orders that.
fn is_step(entry: &Entry) -> bool {
    let kinds = ["attachments", "volumes"];
    let writes = entry.write().is_some_and(|write| kinds.contains(&&*write.kind));
    let calls = entry.call().is_some_and(|call| call.rpc == Rpc::NodeExpandVolume);
    [CONTROLLER, NODE].contains(&&*entry.actor) && (writes || calls)
}

async fn prepare(rig: &Rig, key: &str) {
    rig.make_volume(&volume(key)).await;
    rig.make_claim(&volume_claim(key, key, NODE)).await;
    rig.until_ready(key).await;
}

/// The volume has the size on its node, and was asked for no other.
async fn grow(rig: &Rig, key: &str) {
    raise(rig, key, "3Mi").await.unwrap();
    until_grown(rig, key, "3Mi").await;
    assert_eq!(rig.fake.backend().volumes[key].grown_on[NODE], 3 * MI);
    let sizes: Vec<_> = asked(rig, key).iter().map(|r| r.capacity_range.unwrap().required_bytes).collect();
    assert!(!sizes.is_empty() && sizes.iter().all(|size| *size == 3 * MI), "{sizes:?}");
    rig.until_ready(key).await;
}

pub async fn the_leader_and_the_agent_may_die_at_every_step(cluster: Arc<Cluster>) {
    let rig = start(&cluster, Expand::AndNodes).await;
    WALK.sweep(&rig, Victim::Maker).await;
}

/// Nobody has written that it was made, so it is made again.
pub async fn an_agent_that_dies_in_the_call_repeats_it(cluster: Arc<Cluster>) {
    let rig = start(&cluster, Expand::AndNodes).await;
    make(&rig).await;
    let path = claim(&rig, "c", NODE).await;
    rig.fake.hold("v", Rpc::NodeExpandVolume);
    raise(&rig, "v", "3Mi").await.unwrap();
    rig.until_called("v", Rpc::NodeExpandVolume).await;
    rig.kill(NODE);
    rig.fake.let_go("v", Rpc::NodeExpandVolume);
    rig.run(NODE);
    until_grown(&rig, "v", "3Mi").await;
    assert!(asked(&rig, "v").len() > 1, "{}", rig.story("v"));
    assert_eq!(rig.until_ready("c").await, path);
    assert_eq!(rig.count("v", Rpc::NodePublishVolume), 1, "{}", rig.story("v"));
    end(&rig, &["c"]).await;
}
