//! What else can go wrong around kubelet's calls, and that it ends well.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use moor::api::ClaimState;
use moor::csi::Rpc;
use moor::csi::proto::csi::v1 as wire;
use prost::Message as _;
use serde_json::json;
use tonic::Code;

use super::NODE;
use super::plain::identity;
use crate::rig::{Cluster, Fault, Kubelet, NAMESPACE, Options, Point, Rig, Side, Wish, is_final};

/// The node that the Pods of the others are on; it attaches.
const OTHER: &str = "node-1";
/// Pods that start at the same time.
const MANY: usize = 12;
/// The Secret with which a volume is staged.
const KEY: &str = "storage-key";

async fn end(rig: &Rig, kubelet: &Kubelet, keys: &[&str]) {
    for key in keys {
        kubelet.give_up(key).await;
    }
    rig.remove_all_for_pods(keys).await;
}

/// The states of all claims of Pods.
async fn states(rig: &Rig) -> Vec<ClaimState> {
    let claims = rig.pod_claims().await;
    claims.into_iter().map(|claim| claim.status.unwrap_or_default().state).collect()
}

pub(super) async fn giving_up_waits_for_the_claim_that_is_being_made(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let kubelet = rig.kubelet(NODE).await;
    rig.make_volume_for_pods("data").await;
    for (pod, side) in [("pod-a", Side::Before), ("pod-b", Side::After)] {
        let point = Point { actor: NODE.to_owned(), label: "POST volumeclaims".to_owned(), ordinal: 0 };
        let hit = rig.gate.arm(point.clone(), side);
        kubelet.stage("data").await.unwrap();
        let waiting = tokio::spawn({
            let kubelet = kubelet.clone();
            async move { kubelet.publish(pod, "data").await }
        });
        rig.gate.reached(&point, hit).await;
        // Its answer comes 5 s before this.
        let hasty = kubelet.within(Duration::from_secs(6));
        let status = hasty.unpublish(pod, "data").await.unwrap_err();
        assert!(!is_final(status.code()), "{status}");
        rig.gate.release();
        let status = waiting.await.unwrap().unwrap_err();
        assert_eq!(status.code(), Code::Aborted, "{status}");
        kubelet.unmount(pod, "data").await;
        rig.until_no_pod_claims().await;
    }
    assert_eq!(rig.count("data", Rpc::NodePublishVolume), 0, "published for nobody");
    end(&rig, &kubelet, &["data"]).await;
}

pub(super) async fn calls_that_no_agent_answers_are_made_again(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let kubelet = rig.kubelet(NODE).await;
    rig.make_volume_for_pods("data").await;
    let before = identity(&kubelet);
    rig.stop(NODE).await;
    let status = kubelet.publish("pod-a", "data").await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    rig.run(NODE);
    kubelet.mount("pod-a", "data").await;
    rig.stop(NODE).await;
    let status = kubelet.unpublish("pod-a", "data").await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    rig.run(NODE);
    kubelet.unmount("pod-a", "data").await;
    assert_eq!(identity(&kubelet), before, "kubelet would register another one");
    end(&rig, &kubelet, &["data"]).await;
}

/// As when the DaemonSet is rolled.
pub(super) async fn an_agent_is_replaced_while_many_pods_start(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let kubelet = rig.kubelet(NODE).await;
    let before = identity(&kubelet);
    let keys: Vec<String> = (0..MANY).map(|n| format!("data-{n}")).collect();
    for key in &keys {
        rig.make_volume_for_pods(key).await;
    }
    let starting: Vec<_> = keys
        .iter()
        .cloned()
        .map(|key| {
            let kubelet = kubelet.clone();
            tokio::spawn(async move { kubelet.mount(&format!("pod-{key}"), &key).await })
        })
        .collect();
    let some = || (rig.count(&keys[0], Rpc::NodeStageVolume) > 0).then_some(());
    cluster.until("one is being mounted", some, || rig.story(&keys[0])).await;
    rig.restart(NODE);
    rig.restart_and_wait(NODE).await;
    for started in join_all(starting).await {
        fs::write(started.unwrap().join("word"), "mounted").unwrap();
    }
    assert_eq!(states(&rig).await, [ClaimState::Ready; MANY]);
    assert_eq!(identity(&kubelet), before, "kubelet would register another one");
    for key in &keys {
        kubelet.unmount(&format!("pod-{key}"), key).await;
    }
    end(&rig, &kubelet, &keys.iter().map(String::as_str).collect::<Vec<_>>()).await;
}

/// Nothing is mounted for a Pod that kubelet may not have any more.
pub(super) async fn after_a_reboot_a_volume_is_published_when_kubelet_asks(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let kubelet = rig.kubelet(NODE).await;
    for (pod, key) in [("pod-a", "data"), ("pod-b", "other")] {
        rig.make_volume_for_pods(key).await;
        kubelet.mount(pod, key).await;
    }
    assert_eq!(states(&rig).await, [ClaimState::Ready; 2]);
    rig.crash_node(NODE);
    rig.boot_node(NODE, false);
    rig.poll("no claim is Ready", || async {
        states(&rig).await.iter().all(|state| *state != ClaimState::Ready)
    })
    .await;
    // It does not come back.
    kubelet.forget("pod-b");
    rig.poll("the claim of the Pod that is gone goes", || async { rig.pod_claims().await.len() == 1 }).await;
    assert_eq!(rig.count("data", Rpc::NodePublishVolume), 1, "published for nobody");
    let target = kubelet.mount("pod-a", "data").await;
    fs::write(target.join("word"), "mounted").unwrap();
    assert_eq!(rig.count("data", Rpc::NodePublishVolume), 2);
    assert_eq!(rig.count("other", Rpc::NodePublishVolume), 1);
    kubelet.unmount("pod-a", "data").await;
    end(&rig, &kubelet, &["data", "other"]).await;
}

/// Its Pod runs elsewhere by now.
pub(super) async fn a_lost_node_that_is_back_gives_up_what_its_pods_had(cluster: Arc<Cluster>) {
    give_up_after_a_loss(cluster, false).await;
}

/// Until kubelet ends it. What kubelet has released comes before all looks at the API server.
pub(super) async fn a_lost_node_that_is_back_gives_up_what_a_pod_goes_on_using(cluster: Arc<Cluster>) {
    give_up_after_a_loss(cluster, true).await;
}

async fn give_up_after_a_loss(cluster: Arc<Cluster>, goes_on: bool) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let kubelet = rig.kubelet(NODE).await;
    let elsewhere = rig.kubelet(OTHER).await;
    rig.make_volume_for_pods("data").await;
    let old = kubelet.mount("pod-a", "data").await;
    fs::write(old.join("word"), "kept").unwrap();
    let user = goes_on.then(|| fs::File::open(old.join("word")).unwrap());
    rig.kill(NODE);
    rig.fake.stop(NODE, &rig.plugin_dir(NODE));
    rig.fake.backend().lost.insert(NODE.to_owned());
    rig.expire_lease(NODE).await;
    rig.mark_out_of_service(NODE, true).await;
    let target = elsewhere.mount("pod-b", "data").await;
    assert_eq!(fs::read_to_string(target.join("word")).unwrap(), "kept");

    rig.mark_out_of_service(NODE, false).await;
    rig.fake.serve(NODE, &rig.plugin_dir(NODE), false);
    rig.run(NODE);
    if goes_on {
        // More than once: it has found out what became of the Attachment.
        let tried = || async { rig.count("data", Rpc::NodeUnpublishVolume) > 1 };
        rig.poll("the driver is asked to unmount", tried).await;
        drop(user);
    } else {
        // kubelet's own cleaning up finds nothing to do.
        rig.poll("the old mount is gone", || async { !old.join("word").exists() }).await;
    }
    kubelet.unmount("pod-a", "data").await;
    kubelet.give_up("data").await;
    rig.poll("the claim of the node goes", || async { rig.pod_claims().await.len() == 1 }).await;
    assert_eq!(fs::read_to_string(target.join("word")).unwrap(), "kept");
    elsewhere.unmount("pod-b", "data").await;
    end(&rig, &elsewhere, &["data"]).await;
}

/// kubelet takes the volume for staged and does not send the Secret again.
pub(super) async fn a_secret_that_went_with_the_agent_is_named(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let secrets = [("password".to_owned(), "correct horse".to_owned())];
    let wish = Wish { stage_secrets: secrets.clone().into(), ..Wish::default() };
    let kubelet = rig.kubelet(NODE).await.wishing(wish);
    make_with_secret(&rig).await;
    kubelet.stage("data").await.unwrap();
    rig.restart_and_wait(NODE).await;
    let hasty = kubelet.within(Duration::from_secs(10));
    let status = hasty.publish("pod-a", "data").await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(status.message().contains(KEY), "{status}");
    assert_eq!(rig.count("data", Rpc::NodeStageVolume), 0, "staged without its Secret");
    // The Pod is deleted, and another one comes.
    kubelet.unmount("pod-a", "data").await;
    kubelet.give_up("data").await;
    kubelet.mount("pod-b", "data").await;
    assert_eq!(staged_with(&rig), [BTreeMap::from(secrets)]);
    kubelet.unmount("pod-b", "data").await;
    end(&rig, &kubelet, &["data"]).await;
}

/// The Secrets of all calls to stage.
fn staged_with(rig: &Rig) -> Vec<BTreeMap<String, String>> {
    let calls = rig.journal.calls_of("data").into_iter().filter_map(|entry| entry.call().cloned());
    let staged = calls.filter(|call| call.rpc == Rpc::NodeStageVolume);
    staged
        .map(|call| wire::NodeStageVolumeRequest::decode(call.arguments.as_slice()).unwrap())
        .map(|request| BTreeMap::clone(&request.secrets))
        .collect()
}

/// The rig's agents may read Secrets.
pub(super) async fn a_secret_that_went_with_the_agent_is_read_where_it_may_be(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let kept: Api<Secret> = Api::namespaced(cluster.admin.clone(), NAMESPACE);
    let secret = json!({"metadata": {"name": KEY}, "stringData": {"password": "correct horse"}});
    kept.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    let secrets = [("password".to_owned(), "correct horse".to_owned())];
    let wish = Wish { stage_secrets: secrets.clone().into(), ..Wish::default() };
    let kubelet = rig.kubelet(NODE).await.wishing(wish);
    make_with_secret(&rig).await;
    kubelet.stage("data").await.unwrap();
    rig.restart_and_wait(NODE).await;
    // kubelet does not stage again: what is asked for is a publication alone.
    rig.poll("it is published", || async { kubelet.publish("pod-a", "data").await.is_ok() }).await;
    assert_eq!(staged_with(&rig), [BTreeMap::from(secrets)]);
    kubelet.unmount("pod-a", "data").await;
    end(&rig, &kubelet, &["data"]).await;
    kept.delete(KEY, &DeleteParams::default()).await.unwrap();
}

/// kubelet was answered when it had the volume staged, and does not read the Secret again.
pub(super) async fn a_secret_that_is_put_right_is_used(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let wrong = [("password".to_owned(), "battery".to_owned())];
    let wish = Wish { stage_secrets: wrong.clone().into(), ..Wish::default() };
    let kubelet = rig.kubelet(NODE).await.wishing(wish);
    make_with_secret(&rig).await;
    rig.fake.fail("data", Rpc::NodeStageVolume, Fault::CodeBefore(Code::Unauthenticated));
    let hasty = kubelet.within(Duration::from_secs(8));
    kubelet.stage("data").await.unwrap();
    rig.poll("it is refused by the driver", || async {
        hasty.publish("pod-a", "data").await.unwrap_err();
        !staged_with(&rig).is_empty()
    })
    .await;
    // Without the Secret, and where it may not be read, what kubelet brought is all there is.
    assert!(staged_with(&rig).iter().all(|secrets| *secrets == BTreeMap::from(wrong.clone())));
    let kept: Api<Secret> = Api::namespaced(cluster.admin.clone(), NAMESPACE);
    let secret = json!({"metadata": {"name": KEY}, "stringData": {"password": "correct horse"}});
    kept.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    // The call before this one may have been on its way when the Secret was made.
    let right = BTreeMap::from([("password".to_owned(), "correct horse".to_owned())]);
    let with_it = || (staged_with(&rig).last() == Some(&right)).then_some(());
    let heal = async {
        cluster.until("the Secret is brought", with_it, || rig.story("data")).await;
        rig.fake.heal("data", Rpc::NodeStageVolume);
    };
    let published = rig.poll("it is published", || async { kubelet.publish("pod-a", "data").await.is_ok() });
    tokio::join!(heal, published);
    assert_eq!(staged_with(&rig).last(), Some(&right));
    kubelet.unmount("pod-a", "data").await;
    end(&rig, &kubelet, &["data"]).await;
    kept.delete(KEY, &DeleteParams::default()).await.unwrap();
}

/// A volume that is staged with the Secret [`KEY`].
async fn make_with_secret(rig: &Rig) {
    rig.make_volume_for_pods_with("data", |spec| {
        spec.secrets = Some(
            moor::api::secrets::SecretRefs { node_stage: Some(KEY.to_owned()), ..Default::default() }.into(),
        );
    })
    .await;
}

pub(super) async fn a_volume_whose_driver_hangs_holds_up_no_other(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options { longest_call: 60, ..Options::default() }).await;
    let kubelet = rig.kubelet(NODE).await;
    for key in ["hangs", "runs"] {
        rig.make_volume_for_pods(key).await;
    }
    rig.fake.hold("hangs", Rpc::NodeStageVolume);
    let waiting = tokio::spawn({
        let kubelet = kubelet.clone();
        async move { kubelet.mount("pod-a", "hangs").await }
    });
    let called = || (rig.count("hangs", Rpc::NodeStageVolume) > 0).then_some(());
    cluster.until("the driver hangs", called, || rig.story("hangs")).await;
    kubelet.mount("pod-b", "runs").await;
    kubelet.unmount("pod-b", "runs").await;
    kubelet.give_up("runs").await;
    assert!(!waiting.is_finished());
    rig.fake.let_go("hangs", Rpc::NodeStageVolume);
    waiting.await.unwrap();
    kubelet.unmount("pod-a", "hangs").await;
    end(&rig, &kubelet, &["hangs", "runs"]).await;
}

pub(super) async fn a_target_in_use_is_not_given_up(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let kubelet = rig.kubelet(NODE).await;
    rig.make_volume_for_pods("data").await;
    let target = kubelet.mount("pod-a", "data").await;
    let open = File::create(target.join("word")).unwrap();
    let hasty = kubelet.within(Duration::from_secs(8));
    let status = hasty.unpublish("pod-a", "data").await.unwrap_err();
    assert!(!is_final(status.code()), "{status}");
    assert_eq!(rig.pod_claims().await.len(), 1, "its claim is the lock");
    // kubelet puts it on the Pod, which is Terminating.
    rig.poll("kubelet is told why", || async {
        hasty.unpublish("pod-a", "data").await.unwrap_err().message().contains("busy")
    })
    .await;
    drop(open);
    kubelet.unmount("pod-a", "data").await;
    end(&rig, &kubelet, &["data"]).await;
}
