//! Volumes that have grown, on the nodes of their claims: NodeExpandVolume.

mod crashes;
mod refused;
mod unused;

use std::sync::Arc;

use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use moor::api::capability::VolumeUse;
use moor::api::conditions::EXPANDED;
use moor::api::{AccessMode, Attachment, AttachmentMode, Volume};
use moor::csi::Rpc;
use moor::csi::proto::csi::v1::NodeExpandVolumeRequest;
use moor::csi::proto::csi::v1::volume_capability::AccessType;
use prost::Message as _;
use serde_json::json;

use crate::cases;
use crate::inline::{announce, kubelet, naming};
use crate::rig::fake::backend::{Expand, Medium};
use crate::rig::{Case, Cluster, Disk, Options, Rig, volume, volume_claim};

const MI: i64 = 1 << 20;
const NODE: &str = "node-2";
const OTHER: &str = "node-1";
const NO_CLAIM: [&str; 0] = [];

/// The cases of this module.
pub const CASES: &[Case] = cases![
    a_volume_in_use_follows_once_for_all_claims_of_the_node,
    each_node_that_has_it_follows,
    a_driver_that_grows_on_nodes_alone_is_asked_there,
    a_driver_whose_nodes_have_nothing_to_do_is_not_asked,
    a_device_follows_too,
    a_pod_that_names_the_volume_has_it_grown,
    what_only_pods_have_by_claims_is_left_to_kubelet,
    unused::an_unused_volume_follows_for_the_next_claim,
    unused::what_lingers_follows_when_it_is_joined,
    unused::a_driver_that_grows_what_is_unused_is_asked_at_the_next_mount,
    unused::who_only_reads_does_not_make_it_follow,
    refused::a_growth_that_is_refused_takes_nothing_away_and_blocks_nobody,
    refused::a_size_that_cannot_be_had_may_be_lowered,
    refused::a_claim_that_leaves_waits_for_the_end_of_the_call,
    refused::a_secret_that_is_missing_is_said,
    crashes::the_leader_and_the_agent_may_die_at_every_step,
    crashes::an_agent_that_dies_in_the_call_repeats_it,
];

async fn start(cluster: &Arc<Cluster>, expand: Expand) -> Arc<Rig> {
    // A call that is held back is not to end by its deadline.
    Rig::start(cluster, Options { expand, longest_call: 60, ..Options::default() }).await
}

/// A Volume `v` that is ready.
async fn make(rig: &Rig) {
    rig.make_volume(&volume("v")).await;
    rig.until_volume_ready("v").await;
}

/// Makes a claim of the Volume `v` and waits until it is Ready.
async fn claim(rig: &Rig, name: &str, node: &str) -> String {
    rig.make_claim(&volume_claim(name, "v", node)).await;
    rig.until_ready(name).await
}

async fn leave(rig: &Rig, name: &str) {
    rig.delete_claim(name).await;
    rig.until_claim_gone(name).await;
}

async fn raise(rig: &Rig, key: &str, size: &str) -> Result<Volume, kube::Error> {
    let patch = Patch::Merge(json!({ "spec": { "capacity": size } }));
    rig.volume_api().patch(key, &PatchParams::default(), &patch).await
}

/// Waits until a Volume says this of its growth with all these words, and returns what it says.
async fn until_says(rig: &Rig, key: &str, reason: &str, words: &[&str]) -> String {
    let look = || {
        let volume = rig.cluster.volume(key)?;
        let said = volume.status.clone()?.conditions.into_iter().find(|c| c.type_ == EXPANDED)?;
        let is_new = said.observed_generation == volume.metadata.generation;
        let is_said = said.reason == reason && words.iter().all(|word| said.message.contains(word));
        (is_new && is_said).then_some(said.message)
    };
    rig.cluster.until(&format!("Volume {key} says {reason} {words:?}"), look, || rig.story(key)).await
}

async fn until_grown(rig: &Rig, key: &str, size: &str) {
    until_says(rig, key, "Expanded", &[size]).await;
    let status = rig.volume_api().get(key).await.unwrap().status.unwrap();
    assert_eq!(status.capacity.as_deref(), Some(size));
}

/// The requests that the driver got.
fn asked(rig: &Rig, key: &str) -> Vec<NodeExpandVolumeRequest> {
    let calls = rig.journal.calls_of(key).into_iter().filter_map(|entry| entry.call().cloned());
    let calls = calls.filter(|call| call.rpc == Rpc::NodeExpandVolume);
    calls.map(|call| NodeExpandVolumeRequest::decode(call.arguments.as_slice()).unwrap()).collect()
}

/// Which of these calls the driver got, in their order.
fn trace(rig: &Rig, of: &[Rpc]) -> Vec<&'static str> {
    let names: Vec<_> = of.iter().map(|rpc| rpc.name()).collect();
    rig.journal.trace_of("v").into_iter().filter(|name| names.contains(name)).collect()
}

async fn end(rig: &Rig, claims: &[&str]) {
    rig.remove(claims, &["v"]).await;
    rig.fake.assert_obeyed();
    rig.assert_nothing_left().await;
}

async fn a_volume_in_use_follows_once_for_all_claims_of_the_node(cluster: Arc<Cluster>) {
    let rig = start(&cluster, Expand::AndNodes).await;
    rig.patch_plugin(json!({ "toleratesSecondTarget": true })).await;
    make(&rig).await;
    let paths = [claim(&rig, "c", NODE).await, claim(&rig, "d", NODE).await];
    raise(&rig, "v", "3Mi").await.unwrap();
    until_grown(&rig, "v", "3Mi").await;
    let requests = asked(&rig, "v");
    let [request] = requests.as_slice() else { panic!("{requests:?}") };
    assert_eq!(request.volume_id, "vol-v");
    assert_eq!(request.capacity_range.unwrap().required_bytes, 3 * MI);
    assert!(paths.iter().any(|path| request.volume_path.ends_with(path.as_str())), "{request:?}");
    assert!(!request.staging_target_path.is_empty() && request.volume_capability.is_some());
    let attachment = rig.read_attachment_of("c").await;
    assert_eq!(attachment.spec.node_capacity_bytes, Some(3 * MI));
    assert_eq!(attachment.status.unwrap().node_capacity_bytes, Some(3 * MI));
    // The next size, and nobody has to leave for that.
    raise(&rig, "v", "4Mi").await.unwrap();
    until_grown(&rig, "v", "4Mi").await;
    assert_eq!(asked(&rig, "v").len(), 2);
    for name in ["c", "d"] {
        rig.until_ready(name).await;
    }
    assert_eq!(rig.count("v", Rpc::NodePublishVolume), 2, "{}", rig.story("v"));
    // Nor has anybody who comes later anything to do.
    leave(&rig, "d").await;
    claim(&rig, "d", NODE).await;
    assert_eq!(asked(&rig, "v").len(), 2);
    let refused = raise(&rig, "v", "2Mi").await.unwrap_err().to_string();
    assert!(refused.contains("a volume only grows"), "{refused}");
    end(&rig, &["c", "d"]).await;
}

async fn each_node_that_has_it_follows(cluster: Arc<Cluster>) {
    let rig = start(&cluster, Expand::AndNodes).await;
    let mut shared = volume("v");
    let many = AccessMode::MultiNodeMultiWriter;
    shared.spec.capabilities = vec![VolumeUse { access_mode: many, ..VolumeUse::default() }];
    rig.make_volume(&shared).await;
    for node in [NODE, OTHER] {
        let mut claim = volume_claim(node, "v", node);
        claim.spec.access_mode = many;
        rig.make_claim(&claim).await;
        rig.until_ready(node).await;
    }
    raise(&rig, "v", "3Mi").await.unwrap();
    until_grown(&rig, "v", "3Mi").await;
    assert_eq!(asked(&rig, "v").len(), 2, "{}", rig.story("v"));
    let grown = rig.fake.backend().volumes["v"].grown_on.clone();
    assert_eq!(grown.into_iter().collect::<Vec<_>>(), [(OTHER.into(), 3 * MI), (NODE.into(), 3 * MI)]);
    end(&rig, &[NODE, OTHER]).await;
}

/// What no call has made larger has the size when its nodes have made it so.
async fn a_driver_that_grows_on_nodes_alone_is_asked_there(cluster: Arc<Cluster>) {
    let rig = start(&cluster, Expand::OnNodes).await;
    make(&rig).await;
    claim(&rig, "c", NODE).await;
    raise(&rig, "v", "3Mi").await.unwrap();
    until_grown(&rig, "v", "3Mi").await;
    assert_eq!(asked(&rig, "v").len(), 1, "{}", rig.story("v"));
    assert_eq!(rig.count("v", Rpc::ControllerExpandVolume), 0);
    let refused = raise(&rig, "v", "2Mi").await.unwrap_err().to_string();
    assert!(refused.contains("a volume only grows"), "{refused}");
    end(&rig, &["c"]).await;
}

async fn a_driver_whose_nodes_have_nothing_to_do_is_not_asked(cluster: Arc<Cluster>) {
    let rig = start(&cluster, Expand::ByController).await;
    make(&rig).await;
    claim(&rig, "c", NODE).await;
    raise(&rig, "v", "3Mi").await.unwrap();
    until_grown(&rig, "v", "3Mi").await;
    assert_eq!(rig.read_attachment_of("c").await.spec.node_capacity_bytes, None);
    leave(&rig, "c").await;
    claim(&rig, "d", OTHER).await;
    assert!(asked(&rig, "v").is_empty(), "{}", rig.story("v"));
    end(&rig, &["d"]).await;
}

async fn a_device_follows_too(cluster: Arc<Cluster>) {
    let rig = start(&cluster, Expand::AndNodes).await;
    let disk = Disk::make(&cluster.directory.join("grown.disk"));
    rig.fake.backend().media.insert("v".to_owned(), Medium::Device(disk.device.clone()));
    let raw = VolumeUse { access_mode: AccessMode::default(), attachment_mode: AttachmentMode::BlockDevice };
    let mut device = volume("v");
    device.spec.capabilities = vec![raw];
    rig.make_volume(&device).await;
    let mut user = volume_claim("c", "v", NODE);
    user.spec.attachment_mode = AttachmentMode::BlockDevice;
    rig.make_claim(&user).await;
    rig.until_ready("c").await;
    raise(&rig, "v", "3Mi").await.unwrap();
    until_grown(&rig, "v", "3Mi").await;
    let requests = asked(&rig, "v");
    let [request] = requests.as_slice() else { panic!("{requests:?}") };
    let capability = request.volume_capability.as_ref().unwrap();
    assert!(matches!(capability.access_type, Some(AccessType::Block(_))), "{capability:?}");
    end(&rig, &["c"]).await;
}

/// kubelet knows no size of it, so moor makes the call.
async fn a_pod_that_names_the_volume_has_it_grown(cluster: Arc<Cluster>) {
    let options = Options { expand: Expand::AndNodes, inline_volumes: true, ..Options::default() };
    let rig = Rig::start(&cluster, options).await;
    announce(&rig).await;
    let kubelet = kubelet(&rig, OTHER, naming("v")).await;
    make(&rig).await;
    let target = kubelet.mount("pod-a", "own").await;
    raise(&rig, "v", "3Mi").await.unwrap();
    until_grown(&rig, "v", "3Mi").await;
    let requests = asked(&rig, "v");
    let [request] = requests.as_slice() else { panic!("{requests:?}") };
    assert_eq!(Some(request.volume_path.as_str()), target.to_str());
    kubelet.unmount("pod-a", "own").await;
    let gone = || async { rig.claim_api().list(&ListParams::default()).await.unwrap().items.is_empty() };
    rig.poll("no claim is left", gone).await;
    end(&rig, &NO_CLAIM).await;
}

/// kubelet compares the PersistentVolumeClaim with its PersistentVolume, and nobody calls beside it.
async fn what_only_pods_have_by_claims_is_left_to_kubelet(cluster: Arc<Cluster>) {
    let rig = start(&cluster, Expand::AndNodes).await;
    let kubelet = rig.kubelet(OTHER).await;
    rig.make_volume_for_pods("data").await;
    kubelet.mount("pod-a", "data").await;
    let patch = Patch::Merge(json!({ "spec": { "capacity": "3Mi" } }));
    rig.volumes_for_pods().patch("data", &PatchParams::default(), &patch).await.unwrap();
    rig.until("the storage is larger", || async {
        let status = rig.volumes_for_pods().get("data").await.unwrap().status?;
        (status.capacity_bytes == Some(3 * MI)).then_some(())
    })
    .await;
    // What comes later is done, so the leader has looked at it.
    make(&rig).await;
    let all: Api<Attachment> = Api::all(cluster.admin.clone());
    let attachments = all.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(attachments.iter().map(|a| a.spec.node_capacity_bytes).collect::<Vec<_>>(), [None]);
    assert!(asked(&rig, "data").is_empty());
    assert_eq!(kubelet.expand("pod-a", "data", 3 * MI).await.unwrap(), 3 * MI);
    assert_eq!(asked(&rig, "data").len(), 1);
    kubelet.unmount("pod-a", "data").await;
    kubelet.give_up("data").await;
    rig.remove_for_pods("data").await;
    end(&rig, &NO_CLAIM).await;
}
