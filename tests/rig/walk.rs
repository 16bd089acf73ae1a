//! Goes the same way again and again. At each of its steps somebody goes away, and the way is gone to its end.

use std::sync::Arc;

use futures::future::BoxFuture;
use moor::csi::Rpc;
use tokio::task::JoinHandle;

use super::{CONTROLLER, Entry, LOOK, Point, Rig, Side, say};

/// A way, which is gone with another key each time.
#[derive(Clone, Copy)]
pub struct Walk {
    /// Makes what is there before the first step.
    pub prepare: fn(Arc<Rig>, String) -> BoxFuture<'static, ()>,
    /// Goes to the end, and asserts what is so whatever has happened.
    pub go: fn(Arc<Rig>, String) -> BoxFuture<'static, ()>,
    /// Whether a write or call is a step at which somebody goes away.
    pub is_step: fn(&Entry) -> bool,
    /// What has to be in the labels of the steps: without it the way was not gone.
    pub passes: &'static [&'static str],
}

/// Who goes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// The process of moor that makes the step: it is killed right before it and right after it.
    Maker,
    /// The driver, in each of the calls: it is killed right before it has done what it is asked, and right after.
    Driver,
    /// The API server, of which nobody hears from right before the step until that has ended.
    ApiServer,
}

impl Victim {
    fn dies_at(self, point: &Point) -> bool {
        match self {
            Self::Driver => Rpc::ALL.into_iter().any(|rpc| point.label.contains(rpc.name())),
            Self::Maker | Self::ApiServer => true,
        }
    }
}

impl Walk {
    /// The key of the time on which nobody goes away.
    pub const UNDISTURBED: &str = "clean";

    /// For a way before which there is nothing.
    pub fn nothing(_: Arc<Rig>, _: String) -> BoxFuture<'static, ()> {
        Box::pin(async {})
    }

    /// Goes the way, with the victim at each step.
    pub async fn sweep(&self, rig: &Arc<Rig>, victim: Victim) {
        let sides: &[Side] = match victim {
            Victim::Maker | Victim::Driver => &[Side::Before, Side::After],
            // Whose answer is lost is as good as killed.
            Victim::ApiServer => &[Side::Before],
        };
        let (mut taken, mut missed) = (0, 0);
        for point in self.points(rig).await.into_iter().filter(|point| victim.dies_at(point)) {
            for side in sides {
                let key = format!("walk-{taken}");
                taken += 1;
                let reached = self.go_with(rig, victim, key, &point, *side).await;
                missed += usize::from(!reached);
                say(&format!("  {side:?} {point}{}", if reached { "" } else { ", did not come up" }));
            }
        }
        // A write that meets another's is made twice, which no run can be made to do.
        assert!(taken > 0 && missed * 4 <= taken, "{missed} of {taken} did not come up");
    }

    /// The steps of the way when nobody goes away.
    async fn points(&self, rig: &Arc<Rig>) -> Vec<Point> {
        (self.prepare)(rig.clone(), Self::UNDISTURBED.to_owned()).await;
        let since = rig.journal.now();
        (self.go)(rig.clone(), Self::UNDISTURBED.to_owned()).await;
        let points = Point::of(rig.journal.since(since, self.is_step));
        for passes in self.passes {
            assert!(points.iter().any(|point| point.label.contains(passes)), "{passes}: {points:?}");
        }
        points
    }

    /// Returns whether the step came up.
    async fn go_with(&self, rig: &Arc<Rig>, victim: Victim, key: String, point: &Point, side: Side) -> bool {
        (self.prepare)(rig.clone(), key.clone()).await;
        let since = rig.journal.now();
        let hit = rig.gate.arm(point.clone(), side);
        let going = tokio::spawn((self.go)(rig.clone(), key));
        let reached = tokio::select! {
            hit = hit => hit.is_ok(),
            () = until_ended(&going) => false,
        };
        match victim {
            _ if !reached => rig.gate.disarm(),
            Victim::Maker => {
                rig.kill(&point.actor);
                rig.gate.disarm();
                rig.run(&point.actor);
            }
            Victim::Driver => rig.lose_the_driver_at(point, true),
            Victim::ApiServer => rig.lose_the_api_server_at(point, since).await,
        }
        going.await.unwrap_or_else(|panicked| panic!("{victim:?}, {side:?} {point}: {panicked}"));
        reached
    }
}

async fn until_ended(going: &JoinHandle<()>) {
    while !going.is_finished() {
        tokio::time::sleep(LOOK).await;
    }
}

/// Whether this is a step of what a PersistentVolumeClaim asks for while it is used: a write about the claim or its volume, or
/// this call, by the leader or by the agent whose driver has the Controller service.
pub fn changes_a_volume(entry: &Entry, rpc: Rpc) -> bool {
    const KINDS: [&str; 3] = ["persistentvolumeclaims", "persistentvolumes", "volumes"];
    let writes = entry.write().is_some_and(|write| KINDS.contains(&&*write.kind));
    let calls = entry.call().is_some_and(|call| call.rpc == rpc);
    [CONTROLLER, "node-1"].contains(&&*entry.actor) && (writes || calls)
}

impl Rig {
    /// The driver dies in the call at which the gate has stopped it, and is started again. `controller` says whether it has the
    /// Controller service there.
    pub fn lose_the_driver_at(&self, point: &Point, controller: bool) {
        let folder = self.plugin_dir(&point.actor);
        self.fake.stop(&point.actor, &folder);
        self.gate.disarm();
        self.fake.serve(&point.actor, &folder, controller);
    }

    /// No process of moor reaches the API server until the step has ended at which the gate has stopped one. `since` is before
    /// that.
    pub async fn lose_the_api_server_at(&self, point: &Point, since: usize) {
        let everybody: Vec<String> = self.upstreams.lock().unwrap().keys().cloned().collect();
        for actor in &everybody {
            self.take_the_api_server_from(actor);
        }
        self.gate.release();
        let has_ended = || {
            let is_it = |entry: &Entry| entry.actor == point.actor && entry.label() == point.label;
            let those = self.journal.since(since, is_it);
            those.get(point.ordinal).is_some_and(|entry| entry.outcome().is_some())
        };
        self.poll("what was under way has ended", || async { has_ended() }).await;
        for actor in &everybody {
            self.give_the_api_server_back_to(actor);
        }
    }
}
