//! Steps of a pass with an agent around it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::pass::Pass;
use super::worker::work;
use crate::agent::attach::audits::Audits;
use crate::agent::caches::Caches;
use crate::agent::calls::attempt::{Due, NotDone, Word};
use crate::agent::calls::budgets::Budgets;
use crate::agent::calls::flights::Flights;
use crate::agent::calls::running::Running;
use crate::agent::calls::tenures::Tenures;
use crate::agent::calls::unended::Unended;
use crate::agent::capacity::said::Said;
use crate::agent::condition::known::Known;
use crate::agent::context::Agent;
use crate::agent::drivers::registry::Registry;
use crate::agent::events::Events;
use crate::agent::host::error::HostError;
use crate::agent::host::mount_namespace::MountNamespace;
use crate::agent::host::paths::Paths;
use crate::agent::host::targets::Targets;
use crate::agent::kubelet::served::Served;
use crate::agent::orphans::known::Orphans;
use crate::agent::queues::Queues;
use crate::agent::records::store::{Records, Stored};
use crate::agent::restore::settling::Settling;
use crate::api::conditions::Reason;
use crate::api::{Attachment, AttachmentUid, ClaimUid, VolumeClaim};
use crate::attachment::node_side::Seen;
use crate::attachment::record::Record;
use crate::csi::{Deadlines, Rpc};
use crate::heartbeat::lease::DURATION;
use crate::heartbeat::{History, Renewal};
use crate::k8s::events::{Recorder, Role};
use crate::k8s::lease::ApiLeases;
use crate::k8s::scripted_tests::{Answer, Scripted};
use crate::k8s::{Next, Writer};
use crate::metrics::Metrics;
use crate::plugin::workload::Directories;

/// A pass over the VolumeHandle `h`, by the agent of `node-1` with its files in `directory`.
async fn pass(directory: &Path, client: Client, renewal: Renewal) -> Pass {
    let (metrics, _) = Metrics::new();
    let (caches, queues, paths) =
        (Caches::new("node-1"), Arc::new(Queues::default()), Paths::below(directory));
    let events = Arc::new(Events {
        node_name: "node-1".into(),
        directories: Directories::new(directory.to_owned(), None),
        caches: caches.clone(),
        records: Arc::new(Records::open(&directory.join("records")).unwrap()),
        retries: Arc::default(),
        begun: Arc::default(),
        queues: queues.clone(),
        lost: Arc::default(),
        asked: Arc::default(),
        metrics: metrics.clone(),
        audit_interval: Duration::ZERO,
        orphans: Arc::new(Orphans::open(&directory.join("ledger"))),
    });
    let writer = Writer::new(client.clone(), metrics.clone());
    let agent = Agent {
        node_name: "node-1".into(),
        node_uid: "node-uid".into(),
        boot_id: "boot".into(),
        pod_uid: None,
        directories: events.directories.clone(),
        targets: Targets::unprepared(&paths),
        paths,
        node_mounts: MountNamespace::default(),
        caches,
        registry: Registry::new(events.directories.plugins.clone(), Deadlines::default(), events.clone()),
        records: events.records.clone(),
        recorder: Recorder::new(client.clone(), Role::Agent, "node-1"),
        leases: ApiLeases::new(Api::<Lease>::namespaced(client.clone(), "moor-system"), writer.clone()),
        writer,
        metrics,
        retries: events.retries.clone(),
        begun: events.begun.clone(),
        queues,
        unended: Unended::open(&directory.join("unended"), "boot", Deadlines::default().longest()),
        budgets: Budgets::new(prometheus_client::metrics::family::Family::default(), |_| ()),
        flights: Flights::new(|_| ()),
        tenures: Tenures::new(
            Deadlines::default().longest(),
            Running::open(&directory.join("calls"), "node-1", "boot"),
        ),
        renewal,
        history: Arc::new(History::kept_in(&directory.join("lease"))),
        settling: Settling::default(),
        lost: events.lost.clone(),
        asked: Arc::default(),
        served: Served::below(directory),
        namespace: "moor-system".into(),
        went_back: Notify::new(),
        audits: Audits::new(Duration::ZERO),
        orphans: events.orphans.clone(),
        capacities: Said::default(),
        capacity_interval: Duration::ZERO,
        volumes_known: Known::default(),
        health_interval: Duration::ZERO,
        inline_volumes: false,
        stopping: AtomicBool::new(false),
        registered_anew: Notify::new(),
        client,
    };
    // Finds no driver, and has looked then.
    std::fs::create_dir_all(&agent.directories.plugins).unwrap();
    let scanning = tokio::spawn(agent.registry.clone().run());
    while !agent.registry.is_settled() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    scanning.abort();
    Pass {
        term: agent.renewal.term(),
        agent: Arc::new(agent),
        handle: "h".into(),
        live: HashMap::new(),
        live_claims: HashMap::new(),
        live_handle: None,
        revision: None,
    }
}

/// Whether a call that is due is begun.
async fn is_begun(pass: &Pass) -> bool {
    let begun = AtomicBool::new(false);
    let call = async {
        begun.store(true, Ordering::Relaxed);
        Ok(())
    };
    let due = pass.due(Rpc::NodeStageVolume, "driver");
    let called = pass.call(&due, None, call, &[], Reason::Staging).await;
    let begun = begun.into_inner();
    assert_eq!(begun, matches!(called, Ok(Ok(()))), "{called:?}");
    assert!(begun || matches!(called, Err(NotDone::NotNow)), "{called:?}");
    begun
}

/// What came before it may have taken as long as it wants: a Secret, the disk with the records.
#[tokio::test]
async fn a_call_is_not_begun_on_an_old_lease_or_after_the_end_has_begun() {
    let dir = tempfile::tempdir().unwrap();
    let (_server, client) = Scripted::start(Vec::new()).await;
    let now = Instant::now();
    let fresh = pass(dir.path(), client.clone(), Renewal::of(Some(now))).await;
    assert!(is_begun(&fresh).await);
    fresh.agent.stopping.store(true, Ordering::Relaxed);
    assert!(!is_begun(&fresh).await);
    let old = now.checked_sub(DURATION / 2).unwrap();
    assert!(!is_begun(&pass(dir.path(), client, Renewal::of(Some(old))).await).await);
}

/// A pass may have read live, and then been held up for so long that the Lease expired, by a call before this one, or
/// because the process was stopped. The Lease may be fresh again by now.
#[tokio::test]
async fn a_call_is_not_begun_on_what_was_read_before_a_silence() {
    let dir = tempfile::tempdir().unwrap();
    let (_server, client) = Scripted::start(Vec::new()).await;
    let now = Some(Instant::now());
    let mut pass = pass(dir.path(), client, Renewal::in_term(2, now)).await;
    assert!(is_begun(&pass).await);
    pass.term = Renewal::in_term(1, now).term();
    assert!(!is_begun(&pass).await);
    pass.term = None;
    assert!(!is_begun(&pass).await);
}

/// An Attachment of the pass's VolumeHandle.
fn attachment() -> Attachment {
    let mut attachment = Attachment::default();
    attachment.metadata.name = Some("a".into());
    attachment.metadata.uid = Some("a-uid".into());
    attachment.metadata.resource_version = Some("5".into());
    attachment.spec.node_name = "node-1".into();
    attachment.spec.fixed.handle_name = "h".into();
    attachment
}

/// A claim of an Attachment on a node.
fn claim_on(node: &str, uid: &str) -> VolumeClaim {
    let claim = json!({
        "apiVersion": "moor.dev/v1alpha1", "kind": "VolumeClaim",
        "metadata": {"name": uid, "namespace": "default", "uid": uid, "resourceVersion": "5"},
        "spec": {
            "volumeName": "v", "accessMode": "SingleNodeWriter", "attachmentMode": "FileSystem",
            "assignment": {
                "nodeName": node, "nodeUID": "node-uid",
                "attachment": "a", "attachmentUID": "a-uid", "handleName": "h",
            },
        },
    });
    serde_json::from_value(claim).unwrap()
}

/// A watch may tell of the end of an object before the answer to this pass's own write has come, and then no write is left that
/// could change what was read: a pass that went on with it would repeat its step until the end of its turn.
#[tokio::test]
async fn what_has_ended_since_it_was_read_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let (_server, client) = Scripted::start(Vec::new()).await;
    let mut pass = pass(dir.path(), client, Renewal::of(None)).await;
    let uid = AttachmentUid::from("a-uid");
    let read = attachment();
    pass.agent.caches.attachments.apply(read.clone());
    pass.live.insert(uid.clone(), Some(Arc::new(read)));
    for claim in [claim_on("node-1", "here"), claim_on("node-2", "moved")] {
        pass.agent.caches.claims.apply(claim.clone());
        pass.live_claims.insert(ClaimUid::of(&claim.metadata), Some(Arc::new(claim)));
    }
    let seen = pass.observe().await.unwrap().seen;
    assert!(seen.live(&uid).is_some() && seen.attachments.len() == 1);
    let names = |seen: &Seen| seen.claims.iter().map(|claim| claim.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&seen), ["here", "moved"]);

    pass.agent.caches.attachments.remove_confirmed(&uid);
    pass.agent.caches.claims.remove_confirmed("here");
    let seen = pass.observe().await.unwrap().seen;
    assert!(seen.live(&uid).is_none() && seen.attachments.is_empty(), "it is read once more: {seen:?}");
    assert_eq!(names(&seen), ["moved"], "no watch tells of that one");
    assert!(seen.gone_claims.is_empty());
}

/// An etcd that was restored has an Attachment whose end this agent has seen, and takes in no more.
#[tokio::test]
async fn a_step_that_changes_nothing_is_not_repeated_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let answer = Answer::Json(serde_json::to_value(attachment()).unwrap());
    let (server, client) = Scripted::start(vec![answer]).await;
    let agent = pass(dir.path(), client, Renewal::of(None)).await.agent;
    let record = Record {
        attachment_uid: "a-uid".into(),
        attachment_name: "a".into(),
        handle_name: "h".into(),
        ..Record::default()
    };
    agent.records.put(Stored { record, ..Stored::default() }).await.unwrap();
    agent.caches.attachments.remove_confirmed("a-uid");
    let next = tokio::time::timeout(Duration::from_secs(5), work(agent, "h".into())).await;
    assert_eq!(next.expect("it has asked again"), Next::Retry);
    assert_eq!(server.asked().len(), 1);
}

#[tokio::test]
async fn a_claim_says_that_its_mounts_cannot_be_looked_at() {
    let claim = |name: &str, state: &str, deleted: bool| -> VolumeClaim {
        let mut claim = json!({
            "apiVersion": "moor.dev/v1alpha1", "kind": "VolumeClaim",
            "metadata": {
                "name": name, "namespace": "default", "uid": name, "resourceVersion": "1",
                "creationTimestamp": "2020-01-01T00:00:00Z", "finalizers": ["moor.dev/x"],
            },
            "spec": {
                "volumeName": "v", "accessMode": "MultiNodeMultiWriter", "attachmentMode": "FileSystem",
                "assignment": {
                    "nodeName": "node-1", "nodeUID": "node-uid",
                    "attachment": "a", "attachmentUID": "a-uid", "handleName": "h",
                },
            },
            "status": {"state": state},
        });
        if deleted {
            claim["metadata"]["deletionTimestamp"] = json!("2020-01-01T00:00:00Z");
        }
        serde_json::from_value(claim).unwrap()
    };
    let leaving = claim("leaving", "Ready", true);
    let answer = Answer::Json(serde_json::to_value(&leaving).unwrap());
    let (server, client) = Scripted::start(vec![answer]).await;
    let dir = tempfile::tempdir().unwrap();
    let pass = pass(dir.path(), client, Renewal::of(None)).await;
    for claim in [leaving, claim("in-use", "Ready", false), claim("done", "NodeDetached", true)] {
        pass.agent.caches.claims.apply(claim);
    }
    let error = HostError::OthersHang("/k/staging/a".into());
    pass.report_unseen(&error).await;
    let asked = server.asked();
    assert_eq!(asked.len(), 1, "who is mounted and stays is not touched: {asked:?}");
    assert!(asked[0].uri.contains("/leaving/status"), "{asked:?}");
    let said = asked[0].body.to_string();
    for word in ["NodePathFailed", "/k/staging/a", "node-1", "restart moor's agent"] {
        assert!(said.contains(word), "{word}: {said}");
    }
}

/// The exception of rule R2: only a bind mount goes, whoever has the volume by now.
#[tokio::test]
async fn kubelets_word_is_good_for_one_call() {
    let dir = tempfile::tempdir().unwrap();
    let (_server, client) = Scripted::start(Vec::new()).await;
    let pass = pass(dir.path(), client, Renewal::of(None)).await;
    let mut record = Record { stage: true, driver_name: "driver".into(), ..Record::default() };
    let claim = ClaimUid::from("c");
    let (waits, released) = (Seen::default(), Seen { released: vec![claim.clone()], ..Seen::default() });
    let may = |record: &Record, seen: &Seen| pass.due_unpublish(&claim, record, seen).may_call().is_ok();
    assert!(!may(&record, &waits), "the API server's word is old");
    assert!(may(&record, &released));
    record.stage = false;
    assert!(!may(&record, &released), "without staging it is the volume itself");
    let due = pass.due(Rpc::NodeUnstageVolume, "driver");
    assert!(Due { word: Word::Kubelet, ..due }.may_call().is_err());
    record.stage = true;
    pass.agent.stopping.store(true, Ordering::Relaxed);
    assert!(!may(&record, &released), "the process is ending");
}
