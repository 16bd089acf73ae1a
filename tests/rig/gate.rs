//! Stops a process of moor at one exact moment: right before or right after one write or call.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::{Notify, oneshot};

use super::PATIENCE;
use super::journal::Entry;

/// One write or call: the `ordinal`-th (from 0) of its kind by this process since the gate was armed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Point {
    pub actor: String,
    /// As [`super::journal::Entry::label`] has it.
    pub label: String,
    pub ordinal: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// It has no effect yet.
    Before,
    /// It has had its effect, and who asked has not heard of it.
    After,
}

impl Point {
    /// Where these writes and calls are, in their order, when everything is done again.
    pub fn of(entries: Vec<Entry>) -> Vec<Self> {
        let mut ordinals: BTreeMap<(String, String), usize> = BTreeMap::new();
        let points = entries.into_iter().map(|entry| {
            let (actor, label) = (entry.actor.clone(), entry.label());
            let next = ordinals.entry((actor.clone(), label.clone())).or_default();
            *next += 1;
            Self { actor, label, ordinal: *next - 1 }
        });
        points.collect()
    }
}

impl std::fmt::Display for Point {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} #{}", self.actor, self.label, self.ordinal)
    }
}

#[derive(Debug)]
struct Trap {
    point: Point,
    side: Side,
    seen: usize,
    hit: Option<oneshot::Sender<()>>,
    released: Arc<Notify>,
}

/// Cheap to clone; all clones are one gate.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<Mutex<Option<Trap>>>);

impl Gate {
    /// Sets the trap. The receiver hears when the point is reached; the request that reached it then waits until it is
    /// [released](Self::release), or for ever.
    pub fn arm(&self, point: Point, side: Side) -> oneshot::Receiver<()> {
        let (hit, heard) = oneshot::channel();
        *self.0.lock().unwrap() =
            Some(Trap { point, side, seen: 0, hit: Some(hit), released: Arc::default() });
        heard
    }

    /// Waits until the point is reached.
    pub async fn reached(&self, point: &Point, hit: oneshot::Receiver<()>) {
        let hit = tokio::time::timeout(PATIENCE, hit).await;
        hit.unwrap_or_else(|_| panic!("never reached: {point}")).unwrap();
    }

    /// Nothing is stopped any more. What was stopped stays so: its process is killed.
    pub fn disarm(&self) {
        *self.0.lock().unwrap() = None;
    }

    /// Nothing is stopped any more, and what was stopped goes on.
    pub fn release(&self) {
        if let Some(trap) = self.0.lock().unwrap().take() {
            trap.released.notify_one();
        }
    }

    /// A write or call arrives. Says at which side of it to stop, if at all.
    pub(super) fn arrive(&self, actor: &str, label: &str) -> Option<Side> {
        let mut trap = self.0.lock().unwrap();
        let trap = trap.as_mut().filter(|t| t.point.actor == actor && t.point.label == label)?;
        trap.seen += 1;
        (trap.seen == trap.point.ordinal + 1).then_some(trap.side)
    }

    /// Waits for ever if this is the side at which to stop.
    pub(super) async fn pass(&self, stop: Option<Side>, here: Side) {
        if stop != Some(here) {
            return;
        }
        let released = self.0.lock().unwrap().as_mut().map(|trap| {
            if let Some(hit) = trap.hit.take() {
                let _ = hit.send(());
            }
            Arc::clone(&trap.released)
        });
        match released {
            Some(released) => released.notified().await,
            None => std::future::pending().await,
        }
    }
}
