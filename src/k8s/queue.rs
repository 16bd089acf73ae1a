//! A work queue that hands out each key to one worker at a time.
//!
//! A key added twice is worked on once; a key added while it is worked on is worked on once more. So
//! "something about X may have changed" can be said as often as one likes.
//!
//! Keys that somebody waits for come before sweeps over very many, which get their share.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    fmt::Debug,
    hash::Hash,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::{
    sync::Notify,
    task::{Id, JoinError, JoinSet},
    time::{Instant, sleep_until},
};
use tracing::error;

use super::backoff::Backoff;

/// What identifies a piece of work.
pub trait Key: Clone + Debug + Eq + Hash + Send + 'static {}
impl<T: Clone + Debug + Eq + Hash + Send + 'static> Key for T {}

/// What becomes of a key after its worker is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing to do until somebody adds it again.
    Done,
    /// Once more, at once, behind the keys that wait.
    Again,
    /// Once more after this time, or earlier if somebody adds it.
    After(Duration),
    /// It failed: once more after an object's backoff, or earlier if somebody adds it.
    Retry,
    /// The API server did not answer, or had too much to do: once more after a short backoff. It is so for all objects, and over
    /// for all of them at once, so none waits for long because it was tried often meanwhile.
    Unanswered,
}

/// Keys to work on, now or later.
pub struct Queue<T> {
    state: Mutex<State<T>>,
    wake: Notify,
}

/// Number of keys that somebody waits for which are handed out before one key of a sweep, if there are any.
const AHEAD: usize = 8;

struct State<T> {
    slots: HashMap<T, Slot>,
    ready: VecDeque<T>,
    /// Keys of sweeps, in order. A key that was worked on meanwhile, because somebody began to wait for it, is
    /// skipped here.
    sweeps: VecDeque<T>,
    /// How many keys wait in `sweeps`.
    swept: usize,
    /// How many keys were handed out since the last one of a sweep.
    ahead: usize,
    /// Keys by the time at which they become ready; the number keeps equal times apart.
    delayed: BTreeMap<(Instant, u64), T>,
    serial: u64,
}

struct Slot {
    place: Place,
    since: Instant,
    again: bool,
    due: Option<(Instant, u64)>,
    failures: u32,
    /// It was handed out as one of a sweep, and nobody has added it since. If it fails it is one of a sweep again: an API server
    /// that was away fails all of them, and what is asked for then does not wait for their end.
    of_sweep: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Idle,
    Ready,
    Swept,
    Working,
}

impl<T: Key> Default for Queue<T> {
    fn default() -> Self {
        let state = State {
            slots: HashMap::new(),
            ready: VecDeque::new(),
            sweeps: VecDeque::new(),
            swept: 0,
            ahead: 0,
            delayed: BTreeMap::new(),
            serial: 0,
        };
        Self { state: Mutex::new(state), wake: Notify::new() }
    }
}

impl<T: Key> Queue<T> {
    /// Work on this key as soon as a worker is free.
    pub fn add(&self, key: T) {
        self.state.lock().make_ready(key);
        self.wake.notify_one();
    }

    /// As [`Queue::add`], for one of very many keys that nobody waits for: it gives way to those that are added.
    pub fn sweep(&self, key: T) {
        self.state.lock().make_swept(key);
        self.wake.notify_one();
    }

    /// Work on this key after `delay`. Of several delays the earliest counts.
    pub fn add_after(&self, key: T, delay: Duration) {
        self.state.lock().delay(key, Instant::now() + delay);
        self.wake.notify_one();
    }

    /// Drops all keys but those that are worked on and those that are kept.
    pub fn retain(&self, is_kept: impl Fn(&T) -> bool) {
        let State { slots, ready, sweeps, delayed, swept, .. } = &mut *self.state.lock();
        slots.retain(|key, slot| slot.place == Place::Working || is_kept(key));
        ready.retain(|key| slots.contains_key(key));
        sweeps.retain(|key| slots.contains_key(key));
        delayed.retain(|_, key| slots.contains_key(key));
        *swept = slots.values().filter(|slot| slot.place == Place::Swept).count();
    }

    /// How many keys wait for a worker.
    #[must_use]
    pub fn len(&self) -> usize {
        let state = self.state.lock();
        state.ready.len() + state.swept
    }

    /// Time since the key that has been worked on for longest was handed out. Beyond the longest call
    /// deadline it means that workers do not turn (trap B27).
    #[must_use]
    pub fn oldest_in_work(&self) -> Option<Duration> {
        let state = self.state.lock();
        let working = state.slots.values().filter(|slot| slot.place == Place::Working);
        working.map(|slot| slot.since.elapsed()).max()
    }

    /// Waits for a key and takes it. Nobody else gets it before [`Queue::finish`]. May be cancelled.
    pub async fn next(&self) -> T {
        loop {
            let due = {
                let mut state = self.state.lock();
                state.promote(Instant::now());
                if let Some(key) = state.hand_out() {
                    return key;
                }
                state.delayed.first_key_value().map(|((at, _), _)| *at)
            };
            match due {
                Some(at) => tokio::select! {
                    () = sleep_until(at) => {}
                    () = self.wake.notified() => {}
                },
                None => self.wake.notified().await,
            }
        }
    }

    /// Gives back a key that was taken.
    pub fn finish(&self, key: T, next: Next) {
        let now = Instant::now();
        {
            let mut state = self.state.lock();
            let slot = state.slot(&key);
            slot.place = Place::Idle;
            let failed = matches!(next, Next::Retry | Next::Unanswered);
            slot.of_sweep &= failed;
            slot.failures = if failed { slot.failures.saturating_add(1) } else { 0 };
            let failures = slot.failures;
            if std::mem::take(&mut slot.again) || next == Next::Again {
                state.make_ready(key);
            } else {
                match next {
                    Next::Done | Next::Again => state.forget(&key),
                    Next::After(delay) => state.delay(key, now + delay),
                    Next::Retry => state.delay(key, now + Backoff::OBJECT.delay(failures)),
                    Next::Unanswered => state.delay(key, now + Backoff::UNANSWERED.delay(failures)),
                }
            }
        }
        self.wake.notify_one();
    }
}

impl<T: Key> State<T> {
    fn slot(&mut self, key: &T) -> &mut Slot {
        self.slots.entry(key.clone()).or_insert_with(|| Slot {
            place: Place::Idle,
            since: Instant::now(),
            again: false,
            due: None,
            failures: 0,
            of_sweep: false,
        })
    }

    fn make_ready(&mut self, key: T) {
        let slot = self.slot(&key);
        slot.of_sweep = false;
        match slot.place {
            Place::Working => slot.again = true,
            Place::Ready => {}
            before @ (Place::Idle | Place::Swept) => {
                slot.place = Place::Ready;
                let due = slot.due.take();
                self.swept -= usize::from(before == Place::Swept);
                self.cancel(due);
                self.ready.push_back(key);
            }
        }
    }

    fn make_swept(&mut self, key: T) {
        let slot = self.slot(&key);
        match slot.place {
            Place::Working => slot.again = true,
            Place::Ready | Place::Swept => {}
            Place::Idle => {
                slot.place = Place::Swept;
                let due = slot.due.take();
                self.swept += 1;
                self.cancel(due);
                self.sweeps.push_back(key);
            }
        }
    }

    fn cancel(&mut self, due: Option<(Instant, u64)>) {
        if let Some(due) = due {
            self.delayed.remove(&due);
        }
    }

    fn delay(&mut self, key: T, at: Instant) {
        self.serial += 1;
        let due = (at, self.serial);
        let slot = self.slot(&key);
        if matches!(slot.place, Place::Ready | Place::Swept)
            || slot.due.is_some_and(|(earlier, _)| earlier <= at)
        {
            return;
        }
        let replaced = slot.due.replace(due);
        if let Some(replaced) = replaced {
            self.delayed.remove(&replaced);
        }
        self.delayed.insert(due, key);
    }

    fn promote(&mut self, now: Instant) {
        while let Some(entry) = self.delayed.first_entry()
            && entry.key().0 <= now
        {
            let key = entry.remove();
            let slot = self.slot(&key);
            slot.due = None;
            if slot.of_sweep {
                self.make_swept(key);
            } else {
                self.make_ready(key);
            }
        }
    }

    fn hand_out(&mut self) -> Option<T> {
        let of_sweep = if self.ready.is_empty() || self.ahead >= AHEAD { self.take_swept() } else { None };
        let is_of_sweep = of_sweep.is_some();
        self.ahead = if is_of_sweep { 0 } else { self.ahead.saturating_add(1) };
        let key = of_sweep.or_else(|| self.ready.pop_front())?;
        let slot = self.slot(&key);
        slot.of_sweep = is_of_sweep;
        slot.place = Place::Working;
        slot.since = Instant::now();
        Some(key)
    }

    fn take_swept(&mut self) -> Option<T> {
        while let Some(key) = self.sweeps.pop_front() {
            if self.slots.get(&key).is_some_and(|slot| slot.place == Place::Swept) {
                self.swept -= 1;
                return Some(key);
            }
        }
        None
    }

    /// Drops a slot that remembers nothing, so that the queue does not grow with every key it has seen.
    fn forget(&mut self, key: &T) {
        let idle = |slot: &Slot| slot.place == Place::Idle && slot.due.is_none() && slot.failures == 0;
        if self.slots.get(key).is_some_and(idle) {
            self.slots.remove(key);
        }
    }
}

/// Works on the queue, on up to `concurrency` keys at once, until `shutdown`; then waits for the keys
/// in work. Dropping the future aborts them. A worker that panics is logged and counted, and its key retried.
pub async fn run<T, W, F>(
    queue: Arc<Queue<T>>,
    concurrency: usize,
    worker: W,
    panics: Counter,
    shutdown: impl Future<Output = ()>,
) where
    T: Key,
    W: Fn(T) -> F,
    F: Future<Output = Next> + Send + 'static,
{
    let mut shutdown = std::pin::pin!(shutdown);
    let mut stopping = false;
    let mut tasks = JoinSet::new();
    let mut keys = HashMap::new();
    while !stopping || !tasks.is_empty() {
        tokio::select! {
            () = &mut shutdown, if !stopping => stopping = true,
            Some(ended) = tasks.join_next_with_id(), if !tasks.is_empty() => settle(&queue, &mut keys, &panics, ended),
            key = queue.next(), if !stopping && tasks.len() < concurrency.max(1) => {
                let task = tasks.spawn(worker(key.clone()));
                keys.insert(task.id(), key);
            }
        }
    }
}

fn settle<T: Key>(
    queue: &Queue<T>,
    keys: &mut HashMap<Id, T>,
    panics: &Counter,
    ended: Result<(Id, Next), JoinError>,
) {
    let (id, next) = match ended {
        Ok(ended) => ended,
        Err(failure) => {
            panics.inc();
            error!(key = ?keys.get(&failure.id()), "a pass panicked and is retried: {failure}");
            (failure.id(), Next::Retry)
        }
    };
    if let Some(key) = keys.remove(&id) {
        queue.finish(key, next);
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
