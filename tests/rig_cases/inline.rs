//! Volumes that Pods name themselves: `spec.volumes[].csi` with the driver moor.dev.

mod ordinal;

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::storage::v1::CSIDriver;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use moor::api::capability::{MountOptions, VolumeUse};
use moor::api::names::INLINE;
use moor::api::{AccessMode, AttachmentMode, FINALIZER, Plugin, VolumeClaim};
use moor::csi::Rpc;
use moor::csi::proto::csi::v1 as wire;
use moor::csi::proto::csi::v1::volume_capability::AccessType;
use prost::Message as _;
use serde_json::{Value, json};
use tonic::Code;

use crate::cases;
use crate::rig::{Case, Cluster, Kubelet, Options, Rig, SPACE, Wish, is_final, volume};

const NODE: &str = "node-1";
const OTHER: &str = "node-2";

pub const CASES: &[Case] = cases![
    a_pod_has_the_volume_that_it_names_and_leaves_nothing,
    it_is_mounted_as_the_volume_says,
    a_pod_ends_while_the_api_server_is_away,
    an_agent_that_starts_anew_goes_on,
    a_pod_waits_for_who_has_the_volume,
    what_a_pod_may_not_have_is_refused_before_any_call,
    whoever_has_an_agents_token_gets_nothing_by_it,
    it_is_served_while_any_driver_is,
    ordinal::each_pod_of_a_set_has_the_volume_of_its_ordinal,
    ordinal::a_pod_has_no_volume_of_another_ordinal,
];

/// As the chart makes it.
pub(crate) async fn announce(rig: &Rig) {
    let made = json!({
        "metadata": { "name": INLINE },
        "spec": { "attachRequired": false, "podInfoOnMount": true, "volumeLifecycleModes": ["Ephemeral"] },
    });
    let api: Api<CSIDriver> = Api::all(rig.cluster.admin.clone());
    api.create(&PostParams::default(), &serde_json::from_value(made).unwrap()).await.unwrap();
}

async fn start(cluster: &Arc<Cluster>) -> Arc<Rig> {
    let rig = Rig::start(cluster, Options { inline_volumes: true, ..Options::default() }).await;
    announce(&rig).await;
    rig
}

pub(crate) fn naming(name: &str) -> Wish {
    Wish { inline: Some(name.to_owned()), ..Wish::default() }
}

/// The kubelet of a node, whose Pods name a Volume.
pub(crate) async fn kubelet(rig: &Rig, node: &str, wish: Wish) -> Kubelet {
    let kubelet = rig.kubelet(node).await.wishing(wish);
    rig.until(&format!("kubelet of {node} finds the driver"), || async { kubelet.link() }).await;
    kubelet
}

async fn make(rig: &Rig, key: &str) {
    rig.make_volume(&volume(key)).await;
    rig.until_volume_ready(key).await;
}

/// The requests to publish that the driver got, in their order.
fn published(rig: &Rig, key: &str) -> Vec<wire::NodePublishVolumeRequest> {
    let calls = rig.journal.calls_of(key).into_iter().filter_map(|entry| entry.call().cloned());
    let calls = calls.filter(|call| call.rpc == Rpc::NodePublishVolume);
    calls.map(|call| wire::NodePublishVolumeRequest::decode(call.arguments.as_slice()).unwrap()).collect()
}

async fn claims(rig: &Rig) -> Vec<VolumeClaim> {
    rig.claim_api().list(&ListParams::default()).await.unwrap().items
}

async fn until_no_claims(rig: &Rig) {
    rig.until("no claim is left", || async { claims(rig).await.is_empty().then_some(()) }).await;
}

async fn a_pod_has_the_volume_that_it_names_and_leaves_nothing(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    let kubelet = kubelet(&rig, NODE, naming("data")).await;
    make(&rig, "data").await;
    let target = kubelet.mount("pod-a", "own").await;
    fs::write(target.join("word"), "kept").unwrap();
    assert_eq!(fs::read_to_string(rig.fake.backend().content("data").join("word")).unwrap(), "kept");
    assert!(!kubelet.stats("own", &target).await.unwrap().usage.is_empty());
    let made = claims(&rig).await;
    let [claim] = made.as_slice() else { panic!("{made:?}") };
    assert_eq!(claim.spec.pod.as_ref().unwrap().inline_volume.as_deref(), Some("own"));
    let calls = published(&rig, "data");
    let [call] = calls.as_slice() else { panic!("{calls:?}") };
    // A driver would take it for a volume that it is to make.
    assert!(!call.volume_context.keys().any(|key| key.starts_with("csi.storage.k8s.io/")), "{call:?}");

    // A second call for the same is answered by what is there.
    kubelet.publish("pod-a", "own").await.unwrap();
    assert_eq!(published(&rig, "data").len(), 1);
    // A second Pod shares what is staged.
    let second = kubelet.mount("pod-b", "own").await;
    assert_eq!(fs::read_to_string(second.join("word")).unwrap(), "kept");
    assert_eq!(rig.count("data", Rpc::NodeStageVolume), 1);

    for pod in ["pod-a", "pod-b"] {
        kubelet.unmount(pod, "own").await;
    }
    until_no_claims(&rig).await;
    rig.remove(&[""; 0], &["data"]).await;
}

/// kubelet brings neither flags nor Secrets for such a volume, and the namespace may choose none.
async fn it_is_mounted_as_the_volume_says(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    let secrets: Api<Secret> = Api::namespaced(cluster.admin.clone(), SPACE);
    let secret = json!({ "metadata": { "name": "credentials" }, "stringData": { "word": "open-sesame" } });
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    let mut strict = volume("data");
    let flags = ["nosuid", "noexec"].map(str::to_owned).to_vec();
    strict.spec.mount_options =
        Some(Box::new(MountOptions { mount_flags: flags.clone(), ..MountOptions::default() }));
    strict.spec.secrets = serde_json::from_value(json!({ "nodePublish": "credentials" })).unwrap();
    rig.make_volume(&strict).await;
    rig.until_volume_ready("data").await;
    rig.patch_plugin(json!({ "allow": { "parameterise": { "namespaces": ["other"] } } })).await;
    let kubelet = kubelet(&rig, NODE, naming("data")).await;
    let target = kubelet.mount("pod-a", "own").await;
    let calls = published(&rig, "data");
    let [call] = calls.as_slice() else { panic!("{} calls", calls.len()) };
    assert_eq!(call.secrets.get("word").map(String::as_str), Some("open-sesame"));
    let Some(AccessType::Mount(mount)) = call.volume_capability.as_ref().and_then(|c| c.access_type.as_ref())
    else {
        panic!("not as a file system")
    };
    assert_eq!(mount.mount_flags, flags);
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|line| line.contains(target.to_str().unwrap())).unwrap();
    assert!(line.contains("nosuid") && line.contains("noexec"), "{line}");
    kubelet.unmount("pod-a", "own").await;
    until_no_claims(&rig).await;
    rig.patch_plugin(json!({ "allow": { "parameterise": null } })).await;
    secrets.delete("credentials", &DeleteParams::default()).await.unwrap();
    rig.remove(&[""; 0], &["data"]).await;
}

async fn a_pod_ends_while_the_api_server_is_away(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    let kubelet = kubelet(&rig, NODE, naming("data")).await;
    make(&rig, "data").await;
    kubelet.mount("pod-a", "own").await;
    rig.take_the_api_server_from(NODE);
    kubelet.unmount("pod-a", "own").await;
    assert_eq!(claims(&rig).await.len(), 1, "nobody can have deleted it");
    rig.give_the_api_server_back_to(NODE);
    until_no_claims(&rig).await;
    rig.remove(&[""; 0], &["data"]).await;
}

async fn an_agent_that_starts_anew_goes_on(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    let kubelet = kubelet(&rig, NODE, naming("data")).await;
    make(&rig, "data").await;
    let link = kubelet.link();
    kubelet.mount("pod-a", "own").await;
    rig.restart_and_wait(NODE).await;
    kubelet.mount("pod-a", "own").await;
    assert_eq!(published(&rig, "data").len(), 1, "it was mounted all the time");
    rig.restart_and_wait(NODE).await;
    kubelet.unmount("pod-a", "own").await;
    assert_eq!(kubelet.link(), link);
    until_no_claims(&rig).await;
    rig.remove(&[""; 0], &["data"]).await;
}

async fn a_pod_waits_for_who_has_the_volume(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    let (here, there) =
        (kubelet(&rig, NODE, naming("data")).await, kubelet(&rig, OTHER, naming("data")).await);
    make(&rig, "data").await;
    here.mount("pod-a", "own").await;
    let hasty = there.within(Duration::from_secs(8));
    // On a slow machine the first call ends before the claim says it.
    rig.until("kubelet is told who has it", || async {
        let status = hasty.publish("pod-b", "own").await.unwrap_err();
        assert!(!is_final(status.code()), "{status}");
        status.message().contains("on node node-1").then_some(())
    })
    .await;
    // By a claim of its own somebody would stand behind.
    let waits = there.clone();
    let mounted = tokio::spawn(async move { waits.mount("pod-b", "own").await });
    here.unmount("pod-a", "own").await;
    mounted.await.unwrap();
    there.unmount("pod-b", "own").await;
    until_no_claims(&rig).await;
    rig.remove(&[""; 0], &["data"]).await;
}

async fn what_a_pod_may_not_have_is_refused_before_any_call(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    make(&rig, "data").await;
    let mut block = volume("block");
    block.spec.capabilities =
        vec![VolumeUse { attachment_mode: AttachmentMode::BlockDevice, ..VolumeUse::default() }];
    rig.make_volume(&block).await;
    rig.until_volume_ready("block").await;
    let mut reads = volume("reads");
    let reader = VolumeUse { access_mode: AccessMode::MultiNodeReader, ..VolumeUse::default() };
    reads.spec.capabilities = vec![reader];
    rig.make_volume(&reads).await;
    let more = |key: &str| [(key.to_owned(), "1Gi".to_owned())].into();
    let xfs = Wish { fs_type: "xfs".to_owned(), ..naming("typed") };
    let mut typed = volume("typed");
    typed.spec.mount_options =
        Some(Box::new(MountOptions { fs_type: Some("ext4".to_owned()), ..MountOptions::default() }));
    rig.make_volume(&typed).await;
    for (pod, wish, words) in [
        ("pod-a", naming("none"), "there is no Volume default/none"),
        ("pod-b", naming("block"), "lists no FileSystem"),
        ("pod-c", naming("reads"), "set readOnly: true"),
        ("pod-d", Wish { attributes: more("capacity"), ..naming("data") }, "remove capacity"),
        ("pod-e", xfs, "fsType is xfs"),
    ] {
        let kubelet = kubelet(&rig, NODE, wish).await;
        let status = kubelet.publish(pod, "own").await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
        assert!(status.message().contains(words), "{status}");
        kubelet.forget(pod);
    }
    assert!(claims(&rig).await.is_empty(), "a claim was made");
    for key in ["data", "block", "reads", "typed"] {
        assert_eq!(rig.count(key, Rpc::ControllerPublishVolume), 0, "{key}");
    }
    rig.remove(&[""; 0], &["data", "block", "reads", "typed"]).await;
}

/// A claim as an agent makes it, with any words.
fn forged(name: &str, volume: &str, pod: &Value) -> VolumeClaim {
    let metadata = json!({ "name": name, "namespace": SPACE, "finalizers": [FINALIZER] });
    let spec = json!({ "volumeName": volume, "nodeName": NODE, "pod": pod });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
}

async fn whoever_has_an_agents_token_gets_nothing_by_it(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    let kubelet = kubelet(&rig, NODE, naming("data")).await;
    for key in ["data", "theirs"] {
        make(&rig, key).await;
    }
    kubelet.take("pod-a", "own").await;
    let uid = kubelet.uid("pod-a");
    let rogue = rig.rogue(NODE).await;
    let name = |digit: u8| format!("pod-{uid}-{}", digit.to_string().repeat(16));
    let pod = |more: Value| {
        let mut pod = json!({ "namespace": SPACE, "name": "pod-a", "uid": uid });
        pod.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        pod
    };
    // Another Volume than the Pod names, and another volume of the Pod than the one that does.
    for (digit, volume, inline) in [(1, "theirs", "own"), (2, "data", "other")] {
        let claim = forged(&name(digit), volume, &pod(json!({ "inlineVolume": inline })));
        rogue.claims(SPACE).create(&PostParams::default(), &claim).await.unwrap();
        let said = rig.until_told(&name(digit), "Ready", "False", "PodNotEntitled").await;
        assert!(said.contains("does not name Volume"), "{said}");
    }
    // What says both, or neither, nobody keeps.
    for more in [json!({}), json!({ "inlineVolume": "own", "persistentVolume": "pv" })] {
        let claim = forged(&name(3), "data", &pod(more));
        let refused =
            rogue.claims(SPACE).create(&PostParams::default(), &claim).await.unwrap_err().to_string();
        assert!(refused.contains("either persistentVolume or inlineVolume"), "{refused}");
    }
    for digit in [1, 2] {
        rig.delete_claim(&name(digit)).await;
    }
    for key in ["data", "theirs"] {
        assert_eq!(rig.count(key, Rpc::ControllerPublishVolume), 0, "{key}");
    }
    rig.remove(&[""; 0], &["data", "theirs"]).await;
}

async fn it_is_served_while_any_driver_is(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    let kubelet = kubelet(&rig, NODE, naming("data")).await;
    make(&rig, "data").await;
    kubelet.mount("pod-a", "own").await;
    rig.patch_plugin(json!({ "kubernetes": { "enabled": false } })).await;
    // kubelet could not give up what the Pod has.
    rig.restart_and_wait(NODE).await;
    assert!(kubelet.link().is_some(), "ended under the Pod");
    kubelet.unmount("pod-a", "own").await;
    rig.until("the link is gone", || async { kubelet.link().is_none().then_some(()) }).await;
    rig.patch_plugin(json!({ "kubernetes": { "enabled": true } })).await;
    rig.until("the link is back", || async { kubelet.link() }).await;

    // No Plugin may have its name.
    let plugins: Api<Plugin> = Api::all(rig.cluster.admin.clone());
    for (name, driver) in [(INLINE, Value::Null), ("other", json!({ "driverName": INLINE }))] {
        let spec = json!({ "kubernetes": driver });
        let made =
            json!({ "metadata": { "name": name }, "spec": if driver.is_null() { json!({}) } else { spec } });
        let made: Plugin = serde_json::from_value(made).unwrap();
        let refused = plugins.create(&PostParams::default(), &made).await.unwrap_err().to_string();
        assert!(refused.contains("spec.kubernetes.driverName"), "{refused}");
    }
    until_no_claims(&rig).await;
    rig.remove(&[""; 0], &["data"]).await;
}
