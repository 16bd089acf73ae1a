//! One driver that hangs, many volumes: what is held up, and what is not. Time is paused, so nothing is timed.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use prometheus_client::metrics::counter::Counter;
use tokio::sync::watch;

use super::*;
use crate::k8s::{Next, Queue, queue};

const LIMIT: usize = 4;

fn budget(driver: &str, service: Service, direction: Direction) -> Budget {
    Budget { driver: driver.to_owned(), service, direction }
}

fn key(n: usize) -> Parked {
    Parked::Handle(n.to_string())
}

/// Passes over keys `driver/direction/number`, on as many workers as the agent has, whose calls hang where the test
/// says so.
struct Rig {
    queue: Arc<Queue<String>>,
    budgets: Arc<Budgets>,
    /// Drivers and directions whose calls return.
    open: watch::Sender<Vec<String>>,
    called: Mutex<Vec<String>>,
    in_call: AtomicUsize,
}

impl Rig {
    fn start(workers: usize, open: &[&str]) -> Arc<Self> {
        let queue: Arc<Queue<String>> = Arc::default();
        let wakes = queue.clone();
        let budgets = Budgets::new(Family::default(), move |parked| {
            if let Parked::Handle(key) = parked {
                wakes.add(key);
            }
        });
        let rig = Arc::new(Self {
            queue: queue.clone(),
            budgets: Arc::new(budgets),
            open: watch::Sender::new(open.iter().map(|&s| s.to_owned()).collect()),
            called: Mutex::default(),
            in_call: AtomicUsize::new(0),
        });
        let me = rig.clone();
        let work = move |key| Self::pass(me.clone(), key);
        tokio::spawn(queue::run(queue, workers, work, Counter::default(), std::future::pending()));
        rig
    }

    async fn pass(self: Arc<Self>, key: String) -> Next {
        let kind = key.rsplit_once('/').unwrap().0.to_owned();
        let (driver, direction) = kind.split_once('/').unwrap();
        let direction = if direction == "undo" { Direction::Undo } else { Direction::Make };
        let budget = budget(driver, Service::Attach, direction);
        let Ok(_turn) = self.budgets.turn(&budget, LIMIT, Parked::Handle(key.clone())).await else {
            return Next::After(LATER);
        };
        self.in_call.fetch_add(1, SeqCst);
        let _ = self.open.subscribe().wait_for(|open| open.contains(&kind)).await;
        self.in_call.fetch_sub(1, SeqCst);
        self.called.lock().push(key);
        Next::Done
    }

    fn add(&self, kind: &str, keys: std::ops::Range<usize>) {
        for n in keys {
            self.queue.add(format!("{kind}/{n}"));
        }
    }

    /// How many keys have been served. One that is woken while its pass begins is looked at once more; that is what a
    /// queue does, and finds nothing to do outside of this test.
    fn called(&self, kind: &str) -> usize {
        let called = self.called.lock();
        called.iter().filter(|key| key.starts_with(kind)).collect::<std::collections::HashSet<_>>().len()
    }
}

/// Lets everything run that can without time passing.
async fn settle() {
    for _ in 0..20_000 {
        tokio::task::yield_now().await;
    }
}

/// More volumes hang than the agent has workers: undoing them, the other service's calls and another driver's go on
/// without time passing.
#[tokio::test(start_paused = true)]
async fn a_driver_that_hangs_takes_no_worker_from_others() {
    const WORKERS: usize = 256;
    let rig = Rig::start(WORKERS, &["slow/undo", "other/make"]);
    rig.add("slow/make", 0..4 * WORKERS);
    settle().await;
    assert_eq!(rig.in_call.load(SeqCst), LIMIT, "the driver's own limit holds");
    let before = tokio::time::Instant::now();
    rig.add("slow/undo", 0..50);
    rig.add("other/make", 0..50);
    settle().await;
    assert_eq!((rig.called("slow/undo"), rig.called("other/make")), (50, 50));
    assert_eq!(rig.called("slow/make"), 0);
    assert_eq!(before.elapsed(), Duration::ZERO, "they waited for a turn of the driver that hangs");
}

/// When the driver comes round, everybody who was parked has a turn: one frees the way for the next, without waiting
/// for a timer.
#[tokio::test(start_paused = true)]
async fn who_was_parked_is_woken_when_there_is_room() {
    let rig = Rig::start(128, &[]);
    rig.add("slow/make", 0..1_000);
    settle().await;
    let before = tokio::time::Instant::now();
    rig.open.send_replace(vec!["slow/make".into()]);
    settle().await;
    assert_eq!(rig.called("slow/make"), 1_000);
    assert_eq!(before.elapsed(), Duration::ZERO);
    assert!(
        rig.budgets
            .slots
            .lock()
            .values()
            .all(|s| s.waiting == 0 && s.parked.is_empty() && s.tickets.is_empty())
    );
}

/// Also those that have waited for their whole time with a worker come again, behind the others.
#[tokio::test(start_paused = true)]
async fn a_turn_that_takes_too_long_lets_others_go_first() {
    let rig = Rig::start(256, &[]);
    rig.add("slow/make", 0..200);
    tokio::time::sleep(TURN * 3).await;
    assert_eq!(rig.in_call.load(SeqCst), LIMIT);
    rig.open.send_replace(vec!["slow/make".into()]);
    settle().await;
    assert_eq!(rig.called("slow/make"), 200);
}

#[tokio::test(start_paused = true)]
async fn services_directions_and_drivers_have_budgets_of_their_own() {
    let budgets = Budgets::new(Family::default(), |_| {});
    let full = budget("d", Service::Attach, Direction::Make);
    let mut held = Vec::new();
    for n in 0..LIMIT {
        held.push(budgets.turn(&full, LIMIT, key(n)).await.unwrap());
    }
    let before = tokio::time::Instant::now();
    for other in [
        budget("d", Service::Attach, Direction::Undo),
        budget("d", Service::Node, Direction::Make),
        budget("d", Service::Volume, Direction::Make),
        budget("d", Service::Node, Direction::Undo),
        budget("e", Service::Attach, Direction::Make),
    ] {
        drop(budgets.turn(&other, LIMIT, key(0)).await.unwrap());
    }
    assert_eq!(before.elapsed(), Duration::ZERO);
    assert_eq!(budgets.turn(&full, LIMIT, key(9)).await.unwrap_err(), Busy);
    assert_eq!(before.elapsed(), TURN);
}

#[tokio::test(start_paused = true)]
async fn a_key_is_parked_once_however_often_it_comes() {
    let budgets = Budgets::new(Family::default(), |_| {});
    let full = budget("d", Service::Attach, Direction::Make);
    let held = budgets.turn(&full, 1, key(0)).await.unwrap();
    for _ in 0..3 {
        assert_eq!(budgets.turn(&full, 1, key(1)).await.unwrap_err(), Busy);
    }
    let parked: Vec<_> = budgets.slots.lock()[&full].parked.values().cloned().collect();
    assert_eq!(parked, [key(1)]);
    let labels = BudgetLabels { driver_name: "d".into(), service: "attach", direction: "make" };
    let told = || budgets.told.get_or_create(&labels).get();
    assert_eq!(told(), 1);
    drop(held);
    assert_eq!(told(), 0, "it is woken");
}

#[tokio::test(start_paused = true)]
async fn a_new_limit_holds_at_once() {
    let budgets = Budgets::new(Family::default(), |_| {});
    let of = budget("d", Service::Attach, Direction::Make);
    let mut held = vec![budgets.turn(&of, 1, key(0)).await.unwrap()];
    for n in 1..3 {
        held.push(budgets.turn(&of, 3, key(n)).await.unwrap());
    }
    assert_eq!(budgets.turn(&of, 3, key(3)).await.unwrap_err(), Busy);
    // Of three that run only one is let go on, and when two have ended one more may begin.
    assert_eq!(budgets.turn(&of, 1, key(3)).await.unwrap_err(), Busy);
    for _ in 0..2 {
        held.pop();
        assert_eq!(budgets.turn(&of, 1, key(3)).await.unwrap_err(), Busy);
    }
    held.pop();
    let only = budgets.turn(&of, 1, key(3)).await.unwrap();
    assert_eq!(budgets.turn(&of, 1, key(4)).await.unwrap_err(), Busy);
    // What is still owed is paid by what is given back.
    let more = budgets.turn(&of, 3, key(4)).await.unwrap();
    assert_eq!(budgets.turn(&of, 1, key(5)).await.unwrap_err(), Busy);
    let third = budgets.turn(&of, 3, key(5)).await.unwrap();
    assert_eq!(budgets.turn(&of, 3, key(6)).await.unwrap_err(), Busy);
    drop((only, more, third));
    let again = [budgets.turn(&of, 3, key(7)).await, budgets.turn(&of, 3, key(8)).await];
    let last = budgets.turn(&of, 3, key(9)).await;
    assert!(again.iter().all(Result::is_ok) && last.is_ok());
    assert_eq!(budgets.turn(&of, 3, key(10)).await.unwrap_err(), Busy);
}
