//! Whoever dies on the way of a modification, the next one goes on, and nothing else is asked for in between.

use std::sync::Arc;

use moor::csi::Rpc;

use super::{ask, asked, assert_gold_before_silver, bound, end, has, start, tier, tiers, until_done};
use crate::rig::{Cluster, Rig, Victim, Walk, changes_a_volume};

const AGENT: &str = "node-1";

const WALK: Walk = Walk {
    prepare: |rig, key| Box::pin(async move { bound(&rig, &key, None).await }),
    go: |rig, key| Box::pin(async move { modify(&rig, &key).await }),
    is_step: |entry| changes_a_volume(entry, Rpc::ControllerModifyVolume),
    passes: &[
        "persistentvolumeclaims",
        "persistentvolumes",
        "volumes",
        "volumes/status",
        "ControllerModifyVolume",
    ],
};

/// Each is killed right before and right after each of its writes, and the agent at the driver's call too.
pub async fn the_leader_and_the_agent_may_die_at_every_step(cluster: Arc<Cluster>) {
    sweep(&cluster, Victim::Maker).await;
}

pub async fn the_api_server_may_go_away_at_every_step(cluster: Arc<Cluster>) {
    sweep(&cluster, Victim::ApiServer).await;
}

async fn sweep(cluster: &Arc<Cluster>, victim: Victim) {
    let (rig, _binder) = start(cluster).await;
    tiers(&rig, &["gold"]).await;
    WALK.sweep(&rig, victim).await;
}

/// Whatever happens on the way: the claim has its class, and nothing else was asked for.
async fn modify(rig: &Arc<Rig>, key: &str) {
    ask(rig, key, Some("gold")).await;
    until_done(rig, key, "gold").await;
    assert_eq!(has(rig, key), tier("gold"));
    let all = asked(rig, key);
    assert!(!all.is_empty() && all.iter().all(|parameters| *parameters == tier("gold")), "{all:?}");
}

/// What the driver was at is not known, also to whoever wants something else by now.
pub async fn an_agent_that_dies_in_the_call_repeats_it_before_another(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    tiers(&rig, &["gold", "silver"]).await;
    bound(&rig, "v", None).await;
    rig.fake.hold("v", Rpc::ControllerModifyVolume);
    ask(&rig, "v", Some("gold")).await;
    rig.until_called("v", Rpc::ControllerModifyVolume).await;
    rig.kill(AGENT);
    ask(&rig, "v", Some("silver")).await;
    rig.fake.let_go("v", Rpc::ControllerModifyVolume);
    rig.run(AGENT);
    until_done(&rig, "v", "silver").await;
    assert_gold_before_silver(&rig, "v");
    end(&rig, "v").await;
}
