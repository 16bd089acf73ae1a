//! Snapshots, and Volumes with a source, and what is said of them.

use kube::Api;
use kube::api::{DeleteParams, PostParams};
use moor::api::conditions::{READY, find};
use moor::api::{Snapshot, SnapshotState, Volume};
use moor::csi::Rpc;
use moor::csi::proto::csi::v1::CreateVolumeRequest;
use moor::csi::proto::csi::v1::volume_content_source::Type;
use prost::Message as _;
use serde_json::{Value, json};

use crate::rig::fake::DRIVER;
use crate::rig::{LOOK, PATIENCE, Rig, SPACE};

/// A Snapshot to be taken of a Volume, which the fake driver knows as `key`.
pub fn snapshot(key: &str, volume: &str) -> Snapshot {
    of(key, &json!({ "volumeName": volume, "parameters": { "key": key } }))
}

/// A Snapshot that names a handle which exists.
pub fn registered(name: &str, handle: &str, more: Value) -> Snapshot {
    let mut spec = json!({ "pluginName": DRIVER, "snapshotHandle": handle });
    let Value::Object(more) = more else { panic!("{more}") };
    spec.as_object_mut().unwrap().extend(more);
    of(name, &spec)
}

fn of(name: &str, spec: &Value) -> Snapshot {
    serde_json::from_value(json!({ "metadata": { "name": name, "namespace": SPACE }, "spec": spec })).unwrap()
}

/// A Volume that is made of something.
pub fn restored(key: &str, source: &Value) -> Volume {
    let spec =
        json!({ "pluginName": DRIVER, "capacity": "1Mi", "parameters": { "key": key }, "source": source });
    serde_json::from_value(json!({ "metadata": { "name": key, "namespace": SPACE }, "spec": spec })).unwrap()
}

/// Of what the driver was told to make this volume, once for each of them.
pub fn sources(rig: &Rig, key: &str) -> Vec<String> {
    let calls = rig.journal.calls_of(key).into_iter().filter_map(|entry| entry.call().cloned());
    let creates = calls.filter(|call| call.rpc == Rpc::CreateVolume);
    let source = |request: CreateVolumeRequest| match request.volume_content_source?.r#type? {
        Type::Volume(volume) => Some(volume.volume_id),
        Type::Snapshot(snapshot) => Some(snapshot.snapshot_id),
    };
    let source = |arguments: &[u8]| source(CreateVolumeRequest::decode(arguments).unwrap());
    let mut all: Vec<_> = creates.map(|call| source(&call.arguments).unwrap_or_default()).collect();
    all.dedup();
    all
}

/// Waits until the driver was asked so often for a snapshot of this volume.
pub async fn asked_for(rig: &Rig, volume: &str, times: usize) {
    rig.until_so(&format!("a snapshot of {volume} is asked for"), volume, || async {
        rig.count(volume, Rpc::CreateSnapshot) >= times
    })
    .await;
}

impl Rig {
    pub fn snapshot_api(&self) -> Api<Snapshot> {
        Api::namespaced(self.cluster.admin.clone(), SPACE)
    }

    pub async fn make_snapshot(&self, snapshot: &Snapshot) {
        self.snapshot_api().create(&PostParams::default(), snapshot).await.unwrap();
    }

    pub async fn delete_snapshot(&self, name: &str) {
        match self.snapshot_api().delete(name, &DeleteParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => panic!("{error}"),
        }
    }

    pub async fn read_snapshot(&self, name: &str) -> Snapshot {
        self.snapshot_api().get(name).await.unwrap()
    }

    /// Waits until this is so. Looks again and again: no watch follows Snapshots here.
    pub async fn until_so<F: Future<Output = bool>>(&self, what: &str, name: &str, is: impl Fn() -> F) {
        let looks = async {
            while !is().await {
                tokio::time::sleep(LOOK).await;
            }
        };
        if tokio::time::timeout(PATIENCE, looks).await.is_err() {
            let snapshots = self.snapshot_api().list(&kube::api::ListParams::default()).await.unwrap().items;
            panic!("never happened: {what}; instead:\n{snapshots:#?}\n{}", self.story(name));
        }
    }

    pub async fn until_snapshot(&self, name: &str, state: SnapshotState) {
        let is = || async {
            self.snapshot_api().get_opt(name).await.unwrap().is_some_and(|found| found.state() == state)
        };
        self.until_so(&format!("Snapshot {name} is {state:?}"), name, is).await;
    }

    pub async fn until_snapshot_gone(&self, name: &str) {
        let is = || async { self.snapshot_api().get_opt(name).await.unwrap().is_none() };
        self.until_so(&format!("Snapshot {name} is gone"), name, is).await;
    }

    /// Waits until a Snapshot is not Ready for this reason, in words that have these.
    pub async fn until_snapshot_told(&self, name: &str, reason: &str, words: &str) {
        let is = || async {
            let Some(found) = self.snapshot_api().get_opt(name).await.unwrap() else { return false };
            let conditions = found.status.map(|status| status.conditions).unwrap_or_default();
            find(&conditions, READY).is_some_and(|c| c.reason == reason && c.message.contains(words))
        };
        self.until_so(&format!("Snapshot {name} says {reason}: {words}"), name, is).await;
    }

    /// Waits until a Volume is not Ready for this reason, in words that have these.
    pub async fn until_volume_told(&self, name: &str, reason: &str, words: &str) {
        let look = || {
            let conditions = self.cluster.volume(name)?.status.as_ref()?.conditions.clone();
            let found = find(&conditions, READY)?;
            (found.reason == reason && found.message.contains(words)).then_some(())
        };
        let what = format!("Volume {name} says {reason}: {words}");
        self.cluster.until(&what, look, || self.story(name)).await;
    }

    pub async fn until_assigned_snapshot(&self, name: &str) {
        let is = || async { self.read_snapshot(name).await.spec.assignment.is_some() };
        self.until_so(&format!("Snapshot {name} is assigned"), name, is).await;
    }

    pub async fn until_assigned_volume(&self, name: &str) {
        let is = || async { self.volume_api().get(name).await.unwrap().spec.assignment.is_some() };
        self.until_so(&format!("Volume {name} is assigned"), name, is).await;
    }

    pub async fn until_called_about(&self, key: &str, rpc: Rpc) {
        self.until_so(&format!("{rpc} of {key}"), key, || async { self.count(key, rpc) > 0 }).await;
    }
}
