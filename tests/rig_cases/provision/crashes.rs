//! The leader is killed right before and right after each of its writes on the way of a claim, and the next one goes on.
//! `MOOR_RIG=all` takes all of them; without it the sweep takes those by which something comes or goes.

use std::collections::BTreeMap;
use std::sync::Arc;

use moor::csi::Rpc;
use serde_json::json;

use super::objects::class;
use crate::rig::{Binder, CONTROLLER, Cluster, Options, Point, Rig, Side, is_whole, say};

pub async fn the_leader_may_die_at_every_write(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let _binder = Binder::start(&cluster.admin);
    let since = rig.journal.now();
    go(&rig, "clean", true).await;
    let mut ordinals: BTreeMap<String, usize> = BTreeMap::new();
    let mut points = Vec::new();
    let ours = |e: &crate::rig::Entry| {
        let on_the_path = |kind: &str| crate::rig::ON_THE_PATH.contains(&kind);
        e.actor == CONTROLLER && e.write().is_some_and(|write| on_the_path(&write.kind))
    };
    for entry in rig.journal.since(since, ours) {
        let label = entry.label();
        let next = ordinals.entry(label.clone()).or_default();
        let point = Point { actor: CONTROLLER.to_owned(), label: label.clone(), ordinal: *next };
        *next += 1;
        let comes_or_goes = label.starts_with("POST ") || label.starts_with("DELETE ");
        if is_whole() || (comes_or_goes && !label.contains("handles")) {
            points.push(point);
        }
    }
    let has = |label: &str| points.iter().any(|point| point.label == label);
    assert!(
        has("POST persistentvolumes") && has("DELETE persistentvolumes") && has("POST volumes"),
        "{points:?}"
    );
    let mut missed = 0;
    for (number, point) in points.iter().enumerate() {
        for side in [Side::Before, Side::After] {
            let key = format!("crash-{number}-{}", if side == Side::Before { "before" } else { "after" });
            let hit = rig.gate.arm(point.clone(), side);
            let (walker, its) = (rig.clone(), key.clone());
            let going = tokio::spawn(async move { go(&walker, &its, false).await });
            let reached = tokio::select! {
                hit = hit => hit.is_ok(),
                () = until_done(&going) => false,
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

async fn until_done(going: &tokio::task::JoinHandle<()>) {
    while !going.is_finished() {
        tokio::time::sleep(crate::rig::LOOK).await;
    }
}

/// A claim from its making to its end. Whatever happens on the way: one volume is made, and none is left.
async fn go(rig: &Arc<Rig>, key: &str, is_undisturbed: bool) {
    rig.make_class(&class(key, &json!({ "parameters": { "key": key } }))).await;
    let uid = rig.make_pvc(key, key, json!({})).await;
    let bound = rig.until_bound(key).await;
    assert_eq!(bound.metadata.name, Some(format!("pvc-{uid}")));
    rig.delete_pvc(key).await;
    rig.until_nothing_provisioned().await;
    assert!(!rig.fake.backend().volumes.contains_key(key), "the storage is left");
    if is_undisturbed {
        assert_eq!((rig.count(key, Rpc::CreateVolume), rig.count(key, Rpc::DeleteVolume)), (1, 1));
    }
    rig.until_nothing_left().await;
    rig.delete_class(key).await;
}
