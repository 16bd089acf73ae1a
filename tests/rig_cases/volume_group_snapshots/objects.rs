//! VolumeGroupSnapshots, their classes and contents, and what is said of them and of their members.

use std::collections::BTreeMap;

use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use moor::csi::Rpc;
use moor::csi::proto::csi::v1::{CreateVolumeGroupSnapshotRequest, DeleteVolumeGroupSnapshotRequest};
use prost::Message;
use serde_json::{Value, json};

use crate::rig::fake::DRIVER;
use crate::rig::snapshot_kinds::{self as kinds, contents, group_classes, group_contents, object};
use crate::rig::{Rig, SPACE, at};

impl Rig {
    fn group_api(&self) -> Api<DynamicObject> {
        kinds::groups(&self.cluster.admin, SPACE)
    }

    /// Makes a VolumeGroupSnapshotClass, whose groups the fake driver knows as `key`.
    pub async fn make_group_class(&self, name: &str, key: &str, policy: &str) {
        let parameters = json!({ "key": key });
        let class = json!({ "driver": DRIVER, "deletionPolicy": policy, "parameters": parameters });
        let class = object("volumegroupsnapshotclasses", name, class);
        group_classes(&self.cluster.admin).create(&PostParams::default(), &class).await.unwrap();
    }

    pub async fn delete_group_class(&self, name: &str) {
        group_classes(&self.cluster.admin).delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Says of claims that they belong together.
    pub async fn label(&self, claims: &[&str], group: &str) {
        for claim in claims {
            let patch = Patch::Merge(json!({ "metadata": { "labels": { "group": group } } }));
            self.pvc_api().patch(claim, &PatchParams::default(), &patch).await.unwrap();
        }
    }

    /// Makes claims that belong together, whose volumes the driver knows by these keys.
    pub async fn make_claims_of(&self, keys: &[&str], group: &str) {
        for key in keys {
            self.make_claim_of(key).await;
        }
        self.label(keys, group).await;
    }

    /// Makes a VolumeGroupSnapshot of the claims that belong together, and returns its UID.
    pub async fn make_vgs(&self, name: &str, class: &str, group: &str) -> String {
        let source = json!({ "selector": { "matchLabels": { "group": group } } });
        self.make_vgs_of(name, Some(class), source).await
    }

    /// Makes a VolumeGroupSnapshot, and returns its UID.
    pub async fn make_vgs_of(&self, name: &str, class: Option<&str>, source: Value) -> String {
        let spec = json!({ "spec": { "source": source, "volumeGroupSnapshotClassName": class } });
        let made = object("volumegroupsnapshots", name, spec);
        self.group_api().create(&PostParams::default(), &made).await.unwrap().uid().unwrap()
    }

    pub async fn delete_vgs(&self, name: &str) {
        self.group_api().delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub async fn vgs(&self, name: &str) -> Option<DynamicObject> {
        self.group_api().get_opt(name).await.unwrap()
    }

    /// Makes a content by hand.
    pub async fn make_group_content(&self, name: &str, more: Value) -> String {
        let mut spec = json!({ "driver": DRIVER, "deletionPolicy": "Delete" });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let content = object("volumegroupsnapshotcontents", name, json!({ "spec": spec }));
        let api = group_contents(&self.cluster.admin);
        api.create(&PostParams::default(), &content).await.unwrap().uid().unwrap()
    }

    pub async fn group_content(&self, name: &str) -> Option<DynamicObject> {
        group_contents(&self.cluster.admin).get_opt(name).await.unwrap()
    }

    pub async fn delete_group_content(&self, name: &str) {
        group_contents(&self.cluster.admin).delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub async fn patch_group_content(&self, name: &str, patch: Value) {
        let patch = Patch::Merge(patch);
        group_contents(&self.cluster.admin).patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits until volumes can be made of what a VolumeGroupSnapshot has brought, and returns its content.
    pub async fn until_vgs_ready(&self, name: &str) -> DynamicObject {
        self.until(&format!("VolumeGroupSnapshot {name} is ready"), || async {
            let found = self.vgs(name).await?;
            let is_ready = at(&found, "/status/readyToUse") == true;
            let content = at(&found, "/status/boundVolumeGroupSnapshotContentName").as_str();
            self.group_content(content.filter(|_| is_ready)?).await
        })
        .await
    }

    /// Waits until a VolumeGroupSnapshot says that this goes wrong, and would not go without its content.
    pub async fn until_vgs_told(&self, name: &str, words: &str) {
        self.until(&format!("VolumeGroupSnapshot {name} says {words:?}"), || async {
            let found = self.vgs(name).await.filter(|found| !found.finalizers().is_empty())?;
            at(&found, "/status/error/message").as_str().filter(|said| said.contains(words)).map(drop)
        })
        .await;
    }

    pub async fn until_vgs_gone(&self, name: &str) {
        self.until(&format!("VolumeGroupSnapshot {name} is gone"), || async {
            self.vgs(name).await.is_none().then_some(())
        })
        .await;
    }

    pub async fn until_group_content_gone(&self, name: &str) {
        self.until(&format!("VolumeGroupSnapshotContent {name} is gone"), || async {
            self.group_content(name).await.is_none().then_some(())
        })
        .await;
    }

    /// The VolumeSnapshots that a VolumeGroupSnapshot has brought, by their claims.
    async fn members(&self, name: &str) -> BTreeMap<String, DynamicObject> {
        let all = kinds::snapshots(&self.cluster.admin, SPACE).list(&ListParams::default()).await.unwrap();
        let is_of = |snapshot: &DynamicObject| snapshot.owner_references().iter().any(|of| of.name == name);
        let claim =
            |of: &DynamicObject| at(of, "/spec/source/persistentVolumeClaimName").as_str().map(str::to_owned);
        all.items.into_iter().filter(is_of).filter_map(|of| Some((claim(&of)?, of))).collect()
    }

    /// Waits until volumes can be made of the VolumeSnapshots of these claims that a VolumeGroupSnapshot has brought, and returns
    /// their names by the claims.
    pub async fn until_members<const N: usize>(&self, name: &str, claims: [&str; N]) -> [String; N] {
        self.until(&format!("{name} has ready members of {claims:?}"), || async {
            let members = self.members(name).await;
            // One that does not say of which group it is would not be kept until that goes.
            let is_ready = |of: &&DynamicObject| {
                at(of, "/status/readyToUse") == true && at(of, "/status/volumeGroupSnapshotName") == name
            };
            let named: Vec<String> = claims
                .iter()
                .filter_map(|claim| Some(members.get(*claim).filter(is_ready)?.name_any()))
                .collect();
            named.try_into().ok().filter(|_| members.len() == N)
        })
        .await
    }

    /// Waits until the VolumeSnapshots that came with a VolumeGroupSnapshot are gone.
    pub async fn until_members_gone(&self, name: &str) {
        self.until(&format!("{name} has no members"), || async {
            self.members(name).await.is_empty().then_some(())
        })
        .await;
    }

    /// The names of all VolumeSnapshotContents.
    pub async fn content_names(&self) -> Vec<String> {
        let all = contents(&self.cluster.admin).list(&ListParams::default()).await.unwrap();
        all.items.iter().map(kube::ResourceExt::name_any).collect()
    }

    /// Waits until nothing is left of a VolumeGroupSnapshot and of all contents: no member, and no Snapshot of moor.
    pub async fn until_all_gone(&self, name: &str) {
        self.until_vgs_gone(name).await;
        self.until_members_gone(name).await;
        self.until_nothing_kept().await;
        self.until("no VolumeSnapshotContent is left", || async {
            self.content_names().await.is_empty().then_some(())
        })
        .await;
    }

    /// With what the driver was asked to take a group.
    pub fn asked_to_take_group(&self, key: &str) -> Vec<CreateVolumeGroupSnapshotRequest> {
        self.asked_of_group(key, Rpc::CreateVolumeGroupSnapshot)
    }

    /// The members, in the order of their ids, with which the driver was asked to delete a group, for each time.
    pub fn asked_to_delete_group(&self, key: &str) -> Vec<Vec<String>> {
        let asked: Vec<DeleteVolumeGroupSnapshotRequest> =
            self.asked_of_group(key, Rpc::DeleteVolumeGroupSnapshot);
        let sorted = asked.into_iter().map(|request| {
            let mut ids = request.snapshot_ids;
            ids.sort();
            ids
        });
        sorted.collect()
    }

    fn asked_of_group<M: Message + Default>(&self, key: &str, rpc: Rpc) -> Vec<M> {
        let calls = self.journal.calls_of(key).into_iter().filter_map(|entry| entry.call().cloned());
        let calls = calls.filter(|call| call.rpc == rpc);
        calls.map(|call| M::decode(call.arguments.as_slice()).unwrap()).collect()
    }
}
