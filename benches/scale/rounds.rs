//! One round: so many objects through all phases, by moor or by the bare client, and what that took.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use serde_json::{Value, json};

use crate::bare::{Chain, Client};
use crate::cluster::Cluster;
use crate::cost::{self, Requests};
use crate::plugin::{self, DRIVER};
use crate::rig;
use crate::watch::{self, Goal, Observer};

/// How many objects a round of size 1 has, one after the other.
const ONE_BY_ONE: usize = 100;

/// What is done with all objects of a round before the next thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    MakeVolumes,
    MakeClaims,
    DeleteClaims,
    /// Each claim is deleted as soon as it is Ready, and the next one is made when it is gone.
    ComeAndGo,
    DeleteVolumes,
}

impl Phase {
    pub const ALL: [Self; 5] =
        [Self::MakeVolumes, Self::MakeClaims, Self::DeleteClaims, Self::ComeAndGo, Self::DeleteVolumes];

    /// Those of which the others consist.
    pub const PARTS: [Self; 4] =
        [Self::MakeVolumes, Self::MakeClaims, Self::DeleteClaims, Self::DeleteVolumes];

    /// What is done with one object, each when the one before has reached its goal.
    pub fn parts(self) -> &'static [Self] {
        match self {
            Self::MakeVolumes => &[Self::MakeVolumes],
            Self::MakeClaims => &[Self::MakeClaims],
            Self::DeleteClaims => &[Self::DeleteClaims],
            Self::ComeAndGo => &[Self::MakeClaims, Self::DeleteClaims],
            Self::DeleteVolumes => &[Self::DeleteVolumes],
        }
    }

    /// For people and for JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::MakeVolumes => "make volumes",
            Self::MakeClaims => "make claims",
            Self::DeleteClaims => "delete claims",
            Self::ComeAndGo => "claims come and go",
            Self::DeleteVolumes => "delete volumes",
        }
    }

    /// Plural name of the kind of its objects.
    pub fn kind(self) -> &'static str {
        match self {
            Self::MakeVolumes | Self::DeleteVolumes => "volumes",
            Self::MakeClaims | Self::DeleteClaims | Self::ComeAndGo => "volumeclaims",
        }
    }

    /// What an object of it comes to be, one after the other.
    pub fn goals(self) -> &'static [Goal] {
        match self {
            Self::MakeVolumes | Self::MakeClaims => &[Goal::Ready],
            Self::DeleteClaims | Self::DeleteVolumes => &[Goal::Gone],
            Self::ComeAndGo => &[Goal::Ready, Goal::Gone],
        }
    }

    pub fn observer(self, cluster: &Cluster) -> &Arc<Observer> {
        match self {
            Self::MakeVolumes | Self::DeleteVolumes => &cluster.volumes,
            Self::MakeClaims | Self::DeleteClaims | Self::ComeAndGo => &cluster.claims,
        }
    }
}

/// The user's first request about an object of a phase, whose claim is on this node: method and body.
pub fn request_of(phase: Phase, name: &str, node: &str) -> (&'static str, Value) {
    let (kind, spec) = match phase {
        Phase::MakeVolumes => ("Volume", json!({"pluginName": DRIVER, "capacity": "1Mi"})),
        Phase::MakeClaims | Phase::ComeAndGo => {
            ("VolumeClaim", json!({"volumeName": name, "nodeName": node}))
        }
        Phase::DeleteClaims | Phase::DeleteVolumes => return ("DELETE", Value::Null),
    };
    let metadata = json!({"name": name});
    let object = json!({"apiVersion": "moor.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec});
    ("POST", object)
}

/// How many objects a round has, and how many requests or chains of writes are under way at once.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub objects: usize,
    pub at_once: usize,
    /// The next object is begun when the one before has reached its goal.
    pub one_by_one: bool,
}

impl Load {
    pub fn of(size: usize, at_once: usize) -> Self {
        if size == 1 {
            return Self { objects: ONE_BY_ONE, at_once: 1, one_by_one: true };
        }
        Self { objects: size, at_once, one_by_one: false }
    }
}

/// What one phase took; what is counted is per object.
#[derive(Clone, Debug)]
pub struct Figures {
    pub objects: usize,
    /// From the first request to the last object at its goal.
    pub seconds: f64,
    /// p50, p90 and p99 of the time from an object's request until it was at its goal, in milliseconds.
    pub latencies: [f64; 3],
    /// Milliseconds of CPU time by [`cost::PARTS`].
    pub cpu: BTreeMap<&'static str, f64>,
    /// Requests that succeeded, without the user's own.
    pub taken: Requests,
    /// Requests that did not.
    pub refused: Requests,
    /// Calls of the plugin that change something.
    pub calls: f64,
    pub etcd_bytes: f64,
}

impl Figures {
    #[allow(clippy::cast_precision_loss, reason = "counts of objects")]
    pub fn rate(&self) -> f64 {
        self.objects as f64 / self.seconds
    }

    pub fn to_json(&self) -> Value {
        let [p50, p90, p99] = self.latencies;
        json!({
            "objects": self.objects,
            "seconds": self.seconds,
            "objectsPerSecond": self.rate(),
            "latencyMilliseconds": {"p50": p50, "p90": p90, "p99": p99},
            "cpuMillisecondsPerObject": self.cpu,
            "requestsPerObject": cost::to_json(&self.taken),
            "refusedRequestsPerObject": cost::to_json(&self.refused),
            "callsThatChangePerObject": self.calls,
            "etcdBytesPerObject": self.etcd_bytes,
        })
    }
}

/// The figures of all phases of one round.
pub type Round = BTreeMap<Phase, Figures>;

/// A round by moor, whose processes are started for it and have ended afterwards.
pub async fn by_moor(cluster: &Arc<Cluster>, load: Load) -> Round {
    cluster.run(None);
    warm_up(cluster, None).await;
    let round = each_phase(cluster, &Phase::ALL, load, None).await;
    cluster.stop().await;
    round
}

/// Has moor, which has just been started, take one claim on each node through all phases: afterwards its processes lead,
/// know their plugin, and heed everybody. The bare client does the same: afterwards each of its clients has a connection.
pub async fn warm_up(cluster: &Arc<Cluster>, bare: Option<&Arc<Client>>) {
    let objects = cluster.nodes.len();
    let load = Load { objects, at_once: objects, one_by_one: false };
    each_phase(cluster, &Phase::PARTS, load, bare).await;
}

/// A round by the bare client. None of moor's processes runs, since they would do its work.
pub async fn by_bare_client(cluster: &Arc<Cluster>, load: Load, client: &Arc<Client>) -> Round {
    warm_up(cluster, Some(client)).await;
    each_phase(cluster, &Phase::ALL, load, Some(client)).await
}

/// The same, while as many watch as while moor runs: for each write the API server has every one of them look whether it is
/// theirs.
pub async fn by_watched_bare_client(cluster: &Arc<Cluster>, load: Load, client: &Arc<Client>) -> Round {
    let mut held = watch::as_moor_has(cluster).await;
    let round = by_bare_client(cluster, load, client).await;
    assert!(held.try_join_next().is_none(), "a watch has ended");
    round
}

/// One for each object of a round.
pub fn chains(cluster: &Cluster, objects: usize) -> Vec<Chain> {
    let round = cluster.next_round();
    let chain = |number| Chain::new(format!("object-{round}-{number}"), cluster.node_of(number));
    (0..objects).map(chain).collect()
}

async fn each_phase(
    cluster: &Arc<Cluster>,
    phases: &[Phase],
    load: Load,
    bare: Option<&Arc<Client>>,
) -> Round {
    let mut chains = chains(cluster, load.objects);
    let mut round = Round::new();
    for &phase in phases {
        let figures = one_phase(cluster, phase, load, bare, &mut chains).await;
        let who = if bare.is_some() { "the bare client" } else { "moor" };
        rig::say(&format!("  {who}: {} {:.1}/s", phase.name(), figures.rate()));
        round.insert(phase, figures);
    }
    round
}

/// One phase. By moor the chains stay as they are: nobody makes the writes but moor.
pub async fn one_phase(
    cluster: &Arc<Cluster>,
    phase: Phase,
    load: Load,
    bare: Option<&Arc<Client>>,
    chains: &mut Vec<Chain>,
) -> Figures {
    let observer = phase.observer(cluster);
    let before = cluster.counters().await;
    let (cpu_before, calls_before) = (cluster.cpu(), plugin::changes());
    let started = Instant::now();
    observer.begin(phase.goals());
    let walks = std::mem::take(chains).into_iter().map(|chain| {
        let (cluster, bare) = (cluster.clone(), bare.cloned());
        tokio::spawn(one_object(cluster, phase, load, bare, chain))
    });
    let mut walks = futures::stream::iter(walks).buffer_unordered(load.at_once);
    let to_the_end = async {
        while let Some(chain) = walks.next().await {
            chains.push(chain.unwrap());
        }
        observer.until_all_are_there().await;
    };
    tokio::select! {
        () = to_the_end => {}
        name = cluster.until_one_has_ended() => panic!("moor's process {name} has ended by itself: its log says why"),
    }
    let seconds = started.elapsed().as_secs_f64();
    let cpu_after = cluster.cpu();
    let after = cluster.counters().await;
    let latencies = observer.latencies();
    assert_eq!(latencies.len(), load.objects, "each object reaches its goal once");

    #[allow(clippy::cast_precision_loss, reason = "counts of objects")]
    let (objects, calls) = (load.objects as f64, (plugin::changes() - calls_before) as f64);
    let per_object = |before: &Requests, after: &Requests| {
        cost::difference(before, after).into_iter().map(|(key, count)| (key, count / objects)).collect()
    };
    Figures {
        objects: load.objects,
        seconds,
        latencies: [50, 90, 99].map(|percent| percentile(&latencies, percent)),
        cpu: cpu_after.iter().map(|(part, now)| (*part, (now - cpu_before[part]) / objects)).collect(),
        taken: per_object(&before.taken, &after.taken),
        refused: per_object(&before.refused, &after.refused),
        calls: calls / objects,
        etcd_bytes: (after.etcd_bytes - before.etcd_bytes) / objects,
    }
}

async fn one_object(
    cluster: Arc<Cluster>,
    phase: Phase,
    load: Load,
    bare: Option<Arc<Client>>,
    mut chain: Chain,
) -> Chain {
    let observer = phase.observer(&cluster);
    observer.sent(chain.name());
    for (done, &part) in phase.parts().iter().enumerate() {
        let (method, body) = request_of(part, chain.name(), chain.node());
        let answer = cluster.ask(method, part.kind(), chain.name(), &body).await;
        if let Some(bare) = &bare {
            chain.learn(part.kind(), answer);
            bare.walk(&cluster, part, &mut chain).await;
        }
        if load.one_by_one || phase.parts().len() > 1 {
            observer.until_reached(chain.name(), done + 1).await;
        }
        if part == Phase::DeleteClaims {
            chain.forget_claim();
        }
    }
    chain
}

/// The smallest time that so many percent of all do not exceed, in milliseconds.
fn percentile(times: &[Duration], percent: usize) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    let rank = (times.len() * percent).div_ceil(100).max(1);
    times[rank - 1].as_secs_f64() * 1000.0
}

/// Said by examples before anything is measured.
pub fn check() {
    let times: Vec<_> = (1..=10).rev().map(Duration::from_millis).collect();
    let found = [50, 90, 99].map(|percent| percentile(&times, percent).round());
    assert_eq!(found.map(|found| found.to_string()), ["5", "9", "10"]);
    assert_eq!(percentile(&times[..1], 50).round().to_string(), "10");
}
