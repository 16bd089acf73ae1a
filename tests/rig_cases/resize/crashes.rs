//! Whoever dies on the way of a growth, the next one goes on, and nothing is asked for otherwise.

use std::sync::Arc;

use moor::csi::Rpc;

use super::{MI, ask, bound, calls, end, start, until_done};
use crate::rig::fake::backend::Expand;
use crate::rig::{CONTROLLER, Cluster, Rig, Victim, Walk};

const KINDS: [&str; 3] = ["persistentvolumeclaims", "persistentvolumes", "volumes"];

const WALK: Walk = Walk {
    prepare: |rig, key| Box::pin(async move { bound(&rig, &key).await }),
    go: |rig, key| Box::pin(async move { grow(&rig, &key).await }),
    is_step: |entry| {
        entry.actor == CONTROLLER && entry.write().is_some_and(|write| KINDS.contains(&&*write.kind))
    },
    passes: &KINDS,
};

/// The leader is killed right before and right after each of its writes.
pub async fn the_leader_may_die_at_every_write(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster, Expand::ByController).await;
    WALK.sweep(&rig, Victim::Maker).await;
}

pub async fn the_api_server_may_go_away_at_every_step(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster, Expand::ByController).await;
    WALK.sweep(&rig, Victim::ApiServer).await;
}

/// Whatever happens on the way: the claim has its size, and nothing else was asked for.
async fn grow(rig: &Arc<Rig>, key: &str) {
    ask(rig, key, "2Mi").await;
    until_done(rig, key, "2Mi").await;
    assert_eq!(rig.fake.backend().volumes[key].grown, 2 * MI);
    let sizes = calls(rig, key).into_iter().map(|call| call.capacity_range.unwrap().required_bytes);
    assert!(sizes.clone().all(|size| size == 2 * MI) && sizes.count() > 0);
}

/// What it was at is not known, so it is said again.
pub async fn an_agent_that_dies_in_the_call_repeats_it(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster, Expand::ByController).await;
    bound(&rig, "v").await;
    rig.fake.hold("v", Rpc::ControllerExpandVolume);
    ask(&rig, "v", "2Mi").await;
    rig.until_called("v", Rpc::ControllerExpandVolume).await;
    rig.kill("node-1");
    rig.fake.let_go("v", Rpc::ControllerExpandVolume);
    rig.run("node-1");
    until_done(&rig, "v", "2Mi").await;
    assert!(calls(&rig, "v").len() > 1, "{}", rig.story("v"));
    end(&rig, "v").await;
}
