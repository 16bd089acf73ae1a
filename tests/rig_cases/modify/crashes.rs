//! Whoever dies on the way of a modification, the next one goes on, and nothing else is asked for in between.

use std::collections::BTreeMap;
use std::sync::Arc;

use moor::csi::Rpc;

use super::{ask, asked, bound, end, has, start, tier, tiers, until_done};
use crate::rig::{CONTROLLER, Cluster, Entry, Point, Rig, Side, say};

const AGENT: &str = "node-1";

/// Each is killed right before and right after each of its writes, and the agent at the driver's call too.
pub async fn the_leader_and_the_agent_may_die_at_every_step(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    tiers(&rig, &["gold"]).await;
    bound(&rig, "clean", None).await;
    let since = rig.journal.now();
    modify(&rig, "clean").await;
    let kinds = ["persistentvolumeclaims", "persistentvolumes", "volumes"];
    let ours = |e: &Entry| {
        let writes = e.write().is_some_and(|w| kinds.contains(&w.kind.as_str()));
        let calls = e.call().is_some_and(|call| call.rpc == Rpc::ControllerModifyVolume);
        [CONTROLLER, AGENT].contains(&e.actor.as_str()) && (writes || calls)
    };
    let mut ordinals: BTreeMap<(String, String), usize> = BTreeMap::new();
    let points: Vec<_> = rig
        .journal
        .since(since, ours)
        .into_iter()
        .map(|entry| {
            let (actor, label) = (entry.actor.clone(), entry.label());
            let next = ordinals.entry((actor.clone(), label.clone())).or_default();
            *next += 1;
            Point { actor, label, ordinal: *next - 1 }
        })
        .collect();
    for (actor, kind) in kinds.map(|kind| (CONTROLLER, kind)).into_iter().chain([(AGENT, "volumes")]) {
        let of = |point: &Point| point.actor == actor && point.label.contains(kind);
        assert!(points.iter().any(of), "{actor} {kind}: {points:?}");
    }
    assert!(points.iter().any(|point| point.label.contains("ControllerModifyVolume")), "{points:?}");
    let mut missed = 0;
    for (number, point) in points.iter().enumerate() {
        for side in [Side::Before, Side::After] {
            let key = format!("crash-{number}-{}", if side == Side::Before { "before" } else { "after" });
            bound(&rig, &key, None).await;
            let hit = rig.gate.arm(point.clone(), side);
            let (walker, its) = (rig.clone(), key.clone());
            let going = tokio::spawn(async move { modify(&walker, &its).await });
            let reached = tokio::select! {
                hit = hit => hit.is_ok(),
                () = until_ended(&going) => false,
            };
            if reached {
                rig.kill(&point.actor);
                rig.gate.disarm();
                rig.run(&point.actor);
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

/// Whatever happens on the way: the claim has its class, and nothing else was asked for.
async fn modify(rig: &Arc<Rig>, key: &str) {
    ask(rig, key, Some("gold")).await;
    until_done(rig, key, "gold").await;
    assert_eq!(has(rig, key), tier("gold"));
    let all = asked(rig, key);
    assert!(!all.is_empty() && all.iter().all(|parameters| *parameters == tier("gold")), "{all:?}");
}

/// What the driver was at is not known, also to whoever wants something else by now.
pub async fn an_agent_that_dies_in_the_call_repeats_it_before_another(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    tiers(&rig, &["gold", "silver"]).await;
    bound(&rig, "v", None).await;
    rig.fake.hold("v", Rpc::ControllerModifyVolume);
    ask(&rig, "v", Some("gold")).await;
    rig.until_called("v", Rpc::ControllerModifyVolume).await;
    rig.kill(AGENT);
    ask(&rig, "v", Some("silver")).await;
    rig.fake.let_go("v", Rpc::ControllerModifyVolume);
    rig.run(AGENT);
    until_done(&rig, "v", "silver").await;
    let all = asked(&rig, "v");
    let (last, golds) = all.split_last().unwrap();
    assert!(
        *last == tier("silver") && golds.len() > 1 && golds.iter().all(|p| *p == tier("gold")),
        "{all:?}"
    );
    end(&rig, "v").await;
}
