//! What cannot be exported, and what nobody gets by an export.

use std::sync::Arc;

use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use moor::api::capability::VolumeUse;
use moor::api::{AccessMode, AttachmentMode, FINALIZER, VolumeClaim};
use moor::csi::Rpc;
use serde_json::{Value, json};

use super::{NODE, exported, start, until_exported};
use crate::rig::fake::DRIVER;
use crate::rig::{CONTROLLER, Cluster, NAMESPACE, Rig, SPACE, volume};

pub async fn what_cannot_be_exported_is_refused(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    let mut unreadable = exported("v");
    let read =
        VolumeUse { access_mode: AccessMode::SingleNodeReader, attachment_mode: AttachmentMode::FileSystem };
    unreadable.spec.capabilities = vec![read];
    let refused = rig.volume_api().create(&PostParams::default(), &unreadable).await.unwrap_err().to_string();
    assert!(refused.contains("spec.persistentVolumeClaim needs a capability"), "{refused}");

    // moor's own namespace has the Volumes that moor keeps.
    let mut own = exported("own");
    own.metadata.namespace = Some(NAMESPACE.to_owned());
    rig.provisioned_api().create(&PostParams::default(), &own).await.unwrap();
    rig.until("the Volume says that it cannot be exported", || async {
        let found = rig.provisioned_api().get("own").await.unwrap();
        found.status?.conditions.into_iter().find(|c| c.reason == "CannotExport")
    })
    .await;

    // Whose PersistentVolume is whose agents do not say.
    rig.make_volume(&volume("v")).await;
    rig.until_volume_ready("v").await;
    let rogue = rig.rogue(NODE).await;
    let lie = json!({ "export": { "persistentVolumeClaim": "data", "persistentVolume": "theirs" } });
    let refused = rogue.say_of_volume("v", lie).await.unwrap_err().to_string();
    assert!(refused.contains("status.export is written by the moor controller"), "{refused}");
    // Nor do they make claims in namespaces that are not the Pod's.
    let claim = claim(
        "pod-uid-x",
        "v",
        &json!({ "namespace": "kube-system", "name": "p", "uid": "uid",
        "persistentVolume": "pv" }),
    );
    let refused = rogue.claims(SPACE).create(&PostParams::default(), &claim).await.unwrap_err().to_string();
    assert!(refused.contains("or in the Pod's own"), "{refused}");
}

fn claim(name: &str, volume: &str, pod: &Value) -> VolumeClaim {
    let spec =
        json!({ "volumeName": volume, "nodeName": NODE, "mountOptions": { "mountFlags": [] }, "pod": pod });
    let metadata = json!({ "name": name, "namespace": SPACE, "finalizers": [FINALIZER] });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
}

/// As the agent of the node would make it; by whoever has its token, with any words.
async fn ask(rig: &Rig, name: &str, volume: &str, (pod, uid, persistent): (&str, &str, &str)) {
    let pod = json!({ "namespace": SPACE, "name": pod, "uid": uid, "persistentVolume": persistent });
    rig.make_claim(&claim(name, volume, &pod)).await;
}

async fn until_refused(rig: &Rig, claim: &str, words: &str) {
    let said = rig.until_told(claim, "Ready", "False", "PodNotEntitled").await;
    assert!(said.contains(words), "{said}");
}

async fn make_pod(rig: &Rig, name: &str, claim: &str) -> String {
    let volumes = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }]);
    rig.cluster.make_pod(name, NODE, &volumes).await.uid().unwrap()
}

/// Only by the very PersistentVolume that was made of it, and only what was exported.
pub async fn a_pod_has_no_volume_that_is_not_exported(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    rig.make_volume(&exported("own")).await;
    rig.make_volume(&volume("secret")).await;
    rig.until_volume_ready("secret").await;
    let persistent = until_exported(&rig, "own", "own").await.name_any();
    let web = make_pod(&rig, "web", "own").await;
    ask(&rig, "a", "secret", ("web", &web, &persistent)).await;
    until_refused(&rig, "a", "asks for Volume default/secret").await;
    // An administrator's PersistentVolume of the same storage.
    let csi = json!({ "driver": DRIVER, "volumeHandle": "vol-own" });
    rig.cluster.bind("beside", "beside", &csi).await;
    let other = make_pod(&rig, "other", "beside").await;
    ask(&rig, "b", "own", ("other", &other, "beside")).await;
    until_refused(&rig, "b", "asks for Volume default/own").await;
    // A Pod that does not use it.
    ask(&rig, "c", "own", ("other", &other, &persistent)).await;
    until_refused(&rig, "c", "does not use PersistentVolumeClaim default/own").await;
    ask(&rig, "d", "own", ("web", &web, &persistent)).await;
    let granted = || async { rig.claim_api().get_opt("d").await.unwrap()?.spec.assignment };
    rig.until("the Pod's own claim is granted", granted).await;
}

/// It has the name, and not the UID: it is somebody's, and so is what it names.
pub async fn a_persistent_volume_that_poses_as_the_export_keeps_the_storage(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    rig.make_volume(&exported("v")).await;
    let name = until_exported(&rig, "v", "v").await.name_any();
    rig.stop(CONTROLLER).await;
    let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    rig.pv_api().patch(&name, &PatchParams::default(), &free).await.unwrap();
    rig.pv_api().delete(&name, &DeleteParams::default()).await.unwrap();
    let csi = json!({ "driver": DRIVER, "volumeHandle": "vol-v" });
    rig.cluster.make_persistent_volume(&name, &csi, &Value::Null).await;
    let before = rig.pv_api().get(&name).await.unwrap();
    rig.delete_volume("v").await;
    rig.run(CONTROLLER);
    rig.until_volume_gone("v").await;
    let after = rig.pv_api().get(&name).await.unwrap();
    assert_eq!((before.metadata.uid, after.metadata.deletion_timestamp), (after.metadata.uid, None));
    assert_eq!(rig.count("v", Rpc::DeleteVolume), 0, "it is that PersistentVolume's");
    assert!(rig.pvc_api().get_opt("v").await.unwrap().is_none());
    rig.until_event("v", "StorageLeft", &name).await;
}
