use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use tokio::{sync::oneshot, task::JoinHandle, time::sleep};

use super::{
    super::fake::{FakeLeases, Weather},
    *,
};

const SECOND: Duration = Duration::from_secs(1);

/// A process that knows of this word, or has left it.
#[derive(Default)]
struct Told(AtomicBool);

impl Handover for Told {
    fn tell(&self, lease: &mut Lease) {
        let annotations = lease.metadata.annotations.get_or_insert_default();
        if self.0.load(SeqCst) {
            annotations.insert("word".into(), String::new());
        } else {
            annotations.remove("word");
        }
    }

    fn knows(&self, lease: &Lease) -> bool {
        let told = lease.metadata.annotations.as_ref().is_some_and(|all| all.contains_key("word"));
        self.0.load(SeqCst) || !told
    }
}

struct Started {
    told: Arc<Told>,
    leases: FakeLeases,
    leadership: Leadership,
    stop: oneshot::Sender<()>,
    running: JoinHandle<ElectionEnd>,
}

fn candidate(leases: FakeLeases, identity: &str) -> Started {
    let changed = leases.changes();
    candidate_that_is_told(leases, identity, changed)
}

/// One that has to look for itself.
fn candidate_that_is_not_told(leases: FakeLeases, identity: &str) -> Started {
    candidate_that_is_told(leases, identity, Arc::default())
}

fn candidate_that_is_told(leases: FakeLeases, identity: &str, changed: Arc<Notify>) -> Started {
    let told: Arc<Told> = Arc::default();
    let of = super::Candidate { lease: "moor".into(), identity: identity.into() };
    let (election, leadership) = Election::new(leases.clone(), of, Timing::default(), told.clone(), changed);
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(election.run(async {
        let _ = stopped.await;
    }));
    Started { told, leases, leadership, stop, running }
}

#[tokio::test(start_paused = true)]
async fn the_first_candidate_leads_and_keeps_leading() {
    let first = candidate(FakeLeases::new(), "a");
    assert!(first.leadership.acquired().await);
    for _ in 0..120 {
        sleep(SECOND).await;
        assert!(first.leadership.is_leading());
    }
    let spec = first.leases.lease().unwrap().spec.unwrap();
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some("a"), Some(0)));
    assert!(first.leases.writes() >= 50 && first.leases.writes() <= 61, "one write per retry period");
}

#[tokio::test(start_paused = true)]
async fn a_second_candidate_waits_for_as_long_as_the_lease_is_renewed() {
    let first = candidate(FakeLeases::new(), "a");
    first.leadership.acquired().await;
    let second = candidate(first.leases.other(), "b");
    sleep(300 * SECOND).await;
    assert!(first.leadership.is_leading() && !second.leadership.is_leading());
}

#[tokio::test(start_paused = true)]
async fn a_leader_cut_off_stops_before_another_leads() {
    let first = candidate(FakeLeases::new(), "a");
    first.leadership.acquired().await;
    let second = candidate(first.leases.other(), "b");
    sleep(60 * SECOND).await;
    first.leases.set(Weather::Down);
    let start = Instant::now();
    let mut stopped = None;
    while !second.leadership.is_leading() {
        assert!(start.elapsed() < 15 * SECOND, "nobody leads");
        sleep(Duration::from_millis(50)).await;
        if !first.leadership.is_leading() {
            stopped.get_or_insert(start.elapsed());
        }
        assert!(!(first.leadership.is_leading() && second.leadership.is_leading()), "two leaders");
    }
    assert!(stopped.unwrap() <= 10 * SECOND);
    assert!(start.elapsed() >= 11 * SECOND, "too early: the last renewal was up to 2 s ago");
    assert_eq!(first.leases.lease().unwrap().spec.unwrap().lease_transitions, Some(1));
    assert_eq!(first.running.await.unwrap(), ElectionEnd::Lost);
}

/// Its pauses between looks are of different lengths, and none goes on beyond that moment.
#[tokio::test(start_paused = true)]
async fn a_lease_is_taken_as_soon_as_it_has_expired() {
    for _ in 0..20 {
        let first = candidate(FakeLeases::new(), "a");
        first.leadership.acquired().await;
        first.leases.set(Weather::Down);
        let second = candidate(first.leases.other(), "b");
        let start = Instant::now();
        second.leadership.acquired().await;
        let lease = Timing::default().lease;
        assert!((lease..lease + SECOND / 4).contains(&start.elapsed()), "{:?}", start.elapsed());
    }
}

/// It counts from a renewal of which it is told, and not from its next look.
#[tokio::test(start_paused = true)]
async fn a_lease_has_expired_its_time_after_the_last_renewal() {
    for number in 0..20 {
        let first = candidate(FakeLeases::new(), "a");
        first.leadership.acquired().await;
        let second = candidate(first.leases.other(), "b");
        sleep(10 * SECOND + number * SECOND / 10).await;
        first.leases.set(Weather::Down);
        let start = Instant::now();
        second.leadership.acquired().await;
        let longest = Timing::default().lease + SECOND / 10;
        assert!(start.elapsed() < longest, "{:?}", start.elapsed());
    }
}

/// Whoever is told of nothing leads as well, later.
#[tokio::test(start_paused = true)]
async fn a_candidate_looks_for_itself_now_and_then() {
    let first = candidate(FakeLeases::new(), "a");
    first.leadership.acquired().await;
    let second = candidate_that_is_not_told(first.leases.other(), "b");
    sleep(60 * SECOND).await;
    assert!(first.leadership.is_leading());
    first.running.abort();
    let start = Instant::now();
    second.leadership.acquired().await;
    let Timing { lease, retry, .. } = Timing::default();
    assert!(start.elapsed() < lease + 3 * retry, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn one_lost_answer_does_not_end_leadership() {
    let first = candidate(FakeLeases::new(), "a");
    first.leadership.acquired().await;
    sleep(Duration::from_millis(1900)).await;
    first.leases.set(Weather::AnswerLost);
    sleep(SECOND).await;
    first.leases.set(Weather::Fine);
    sleep(30 * SECOND).await;
    assert!(first.leadership.is_leading());
}

#[tokio::test(start_paused = true)]
async fn lost_answers_end_leadership_too_and_never_make_two_leaders() {
    let first = candidate(FakeLeases::new(), "a");
    first.leadership.acquired().await;
    let second = candidate(first.leases.other(), "b");
    sleep(30 * SECOND).await;
    first.leases.set(Weather::AnswerLost);
    let lost = first.leadership.clone();
    lost.lost().await;
    assert!(!second.leadership.is_leading());
    second.leadership.acquired().await;
    assert!(!first.leadership.is_leading());
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_is_survived() {
    let first = candidate(FakeLeases::new(), "a");
    first.leadership.acquired().await;
    sleep(10 * SECOND).await;
    first.leases.set(Weather::Down);
    sleep(5 * SECOND).await;
    first.leases.set(Weather::Fine);
    sleep(20 * SECOND).await;
    assert!(first.leadership.is_leading());
}

#[tokio::test(start_paused = true)]
async fn shutdown_hands_over_in_a_second() {
    let first = candidate(FakeLeases::new(), "a");
    first.leadership.acquired().await;
    let second = candidate(first.leases.other(), "b");
    sleep(10 * SECOND).await;
    first.stop.send(()).unwrap();
    assert_eq!(first.running.await.unwrap(), ElectionEnd::ShutDown);
    assert!(!first.leadership.is_leading());
    let start = Instant::now();
    second.leadership.acquired().await;
    assert!((SECOND..SECOND + SECOND / 4).contains(&start.elapsed()), "{:?}", start.elapsed());
    assert_eq!(second.leases.holder(), "b");
}

#[tokio::test(start_paused = true)]
async fn a_process_frozen_past_its_deadline_does_not_think_that_it_leads() {
    let first = candidate(FakeLeases::new(), "a");
    first.leadership.acquired().await;
    sleep(5 * SECOND).await;
    // Nothing of this process runs; only the clock does.
    first.running.abort();
    tokio::time::advance(11 * SECOND).await;
    assert!(!first.leadership.is_leading());
    first.leadership.lost().await;
}

#[tokio::test(start_paused = true)]
async fn the_clock_of_the_holder_does_not_matter() {
    let leases = FakeLeases::new();
    let first = candidate(leases.clone(), "a");
    first.leadership.acquired().await;
    first.running.abort();
    // A renewTime an hour ahead must not keep the Lease alive, one an hour ago must not end it.
    let mut lease = leases.lease().unwrap();
    lease.spec.as_mut().unwrap().renew_time =
        "2001-01-01T00:00:00Z".parse().ok().map(k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime);
    leases.other().replace(&lease).await.unwrap();
    let second = candidate(leases.other(), "b");
    sleep(12 * SECOND).await;
    assert!(!second.leadership.is_leading());
    sleep(2 * SECOND).await;
    assert!(second.leadership.is_leading());
}

#[tokio::test(start_paused = true)]
async fn a_restarted_process_of_the_same_pod_leads_at_once() {
    let leases = FakeLeases::new();
    let first = candidate(leases.clone(), "a");
    first.leadership.acquired().await;
    first.running.abort();
    let again = candidate(leases.other(), "a");
    let start = Instant::now();
    again.leadership.acquired().await;
    assert!(start.elapsed() < SECOND);
    assert_eq!(leases.lease().unwrap().spec.unwrap().lease_transitions, Some(0));
}

#[tokio::test(start_paused = true)]
async fn only_one_of_many_candidates_wins() {
    let leases = FakeLeases::new();
    let candidates: Vec<Started> = (0..5).map(|n| candidate(leases.other(), &format!("c{n}"))).collect();
    for _ in 0..600 {
        sleep(Duration::from_millis(100)).await;
        assert!(candidates.iter().filter(|candidate| candidate.leadership.is_leading()).count() <= 1);
    }
    assert_eq!(candidates.iter().filter(|candidate| candidate.leadership.is_leading()).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn shutdown_shows_at_once() {
    let first = candidate(FakeLeases::new(), "a");
    first.leadership.acquired().await;
    let waiting = tokio::spawn({
        let leadership = first.leadership.clone();
        async move { leadership.lost().await }
    });
    sleep(SECOND).await;
    let start = Instant::now();
    first.stop.send(()).unwrap();
    waiting.await.unwrap();
    assert!(start.elapsed() < SECOND);
}

/// Three candidates that are started again when they lose, in changing weather.
#[tokio::test(start_paused = true)]
async fn whatever_the_weather_there_are_never_two_leaders() {
    let leases = FakeLeases::new();
    let mut candidates: Vec<Started> = (0..3).map(|n| candidate(leases.other(), &format!("c{n}"))).collect();
    let (mut led, mut changes, mut last) = (0_u32, 0, None);
    for step in 0..15_000_u32 {
        sleep(Duration::from_millis(100)).await;
        let leading: Vec<usize> = (0..3).filter(|n| candidates[*n].leadership.is_leading()).collect();
        assert!(leading.len() <= 1, "step {step}: {leading:?} lead");
        led += u32::try_from(leading.len()).unwrap();
        changes += i32::from(leading.first().is_some_and(|leader| last.replace(*leader) != Some(*leader)));
        for (n, candidate_of_n) in candidates.iter_mut().enumerate() {
            if candidate_of_n.running.is_finished() {
                *candidate_of_n = candidate(leases.other(), &format!("c{n}-{step}"));
            } else if step % 120 == 0 {
                let weather = match rand::rng().random_range(0..4) {
                    0 => Weather::Down,
                    1 => Weather::AnswerLost,
                    _ => Weather::Fine,
                };
                candidate_of_n.leases.set(weather);
            }
        }
    }
    assert!(led > 5_000 && changes > 2, "led {led} steps, {changes} changes: the test shows nothing");
}

/// The backup's Lease stays as old as it is: the next leader sees by it that nobody led for a while (trap N15).
#[tokio::test(start_paused = true)]
async fn a_lease_of_a_backup_is_not_renewed() {
    for gone in [false, true] {
        let leases = FakeLeases::new();
        let first = candidate(leases.clone(), "a");
        first.leadership.acquired().await;
        let standby = candidate(leases.other(), "b");
        let backup = leases.lease().unwrap();
        sleep(60 * SECOND).await;
        if gone {
            leases.remove();
        } else {
            leases.restore(backup.clone());
        }
        let writes = leases.writes();
        assert_eq!(first.running.await.unwrap(), ElectionEnd::StartAnew);
        assert_eq!(standby.running.await.unwrap(), ElectionEnd::StartAnew);
        assert_eq!((leases.writes(), leases.lease()), (writes, (!gone).then_some(backup)));
        let next = candidate(leases, "c");
        assert!(next.leadership.acquired().await);
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_does_not_know_what_the_last_leader_knew_starts_anew() {
    let first = candidate(FakeLeases::new(), "a");
    first.told.0.store(true, SeqCst);
    first.leadership.acquired().await;
    let ignorant = candidate(first.leases.other(), "b");
    sleep(60 * SECOND).await;
    assert!(!ignorant.running.is_finished(), "while another leads it is none of its business");
    first.running.abort();
    assert_eq!(ignorant.running.await.unwrap(), ElectionEnd::StartAnew);
    let informed = candidate(first.leases.other(), "c");
    informed.told.0.store(true, SeqCst);
    assert!(informed.leadership.acquired().await);
    informed.told.0.store(false, SeqCst);
    sleep(10 * SECOND).await;
    informed.running.abort();
    let next = candidate(informed.leases.other(), "d");
    assert!(next.leadership.acquired().await, "it is over");
}
