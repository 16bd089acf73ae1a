//! Whoever dies on the way of a growth, the next one goes on, and nothing is asked for otherwise.

use std::collections::BTreeMap;
use std::sync::Arc;

use moor::csi::Rpc;

use super::{MI, ask, bound, calls, end, start, until_done};
use crate::rig::fake::backend::Expand;
use crate::rig::{CONTROLLER, Cluster, Entry, Point, Rig, Side, say};

/// The leader is killed right before and right after each of its writes.
pub async fn the_leader_may_die_at_every_write(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster, Expand::ByController).await;
    bound(&rig, "clean").await;
    let since = rig.journal.now();
    grow(&rig, "clean").await;
    let mut ordinals: BTreeMap<String, usize> = BTreeMap::new();
    let kinds = ["persistentvolumeclaims", "persistentvolumes", "volumes"];
    let ours =
        |e: &Entry| e.actor == CONTROLLER && e.write().is_some_and(|w| kinds.contains(&w.kind.as_str()));
    let points: Vec<_> = rig
        .journal
        .since(since, ours)
        .into_iter()
        .map(|entry| {
            let label = entry.label();
            let next = ordinals.entry(label.clone()).or_default();
            *next += 1;
            Point { actor: CONTROLLER.to_owned(), label, ordinal: *next - 1 }
        })
        .collect();
    for kind in kinds {
        assert!(points.iter().any(|point| point.label.contains(kind)), "{kind}: {points:?}");
    }
    let mut missed = 0;
    for (number, point) in points.iter().enumerate() {
        for side in [Side::Before, Side::After] {
            let key = format!("crash-{number}-{}", if side == Side::Before { "before" } else { "after" });
            bound(&rig, &key).await;
            let hit = rig.gate.arm(point.clone(), side);
            let (walker, its) = (rig.clone(), key.clone());
            let going = tokio::spawn(async move { grow(&walker, &its).await });
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

/// Whatever happens on the way: the claim has its size, and nothing else was asked for.
async fn grow(rig: &Arc<Rig>, key: &str) {
    ask(rig, key, "2Mi").await;
    until_done(rig, key, "2Mi").await;
    assert_eq!(rig.fake.backend().volumes[key].grown, 2 * MI);
    let sizes = calls(rig, key).into_iter().map(|call| call.capacity_range.unwrap().required_bytes);
    assert!(sizes.clone().all(|size| size == 2 * MI) && sizes.count() > 0);
}

/// What it was at is not known, so it is said again.
pub async fn an_agent_that_dies_in_the_call_repeats_it(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster, Expand::ByController).await;
    bound(&rig, "v").await;
    rig.fake.hold("v", Rpc::ControllerExpandVolume);
    ask(&rig, "v", "2Mi").await;
    rig.until_called("v", Rpc::ControllerExpandVolume).await;
    rig.kill("node-1");
    rig.fake.let_go("v", Rpc::ControllerExpandVolume);
    rig.run("node-1");
    until_done(&rig, "v", "2Mi").await;
    assert!(calls(&rig, "v").len() > 1, "{}", rig.story("v"));
    end(&rig, "v").await;
}
