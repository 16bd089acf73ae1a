//! The leader is killed right before and right after each of its writes on the way of an export, and the next one goes on.
//! `MOOR_RIG=all` takes all of them; without it the sweep takes those of what Kubernetes sees.

use std::collections::BTreeMap;
use std::sync::Arc;

use moor::csi::Rpc;

use super::{exported, start, until_exported, until_nothing_exported};
use crate::rig::{CONTROLLER, Cluster, Entry, ON_THE_PATH, Point, Rig, Side, is_whole, say};

pub async fn the_leader_may_die_at_every_write(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    let since = rig.journal.now();
    go(&rig, "clean").await;
    let mut ordinals: BTreeMap<String, usize> = BTreeMap::new();
    let ours = |e: &Entry| {
        e.actor == CONTROLLER && e.write().is_some_and(|write| ON_THE_PATH.contains(&write.kind.as_str()))
    };
    let mut points = Vec::new();
    for entry in rig.journal.since(since, ours) {
        let label = entry.label();
        let next = ordinals.entry(label.clone()).or_default();
        let point = Point { actor: CONTROLLER.to_owned(), label: label.clone(), ordinal: *next };
        *next += 1;
        if is_whole() || label.contains("persistentvolume") || label == "PATCH volumes/status" {
            points.push(point);
        }
    }
    for label in [
        "POST persistentvolumes",
        "POST persistentvolumeclaims",
        "DELETE persistentvolumes",
        "DELETE persistentvolumeclaims",
        "PATCH volumes/status",
    ] {
        assert!(points.iter().any(|point| point.label == label), "{label}: {points:?}");
    }
    let mut missed = 0;
    for (number, point) in points.iter().enumerate() {
        for side in [Side::Before, Side::After] {
            let key = format!("crash-{number}-{}", if side == Side::Before { "before" } else { "after" });
            let hit = rig.gate.arm(point.clone(), side);
            let (walker, its) = (rig.clone(), key.clone());
            let going = tokio::spawn(async move { go(&walker, &its).await });
            let reached = tokio::select! {
                hit = hit => hit.is_ok(),
                () = until_ended(&going) => false,
            };
            if reached {
                rig.kill(CONTROLLER);
                rig.gate.disarm();
                rig.run(CONTROLLER);
            } else {
                rig.gate.disarm();
                missed += 1;
            }
            going.await.unwrap_or_else(|panicked| panic!("{side:?} {point}: {panicked}"));
            say(&format!("  {side:?} {point}{}", if reached { "" } else { ", did not come up" }));
        }
    }
    // A write that meets another's is made twice, which no run can be made to do.
    assert!(missed * 4 <= points.len() * 2, "{missed} of {} did not come up", points.len() * 2);
}

async fn until_ended(going: &tokio::task::JoinHandle<()>) {
    while !going.is_finished() {
        tokio::time::sleep(crate::rig::LOOK).await;
    }
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
    assert!(!rig.fake.backend().volumes.contains_key(key), "the storage is left");
    assert_eq!(rig.count(key, Rpc::CreateVolume), 1);
    rig.until_nothing_left().await;
}
