//! Whoever goes away on the way of a copy, it is one of its source, which is let go. `MOOR_RIG=all` takes every write and call;
//! without it the sweep takes the calls, and the writes about the claims.

use std::sync::Arc;

use super::{copy_of, make, sources, start, until_gone, until_let_go};
use crate::provision::objects::list;
use crate::rig::{CONTROLLER, Cluster, Entry, ON_THE_PATH, Rig, Victim, Walk, is_whole};

const SOURCE: &str = "from";
const AGENT: &str = "node-1";

const WALK: Walk = Walk {
    prepare: Walk::nothing,
    go: |rig, key| Box::pin(async move { go(&rig, &key).await }),
    is_step,
    passes: &["PATCH persistentvolumeclaims", "CreateVolume", "DeleteVolume"],
};

fn is_step(entry: &Entry) -> bool {
    let is_written = entry.write().is_some_and(|write| {
        write.kind == "persistentvolumeclaims" || (is_whole() && ON_THE_PATH.contains(&write.kind.as_str()))
    });
    [CONTROLLER, AGENT].contains(&&*entry.actor) && (is_written || entry.call().is_some())
}

pub(super) async fn the_leader_and_the_agent_may_die_at_every_step(cluster: Arc<Cluster>) {
    sweep(&cluster, Victim::Maker).await;
}

pub(super) async fn the_driver_may_die_in_its_calls(cluster: Arc<Cluster>) {
    sweep(&cluster, Victim::Driver).await;
}

pub(super) async fn the_api_server_may_go_away_at_every_step(cluster: Arc<Cluster>) {
    sweep(&cluster, Victim::ApiServer).await;
}

async fn sweep(cluster: &Arc<Cluster>, victim: Victim) {
    let (rig, _binder) = start(cluster).await;
    make(&rig, SOURCE, serde_json::json!({})).await;
    rig.until_bound(SOURCE).await;
    WALK.sweep(&rig, victim).await;
    super::end(&rig, &[SOURCE]).await;
    until_gone(&rig, SOURCE).await;
    assert!(list(&rig.pvc_api()).await.is_empty(), "a PersistentVolumeClaim is left");
}

/// Whatever happens on the way: the source is let go once the copy is there, and nothing is left of the copy when it goes.
async fn go(rig: &Arc<Rig>, key: &str) {
    let uid = make(rig, key, copy_of(SOURCE)).await;
    rig.until_bound(key).await;
    until_let_go(rig, SOURCE).await;
    let copied = sources(rig, key);
    assert!(!copied.is_empty() && copied.iter().all(|source| source.as_deref() == Some("vol-from")));
    rig.delete_pvc(key).await;
    until_gone(rig, key).await;
    rig.until_volume_of_claim_gone(&uid).await;
    assert!(!rig.has_storage(key), "the storage of the copy is left");
}
