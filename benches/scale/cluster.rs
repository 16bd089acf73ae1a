//! One API server with moor's kinds, and everybody who has to do with it: a user, moor's processes, their plugin.
//!
//! Each process of moor has the token of a Pod on its node, as kubelet would give it, so that the admission policies see
//! what they see on a real cluster.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use kube::Client;
use nix::sched::{CloneFlags, unshare};
use serde_json::{Value, json};

use crate::actor::{Actor, own_port};
use crate::cost::{self, Counters, PARTS, Requests};
use crate::plugin::{self, DRIVER};
use crate::profile::{self, Profile};
use crate::rig::control_plane::{ControlPlane, USER};
use crate::rig::process::Moor;
use crate::rig::{CONTROLLER, LOOK, NAMESPACE, SPACE, chart};
use crate::watch::Observer;

/// A moor, and the chart that belongs to it.
#[derive(Clone, Debug)]
pub struct Build {
    pub name: String,
    pub moor: PathBuf,
    pub chart: PathBuf,
    /// What is to be otherwise in what the chart installs.
    pub change: fn(&mut Vec<Value>),
    /// What of its processes is recorded.
    pub profile: Option<profile::Kind>,
}

/// The API server of one build.
pub struct Cluster {
    pub build: Build,
    pub directory: PathBuf,
    pub control_plane: ControlPlane,
    pub nodes: Vec<String>,
    /// The file in /proc of each node's mount namespace, by the node's name.
    namespaces: BTreeMap<String, PathBuf>,
    /// What the agent says of its options: an older build has fewer.
    agent_help: String,
    /// What the chart has in the environment of each agent.
    agent_env: Vec<(String, String)>,
    /// May do what a user may.
    pub user: Client,
    /// Who moor's processes are: the controller, and the agent of each node by its name.
    pub actors: BTreeMap<String, Actor>,
    pub volumes: Arc<Observer>,
    pub claims: Arc<Observer>,
    etcd: Client,
    processes: Mutex<BTreeMap<String, Moor>>,
    /// What is recorded of the processes that run.
    profiles: Mutex<Vec<Profile>>,
    /// What the user has asked for.
    own: Mutex<Requests>,
    rounds: AtomicUsize,
    /// How many controllers have had the Lease, one after the other: each has a name of its own there.
    leaders: AtomicUsize,
    /// A controller that takes the Lease when it expires.
    standby: Mutex<Option<Moor>>,
    standby_port: u16,
    /// The most memory that any process of an actor has had.
    peaks: Mutex<BTreeMap<String, u64>>,
}

/// Path of the objects of a kind of users.
pub fn path_of(kind: &str) -> String {
    format!("/apis/moor.dev/v1alpha1/namespaces/{SPACE}/{kind}")
}

/// Sends a body, or none, and returns the answer.
pub async fn send(client: &Client, method: &str, path: &str, body: &Value) -> Result<String, kube::Error> {
    let request =
        http::Request::builder().method(method).uri(path).header("content-type", "application/json");
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    client.request_text(request.body(body).unwrap()).await
}

pub async fn post(client: &Client, path: &str, body: &Value) -> Value {
    let answer = send(client, "POST", path, body).await;
    serde_json::from_str(&answer.unwrap_or_else(|error| panic!("POST {path}: {error}"))).unwrap()
}

/// Shows to the program that follows, as /proc, only the processes of its own namespace, and to nobody else.
const OWN_PROCESSES: &str = r#"mount --make-private /proc; mount -t proc proc /proc; exec "$0" "$@""#;

impl Cluster {
    /// Starts an API server for a build, with `agents` nodes. No process of moor runs yet.
    pub async fn start(directory: &Path, build: Build, agents: usize) -> Self {
        let directory = directory.join(&build.name);
        let control_plane = ControlPlane::start(&directory).await;
        let (admin, parts) = (&control_plane.admin, &control_plane.parts);
        let installed = chart::install_changed(admin, parts, &build.chart, build.change).await;
        let user = control_plane.client_of(USER);
        let nodes: Vec<String> = (1..=agents).map(|number| format!("node-{number}")).collect();
        let (mut actors, mut namespaces) = (BTreeMap::new(), BTreeMap::new());
        for (number, node) in nodes.iter().enumerate() {
            post(&user, "/api/v1/nodes", &json!({"metadata": {"name": node}})).await;
            // The first node has the plugin's Controller service.
            let kubelet_dir = directory.join(node);
            let plugins = kubelet_dir.join("plugins");
            fs::create_dir_all(state_dir(&directory, node)).unwrap();
            let all_processes = all_processes(&directory, node);
            let namespace =
                plugin::serve(node, number == 0, &plugins, &directory.join("volumes"), all_processes);
            namespaces.insert(node.clone(), namespace);
            fs::write(state_dir(&directory, node).join("boot-id"), format!("{node}-boot")).unwrap();
            let actor = Actor::make(&control_plane, &user, node, "moor-agent", node).await;
            actors.insert(node.clone(), actor);
        }
        let controller = Actor::make(&control_plane, &user, CONTROLLER, "moor-controller", &nodes[0]).await;
        actors.insert(CONTROLLER.to_owned(), controller);
        make_plugin(&user).await;
        let etcd = kube::Config::new(control_plane.etcd().parse().unwrap());
        let agent_help = help_of_agent(&build.moor);
        Self {
            volumes: Observer::start(&user, &path_of("volumes")).await,
            claims: Observer::start(&user, &path_of("volumeclaims")).await,
            etcd: Client::try_from(etcd).unwrap(),
            directory,
            build,
            control_plane,
            nodes,
            namespaces,
            agent_help,
            agent_env: chart::agent_env(&installed),
            user,
            actors,
            processes: Mutex::default(),
            profiles: Mutex::default(),
            own: Mutex::default(),
            rounds: AtomicUsize::new(0),
            leaders: AtomicUsize::new(1),
            standby: Mutex::default(),
            standby_port: own_port(),
            peaks: Mutex::default(),
        }
    }

    /// The node of the `number`th claim.
    pub fn node_of(&self, number: usize) -> &str {
        &self.nodes[number % self.nodes.len()]
    }

    /// A number that no round has had: names of objects are not used twice.
    pub fn next_round(&self) -> usize {
        self.rounds.fetch_add(1, Ordering::Relaxed)
    }

    /// A request of the user about a Volume or a claim. Returns the object, as the server answers.
    pub async fn ask(&self, method: &str, kind: &str, name: &str, body: &Value) -> String {
        *self.own.lock().unwrap().entry((method.to_owned(), kind.to_owned())).or_default() += 1.0;
        let path = if method == "POST" { path_of(kind) } else { format!("{}/{name}", path_of(kind)) };
        let answer = send(&self.user, method, &path, body).await;
        answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// Starts those of moor's processes that do not run, each with the kubeconfig of its own, or with another that is given.
    pub fn run(&self, kubeconfigs: Option<&BTreeMap<String, PathBuf>>) {
        let logs = self.directory.join("logs");
        let mut processes = self.processes.lock().unwrap();
        let missing: Vec<_> = self.actors.iter().filter(|(name, _)| !processes.contains_key(*name)).collect();
        for (name, actor) in missing {
            let kubeconfig = kubeconfigs.map_or(&actor.kubeconfig, |others| &others[name]);
            let arguments = self.arguments(name, actor, self.leaders.load(Ordering::Relaxed), actor.port);
            let mut profile = self
                .build
                .profile
                .filter(|_| kubeconfigs.is_none() && self.is_profiled(name))
                .map(|kind| Profile::new(kind, name));
            let program = self.program(name, profile.as_ref());
            let is_agent = self.namespaces.contains_key(name);
            let start = || Moor::start(program, &logs, name, kubeconfig, &arguments, "info");
            let moor = if is_agent { among_its_own(start) } else { start() };
            if let Some(profile) = &mut profile {
                profile.begin(moor.id());
            }
            self.profiles.lock().unwrap().extend(profile);
            processes.insert(name.clone(), moor);
        }
    }

    /// Whether profiles are of the process of this name. One agent is like the other, but for the one that makes the calls of
    /// the plugin's Controller service.
    fn is_profiled(&self, name: &str) -> bool {
        name == CONTROLLER || name == self.nodes[0]
    }

    /// The program of a process. An agent has a mount namespace of its own below that of its node, as in its container, with
    /// a /proc that shows only its node's processes, which is itself.
    fn program(&self, name: &str, profile: Option<&Profile>) -> Command {
        let mut words = Vec::new();
        if let Some(namespace) = self.namespaces.get(name) {
            words.extend(["nsenter".to_owned(), format!("--mount={}", namespace.display()), "--".to_owned()]);
            let own = ["unshare", "--mount", "--propagation=unchanged", "sh", "-ec", OWN_PROCESSES];
            words.extend(own.map(str::to_owned));
        }
        words.extend(profile.map(Profile::wrap).into_iter().flatten());
        words.push(self.build.moor.display().to_string());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        if let Some(namespace) = self.namespaces.get(name) {
            let all_processes = all_processes(&self.directory, name);
            let namespace = all_processes.join(namespace.strip_prefix("/proc").unwrap());
            command.env("MOOR_NODE_MOUNT_NAMESPACE", namespace);
            command.envs(self.agent_env.iter().cloned());
        }
        command
    }

    /// Arguments of an agent, or of the `leader`th controller.
    fn arguments(&self, name: &str, actor: &Actor, leader: usize, port: u16) -> Vec<String> {
        let mut arguments = vec![
            format!("--namespace={NAMESPACE}"),
            format!("--admin-address=127.0.0.1:{port}"),
            format!("--kubelet-dir={}", self.directory.join(name).display()),
        ];
        if name == CONTROLLER {
            // A process that is started again takes the Lease over at once.
            let identity = format!("--identity=controller-{leader}");
            arguments.extend(["controller".to_owned(), identity, "--linger=0".to_owned()]);
            arguments.rotate_left(3);
            return arguments;
        }
        let state = state_dir(&self.directory, name);
        let silent = ["--audit-interval=0", "--capacity-interval=0", "--health-interval=0"];
        let silent =
            silent.into_iter().filter(|option| self.agent_help.contains(option.trim_end_matches("=0")));
        arguments.extend([
            "agent".to_owned(),
            format!("--node-name={name}"),
            format!("--pod-uid={}", actor.pod_uid),
            format!("--state-dir={}", state.display()),
            format!("--boot-id-file={}", state.join("boot-id").display()),
        ]);
        arguments.extend(silent.map(str::to_owned));
        arguments.rotate_left(3);
        arguments
    }

    /// SIGTERM to all of moor's processes, and waits until they have ended.
    pub async fn stop(&self) {
        self.note_peaks();
        let processes = std::mem::take(&mut *self.processes.lock().unwrap());
        for process in processes.into_values() {
            process.stop().await;
        }
        let profiles = std::mem::take(&mut *self.profiles.lock().unwrap());
        profiles.into_iter().for_each(Profile::end);
    }

    /// `kill -9` to all of moor's processes.
    pub fn kill(&self) {
        self.note_peaks();
        let processes = std::mem::take(&mut *self.processes.lock().unwrap());
        processes.into_values().for_each(Moor::kill);
        // Whoever is killed does not write down what he has recorded.
        self.profiles.lock().unwrap().clear();
    }

    /// `kill -9` to one process, which is started again.
    pub fn restart(&self, name: &str) {
        self.note_peaks();
        let killed = self.processes.lock().unwrap().remove(name);
        killed.into_iter().for_each(Moor::kill);
        self.run(None);
    }

    /// Starts another controller beside the one that leads, as the chart does: it waits until the Lease has expired. Returns its port.
    pub fn stand_by(&self) -> u16 {
        let actor = &self.actors[CONTROLLER];
        let next = self.leaders.fetch_add(1, Ordering::Relaxed) + 1;
        let arguments = self.arguments(CONTROLLER, actor, next, self.standby_port);
        let (program, logs) = (self.program(CONTROLLER, None), self.directory.join("logs"));
        let started = Moor::start(program, &logs, "standby", &actor.kubeconfig, &arguments, "info");
        *self.standby.lock().unwrap() = Some(started);
        self.standby_port
    }

    /// `kill -9` to the controller that leads. The one that has stood by is now the controller.
    pub fn kill_leader(&self) {
        self.note_peaks();
        let mut processes = self.processes.lock().unwrap();
        let next = self.standby.lock().unwrap().take().unwrap();
        processes.insert(CONTROLLER.to_owned(), next).into_iter().for_each(Moor::kill);
    }

    /// Waits until a process of moor has ended by itself, as a controller does that could not renew its Lease. Says which.
    pub async fn until_one_has_ended(&self) -> String {
        loop {
            tokio::time::sleep(LOOK).await;
            let mut processes = self.processes.lock().unwrap();
            let ended = processes.iter_mut().find_map(|(name, process)| process.has_ended().then_some(name));
            if let Some(name) = ended {
                return name.clone();
            }
        }
    }

    fn note_peaks(&self) {
        let mut peaks = self.peaks.lock().unwrap();
        for (name, process) in &*self.processes.lock().unwrap() {
            let peak = peaks.entry(name.clone()).or_default();
            *peak = process.peak_memory().max(*peak);
        }
    }

    /// The most memory of the controller, and of any agent, in bytes.
    pub fn peaks(&self) -> [u64; 2] {
        self.note_peaks();
        let peaks = self.peaks.lock().unwrap();
        let agents = peaks.iter().filter(|(name, _)| *name != CONTROLLER).map(|(_, peak)| *peak);
        [peaks.get(CONTROLLER).copied().unwrap_or_default(), agents.max().unwrap_or_default()]
    }

    /// The memory of the controller now, and of each agent, in bytes.
    pub fn memory(&self) -> (u64, Vec<u64>) {
        let processes = self.processes.lock().unwrap();
        let agents = processes.iter().filter(|(name, _)| *name != CONTROLLER);
        (processes[CONTROLLER].memory(), agents.map(|(_, agent)| agent.memory()).collect())
    }

    /// All counters as they are; what the user has asked for is not among the requests.
    pub async fn counters(&self) -> Counters {
        let mut counters = cost::counted(&self.control_plane.admin, &self.etcd).await;
        for (request, count) in &*self.own.lock().unwrap() {
            *counters.taken.entry(request.clone()).or_default() -= count;
        }
        counters
    }

    /// CPU time so far of each of the [`PARTS`], in milliseconds.
    pub fn cpu(&self) -> BTreeMap<&'static str, f64> {
        let mut cpu: BTreeMap<_, _> = PARTS.map(|part| (part, 0.0)).into();
        for (name, process) in &*self.processes.lock().unwrap() {
            let part = if name == CONTROLLER { PARTS[0] } else { PARTS[1] };
            *cpu.get_mut(part).unwrap() += cost::cpu(process.id());
        }
        for (part, process) in self.control_plane.processes() {
            cpu.insert(part, cost::cpu(process));
        }
        cpu
    }
}

/// Puts an agent's process into a namespace of processes of its own.
fn among_its_own(start: impl FnOnce() -> Moor + Send) -> Moor {
    // Only what this thread starts is in it. A namespace ends with its first process, so each start has a thread of its own.
    let in_it = || {
        unshare(CloneFlags::CLONE_NEWPID).unwrap();
        start()
    };
    thread::scope(|scope| scope.spawn(in_it).join()).unwrap()
}

fn help_of_agent(moor: &Path) -> String {
    let said = Command::new(moor).args(["agent", "--help"]).output().unwrap();
    assert!(said.status.success(), "{} agent --help: {}", moor.display(), said.status);
    String::from_utf8(said.stdout).unwrap()
}

fn state_dir(directory: &Path, node: &str) -> PathBuf {
    directory.join(format!("{node}.state"))
}

/// Where /proc stays to be seen whole on a node.
fn all_processes(directory: &Path, node: &str) -> PathBuf {
    state_dir(directory, node).join("all-processes")
}

async fn make_plugin(user: &Client) {
    let all = json!({"namespaces": ["*"]});
    let allow = json!({"register": all, "deleteRegistered": all});
    // As many calls at once as moor likes: the plugin is not what is measured.
    let spec = json!({"controllerConcurrency": 1000, "allow": allow});
    let plugin = json!({
        "apiVersion": "moor.dev/v1alpha1", "kind": "Plugin", "metadata": {"name": DRIVER}, "spec": spec,
    });
    post(user, "/apis/moor.dev/v1alpha1/plugins", &plugin).await;
}
