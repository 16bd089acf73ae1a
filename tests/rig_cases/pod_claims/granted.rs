//! Claims of Pods that are what they say.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use moor::api::capability::AccessMode;
use moor::api::volume::{DeletionPolicy, VolumeOperation};
use moor::api::{AttachmentState, VolumeState};
use moor::csi::Rpc;
use serde_json::json;

use super::objects::kept_volume;
use crate::rig::fake::DRIVER;
use crate::rig::{Cluster, Options, Rig};

/// The Volume comes with the first Pod, nothing is asked of the driver before it attaches, and what the claim says goes into
/// the Attachment.
pub(super) async fn a_pod_gets_the_volume_of_a_persistent_volume(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    // What no tenant may: nobody asks it of a Volume that an administrator has made as a PersistentVolume.
    rig.patch_plugin(json!({"allow": {"register": null, "parameterise": {"namespaces": []}}})).await;
    let pod = rig.make_pod_volume("web", "node-2").await;
    assert!(rig.kept(&pod.handle).is_none(), "nobody has asked for it");
    let claim = rig
        .ask(&pod, |spec| {
            spec["mountOptions"] = json!({"mountFlags": ["noatime"]});
            spec["pod"]["volumeMountGroup"] = "2000".into();
        })
        .await;
    rig.until_granted(&claim).await;
    let volume = rig.kept(&pod.handle).expect("the Volume is there before the grant");
    let assignment = volume.spec.assignment.as_ref().unwrap();
    assert_eq!(assignment.operation, VolumeOperation::Adopt);
    assert_eq!(volume.spec.deletion_policy, Some(DeletionPolicy::Retain));
    assert_eq!(volume.spec.capabilities[0].access_mode, AccessMode::SingleNodeWriter);
    assert_eq!(volume.status.as_ref().unwrap().state, VolumeState::Ready);

    let assigned = rig.kept_claim(&claim).unwrap().spec.assignment.clone().unwrap();
    let attached = || {
        let found = cluster.attachment(&assigned.attachment)?;
        let state = found.status.as_ref()?.state;
        (state == AttachmentState::Attached).then_some(found)
    };
    let attachment = cluster.until("the volume is attached", attached, || rig.story("web")).await;
    let fixed = &attachment.spec.fixed;
    assert_eq!((attachment.spec.node_name.as_str(), fixed.exclusive), ("node-2", false));
    assert_eq!(fixed.mount_options.mount_flags, ["noatime"]);
    assert_eq!(fixed.volume_mount_group.as_deref(), Some("2000"));
    assert_eq!(rig.count("web", Rpc::ValidateVolumeCapabilities), 0, "no answer could unbind it");

    // As its agent does when kubelet says that the Pod has ended.
    rig.kept_claims().delete(&claim, &DeleteParams::default()).await.unwrap();
    rig.until_kept_claim_gone(&claim).await;
    assert!(rig.kept(&pod.handle).is_some(), "the Volume is the PersistentVolume's");
}

/// The driver says nothing of second targets on a node, and kubelet publishes them all the same.
pub(super) async fn two_pods_of_a_node_share_what_others_wait_for(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let first = rig.make_pod_volume("web", "node-1").await;
    let second = rig.make_pod_beside(&first, "beside", "node-1").await;
    let elsewhere = rig.make_pod_beside(&first, "elsewhere", "node-2").await;
    let claims = [rig.ask(&first, |_| {}).await, rig.ask(&second, |_| {}).await];
    for claim in &claims {
        rig.until_granted(claim).await;
    }
    let of = |claim: &String| rig.kept_claim(claim).unwrap().spec.assignment.clone().unwrap().attachment_uid;
    assert_eq!(of(&claims[0]), of(&claims[1]));
    let waits = rig.ask(&elsewhere, |_| {}).await;
    let said = rig.until_kept_claim_says(&waits, "Held").await;
    let holder = ["web", "beside"].iter().any(|pod| said.contains(&format!("for Pod default/{pod},")));
    assert!(holder && said.contains("on node node-1"), "{said}");

    // A use that the PersistentVolume does not list: the words are those of any claim.
    let listed = rig.make_pod_beside(&first, "block", "node-1").await;
    let block = rig
        .ask(&listed, |spec| {
            spec["attachmentMode"] = "BlockDevice".into();
            spec.as_object_mut().unwrap().remove("mountOptions");
        })
        .await;
    let said = rig.until_kept_claim_says(&block, "UseNotListed").await;
    assert!(said.contains("SingleNodeWriter/BlockDevice"), "{said}");
}

/// Its agent is told by that, and kubelet does not wait for its deadline.
pub(super) async fn a_claim_goes_with_the_pod_that_it_waits_for(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let first = rig.make_pod_volume("web", "node-1").await;
    let second = rig.make_pod_beside(&first, "waits", "node-2").await;
    let holds = rig.ask(&first, |_| {}).await;
    rig.until_granted(&holds).await;
    let waits = rig.ask(&second, |_| {}).await;
    rig.until_kept_claim_says(&waits, "Held").await;
    rig.remove_pod("waits").await;
    rig.until_kept_claim_gone(&waits).await;
    let gone = rig.make_pod_beside(&first, "gone", "node-2").await;
    rig.remove_pod("gone").await;
    let never = rig.ask(&gone, |_| {}).await;
    rig.until_kept_claim_gone(&never).await;
    assert!(rig.kept_claim(&holds).is_some_and(|claim| claim.metadata.deletion_timestamp.is_none()));
    // It is granted and waits for its mount, since no kubelet asks for that.
    rig.remove_pod("web").await;
    rig.until_kept_claim_gone(&holds).await;
}

/// The agent that made it is gone with the node, and with it the sweep that would find that its Pod is gone.
pub(super) async fn a_claim_goes_with_the_node_that_it_was_granted_on(cluster: Arc<Cluster>) {
    const LOST: &str = "node-2";
    let rig = Rig::start(&cluster, Options::default()).await;
    let pod = rig.make_pod_volume("web", LOST).await;
    let claim = rig.ask(&pod, |_| {}).await;
    rig.until_granted(&claim).await;
    rig.crash_node(LOST);
    rig.fake.backend().lost.insert(LOST.to_owned());
    rig.delete_node(LOST).await;
    rig.expire_lease(LOST).await;
    rig.until_kept_claim_gone(&claim).await;
    // Nobody uses the Volume any more.
    let (volumes, volume) = (rig.kept_volumes(), kept_volume(&pod.handle));
    volumes.delete(&volume, &DeleteParams::default()).await.unwrap();
    let gone = || async { volumes.get_opt(&volume).await.unwrap().is_none() };
    rig.poll("the Volume is gone", gone).await;
    rig.make_node(LOST).await;
    rig.boot_node(LOST, false);
    rig.until_served(LOST).await;
}

/// What another PersistentVolume says of the same storage, or the first one later, changes nothing: what it has the driver given
/// has to be the same, but for the provisioner's name. When the last one is gone, what uses the volume keeps it.
pub(super) async fn the_first_persistent_volume_of_a_handle_stands(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let first = rig.make_pod_volume("web", "node-1").await;
    let holds = rig.ask(&first, |_| {}).await;
    rig.until_granted(&holds).await;
    let before = rig.kept(&first.handle).unwrap();
    let attributes =
        json!({"storage.kubernetes.io/csiProvisionerIdentity": format!("1700000000000-1-{DRIVER}")});
    let csi = json!({
        "driver": DRIVER, "volumeHandle": first.handle, "fsType": "xfs", "volumeAttributes": attributes,
    });
    rig.cluster.bind("second", "second", &csi).await;
    let pod = rig.make_pod_beside(&first, "second", "node-1").await;
    // The Pod uses the second PersistentVolumeClaim.
    rig.remove_pod("second").await;
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "second"}}]);
    let made = rig.cluster.make_pod("second", "node-1", &volumes).await;
    let claim = rig
        .ask(&pod, |spec| {
            spec["pod"]["uid"] = made.metadata.uid.clone().unwrap().into();
            spec["pod"]["persistentVolume"] = "second".into();
        })
        .await;
    rig.until_granted(&claim).await;
    let after = rig.kept(&first.handle).unwrap();
    assert_eq!((&before.metadata.uid, &before.spec), (&after.metadata.uid, &after.spec));

    let all: Api<PersistentVolume> = Api::all(cluster.admin.clone());
    for name in ["web", "second"] {
        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        all.patch(name, &PatchParams::default(), &free).await.unwrap();
        all.delete(name, &DeleteParams::default()).await.unwrap();
    }
    // Somebody has taken away what Kubernetes keeps for as long as a Pod uses it: the volume stays, and says so.
    let said = || {
        let conditions = rig.kept(&first.handle)?.status.clone()?.conditions;
        let said = conditions.into_iter().find(|c| c.type_ == "PersistentVolume" && c.status == "False")?;
        (said.reason == "PersistentVolumeGone").then_some(())
    };
    let shows = || format!("{:?}", rig.kept(&first.handle));
    cluster.until("the Volume says that its PersistentVolume is gone", said, shows).await;
    let still = rig.kept(&first.handle).unwrap();
    assert!(still.metadata.deletion_timestamp.is_none());
    assert_eq!(still.metadata.name, Some(kept_volume(&first.handle)));
    assert!(rig.kept_claim(&claim).unwrap().spec.assignment.is_some());
    // When nobody uses it any more, it goes and leaves the storage.
    for claim in [&claim, &holds] {
        rig.kept_claims().delete(claim, &DeleteParams::default()).await.unwrap();
        rig.until_kept_claim_gone(claim).await;
    }
    let gone = || rig.kept(&first.handle).is_none().then_some(());
    cluster.until("the Volume is gone", gone, shows).await;
    assert!(rig.has_storage("web") && rig.count("web", Rpc::DeleteVolume) == 0);
}
