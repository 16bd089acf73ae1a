//! What becomes of storage that nobody claims any more.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use moor::csi::Rpc;
use serde_json::json;
use tonic::Code;

use super::objects::class;
use crate::rig::{Binder, Cluster, Fault, Options, Rig};

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
    let before = rig.pv_api().get(&name).await.unwrap();
    drop(binder);
    rig.delete_pv(&name).await;
    let freed = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    rig.pv_api().patch(&name, &PatchParams::default(), &freed).await.unwrap();
    rig.until_said(&name, "False", "PersistentVolumeGone").await;
    // Also by a leader that has not seen it.
    rig.restart(crate::rig::CONTROLLER);
    rig.delete_pvc("v").await;
    assert!(rig.has_storage("v"));
    // Put back, it is what it was.
    let mut again = PersistentVolume { metadata: before.metadata, spec: before.spec, status: None };
    again.metadata.uid = None;
    again.metadata.resource_version = None;
    again.metadata.managed_fields = None;
    rig.pv_api().create(&PostParams::default(), &again).await.unwrap();
    rig.until_said(&name, "True", "PersistentVolumeMade").await;
    let _binder = Binder::start(&cluster.admin);
    rig.until_nothing_provisioned().await;
    assert!(!rig.has_storage("v"));
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
