//! Snapshots that somebody else has taken, or taken away, and volumes that somebody else has.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use moor::csi::Rpc;
use serde_json::json;

use super::super::provision::class;
use super::super::snapshots::objects::sources;
use super::start;
use crate::rig::snapshot_kinds::snapshots;
use crate::rig::{CONTROLLER, Cluster, Options, SPACE, at};

/// An administrator names the snapshot, and a user the content.
pub async fn one_that_exists_is_registered_restored_and_deleted(cluster: Arc<Cluster>) {
    let scene = start(&cluster, Options::default()).await;
    scene.make_claim_of("v").await;
    let handle = scene.fake.backend().add_snapshot("old", "v");
    let bound_to = json!({ "name": "old", "namespace": SPACE });
    scene
        .make_content(
            "given",
            json!({ "source": { "snapshotHandle": handle }, "volumeSnapshotRef": bound_to }),
        )
        .await;
    scene.make_vs_of("old", None, json!({ "volumeSnapshotContentName": "given" })).await;
    let content = scene.until_vs_ready("old").await;
    assert_eq!(at(&content, "/status/snapshotHandle"), handle.as_str());
    assert!(scene.count("old", Rpc::ListSnapshots) > 0, "the driver was asked");
    scene.ask_for_restored("r", "old").await;
    scene.until_bound("r").await;
    assert_eq!(sources(&scene, "r"), [handle]);
    scene.delete_vs("old").await;
    scene.until_vs_gone("old").await;
    scene.until_nothing_kept().await;
    assert_eq!((scene.count("v", Rpc::CreateSnapshot), scene.count("old", Rpc::DeleteSnapshot)), (0, 1));
    assert!(scene.fake.backend().snapshots.is_empty());
    // One that the driver does not list is told of, and its end asks nothing of the driver.
    let missing = json!({ "name": "no", "namespace": SPACE });
    scene
        .make_content(
            "no",
            json!({ "source": { "snapshotHandle": "snap-no" }, "volumeSnapshotRef": missing }),
        )
        .await;
    scene.make_vs_of("no", None, json!({ "volumeSnapshotContentName": "no" })).await;
    scene.until_vs_told("no", "the driver lists no snapshot snap-no").await;
    scene.until_event("no", "SnapshotContentCheckandUpdateFailed", "snap-no").await;
    scene.delete_vs("no").await;
    scene.until_vs_gone("no").await;
    scene.until_nothing_kept().await;
}

/// Its class is gone, and its content is as csi-snapshotter has left it.
pub async fn one_that_csi_snapshotter_has_taken_is_taken_over(cluster: Arc<Cluster>) {
    let scene = start(&cluster, Options::default()).await;
    scene.make_claim_of("v").await;
    let handle = scene.fake.backend().add_snapshot("theirs", "v");
    let uid = scene.make_vs_of("theirs", Some("gone"), json!({ "persistentVolumeClaimName": "v" })).await;
    let name = format!("snapcontent-{uid}");
    scene
        .make_content(
            &name,
            // Not moor's driver until it says so: as it was under csi-snapshotter.
            json!({ "driver": "other", "volumeSnapshotClassName": "gone", "source": { "volumeHandle": "vol-v" },
                "volumeSnapshotRef": { "name": "theirs", "namespace": SPACE, "uid": uid } }),
        )
        .await;
    let word = json!({ "snapshot.storage.kubernetes.io/volumesnapshot-being-created": "yes" });
    scene.patch_content(&name, json!({ "metadata": { "annotations": word } })).await;
    scene
        .say_of_content(&name, json!({ "snapshotHandle": handle, "readyToUse": true, "creationTime": 1 }))
        .await;
    let bound = json!({ "status": { "boundVolumeSnapshotContentName": name, "readyToUse": true } });
    let api = snapshots(&cluster.admin, SPACE);
    api.patch_status("theirs", &PatchParams::default(), &Patch::Merge(bound)).await.unwrap();
    scene.patch_content(&name, json!({ "spec": { "driver": crate::rig::fake::DRIVER } })).await;
    scene
        .until("the word that it is being created is taken off", || async {
            let annotations = scene.content(&name).await?.metadata.annotations;
            annotations.is_none_or(|all| all.is_empty()).then_some(())
        })
        .await;
    let content = scene.content(&name).await.unwrap();
    assert_eq!(
        (at(&content, "/status/creationTime"), at(&content, "/status/readyToUse")),
        (&json!(1), &json!(true))
    );
    scene.ask_for_restored("r", "theirs").await;
    scene.until_bound("r").await;
    scene.delete_vs("theirs").await;
    scene.until_vs_gone("theirs").await;
    assert_eq!((scene.count("v", Rpc::CreateSnapshot), scene.count("theirs", Rpc::DeleteSnapshot)), (0, 1));
}

/// moor has no Volume of a PersistentVolume that no Pod has asked for yet.
pub async fn one_of_a_volume_that_nobody_has_asked_for_is_taken(cluster: Arc<Cluster>) {
    let scene = start(&cluster, Options::default()).await;
    scene.make_static("v", "Retain").await;
    scene.make_snapshot_class("cold", "s", "Delete", json!({})).await;
    scene.make_vs("s", "cold", "v").await;
    scene.until_vs_ready("s").await;
    scene.delete_vs("s").await;
    scene.until_vs_gone("s").await;
    assert!(scene.fake.backend().snapshots.is_empty());
    // Its PersistentVolume is gone.
    let gone = json!({ "source": { "volumeHandle": "vol-gone" }, "volumeSnapshotClassName": "cold",
        "volumeSnapshotRef": { "name": "x", "namespace": SPACE, "uid": "x" } });
    scene.make_content("of-nothing", gone).await;
    scene
        .until_event("of-nothing", "SnapshotCreationFailed", "no PersistentVolume stands for volume vol-gone")
        .await;
}

/// Nobody loses a snapshot by deleting moor's own object.
pub async fn what_somebody_deletes_by_hand_is_made_anew(cluster: Arc<Cluster>) {
    let scene = start(&cluster, Options::default()).await;
    scene.make_claim_of("v").await;
    scene.make_snapshot_class("cold", "s", "Delete", json!({})).await;
    scene.make_vs("s", "cold", "v").await;
    let content = scene.until_vs_ready("s").await;
    let name = format!("content-{}", content.metadata.uid.unwrap());
    let first = scene.kept_api().get(&name).await.unwrap().metadata.uid;
    scene.kept_api().delete(&name, &DeleteParams::default()).await.unwrap();
    scene
        .until("there is another one", || async {
            let now = scene.kept_api().get_opt(&name).await.unwrap()?;
            (now.metadata.uid != first && now.handle() == Some("snap-s")).then_some(())
        })
        .await;
    assert_eq!(scene.count("s", Rpc::DeleteSnapshot), 0);
    scene.ask_for_restored("r", "s").await;
    scene.until_bound("r").await;
    scene.delete_vs("s").await;
    scene.until_vs_gone("s").await;
    scene.until_nothing_kept().await;
    assert_eq!(scene.count("s", Rpc::DeleteSnapshot), 1);
    assert!(scene.fake.backend().snapshots.is_empty());
}

/// The leader orders it of a Snapshot that is gone, before any watch has told of that: nobody carries it out.
pub async fn an_order_to_nobody_has_deleted_nothing(cluster: Arc<Cluster>) {
    let scene = start(&cluster, Options::default()).await;
    scene.make_claim_of("v").await;
    scene.make_snapshot_class("cold", "s", "Delete", json!({})).await;
    scene.make_vs("s", "cold", "v").await;
    let content = scene.until_vs_ready("s").await;
    let name = format!("content-{}", content.metadata.uid.unwrap());
    scene.stall(CONTROLLER, "snapshots");
    let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    scene.kept_api().delete(&name, &DeleteParams::default()).await.unwrap();
    scene.kept_api().patch(&name, &PatchParams::default(), &free).await.unwrap();
    let since = scene.journal.now();
    scene.delete_vs("s").await;
    scene.until_not_found(CONTROLLER, ("snapshots", &name), since).await;
    scene.unstall(CONTROLLER, "snapshots");
    scene.until_vs_gone("s").await;
    scene.until_nothing_kept().await;
    assert_eq!(scene.count("s", Rpc::DeleteSnapshot), 1);
    assert!(scene.fake.backend().snapshots.is_empty());
}

pub async fn a_content_that_is_removed_by_force_leaves_its_storage(cluster: Arc<Cluster>) {
    let scene = start(&cluster, Options::default()).await;
    scene.make_claim_of("v").await;
    scene.make_snapshot_class("cold", "s", "Delete", json!({})).await;
    scene.make_vs("s", "cold", "v").await;
    let content = scene.until_vs_ready("s").await.metadata.name.unwrap();
    drop(scene.kubernetes);
    let rig = scene.rig;
    rig.delete_content(&content).await;
    rig.patch_content(&content, json!({ "metadata": { "finalizers": null } })).await;
    rig.until_content_gone(&content).await;
    rig.until_nothing_kept().await;
    assert!(rig.fake.backend().snapshots.contains_key("s"));
    assert_eq!(rig.count("s", Rpc::DeleteSnapshot), 0);
    rig.leaves(&["snap-s"], "its content was removed by force");
}

/// Those of the StorageClass are not: a class of snapshots that names none is called with none.
pub async fn secrets_are_those_of_the_class(cluster: Arc<Cluster>) {
    let scene = start(&cluster, Options::default()).await;
    let secrets: Api<Secret> = Api::namespaced(cluster.admin.clone(), SPACE);
    for name in ["of-volumes", "of-snapshots", "of-lists"] {
        let secret = json!({ "metadata": { "name": name }, "stringData": { "word": name } });
        secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    }
    let of_volumes = json!({ "key": "v", "csi.storage.k8s.io/provisioner-secret-name": "of-volumes",
        "csi.storage.k8s.io/provisioner-secret-namespace": SPACE });
    scene.make_class(&class("v", &json!({ "parameters": of_volumes }))).await;
    scene.make_pvc("v", "v", json!({})).await;
    scene.until_bound("v").await;
    let of_snapshots = json!({ "csi.storage.k8s.io/snapshotter-secret-name": "of-snapshots",
        "csi.storage.k8s.io/snapshotter-secret-namespace": SPACE });
    scene.make_snapshot_class("with", "s", "Delete", of_snapshots).await;
    scene.make_snapshot_class("without", "t", "Delete", json!({})).await;
    for (name, class) in [("s", "with"), ("t", "without")] {
        scene.make_vs(name, class, "v").await;
        scene.until_vs_ready(name).await;
    }
    let asked = scene.asked_to_take("v");
    let word = BTreeMap::from([("word".to_owned(), "of-snapshots".to_owned())]);
    let sent: Vec<BTreeMap<String, String>> = asked
        .iter()
        .map(|request| request.secrets.iter().map(|(k, v)| (k.clone(), v.clone())).collect())
        .collect();
    assert_eq!(sent, [word, BTreeMap::new()]);
    for name in ["s", "t"] {
        scene.delete_vs(name).await;
        scene.until_vs_gone(name).await;
    }
    for name in ["of-volumes", "of-snapshots", "of-lists"] {
        secrets.delete(name, &DeleteParams::default()).await.unwrap();
    }
}

/// A Volume of a user that Pods use by a claim is the user's, and so are its snapshots.
pub async fn a_users_volume_is_snapshotted_by_its_owner(cluster: Arc<Cluster>) {
    let scene = start(&cluster, Options::default()).await;
    let mut volume = crate::rig::volume("v");
    volume.spec.persistent_volume_claim = Some(serde_json::from_value(json!({ "name": "data" })).unwrap());
    scene.make_volume(&volume).await;
    let made = || async { scene.pvc_api().get_opt("data").await.unwrap().map(drop) };
    scene.until("the claim is made", made).await;
    scene.until_bound("data").await;
    scene.make_snapshot_class("cold", "s", "Delete", json!({})).await;
    scene.make_vs("s", "cold", "data").await;
    scene.until_vs_told("s", "create a Snapshot (moor.dev) of it in its namespace instead").await;
    assert_eq!(scene.count("v", Rpc::CreateSnapshot), 0);
    scene.delete_vs("s").await;
    scene.until_vs_gone("s").await;
}
