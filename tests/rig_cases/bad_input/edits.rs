//! A status edited by hand, by somebody whom moor's policies let through.

use std::fs;
use std::sync::Arc;

use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use moor::api::{Attachment, AttachmentState, ClaimState};
use moor::csi::Rpc;
use serde_json::{Value, json};
use tonic::Code;

use crate::rig::{CONTROLLER, Cluster, Fault, Options, Rig, condition, volume, volume_claim};

fn status(fields: &Value) -> Patch<Value> {
    Patch::Merge(json!({ "status": fields }))
}

/// An object was written after it was edited: before that the watch of the test may have what was before the edit.
fn is_newer<K: ResourceExt>(seen: &K, edited: &K) -> bool {
    let version = |object: &K| object.resource_version().unwrap().parse::<u64>().unwrap();
    version(seen) > version(edited)
}

/// A volume with data, mounted on node-2.
pub async fn mounted(rig: &Rig, key: &str, claim: &str) -> String {
    rig.make_volume(&volume(key)).await;
    rig.make_claim(&volume_claim(claim, key, "node-2")).await;
    let path = rig.until_ready(claim).await;
    fs::write(format!("{path}/data"), "precious").unwrap();
    path
}

/// Gives up the claim and the volume.
pub async fn undo(rig: &Rig, key: &str, claim: &str) {
    rig.delete_claim(claim).await;
    rig.until_claim_gone(claim).await;
    rig.delete_volume(key).await;
    rig.until_volume_gone(key).await;
    rig.assert_nothing_left().await;
}

fn attachments(rig: &Rig) -> Api<Attachment> {
    Api::all(rig.cluster.admin.clone())
}

/// States that there are not, and a grant for another node: the API server refuses them from anybody.
pub async fn words_that_are_none_are_refused(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    mounted(&rig, "v", "c").await;
    let attachment = rig.read_attachment_of("c").await.metadata.name.unwrap();
    let nonsense = status(&json!({ "state": "Floating" }));
    let how = PatchParams::default();
    let refused = [
        rig.claim_api().patch_status("c", &how, &nonsense).await.map(drop),
        rig.volume_api().patch_status("v", &how, &nonsense).await.map(drop),
        attachments(&rig).patch_status(&attachment, &how, &nonsense).await.map(drop),
        attachments(&rig)
            .patch_status(&attachment, &how, &status(&json!({ "state": "Taken" })))
            .await
            .map(drop),
        attachments(&rig)
            .patch(&attachment, &how, &Patch::Merge(json!({ "spec": { "nodeName": "node-1" } })))
            .await
            .map(drop),
        rig.claim_api()
            .patch("c", &how, &Patch::Merge(json!({ "spec": { "assignment": { "nodeName": "node-1" } } })))
            .await
            .map(drop),
    ];
    for (number, answer) in refused.into_iter().enumerate() {
        match answer {
            Err(kube::Error::Api(said)) => assert_eq!(said.code, 422, "{number}: {said}"),
            other => panic!("{number}: {other:?}"),
        }
    }
    undo(&rig, "v", "c").await;
}

/// Ready is taken from a mounted claim: the agent says it again, without a call.
pub async fn a_claim_is_set_back(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let path = mounted(&rig, "v", "c").await;
    let calls = rig.journal.calls_of("v").len();
    let edit = status(&json!({ "state": "Pending", "targetPath": "/nowhere", "conditions": [] }));
    let edited = rig.claim_api().patch_status("c", &PatchParams::default(), &edit).await.unwrap();
    let again = || {
        let claim = rig.cluster.claim("c").filter(|claim| is_newer(claim.as_ref(), &edited))?;
        let status = claim.status.as_ref()?;
        let ready = status.state == ClaimState::Ready && condition(&status.conditions)?.status == "True";
        (ready && status.target_path.as_ref() == Some(&path)).then_some(())
    };
    rig.cluster.until("the claim is Ready again", again, || rig.story("c")).await;
    assert_eq!(rig.journal.calls_of("v").len(), calls);
    undo(&rig, "v", "c").await;
}

/// A living claim is called NodeDetached, which is final: its mount stays until it is deleted, also over restarts, and
/// then it is undone.
pub async fn a_claim_is_called_detached(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let path = mounted(&rig, "v", "c").await;
    let edit = status(&json!({ "state": "NodeDetached" }));
    rig.claim_api().patch_status("c", &PatchParams::default(), &edit).await.unwrap();
    rig.restart("node-2");
    rig.restart(CONTROLLER);
    rig.until_served("node-2").await;
    // A later claim of another volume has been through both.
    mounted(&rig, "witness", "w").await;
    assert_eq!(fs::read_to_string(format!("{path}/data")).unwrap(), "precious");
    rig.make_claim(&volume_claim("other", "v", "node-1")).await;
    rig.until_claim_says("other", "Held").await;
    rig.delete_claim("c").await;
    let moved = rig.until_ready("other").await;
    assert_eq!(fs::read_to_string(format!("{moved}/data")).unwrap(), "precious");
    rig.delete_claim("w").await;
    undo(&rig, "v", "other").await;
}

/// The status of a Volume loses what the driver calls it. Its VolumeHandle knows: no second lock, nothing leaks.
pub async fn a_volume_forgets_its_handle(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    mounted(&rig, "v", "c").await;
    let edit = status(&json!({ "volumeHandle": null, "handleName": null }));
    let edited = rig.volume_api().patch_status("v", &PatchParams::default(), &edit).await.unwrap();
    rig.make_claim(&volume_claim("other", "v", "node-1")).await;
    rig.until_claim_says("other", "Held").await;
    let mended = || {
        let volume = rig.cluster.volume("v").filter(|volume| is_newer(volume.as_ref(), &edited))?;
        (volume.status.as_ref()?.volume_handle.as_deref() == Some("vol-v")).then_some(())
    };
    rig.cluster.until("the status is mended", mended, || rig.story("v")).await;
    assert_eq!(rig.count("v", Rpc::ControllerPublishVolume), 1);
    rig.delete_claim("c").await;
    rig.until_ready("other").await;
    undo(&rig, "v", "other").await;
}

/// The status of a Volume names another's volume: that one is neither used nor deleted in its place.
pub async fn a_volume_is_given_the_handle_of_another(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let path = mounted(&rig, "theirs", "c").await;
    rig.make_volume(&volume("mine")).await;
    rig.until_volume_ready("mine").await;
    let edit = status(&json!({ "volumeHandle": "vol-theirs" }));
    rig.volume_api().patch_status("mine", &PatchParams::default(), &edit).await.unwrap();
    rig.make_claim(&volume_claim("m", "mine", "node-1")).await;
    rig.until_ready("m").await;
    assert_eq!(rig.read_attachment_of("m").await.spec.volume_handle, "vol-mine");
    rig.delete_claim("m").await;
    rig.volume_api().patch_status("mine", &PatchParams::default(), &edit).await.unwrap();
    rig.delete_volume("mine").await;
    rig.until_volume_gone("mine").await;
    assert_eq!(rig.count("theirs", Rpc::DeleteVolume), 0);
    assert_eq!(rig.count("mine", Rpc::DeleteVolume), 1);
    assert_eq!(fs::read_to_string(format!("{path}/data")).unwrap(), "precious");
    undo(&rig, "theirs", "c").await;
}

/// An Attachment in use is called ControllerDetached, so the leader frees the lock. The node reports the mount, nobody
/// else gets the volume, and the deleted claim is undone.
pub async fn an_attachment_is_called_detached(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let path = mounted(&rig, "v", "c").await;
    let attachment = rig.read_attachment_of("c").await;
    let name = attachment.metadata.name.clone().unwrap();
    let edit = status(&json!({ "state": AttachmentState::ControllerDetached }));
    attachments(&rig).patch_status(&name, &PatchParams::default(), &edit).await.unwrap();
    let reported = || {
        let all = rig.cluster.instances.state();
        let here = all.into_iter().find(|i| i.spec.node_name == "node-2")?;
        here.status.as_ref()?.forgotten.first().cloned()
    };
    let mount = rig.cluster.until("the mount is reported", reported, || rig.story("v")).await;
    assert_eq!((mount.reason.as_str(), mount.volume_handle.as_str()), ("LockRemoved", "vol-v"));
    assert_eq!(Some(&mount.attachment_uid), attachment.metadata.uid.as_ref());
    assert_eq!(mount.claims, ["default/c"]);

    rig.make_claim(&volume_claim("other", "v", "node-1")).await;
    let said = rig.until_claim_says("other", "Forgotten").await;
    assert!(said.contains("node-2"), "{said}");
    assert_eq!(fs::read_to_string(format!("{path}/data")).unwrap(), "precious");
    rig.delete_claim("c").await;
    rig.until_claim_gone("c").await;
    let quiet = || reported().is_none().then_some(());
    rig.cluster.until("the report is gone", quiet, || rig.story("v")).await;
    assert_eq!(rig.count("v", Rpc::NodeUnstageVolume), 1);
    // Nobody was left to detach it from node-2, and the driver says so.
    let refused = || {
        let status = rig.cluster.claim("other")?.status.clone()?;
        condition(&status.conditions)?.message.contains("attached to node-2").then_some(())
    };
    rig.cluster.until("the driver refuses it", refused, || rig.story("other")).await;
    {
        let mut storage = rig.fake.backend();
        storage.volumes.get_mut("v").unwrap().attached.clear();
        storage.violations.clear();
    }
    rig.until_ready("other").await;
    undo(&rig, "v", "other").await;
}

/// N9: its node has nothing of it and nothing to go by but the claim.
pub async fn an_attachment_is_removed_before_it_was_attached(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.make_volume(&volume("v")).await;
    rig.until_volume_ready("v").await;
    rig.fake.fail("v", Rpc::ControllerPublishVolume, Fault::CodeBefore(Code::Unavailable));
    rig.make_claim(&volume_claim("v", "v", "node-2")).await;
    let removed = rig.cluster.until("it is tried", || tried(&rig, "v"), || rig.story("v")).await;
    let attachments: Api<Attachment> = Api::all(cluster.admin.clone());
    // Without its finalizer it goes at once.
    let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    attachments.patch(&removed, &PatchParams::default(), &free).await.unwrap();
    attachments.delete(&removed, &DeleteParams::default()).await.unwrap();
    rig.fake.heal("v", Rpc::ControllerPublishVolume);
    rig.until_ready("v").await;
    rig.delete_claim("v").await;
    rig.until_claim_gone("v").await;
    rig.delete_volume("v").await;
    rig.until_volume_gone("v").await;
    rig.assert_nothing_left().await;
}

/// Name of the claim's Attachment, once attaching has failed.
fn tried(rig: &Rig, claim: &str) -> Option<String> {
    let attachment = rig.cluster.attachment_of(claim)?;
    attachment.status.as_ref()?.last_error.as_ref()?;
    attachment.metadata.name.clone()
}
