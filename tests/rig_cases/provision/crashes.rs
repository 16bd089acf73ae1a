//! Whoever goes away on the way of a claim, or of a PersistentVolume that somebody has written by hand, the end is the same.
//! `MOOR_RIG=all` takes every write of the leader; without it the sweep takes those by which something comes or goes.

use std::sync::Arc;

use moor::csi::Rpc;
use serde_json::json;

use super::objects::class;
use crate::rig::{Binder, CONTROLLER, Cluster, Entry, ON_THE_PATH, Options, Rig, Victim, Walk, is_whole};

/// A claim, for which a volume is made.
const CLAIM: Walk = Walk {
    prepare: Walk::nothing,
    go: |rig, key| Box::pin(async move { go_with_a_claim(&rig, &key).await }),
    is_step,
    passes: &["POST persistentvolumes", "DELETE persistentvolumes", "POST volumes", "DELETE volumes"],
};

/// A PersistentVolume that somebody has written by hand, whose storage is to go with it.
const STATIC: Walk = Walk {
    prepare: Walk::nothing,
    go: |rig, key| Box::pin(async move { go_with_a_static_volume(&rig, &key).await }),
    is_step,
    passes: &["DELETE persistentvolumes", "POST volumes", "DELETE volumes"],
};

fn is_step(entry: &Entry) -> bool {
    let label = entry.label();
    let comes_or_goes = label.starts_with("POST ") || label.starts_with("DELETE ");
    let is_written = entry.write().is_some_and(|write| ON_THE_PATH.contains(&write.kind.as_str()));
    entry.actor == CONTROLLER && is_written && (is_whole() || (comes_or_goes && !label.contains("handles")))
}

/// The leader is killed right before and right after each of its writes, and the next one goes on.
pub async fn the_leader_may_die_at_every_write(cluster: Arc<Cluster>) {
    sweep(&cluster, &CLAIM, Victim::Maker).await;
}

pub async fn the_leader_may_die_at_every_write_about_a_static_volume(cluster: Arc<Cluster>) {
    sweep(&cluster, &STATIC, Victim::Maker).await;
}

pub async fn the_api_server_may_go_away_at_every_write(cluster: Arc<Cluster>) {
    sweep(&cluster, &CLAIM, Victim::ApiServer).await;
}

async fn sweep(cluster: &Arc<Cluster>, walk: &Walk, victim: Victim) {
    let rig = Rig::start(cluster, Options::default()).await;
    let _binder = Binder::start(&cluster.admin);
    walk.sweep(&rig, victim).await;
}

/// Whatever happens on the way: no storage is left.
async fn end(rig: &Rig, key: &str, made: usize) {
    rig.until_nothing_provisioned().await;
    assert!(!rig.has_storage(key), "the storage is left");
    if key == Walk::UNDISTURBED {
        assert_eq!((rig.count(key, Rpc::CreateVolume), rig.count(key, Rpc::DeleteVolume)), (made, 1));
    }
    rig.until_nothing_left().await;
}

async fn go_with_a_static_volume(rig: &Rig, key: &str) {
    rig.make_static(key, "Delete").await;
    rig.until_held(key).await;
    rig.delete_pvc(key).await;
    end(rig, key, 0).await;
}

async fn go_with_a_claim(rig: &Rig, key: &str) {
    rig.make_class(&class(key, &json!({ "parameters": { "key": key } }))).await;
    let uid = rig.make_pvc(key, key, json!({})).await;
    let bound = rig.until_bound(key).await;
    assert_eq!(bound.metadata.name, Some(format!("pvc-{uid}")));
    rig.delete_pvc(key).await;
    rig.delete_class(key).await;
    end(rig, key, 1).await;
}
