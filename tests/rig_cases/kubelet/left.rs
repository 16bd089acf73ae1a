//! What is there and nobody speaks of.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use kube::api::ListParams;
use moor::api::Attachment;
use moor::csi::Rpc;
use rustix::mount::mount_bind;
use tonic::Code;

use super::NODE;
use crate::rig::{Cluster, Fault, Options, Point, Rig, Side};

/// Of another CSI client, from before moor had the driver.
pub(super) async fn a_mount_in_no_record_is_unmounted_by_its_driver(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let kubelet = rig.kubelet(NODE).await;
    rig.make_volume_for_pods("data").await;
    let (target, staging) = (kubelet.target("pod-a", "data"), kubelet.staging("data"));
    for path in [&target, &staging] {
        fs::create_dir_all(path).unwrap();
        mount_bind(rig.fake.backend().content("data"), path).unwrap();
    }
    {
        let mut backend = rig.fake.backend();
        let volume = backend.volumes.get_mut("data").unwrap();
        volume.staged.insert(NODE.to_owned(), (staging.clone(), Vec::new()));
        volume.published.insert((NODE.to_owned(), target.clone()), Vec::new());
    }
    kubelet.unmount("pod-a", "data").await;
    assert_eq!(rig.count("data", Rpc::NodeUnpublishVolume), 1);
    kubelet.give_up("data").await;
    assert_eq!(rig.count("data", Rpc::NodeUnstageVolume), 1);
    rig.remove_for_pods("data").await;
}

/// kubelet has removed the Pod's folder and never called: a kubelet that lost its state, or a last word that it was given.
pub(super) async fn what_kubelet_has_forgotten_is_swept(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let kubelet = rig.kubelet(NODE).await;
    for key in ["data", "other"] {
        rig.make_volume_for_pods(key).await;
    }
    kubelet.mount("pod-b", "other").await;
    rig.fake.fail("data", Rpc::NodePublishVolume, Fault::CodeBefore(Code::Internal));
    let hasty = kubelet.within(Duration::from_secs(8));
    hasty.stage("data").await.unwrap();
    hasty.publish("pod-a", "data").await.unwrap_err();
    assert_eq!(rig.pod_claims().await.len(), 2);
    kubelet.forget("pod-a");
    // That of the Pod that is there stays.
    rig.poll("the claim goes", || async { rig.pod_claims().await.len() == 1 }).await;
    assert!(rig.pod_claims().await[0].spec.pod.as_ref().is_some_and(|pod| pod.name == "pod-b"));
    kubelet.unmount("pod-b", "other").await;
    for key in ["data", "other"] {
        kubelet.give_up(key).await;
    }
    rig.until_no_pod_claims().await;
    rig.remove_all_for_pods(&["data", "other"]).await;
}

/// Between the answer and the claim's deletion the agent dies, when the Attachment is gone. Nobody makes another one.
pub(super) async fn what_the_agent_has_forgotten_is_swept(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let kubelet = rig.kubelet(NODE).await;
    rig.make_volume_for_pods("data").await;
    kubelet.mount("pod-a", "data").await;
    let point = Point { actor: NODE.to_owned(), label: "DELETE volumeclaims".to_owned(), ordinal: 0 };
    let hit = rig.gate.arm(point.clone(), Side::Before);
    kubelet.unpublish("pod-a", "data").await.unwrap();
    rig.gate.reached(&point, hit).await;
    let all: Api<Attachment> = Api::all(rig.cluster.admin.clone());
    let none = || async { all.list(&ListParams::default()).await.unwrap().items.is_empty() };
    rig.poll("the Attachment goes", none).await;
    rig.kill(NODE);
    rig.gate.disarm();
    rig.run(NODE);
    kubelet.forget("pod-a");
    rig.until_no_pod_claims().await;
    for rpc in [Rpc::ControllerPublishVolume, Rpc::NodePublishVolume] {
        assert_eq!(rig.count("data", rpc), 1, "{rpc:?} again");
    }
    kubelet.give_up("data").await;
    rig.remove_for_pods("data").await;
}
