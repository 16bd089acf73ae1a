//! Whoever dies on the way of a growth, the next one goes on, and nothing is asked for otherwise.

use std::sync::Arc;

use moor::csi::Rpc;

use super::{MI, ask, bound, calls, end, start, until_done};
use crate::rig::fake::backend::Expand;
use crate::rig::{Cluster, Rig, Victim, Walk, changes_a_volume};

const AGENT: &str = "node-1";

const WALK: Walk = Walk {
    prepare: |rig, key| Box::pin(async move { bound(&rig, &key).await }),
    go: |rig, key| Box::pin(async move { grow(&rig, &key).await }),
    is_step: |entry| changes_a_volume(entry, Rpc::ControllerExpandVolume),
    passes: &[
        "persistentvolumeclaims",
        "persistentvolumes",
        "volumes",
        "volumes/status",
        "ControllerExpandVolume",
    ],
};

/// Each is killed right before and right after each of its writes, and the agent at the driver's call too. (At
/// NodeExpandVolume: `kubelet/larger.rs`.)
pub async fn the_leader_and_the_agent_may_die_at_every_step(cluster: Arc<Cluster>) {
    sweep(&cluster, Victim::Maker).await;
}

pub async fn the_driver_may_die_in_the_call(cluster: Arc<Cluster>) {
    sweep(&cluster, Victim::Driver).await;
}

pub async fn the_api_server_may_go_away_at_every_step(cluster: Arc<Cluster>) {
    sweep(&cluster, Victim::ApiServer).await;
}

async fn sweep(cluster: &Arc<Cluster>, victim: Victim) {
    let (rig, _binder) = start(cluster, Expand::ByController).await;
    WALK.sweep(&rig, victim).await;
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
    rig.kill(AGENT);
    rig.fake.let_go("v", Rpc::ControllerExpandVolume);
    rig.run(AGENT);
    until_done(&rig, "v", "2Mi").await;
    assert!(calls(&rig, "v").len() > 1, "{}", rig.story("v"));
    end(&rig, "v").await;
}
