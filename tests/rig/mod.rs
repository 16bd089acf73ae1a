//! The rig: real moor processes on a real API server, with a fake driver that a test can look into and break.
//!
//! ```text
//! moor controller ──┐ proxy: rights, journal, gate
//! moor agent node-1 ┼───────────────────────────────> kube-apiserver ──> etcd
//! moor agent node-2 ┘
//!         └── unix sockets ──> fake driver: journal, gate, faults, order ──> mounts
//! ```
//!
//! A test is an `async fn(Arc<Cluster>)` that its module lists with [`cases!`] (`tests/rig_cases`). It starts a [`Rig`], makes
//! objects, waits on what the [`Cluster`] holds, kills and starts processes, and asks the
//! [`Journal`] what was done. Everything ends with the process, mounts included.

#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(unused_imports, reason = "the same")]

mod agreement;
mod api_faults;
mod binder;
pub mod chart;
mod cluster;
mod conditions;
mod consumer;
pub mod control_plane;
mod dead_mounts;
mod disk;
mod disks;
pub mod fake;
mod gate;
mod group_snapshot_controller;
mod harness;
mod journal;
mod kubelet;
mod lag;
mod leaks;
pub mod metrics;
mod namespaces;
mod nodes;
mod objects;
mod pods;
pub mod process;
pub mod proxy;
mod rogue;
pub mod second;
mod snapshot_controller;
pub mod snapshot_kinds;
pub mod stall;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use rustix::process::Signal;

pub use api_faults::ApiFault;
pub use binder::Binder;
pub use cluster::{Cluster, LOOK, PATIENCE};
pub use consumer::Consumer;
pub use dead_mounts::DeadMount;
pub use disk::{Disk, Swap};
pub use fake::{Fake, Fault};
pub use gate::{Gate, Point, Side};
pub use harness::{Case, in_namespaces, is_whole, main, say};
pub use journal::{Call, Entry, Event, Journal, Outcome, Write};
pub use kubelet::{Kubelet, Wish, is_final};
pub use moor::csi::proto::csi::v1::node_service_capability::rpc::Type as Can;
pub use namespaces::{DriverIn, Parted, lay_cover};
pub use objects::{condition, pod_template, registered, volume, volume_claim};
use process::Moor;
pub use proxy::ON_THE_PATH;
use proxy::{Role, Upstream};
pub use second::SecondServer;
pub use snapshot_controller::{SnapshotController, at};
pub use walk::{Victim, Walk, changes_a_volume};

/// moor's own namespace.
pub const NAMESPACE: &str = "moor-system";
/// The namespace of all Volumes and VolumeClaims.
pub const SPACE: &str = "default";
/// The process of the controller, where processes are named; an agent has its node's name.
pub const CONTROLLER: &str = "controller";

/// What a rig is to be like.
pub struct Options {
    /// Names of the nodes, and whether the driver there serves its Controller service too.
    pub nodes: Vec<(&'static str, bool)>,
    /// `--longest-call` of all processes, in seconds.
    pub longest_call: u64,
    /// `--termination-grace` of the agents, in seconds.
    pub termination_grace: u64,
    /// A process that ends by itself is started again, as kubelet does.
    pub supervised: bool,
    /// `--audit-interval` of the agents, in seconds; 0 is never.
    pub audit_interval: u64,
    /// `--capacity-interval` of the agents, in seconds; 0 is never.
    pub capacity_interval: u64,
    /// `--health-interval` of the agents, in seconds; 0 is never.
    pub health_interval: u64,
    /// `--inline-volumes` of the agents.
    pub inline_volumes: bool,
    /// How many volumes of the driver a node takes; 0 is no limit.
    pub max_volumes: i64,
    /// `--linger` of the controller, in seconds; 0 is not at all.
    pub linger: u32,
    /// The driver attaches: it has ControllerPublishVolume.
    pub attach: bool,
    /// The driver says where its nodes are, each in a zone of its name, and makes a volume in the first that is asked for.
    pub topology: bool,
    /// The driver says how much room there is in each zone.
    pub capacity: bool,
    /// What the driver can do on nodes beside staging.
    pub can: Vec<Can>,
    /// How the driver's volumes grow.
    pub expand: fake::backend::Expand,
    /// The driver has ControllerModifyVolume.
    pub modify: bool,
    /// The driver copies volumes.
    pub clones: bool,
    /// The driver takes snapshots.
    pub snapshots: bool,
    /// The driver takes snapshots of several volumes at one moment.
    pub groups: bool,
    /// All that the processes log, and their libraries, is written down.
    pub traces: bool,
    /// The driver's Controller service says how volumes are.
    pub conditions: bool,
}

impl Default for Options {
    /// Two nodes, of which the first attaches, and deadlines that a test can wait for.
    fn default() -> Self {
        Self {
            nodes: vec![("node-1", true), ("node-2", false)],
            longest_call: 5,
            termination_grace: 30,
            supervised: true,
            audit_interval: 0,
            capacity_interval: 0,
            health_interval: 0,
            inline_volumes: false,
            max_volumes: 0,
            linger: 0,
            attach: true,
            topology: false,
            capacity: false,
            can: Vec::new(),
            expand: fake::backend::Expand::Never,
            modify: false,
            clones: false,
            snapshots: false,
            groups: false,
            traces: false,
            conditions: false,
        }
    }
}

/// A controller, agents and a driver.
pub struct Rig {
    pub cluster: Arc<Cluster>,
    pub journal: Journal,
    pub gate: Gate,
    pub fake: Fake,
    stalls: stall::Stalls,
    api_faults: api_faults::ApiFaults,
    directory: PathBuf,
    longest_call: u64,
    termination_grace: u64,
    audit_interval: u64,
    capacity_interval: u64,
    health_interval: u64,
    inline_volumes: bool,
    linger: u32,
    traces: bool,
    kubeconfigs: Mutex<BTreeMap<String, PathBuf>>,
    upstreams: Mutex<BTreeMap<String, tokio::sync::watch::Sender<Upstream>>>,
    processes: Mutex<BTreeMap<String, Moor>>,
    ended: Mutex<Vec<String>>,
    /// Every machine that there ever was.
    nodes: Mutex<BTreeSet<String>>,
    /// Agents that are in a mount namespace of their own, and the file of their node's.
    parted: Mutex<BTreeMap<String, PathBuf>>,
    declared: Mutex<agreement::Declared>,
}

impl Rig {
    /// Starts everything and waits until the driver is known everywhere.
    pub async fn start(cluster: &Arc<Cluster>, options: Options) -> Arc<Self> {
        let directory = cluster.rig_directory();
        let (journal, gate) = (Journal::default(), Gate::default());
        let rig = Arc::new(Self {
            fake: Fake::new(&directory, &options, journal.clone(), gate.clone()),
            cluster: cluster.clone(),
            journal,
            gate,
            stalls: stall::Stalls::default(),
            api_faults: api_faults::ApiFaults::default(),
            directory,
            longest_call: options.longest_call,
            termination_grace: options.termination_grace,
            audit_interval: options.audit_interval,
            capacity_interval: options.capacity_interval,
            health_interval: options.health_interval,
            inline_volumes: options.inline_volumes,
            linger: options.linger,
            traces: options.traces,
            kubeconfigs: Mutex::default(),
            upstreams: Mutex::default(),
            processes: Mutex::default(),
            ended: Mutex::default(),
            nodes: Mutex::default(),
            parted: Mutex::default(),
            declared: Mutex::default(),
        });
        agreement::enlist(&rig);
        rig.make_plugin().await;
        rig.open_door(CONTROLLER, &Role::Controller).await;
        rig.run(CONTROLLER);
        for (node, controller) in &options.nodes {
            rig.add_node(node, *controller).await;
        }
        for (node, _) in &options.nodes {
            rig.until_served(node).await;
        }
        rig.until_counted(&options.nodes).await;
        if options.supervised {
            tokio::spawn(supervise(Arc::downgrade(&rig)));
        }
        rig
    }

    async fn open_door(&self, actor: &str, role: &Role<'_>) {
        let upstream = tokio::sync::watch::Sender::new(Upstream::with_faults(
            self.cluster.admin.clone(),
            self.api_faults.clone(),
        ));
        let led = upstream.subscribe();
        let (journal, gate, stalls) = (self.journal.clone(), self.gate.clone(), self.stalls.clone());
        let path = proxy::open(&self.directory, actor, role, led, journal, gate, stalls).await;
        self.upstreams.lock().unwrap().insert(actor.to_owned(), upstream);
        self.kubeconfigs.lock().unwrap().insert(actor.to_owned(), path);
    }

    /// Starts the process `actor`, which does not run: [`CONTROLLER`] or a node's agent.
    pub fn run(&self, actor: &str) {
        let kubeconfig = self.kubeconfigs.lock().unwrap()[actor].clone();
        let logs = self.logs();
        let arguments = if actor == CONTROLLER { self.of_controller() } else { self.of_agent(actor) };
        let node = self.parted.lock().unwrap().get(actor).cloned();
        let levels = if self.traces { "trace" } else { "info,moor=debug" };
        let process =
            Moor::start(Moor::program(node.as_deref()), &logs, actor, &kubeconfig, &arguments, levels);
        let before = self.processes.lock().unwrap().insert(actor.to_owned(), process);
        assert!(before.is_none(), "{actor} runs already");
    }

    /// The most memory that the process `actor` has had since it was started, in bytes.
    pub fn peak_memory(&self, actor: &str) -> u64 {
        self.processes.lock().unwrap()[actor].peak_memory()
    }

    /// What `helm uninstall` asks first. Returns whether it may go on, and what was said.
    pub async fn pre_delete(&self) -> (bool, String) {
        let kubeconfig = self.kubeconfigs.lock().unwrap()[CONTROLLER].clone();
        let run = move || Moor::run(&kubeconfig, &["pre-delete"]);
        tokio::task::spawn_blocking(run).await.unwrap()
    }

    /// The folder of the logs of the processes.
    pub fn logs(&self) -> PathBuf {
        self.cluster.directory.join("logs").join(self.directory.file_name().unwrap())
    }

    fn of_controller(&self) -> Vec<String> {
        [
            "controller",
            // The same for every process: a new one takes the Lease over at once.
            "--identity=controller",
            "--admin-address=127.0.0.1:0",
            &format!("--namespace={NAMESPACE}"),
            &format!("--longest-call={}", self.longest_call),
            &format!("--linger={}", self.linger),
        ]
        .map(str::to_owned)
        .into()
    }

    fn of_agent(&self, node: &str) -> Vec<String> {
        [
            "agent",
            "--admin-address=127.0.0.1:0",
            &format!("--node-name={node}"),
            &format!("--namespace={NAMESPACE}"),
            &format!("--pod-uid={node}-agent"),
            &format!("--kubelet-dir={}", self.kubelet_dir(node).display()),
            &format!("--state-dir={}", self.state_dir(node).display()),
            &format!("--boot-id-file={}", self.boot_id_file(node).display()),
            &format!("--audit-interval={}", self.audit_interval),
            &format!("--capacity-interval={}", self.capacity_interval),
            &format!("--health-interval={}", self.health_interval),
            &format!("--longest-call={}", self.longest_call),
            &format!("--termination-grace={}", self.termination_grace),
        ]
        .into_iter()
        .chain(self.inline_volumes.then_some("--inline-volumes"))
        .map(str::to_owned)
        .collect()
    }

    fn take(&self, actor: &str) -> Moor {
        let process = self.processes.lock().unwrap().remove(actor);
        process.unwrap_or_else(|| panic!("{actor} does not run"))
    }

    /// `kill -9`.
    pub fn kill(&self, actor: &str) {
        self.take(actor).kill();
    }

    /// SIGTERM, and waits until it has ended.
    pub async fn stop(&self, actor: &str) {
        self.take(actor).stop().await;
    }

    /// `kill -9`, and starts it again.
    pub fn restart(&self, actor: &str) {
        self.kill(actor);
        self.run(actor);
    }

    /// `kill -9`, starts it again, and waits until the new process has taken its Lease.
    pub async fn restart_and_wait(&self, actor: &str) {
        self.kill(actor);
        let since = self.journal.now();
        self.run(actor);
        let lease = |e: &Entry| {
            e.actor == actor && e.is_taken() && e.write().is_some_and(|write| write.kind == "leases")
        };
        let taken = || (!self.journal.since(since, lease).is_empty()).then_some(());
        self.cluster.until(&format!("{actor} has its Lease again"), taken, String::new).await;
    }

    /// SIGSTOP: it does nothing and does not know it.
    pub fn freeze(&self, actor: &str) {
        self.processes.lock().unwrap()[actor].freeze();
    }

    /// The end of [`Self::freeze`].
    pub fn thaw(&self, actor: &str) {
        self.processes.lock().unwrap()[actor].signal(Signal::CONT);
    }

    /// Whether the process ended by itself, where nobody starts it again.
    pub fn has_ended(&self, actor: &str) -> bool {
        self.processes.lock().unwrap().get_mut(actor).is_none_or(Moor::has_ended)
    }

    /// Processes that ended by themselves so far and were started again, in this order.
    pub fn ended(&self) -> Vec<String> {
        self.ended.lock().unwrap().clone()
    }
}

/// Does for the processes what kubelet does for containers: one that ends by itself, as a controller does that could not
/// renew its Lease on a busy machine, is started again.
async fn supervise(rig: Weak<Rig>) {
    loop {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let Some(rig) = rig.upgrade() else { return };
        let ended: Vec<String> = {
            let mut processes = rig.processes.lock().unwrap();
            let ended =
                processes.iter_mut().filter_map(|(actor, process)| process.has_ended().then_some(actor));
            ended.cloned().collect()
        };
        for actor in ended {
            say(&format!("{actor} ended by itself and is started again"));
            rig.restart(&actor);
            rig.ended.lock().unwrap().push(actor);
        }
    }
}
