use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn queue() -> Arc<Queue<&'static str>> {
    Arc::new(Queue::default())
}

async fn nothing_ready(queue: &Queue<&'static str>) -> bool {
    timeout(Duration::from_millis(1), queue.next()).await.is_err()
}

#[tokio::test(start_paused = true)]
async fn a_key_added_twice_is_handed_out_once() {
    let queue = queue();
    queue.add("a");
    queue.add("a");
    assert_eq!(queue.len(), 1);
    assert_eq!(queue.next().await, "a");
    assert!(nothing_ready(&queue).await);
}

#[tokio::test(start_paused = true)]
async fn a_key_added_during_work_waits_for_its_end() {
    let queue = queue();
    queue.add("a");
    queue.next().await;
    queue.add("a");
    assert!(nothing_ready(&queue).await);
    queue.finish("a", Next::Done);
    assert_eq!(queue.next().await, "a");
    queue.finish("a", Next::Done);
    assert!(nothing_ready(&queue).await);
    assert!(queue.state.lock().slots.is_empty(), "nothing is remembered of a key that is done");
}

#[tokio::test(start_paused = true)]
async fn of_several_delays_the_earliest_counts() {
    let queue = queue();
    let start = Instant::now();
    queue.add_after("a", 10 * SECOND);
    queue.add_after("a", 2 * SECOND);
    queue.add_after("a", 5 * SECOND);
    queue.next().await;
    assert!(start.elapsed() >= 2 * SECOND && start.elapsed() < 3 * SECOND);
    queue.finish("a", Next::Done);
    sleep(20 * SECOND).await;
    assert!(nothing_ready(&queue).await);
}

#[tokio::test(start_paused = true)]
async fn adding_now_cancels_the_delay() {
    let queue = queue();
    queue.add_after("a", 10 * SECOND);
    queue.add("a");
    queue.next().await;
    queue.finish("a", Next::Done);
    sleep(20 * SECOND).await;
    assert!(nothing_ready(&queue).await);
}

#[tokio::test(start_paused = true)]
async fn a_delay_that_ends_during_work_is_remembered() {
    let queue = queue();
    queue.add("a");
    queue.next().await;
    queue.add_after("a", SECOND);
    sleep(2 * SECOND).await;
    assert!(nothing_ready(&queue).await);
    queue.finish("a", Next::Done);
    assert_eq!(queue.next().await, "a");
}

#[tokio::test(start_paused = true)]
async fn a_delay_that_outlasts_the_work_is_kept() {
    let queue = queue();
    queue.add("a");
    queue.next().await;
    queue.add_after("a", 5 * SECOND);
    queue.finish("a", Next::Done);
    let start = Instant::now();
    assert_eq!(queue.next().await, "a");
    assert!(start.elapsed() >= 4 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn failures_double_the_delay_and_success_resets_it() {
    let queue = queue();
    queue.add("a");
    for exact in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
        queue.next().await;
        let start = Instant::now();
        queue.finish("a", Next::Retry);
        let key = queue.next().await;
        let waited = start.elapsed();
        assert!(
            waited <= exact * SECOND + Duration::from_millis(2) && waited >= exact * SECOND * 4 / 5,
            "{waited:?}"
        );
        queue.finish(key, Next::Retry);
        queue.state.lock().slots.get_mut("a").unwrap().failures -= 1;
        queue.add("a");
    }
    queue.next().await;
    queue.finish("a", Next::Done);
    assert!(queue.state.lock().slots.is_empty());
}

/// However long the API server was away.
#[tokio::test(start_paused = true)]
async fn what_was_not_answered_is_asked_again_within_seconds() {
    let queue = queue();
    queue.add("a");
    for _ in 0..50 {
        let key = queue.next().await;
        let start = Instant::now();
        queue.finish(key, Next::Unanswered);
        assert_eq!(queue.next().await, "a");
        assert!(start.elapsed() <= 8 * SECOND + Duration::from_millis(2));
        queue.finish("a", Next::Unanswered);
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_does_not_wait_for_the_backoff() {
    let queue = queue();
    queue.add("a");
    queue.next().await;
    queue.finish("a", Next::Retry);
    queue.add("a");
    let start = Instant::now();
    queue.next().await;
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_key_is_never_worked_on_twice_at_once_and_others_go_on() {
    let queue: Arc<Queue<usize>> = Arc::new(Queue::default());
    let busy: Arc<Vec<AtomicUsize>> = Arc::new((0..4).map(|_| AtomicUsize::new(0)).collect());
    let passes = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let worker = {
        let (busy, passes, most) = (busy.clone(), passes.clone(), most.clone());
        move |key: usize| {
            let (busy, passes, most) = (busy.clone(), passes.clone(), most.clone());
            async move {
                assert_eq!(busy[key].fetch_add(1, SeqCst), 0, "key {key} is in work twice");
                most.fetch_max(busy.iter().map(|b| b.load(SeqCst)).sum(), SeqCst);
                sleep(Duration::from_millis(10)).await;
                busy[key].fetch_sub(1, SeqCst);
                if passes.fetch_add(1, SeqCst) < 50 { Next::Again } else { Next::Done }
            }
        }
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(run(queue.clone(), 3, worker, Counter::default(), async {
        let _ = stopped.await;
    }));
    for round in 0..100 {
        queue.add(round % 4);
        sleep(Duration::from_millis(3)).await;
    }
    sleep(SECOND).await;
    stop.send(()).unwrap();
    running.await.unwrap();
    assert!(passes.load(SeqCst) > 50);
    assert_eq!(most.load(SeqCst), 3, "as many at once as allowed");
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failure_of_its_key_alone() {
    let queue = queue();
    let attempts = Arc::new(AtomicUsize::new(0));
    let counted = attempts.clone();
    let worker = move |key: &'static str| {
        let attempts = counted.clone();
        async move {
            assert!(key != "bad" || attempts.fetch_add(1, SeqCst) > 0, "injected");
            Next::Done
        }
    };
    queue.add("bad");
    queue.add("good");
    let panics = Counter::default();
    run(queue.clone(), 2, worker, panics.clone(), sleep(5 * SECOND)).await;
    assert_eq!(panics.get(), 1);
    assert_eq!(attempts.load(SeqCst), 2);
    assert!(queue.len() == 0 && queue.oldest_in_work().is_none());
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_the_keys_in_work_and_takes_no_more() {
    let queue = queue();
    let ended = Arc::new(AtomicUsize::new(0));
    let counted = ended.clone();
    let worker = move |_| {
        let ended = counted.clone();
        async move {
            sleep(10 * SECOND).await;
            ended.fetch_add(1, SeqCst);
            Next::Done
        }
    };
    queue.add("a");
    queue.add("b");
    let start = Instant::now();
    run(queue.clone(), 1, worker, Counter::default(), sleep(SECOND)).await;
    assert!(start.elapsed() >= 10 * SECOND);
    assert_eq!((ended.load(SeqCst), queue.len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_stuck_shows() {
    let queue = queue();
    assert_eq!(queue.oldest_in_work(), None);
    queue.add("a");
    queue.next().await;
    sleep(30 * SECOND).await;
    assert!(queue.oldest_in_work().unwrap() >= 30 * SECOND);
}

/// A rollout asks for a pass over everything; a claim that comes meanwhile does not wait for the end of that.
#[tokio::test(start_paused = true)]
async fn who_is_waited_for_comes_before_a_sweep() {
    let queue: Queue<usize> = Queue::default();
    (0..1000).for_each(|key| queue.sweep(key));
    assert_eq!(queue.next().await, 0);
    queue.add(5000);
    queue.add(700);
    assert_eq!(queue.len(), 1000);
    assert_eq!((queue.next().await, queue.next().await), (5000, 700));
    assert_eq!((queue.next().await, queue.len()), (1, 997));
    let mut rest = Vec::new();
    while queue.len() > 0 {
        rest.push(queue.next().await);
    }
    assert_eq!(rest, (2..700).chain(701..1000).collect::<Vec<_>>(), "each once, in their order");
}

#[tokio::test(start_paused = true)]
async fn a_sweep_gets_its_share_however_much_is_added() {
    let queue: Queue<usize> = Queue::default();
    queue.sweep(0);
    (1..100).for_each(|key| queue.add(key));
    let mut before = 0;
    while queue.next().await != 0 {
        before += 1;
    }
    assert_eq!(before, AHEAD);
}

#[tokio::test(start_paused = true)]
async fn a_swept_key_is_like_any_other_to_its_worker() {
    let queue = queue();
    queue.sweep("a");
    queue.sweep("a");
    assert_eq!((queue.len(), queue.next().await), (1, "a"));
    queue.sweep("a");
    assert!(nothing_ready(&queue).await);
    queue.finish("a", Next::After(SECOND));
    assert_eq!(queue.next().await, "a", "swept while it was worked on");
    queue.finish("a", Next::After(10 * SECOND));
    queue.sweep("a");
    assert_eq!(queue.next().await, "a");
    queue.finish("a", Next::Done);
    sleep(20 * SECOND).await;
    assert!(nothing_ready(&queue).await && queue.state.lock().slots.is_empty());
}

/// An API server that was away fails a whole sweep; whoever asks when it is back does not wait for the end of that.
#[tokio::test(start_paused = true)]
async fn what_fails_of_a_sweep_is_still_one() {
    let queue: Queue<usize> = Queue::default();
    (0..100).for_each(|key| queue.sweep(key));
    for _ in 0..100 {
        let key = queue.next().await;
        queue.finish(key, Next::Unanswered);
    }
    queue.add(7);
    assert_eq!(queue.next().await, 7, "somebody asks for it");
    queue.finish(7, Next::Unanswered);
    sleep(20 * SECOND).await;
    queue.add(5000);
    assert_eq!((queue.next().await, queue.next().await), (5000, 7), "before those of the sweep");
    let mut rest = Vec::new();
    while queue.len() > 0 {
        rest.push(queue.next().await);
    }
    assert_eq!(rest.len(), 99, "each once");
}

#[tokio::test(start_paused = true)]
async fn what_is_dropped_is_handed_out_by_nobody() {
    let queue = queue();
    queue.add("in work");
    queue.next().await;
    for key in ["ready", "kept"] {
        queue.add(key);
    }
    for key in ["swept", "swept, kept"] {
        queue.sweep(key);
    }
    queue.add_after("later", SECOND);
    queue.add_after("later, kept", SECOND);
    queue.retain(|key| key.contains("kept"));
    assert_eq!(queue.len(), 2);
    assert_eq!((queue.next().await, queue.next().await), ("kept", "swept, kept"));
    sleep(2 * SECOND).await;
    assert_eq!(queue.next().await, "later, kept");
    assert!(nothing_ready(&queue).await);
    queue.finish("in work", Next::Again);
    assert_eq!(queue.next().await, "in work");
    for key in ["in work", "kept", "swept, kept", "later, kept"] {
        queue.finish(key, Next::Done);
    }
    assert!(queue.state.lock().slots.is_empty());
}
