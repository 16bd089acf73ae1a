//! Storage that a PersistentVolume names: another orchestrator has it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use moor::api::VolumeState;
use moor::csi::Rpc;
use serde_json::json;

use crate::rig::fake::DRIVER;
use crate::rig::fake::backend::Answers;
use crate::rig::{CONTROLLER, Cluster, Options, Rig, volume};

async fn make_persistent_volume(cluster: &Cluster, name: &str, handle: &str) {
    let volumes: Api<PersistentVolume> = Api::all(cluster.admin.clone());
    let object = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Mi"},
            "csi": {"driver": DRIVER, "volumeHandle": handle},
        },
    }));
    volumes.create(&PostParams::default(), &object.unwrap()).await.unwrap();
}

async fn remove_persistent_volume(cluster: &Cluster, name: &str) {
    let volumes: Api<PersistentVolume> = Api::all(cluster.admin.clone());
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    volumes.patch(name, &PatchParams::default(), &free).await.unwrap();
    volumes.delete(name, &DeleteParams::default()).await.unwrap();
}

fn deletions(rig: &Rig, key: &str) -> usize {
    let calls = rig.journal.calls_of(key);
    calls.iter().filter(|entry| entry.call().is_some_and(|call| call.rpc == Rpc::DeleteVolume)).count()
}

/// Whether the leader has written this reason into a condition of the Volume.
fn was_said(rig: &Rig, volume: &str, reason: &str) -> bool {
    let said = |e: &crate::rig::Entry| {
        e.actor == CONTROLLER
            && e.is_taken()
            && e.write().is_some_and(|w| {
                w.kind == "volumes" && w.name == volume && w.body.to_string().contains(reason)
            })
    };
    !rig.journal.since(0, said).is_empty()
}

/// The agent that is to make a volume says that it has made one which somebody else has.
pub(super) async fn what_a_persistent_volume_names_is_neither_taken_nor_deleted(cluster: Arc<Cluster>) {
    const ROGUE: &str = "node-2";
    let nodes = vec![("node-1", true), (ROGUE, true)];
    let rig = Rig::start(&cluster, Options { nodes, supervised: false, ..Options::default() }).await;
    let precious = rig.fake.backend().add("precious");
    make_persistent_volume(&cluster, "precious", &precious).await;
    rig.patch_plugin(json!({"controllerNodes": {"names": [ROGUE]}})).await;
    rig.until_out_of_order(&["node-1", "spec.controllerNodes"]).await;
    rig.kill(ROGUE);

    rig.make_volume(&volume("bait")).await;
    let given = || {
        let assignment = rig.cluster.volume("bait")?.spec.assignment.clone()?;
        assignment.controller.is_some_and(|c| c.agent == ROGUE).then_some(())
    };
    cluster.until("the rogue node is to make it", given, || rig.story("bait")).await;
    let lie = json!({"state": VolumeState::Created, "volumeHandle": precious});
    rig.rogue(ROGUE).await.say_of_volume("bait", lie).await.unwrap();
    let said =
        rig.until_volume_says("bait", "HandleInPersistentVolume", &["PersistentVolume precious"]).await;
    assert!(said.contains("delete this Volume"), "{said}");

    // The node goes away, an honest one takes over, and the tenant deletes the Volume.
    rig.patch_plugin(json!({"controllerNodes": null})).await;
    rig.expire_lease(ROGUE).await;
    rig.mark_out_of_service(ROGUE, true).await;
    rig.delete_volume("bait").await;
    rig.until_volume_gone("bait").await;
    assert!(was_said(&rig, "bait", "StorageLeft"));
    assert_eq!(deletions(&rig, "precious"), 0);
    assert!(rig.has_storage("precious"));
    remove_persistent_volume(&cluster, "precious").await;
}

/// Made by moor, and given to a PersistentVolume since.
pub(super) async fn what_a_persistent_volume_names_by_now_is_left(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.make_volume(&volume("given")).await;
    rig.until_volume_ready("given").await;
    make_persistent_volume(&cluster, "given", "vol-given").await;
    rig.delete_volume("given").await;
    rig.until_volume_gone("given").await;
    assert!(was_said(&rig, "given", "StorageLeft"));
    assert_eq!(deletions(&rig, "given"), 0);
    assert!(rig.has_storage("given"));
    rig.assert_nothing_left().await;
    remove_persistent_volume(&cluster, "given").await;
    rig.leaves(&["vol-given"], "it was left to a PersistentVolume");
}

/// The agent would delete what CreateVolume made and nobody can use. That it may is the leader's word.
pub(super) async fn what_is_of_no_use_to_moor_is_left_to_a_persistent_volume(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    make_persistent_volume(&cluster, "small", "vol-small").await;
    let answers = Answers { capacity_bytes: Some(1), ..Answers::default() };
    rig.fake.backend().answers.insert("small".to_owned(), answers);
    rig.make_volume(&volume("small")).await;
    rig.until_volume_says("small", "HandleInPersistentVolume", &["PersistentVolume small"]).await;
    let lie = json!({"rejected": {"mayDelete": true}});
    let refused = rig.rogue("node-1").await.say_of_volume("small", lie).await.unwrap_err().to_string();
    assert!(refused.contains("mayDelete"), "{refused}");
    rig.delete_volume("small").await;
    rig.until_volume_gone("small").await;
    assert!(was_said(&rig, "small", "StorageLeft"));
    assert_eq!(deletions(&rig, "small"), 0);
    assert!(rig.has_storage("small"));
    rig.assert_nothing_left().await;
    remove_persistent_volume(&cluster, "small").await;
    rig.leaves(&["vol-small"], "it was left to a PersistentVolume");
}
