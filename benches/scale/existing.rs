//! Claims that are there and stay: what becomes of them when the leader is lost while they are made, what moor takes when nothing is
//! asked of it beside them, and to be started again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::cluster::Cluster;
use crate::cost::{self, Requests};
use crate::plugin;
use crate::report::middle;
use crate::rig::{CONTROLLER, NAMESPACE};
use crate::rounds::{Load, Phase, chains, one_phase, request_of, warm_up};
use crate::watch::Goal;

/// Time between looks, which the times that are measured are too long by at most.
const LOOK: Duration = Duration::from_millis(20);
/// How long a process may take to be ready.
const PATIENCE: Duration = Duration::from_secs(600);
/// The Lease of whoever leads.
const CONTROLLER_LEASE: &str = "moor-controller";
/// Time in which processes that were started look at everything that there is, once they are ready and one leads.
const LOOK_AT_ALL: Duration = Duration::from_secs(60);

/// Makes so many claims more, each of a Volume of its own, and measures beside all of them. The last is made by processes that
/// were just started again.
pub async fn add(cluster: &Arc<Cluster>, more: usize, at_once: usize, idle_for: Duration) -> Value {
    cluster.run(None);
    warm_up(cluster, None).await;
    let load = |objects| Load { objects, at_once, one_by_one: false };
    let mut objects = chains(cluster, more);
    one_phase(cluster, Phase::MakeVolumes, load(more), None, &mut objects).await;
    let last = objects.pop().unwrap();
    let mut leader_lost = Value::Null;
    if !objects.is_empty() {
        let claims = objects.len();
        until_ready(cluster.stand_by()).await;
        let making = one_phase(cluster, Phase::MakeClaims, load(claims), None, &mut objects);
        let (figures, (in_flight, led)) = tokio::join!(making, lose_leader(cluster, claims / 3));
        let silence = cluster.claims.silence().as_secs_f64();
        let [requests, refused] = [&figures.taken, &figures.refused].map(cost::to_json);
        // What the killed leader had under way may be counted among the refused although it was taken.
        leader_lost = json!({
            "claimsInFlight": in_flight,
            "secondsUntilAnotherLeads": led,
            "secondsWithoutAClaim": silence,
            "callsThatChangePerClaim": figures.calls,
            "requestsPerClaim": requests,
            "refusedRequestsPerClaim": refused,
        });
    }
    until_settled(cluster).await;
    let idle = idle(cluster, idle_for).await;
    let memory = memory(cluster);
    let controller = restart_one(cluster, CONTROLLER).await;
    let agent = restart_one(cluster, cluster.node_of(1)).await;
    let restart = restart(cluster).await;
    let new_claim = claim_at_restart(cluster, last.name(), last.node()).await;
    cluster.stop().await;
    json!({
        "leaderLost": leader_lost,
        "idle": idle,
        "memory": memory,
        "restart": restart,
        "restartOfOne": {"controllerSeconds": controller, "agentSeconds": agent},
        "secondsUntilANewClaimIsReady": new_claim,
    })
}

/// The controller that stands by takes the place of the one that is killed when so many claims are Ready. Returns how many are on
/// their way, and after how many seconds another one led.
async fn lose_leader(cluster: &Cluster, ready: usize) -> (usize, f64) {
    let in_flight = cluster.claims.until_there_are(Goal::Ready, ready).await;
    let leases = leases(cluster);
    let leader = async || leases.get(CONTROLLER_LEASE).await.unwrap().spec.unwrap().holder_identity;
    let lost = leader().await;
    cluster.kill_leader();
    let killed = Instant::now();
    until("no other controller leads", async || leader().await != lost).await;
    (in_flight, killed.elapsed().as_secs_f64())
}

fn leases(cluster: &Cluster) -> Api<Lease> {
    Api::namespaced(cluster.control_plane.admin.clone(), NAMESPACE)
}

/// What the processes have now, of the agents the one in the middle and the one that has most.
#[allow(clippy::cast_precision_loss, reason = "bytes of a process")]
fn memory(cluster: &Cluster) -> Value {
    let (controller, agents) = cluster.memory();
    let [median, _, most] = middle(agents.into_iter().map(|bytes| bytes as f64));
    json!({"controllerBytes": controller, "agentBytes": median, "largestAgentBytes": most})
}

/// Waits until a second passes in which nothing is written.
async fn until_settled(cluster: &Cluster) {
    let writes = async || -> f64 {
        let taken = cluster.counters().await.taken;
        taken.iter().filter(|((verb, _), _)| cost::is_write(verb)).map(|(_, count)| count).sum()
    };
    let mut before = writes().await;
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = writes().await;
        #[allow(clippy::float_cmp, reason = "whole numbers")]
        if now == before {
            return;
        }
        before = now;
    }
}

async fn idle(cluster: &Cluster, time: Duration) -> Value {
    let before = cluster.counters().await;
    let cpu_before = cluster.cpu();
    tokio::time::sleep(time).await;
    let cpu_after = cluster.cpu();
    let after = cluster.counters().await;
    let cpu: serde_json::Map<_, _> =
        cpu_after.iter().map(|(part, now)| ((*part).to_owned(), json!(now - cpu_before[part]))).collect();
    json!({
        "seconds": time.as_secs(),
        "cpuMilliseconds": cpu,
        "requests": cost::to_json(&cost::difference(&before.taken, &after.taken)),
        "refusedRequests": cost::to_json(&cost::difference(&before.refused, &after.refused)),
        "etcdBytes": after.etcd_bytes - before.etcd_bytes,
    })
}

/// `kill -9` of one process, three times. Returns after how many seconds the new one was ready, the middle of them: one alone may meet
/// whatever else the API server does at times by itself.
async fn restart_one(cluster: &Cluster, name: &str) -> f64 {
    let mut all = [0.0; 3];
    for seconds in &mut all {
        let started = Instant::now();
        cluster.restart(name);
        until_ready(cluster.actors[name].port).await;
        *seconds = started.elapsed().as_secs_f64();
        until_settled(cluster).await;
    }
    all.sort_by(f64::total_cmp);
    all[1]
}

/// `kill -9` of all processes at once; they are started again, and nothing is asked of them: what they write and call then is theirs.
async fn restart(cluster: &Cluster) -> Value {
    let (before, calls_before) = (cluster.counters().await, plugin::changes());
    cluster.kill();
    let killed = Timestamp::now();
    let ready = start(cluster).await;
    until_one_leads(cluster, killed).await;
    tokio::time::sleep(LOOK_AT_ALL).await;
    until_settled(cluster).await;
    // A new process has no CPU time of before.
    let cpu = cluster.cpu();
    let after = cluster.counters().await;
    let requests = cost::difference(&before.taken, &after.taken);
    let refused = cost::difference(&before.refused, &after.refused);
    let writes = |of: &Requests| -> Requests {
        of.iter().filter(|((verb, _), _)| cost::is_write(verb)).map(clone).collect()
    };
    json!({
        "secondsUntilAllAreReady": ready,
        "cpuMilliseconds": {"controller": cpu["controller"], "agents": cpu["agents"]},
        "ownWrites": cost::to_json(&writes(&requests)),
        "ownRefusedWrites": cost::to_json(&writes(&refused)),
        "ownCallsThatChange": plugin::changes() - calls_before,
        "requests": cost::to_json(&requests),
    })
}

/// Waits until a controller has renewed the leader's Lease since then. One that does not lead yet writes nothing, and that would say
/// nothing of one that leads.
async fn until_one_leads(cluster: &Cluster, since: Timestamp) {
    let leases = leases(cluster);
    let renewed = async || leases.get(CONTROLLER_LEASE).await.unwrap().spec?.renew_time;
    until("no controller leads", async || renewed().await.is_some_and(|renewed| renewed.0 > since)).await;
}

/// Starts all processes. Returns after how many seconds all are ready.
async fn start(cluster: &Cluster) -> f64 {
    let started = Instant::now();
    cluster.run(None);
    for actor in cluster.actors.values() {
        until_ready(actor.port).await;
    }
    started.elapsed().as_secs_f64()
}

/// `kill -9` of all processes at once, which are started again. Returns after how many seconds a claim is Ready that is made then.
async fn claim_at_restart(cluster: &Arc<Cluster>, name: &str, node: &str) -> f64 {
    cluster.kill();
    let started = Instant::now();
    cluster.claims.begin(Phase::MakeClaims.goals());
    cluster.claims.sent(name);
    let (method, body) = request_of(Phase::MakeClaims, name, node);
    let claim = async {
        cluster.ask(method, "volumeclaims", name, &body).await;
        cluster.claims.until_all_are_there().await;
        started.elapsed().as_secs_f64()
    };
    let (_, ready) = tokio::join!(start(cluster), claim);
    until_settled(cluster).await;
    ready
}

fn clone<K: Clone, V: Clone>((key, value): (&K, &V)) -> (K, V) {
    (key.clone(), value.clone())
}

/// Waits until /readyz of a process says that it is.
async fn until_ready(port: u16) {
    until("a process of moor is not ready", async || is_ready(port).await).await;
}

/// Looks until it is so.
async fn until(otherwise: &str, is_so: impl AsyncFn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so().await {
        assert!(Instant::now() < end, "{otherwise}");
        tokio::time::sleep(LOOK).await;
    }
}

async fn is_ready(port: u16) -> bool {
    let ask = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: moor\r\nConnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    ask.await.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

/// For people, a line each.
pub fn shown(claims: usize, figures: &Value) -> String {
    let counts = |of: &Value| {
        let counts = of.as_object().unwrap().iter();
        let text: Vec<_> =
            counts.map(|(what, count)| format!("{what} {:.0}", count.as_f64().unwrap())).collect();
        if text.is_empty() { "none".to_owned() } else { text.join(", ") }
    };
    let mebibytes = |of: &Value| of.as_f64().unwrap() / f64::from(1 << 20);
    let (idle, memory, restart) = (&figures["idle"], &figures["memory"], &figures["restart"]);
    let (lost, one) = (&figures["leaderLost"], &figures["restartOfOne"]);
    format!(
        "{claims} Ready claims: the controller was killed with {} in flight, and for {:.1} s none became Ready; for each {:.4} locks \
         and {:.4} grants\n\
         {claims} Ready claims, {} s idle: CPU ms {}; requests (no Leases, no watches): {}\n\
         {claims} Ready claims, memory: controller {:.0} MiB, an agent {:.0} MiB, the largest {:.0} MiB\n\
         {claims} Ready claims, kill -9 of one process: /readyz of the controller after {:.2} s, of an agent after {:.2} s\n\
         {claims} Ready claims, kill -9 of all processes: /readyz of all after {:.2} s, a new claim Ready after {:.2} s, CPU ms \
         {}; writes (no Leases): {}\n",
        lost["claimsInFlight"],
        lost["secondsWithoutAClaim"].as_f64().unwrap_or_default(),
        lost["requestsPerClaim"]["POST attachments"].as_f64().unwrap_or_default(),
        lost["requestsPerClaim"]["PATCH volumeclaims"].as_f64().unwrap_or_default(),
        idle["seconds"],
        counts(&idle["cpuMilliseconds"]),
        counts(&idle["requests"]),
        mebibytes(&memory["controllerBytes"]),
        mebibytes(&memory["agentBytes"]),
        mebibytes(&memory["largestAgentBytes"]),
        one["controllerSeconds"].as_f64().unwrap(),
        one["agentSeconds"].as_f64().unwrap(),
        restart["secondsUntilAllAreReady"].as_f64().unwrap(),
        figures["secondsUntilANewClaimIsReady"].as_f64().unwrap(),
        counts(&restart["cpuMilliseconds"]),
        counts(&restart["ownWrites"]),
    )
}
