//! Every call that a claim needs, failing with every gRPC code before and after its effect, and hanging: nothing is
//! written that is not so, no second call is made meanwhile, the failure can be read, and it goes on when the fault ends.
//! The same for claims that are deleted while the fault lasts.
//!
//! Each cell has a Volume and a claim of its own, and many run at once. `MOOR_RIG=all` takes all 16 codes; without it

//! the matrix takes three.

mod course;
mod shown;
mod table;
mod trace;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use crate::cases;
use crate::rig::{Case, Cluster, Options, Rig, say};
use futures::FutureExt as _;
use table::Cell;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Cells at a time. Most of them wait.
const AT_ONCE: usize = 64;

/// Every cell of the matrix.
async fn every_fault_of_every_call(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options { longest_call: 15, ..Options::default() }).await;
    let cells = table::cells();
    say(&format!("{} cells", cells.len()));
    let (started, mut failed) = (Instant::now(), Vec::new());

    let (first, problems) = all(&cells, Cell::key, |cell| {
        let rig = rig.clone();
        async move { course::begin(&rig, cell).await }
    })
    .await;
    failed.extend(problems);
    say(&format!("first part after {:.0} s", started.elapsed().as_secs_f64()));

    // What is hardly worth another attempt waits for more than a minute, but only in memory.
    for agent in ["node-1", "node-2"] {
        rig.restart(agent);
    }
    let rest: Vec<_> = first.into_iter().filter_map(|(cell, more)| more.then_some(cell)).collect();
    let (_, problems) = all(&rest, Cell::key, |cell| {
        let rig = rig.clone();
        async move { course::finish(&rig, cell).await }
    })
    .await;
    failed.extend(problems);
    say(&format!("{} cells, {} failed, {:.0} s", cells.len(), failed.len(), started.elapsed().as_secs_f64()));
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    rig.until_nothing_left().await;
}

/// Runs a part of all cells at once. Returns what those that passed came to, and what the others died of.
pub async fn all<C, T, F>(
    cells: &[C],
    key: fn(C) -> String,
    part: impl Fn(C) -> F,
) -> (Vec<(C, T)>, Vec<String>)
where
    C: Copy + Send + 'static,
    T: Send + 'static,
    F: Future<Output = Result<T, String>> + Send + 'static,
{
    let mut running = JoinSet::new();
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    for cell in cells {
        let (cell, part, turns) = (*cell, part(*cell), turns.clone());
        running.spawn(async move {
            let _turn = turns.acquire().await.unwrap();
            (cell, AssertUnwindSafe(part).catch_unwind().await)
        });
    }
    let (mut passed, mut failed) = (Vec::new(), Vec::new());
    while let Some(ended) = running.join_next().await {
        let (cell, result) = ended.unwrap();
        match result {
            Ok(Ok(value)) => passed.push((cell, value)),
            Ok(Err(problem)) => failed.push(format!("{}: {problem}", key(cell))),
            Err(panicked) => {
                let words = panicked.downcast_ref::<String>().cloned().unwrap_or_default();
                failed.push(format!("{}: {words}", key(cell)));
            }
        }
    }
    (passed, failed)
}

/// The cases of this module.
pub const CASES: &[Case] = cases![every_fault_of_every_call];
