//! Claims that ask for more than they have, and Volumes whose capacity is raised.

mod crashes;
mod volumes;

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{Patch, PatchParams};
use moor::csi::Rpc;
use moor::csi::proto::csi::v1::ControllerExpandVolumeRequest;
use prost::Message as _;
use serde_json::{Value, json};
use tonic::Code;

use crate::cases;
use crate::provision::objects::class;
use crate::rig::fake::backend::Expand;
use crate::rig::{Binder, Case, Cluster, Fault, Options, Rig};

const MI: i64 = 1 << 20;

async fn start(cluster: &Arc<Cluster>, expand: Expand) -> (Arc<Rig>, Binder) {
    let rig = Rig::start(cluster, Options { expand, ..Options::default() }).await;
    let binder = Binder::start(&cluster.admin);
    (rig, binder)
}

/// Makes a claim of 1Mi whose class lets it grow, and waits until it is bound. Its volume is known by the same name.
async fn bound(rig: &Rig, name: &str) {
    let more = json!({ "parameters": { "key": name }, "allowVolumeExpansion": true });
    rig.make_class(&class(name, &more)).await;
    rig.make_pvc(name, name, json!({})).await;
    rig.until_bound(name).await;
    // The binder says so after the claim names its volume.
    until(rig, name, "has a size", |claim| size(claim, "capacity").is_some()).await;
}

async fn ask(rig: &Rig, name: &str, size: &str) {
    let patch = json!({ "spec": { "resources": { "requests": { "storage": size } } } });
    rig.pvc_api().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// As kubelet does when the file system has the size that was allocated.
async fn follow(rig: &Rig, name: &str, size: &str) {
    let status = json!({ "status": { "capacity": { "storage": size }, "allocatedResourceStatuses": null,
        "conditions": [] } });
    rig.pvc_api().patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

async fn until(rig: &Rig, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> PersistentVolumeClaim {
    rig.until(&format!("claim {name} {what}"), || async {
        let claim = rig.read_pvc(name).await;
        is(&serde_json::to_value(&claim).unwrap()).then_some(claim)
    })
    .await
}

fn size<'a>(claim: &'a Value, field: &str) -> Option<&'a str> {
    claim["status"][field]["storage"].as_str()
}

fn word(claim: &Value) -> Option<&str> {
    size(claim, "allocatedResourceStatuses")
}

/// The message of a condition that is True.
fn said<'a>(claim: &'a Value, type_: &str) -> Option<&'a str> {
    let all = claim["status"]["conditions"].as_array()?;
    let found = all.iter().find(|c| c["type"] == type_ && c["status"] == "True")?;
    Some(found["message"].as_str().unwrap_or_default())
}

async fn until_done(rig: &Rig, name: &str, is: &str) {
    let done = |claim: &Value| size(claim, "capacity") == Some(is) && word(claim).is_none();
    let claim = until(rig, name, &format!("has {is}"), done).await;
    let claim = serde_json::to_value(&claim).unwrap();
    assert!(claim["status"]["conditions"].as_array().is_none_or(Vec::is_empty), "{claim}");
    assert_eq!(size(&claim, "allocatedResources"), Some(is));
    assert_eq!(capacity(rig, name).await, is);
}

async fn until_on_node(rig: &Rig, name: &str, is: &str) {
    let pending = |claim: &Value| word(claim) == Some("NodeResizePending");
    let claim = until(rig, name, "waits for kubelet", pending).await;
    let claim = serde_json::to_value(&claim).unwrap();
    assert_eq!(size(&claim, "allocatedResources"), Some(is));
    assert!(
        said(&claim, "FileSystemResizePending").is_some() && said(&claim, "Resizing").is_none(),
        "{claim}"
    );
    assert_eq!(capacity(rig, name).await, is, "kubelet compares the claim with it");
}

async fn capacity(rig: &Rig, claim: &str) -> String {
    rig.until_bound(claim).await.spec.unwrap().capacity.unwrap()["storage"].0.clone()
}

fn calls(rig: &Rig, key: &str) -> Vec<ControllerExpandVolumeRequest> {
    let calls = rig.journal.calls_of(key).into_iter();
    let calls = calls.filter_map(|entry| entry.call().cloned());
    calls
        .filter(|call| call.rpc == Rpc::ControllerExpandVolume)
        .map(|call| ControllerExpandVolumeRequest::decode(call.arguments.as_slice()).unwrap())
        .collect()
}

async fn end(rig: &Rig, name: &str) {
    rig.delete_pvc(name).await;
    rig.until_nothing_provisioned().await;
    rig.assert_nothing_left().await;
}

/// The storage first, then kubelet's part, and the same again.
async fn a_claim_grows_and_kubelet_has_the_file_system_follow(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster, Expand::AndNodes).await;
    bound(&rig, "v").await;
    ask(&rig, "v", "2Mi").await;
    until_on_node(&rig, "v", "2Mi").await;
    rig.until_event("v", "FileSystemResizeRequired", "file system").await;
    let asked = calls(&rig, "v");
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(asked[0].volume_id, "vol-v");
    assert_eq!(asked[0].capacity_range.unwrap().required_bytes, 2 * MI);
    assert!(asked[0].volume_capability.is_some());
    // While kubelet has not followed nobody asks for more.
    ask(&rig, "v", "3Mi").await;
    follow(&rig, "v", "2Mi").await;
    until(&rig, "v", "is to have 3Mi", |claim| size(claim, "allocatedResources") == Some("3Mi")).await;
    until_on_node(&rig, "v", "3Mi").await;
    follow(&rig, "v", "3Mi").await;
    until_done(&rig, "v", "3Mi").await;
    assert_eq!(calls(&rig, "v").len(), 2);
    end(&rig, "v").await;
}

async fn where_nodes_have_nothing_to_do_a_claim_has_its_size_at_once(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster, Expand::ByController).await;
    bound(&rig, "v").await;
    ask(&rig, "v", "2Mi").await;
    until_done(&rig, "v", "2Mi").await;
    rig.until_event("v", "VolumeResizeSuccessful", "2Mi").await;
    assert_eq!(rig.fake.backend().volumes["v"].grown, 2 * MI);
    end(&rig, "v").await;
}

/// The words are the driver's, and what is asked for instead is done at once.
async fn a_size_that_cannot_be_had_is_said_and_may_be_lowered(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster, Expand::ByController).await;
    bound(&rig, "v").await;
    rig.fake.backend().most = 4 * MI;
    ask(&rig, "v", "9Mi").await;
    let is = |claim: &Value| word(claim) == Some("ControllerResizeInfeasible");
    let claim = serde_json::to_value(until(&rig, "v", "cannot grow", is).await).unwrap();
    assert!(said(&claim, "ControllerResizeError").unwrap().contains("the storage is smaller"), "{claim}");
    assert_eq!((size(&claim, "capacity"), capacity(&rig, "v").await.as_str()), (Some("1Mi"), "1Mi"));
    rig.until_event("v", "VolumeResizeFailed", "OutOfRange").await;
    ask(&rig, "v", "3Mi").await;
    until_done(&rig, "v", "3Mi").await;
    assert_eq!(rig.fake.backend().volumes["v"].grown, 3 * MI);
    end(&rig, "v").await;
}

/// It may have been done: nothing else is asked for before that is known.
async fn a_call_of_unknown_outcome_is_repeated(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster, Expand::ByController).await;
    bound(&rig, "v").await;
    rig.fake.fail("v", Rpc::ControllerExpandVolume, Fault::CodeAfter(Code::Unavailable));
    ask(&rig, "v", "3Mi").await;
    rig.until_event("v", "VolumeResizeFailed", "Unavailable").await;
    ask(&rig, "v", "2Mi").await;
    rig.fake.heal("v", Rpc::ControllerExpandVolume);
    until_done(&rig, "v", "3Mi").await;
    let sizes = calls(&rig, "v").into_iter().map(|call| call.capacity_range.unwrap().required_bytes);
    assert!(sizes.clone().count() > 1 && sizes.clone().all(|size| size == 3 * MI), "{:?}", calls(&rig, "v"));
    end(&rig, "v").await;
}

async fn a_driver_that_grows_on_nodes_alone_is_left_to_kubelet(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster, Expand::OnNodes).await;
    bound(&rig, "v").await;
    ask(&rig, "v", "2Mi").await;
    until_on_node(&rig, "v", "2Mi").await;
    assert!(calls(&rig, "v").is_empty());
    follow(&rig, "v", "2Mi").await;
    until_done(&rig, "v", "2Mi").await;
    end(&rig, "v").await;
}

async fn a_driver_that_cannot_grow_is_named(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster, Expand::Never).await;
    bound(&rig, "v").await;
    ask(&rig, "v", "2Mi").await;
    let is = |claim: &Value| word(claim) == Some("ControllerResizeInfeasible");
    let claim = serde_json::to_value(until(&rig, "v", "cannot grow", is).await).unwrap();
    assert!(said(&claim, "ControllerResizeError").unwrap().contains("EXPAND_VOLUME"), "{claim}");
    end(&rig, "v").await;
}

/// Its class and its PersistentVolume are another driver's, and so is its wish.
async fn the_claim_of_another_driver_is_not_touched(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster, Expand::ByController).await;
    let theirs = json!({ "provisioner": "other.example.com", "allowVolumeExpansion": true });
    rig.make_class(&class("theirs", &theirs)).await;
    rig.make_pvc("foreign", "theirs", json!({})).await;
    rig.until_asked("foreign").await;
    let uid = rig.read_pvc("foreign").await.metadata.uid.unwrap();
    let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": "foreign",
        "namespace": crate::rig::SPACE, "uid": uid });
    let persistent = json!({ "metadata": { "name": "theirs" }, "spec": { "capacity": { "storage": "1Mi" },
        "accessModes": ["ReadWriteOnce"], "storageClassName": "theirs", "claimRef": claim,
        "csi": { "driver": "other.example.com", "volumeHandle": "h" } } });
    let persistent = serde_json::from_value(persistent).unwrap();
    rig.pv_api().create(&kube::api::PostParams::default(), &persistent).await.unwrap();
    until(&rig, "foreign", "has a size", |claim| size(claim, "capacity").is_some()).await;
    ask(&rig, "foreign", "2Mi").await;
    let before = rig.read_pvc("foreign").await;
    // Whoever comes after it is served, so it has been looked at.
    bound(&rig, "v").await;
    ask(&rig, "v", "2Mi").await;
    until_done(&rig, "v", "2Mi").await;
    let after = rig.read_pvc("foreign").await;
    assert_eq!(before.metadata.resource_version, after.metadata.resource_version);
    assert!(rig.events_of("foreign").await.is_empty());
}

/// The cases of this module.
pub const CASES: &[Case] = cases![
    a_claim_grows_and_kubelet_has_the_file_system_follow,
    where_nodes_have_nothing_to_do_a_claim_has_its_size_at_once,
    a_size_that_cannot_be_had_is_said_and_may_be_lowered,
    a_call_of_unknown_outcome_is_repeated,
    a_driver_that_grows_on_nodes_alone_is_left_to_kubelet,
    a_driver_that_cannot_grow_is_named,
    the_claim_of_another_driver_is_not_touched,
    volumes::a_capacity_is_not_changed_while_the_volume_is_made,
    volumes::a_volume_grows_when_its_capacity_is_raised,
    volumes::a_volume_that_is_used_waits_where_the_driver_wants_it_so,
    volumes::nothing_is_attached_beside_a_call_that_makes_it_larger,
    volumes::a_volume_that_is_used_is_not_given_up,
    volumes::a_volume_that_is_left_waits_for_the_end_of_its_call,
    volumes::a_grown_volume_whose_status_is_lost_is_created_as_at_first,
    crashes::the_leader_and_the_agent_may_die_at_every_step,
    crashes::the_driver_may_die_in_the_call,
    crashes::the_api_server_may_go_away_at_every_step,
    crashes::an_agent_that_dies_in_the_call_repeats_it,
];
