//! What becomes of storage that nobody claims any more.

use std::fs;
use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use moor::csi::Rpc;
use serde_json::json;
use tonic::Code;

use super::objects::class;
use crate::rig::{Binder, CONTROLLER, Cluster, Fault, Options, Rig, Wish};

pub(super) async fn start(cluster: &Arc<Cluster>) -> (Arc<Rig>, Binder) {
    (Rig::start(cluster, Options::default()).await, Binder::start(&cluster.admin))
}

impl Rig {
    /// Has a volume made for a claim of this name, and returns the name of its PersistentVolume.
    pub(super) async fn provisioned(&self, name: &str, policy: &str) -> String {
        self.make_class(&class(name, &json!({ "parameters": { "key": name }, "reclaimPolicy": policy })))
            .await;
        self.make_pvc(name, name, json!({})).await;
        self.until_bound(name).await.metadata.name.unwrap()
    }

    pub(super) async fn delete_pv(&self, name: &str) {
        self.pv_api().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Removes a PersistentVolume with its finalizers, and returns what it was.
    async fn remove_pv_by_force(&self, name: &str) -> PersistentVolume {
        let before = self.pv_api().get(name).await.unwrap();
        self.delete_pv(name).await;
        let freed = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        self.pv_api().patch(name, &PatchParams::default(), &freed).await.unwrap();
        before
    }

    /// As somebody does who has kept its YAML.
    async fn put_pv_back(&self, before: PersistentVolume) {
        let mut again = PersistentVolume { status: None, ..before };
        again.metadata.uid = None;
        again.metadata.resource_version = None;
        again.metadata.managed_fields = None;
        self.pv_api().create(&PostParams::default(), &again).await.unwrap();
    }

    /// Waits until the Volume says this of its PersistentVolume.
    pub(super) async fn until_said(&self, volume: &str, status: &str, reason: &str) {
        self.until(&format!("Volume {volume} says {reason}"), || async {
            let found = self.provisioned_api().get(volume).await.unwrap();
            let conditions = found.status?.conditions;
            let found = conditions.into_iter().find(|c| c.type_ == "PersistentVolume")?;
            (found.status == status && found.reason == reason).then_some(())
        })
        .await;
    }
}

pub async fn the_policy_at_the_end_counts(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    // Retain to the end: the storage outlives everything.
    let kept = rig.provisioned("kept", "Retain").await;
    rig.delete_pvc("kept").await;
    rig.until_phase(&kept, "Released").await;
    rig.delete_pv(&kept).await;
    rig.until_nothing_provisioned().await;
    assert!(rig.has_storage("kept"));
    // Delete, and somebody thinks better of it while it is in use.
    let spared = rig.provisioned("spared", "Delete").await;
    rig.set_reclaim_policy(&spared, "Retain").await;
    rig.delete_pvc("spared").await;
    rig.until_phase(&spared, "Released").await;
    // And worse of it when nobody uses it.
    let gone = rig.provisioned("gone", "Retain").await;
    rig.delete_pvc("gone").await;
    rig.until_phase(&gone, "Released").await;
    rig.set_reclaim_policy(&gone, "Delete").await;
    rig.until_volume_of_claim_gone(gone.trim_start_matches("pvc-")).await;
    assert!(!rig.has_storage("gone") && rig.has_storage("spared"));
    assert_eq!(rig.count("kept", Rpc::DeleteVolume) + rig.count("spared", Rpc::DeleteVolume), 0);
    rig.set_reclaim_policy(&spared, "Delete").await;
    rig.until_nothing_provisioned().await;
    assert!(!rig.has_storage("spared"));
    rig.assert_nothing_left().await;
    rig.leaves(&["vol-kept"], "Retain");
}

/// The policy is read when the storage is about to go.
pub async fn a_policy_that_is_changed_after_the_claim_is_gone_counts(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let binder = Binder::start(&cluster.admin);
    let spared = rig.provisioned("spared", "Delete").await;
    drop(binder);
    rig.delete_pvc("spared").await;
    rig.set_reclaim_policy(&spared, "Retain").await;
    let _binder = Binder::start(&cluster.admin);
    rig.until_phase(&spared, "Released").await;
    // Whoever comes after it has been looked at later.
    let gone = rig.provisioned("gone", "Delete").await;
    rig.delete_pvc("gone").await;
    rig.until_volume_of_claim_gone(gone.trim_start_matches("pvc-")).await;
    assert!(rig.has_storage("spared") && rig.count("spared", Rpc::DeleteVolume) == 0);
    rig.set_reclaim_policy(&spared, "Delete").await;
    rig.until_nothing_provisioned().await;
    assert!(!rig.has_storage("spared"));
    rig.assert_nothing_left().await;
}

pub async fn the_last_of_two_decides(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    let first = rig.provisioned("v", "Delete").await;
    let live = rig.pv_api().get(&first).await.unwrap();
    let mut twin = PersistentVolume { metadata: live.metadata, spec: live.spec, status: None };
    twin.metadata.name = Some("twin".into());
    twin.metadata.uid = None;
    twin.metadata.resource_version = None;
    twin.metadata.managed_fields = None;
    twin.spec.as_mut().unwrap().claim_ref = None;
    rig.pv_api().create(&PostParams::default(), &twin).await.unwrap();
    rig.delete_pvc("v").await;
    rig.until("the first one is gone", || async {
        rig.pv_api().get_opt(&first).await.unwrap().is_none().then_some(())
    })
    .await;
    assert!(rig.has_storage("v"), "the other one has it");
    rig.until_phase("twin", "Available").await;
    rig.delete_pv("twin").await;
    rig.until_nothing_provisioned().await;
    assert!(!rig.has_storage("v"));
    assert_eq!(rig.count("v", Rpc::DeleteVolume), 1);
    rig.assert_nothing_left().await;
}

pub async fn one_that_is_removed_by_force_leaves_its_storage(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let binder = Binder::start(&cluster.admin);
    let name = rig.provisioned("v", "Delete").await;
    rig.until_said(&name, "True", "PersistentVolumeMade").await;
    drop(binder);
    let before = rig.remove_pv_by_force(&name).await;
    rig.until_said(&name, "False", "PersistentVolumeGone").await;
    // Also by a leader that has not seen it.
    rig.restart(CONTROLLER);
    rig.delete_pvc("v").await;
    assert!(rig.has_storage("v"));
    // Put back, it is what it was.
    rig.put_pv_back(before).await;
    rig.until_said(&name, "True", "PersistentVolumeMade").await;
    let _binder = Binder::start(&cluster.admin);
    rig.until_nothing_provisioned().await;
    assert!(!rig.has_storage("v"));
    rig.assert_nothing_left().await;
}

/// Nothing is taken from the Pod, not even when its kubelet begins anew and asks once more. No other Pod gets the volume.
pub async fn one_that_is_removed_by_force_stays_with_its_pod(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let binder = Binder::start(&cluster.admin);
    let name = rig.provisioned("v", "Delete").await;
    let wish = Wish { persistent_volume: Some(name.clone()), ..Wish::default() };
    let kubelet = rig.kubelet("node-1").await.wishing(wish);
    let target = kubelet.mount("web", "v").await;
    fs::write(target.join("word"), "kept").unwrap();
    drop(binder);
    let before = rig.remove_pv_by_force(&name).await;
    rig.until_said(&name, "False", "PersistentVolumeGone").await;
    kubelet.mount("web", "v").await;
    assert_eq!(rig.count("v", Rpc::NodePublishVolume), 1);
    let refused = kubelet.publish("other", "v").await.unwrap_err();
    assert!(refused.message().contains(&name), "{refused}");
    assert_eq!(fs::read_to_string(target.join("word")).unwrap(), "kept");
    kubelet.unmount("web", "v").await;
    kubelet.forget("other");
    kubelet.give_up("v").await;
    rig.until_no_pod_claims().await;
    assert!(rig.has_storage("v"), "nobody has ordered its end");
    rig.put_pv_back(before).await;
    let _binder = Binder::start(&cluster.admin);
    rig.delete_pvc("v").await;
    rig.until_nothing_provisioned().await;
    assert!(!rig.has_storage("v"));
    rig.assert_nothing_left().await;
}

/// The leader orders it of a Volume that is gone, with its lock, before any watch has told of that: nobody carries it out.
pub async fn an_order_to_nobody_has_deleted_nothing(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    let name = rig.provisioned("v", "Delete").await;
    rig.until_said(&name, "True", "PersistentVolumeMade").await;
    let handle = rig.provisioned_api().get(&name).await.unwrap().status.unwrap().handle_name.unwrap();
    let behind = ["volumes", "volumehandles"];
    for kind in behind {
        rig.stall(CONTROLLER, kind);
    }
    // As an earlier leader leaves it that has deleted the Volume, and not its storage.
    let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    rig.provisioned_api().delete(&name, &DeleteParams::default()).await.unwrap();
    rig.provisioned_api().patch(&name, &PatchParams::default(), &free).await.unwrap();
    rig.handle_api().delete(&handle, &DeleteParams::default()).await.unwrap();
    rig.handle_api().patch(&handle, &PatchParams::default(), &free).await.unwrap();
    let since = rig.journal.now();
    rig.delete_pvc("v").await;
    rig.until_not_found(CONTROLLER, ("volumes", &name), since).await;
    for kind in behind {
        rig.unstall(CONTROLLER, kind);
    }
    rig.until_nothing_provisioned().await;
    assert!(!rig.has_storage("v"));
    assert_eq!(rig.count("v", Rpc::DeleteVolume), 1);
    rig.assert_nothing_left().await;
}

pub async fn a_deletion_that_fails_is_told(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    let name = rig.provisioned("v", "Delete").await;
    rig.fake.fail("v", Rpc::DeleteVolume, Fault::CodeBefore(Code::FailedPrecondition));
    rig.delete_pvc("v").await;
    rig.until_event(&name, "VolumeFailedDelete", "strike").await;
    assert!(rig.pv_api().get_opt(&name).await.unwrap().is_some(), "it stays as long as its storage");
    rig.fake.heal("v", Rpc::DeleteVolume);
    rig.until_nothing_provisioned().await;
    rig.assert_nothing_left().await;
}
