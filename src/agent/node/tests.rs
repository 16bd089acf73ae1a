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
use crate::agent::records::store::Records;
use crate::agent::restore::settling::Settling;
use crate::api::conditions::Reason;
use crate::api::{ClaimUid, VolumeClaim};
use crate::attachment::node_side::Seen;
use crate::attachment::record::Record;
use crate::csi::{Deadlines, Rpc};
use crate::heartbeat::lease::DURATION;
use crate::heartbeat::{History, Renewal};
use crate::k8s::Writer;
use crate::k8s::events::{Recorder, Role};
use crate::k8s::lease::ApiLeases;
use crate::k8s::scripted_tests::{Answer, Scripted};
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
