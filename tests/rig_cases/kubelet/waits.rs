//! Calls of kubelet's that wait, and how they end.

use std::sync::Arc;
use std::time::Duration;

use kube::api::DeleteParams;
use moor::csi::Rpc;
use tonic::Code;

use super::NODE;
use crate::rig::fake::WORDS;
use crate::rig::{Cluster, Fault, Kubelet, Options, Rig, condition, is_final};

/// Pods are called what their UIDs are.
async fn staging(rig: &Rig) {
    let is = || (rig.count("data", Rpc::NodeStageVolume) > 0).then_some(());
    rig.cluster.until("the volume is being staged", is, || rig.story("data")).await;
}

async fn gone(rig: &Rig, kubelet: &Kubelet, pods: &[&str]) {
    for pod in pods {
        kubelet.unmount(pod, "data").await;
    }
    kubelet.give_up("data").await;
    rig.remove_for_pods("data").await;
}

/// kubelet removes what is at the path when it is told that nothing is.
pub(super) async fn staging_ends_with_the_last_pod(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let kubelet = rig.kubelet(NODE).await;
    rig.make_volume_for_pods("data").await;
    kubelet.mount("pod-a", "data").await;
    // Its answer comes 5 s before this.
    let hasty = kubelet.within(Duration::from_secs(7));
    let status = hasty.unstage("data").await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert_eq!(rig.count("data", Rpc::NodeUnstageVolume), 0);

    rig.fake.hold("data", Rpc::NodeUnstageVolume);
    kubelet.unmount("pod-a", "data").await;
    let ending = tokio::spawn({
        let kubelet = kubelet.clone();
        async move { kubelet.unstage("data").await }
    });
    let called = || (rig.count("data", Rpc::NodeUnstageVolume) == 1).then_some(());
    cluster.until("the volume is being unstaged", called, || rig.story("data")).await;
    assert!(!ending.is_finished(), "answered while it is staged");
    rig.fake.let_go("data", Rpc::NodeUnstageVolume);
    ending.await.unwrap().unwrap();
    assert!(rig.fake.backend().volumes["data"].staged.is_empty());
    rig.remove_for_pods("data").await;
}

pub(super) async fn a_claim_that_is_deleted_ends_the_call(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let kubelet = rig.kubelet(NODE).await;
    rig.make_volume_for_pods("data").await;
    rig.fake.hold("data", Rpc::NodeStageVolume);
    kubelet.stage("data").await.unwrap();
    let waiting = tokio::spawn({
        let kubelet = kubelet.clone();
        async move { kubelet.publish("pod-a", "data").await }
    });
    staging(&rig).await;
    let claims = rig.pod_claims().await;
    let name = claims[0].metadata.name.as_deref().unwrap();
    rig.claims_for_pods().delete(name, &DeleteParams::default()).await.unwrap();
    let status = waiting.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Aborted, "{status}");
    rig.fake.let_go("data", Rpc::NodeStageVolume);
    gone(&rig, &kubelet, &["pod-a"]).await;
}

/// kubelet asks again, and by then another Volume may have the storage, as when its PersistentVolume was written anew.
pub(super) async fn a_volume_that_is_being_deleted_ends_the_call(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let kubelet = rig.kubelet(NODE).await;
    rig.make_volume_for_pods("data").await;
    kubelet.mount("pod-a", "data").await;
    rig.kept_volumes().delete("data", &DeleteParams::default()).await.unwrap();
    let status = kubelet.publish("pod-b", "data").await.unwrap_err();
    assert_eq!(status.code(), Code::Aborted, "{status}");
    assert!(status.message().contains("Volume data is being deleted"), "{status}");
    let alone = || async { rig.pod_claims().await.len() == 1 };
    rig.poll("only the claim of the Pod that has the volume is left", alone).await;
    // The Volume goes with that claim, and would leave its storage to the PersistentVolume.
    cluster.remove_persistent_volumes().await;
    gone(&rig, &kubelet, &["pod-a", "pod-b"]).await;
}

/// Until it does, kubelet does nothing else with the volume on its node. What is mounted is kubelet's to give up: containers
/// may be at work.
pub(super) async fn a_call_ends_with_its_pod(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let kubelet = rig.kubelet(NODE).await;
    rig.make_volume_for_pods("data").await;
    rig.fake.hold("data", Rpc::ControllerPublishVolume);
    kubelet.stage("data").await.unwrap();
    let waiting = tokio::spawn({
        let kubelet = kubelet.clone();
        async move { kubelet.publish("pod-a", "data").await }
    });
    let called = || (rig.count("data", Rpc::ControllerPublishVolume) > 0).then_some(());
    cluster.until("the volume is being attached", called, || rig.story("data")).await;
    rig.remove_pod("pod-a").await;
    let status = waiting.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Aborted, "{status}");
    // What kubelet calls next is answered while the driver is at it.
    kubelet.unmount("pod-a", "data").await;
    rig.fake.let_go("data", Rpc::ControllerPublishVolume);

    kubelet.mount("pod-b", "data").await;
    rig.remove_pod("pod-b").await;
    // Whatever was due about the first claim came before the grant of this one.
    kubelet.mount("pod-c", "data").await;
    let claims = rig.pod_claims().await;
    assert_eq!(claims.len(), 2);
    assert!(claims.iter().all(|claim| claim.metadata.deletion_timestamp.is_none()));
    gone(&rig, &kubelet, &["pod-b", "pod-c"]).await;
}

/// In an Event on the Pod while the call waits, and in what kubelet makes of its end.
pub(super) async fn a_pod_is_told_who_has_its_volume(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let (kubelet, elsewhere) = (rig.kubelet(NODE).await, rig.kubelet("node-1").await);
    rig.make_volume_for_pods("data").await;
    kubelet.mount("pod-a", "data").await;
    let held = rig.pod_claims().await.into_iter().find(|claim| claim.spec.node_name.as_deref() == Some(NODE));
    let ready = condition(&held.unwrap().status.unwrap().conditions).unwrap().last_transition_time.0;
    let words = [format!("for Pod default/pod-a, on node {NODE}"), format!("Held since {ready}")];
    elsewhere.stage("data").await.unwrap();
    let waiting = tokio::spawn({
        let elsewhere = elsewhere.clone();
        async move { elsewhere.publish("pod-b", "data").await }
    });
    for words in &words {
        rig.until_event("pod-b", "WaitsForVolume", words).await;
    }
    assert!(!waiting.is_finished(), "{:?}", waiting.await);
    waiting.abort();
    // Its answer comes 5 s before this.
    let hasty = elsewhere.within(Duration::from_secs(12));
    let status = hasty.publish("pod-b", "data").await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    for words in &words {
        assert!(status.message().contains(words), "{words}: {status}");
    }
    assert_eq!(rig.count("data", Rpc::ControllerPublishVolume), 1, "attached for both");
    kubelet.unmount("pod-a", "data").await;
    kubelet.give_up("data").await;
    elsewhere.mount("pod-b", "data").await;
    gone(&rig, &elsewhere, &["pod-b"]).await;
}

/// In an Event while the call waits, and in what kubelet makes of its end (FailedMount).
pub(super) async fn what_the_driver_says_reaches_the_pod(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let kubelet = rig.kubelet(NODE).await;
    // Its answer comes 5 s before this.
    let hasty = kubelet.within(Duration::from_secs(8));
    for (number, rpc) in
        [Rpc::ControllerPublishVolume, Rpc::NodeStageVolume, Rpc::NodePublishVolume].into_iter().enumerate()
    {
        let (pod, volume) = (format!("pod-{number}"), format!("data-{number}"));
        rig.make_volume_for_pods(&volume).await;
        rig.fake.fail(&volume, rpc, Fault::CodeBefore(Code::Internal));
        hasty.stage(&volume).await.unwrap();
        let words = format!("Internal: {WORDS}");
        // kubelet calls again and again, and the first of its calls may end before the driver is asked.
        rig.poll(&format!("kubelet is told of {rpc:?}"), || async {
            let was_asked = rig.count(&volume, rpc) > 0;
            let status = hasty.publish(&pod, &volume).await.unwrap_err();
            assert!(!is_final(status.code()), "{rpc:?}: {status}");
            let is_told = [rpc.name(), &words].iter().all(|words| status.message().contains(words));
            assert!(is_told || !was_asked, "{rpc:?}: {status}");
            is_told
        })
        .await;
        rig.until_event(&pod, "WaitsForVolume", &words).await;
        rig.fake.heal(&volume, rpc);
        kubelet.mount(&pod, &volume).await;
        kubelet.unmount(&pod, &volume).await;
        kubelet.give_up(&volume).await;
        rig.remove_for_pods(&volume).await;
    }
}

/// As from a kubelet that was started anew in between.
pub(super) async fn giving_up_ends_the_call_that_waits(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let kubelet = rig.kubelet(NODE).await;
    rig.make_volume_for_pods("data").await;
    rig.fake.hold("data", Rpc::NodeStageVolume);
    kubelet.stage("data").await.unwrap();
    let waiting = tokio::spawn({
        let kubelet = kubelet.clone();
        async move { kubelet.publish("pod-a", "data").await }
    });
    staging(&rig).await;
    let ending = tokio::spawn({
        let kubelet = kubelet.clone();
        async move { kubelet.unmount("pod-a", "data").await }
    });
    let status = waiting.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Aborted, "{status}");
    rig.fake.let_go("data", Rpc::NodeStageVolume);
    ending.await.unwrap();
    assert_eq!(rig.count("data", Rpc::NodePublishVolume), 0, "published for nobody");
    gone(&rig, &kubelet, &[]).await;
}

/// kubelet's 2 minutes end, and the driver is still at it.
pub(super) async fn a_stage_beyond_the_deadline_is_repeated_as_it_was(cluster: Arc<Cluster>) {
    let options = Options { longest_call: 3, ..Options::default() };
    let rig = Rig::start(&cluster, options).await;
    let kubelet = rig.kubelet(NODE).await;
    rig.make_volume_for_pods("data").await;
    rig.fake.fail("data", Rpc::NodeStageVolume, Fault::HangAfter);
    let hasty = kubelet.within(Duration::from_secs(7));
    hasty.stage("data").await.unwrap();
    rig.poll("a call ends while the driver stages", || async {
        let status = hasty.publish("pod-a", "data").await.unwrap_err();
        assert!(!is_final(status.code()), "{status}");
        rig.count("data", Rpc::NodeStageVolume) > 0
    })
    .await;
    rig.fake.heal("data", Rpc::NodeStageVolume);
    kubelet.mount("pod-a", "data").await;
    let stages = rig.journal.calls_of("data").into_iter().filter_map(|entry| entry.call().cloned());
    let mut stages: Vec<_> =
        stages.filter(|call| call.rpc == Rpc::NodeStageVolume).map(|call| call.arguments).collect();
    assert!(stages.len() > 1, "it was not repeated");
    stages.dedup();
    assert_eq!(stages.len(), 1, "repeated with other arguments");
    gone(&rig, &kubelet, &["pod-a"]).await;
}

/// After such a word kubelet never calls NodeUnpublishVolume, whatever there is.
pub(super) async fn no_last_word_while_there_is_a_claim(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let kubelet = rig.kubelet(NODE).await;
    rig.make_volume_for_pods("data").await;
    let hasty = kubelet.within(Duration::from_secs(8));
    for rpc in [Rpc::NodeStageVolume, Rpc::NodePublishVolume] {
        for code in [Code::InvalidArgument, Code::FailedPrecondition, Code::Internal, Code::NotFound] {
            rig.fake.fail("data", rpc, Fault::CodeBefore(code));
            hasty.stage("data").await.unwrap();
            let status = hasty.publish("pod-a", "data").await.unwrap_err();
            assert!(!is_final(status.code()), "{rpc} {code:?}: {status}");
        }
        rig.fake.heal("data", rpc);
    }
    // What is wrong with the request itself is no last word either by now.
    assert_eq!(rig.pod_claims().await.len(), 1);
    let mut unnamed = kubelet.publication("pod-a", "data");
    unnamed.volume_context.clear();
    let status = kubelet.send(unnamed).await.unwrap_err();
    assert!(!is_final(status.code()), "{status}");
    gone(&rig, &kubelet, &["pod-a"]).await;
}
