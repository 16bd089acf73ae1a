//! Whoever goes away on the way of an export, the end is the same. `MOOR_RIG=all` takes every write of the leader; without it
//! the sweep takes those of what Kubernetes sees.

use std::sync::Arc;

use moor::csi::Rpc;

use super::{exported, start, until_exported, until_nothing_exported};
use crate::rig::{CONTROLLER, Cluster, Entry, ON_THE_PATH, Rig, Victim, Walk, is_whole};

const WALK: Walk = Walk {
    prepare: Walk::nothing,
    go: |rig, key| Box::pin(async move { go(&rig, &key).await }),
    is_step: |entry| {
        let label = entry.label();
        let is_seen = label.contains("persistentvolume") || label == "PATCH volumes/status";
        let is_written = entry.write().is_some_and(|write| ON_THE_PATH.contains(&write.kind.as_str()));
        entry.actor == CONTROLLER && is_written && (is_whole() || is_seen)
    },
    passes: &[
        "POST persistentvolumes",
        "POST persistentvolumeclaims",
        "DELETE persistentvolumes",
        "DELETE persistentvolumeclaims",
        "PATCH volumes/status",
    ],
};

/// The leader is killed right before and right after each of its writes, and the next one goes on.
pub async fn the_leader_may_die_at_every_write(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    WALK.sweep(&rig, Victim::Maker).await;
}

pub async fn the_api_server_may_go_away_at_every_write(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    WALK.sweep(&rig, Victim::ApiServer).await;
}

/// From the beginning to the end. Whatever happens on the way: one PersistentVolume is exported at a time, and nothing is left.
async fn go(rig: &Arc<Rig>, key: &str) {
    rig.make_volume(&exported(key)).await;
    let persistent = until_exported(rig, key, key).await;
    let export = rig.volume_api().get(key).await.unwrap().status.unwrap().export.unwrap();
    assert_eq!(export.persistent_volume_uid, persistent.metadata.uid);
    rig.delete_volume(key).await;
    rig.until_volume_gone(key).await;
    until_nothing_exported(rig).await;
    assert!(!rig.has_storage(key), "the storage is left");
    // Of a call whose answer could not be written nobody knows, and it is made again, as the same one.
    let calls = rig.journal.calls_of(key);
    let mut made = calls.iter().filter_map(Entry::call).filter(|call| call.rpc == Rpc::CreateVolume);
    let first = made.next().expect("its storage was made");
    assert!(made.all(|call| call.arguments == first.arguments), "{}", rig.story(key));
    rig.until_nothing_left().await;
}
