//! VolumeSnapshots, their classes and contents, and what is said of them.

use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use moor::api::Snapshot;
use moor::csi::Rpc;
use moor::csi::proto::csi::v1::CreateSnapshotRequest;
use prost::Message as _;
use serde_json::{Value, json};

use crate::rig::fake::DRIVER;
use crate::rig::snapshot_kinds::{classes, contents, object, snapshots};
use crate::rig::{NAMESPACE, Rig, SPACE, at};

impl Rig {
    /// The Snapshots that moor makes for contents.
    pub fn kept_api(&self) -> Api<Snapshot> {
        Api::namespaced(self.cluster.admin.clone(), NAMESPACE)
    }

    fn snapshots(&self) -> Api<DynamicObject> {
        snapshots(&self.cluster.admin, SPACE)
    }

    /// Makes a VolumeSnapshotClass, whose snapshots the fake driver knows as `key`.
    pub async fn make_snapshot_class(&self, name: &str, key: &str, policy: &str, more: Value) {
        let mut parameters = json!({ "key": key });
        parameters.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let class = json!({ "driver": DRIVER, "deletionPolicy": policy, "parameters": parameters });
        let class = object("volumesnapshotclasses", name, class);
        classes(&self.cluster.admin).create(&PostParams::default(), &class).await.unwrap();
    }

    pub async fn delete_snapshot_class(&self, name: &str) {
        classes(&self.cluster.admin).delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Makes a VolumeSnapshot of a claim, and returns its UID.
    pub async fn make_vs(&self, name: &str, class: &str, claim: &str) -> String {
        let source = json!({ "persistentVolumeClaimName": claim });
        self.make_vs_of(name, Some(class), source).await
    }

    /// Makes a VolumeSnapshot, and returns its UID.
    pub async fn make_vs_of(&self, name: &str, class: Option<&str>, source: Value) -> String {
        let spec = json!({ "spec": { "source": source, "volumeSnapshotClassName": class } });
        let made = object("volumesnapshots", name, spec);
        self.snapshots().create(&PostParams::default(), &made).await.unwrap().uid().unwrap()
    }

    pub async fn delete_vs(&self, name: &str) {
        self.snapshots().delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub async fn vs(&self, name: &str) -> Option<DynamicObject> {
        self.snapshots().get_opt(name).await.unwrap()
    }

    /// Makes a content by hand.
    pub async fn make_content(&self, name: &str, more: Value) -> String {
        let mut spec = json!({ "driver": DRIVER, "deletionPolicy": "Delete" });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let content = object("volumesnapshotcontents", name, json!({ "spec": spec }));
        contents(&self.cluster.admin).create(&PostParams::default(), &content).await.unwrap().uid().unwrap()
    }

    pub async fn content(&self, name: &str) -> Option<DynamicObject> {
        contents(&self.cluster.admin).get_opt(name).await.unwrap()
    }

    pub async fn delete_content(&self, name: &str) {
        contents(&self.cluster.admin).delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub async fn patch_content(&self, name: &str, patch: Value) {
        let patch = Patch::Merge(patch);
        contents(&self.cluster.admin).patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Writes what csi-snapshotter would say of a content.
    pub async fn say_of_content(&self, name: &str, status: Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        contents(&self.cluster.admin).patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits until volumes can be made of a VolumeSnapshot, and returns its content.
    pub async fn until_vs_ready(&self, name: &str) -> DynamicObject {
        self.until(&format!("VolumeSnapshot {name} is ready"), || async {
            let found = self.vs(name).await?;
            let is_ready = at(&found, "/status/readyToUse") == true;
            let content = at(&found, "/status/boundVolumeSnapshotContentName").as_str().map(str::to_owned);
            self.content(&content.filter(|_| is_ready)?).await
        })
        .await
    }

    /// Waits until a VolumeSnapshot says that this goes wrong.
    pub async fn until_vs_told(&self, name: &str, words: &str) {
        self.until(&format!("VolumeSnapshot {name} says {words:?}"), || async {
            let found = self.vs(name).await?;
            at(&found, "/status/error/message").as_str().filter(|said| said.contains(words)).map(drop)
        })
        .await;
    }

    pub async fn until_vs_gone(&self, name: &str) {
        self.until(&format!("VolumeSnapshot {name} is gone"), || async {
            self.vs(name).await.is_none().then_some(())
        })
        .await;
    }

    /// Waits until the snapshot-controller keeps a content from going, which it does some time after it has made it.
    pub async fn until_content_held(&self, name: &str) {
        self.until(&format!("VolumeSnapshotContent {name} has its finalizer"), || async {
            self.content(name).await.filter(|content| !content.finalizers().is_empty()).map(drop)
        })
        .await;
    }

    pub async fn until_content_gone(&self, name: &str) {
        self.until(&format!("VolumeSnapshotContent {name} is gone"), || async {
            self.content(name).await.is_none().then_some(())
        })
        .await;
    }

    /// Waits until moor has no Snapshot for a content any more.
    pub async fn until_nothing_kept(&self) {
        self.until("no Snapshot is left", || async {
            let all = super::super::provision::objects::list(&self.kept_api()).await;
            all.is_empty().then_some(())
        })
        .await;
    }

    /// What the driver was asked for to take snapshots of this volume.
    pub fn asked_to_take(&self, key: &str) -> Vec<CreateSnapshotRequest> {
        let calls = self.journal.calls_of(key).into_iter().filter_map(|entry| entry.call().cloned());
        let calls = calls.filter(|call| call.rpc == Rpc::CreateSnapshot);
        calls.map(|call| CreateSnapshotRequest::decode(call.arguments.as_slice()).unwrap()).collect()
    }
}

/// A claim's source: a VolumeSnapshot.
pub fn of(snapshot: &str) -> Value {
    json!({ "dataSource": { "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": snapshot } })
}
