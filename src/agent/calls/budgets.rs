//! Bounds the calls at a time, per driver, service and direction, so that a driver that hangs holds up nobody but its
//! own volumes, and what it is slow to make does not hold up what is to be undone (trap B32).
//!
//! Whoever waits for a turn holds a worker. So only a few of each budget do; the others are parked as keys, which cost
//! nothing, and are woken when a place among those that wait is free. A thousand volumes of one driver that hangs take
//! no worker from another driver's.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::agent::queues::Parked;
use crate::metrics::BudgetLabels;

/// Longest wait for a turn at a plugin. Whoever does not get one lets others go first.
const TURN: Duration = Duration::from_secs(30);
/// Passes of one budget that wait with a worker in hand. Enough to follow each other without a gap.
const WAITING: usize = 64;
/// When a key that was turned away looks again by itself. It is woken earlier when there is room.
pub(crate) const LATER: Duration = Duration::from_secs(30);

/// What a call is about. Drivers that are slow to create volumes must not hold up attaching those that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Service {
    /// Stage, publish and their inverses.
    Node,
    /// ControllerPublishVolume and its inverse.
    Attach,
    /// CreateVolume, DeleteVolume and what else is about a volume as a whole.
    Volume,
}

/// Whether a call makes or undoes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Direction {
    Make,
    Undo,
}

impl Service {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Attach => "attach",
            Self::Volume => "volume",
        }
    }
}

impl Direction {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Make => "make",
            Self::Undo => "undo",
        }
    }
}

/// All turns are taken: look again after [`LATER`] or when woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Busy;

/// What a turn is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    pub driver: String,
    pub service: Service,
    pub direction: Direction,
}

impl Budget {
    fn labels(&self) -> BudgetLabels {
        BudgetLabels {
            driver_name: self.driver.clone(),
            service: self.service.as_str(),
            direction: self.direction.as_str(),
        }
    }
}

struct Slot {
    limit: usize,
    semaphore: Arc<Semaphore>,
    /// Turns that are taken and do not come back, since the limit was lowered meanwhile.
    owed: usize,
    waiting: usize,
    /// How many wait, for people.
    told: Gauge,
    /// The parked keys in the order in which they came.
    parked: BTreeMap<u64, Parked>,
    tickets: HashMap<Parked, u64>,
    serial: u64,
}

/// The turns of all drivers.
pub(crate) struct Budgets {
    slots: Mutex<HashMap<Budget, Slot>>,
    /// How many wait.
    told: Family<BudgetLabels, Gauge>,
    wake: Box<dyn Fn(Parked) + Send + Sync>,
}

impl fmt::Debug for Budgets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budgets").finish_non_exhaustive()
    }
}

/// A place among the passes that wait for a turn and hold a worker meanwhile. Dropping it makes room for a pass that
/// is parked.
struct Place<'a> {
    budgets: &'a Budgets,
    budget: &'a Budget,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.budgets.leave(self.budget, |slot| slot.waiting = slot.waiting.saturating_sub(1));
    }
}

/// The right to make one call at a driver now. Dropping it makes room for a pass that is parked.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    permit: Option<OwnedSemaphorePermit>,
    budgets: &'a Budgets,
    budget: Budget,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let permit = self.permit.take();
        self.budgets.leave(&self.budget, |slot| match permit {
            Some(permit) if slot.owed > 0 => {
                slot.owed -= 1;
                permit.forget();
            }
            // Before anybody is woken for it.
            permit => drop(permit),
        });
    }
}

impl Budgets {
    /// `wake` puts a key that was parked back into its queue. How many wait is `told`.
    pub fn new(told: Family<BudgetLabels, Gauge>, wake: impl Fn(Parked) + Send + Sync + 'static) -> Self {
        Self { slots: Mutex::default(), told, wake: Box::new(wake) }
    }

    /// A turn for the pass of this key, of `limit` at a time. If it cannot be had soon the pass has to end.
    pub async fn turn(&self, budget: &Budget, limit: usize, key: Parked) -> Result<Turn<'_>, Busy> {
        let turn = |permit| Turn { permit: Some(permit), budgets: self, budget: budget.clone() };
        let semaphore = {
            let mut slots = self.slots.lock();
            let slot = slots.entry(budget.clone()).or_insert_with(|| Slot {
                limit,
                semaphore: Arc::new(Semaphore::new(limit)),
                owed: 0,
                waiting: 0,
                told: self.told.get_or_create_owned(&budget.labels()),
                parked: BTreeMap::new(),
                tickets: HashMap::new(),
                serial: 0,
            });
            slot.resize(limit);
            // Fair: a permit that comes free belongs to whoever waits, so none is taken from them here.
            if let Ok(permit) = slot.semaphore.clone().try_acquire_owned() {
                slot.unpark(&key);
                return Ok(turn(permit));
            }
            if slot.waiting >= WAITING {
                slot.park(key);
                slot.tell();
                return Err(Busy);
            }
            slot.unpark(&key);
            slot.waiting += 1;
            slot.tell();
            slot.semaphore.clone()
        };
        let place = Place { budgets: self, budget };
        if let Ok(Ok(permit)) = timeout(TURN, semaphore.acquire_owned()).await {
            return Ok(turn(permit));
        }
        // First whoever waited without a worker, then this one again.
        drop(place);
        if let Some(slot) = self.slots.lock().get_mut(budget) {
            slot.park(key);
            slot.tell();
        }
        Err(Busy)
    }

    /// Changes the slot of a budget whose turn or place was given back, and wakes a key that is parked for it.
    fn leave(&self, budget: &Budget, change: impl FnOnce(&mut Slot)) {
        let woken = {
            let mut slots = self.slots.lock();
            let Some(slot) = slots.get_mut(budget) else { return };
            change(slot);
            let next = slot.parked.pop_first().map(|(_, key)| key);
            if let Some(key) = &next {
                slot.tickets.remove(key);
            }
            slot.tell();
            next
        };
        if let Some(key) = woken {
            (self.wake)(key);
        }
    }
}

impl Slot {
    /// Tells how many wait for a turn now.
    fn tell(&self) {
        self.told.set(i64::try_from(self.waiting + self.parked.len()).unwrap_or(i64::MAX));
    }

    /// Has as many turns from now on. Those that are taken beyond that are not given again.
    fn resize(&mut self, limit: usize) {
        if limit > self.limit {
            let more = limit - self.limit;
            let paid = more.min(self.owed);
            self.owed -= paid;
            self.semaphore.add_permits(more - paid);
        } else {
            let fewer = self.limit - limit;
            self.owed += fewer - self.semaphore.forget_permits(fewer);
        }
        self.limit = limit;
    }

    /// Parks a key. One that is parked already keeps its place.
    fn park(&mut self, key: Parked) {
        if !self.tickets.contains_key(&key) {
            self.serial += 1;
            self.tickets.insert(key.clone(), self.serial);
            self.parked.insert(self.serial, key);
        }
    }

    fn unpark(&mut self, key: &Parked) {
        if let Some(ticket) = self.tickets.remove(key) {
            self.parked.remove(&ticket);
        }
    }
}

#[cfg(test)]
#[path = "budgets_tests.rs"]
mod tests;
