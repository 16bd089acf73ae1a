//! Whoever goes away on the way of a VolumeSnapshot, the end is the same. `MOOR_RIG=all` takes every write of the leader.

use std::sync::Arc;

use moor::csi::Rpc;
use serde_json::json;

use super::super::provision::class;
use super::super::snapshots::objects::sources;
use super::objects::of;
use super::start;
use crate::rig::{CONTROLLER, Cluster, Entry, Options, Rig, Victim, Walk, is_whole};

/// A VolumeSnapshot of a claim that is there, a volume that is made of it, and the end of both.
const WALK: Walk = Walk {
    prepare: |rig, key| Box::pin(async move { rig.make_claim_of(&format!("of-{key}")).await }),
    go: |rig, key| Box::pin(async move { go(&rig, &key).await }),
    is_step,
    passes: &[
        "POST snapshots",
        "PATCH volumesnapshotcontents/status",
        "DELETE snapshots",
        "PUT volumesnapshotcontents",
    ],
};

fn is_step(entry: &Entry) -> bool {
    let Some(write) = entry.write().filter(|_| entry.actor == CONTROLLER) else { return false };
    let concerns = ["snapshots", "volumesnapshotcontents"].contains(&write.kind.as_str());
    let label = write.label();
    let comes_or_goes = label == "POST snapshots" || label == "DELETE snapshots";
    concerns && (is_whole() || comes_or_goes || write.kind == "volumesnapshotcontents")
}

/// The leader is killed right before and right after each of its writes, and the next one goes on.
pub async fn the_leader_may_die_at_every_write(cluster: Arc<Cluster>) {
    let scene = start(&cluster, Options::default()).await;
    WALK.sweep(&scene.rig, Victim::Maker).await;
}

pub async fn the_api_server_may_go_away_at_every_write(cluster: Arc<Cluster>) {
    let scene = start(&cluster, Options::default()).await;
    WALK.sweep(&scene.rig, Victim::ApiServer).await;
}

async fn go(rig: &Rig, key: &str) {
    let (volume, restored) = (format!("of-{key}"), format!("restored-{key}"));
    rig.make_snapshot_class(key, key, "Delete", json!({})).await;
    rig.make_vs(key, key, &volume).await;
    let content = rig.until_vs_ready(key).await;
    rig.make_class(&class(&restored, &json!({ "parameters": { "key": restored } }))).await;
    rig.make_pvc(&restored, &restored, of(key)).await;
    rig.until_bound(&restored).await;
    assert_eq!(sources(rig, &restored), [format!("snap-{key}")]);
    rig.delete_vs(key).await;
    rig.until_vs_gone(key).await;
    rig.until_content_gone(&content.metadata.name.unwrap()).await;
    rig.until_nothing_kept().await;
    assert!(!rig.fake.backend().snapshots.contains_key(key), "the snapshot is left");
    if key == Walk::UNDISTURBED {
        let count = (rig.count(&volume, Rpc::CreateSnapshot), rig.count(key, Rpc::DeleteSnapshot));
        assert_eq!(count, (1, 1));
    }
    for claim in [&restored, &volume] {
        rig.delete_pvc(claim).await;
        rig.delete_class(claim).await;
    }
    rig.delete_snapshot_class(key).await;
    rig.until_nothing_provisioned().await;
    rig.until_nothing_left().await;
}
