use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use kube::ResourceExt;
use tokio::{
    sync::{Notify, oneshot},
    task::JoinHandle,
};

use super::*;
use crate::heartbeat::{Forgotten, Leftovers};
use crate::k8s::lease::fake::{FakeLeases, Weather};

const SECOND: Duration = Duration::from_secs(1);

/// A node with these mounts left over.
struct Node {
    leases: FakeLeases,
    progress: AtomicBool,
    mounted: Mutex<BTreeSet<String>>,
    forgotten: Mutex<BTreeSet<String>>,
    changed: Notify,
    /// How long it takes to find out.
    slow: Mutex<Duration>,
    /// What the Lease said whenever it was found out what is left over.
    said: Mutex<Vec<Leftovers>>,
}

impl Word for Arc<Node> {
    fn progress(&self) -> Result<(), String> {
        if self.progress.load(SeqCst) { Ok(()) } else { Err("watch of claims".into()) }
    }

    async fn catch_up(&self) -> Result<(), ApiError> {
        let slow = *self.slow.lock().unwrap();
        sleep(slow).await;
        let lease = self.leases.lease().unwrap();
        self.said.lock().unwrap().push(Leftovers::said_in(&lease));
        Ok(())
    }

    fn said(&self, caught_up: bool) -> Said {
        let mounted = self.mounted.lock().unwrap().clone();
        let leftovers = if caught_up || mounted.is_empty() { Leftovers::Of(mounted) } else { Leftovers::Any };
        let forgotten = Forgotten::of(self.forgotten.lock().unwrap().iter().cloned());
        Said { leftovers, forgotten, sockets: None }
    }

    async fn changed(&self) {
        self.changed.notified().await;
    }
}

struct Agent {
    leases: FakeLeases,
    renewal: Renewal,
    node: Arc<Node>,
    history: Arc<History>,
    stop: oneshot::Sender<()>,
    running: JoinHandle<AgentEnd>,
}

fn agent(leases: FakeLeases, identity: &str) -> Agent {
    agent_on(leases, identity, "node-1-uid", "boot-1")
}

fn agent_on(leases: FakeLeases, identity: &str, node_uid: &str, boot_id: &str) -> Agent {
    agent_with(leases, identity, node_uid, boot_id, &[])
}

fn agent_with(leases: FakeLeases, identity: &str, node_uid: &str, boot_id: &str, mounted: &[&str]) -> Agent {
    let holder = Holder { identity: identity.into(), node_uid: node_uid.into(), boot_id: boot_id.into() };
    let history = Arc::<History>::default();
    let (lease, renewal) = AgentLease::new(leases.clone(), "node-1", holder, history.clone());
    let node = Arc::new(Node {
        leases: leases.clone(),
        progress: AtomicBool::new(true),
        mounted: Mutex::new(mounted.iter().map(|&handle| handle.to_owned()).collect()),
        forgotten: Mutex::default(),
        changed: Notify::new(),
        slow: Mutex::default(),
        said: Mutex::default(),
    });
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(lease.run(node.clone(), async {
        let _ = stopped.await;
    }));
    Agent { leases, renewal, node, history, stop, running }
}

#[tokio::test(start_paused = true)]
async fn it_is_created_renewed_every_ten_seconds_and_says_who_and_where() {
    let agent = agent(FakeLeases::new(), "pod-1");
    assert!(!agent.renewal.may_call());
    assert!(agent.renewal.first().await);
    for _ in 0..100 {
        sleep(SECOND).await;
        assert!(agent.renewal.may_call());
    }
    assert_eq!(agent.leases.writes(), 11);
    let lease = agent.leases.lease().unwrap();
    assert_eq!(lease.name_any(), "moor-agent-node-1");
    assert_eq!(lease.annotations()[NODE_UID], "node-1-uid");
    assert_eq!(lease.annotations()[BOOT_ID], "boot-1");
    assert_eq!(lease.spec.unwrap().lease_duration_seconds, Some(40));
}

/// Also by the next process, which finds it in its records: its first renewal says it.
#[tokio::test(start_paused = true)]
async fn it_names_what_the_api_server_has_forgotten_until_that_is_undone() {
    let agent = agent(FakeLeases::new(), "pod-1");
    agent.renewal.first().await;
    let said = || Forgotten::said_in(&agent.leases.lease().unwrap());
    assert!(said().is_empty());
    agent.node.forgotten.lock().unwrap().insert("handle".into());
    agent.node.changed.notify_one();
    sleep(2 * SECOND).await;
    assert_eq!(said().names().collect::<Vec<_>>(), ["handle"]);
    agent.node.forgotten.lock().unwrap().clear();
    sleep(RENEW).await;
    assert!(said().is_empty());
}

#[tokio::test(start_paused = true)]
async fn without_progress_it_is_not_renewed_and_no_call_is_started() {
    let agent = agent(FakeLeases::new(), "pod-1");
    agent.renewal.first().await;
    agent.node.progress.store(false, SeqCst);
    let writes = agent.leases.writes();
    sleep(21 * SECOND).await;
    assert_eq!(agent.leases.writes(), writes);
    assert!(!agent.renewal.may_call());
    agent.node.progress.store(true, SeqCst);
    sleep(3 * SECOND).await;
    assert!(agent.renewal.may_call());
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_api_ends_calls_after_half_the_duration() {
    for weather in [Weather::Down, Weather::AnswerLost] {
        let agent = agent(FakeLeases::new(), "pod-1");
        agent.renewal.first().await;
        let start = Instant::now();
        agent.leases.set(weather);
        while agent.renewal.may_call() {
            sleep(Duration::from_millis(100)).await;
        }
        assert!(start.elapsed() <= 20 * SECOND, "{:?}", start.elapsed());
        agent.leases.set(Weather::Fine);
        sleep(15 * SECOND).await;
        assert!(agent.renewal.may_call(), "it recovers from {weather:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn refused_credentials_end_calls_at_once() {
    let agent = agent(FakeLeases::new(), "pod-1");
    agent.renewal.first().await;
    agent.leases.set(Weather::Unauthorized);
    sleep(11 * SECOND).await;
    assert_eq!(agent.renewal.term(), None);
}

#[tokio::test(start_paused = true)]
async fn the_next_agent_takes_it_and_the_previous_one_ends() {
    let first = agent(FakeLeases::new(), "pod-1");
    first.renewal.first().await;
    let second = agent(first.leases.other(), "pod-2");
    second.renewal.first().await;
    assert_eq!(first.running.await.unwrap(), AgentEnd::Displaced);
    assert!(!first.renewal.may_call());
    sleep(30 * SECOND).await;
    assert!(second.renewal.may_call());
    assert_eq!(
        (second.leases.holder().as_str(), second.leases.lease().unwrap().spec.unwrap().lease_transitions),
        ("pod-2", Some(1))
    );
}

#[tokio::test(start_paused = true)]
async fn shutdown_releases_it() {
    let agent = agent(FakeLeases::new(), "pod-1");
    agent.renewal.first().await;
    agent.stop.send(()).unwrap();
    assert_eq!(agent.running.await.unwrap(), AgentEnd::ShutDown);
    assert_eq!(agent.leases.holder(), "");
    assert!(!agent.renewal.may_call());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_deleted_is_made_again() {
    let agent = agent(FakeLeases::new(), "pod-1");
    agent.renewal.first().await;
    agent.leases.remove();
    sleep(15 * SECOND).await;
    assert_eq!(agent.leases.holder(), "pod-1");
    assert!(agent.renewal.may_call());
}

#[tokio::test(start_paused = true)]
async fn a_replacement_waits_for_the_calls_of_the_machine_it_replaces() {
    let longest = 60 * SECOND;
    for (node_uid, boot_id, waits) in [
        ("node-1-uid", "boot-1", false),
        // A reboot ends every call, and the node's lock was held for the same boot.
        ("node-1-uid", "boot-2", false),
        ("other-uid", "boot-1", false),
        ("other-uid", "boot-2", true),
    ] {
        let first = agent(FakeLeases::new(), "pod-1");
        first.renewal.first().await;
        // Cut off, and perhaps in the middle of a call.
        first.running.abort();
        let second = agent_on(first.leases.clone(), "pod-2", node_uid, boot_id);
        second.renewal.first().await;
        assert!(second.renewal.may_call(), "the calls of its own node need not wait");
        assert_eq!(second.renewal.may_call_controller(longest), !waits, "{node_uid} {boot_id}");
        sleep(longest + DURATION / 2).await;
        sleep(SECOND).await;
        assert!(second.renewal.may_call_controller(longest));
    }
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_leaves_nothing_to_wait_for() {
    let first = agent(FakeLeases::new(), "pod-1");
    first.renewal.first().await;
    first.stop.send(()).unwrap();
    first.running.await.unwrap();
    let second = agent_on(first.leases.clone(), "pod-2", "other-uid", "boot-2");
    second.renewal.first().await;
    assert!(second.renewal.may_call_controller(60 * SECOND));
}

fn said(agent: &Agent) -> Leftovers {
    Leftovers::said_in(&agent.leases.lease().unwrap())
}

#[tokio::test(start_paused = true)]
async fn what_is_left_over_is_said_before_and_after_it_is_known() {
    let agent = agent_with(FakeLeases::new(), "pod-1", "node-1-uid", "boot-1", &["a", "b"]);
    agent.renewal.first().await;
    sleep(SECOND).await;
    assert_eq!(said(&agent), Leftovers::Of(["a".into(), "b".into()].into()));
    assert_eq!(*agent.node.said.lock().unwrap(), [Leftovers::Any], "found out under a fresh Lease");
    assert_eq!(agent.leases.writes(), 2);
    // The next renewal would be due in nine seconds.
    agent.node.mounted.lock().unwrap().clear();
    agent.node.changed.notify_one();
    sleep(2 * SECOND).await;
    assert_eq!(said(&agent), Leftovers::none());
    assert_eq!(agent.leases.writes(), 3);
}

#[tokio::test(start_paused = true)]
async fn after_a_silence_it_is_found_out_anew() {
    let agent = agent_with(FakeLeases::new(), "pod-1", "node-1-uid", "boot-1", &["a"]);
    agent.renewal.first().await;
    for (silent, times) in [(8 * SECOND, 1), (30 * SECOND, 2)] {
        agent.leases.set(Weather::Down);
        sleep(silent).await;
        agent.leases.set(Weather::Fine);
        sleep(15 * SECOND).await;
        assert_eq!(*agent.node.said.lock().unwrap(), vec![Leftovers::Any; times], "{silent:?}");
        assert_eq!(said(&agent), Leftovers::Of(["a".into()].into()));
    }
}

/// What was read before a silence says nothing after it: the volume may have been given to another node.
#[tokio::test(start_paused = true)]
async fn a_silence_begins_another_term() {
    let agent = agent(FakeLeases::new(), "pod-1");
    agent.renewal.first().await;
    let first = agent.renewal.term();
    for (silent, same) in [(8 * SECOND, true), (30 * SECOND, false)] {
        agent.leases.set(Weather::Down);
        sleep(silent).await;
        assert_eq!(agent.renewal.term().is_some(), same, "{silent:?}");
        agent.leases.set(Weather::Fine);
        sleep(15 * SECOND).await;
        assert!(agent.renewal.may_call());
        assert_eq!(agent.renewal.term() == first, same, "{silent:?}");
    }
}

/// A LIST may take minutes, and the agent is as alive as before.
#[tokio::test(start_paused = true)]
async fn the_lease_stays_fresh_while_it_is_found_out() {
    let agent = agent_with(FakeLeases::new(), "pod-1", "node-1-uid", "boot-1", &["a"]);
    *agent.node.slow.lock().unwrap() = 70 * SECOND;
    agent.renewal.first().await;
    for _ in 0..60 {
        sleep(SECOND).await;
        assert!(agent.renewal.may_call());
        assert_eq!(said(&agent), Leftovers::Any);
    }
    assert!(agent.leases.writes() <= 8, "{} writes", agent.leases.writes());
    sleep(20 * SECOND).await;
    assert_eq!(said(&agent), Leftovers::Of(["a".into()].into()));
    assert_eq!(agent.node.said.lock().unwrap().len(), 1);
}

/// What was found out before a second silence says nothing about that one.
#[tokio::test(start_paused = true)]
async fn a_silence_while_it_is_found_out_counts() {
    let agent = agent_with(FakeLeases::new(), "pod-1", "node-1-uid", "boot-1", &["a"]);
    *agent.node.slow.lock().unwrap() = 60 * SECOND;
    agent.renewal.first().await;
    agent.leases.set(Weather::Down);
    sleep(30 * SECOND).await;
    agent.leases.set(Weather::Fine);
    sleep(45 * SECOND).await;
    assert_eq!(agent.node.said.lock().unwrap().len(), 1, "of the first silence");
    assert_eq!(said(&agent), Leftovers::Any);
    sleep(60 * SECOND).await;
    assert_eq!(said(&agent), Leftovers::Of(["a".into()].into()));
}

/// The agent drains its calls before it ends. A renewal meanwhile would tell the leader that everything is reported.
#[tokio::test(start_paused = true)]
async fn nothing_is_renewed_once_the_agent_knows_that_etcd_was_restored() {
    let agent = agent(FakeLeases::new(), "pod-1");
    agent.renewal.first().await;
    agent.history.restart().unwrap();
    let writes = agent.leases.writes();
    let ended = timeout(DURATION, agent.running).await.expect("it goes on").unwrap();
    assert_eq!((ended, agent.leases.writes()), (AgentEnd::WentBack, writes));
}

/// Its Pod is not in the backup, so it is ended before it has found out anything.
#[tokio::test(start_paused = true)]
async fn a_lease_of_a_backup_is_not_released() {
    let agent = agent(FakeLeases::new(), "pod-1");
    agent.renewal.first().await;
    let backup = agent.leases.lease().unwrap();
    sleep(RENEW * 2).await;
    agent.leases.restore(backup);
    let writes = agent.leases.writes();
    agent.stop.send(()).unwrap();
    assert_eq!(agent.running.await.unwrap(), AgentEnd::ShutDown);
    assert_eq!(agent.leases.writes(), writes, "that would count as a sign of life");
}
