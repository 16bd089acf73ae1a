//! What becomes of volumes whose PersistentVolumes moor has not made.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use moor::csi::Rpc;
use moor::csi::proto::csi::v1::DeleteVolumeRequest;
use moor::provision::FINALIZER;
use prost::Message as _;
use serde_json::{Value, json};

use super::objects::class;
use super::reclaim::start;
use crate::rig::fake::DRIVER;
use crate::rig::{Binder, CONTROLLER, Cluster, Options, Rig, SPACE, registered};

impl Rig {
    /// Makes storage with a PersistentVolume that somebody has written by hand, and a claim that is bound to it.
    pub async fn make_static(&self, name: &str, policy: &str) {
        let handle = self.fake.backend().add(name);
        self.cluster.bind(name, name, &json!({ "driver": DRIVER, "volumeHandle": handle })).await;
        self.set_reclaim_policy(name, policy).await;
    }

    pub(super) async fn until_held(&self, volume: &str) {
        self.until(&format!("PersistentVolume {volume} is held"), || async {
            let found = self.pv_api().get(volume).await.unwrap();
            found.metadata.finalizers?.contains(&FINALIZER.to_owned()).then_some(())
        })
        .await;
    }

    async fn until_pv_gone(&self, volume: &str) {
        self.until(&format!("PersistentVolume {volume} is gone"), || async {
            self.pv_api().get_opt(volume).await.unwrap().is_none().then_some(())
        })
        .await;
    }

    /// A PersistentVolume with somebody's handle, as one that nobody claims any more and whose storage is to go.
    async fn forge(&self, name: &str, handle: &str) {
        let nobody = json!({ "namespace": SPACE, "name": "nobody", "uid": "nobody" });
        let csi = json!({ "driver": DRIVER, "volumeHandle": handle });
        self.cluster.make_persistent_volume(name, &csi, &nobody).await;
        self.set_reclaim_policy(name, "Delete").await;
    }
}

/// Whether a Pod has used it or not, and with nobody's leave but that of who wrote the PersistentVolume.
pub async fn one_goes_as_its_policy_says(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    rig.patch_plugin(json!({ "allow": { "register": null, "deleteRegistered": null } })).await;
    for (name, policy) in [("kept", "Retain"), ("gone", "Delete")] {
        let pod = rig.make_pod_volume(name, "node-1").await;
        rig.set_reclaim_policy(name, policy).await;
        let claim = rig.ask(&pod, |_| {}).await;
        rig.until_granted(&claim).await;
        rig.kept_claims().delete(&claim, &DeleteParams::default()).await.unwrap();
        rig.until_kept_claim_gone(&claim).await;
        rig.remove_pod(name).await;
        assert!(rig.kept(&pod.handle).is_some(), "the Volume is the PersistentVolume's");
    }
    rig.until_held("gone").await;
    rig.make_static("unused", "Delete").await;
    rig.until_held("unused").await;
    // Somebody is in a hurry, and the finalizer keeps it.
    rig.delete_pv("unused").await;
    for name in ["gone", "unused", "kept"] {
        rig.delete_pvc(name).await;
    }
    rig.until_phase("kept", "Released").await;
    rig.delete_pv("kept").await;
    rig.until_nothing_provisioned().await;
    let count = |key| rig.count(key, Rpc::DeleteVolume);
    assert_eq!((count("kept"), count("gone"), count("unused")), (0, 1, 1));
    assert!(rig.has_storage("kept") && !rig.has_storage("gone") && !rig.has_storage("unused"));
    rig.assert_nothing_left().await;
}

/// As long as somebody uses the volume nothing is called, and the policy counts that is there in the end.
pub async fn whoever_thinks_better_of_it_in_time_keeps_the_storage(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    let pod = rig.make_pod_volume("v", "node-1").await;
    rig.set_reclaim_policy("v", "Delete").await;
    rig.until_held("v").await;
    let claim = rig.ask(&pod, |_| {}).await;
    rig.until_granted(&claim).await;
    // The Pod stays until the end: without it the claim would go, and nobody would use the volume.
    rig.delete_pvc("v").await;
    rig.until("the Volume is on its way", || async {
        rig.kept(&pod.handle)?.metadata.deletion_timestamp.as_ref().map(drop)
    })
    .await;
    rig.set_reclaim_policy("v", "Retain").await;
    rig.kept_claims().delete(&claim, &DeleteParams::default()).await.unwrap();
    rig.until_kept_claim_gone(&claim).await;
    rig.remove_pod("v").await;
    rig.until("the Volume is gone", || async { rig.kept(&pod.handle).is_none().then_some(()) }).await;
    assert!(rig.has_storage("v") && rig.count("v", Rpc::DeleteVolume) == 0);
    rig.set_reclaim_policy("v", "Delete").await;
    rig.until_nothing_provisioned().await;
    assert!(!rig.has_storage("v"));
    assert_eq!(rig.count("v", Rpc::DeleteVolume), 1);
    rig.assert_nothing_left().await;
}

/// As it has left them: with its annotations, its finalizer and its Secret, and with no Volume. The leader dies on the way.
pub async fn one_of_the_stock_provisioner_is_reclaimed(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    let secrets: Api<Secret> = Api::namespaced(cluster.admin.clone(), SPACE);
    let secret = json!({ "metadata": { "name": "delete" }, "stringData": { "word": "open-sesame" } });
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    let handle = rig.fake.backend().add("v");
    let attributes =
        json!({ "storage.kubernetes.io/csiProvisionerIdentity": format!("1700000000000-1-{DRIVER}") });
    let csi = json!({ "driver": DRIVER, "volumeHandle": handle, "volumeAttributes": attributes });
    cluster.bind("pvc-stock", "data", &csi).await;
    let annotations = json!({
        "pv.kubernetes.io/provisioned-by": DRIVER,
        "volume.kubernetes.io/provisioner-deletion-secret-name": "delete",
        "volume.kubernetes.io/provisioner-deletion-secret-namespace": SPACE,
    });
    let stock =
        Patch::Merge(json!({ "metadata": { "annotations": annotations, "finalizers": [FINALIZER] } }));
    rig.pv_api().patch("pvc-stock", &PatchParams::default(), &stock).await.unwrap();
    rig.set_reclaim_policy("pvc-stock", "Delete").await;
    rig.fake.hold("v", Rpc::DeleteVolume);
    rig.delete_pvc("data").await;
    rig.until_called("v", Rpc::DeleteVolume).await;
    rig.restart(CONTROLLER);
    rig.fake.let_go("v", Rpc::DeleteVolume);
    rig.until_nothing_provisioned().await;
    assert!(!rig.has_storage("v"));
    let given = BTreeMap::from([("word".to_owned(), "open-sesame".to_owned())]);
    let calls = rig.journal.calls_of("v");
    let calls = calls.iter().filter_map(|entry| entry.call()).filter(|call| call.rpc == Rpc::DeleteVolume);
    for call in calls {
        assert_eq!(DeleteVolumeRequest::decode(call.arguments.as_slice()).unwrap().secrets, given);
    }
    secrets.delete("delete", &DeleteParams::default()).await.unwrap();
    rig.assert_nothing_left().await;
}

pub async fn the_last_of_those_with_one_handle_decides(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    let handle = |key: &str| json!({ "driver": DRIVER, "volumeHandle": rig.fake.backend().add(key) });
    // All at once: each of them sees the others.
    let csi = handle("all");
    let twins = ["first", "second", "third"];
    for name in twins {
        cluster.bind(name, name, &csi).await;
        rig.set_reclaim_policy(name, "Delete").await;
    }
    for name in twins {
        rig.until_held(name).await;
    }
    for name in twins {
        rig.delete_pvc(name).await;
    }
    rig.until_nothing_provisioned().await;
    assert!(!rig.has_storage("all"));
    assert_eq!(rig.count("all", Rpc::DeleteVolume), 1);
    // One that wants it deleted, and then one that does not.
    let csi = handle("spared");
    for (name, policy) in [("deletes", "Delete"), ("retains", "Retain")] {
        cluster.bind(name, name, &csi).await;
        rig.set_reclaim_policy(name, policy).await;
    }
    rig.delete_pvc("deletes").await;
    rig.until_pv_gone("deletes").await;
    rig.delete_pvc("retains").await;
    rig.until_phase("retains", "Released").await;
    rig.delete_pv("retains").await;
    rig.until_nothing_provisioned().await;
    assert!(rig.has_storage("spared"));
    assert_eq!(rig.count("spared", Rpc::DeleteVolume), 0);
    rig.assert_nothing_left().await;
}

/// The source of a PersistentVolume cannot be changed, but another one can be written with anybody's handle.
pub async fn a_foreign_handle_has_nothing_deleted(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    // A Volume that somebody has registered.
    let handle = rig.fake.backend().add("mine");
    rig.make_volume(&registered("mine", &handle)).await;
    rig.until_volume_ready("mine").await;
    rig.forge("of-a-user", &handle).await;
    rig.until_event("of-a-user", "VolumeFailedDelete", "Volume default/mine has the storage").await;
    // One that was made for a claim.
    let precious = rig.provisioned("precious", "Delete").await;
    rig.forge("of-a-claim", "vol-precious").await;
    rig.until_pv_gone("of-a-claim").await;
    // One that is being made for a claim, under a handle that somebody has guessed.
    rig.fake.hold("next", Rpc::CreateVolume);
    rig.make_class(&class("next", &json!({ "parameters": { "key": "next" } }))).await;
    rig.make_pvc("next", "next", json!({})).await;
    rig.until_called("next", Rpc::CreateVolume).await;
    rig.cluster
        .make_persistent_volume(
            "guessed",
            &json!({ "driver": DRIVER, "volumeHandle": "vol-next" }),
            &Value::Null,
        )
        .await;
    rig.fake.let_go("next", Rpc::CreateVolume);
    let said = "PersistentVolume guessed names";
    rig.until_event("next", "ProvisioningFailed", said).await;

    let count = |key| rig.count(key, Rpc::DeleteVolume);
    assert_eq!((count("mine"), count("precious"), count("next")), (0, 0, 0));
    assert!(["mine", "precious", "next"].iter().all(|key| rig.has_storage(key)));
    rig.until_said(&precious, "True", "PersistentVolumeMade").await;
    // What the user does with his own Volume is his: the storage is left, since a PersistentVolume names it.
    rig.delete_volume("mine").await;
    rig.until_volume_gone("mine").await;
    rig.until_pv_gone("of-a-user").await;
    rig.delete_pv("guessed").await;
    for claim in ["precious", "next"] {
        rig.delete_pvc(claim).await;
    }
    rig.until_nothing_provisioned().await;
    rig.assert_nothing_left().await;
}

/// PersistentVolumes that name the driver as kubelets do, and so somebody has the volume, whatever the driver calls itself.
pub async fn a_name_of_its_own_at_kubelets_changes_nothing(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    let alias = "trial.example.com";
    rig.patch_plugin(json!({ "kubernetes": { "driverName": alias } })).await;
    let handle = rig.fake.backend().add("v");
    let csi = json!({ "driver": alias, "volumeHandle": handle });
    for name in ["data", "twin"] {
        cluster.bind(name, name, &csi).await;
        rig.set_reclaim_policy(name, "Delete").await;
        rig.until_held(name).await;
    }
    rig.make_volume(&registered("v", &handle)).await;
    rig.until_volume_says("v", "HandleInPersistentVolume", &["PersistentVolume"]).await;
    rig.delete_volume("v").await;
    rig.until_volume_gone("v").await;
    rig.delete_pvc("data").await;
    rig.until_pv_gone("data").await;
    assert!(rig.has_storage("v"));
    rig.delete_pvc("twin").await;
    rig.until_nothing_provisioned().await;
    assert!(!rig.has_storage("v"));
    assert_eq!(rig.count("v", Rpc::DeleteVolume), 1);
    rig.assert_nothing_left().await;
}

/// It is taken up while nobody has seen the driver's controller, which attaches nothing. When that has come the storage goes as
/// the policy says.
pub async fn one_that_was_taken_up_before_its_drivers_controller_came_is_reclaimed(cluster: Arc<Cluster>) {
    let nodes = vec![("node-2", false)];
    let rig = Rig::start(&cluster, Options { nodes, attach: false, ..Options::default() }).await;
    let _binder = Binder::start(&cluster.admin);
    let pod = rig.make_pod_volume("v", "node-2").await;
    rig.set_reclaim_policy("v", "Delete").await;
    rig.until_held("v").await;
    let claim = rig.ask(&pod, |_| {}).await;
    rig.until_granted(&claim).await;
    assert_eq!(rig.kept(&pod.handle).unwrap().spec.assignment.as_ref().unwrap().controller, None);
    rig.kept_claims().delete(&claim, &DeleteParams::default()).await.unwrap();
    rig.until_kept_claim_gone(&claim).await;
    rig.remove_pod("v").await;
    rig.add_node("node-1", true).await;
    rig.until_served("node-1").await;
    rig.delete_pvc("v").await;
    rig.until_nothing_provisioned().await;
    assert!(!rig.has_storage("v"));
    assert_eq!(rig.count("v", Rpc::DeleteVolume), 1);
    rig.assert_nothing_left().await;
}
