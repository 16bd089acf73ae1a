//! A Secret that is changed again and again while volumes come and go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use moor::csi::Rpc;
use serde_json::json;

use super::{Data, taken};
use crate::rig::{Cluster, Entry, Journal, LOOK, Options, Rig, SPACE, is_whole, volume, volume_claim};

const NAME: &str = "rotated";
const NODES: [&str; 2] = ["node-1", "node-2"];
/// Volumes at a time.
const LINES: usize = 6;

/// The last version of the Secret that the API server has taken.
#[derive(Default)]
struct Written(AtomicU64);

impl Written {
    fn last(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

fn secret(version: u64) -> Secret {
    let both = json!({ "user": format!("v{version}"), "password": format!("v{version}") });
    serde_json::from_value(json!({ "metadata": { "name": NAME }, "stringData": both })).unwrap()
}

/// Writes one version after another, until it is told to stop.
async fn rotate(secrets: Api<Secret>, written: Arc<Written>, stop: Arc<AtomicBool>) {
    let mut version = 0;
    while !stop.load(Ordering::Relaxed) {
        version += 1;
        secrets.replace(NAME, &PostParams::default(), &secret(version)).await.unwrap();
        written.0.store(version, Ordering::SeqCst);
        tokio::time::sleep(LOOK).await;
    }
}

/// What was there at the least when somebody asked for what led to a call.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    created: u64,
    claimed: u64,
    left: u64,
    deleted: u64,
}

impl Asked {
    fn least(&self, rpc: Rpc) -> u64 {
        match rpc {
            Rpc::CreateVolume => self.created,
            Rpc::ControllerUnpublishVolume => self.left,
            Rpc::DeleteVolume => self.deleted,
            _ => self.claimed,
        }
    }
}

/// The life of a volume.
async fn live(rig: &Rig, key: &str, node: &str, written: &Written) -> Asked {
    let mut asked = Asked { created: written.last(), ..Asked::default() };
    let mut made = volume(key);
    made.spec.secrets = serde_json::from_value(json!({ "default": NAME })).unwrap();
    rig.make_volume(&made).await;
    rig.until_volume_ready(key).await;
    asked.claimed = written.last();
    rig.make_claim(&volume_claim(key, key, node)).await;
    rig.until_ready(key).await;
    asked.left = written.last();
    rig.delete_claim(key).await;
    rig.until_claim_gone(key).await;
    asked.deleted = written.last();
    rig.delete_volume(key).await;
    rig.until_volume_gone(key).await;
    asked
}

fn version(secrets: &Data) -> u64 {
    assert_eq!(secrets["user"], secrets["password"], "half of it is of another version");
    secrets["user"].strip_prefix('v').unwrap().parse().unwrap()
}

/// Never one part of an older version and one of a newer, never a version that was replaced before the call was asked for, and
/// about one volume never an older one after a newer. Nothing fails meanwhile.
pub async fn every_call_takes_what_is_there_when_it_begins(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let secrets: Api<Secret> = Api::namespaced(cluster.admin.clone(), SPACE);
    secrets.create(&PostParams::default(), &secret(0)).await.unwrap();
    let (written, stop) = (Arc::new(Written::default()), Arc::new(AtomicBool::new(false)));
    let rotating = tokio::spawn(rotate(secrets.clone(), written.clone(), stop.clone()));

    let lives = if is_whole() { 20 } else { 4 };
    let running = (0..LINES).map(|line| {
        let (rig, written) = (rig.clone(), written.clone());
        tokio::spawn(async move {
            let mut all = Vec::new();
            for life in 0..lives {
                let (key, node) = (format!("v{line}-{life}"), NODES[(line + life) % 2]);
                all.push((key.clone(), live(&rig, &key, node, &written).await));
            }
            all
        })
    });
    let mut all = Vec::new();
    for line in running.collect::<Vec<_>>() {
        all.extend(line.await.unwrap());
    }
    stop.store(true, Ordering::Relaxed);
    rotating.await.unwrap();

    let mut changed_between = 0;
    for (key, asked) in &all {
        let calls = rig.journal.calls_of(key);
        assert!(calls.iter().all(Entry::is_ok), "{}", Journal::text(&calls));
        let calls = calls.iter().filter_map(|entry| entry.call());
        let taken: Vec<_> = calls.filter_map(|call| Some((call.rpc, version(&taken(call)?)))).collect();
        assert_eq!(taken.len(), 6, "{key}: {taken:?}");
        for (rpc, version) in &taken {
            let range = asked.least(*rpc)..=written.last();
            assert!(range.contains(version), "{key}: {rpc} with v{version}, of {range:?}: {taken:?}");
        }
        assert!(taken.is_sorted_by_key(|(_, version)| version), "{key}: {taken:?}");
        changed_between += usize::from(taken.first().map(|(_, v)| v) != taken.last().map(|(_, v)| v));
    }
    assert!(changed_between > all.len() / 2, "the Secret did not change in between: this shows nothing");
    let failed = |entry: &Entry| {
        entry
            .write()
            .is_some_and(|write| write.body.pointer("/status/lastError").is_some_and(|e| !e.is_null()))
    };
    assert_eq!(Journal::text(&rig.journal.since(0, failed)), "");
    secrets.delete(NAME, &DeleteParams::default()).await.unwrap();
    rig.assert_nothing_left().await;
}
