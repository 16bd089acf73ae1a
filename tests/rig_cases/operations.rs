//! Every operation of a Volume and of a Snapshot, failing with every gRPC code before and after its effect, hanging, and answered
//! with what is no answer: it is made again with the same arguments and comes to its end, nothing is undone meanwhile that is
//! wanted, and whoever is deleted meanwhile leaves nothing behind. The same with somebody dying at each step.
//!
//! What claims need is in `fault_matrix.rs` and `crash_sweep.rs`. Each cell has objects of its own, and many run at once.
//! `MOOR_RIG=all` takes all 16 codes; without it the matrix takes three.

mod course;
mod crashes;
mod table;

use std::sync::Arc;

use moor::api::SnapshotState;
use serde_json::json;

use crate::cases;
use crate::fault_matrix::all;
use crate::rig::fake::backend::Expand;
use crate::rig::{Case, Cluster, Options, Rig, say, volume};
use crate::snapshots::objects::snapshot;
use table::{Cell, SNAPSHOT, SOURCE};

/// A driver that can do everything, of which a volume and a snapshot are there to make others of.
async fn start(cluster: &Arc<Cluster>, longest_call: u64) -> Arc<Rig> {
    let options = Options {
        longest_call,
        expand: Expand::ByController,
        modify: true,
        clones: true,
        snapshots: true,
        ..Options::default()
    };
    let rig = Rig::start(cluster, options).await;
    // A driver that says nothing has not confirmed.
    rig.patch_plugin(json!({ "validation": "Strict" })).await;
    rig.make_volume(&volume(SOURCE)).await;
    rig.until_volume_ready(SOURCE).await;
    rig.make_snapshot(&snapshot(SNAPSHOT, SOURCE)).await;
    rig.until_snapshot(SNAPSHOT, SnapshotState::Ready).await;
    rig
}

/// Takes away what [`start`] has made. Then there is nothing any more.
async fn end(rig: &Rig) {
    rig.delete_snapshot(SNAPSHOT).await;
    rig.until_snapshot_gone(SNAPSHOT).await;
    let no_claims: [&str; 0] = [];
    rig.remove(&no_claims, &[SOURCE]).await;
    let backend = rig.fake.backend();
    let left: Vec<_> = backend.volumes.keys().chain(backend.snapshots.keys()).collect();
    assert!(left.is_empty(), "the storage still has {left:?}");
}

/// Every cell of the matrix.
async fn every_fault_of_every_operation(cluster: Arc<Cluster>) {
    let rig = start(&cluster, 15).await;
    let cells = table::cells();
    say(&format!("{} cells", cells.len()));
    let begin = |cell: Cell| {
        let rig = rig.clone();
        async move { course::begin(&rig, cell).await }
    };
    let (first, mut failed) = all(&cells, Cell::key, begin).await;
    // What is hardly worth another attempt waits for more than a minute, but only in memory.
    for agent in ["node-1", "node-2"] {
        rig.restart(agent);
    }
    let rest: Vec<_> = first.into_iter().filter_map(|(cell, more)| more.then_some(cell)).collect();
    let finish = |cell: Cell| {
        let rig = rig.clone();
        async move { course::finish(&rig, cell).await }
    };
    let (_, problems) = all(&rest, Cell::key, finish).await;
    failed.extend(problems);
    say(&format!("{} cells, {} failed", cells.len(), failed.len()));
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    end(&rig).await;
}

/// The cases of this module.
pub const CASES: &[Case] = cases![
    every_fault_of_every_operation,
    crashes::the_leader_and_the_agent_may_die_at_every_step,
    crashes::the_driver_may_die_in_its_calls,
    crashes::the_api_server_may_go_away_at_every_step,
];
