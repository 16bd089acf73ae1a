//! One volume of the driver, named more than once.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use moor::csi::Rpc;
use serde_json::json;

use crate::rig::fake::DRIVER;
use crate::rig::{Cluster, Options, Rig, registered, volume_claim};

/// The first Volume wins; the second says so, is granted to nobody, and its deletion takes nothing away.
pub async fn two_volumes_name_one_handle(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let handle = rig.fake.backend().add("shared");
    rig.make_volume(&registered("first", &handle)).await;
    rig.until_volume_ready("first").await;
    rig.make_claim(&volume_claim("c", "first", "node-1")).await;
    rig.until_ready("c").await;

    rig.make_volume(&registered("second", &handle)).await;
    let said = rig.until_volume_says("second", "DuplicateHandle", &[]).await;
    assert!(said.contains("default/first"), "{said}");
    rig.make_claim(&volume_claim("d", "second", "node-2")).await;
    rig.until_claim_says("d", "VolumeNotReady").await;
    rig.delete_volume("second").await;
    rig.until_volume_gone("second").await;
    rig.until_claim_says("d", "VolumeNotFound").await;
    assert_eq!(rig.count("shared", Rpc::NodePublishVolume), 1);
    assert_eq!(rig.count("shared", Rpc::NodeUnpublishVolume), 0);
    rig.until_ready("c").await;

    // The first one goes: a new second one takes the handle over.
    rig.delete_claim("d").await;
    rig.make_volume(&registered("second", &handle)).await;
    rig.until_volume_says("second", "DuplicateHandle", &[]).await;
    rig.delete_claim("c").await;
    rig.delete_volume("first").await;
    rig.until_volume_gone("first").await;
    rig.until_volume_ready("second").await;
    assert_eq!(rig.count("shared", Rpc::DeleteVolume), 0, "a registered volume is not deleted");
    rig.delete_volume("second").await;
    rig.until_volume_gone("second").await;
    rig.assert_nothing_left().await;
}

/// The stock stack has it: two orchestrators must not share a volume.
pub async fn a_persistent_volume_names_the_handle(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let handle = rig.fake.backend().add("elsewhere");
    let volumes: Api<PersistentVolume> = Api::all(cluster.admin.clone());
    let of_another = json!({"metadata": {"name": "pv"}, "spec": {
        "capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": DRIVER, "volumeHandle": handle},
    }});
    let of_another = serde_json::from_value(of_another).unwrap();
    volumes.create(&PostParams::default(), &of_another).await.unwrap();

    rig.make_volume(&registered("imported", &handle)).await;
    let said = rig.until_volume_says("imported", "HandleInPersistentVolume", &[]).await;
    assert!(said.contains("PersistentVolume pv"), "{said}");
    rig.make_claim(&volume_claim("c", "imported", "node-1")).await;
    rig.until_claim_says("c", "VolumeNotReady").await;
    assert_eq!(rig.count("elsewhere", Rpc::ControllerPublishVolume), 0);

    // Its finalizer is the stock stack's, which does not run here.
    let free = json!({"metadata": {"finalizers": null}});
    let free = kube::api::Patch::Merge(free);
    volumes.patch("pv", &kube::api::PatchParams::default(), &free).await.unwrap();
    volumes.delete("pv", &DeleteParams::default()).await.unwrap();
    // What nobody watches is looked at again.
    rig.until_ready("c").await;
    rig.delete_claim("c").await;
    rig.delete_volume("imported").await;
    rig.until_volume_gone("imported").await;
    rig.assert_nothing_left().await;
}
