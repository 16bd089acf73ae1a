//! Claims that wait for a node, and what ends their wait.

use std::sync::Arc;

use moor::api::ClaimState;

use crate::rig::{CONTROLLER, Cluster, Options, Rig, volume, volume_claim};

const NODE: &str = "node-2";
const NONE: &[&str] = &[];

async fn with_volumes(cluster: &Arc<Cluster>, max_volumes: i64, names: &[String]) -> Arc<Rig> {
    let rig = Rig::start(cluster, Options { max_volumes, ..Options::default() }).await;
    for name in names {
        rig.make_volume(&volume(name)).await;
    }
    for name in names {
        rig.until_volume_ready(name).await;
    }
    rig
}

fn names(number: usize) -> Vec<String> {
    (0..number).map(|n| format!("data-{n}")).collect()
}

pub async fn a_full_node_takes_the_next_when_one_leaves(cluster: Arc<Cluster>) {
    let all = names(2);
    let rig = with_volumes(&cluster, 1, &all).await;
    rig.make_claim(&volume_claim(&all[0], &all[0], NODE)).await;
    rig.until_ready(&all[0]).await;
    rig.make_claim(&volume_claim(&all[1], &all[1], NODE)).await;
    let message = rig.until_told(&all[1], "Ready", "False", "NodeNotUsable").await;
    assert!(message.contains("limit of volumes"), "{message}");
    rig.delete_claim(&all[0]).await;
    rig.until_ready(&all[1]).await;
    rig.remove(&all[1..], &all).await;
}

/// L9. The driver refuses what is too much, and such a claim would never become Ready.
pub async fn claims_of_one_moment_do_not_overfill_a_node(cluster: Arc<Cluster>) {
    let all = names(12);
    let rig = with_volumes(&cluster, 3, &all).await;
    let claims: Vec<_> = all.iter().map(|name| volume_claim(name, name, NODE)).collect();
    futures::future::join_all(claims.iter().map(|claim| rig.make_claim(claim))).await;
    let mut waiting = all.clone();
    // Each that leaves makes room for another, until all have had their turn.
    while !waiting.is_empty() {
        let ready = |name: &String| {
            let status = rig.cluster.claim(name)?.status.clone()?;
            (status.state == ClaimState::Ready).then(|| name.clone())
        };
        let one = || waiting.iter().find_map(ready);
        let next = rig.cluster.until("one more is Ready", one, || rig.story(&waiting[0])).await;
        rig.delete_claim(&next).await;
        waiting.retain(|name| *name != next);
    }
    rig.remove(NONE, &all).await;
}

pub async fn a_node_that_is_back_in_service_takes_who_waited(cluster: Arc<Cluster>) {
    let all = names(1);
    let rig = with_volumes(&cluster, 0, &all).await;
    // A leader knows of what was there before it.
    rig.kill(CONTROLLER);
    rig.mark_out_of_service(NODE, true).await;
    rig.run(CONTROLLER);
    rig.make_claim(&volume_claim(&all[0], &all[0], NODE)).await;
    rig.until_told(&all[0], "Ready", "False", "NodeNotUsable").await;
    rig.mark_out_of_service(NODE, false).await;
    rig.until_ready(&all[0]).await;
    rig.remove(&all, &all).await;
}
