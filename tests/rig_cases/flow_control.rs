//! What moor's requests take of the API server: seats of its own level, its Leases those of leaders, and no more of them for watches
//! that nobody needs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cases;
use crate::rig::metrics::{of_server, samples};
use crate::rig::second::watches;
use crate::rig::{Case, Cluster, Options, Rig, volume, volume_claim};

/// How many requests the API server has let through so far, by FlowSchema and priority level.
async fn let_through(cluster: &Cluster) -> BTreeMap<(String, String), f64> {
    let text = of_server(&cluster.admin).await;
    let all = samples(&text, "apiserver_flowcontrol_dispatched_requests_total");
    all.map(|(labels, count)| ((labels["flow_schema"].into(), labels["priority_level"].into()), count))
        .collect()
}

async fn moors_requests_have_seats_of_their_own(cluster: Arc<Cluster>) {
    let before = let_through(&cluster).await;
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.make_volume(&volume("v")).await;
    rig.make_claim(&volume_claim("c", "v", "node-1")).await;
    rig.until_ready("c").await;
    let after = let_through(&cluster).await;
    let more = |schema: &str, level: &str| {
        let key = (schema.to_owned(), level.to_owned());
        after.get(&key).copied().unwrap_or_default() - before.get(&key).copied().unwrap_or_default()
    };
    assert!(more("moor", "moor") > 0.0, "{after:?}");
    assert!(more("moor-leases", "leader-election") > 0.0, "{after:?}");
    let with_others = more("service-accounts", "workload-low");
    assert!(with_others == 0.0, "{with_others} of moor's requests wait with those of others");
    rig.remove(&["c"], &["v"]).await;
}

/// The kinds of which those are watched, of all that was read, that somebody has to make calls of a Controller service for.
fn watched_to_call(reads: &[String]) -> BTreeSet<String> {
    let watches = watches(reads).into_iter().filter(|watch| watch.contains("controller.agent"));
    watches.filter_map(|watch| Some(watch.split_once(' ')?.0.rsplit('/').next()?.to_owned())).collect()
}

/// The driver comes after its agent. What is not watched before costs no write of its kind anything.
async fn who_makes_no_controller_calls_watches_none(cluster: Arc<Cluster>) {
    let all = BTreeSet::from(["attachments", "snapshots", "volumes"].map(str::to_owned));
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.make_volume(&volume("v")).await;
    rig.make_claim(&volume_claim("c", "v", "node-2")).await;
    rig.until_ready("c").await;
    let reads = rig.reads("node-1");
    assert_eq!(watched_to_call(&reads), all);
    assert_eq!(watched_to_call(&rig.reads("node-2")), BTreeSet::new());
    // One that is started anew finds what it has to call for.
    rig.restart_and_wait("node-1").await;
    rig.delete_claim("c").await;
    rig.until_claim_gone("c").await;
    assert_eq!(watched_to_call(&rig.reads("node-1")[reads.len()..]), all);
    rig.remove(&[""; 0], &["v"]).await;
}

pub const CASES: &[Case] =
    cases![moors_requests_have_seats_of_their_own, who_makes_no_controller_calls_watches_none];
