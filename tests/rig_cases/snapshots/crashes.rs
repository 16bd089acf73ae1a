//! Whoever goes away on the way of a snapshot and of a volume that is made of it: there is one of each, and in the end none.
//! `MOOR_RIG=all` takes every write and call; without it the sweep takes the calls, and the writes about the Snapshot.

use std::sync::Arc;

use moor::api::SnapshotState;
use moor::csi::Rpc;
use serde_json::json;

use super::objects::{restored, snapshot, sources};
use super::{end, start};
use crate::rig::{CONTROLLER, Call, Cluster, Entry, ON_THE_PATH, Rig, Victim, Walk, is_whole, volume};

const SOURCE: &str = "from";
const AGENT: &str = "node-1";

const WALK: Walk = Walk {
    prepare: Walk::nothing,
    go: |rig, key| Box::pin(async move { go(&rig, &key).await }),
    is_step,
    passes: &["snapshots/status", "CreateSnapshot", "CreateVolume", "DeleteVolume", "DeleteSnapshot"],
};

fn is_step(entry: &Entry) -> bool {
    let is_written = entry.write().is_some_and(|write| {
        write.kind == "snapshots" || (is_whole() && ON_THE_PATH.contains(&write.kind.as_str()))
    });
    [CONTROLLER, AGENT].contains(&&*entry.actor) && (is_written || entry.call().is_some())
}

/// Whoever is at a request when the API server goes away waits for a quarter of a minute: without `MOOR_RIG=all` it goes away
/// in the calls about the Snapshot alone.
fn is_long_step(entry: &Entry) -> bool {
    let is_about = |call: &Call| [Rpc::CreateSnapshot, Rpc::DeleteSnapshot].contains(&call.rpc);
    is_step(entry) && (is_whole() || entry.call().is_some_and(is_about))
}

pub(super) async fn the_leader_and_the_agent_may_die_at_every_step(cluster: Arc<Cluster>) {
    sweep(&cluster, &WALK, Victim::Maker).await;
}

pub(super) async fn the_driver_may_die_in_its_calls(cluster: Arc<Cluster>) {
    sweep(&cluster, &WALK, Victim::Driver).await;
}

pub(super) async fn the_api_server_may_go_away_at_every_step(cluster: Arc<Cluster>) {
    let passes = &["CreateSnapshot", "DeleteSnapshot"];
    sweep(&cluster, &Walk { is_step: is_long_step, passes, ..WALK }, Victim::ApiServer).await;
}

async fn sweep(cluster: &Arc<Cluster>, walk: &Walk, victim: Victim) {
    let rig = start(cluster).await;
    rig.make_volume(&volume(SOURCE)).await;
    rig.until_volume_ready(SOURCE).await;
    walk.sweep(&rig, victim).await;
    end(&rig, &[], &[SOURCE]).await;
}

/// Whatever happens on the way: what is restored is of the one snapshot that there is.
async fn go(rig: &Arc<Rig>, key: &str) {
    let name = format!("s-{key}");
    rig.make_snapshot(&snapshot(&name, SOURCE)).await;
    rig.until_snapshot(&name, SnapshotState::Ready).await;
    assert!(rig.fake.backend().snapshots.keys().eq([&name]));
    rig.make_volume(&restored(key, &json!({ "snapshotName": name }))).await;
    rig.until_volume_ready(key).await;
    assert_eq!(sources(rig, key), [format!("snap-{name}")]);
    rig.delete_volume(key).await;
    rig.delete_snapshot(&name).await;
    rig.until_volume_gone(key).await;
    rig.until_snapshot_gone(&name).await;
    assert!(!rig.has_storage(key) && rig.fake.backend().snapshots.is_empty(), "something is left");
    rig.fake.assert_obeyed();
}
