//! The leader is killed right before and right after each of its writes on the way of a claim, and the next one goes on.
//! `MOOR_RIG=all` takes all of them; without it the sweep takes those by which something comes or goes.

use std::collections::BTreeMap;
use std::sync::Arc;

use moor::csi::Rpc;
use serde_json::json;

use super::objects::class;
use crate::rig::{Binder, CONTROLLER, Cluster, Options, Point, Rig, Side, is_whole, say};

/// What comes and goes.
#[derive(Clone, Copy, PartialEq)]
enum Course {
    /// A claim, for which a volume is made.
    Claim,
    /// A PersistentVolume that somebody has written by hand, whose storage is to go with it.
    Static,
}

pub async fn the_leader_may_die_at_every_write(cluster: Arc<Cluster>) {
    sweep(cluster, Course::Claim).await;
}

pub async fn the_leader_may_die_at_every_write_about_a_static_volume(cluster: Arc<Cluster>) {
    sweep(cluster, Course::Static).await;
}

async fn sweep(cluster: Arc<Cluster>, course: Course) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let _binder = Binder::start(&cluster.admin);
    let since = rig.journal.now();
    go(&rig, course, "clean", true).await;
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
        (has("POST persistentvolumes") || course == Course::Static)
            && has("DELETE persistentvolumes")
            && has("POST volumes")
            && has("DELETE volumes"),
        "{points:?}"
    );
    let mut missed = 0;
    for (number, point) in points.iter().enumerate() {
        for side in [Side::Before, Side::After] {
            let key = format!("crash-{number}-{}", if side == Side::Before { "before" } else { "after" });
            let hit = rig.gate.arm(point.clone(), side);
            let (walker, its) = (rig.clone(), key.clone());
            let going = tokio::spawn(async move { go(&walker, course, &its, false).await });
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

/// From the beginning to the end. Whatever happens on the way: no storage is left.
async fn go(rig: &Arc<Rig>, course: Course, key: &str, is_undisturbed: bool) {
    match course {
        Course::Claim => go_with_a_claim(rig, key).await,
        Course::Static => {
            rig.make_static(key, "Delete").await;
            rig.until_held(key).await;
            rig.delete_pvc(key).await;
        }
    }
    rig.until_nothing_provisioned().await;
    assert!(!rig.fake.backend().volumes.contains_key(key), "the storage is left");
    if is_undisturbed {
        let made = usize::from(course == Course::Claim);
        assert_eq!((rig.count(key, Rpc::CreateVolume), rig.count(key, Rpc::DeleteVolume)), (made, 1));
    }
    rig.until_nothing_left().await;
}

async fn go_with_a_claim(rig: &Arc<Rig>, key: &str) {
    rig.make_class(&class(key, &json!({ "parameters": { "key": key } }))).await;
    let uid = rig.make_pvc(key, key, json!({})).await;
    let bound = rig.until_bound(key).await;
    assert_eq!(bound.metadata.name, Some(format!("pvc-{uid}")));
    rig.delete_pvc(key).await;
    rig.delete_class(key).await;
}
