//! For every write to the API server and every call to the driver on the way of a Volume and its claims: the process
//! that makes it is killed right before and right after it, and started again. The end must be the same each time.
//!
//! The points come from a run without a crash. `MOOR_RIG=all` takes all of them; without it the sweep takes the calls,

//! whose crashes are the dangerous ones, and what else the way says.

mod checks;
mod ways;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cases;
use crate::rig::{Case, Cluster, Entry, Journal, Options, Point, Rig, Side, say};
use ways::WAYS;
pub use ways::Way;

/// Runs without a crash from which the points come.
const CLEAN: usize = 3;
/// How long the gate may take to notice what everybody can see.
const LAST: Duration = Duration::from_secs(5);

/// Of a volume that moor makes, step by step, and with the user giving up while the killed process is down.
async fn every_crash_point(cluster: Arc<Cluster>) {
    sweep(&cluster, &WAYS[..2]).await;
}

/// Of a volume that two claims share, and with everything asked for at once.
async fn every_crash_point_in_company(cluster: Arc<Cluster>) {
    sweep(&cluster, &WAYS[2..]).await;
}

/// Goes each way with every crash on it.
pub async fn sweep(cluster: &Arc<Cluster>, ways: &[Way]) {
    let rig = Rig::start(cluster, Options::default()).await;
    let (mut taken, mut missed, mut failed) = (0, 0, Vec::new());
    for way in ways {
        let points = points(&rig, way).await;
        say(&format!("{}: {} crash points", way.name, points.len() * 2));
        for point in &points {
            for side in [Side::Before, Side::After] {
                let number = taken;
                taken += 1;
                let started = Instant::now();
                let key = format!("crash-{number}");
                let reached = match crash(&rig, way, &key, point, side).await {
                    Ok(reached) => reached,
                    Err(problem) => {
                        failed.push(format!("{}: {side:?} {point}:\n{problem}", way.name));
                        break;
                    }
                };
                missed += usize::from(!reached);
                let took = started.elapsed().as_secs_f64();
                let note = if reached { "" } else { ", did not come up" };
                say(&format!("  {side:?} {point}: {took:.1} s{note}"));
            }
        }
    }
    say(&format!("{taken} crash points, {missed} of them did not come up, {} failed", failed.len()));
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    // A write that meets another's is made twice, which no run can be made to do.
    assert!(missed * 20 <= taken, "{missed} of {taken} points did not come up");
}

/// Every write and call on the way that is there each time it is gone without a crash.
async fn points(rig: &Arc<Rig>, way: &Way) -> Vec<Point> {
    let mut always = clean(rig, way, 0).await;
    for number in 1..CLEAN {
        let these = clean(rig, way, number).await;
        always.retain(|point| these.contains(point));
    }
    always
}

/// Goes the way without a crash, and returns every write and call on it.
async fn clean(rig: &Arc<Rig>, way: &Way, number: usize) -> Vec<Point> {
    let since = rig.journal.now();
    let key = format!("clean-{}-{number}", way.name);
    (way.go)(rig.clone(), key.clone()).await;
    rig.assert_nothing_left().await;
    checks::trace(rig, &key, since, way).unwrap();
    let mut ordinals: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut points = Vec::new();
    for entry in rig.journal.since(since, is_on_the_way) {
        let (actor, label) = (entry.actor.clone(), entry.label());
        let next = ordinals.entry((actor.clone(), label.clone())).or_default();
        let point = Point { actor, label, ordinal: *next };
        *next += 1;
        if crate::rig::is_whole() || (way.in_short)(&entry) {
            points.push(point);
        }
    }
    points
}

/// What the gate can stop at.
fn is_on_the_way(entry: &Entry) -> bool {
    entry.write().is_none_or(|write| crate::rig::ON_THE_PATH.contains(&write.kind.as_str()))
}

/// Goes the way with one crash. Says what was wrong afterwards, or whether the point came up.
async fn crash(rig: &Arc<Rig>, way: &Way, key: &str, point: &Point, side: Side) -> Result<bool, String> {
    let since = rig.journal.now();
    let mut hit = rig.gate.arm(point.clone(), side);
    let mut going = tokio::spawn((way.go)(rig.clone(), key.to_owned()));
    let (mut ended, mut reached) = (None, true);
    tokio::select! {
        _ = &mut hit => {}
        // The last write's effect is seen before the gate says that it was reached.
        result = &mut going => {
            ended = Some(result);
            reached = tokio::time::timeout(LAST, hit).await.is_ok_and(|hit| hit.is_ok());
        }
    }
    rig.kill(&point.actor);
    rig.gate.disarm();
    if way.given_up {
        rig.delete_claim(key).await;
        rig.delete_volume(key).await;
    }
    rig.run(&point.actor);
    let ended = match ended {
        Some(ended) => ended,
        None => going.await,
    };
    if let Err(panicked) = ended {
        return Err(format!("{panicked}\n{}", Journal::text(&rig.journal.since(since, |_| true))));
    }
    rig.assert_nothing_left().await;
    checks::trace(rig, key, since, way)
        .map(|()| reached)
        .map_err(|problem| format!("{problem}\n{}", Journal::text(&rig.journal.since(since, |_| true))))
}

/// The cases of this module.
pub const CASES: &[Case] = cases![every_crash_point, every_crash_point_in_company];
