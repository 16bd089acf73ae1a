//! Runs the agent role: lock, caches, watches, workers, Lease, shutdown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinSet};

use super::args::AgentArgs;
use super::attach::{self, audit, audits::Audits};
use super::caches::Caches;
use super::calls::budgets::Budgets;
use super::calls::flights::Flights;
use super::calls::running::Running;
use super::calls::tenures::Tenures;
use super::calls::unended::Unended;
use super::capacity;
use super::capacity::said::Said;
use super::condition::known::Known;
use super::condition::rounds;
use super::context::Agent;
use super::drivers::plugin_instance;
use super::drivers::registry::Registry;
use super::events::Events;
use super::health::Health;
use super::host::error::HostError;
use super::host::machine::{self, NodeLock};
use super::host::mount_namespace::MountNamespace;
use super::host::paths::Paths;
use super::host::targets::Targets;
use super::kubelet;
use super::kubelet::served::Served;
use super::leftovers::LeaseWord;
use super::orphans::known::Orphans;
use super::queues::Queues;
use super::records::store::{RecordError, Records};
use super::restore::settling::Settling;
use super::{node, snapshot, trace, volume};
use crate::admin::{AdminError, Check};
use crate::heartbeat::{AgentEnd, AgentLease, History, Holder};
use crate::k8s::events::{Recorder, Role};
use crate::k8s::lease::ApiLeases;
use crate::k8s::node::LeanNode;
use crate::k8s::watch::{STALLED, WentBack};
use crate::k8s::{ApiError, Next, Queue, Writer, queue, read};
use crate::metrics::Metrics;
use crate::shutdown::Shutdown;

/// Passes at a time. They mostly wait: for a plugin, for the API server or for their turn.
const WORKERS: usize = 1024;
/// What a pass may take beyond its longest call: its turn, and reads and writes of the API.
const SLACK: Duration = Duration::from_secs(120);
/// Time between attempts to find our own Node.
const RETRY: Duration = Duration::from_secs(2);

/// Why the agent ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This machine, or the lock on it.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The node's records.
    #[error(transparent)]
    Records(#[from] RecordError),
    /// /livez, /readyz and /metrics.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// etcd was restored under us: nothing cached can be trusted.
    #[error(transparent)]
    WentBack(#[from] WentBack),
    /// As the agent's own Lease or a record showed.
    #[error("the API server's history went back: etcd was restored")]
    HistoryWentBack,
    /// Another agent has taken the Lease of this node.
    #[error("another agent has taken this node's Lease")]
    Displaced,
    /// Our Node was deleted and registered anew. Everything is named by its UID, so this process starts anew too.
    #[error("the Node was registered anew: starting over under its new UID")]
    RegisteredAnew,
    /// A task that runs as long as the process ended.
    #[error("a worker or watch of the agent ended unexpectedly: {0}")]
    TaskEnded(String),
}

/// Runs the agent until `shutdown`, or until it cannot go on.
pub async fn run(client: Client, args: AgentArgs, shutdown: Shutdown) -> Result<(), Error> {
    let mut shutdown = std::pin::pin!(shutdown.begun());
    let me = format!("pod {} process {}", args.pod_uid.as_deref().unwrap_or("-"), std::process::id());
    let start = async {
        let lock = NodeLock::acquire(&args.state_dir, &me).await?;
        Ok::<_, Error>((lock, node_uid(&client, &args.node_name).await))
    };
    let (metrics, registry) = Metrics::new();
    let mut front = Health::new(registry);
    // Already while waiting, so that kubelet sees no hang; later where the agent that is waited for has the address.
    let taken = front.open(args.admin_address).await;
    taken.unwrap_or_else(|error| tracing::warn!("{error}; tried again with the node's lock in hand"));
    let (_lock, node_uid) = tokio::select! {
        started = start => started?,
        () = &mut shutdown => return Ok(()),
    };
    front.open(args.admin_address).await?;
    let boot_id = machine::boot_id(&args.boot_id_file)?;
    let calls_before = Running::open(&args.state_dir.join("calls"), &args.node_name, &boot_id);
    let longest_call = args.calls.deadlines().longest();
    let unended = Unended::open(&args.state_dir.join("unended"), &boot_id, longest_call);
    let records = open_records(&args)?;
    let paths = Paths::below(&args.kubelet_dir);
    let targets = Targets::prepare(&paths, &records, &boot_id).await;
    tracing::info!(node = args.node_name, node_uid, boot_id, records = records.len(), "agent started");

    let writer = Writer::new(client.clone(), metrics.clone());
    let leases = ApiLeases::new(Api::<Lease>::namespaced(client.clone(), &args.namespace), writer.clone());
    let history = Arc::new(History::kept_in(&args.state_dir.join("lease")));
    let identity = args.pod_uid.clone().filter(|uid| !uid.is_empty()).unwrap_or_else(|| boot_id.clone());
    let holder = Holder { identity, node_uid: node_uid.clone(), boot_id: boot_id.clone() };
    let (lease, renewal) = AgentLease::new(leases.clone(), &args.node_name, holder, history.clone());

    let caches = Caches::new(&args.node_name);
    let queues = Arc::new(Queues::default());
    let events = Arc::new(Events {
        node_name: args.node_name.clone(),
        directories: args.directories(),
        caches: caches.clone(),
        records: Arc::new(records),
        retries: Arc::default(),
        begun: Arc::default(),
        queues: queues.clone(),
        lost: Arc::default(),
        asked: Arc::default(),
        metrics: metrics.clone(),
        audit_interval: Duration::from_secs(args.audit_interval),
        orphans: Arc::new(Orphans::open(&args.state_dir.join("ledger"))),
    });
    events.listen();
    let agent = Arc::new(Agent {
        node_name: args.node_name.clone(),
        node_uid,
        boot_id,
        pod_uid: args.pod_uid.clone(),
        directories: args.directories(),
        namespace: args.namespace.clone(),
        node_mounts: MountNamespace::of(args.node_mount_namespace.clone()),
        paths,
        targets,
        caches,
        registry: Registry::new(args.directories().plugins, args.calls.deadlines(), events.clone()),
        records: events.records.clone(),
        recorder: Recorder::new(client.clone(), Role::Agent, &args.node_name),
        writer,
        metrics: metrics.clone(),
        retries: events.retries.clone(),
        begun: events.begun.clone(),
        queues: queues.clone(),
        flights: Flights::new({
            let queues = queues.clone();
            move |parked| queues.wake(parked)
        }),
        tenures: Tenures::new(longest_call, calls_before),
        unended,
        budgets: Budgets::new(metrics.csi_calls_waiting.clone(), move |parked| queues.wake(parked)),
        renewal,
        leases,
        history,
        settling: Settling::default(),
        lost: events.lost.clone(),
        asked: events.asked.clone(),
        served: Served::below(&args.kubelet_dir),
        went_back: Notify::new(),
        audits: Audits::new(events.audit_interval),
        orphans: events.orphans.clone(),
        capacities: Said::default(),
        capacity_interval: Duration::from_secs(args.capacity_interval),
        inline_volumes: args.inline_volumes,
        volumes_known: Known::default(),
        health_interval: Duration::from_secs(args.health_interval),
        stopping: AtomicBool::new(false),
        registered_anew: Notify::new(),
        client,
    });

    agent.settling.begin(agent.records.in_doubt());
    front.started(turning_check(&agent), ready_check(&agent));
    let ended = live(&agent, &events, lease, &args, shutdown).await;
    agent.targets.leave(&agent.records).await;
    front.close().await;
    ended
}

fn open_records(args: &AgentArgs) -> Result<Records, RecordError> {
    let records = Records::open(&args.state_dir.join("records"))?;
    for unreadable in records.unreadable() {
        tracing::error!(path = %unreadable.path.display(), "a record cannot be read and is kept: a volume that only it knows of stays mounted");
    }
    Ok(records)
}

/// Runs everything until the shutdown, then drains.
async fn live(
    agent: &Arc<Agent>,
    events: &Arc<Events>,
    lease: AgentLease<ApiLeases>,
    args: &AgentArgs,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Error> {
    let (drain, state_dir) = (args.drain(), args.state_dir.clone());
    let (stop_workers, workers_shutdown) = Shutdown::manual();
    let (stop_lease, lease_shutdown) = Shutdown::manual();
    let mut watches = agent.caches.watches(
        &agent.client,
        &agent.namespace,
        &agent.node_name,
        &agent.metrics.watch_restarts,
    );
    let word = LeaseWord { agent: agent.clone(), progress: progress_check(agent) };
    let mut lease = tokio::spawn(lease.run(word, lease_shutdown.begun()));
    let mut workers = JoinSet::new();
    let mut beside = JoinSet::new();
    beside.spawn(attend_state_disk(agent.clone(), events.clone()));
    beside.spawn(trace::serve(agent.registry.trace().clone(), agent.node_name.clone(), state_dir));
    tokio::pin!(shutdown);
    let synced = tokio::select! {
        () = agent.caches.synced() => true,
        Some(ended) = watches.join_next() => return Err(watch_ended(agent, ended)),
        Some(ended) = beside.join_next() => return Err(task_ended("a task", ended)),
        () = &mut shutdown => false,
    };
    if synced {
        beside.spawn(agent.registry.clone().run());
        beside.spawn(kubelet::sweep::run(agent.clone()));
        beside.spawn(rounds::run(agent.clone()));
        agent.begun.before(&agent.caches, &agent.node_name);
        workers_of(agent, &workers_shutdown, &mut workers);
        events.wake_records();
        let outcome = tokio::select! {
            () = &mut shutdown => Ok(()),
            Some(ended) = watches.join_next() => Err(watch_ended(agent, ended)),
            () = agent.went_back.notified() => Err(Error::HistoryWentBack),
            ended = &mut lease => Err(match ended {
                Ok(AgentEnd::WentBack) => {
                    agent.doubt();
                    Error::HistoryWentBack
                }
                Ok(AgentEnd::Displaced | AgentEnd::ShutDown) => Error::Displaced,
                Err(error) => Error::TaskEnded(error.to_string()),
            }),
            () = agent.registered_anew.notified() => Err(Error::RegisteredAnew),
            Some(ended) = workers.join_next() => Err(task_ended("a queue", ended)),
            Some(ended) = beside.join_next() => Err(task_ended("a task", ended)),
        };
        // No call is started from here on; those in flight may end.
        agent.stopping.store(true, Ordering::Relaxed);
        stop_workers.begin();
        let drained = async {
            while workers.join_next().await.is_some() {}
            agent.asked.are_ended().await;
        };
        let clean = tokio::time::timeout(drain, drained).await.is_ok();
        if !clean {
            agent.unended.leave(agent.flights.handles());
            tracing::warn!("calls are still running after {drain:?}; their outcome will be found out");
        }
        drop(beside);
        outcome?;
        plugin_instance::report_shutdown(agent).await;
        if !clean {
            // A released Lease says that no call is running; this one is left to expire.
            lease.abort();
            return Ok(());
        }
    }
    stop_lease.begin();
    let _ = tokio::time::timeout(RETRY, lease).await;
    Ok(())
}

async fn attend_state_disk(agent: Arc<Agent>, events: Arc<Events>) {
    let tell = |unwritable: bool| {
        agent.metrics.state_unwritable.set(i64::from(unwritable));
        events.state_disk_changed(!unwritable);
    };
    agent.records.disk.attend(tell).await;
}

fn task_ended(what: &str, ended: Result<(), JoinError>) -> Error {
    Error::TaskEnded(ended.err().map_or_else(|| what.to_owned(), |error| error.to_string()))
}

fn watch_ended(agent: &Agent, ended: Result<WentBack, JoinError>) -> Error {
    match ended {
        Ok(went_back) => {
            agent.doubt();
            Error::WentBack(went_back)
        }
        Err(error) => Error::TaskEnded(error.to_string()),
    }
}

fn workers_of(agent: &Arc<Agent>, shutdown: &Shutdown, set: &mut JoinSet<()>) {
    let queues = &agent.queues;
    let mut run = Workers { agent, shutdown, set };
    run.spawn(&queues.nodes, WORKERS, node::worker::work);
    run.spawn(&queues.handles, WORKERS, attach::worker::work);
    run.spawn(&queues.volumes, WORKERS, volume::worker::work);
    run.spawn(&queues.snapshots, WORKERS, snapshot::worker::work);
    run.spawn(&queues.instances, 4, plugin_instance::work);
    // One at a time, and no part of what has to turn: the listing of a large driver takes as long as it takes.
    run.spawn(&queues.audits, 1, audit::work);
    run.spawn(&queues.capacities, 4, capacity::worker::work);
    run.spawn(&queues.kubelet, 4, kubelet::serve::work);
    run.spawn(&queues.releases, WORKERS, kubelet::releases::work);
    // Also names whose Plugin went while the agent was away.
    for driver in agent.served.drivers() {
        queues.kubelet.add(driver);
    }
}

/// The workers of all queues.
struct Workers<'a> {
    agent: &'a Arc<Agent>,
    shutdown: &'a Shutdown,
    set: &'a mut JoinSet<()>,
}

impl Workers<'_> {
    fn spawn<F>(&mut self, queue: &Arc<Queue<String>>, at_a_time: usize, work: fn(Arc<Agent>, String) -> F)
    where
        F: Future<Output = Next> + Send + 'static,
    {
        let (agent, panics) = (self.agent.clone(), self.agent.metrics.panics.clone());
        let work = move |key| work(agent.clone(), key);
        self.set.spawn(queue::run(queue.clone(), at_a_time, work, panics, self.shutdown.clone().begun()));
    }
}

/// The check for the Lease, which is renewed only while watches are heard from and workers turn (trap B27).
fn progress_check(agent: &Arc<Agent>) -> Check {
    let turning = turning_check(agent);
    let agent = agent.clone();
    Box::new(move || {
        for (kind, silent) in agent.caches.silent_for() {
            if silent > STALLED {
                return Err(format!("the watch of {kind} has been silent for {} s", silent.as_secs()));
            }
        }
        agent.settled()?;
        turning()
    })
}

/// The check for /livez that the workers turn, since only a restart helps if not. A silent API server is no reason.
fn turning_check(agent: &Arc<Agent>) -> Check {
    let queues = agent.queues.clone();
    let longest = agent.registry.deadlines().longest() + SLACK;
    Box::new(move || {
        let oldest = [
            ("nodes", queues.nodes.oldest_in_work()),
            ("handles", queues.handles.oldest_in_work()),
            ("volumes", queues.volumes.oldest_in_work()),
            ("snapshots", queues.snapshots.oldest_in_work()),
            ("instances", queues.instances.oldest_in_work()),
        ];
        for (name, age) in oldest {
            if let Some(age) = age.filter(|age| *age > longest) {
                return Err(format!("a worker of {name} has not ended for {} s", age.as_secs()));
            }
        }
        Ok(())
    })
}

fn ready_check(agent: &Arc<Agent>) -> Check {
    let agent = agent.clone();
    Box::new(move || match (agent.caches.are_synced(), agent.renewal.may_call()) {
        (false, _) => Err("the objects are not listed yet".into()),
        (true, false) => Err("the Lease of this agent is not fresh, so no call is started".into()),
        (true, true) => Ok(()),
    })
}

/// UID of our Node, once there is one.
async fn node_uid(client: &Client, name: &str) -> String {
    let api: Api<LeanNode> = Api::all(client.clone());
    loop {
        let problem: Result<_, ApiError> = read::get_live(&api, name).await;
        match problem {
            Ok(Some(node)) => return node.uid().to_owned(),
            Ok(None) => tracing::warn!(node = name, "there is no Node of this name yet"),
            Err(error) => tracing::warn!("{error}"),
        }
        tokio::time::sleep(RETRY).await;
    }
}
