//! moor's own processes are replaced while they are at work: what is under way goes on, nothing is granted twice, and nothing fails.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use moor::api::ClaimState;
use moor::csi::Rpc;

use crate::cases;
use crate::rig::{CONTROLLER, Case, Cluster, Entry, Journal, Options, Rig, is_whole, volume, volume_claim};

const NODES: [&str; 2] = ["node-1", "node-2"];
/// What makes a claim Ready.
const MADE: [Rpc; 3] = [Rpc::ControllerPublishVolume, Rpc::NodeStageVolume, Rpc::NodePublishVolume];

/// Names of claims and of their Volumes, which are Ready.
async fn volumes(rig: &Rig, of: &str) -> Vec<String> {
    let count = if is_whole() { 400 } else { 24 };
    let names: Vec<String> = (0..count).map(|number| format!("{of}-{number}")).collect();
    for name in &names {
        rig.make_volume(&volume(name)).await;
    }
    for name in &names {
        rig.until_volume_ready(name).await;
    }
    names
}

async fn claim(rig: &Rig, names: &[String]) {
    for (number, name) in names.iter().enumerate() {
        rig.make_claim(&volume_claim(name, name, NODES[number % 2])).await;
    }
}

fn ready<'a>(rig: &Rig, names: &'a [String]) -> Vec<&'a String> {
    let is_ready = |name: &&String| {
        let claim = rig.cluster.claim(name);
        claim.and_then(|claim| claim.status.clone()).is_some_and(|status| status.state == ClaimState::Ready)
    };
    names.iter().filter(is_ready).collect()
}

async fn until_a_third_is_ready(rig: &Rig, names: &[String]) {
    let look = || (ready(rig, names).len() * 3 >= names.len()).then_some(());
    rig.cluster.until("a third of the claims is Ready", look, String::new).await;
}

fn assert_called_once(rig: &Rig, names: &[String]) {
    for name in names {
        for rpc in MADE {
            assert_eq!(rig.count(name, rpc), 1, "{name}: {rpc:?}\n{}", rig.story(name));
        }
    }
}

/// What the controller wrote about objects of this kind, by their names.
fn written(rig: &Rig, since: usize, label: &str) -> BTreeMap<String, usize> {
    let is_it = |entry: &Entry| entry.actor == CONTROLLER && entry.is_taken() && entry.label() == label;
    let mut found = BTreeMap::new();
    for entry in rig.journal.since(since, is_it) {
        let write = entry.write().unwrap();
        let own = write.body.pointer("/metadata/name").and_then(serde_json::Value::as_str);
        let name = if write.name.is_empty() { own.unwrap_or_default() } else { &write.name };
        *found.entry(name.to_owned()).or_default() += 1;
    }
    found
}

/// The next leader grants what the last one has not, and lets be what is Ready.
async fn a_leader_is_killed_while_claims_are_granted(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let names = volumes(&rig, "led").await;
    let begin = rig.journal.now();
    claim(&rig, &names).await;
    until_a_third_is_ready(&rig, &names).await;
    let before: BTreeSet<String> = ready(&rig, &names).into_iter().cloned().collect();
    let killed = rig.journal.now();
    rig.restart(CONTROLLER);
    for name in &names {
        rig.until_ready(name).await;
    }
    assert_called_once(&rig, &names);
    for label in ["PATCH volumeclaims", "POST attachments"] {
        let times = written(&rig, begin, label);
        assert!(
            !times.is_empty() && times.values().all(|times| *times == 1),
            "granted twice: {label} {times:?}"
        );
    }
    for label in ["PATCH volumeclaims", "PATCH volumeclaims/status", "PATCH volumes", "PATCH volumes/status"]
    {
        let about = written(&rig, killed, label);
        let again: Vec<_> = about.keys().filter(|name| before.contains(*name)).collect();
        assert!(again.is_empty(), "{label} of what was Ready when the leader was killed: {again:?}");
    }
    rig.remove(&names, &names).await;
}

/// As a rolling update does: SIGTERM to one agent after the other, and a new one in its place.
async fn agents_are_replaced_while_claims_come_and_go(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let names = volumes(&rig, "rolled").await;
    let roll = async || {
        for node in NODES {
            rig.stop(node).await;
            rig.run(node);
            rig.until_served(node).await;
        }
    };
    claim(&rig, &names).await;
    until_a_third_is_ready(&rig, &names).await;
    roll().await;
    for name in &names {
        rig.until_ready(name).await;
    }
    for name in &names {
        rig.delete_claim(name).await;
    }
    roll().await;
    for name in &names {
        rig.until_claim_gone(name).await;
    }
    // Some calls are made once more: an agent that ends does not always come to write down that one has succeeded.
    let failed = rig.journal.since(0, |entry| entry.call().is_some() && !entry.is_ok());
    assert!(failed.is_empty(), "{}", Journal::text(&failed));
    // Of an instance it is said that its agent ends.
    let says_failure = |entry: &Entry| {
        let write = entry.write().filter(|write| write.kind != "plugininstances");
        let error = write.and_then(|write| write.body.pointer("/status/lastError"));
        error.is_some_and(|error| !error.is_null())
    };
    let told = rig.journal.since(0, says_failure);
    assert!(told.is_empty(), "{told:#?}");
    rig.remove(&[""; 0], &names).await;
}

pub const CASES: &[Case] =
    cases![a_leader_is_killed_while_claims_are_granted, agents_are_replaced_while_claims_come_and_go];
