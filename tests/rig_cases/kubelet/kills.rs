//! At every step of a Pod that comes and goes somebody dies who is none of moor's processes: kubelet, the driver, or the API
//! server. Nothing is wedged, and nothing is left. (Of moor's own processes: `crashes.rs`.)

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinHandle;

use super::NODE;
use super::crashes::{comes, goes, is_used};
use crate::rig::{Cluster, Entry, Kubelet, LOOK, ON_THE_PATH, Options, Point, Rig, Side, is_whole, say};

/// The node whose driver makes the controller calls.
const OTHER: &str = "node-1";

#[derive(Clone, Copy, Debug)]
enum Victim {
    Kubelet,
    Driver,
    ApiServer,
}

/// What it knew is gone. It asks again for what its Pods are to have, and gives up what they are not.
pub(super) async fn kubelet_dies_at_every_step(cluster: Arc<Cluster>) {
    sweep(&cluster, Victim::Kubelet).await;
}

/// What it was at has been done or has not; its mounts stay.
pub(super) async fn the_driver_dies_at_every_step(cluster: Arc<Cluster>) {
    sweep(&cluster, Victim::Driver).await;
}

/// No process of moor reaches it while a call runs, or for the write that was due.
pub(super) async fn the_api_server_goes_away_at_every_step(cluster: Arc<Cluster>) {
    sweep(&cluster, Victim::ApiServer).await;
}

impl Victim {
    /// Whether the victim dies here. A write that makes or deletes nothing counts in the whole sweep only.
    fn dies_at(self, entry: &Entry) -> bool {
        let comes_or_goes = |verb: &str| is_whole() || verb == "POST" || verb == "DELETE";
        let is_step = entry
            .write()
            .is_none_or(|write| ON_THE_PATH.contains(&write.kind.as_str()) && comes_or_goes(&write.verb));
        match self {
            Self::Kubelet => is_step && entry.actor == NODE,
            Self::Driver => entry.call().is_some(),
            Self::ApiServer => is_step,
        }
    }

    fn sides(self) -> &'static [Side] {
        match self {
            Self::Kubelet | Self::Driver => &[Side::Before, Side::After],
            // Whose answer is lost is as good as killed.
            Self::ApiServer => &[Side::Before],
        }
    }
}

/// A Pod that comes and goes, by this kubelet.
struct Walk {
    key: String,
    /// kubelet is at giving the volume up.
    leaves: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Walk {
    fn begin(rig: &Arc<Rig>, kubelet: &Kubelet, key: String) -> Self {
        let leaves = Arc::new(AtomicBool::new(false));
        let (rig, kubelet, its, told) = (rig.clone(), kubelet.clone(), key.clone(), leaves.clone());
        let task = tokio::spawn(async move {
            comes(&rig, &kubelet, &its).await;
            told.store(true, Ordering::SeqCst);
            goes(&rig, &kubelet, &its).await;
        });
        Self { key, leaves, task }
    }

    async fn until_ended(&self) {
        while !self.task.is_finished() {
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn end(self, at: &str) {
        self.task.await.unwrap_or_else(|panicked| panic!("{at}: {panicked}"));
    }
}

async fn sweep(cluster: &Arc<Cluster>, victim: Victim) {
    let rig = Rig::start(cluster, Options::default()).await;
    let kubelet = rig.kubelet(NODE).await;
    let (mut taken, mut missed) = (0, 0);
    for point in points(&rig, &kubelet, victim).await {
        for side in victim.sides() {
            let walk = format!("kill-{taken}");
            taken += 1;
            let reached = kill(&rig, &kubelet, victim, walk, &point, *side).await;
            missed += usize::from(!reached);
            say(&format!("  {side:?} {point}{}", if reached { "" } else { ", did not come up" }));
        }
    }
    rig.fake.assert_obeyed();
    // A write that meets another's is made twice, which no run can be made to do.
    assert!(taken > 0 && missed * 10 <= taken, "{missed} of {taken} did not come up");
}

/// The steps of a walk on which nobody dies.
async fn points(rig: &Arc<Rig>, kubelet: &Kubelet, victim: Victim) -> Vec<Point> {
    let since = rig.journal.now();
    Walk::begin(rig, kubelet, "clean".to_owned()).end("nobody died").await;
    Point::of(rig.journal.since(since, |entry| victim.dies_at(entry)))
}

/// Says whether the point came up.
async fn kill(
    rig: &Arc<Rig>,
    kubelet: &Kubelet,
    victim: Victim,
    key: String,
    point: &Point,
    side: Side,
) -> bool {
    let at = format!("{victim:?}, {side:?} {point}");
    let since = rig.journal.now();
    let hit = rig.gate.arm(point.clone(), side);
    let walk = Walk::begin(rig, kubelet, key);
    let reached = tokio::select! {
        hit = hit => hit.is_ok(),
        () = walk.until_ended() => false,
    };
    if !reached {
        rig.gate.disarm();
        walk.end(&at).await;
        return false;
    }
    match victim {
        Victim::Kubelet => {
            let Walk { key, leaves, task } = walk;
            task.abort();
            // Its connection breaks with it.
            let ended = task.await;
            assert!(ended.is_ok() || ended.is_err_and(|error| error.is_cancelled()), "{at}");
            rig.gate.release();
            kubelet.register(true, "").await;
            if !leaves.load(Ordering::SeqCst) {
                is_used(rig, kubelet, &key).await;
            }
            goes(rig, kubelet, &key).await;
        }
        Victim::Driver => {
            rig.lose_the_driver_at(point, point.actor == OTHER);
            walk.end(&at).await;
        }
        Victim::ApiServer => {
            rig.lose_the_api_server_at(point, since).await;
            walk.end(&at).await;
        }
    }
    true
}
