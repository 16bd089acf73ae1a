//! An API server that is slow, refuses and breaks now and then, is not there for a while, or is started anew: nothing is lost, nothing
//! is done twice, and everything goes on by itself when it is well again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use moor::csi::Rpc;

use crate::cases;
use crate::rig::proxy::is_list;
use crate::rig::second::{begins, selection, watches};
use crate::rig::{ApiFault, CONTROLLER, Case, Cluster, Options, Rig, is_whole, volume, volume_claim};

const NODES: [&str; 2] = ["node-1", "node-2"];
/// Volumes, each with a claim on one of the two nodes.
const VOLUMES: usize = 8;

fn names(of: &str) -> Vec<String> {
    (0..VOLUMES).map(|number| format!("{of}-{number}")).collect()
}

async fn make(rig: &Rig, names: &[String]) {
    for (number, name) in names.iter().enumerate() {
        rig.make_volume(&volume(name)).await;
        rig.make_claim(&volume_claim(name, name, NODES[number % 2])).await;
    }
}

async fn until_ready(rig: &Rig, names: &[String]) {
    for name in names {
        rig.until_ready(name).await;
    }
}

/// Each call that makes or undoes something has had its effect once: a driver is called again only where an answer was lost, and
/// none of the driver's was.
fn assert_called_once(rig: &Rig, names: &[String]) {
    for name in names {
        for rpc in
            [Rpc::CreateVolume, Rpc::ControllerPublishVolume, Rpc::NodeStageVolume, Rpc::NodePublishVolume]
        {
            assert_eq!(rig.count(name, rpc), 1, "{name}: {rpc:?}\n{}", rig.story(name));
        }
    }
}

/// Everything takes longer, and that is all: no object waits for the requests of another one.
async fn a_slow_one_makes_nothing_fail(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let all = names("slow");
    for name in &all {
        rig.make_volume(&volume(name)).await;
    }
    for name in &all {
        rig.until_volume_ready(name).await;
    }
    rig.set_api_fault(ApiFault::Slow(Duration::from_millis(200)));
    join_all(all.iter().enumerate().map(|(number, name)| {
        let claim = volume_claim(name, name, NODES[number % 2]);
        let rig = &rig;
        async move { rig.make_claim(&claim).await }
    }))
    .await;
    until_ready(&rig, &all).await;
    assert_called_once(&rig, &all);
    // Half of them, and a Lease: what is asked for at once on a machine that is busy.
    for (actor, least) in [(CONTROLLER, VOLUMES / 2), (NODES[0], VOLUMES / 4), (NODES[1], VOLUMES / 4)] {
        let most = rig.most_delayed(actor);
        assert!(most > least, "{actor} had {most} requests under way at most, of {VOLUMES} claims");
    }
    rig.remove(&all, &all).await;
}

/// Of twelve requests one is refused and one loses its answer, watches break and are too old: each object comes to its end all the
/// same, and in minutes, not in hours.
async fn a_flaky_one_only_delays(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.set_api_fault(ApiFault::Flaky);
    let all = names("flaky");
    make(&rig, &all).await;
    until_ready(&rig, &all).await;
    for name in &all {
        rig.delete_claim(name).await;
    }
    for name in &all {
        rig.until_claim_gone(name).await;
    }
    rig.set_api_fault(ApiFault::None);
    let all_of_it = ["Expired", "InternalError", "Timeout", "TooManyRequests", "broken watch", "lost answer"];
    assert_eq!(rig.api_faults_met(), all_of_it);
    rig.remove(&[""; 0], &all).await;
}

/// Longer than the leader's Lease lasts: the leader ends, and another one goes on.
async fn an_absent_one_is_waited_for(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let (before, leaving, during) = (names("before"), names("leaving"), names("during"));
    make(&rig, &before).await;
    make(&rig, &leaving).await;
    until_ready(&rig, &before).await;
    until_ready(&rig, &leaving).await;
    let read = NODES.map(|node| rig.reads(node).len());

    rig.set_api_fault(ApiFault::Absent);
    let broken = rig.revision().await;
    make(&rig, &during).await;
    for name in &leaving {
        rig.delete_claim(name).await;
    }
    let away = if is_whole() { Duration::from_secs(60) } else { Duration::from_secs(25) };
    tokio::time::sleep(away).await;
    assert_eq!(
        during.iter().map(|name| rig.count(name, Rpc::CreateVolume)).sum::<usize>(),
        0,
        "nobody was told"
    );
    rig.set_api_fault(ApiFault::None);

    until_ready(&rig, &during).await;
    for name in &leaving {
        rig.until_claim_gone(name).await;
    }
    for all in [&before, &leaving, &during] {
        assert_called_once(&rig, all);
    }
    // The agents did not end, and their watches have gone on from where they were: thousands of them would list at once. Each looks
    // once which Attachments it has, because it was not heard for so long.
    for (node, read) in NODES.into_iter().zip(read) {
        let since = rig.reads(node).split_off(read);
        let (own, others): (Vec<_>, Vec<_>) = since
            .iter()
            .filter(|read| is_list(read) && is_of_all(read))
            .partition(|list| list.contains("/attachments?&fieldSelector=spec.nodeName"));
        assert!(own.len() <= 1 && others.is_empty(), "{node}: {since:?}");
        // A LIST since then would have been of a later version.
        let first: BTreeMap<_, _> = since.iter().rev().filter_map(|read| begins(read)).collect();
        assert!(
            !first.is_empty() && first.values().all(|begin| *begin <= broken),
            "{node}: {broken} {since:?}"
        );
    }
    assert!(rig.lists(CONTROLLER).len() > 1);
    rig.remove(&[before.clone(), during.clone()].concat(), &[before, leaving, during].concat()).await;
}

/// Whether a LIST is of all that there is, and not of one object, which tells at which revision etcd is.
fn is_of_all(list: &str) -> bool {
    !list.split(['?', '&']).any(|part| part == "limit=1")
}

/// How often a controller has ended because it could not renew its Lease. The next one lists all for itself.
fn ended(rig: &Rig) -> usize {
    rig.ended().iter().filter(|actor| *actor == CONTROLLER).count()
}

/// It has no events of before then, so that its watches begin with a LIST: each process makes one of each kind, and no more.
async fn one_that_is_started_anew_is_listed_once(shared: Arc<Cluster>) {
    let cluster = Arc::new(shared.start_another().await);
    let rig = Rig::start(&cluster, Options::default()).await;
    let (before, during) = (names("before"), names("during"));
    make(&rig, &before).await;
    until_ready(&rig, &before).await;
    // Of a Volume that is made is listed what a decision about it rests on.
    for name in &during {
        rig.make_volume(&volume(name)).await;
    }
    for name in &during {
        rig.until_volume_ready(name).await;
    }
    let actors = [CONTROLLER, NODES[0], NODES[1]];
    let (listed, before_it) = (actors.map(|actor| rig.lists(actor).len()), ended(&rig));
    for (number, name) in during.iter().enumerate() {
        rig.make_claim(&volume_claim(name, name, NODES[number % 2])).await;
    }
    cluster.restart_api_server().await;
    until_ready(&rig, &during).await;
    // What was under way then may have been called, and its answer not written.
    assert_called_once(&rig, &before);
    // Where it takes too long to start.
    let further = ended(&rig) - before_it;
    for (actor, listed) in actors.into_iter().zip(listed) {
        let most = if actor == CONTROLLER { 1 + further } else { 1 };
        let watched = watches(&rig.reads(actor));
        let since = rig.lists(actor).split_off(listed);
        let mut times: BTreeMap<_, usize> = BTreeMap::new();
        for list in since.iter().filter(|list| is_of_all(list)).map(|list| selection(list)) {
            // Others are listed and not watched. The Leases are looked through by a leader that is cautious.
            if watched.contains(&list) && !list.contains("/leases") {
                *times.entry(list).or_default() += 1;
            }
        }
        // An agent that was not heard looks which Attachments it has, and a new leader which Plugins there are.
        let most_of = |list: &str| match list {
            list if list.contains("/attachments fieldSelector=spec.nodeName") => most + 1,
            list if list.contains("/plugins ") => most + further,
            _ => most,
        };
        let are_few = times.iter().all(|(list, times)| *times <= most_of(list));
        assert!(!times.is_empty() && are_few, "{actor}: {times:#?}");
    }
    rig.remove(&[before.clone(), during.clone()].concat(), &[before, during].concat()).await;
}

pub const CASES: &[Case] = cases![
    a_slow_one_makes_nothing_fail,
    a_flaky_one_only_delays,
    an_absent_one_is_waited_for,
    one_that_is_started_anew_is_listed_once,
];
