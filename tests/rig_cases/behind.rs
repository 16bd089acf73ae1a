//! Two API servers on one etcd, one of them behind: its watch cache stays as it was, and a process comes to it when its
//! connection to the other breaks, or starts there.
//!
//! It sees nothing happen there, and what it reads live is true. So no step that it has seen is taken back, nothing is
//! called or granted on what it remembers alone, and it does not take the server for one whose etcd was restored.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::cases;
use crate::rig::{
    CONTROLLER, Case, Cluster, Entry, Fault, Journal, ON_THE_PATH, Options, Rig, SecondServer, Write, volume,
    volume_claim,
};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use moor::api::conditions::SILENT;
use moor::api::names::agent_lease_name;
use moor::api::{PluginInstance, VolumeClaim};
use moor::csi::Rpc;
use serde_json::json;
use tonic::Code;

const NODES: [(&str, bool); 3] = [("node-1", true), ("node-2", false), ("node-3", false)];

async fn start(cluster: &Arc<Cluster>) -> (Arc<Rig>, SecondServer) {
    // A process that ends would be one that takes the server for restored.
    let options = Options { nodes: NODES.to_vec(), supervised: false, ..Options::default() };
    (Rig::start(cluster, options).await, cluster.second_server().await)
}

/// A claim on a volume of its own, which is mounted and has a word in it. Claim and Volume have one name.
async fn in_use(rig: &Rig, name: &str, node: &str) -> String {
    rig.make_volume(&volume(name)).await;
    rig.make_claim(&volume_claim(name, name, node)).await;
    let target = rig.until_ready(name).await;
    fs::write(Path::new(&target).join("word"), name).unwrap();
    target
}

fn word(target: &str) -> Option<String> {
    fs::read_to_string(Path::new(target).join("word")).ok()
}

/// Nobody concluded that etcd was restored, or that a mount is one that the API server has forgotten.
async fn assert_nobody_doubts(rig: &Rig) {
    for actor in NODES.map(|(node, _)| node).into_iter().chain([CONTROLLER]) {
        assert!(!rig.has_ended(actor), "{actor} has ended");
    }
    let instances: Api<PluginInstance> = Api::all(rig.cluster.admin.clone());
    for instance in instances.list(&ListParams::default()).await.unwrap() {
        let forgotten = instance.status.unwrap_or_default().forgotten;
        assert!(forgotten.is_empty(), "{}: {forgotten:?}", instance.spec.node_name);
    }
}

/// The calls on one node about a volume that began after `since`, by name.
fn calls_on(rig: &Rig, node: &str, key: &str, since: usize) -> Vec<&'static str> {
    let here = |e: &Entry| e.call().is_some_and(|call| call.node == node && call.key == key);
    rig.journal.since(since, here).iter().filter_map(|e| e.call().map(|c| c.rpc.name())).collect()
}

/// What `actor` wrote about what users see after `since`.
fn written(rig: &Rig, since: usize, actor: &str) -> Vec<String> {
    let seen = |e: &Entry| e.write().is_some_and(|w| ON_THE_PATH.contains(&w.kind.as_str()));
    let all = rig.journal.since(since, |e| e.actor == actor && seen(e));
    all.iter().map(ToString::to_string).collect()
}

async fn until_read(rig: &Rig, actor: &str, path: &str) {
    let read = || rig.reads(actor).iter().any(|target| target.ends_with(path)).then_some(());
    rig.cluster.until(&format!("{actor} reads {path}"), read, || rig.reads(actor).join("\n")).await;
}

async fn mark(rig: &Rig, node: &str, off: bool) {
    let taint =
        json!({"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"});
    let taints = if off { vec![taint] } else { Vec::new() };
    let nodes: Api<Node> = Api::all(rig.cluster.admin.clone());
    let patch = Patch::Merge(json!({"spec": {"taints": taints}}));
    nodes.patch(node, &PatchParams::default(), &patch).await.unwrap();
}

/// The leader remembers a node marked as off, and hears neither that the mark was taken away nor that the node lives.
async fn a_leader_takes_nothing_back(cluster: Arc<Cluster>) {
    let (rig, second) = start(&cluster).await;
    let kept = in_use(&rig, "kept", "node-2").await;
    in_use(&rig, "moved", "node-1").await;
    mark(&rig, "node-2", true).await;
    // The leader has seen it.
    rig.until_told("kept", SILENT, "False", "HeardThoughGone").await;
    second.fall_behind().await;

    // Steps of which the second server does not hear.
    rig.delete_claim("moved").await;
    rig.until_claim_gone("moved").await;
    rig.make_claim(&volume_claim("then", "moved", "node-3")).await;
    let then = rig.until_ready("then").await;
    rig.lead_and_wait(CONTROLLER, &second.admin).await;
    let since = rig.journal.now();
    assert_eq!(second.remembers::<VolumeClaim>().await, ["kept", "moved"], "the server is not behind");
    mark(&rig, "node-2", false).await;
    rig.make_claim(&volume_claim("rival", "moved", "node-1")).await;

    // By what it hears every agent is silent, and the machine of one is off: it looks before it says or does anything.
    until_read(&rig, CONTROLLER, &format!("/leases/{}", agent_lease_name("node-2"))).await;
    until_read(&rig, CONTROLLER, "/nodes/node-2").await;
    let said = written(&rig, since, CONTROLLER);
    assert!(said.is_empty(), "by what it remembers: {said:?}");
    assert!(rig.read_attachment_of("kept").await.spec.lost.is_none());
    assert_nobody_doubts(&rig).await;

    second.catch_up();
    rig.until_told("rival", "Ready", "False", "Held").await;
    assert_eq!(word(&kept).as_deref(), Some("kept"));
    assert_eq!(word(&then).as_deref(), Some("moved"));
    rig.delete_claim("then").await;
    let rival = rig.until_ready("rival").await;
    assert_eq!(word(&rival).as_deref(), Some("moved"));
    assert_nobody_doubts(&rig).await;
    rig.remove(&["kept", "rival"], &["kept", "moved"]).await;
}

/// An agent was given up, and its volumes are in use elsewhere, when it wakes up. By what it hears nothing has changed.
async fn an_agent_that_was_given_up_makes_nothing(cluster: Arc<Cluster>) {
    let (rig, second) = start(&cluster).await;
    let used = in_use(&rig, "used", "node-2").await;
    rig.make_volume(&volume("half")).await;
    rig.fake.fail("half", Rpc::NodeStageVolume, Fault::CodeBefore(Code::Unavailable));
    rig.make_claim(&volume_claim("half", "half", "node-2")).await;
    // Its next attempt is some time away.
    let tried = || rig.cluster.claim("half")?.status.as_ref()?.attempts.filter(|n| *n >= 4);
    cluster.until("some attempts have failed", tried, || rig.story("half")).await;
    rig.freeze("node-2");
    let half = rig.read_attachment_of("half").await;
    second.fall_behind().await;

    // Its Lease ends by itself: a call that it was about to make is then as old as that.
    rig.mark_out_of_service("node-2", true).await;
    for name in ["used", "half"] {
        rig.delete_claim(name).await;
        rig.until_claim_gone(name).await;
        rig.fake.heal(name, Rpc::NodeStageVolume);
        rig.make_claim(&volume_claim(&format!("{name}-now"), name, "node-3")).await;
        rig.until_ready(&format!("{name}-now")).await;
    }
    rig.mark_out_of_service("node-2", false).await;
    let since = rig.journal.now();
    let watched = rig.lead("node-2", &second.admin);
    rig.thaw("node-2");
    rig.until_watching("node-2", &watched).await;
    assert_eq!(second.remembers::<VolumeClaim>().await, ["half", "used"], "the server is not behind");

    // It finds out by itself that it has to clean up, and makes nothing anew.
    let clean = || rig.leaks_on("node-2").is_empty().then_some(());
    cluster.until("the agent has cleaned up", clean, || rig.leaks_on("node-2").join("\n")).await;
    until_read(&rig, "node-2", &format!("/attachments/{}", half.metadata.name.unwrap())).await;
    let again = in_use(&rig, "again", "node-1").await;
    assert_nobody_doubts(&rig).await;
    second.catch_up();
    // Once this is done the agent has heard of everything.
    in_use(&rig, "after", "node-2").await;
    for name in ["used", "half"] {
        let made = [Rpc::NodeStageVolume, Rpc::NodePublishVolume].map(Rpc::name);
        let calls = calls_on(&rig, "node-2", name, since);
        assert!(!calls.iter().any(|call| made.contains(call)), "{name}: {calls:?}");
    }
    assert_eq!(word(&used), None);
    assert_eq!(word(&again).as_deref(), Some("again"));
    assert_nobody_doubts(&rig).await;
    let claims = ["used-now", "half-now", "again", "after"];
    rig.remove(&claims, &["used", "half", "again", "after"]).await;
}

/// Processes that start there know what is true at that moment, and what is gone was deleted, not forgotten.
async fn who_starts_there_undoes_what_is_gone_and_nothing_else(cluster: Arc<Cluster>) {
    let (rig, second) = start(&cluster).await;
    let held = in_use(&rig, "held", "node-2").await;
    let gone = in_use(&rig, "gone", "node-2").await;
    let removed = in_use(&rig, "removed", "node-2").await;
    let used = [rig.read_attachment_of("gone").await, rig.read_attachment_of("removed").await];
    rig.make_volume(&volume("early")).await;
    rig.until_volume_ready("early").await;
    second.fall_behind().await;
    for actor in ["node-2", CONTROLLER] {
        rig.lead_and_wait(actor, &second.admin).await;
    }
    let since = rig.journal.now();
    rig.delete_claim("gone").await;
    // Break-glass.
    rig.delete_claim("removed").await;
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    rig.claim_api().patch("removed", &PatchParams::default(), &free).await.unwrap();
    rig.make_claim(&volume_claim("early", "early", "node-3")).await;

    for actor in ["node-2", CONTROLLER] {
        rig.restart(actor);
    }
    for (name, target) in [("gone", &gone), ("removed", &removed)] {
        let unmounted = || word(target).is_none().then_some(());
        cluster.until("what nobody claims is unmounted", unmounted, || rig.story(name)).await;
    }
    let remembered = second.remembers::<VolumeClaim>().await;
    assert_eq!(remembered, ["gone", "held", "removed"], "the server is not behind");
    assert_nobody_doubts(&rig).await;
    second.catch_up();
    // A leader that begins after a gap grants nothing before it has heard the agents, and there it hears nobody.
    let early = rig.until_ready("early").await;
    for name in ["gone", "removed"] {
        rig.until_claim_gone(name).await;
    }
    assert_eq!(word(&held).as_deref(), Some("held"));
    assert_eq!(calls_on(&rig, "node-2", "held", since), Vec::<&str>::new());
    assert!(Path::new(&early).exists());
    rig.remove(&["held", "early"], &["held", "early", "gone", "removed"]).await;
    for name in ["gone", "removed"] {
        let undone = [Rpc::NodeUnpublishVolume, Rpc::NodeUnstageVolume].map(Rpc::name);
        assert_eq!(calls_on(&rig, "node-2", name, since), undone, "{name}");
    }
    for attachment in used {
        let name = attachment.metadata.name.as_deref();
        let detached = |w: &Write| name == Some(&w.name) && w.state() == Some("NodeDetached");
        let said = rig.journal.since(since, |e| e.is_taken() && e.write().is_some_and(detached));
        assert_eq!(said.len(), 1, "{}", Journal::text(&said));
    }
    assert_nobody_doubts(&rig).await;
}

/// The cases of this module.
pub const CASES: &[Case] = cases![
    a_leader_takes_nothing_back,
    an_agent_that_was_given_up_makes_nothing,
    who_starts_there_undoes_what_is_gone_and_nothing_else,
];
