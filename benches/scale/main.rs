//! What Volumes and claims take: of moor, of the API server, of etcd, and how many of them a second there can be. A bare
//! client makes the same writes beside it, so that what moor itself costs is seen apart from what its objects cost anybody.
//!
//! `make bench` runs it, as root, on an API server of its own in namespaces of its own. `make bench BENCH_ARGS=--help` says
//! what it can be asked for.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a bench ends where anything is amiss"
)]

#[path = "../../tests/rig/mod.rs"]
mod rig;

mod actor;
mod bare;
mod cluster;
mod cost;
mod existing;
mod flame;
mod plugin;
mod pods;
mod profile;
mod record;
mod report;
mod rounds;
mod watch;
mod writes;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use serde_json::{Value, json};

use bare::Client;
use cluster::{Build, Cluster};
use report::{Differences, Rounds, Setting, Who};
use rounds::Load;

/// How many Volumes and claims a second moor makes and removes, and at what cost, beside a bare client.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// Numbers of objects, a round of each. Of size 1 there are 100 objects, one after the other. Beside more than the fewest of the
    /// claims that stay there are rounds of the last size alone.
    #[arg(long, value_delimiter = ',', default_value = "1,100,1000")]
    sizes: Vec<usize>,
    /// Rounds that count.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Rounds of each size that go before those that count.
    #[arg(long, default_value_t = 1)]
    warm_ups: u16,
    /// Nodes with an agent each.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    agents: u16,
    /// Requests of users, and chains of the bare client, at once.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..))]
    concurrency: u16,
    /// Numbers of claims that are Ready and stay, from few to many: beside each all rounds are made. While they are made the leader
    /// is lost, and beside each number but 0 it is measured what the processes take when nothing is asked, and to be started again.
    /// A node takes 2,048 claims.
    #[arg(long, value_delimiter = ',', default_value = "0,1000")]
    existing: Vec<usize>,
    /// For how many seconds nothing is asked beside the most claims; beside fewer it is a minute at most.
    #[arg(long, default_value_t = 10)]
    idle: u64,
    /// Objects by which it is measured what each write costs the API server, and what of that the policies, the rules and the
    /// schema do; 0 is not at all.
    #[arg(long, default_value_t = 300)]
    writes: usize,
    /// A build of moor and the chart that belongs to it, as NAME=PROGRAM:FOLDER. Several are measured in turns, each on an API
    /// server of its own. Without it the build of this bench is measured.
    #[arg(long = "build", value_parser = build)]
    builds: Vec<Build>,
    /// What `make bench-pods` has written: it becomes a part of the table and of the JSON.
    #[arg(long)]
    pods: Option<PathBuf>,
    /// Record where the time of the controller and of one agent goes, or who has their memory; a flame graph of each is drawn into
    /// target/profiles when its process ends, by what the Debian packages linux-perf and heaptrack have.
    #[arg(long, value_enum)]
    profile: Option<profile::Kind>,
    /// Print the writes that the bare client makes about one Volume and one claim.
    #[arg(long)]
    script: bool,
    /// What cargo says to every bench.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    fn sizes_beside(&self, existing: usize) -> &[usize] {
        match self.sizes.split_last() {
            Some((last, _)) if self.existing.first() != Some(&existing) => std::slice::from_ref(last),
            _ => &self.sizes,
        }
    }
}

fn build(text: &str) -> Result<Build, String> {
    let parts = text.split_once('=').and_then(|(name, rest)| Some((name, rest.split_once(':')?)));
    let (name, (moor, chart)) = parts.ok_or("it has to be NAME=PROGRAM:FOLDER")?;
    Ok(Build { name: name.to_owned(), moor: moor.into(), chart: chart.into(), change: |_| {}, profile: None })
}

fn main() -> ExitCode {
    let mut options = Options::parse();
    if options.builds.is_empty() {
        let (moor, chart) = (rig::process::MOOR.into(), rig::chart::own());
        options.builds.push(Build { name: "moor".to_owned(), moor, chart, change: |_| {}, profile: None });
    }
    options.builds.iter_mut().for_each(|build| build.profile = options.profile);
    assert!(
        options.existing.is_sorted(),
        "--existing: claims that stay do not go, give the numbers from few to many"
    );
    let claims = options.existing.iter().max().unwrap_or(&0) + options.sizes.iter().max().unwrap_or(&0);
    let room = CLAIMS_OF_A_NODE * usize::from(options.agents);
    assert!(claims <= room, "{claims} claims at a time: --agents {} have room for {room}", options.agents);
    cost::check();
    flame::check();
    rounds::check();
    rig::in_namespaces(|directory| run(options, directory))
}

/// How many claims a node takes: its agent names so many at most (src/api/schema.rs).
const CLAIMS_OF_A_NODE: usize = 2048;

/// The API server of a build, and the bare client that makes its writes.
struct Bench {
    cluster: Arc<Cluster>,
    bare: Arc<Client>,
}

async fn run(options: Options, directory: PathBuf) -> ExitCode {
    let mut benches = Vec::new();
    for build in &options.builds {
        rig::say(&format!("{}: starting an API server, recording the writes of one claim", build.name));
        let cluster = Arc::new(Cluster::start(&directory, build.clone(), options.agents.into()).await);
        let bare = Client::new(record::record(&cluster).await);
        if options.script {
            rig::say(&bare.shown());
        }
        benches.push(Bench { cluster, bare: Arc::new(bare) });
    }
    // Before hours are spent on the rest.
    let pods = options.pods.as_deref().map(pods::read);
    let (mut rounds, mut beside) = (BTreeMap::new(), BTreeMap::new());
    let mut writes = BTreeMap::new();
    let mut before = 0;
    for &existing in &options.existing {
        if existing > before {
            beside.insert(existing, more_claims(&benches, &options, before, existing).await);
            before = existing;
            write(&options, &rounds, &beside, &writes, pods.as_ref(), &benches);
        }
        for &size in options.sizes_beside(existing) {
            let setting = Setting { existing, size };
            // Who is watched is measured once: it takes as long as the bare client does.
            let is_watched = before == options.existing[0] && options.sizes.last() == Some(&size);
            let of_it = all_rounds(&benches, &options, setting, is_watched).await;
            // At once, so that a run that is cut short has shown what it has measured.
            print_setting(setting, &of_it, &benches);
            rounds.insert(setting, of_it);
            write(&options, &rounds, &beside, &writes, pods.as_ref(), &benches);
        }
    }
    if options.writes > 0 {
        for Bench { cluster, bare } in &benches {
            rig::say(&format!("{}: what each write costs the API server", cluster.build.name));
            let load = Load::of(options.writes, options.concurrency.into());
            let costs = writes::measure(&directory, &cluster.build, bare, load, options.rounds.into()).await;
            rig::say(&writes::table(&costs));
            writes.insert(cluster.build.name.clone(), writes::to_json(&costs));
        }
    }
    let mut differences = Differences::default();
    for (setting, of_it) in &rounds {
        differences.look(*setting, of_it);
    }
    print(&rounds, &beside, &benches);
    if let Some(pods) = &pods {
        rig::say(&pods::table(pods));
    }
    let path = write(&options, &rounds, &beside, &writes, pods.as_ref(), &benches);
    rig::say(&format!("every figure of every round is in {}", path.display()));
    for more in &differences.more {
        rig::say(&format!("more writes: {more}"));
    }
    for wrong in &differences.wrong {
        rig::say(&format!("NOT COMPARABLE: {wrong}"));
    }
    if differences.wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Figures of claims that stay, by their number and by build.
type Beside = BTreeMap<usize, BTreeMap<String, Value>>;

/// Has each build make claims that stay until there are so many, and measures beside them.
async fn more_claims(
    benches: &[Bench],
    options: &Options,
    before: usize,
    existing: usize,
) -> BTreeMap<String, Value> {
    let mut figures = BTreeMap::new();
    for Bench { cluster, .. } in benches {
        rig::say(&format!("{}: {existing} claims that stay", cluster.build.name));
        let is_most = options.existing.last() == Some(&existing);
        let idle = if is_most { options.idle } else { options.idle.min(60) };
        let (at_once, idle) = (options.concurrency.into(), Duration::from_secs(idle));
        let of_it = existing::add(cluster, existing - before, at_once, idle).await;
        rig::say(&existing::shown(existing, &of_it));
        figures.insert(cluster.build.name.clone(), of_it);
    }
    figures
}

/// By turns, so that what the machine does beside is the same for all.
async fn all_rounds(benches: &[Bench], options: &Options, setting: Setting, is_watched: bool) -> Rounds {
    let load = Load::of(setting.size, options.concurrency.into());
    let mut rounds = Rounds::new();
    let warm_ups = (0..options.warm_ups).map(|_| None);
    for number in warm_ups.chain((1..=options.rounds).map(Some)) {
        match number {
            None => rig::say(&format!("{setting}, to warm up")),
            Some(number) => rig::say(&format!("{setting}, round {number} of {}", options.rounds)),
        }
        for Bench { cluster, bare } in benches {
            let mut found = Vec::new();
            // What one leaves behind, for the API server to sweep up, is not always the other's.
            let order = [Who::Moor, Who::Bare];
            let order =
                if number.is_some_and(|number| number % 2 == 0) { [order[1], order[0]] } else { order };
            for who in order {
                let round = match who {
                    Who::Moor => rounds::by_moor(cluster, load).await,
                    Who::Bare | Who::Watched => rounds::by_bare_client(cluster, load, bare).await,
                };
                found.push((who, round));
            }
            if is_watched {
                let watched = rounds::by_watched_bare_client(cluster, load, bare).await;
                found.push((Who::Watched, watched));
            }
            for (who, round) in found.into_iter().filter(|_| number.is_some()) {
                rounds.entry((cluster.build.name.clone(), who)).or_default().push(round);
            }
        }
    }
    rounds
}

fn print_setting(setting: Setting, rounds: &Rounds, benches: &[Bench]) {
    rig::say("");
    rig::say(&report::main_table([(&setting, rounds)]));
    for Bench { cluster, .. } in benches {
        rig::say(&report::request_table(setting, &cluster.build.name, rounds));
    }
}

fn print(rounds: &BTreeMap<Setting, Rounds>, beside: &Beside, benches: &[Bench]) {
    rig::say("");
    rig::say(&report::main_table(rounds));
    for (existing, builds) in beside {
        for (build, figures) in builds {
            rig::say(&format!("{build}: {}", existing::shown(*existing, figures)));
        }
    }
    for Bench { cluster, .. } in benches {
        let [controller, agent] = cluster.peaks().map(|bytes| bytes >> 20);
        rig::say(&format!(
            "{}: peak memory of the controller {controller} MiB, of an agent {agent} MiB",
            cluster.build.name
        ));
    }
}

fn write(
    options: &Options,
    rounds: &BTreeMap<Setting, Rounds>,
    beside: &Beside,
    writes: &BTreeMap<String, Value>,
    pods: Option<&Value>,
    benches: &[Bench],
) -> PathBuf {
    let parts = &benches[0].cluster.control_plane.parts;
    let peaks: BTreeMap<_, _> = benches
        .iter()
        .map(|Bench { cluster, .. }| {
            let [controller, agent] = cluster.peaks();
            (&cluster.build.name, json!({"controllerBytes": controller, "agentBytes": agent}))
        })
        .collect();
    let all = json!({
        "machine": machine(),
        "versions": {
            "moor": format!("{} ({})", env!("CARGO_PKG_VERSION"), commit()),
            "kube-apiserver": said(&parts.join("kube-apiserver"), "--version"),
            "etcd": said(&parts.join("etcd"), "--version"),
        },
        "options": {
            "sizes": options.sizes,
            "rounds": options.rounds,
            "warmUps": options.warm_ups,
            "agents": options.agents,
            "concurrency": options.concurrency,
            "existing": options.existing,
            "idleSeconds": options.idle,
            "writes": options.writes,
            "builds": options.builds.iter().map(|build| &build.name).collect::<Vec<_>>(),
        },
        "rounds": report::to_json(rounds),
        "existing": beside,
        "writes": writes,
        "pods": pods,
        "peakMemory": peaks,
    });
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("target");
    // Cargo may have been told to build elsewhere.
    fs::create_dir_all(&target).unwrap();
    let path = target.join("bench.json");
    fs::write(&path, serde_json::to_string_pretty(&all).unwrap() + "\n").unwrap();
    path
}

/// The commit that the bench is of.
fn commit() -> String {
    let folder = ["-C", env!("CARGO_MANIFEST_DIR")];
    let said = Command::new("git").args(folder).args(["describe", "--always", "--dirty"]).output();
    let said = said.ok().filter(|said| said.status.success());
    said.map_or("no commit is known".to_owned(), |said| {
        String::from_utf8_lossy(&said.stdout).trim().to_owned()
    })
}

fn machine() -> Value {
    let first_line =
        |file: &str| fs::read_to_string(file).unwrap().lines().next().unwrap_or_default().to_owned();
    json!({
        "cores": std::thread::available_parallelism().unwrap(),
        "memory": first_line("/proc/meminfo").trim_start_matches("MemTotal:").trim(),
        "kernel": first_line("/proc/sys/kernel/osrelease"),
    })
}

/// What a program says of itself, in one line.
fn said(program: &Path, argument: &str) -> String {
    let said = Command::new(program).arg(argument).output().unwrap();
    String::from_utf8_lossy(&said.stdout).lines().next().unwrap_or_default().to_owned()
}
