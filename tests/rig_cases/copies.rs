//! Claims whose volume is made as a copy of another claim's.

mod crashes;

use std::sync::Arc;

use kube::api::{Patch, PatchParams};
use moor::csi::Rpc;
use moor::csi::proto::csi::v1::CreateVolumeRequest;
use moor::csi::proto::csi::v1::volume_content_source::Type;
use prost::Message as _;
use serde_json::{Value, json};

use crate::cases;
use crate::provision::objects::class;
use crate::rig::fake::DRIVER;
use crate::rig::fake::backend::Answers;
use crate::rig::{Binder, CONTROLLER, Case, Cluster, Options, Rig};

/// By it a claim stays while its volume is copied.
const PROTECTION: &str = "provisioner.storage.kubernetes.io/cloning-protection";

async fn start(cluster: &Arc<Cluster>) -> (Arc<Rig>, Binder) {
    let rig = Rig::start(cluster, Options { clones: true, ..Options::default() }).await;
    let binder = Binder::start(&cluster.admin);
    (rig, binder)
}

/// Makes a claim with a class of its own, whose volume is known by the same name.
async fn make(rig: &Rig, name: &str, more: Value) -> String {
    rig.make_class(&class(name, &json!({ "parameters": { "key": name } }))).await;
    rig.make_pvc(name, name, more).await
}

fn copy_of(name: &str) -> Value {
    json!({ "dataSource": { "kind": "PersistentVolumeClaim", "name": name } })
}

async fn is_protected(rig: &Rig, name: &str) -> bool {
    let claim = rig.pvc_api().get_opt(name).await.unwrap();
    claim.is_some_and(|claim| claim.metadata.finalizers.iter().flatten().any(|f| f == PROTECTION))
}

async fn until_let_go(rig: &Rig, name: &str) {
    let is_free = || async { (!is_protected(rig, name).await).then_some(()) };
    rig.until(&format!("claim {name} is let go"), is_free).await;
}

async fn until_gone(rig: &Rig, name: &str) {
    let is_gone = || async { rig.pvc_api().get_opt(name).await.unwrap().is_none().then_some(()) };
    rig.until(&format!("claim {name} is gone"), is_gone).await;
}

/// The volumes of which the driver was told to make this one, call by call.
fn sources(rig: &Rig, key: &str) -> Vec<Option<String>> {
    let calls = rig.journal.calls_of(key).into_iter().filter_map(|entry| entry.call().cloned());
    let source = |request: CreateVolumeRequest| match request.volume_content_source?.r#type? {
        Type::Volume(volume) => Some(volume.volume_id),
        Type::Snapshot(_) => None,
    };
    calls
        .filter(|call| call.rpc == Rpc::CreateVolume)
        .map(|call| source(CreateVolumeRequest::decode(call.arguments.as_slice()).unwrap()))
        .collect()
}

async fn end(rig: &Rig, names: &[&str]) {
    for name in names {
        rig.delete_pvc(name).await;
    }
    rig.until_nothing_provisioned().await;
    rig.assert_nothing_left().await;
}

/// Whoever deletes the source meanwhile waits for the copy.
async fn a_copy_is_made_of_a_claim_that_stays_until_it_is(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    make(&rig, "from", json!({})).await;
    rig.until_bound("from").await;
    rig.fake.hold("to", Rpc::CreateVolume);
    make(&rig, "to", copy_of("from")).await;
    rig.until_called("to", Rpc::CreateVolume).await;
    assert!(is_protected(&rig, "from").await);
    rig.delete_pvc("from").await;
    assert!(rig.pvc_api().get_opt("from").await.unwrap().is_some(), "it is being copied");
    rig.fake.let_go("to", Rpc::CreateVolume);
    rig.until_bound("to").await;
    until_gone(&rig, "from").await;
    assert_eq!(sources(&rig, "to"), [Some("vol-from".to_owned())]);
    end(&rig, &["to"]).await;
}

/// It is made when its source is there.
async fn a_copy_waits_for_its_source(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    make(&rig, "to", copy_of("from")).await;
    rig.until_event("to", "ProvisioningFailed", "PersistentVolumeClaim from").await;
    make(&rig, "from", json!({})).await;
    rig.until_bound("to").await;
    until_let_go(&rig, "from").await;
    assert_eq!(sources(&rig, "to"), [Some("vol-from".to_owned())]);
    end(&rig, &["from", "to"]).await;
}

/// Whoever wanted the copy wants it no more, whether the driver had begun or not.
async fn a_claim_that_goes_lets_its_source_go(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    make(&rig, "from", json!({})).await;
    rig.until_bound("from").await;
    rig.fake.hold("to", Rpc::CreateVolume);
    let uid = make(&rig, "to", copy_of("from")).await;
    rig.until_called("to", Rpc::CreateVolume).await;
    rig.delete_pvc("to").await;
    assert!(is_protected(&rig, "from").await, "the driver still copies it");
    rig.fake.let_go("to", Rpc::CreateVolume);
    rig.until_volume_of_claim_gone(&uid).await;
    until_let_go(&rig, "from").await;
    end(&rig, &["from"]).await;
}

/// A driver that does not know content_source makes an empty volume, which nobody may take for the copy.
async fn a_volume_that_is_no_copy_is_deleted_again(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    make(&rig, "from", json!({})).await;
    rig.until_bound("from").await;
    rig.fake.backend().answers.insert("to".into(), Answers { hides_source: true, ..Answers::default() });
    make(&rig, "to", copy_of("from")).await;
    rig.until_event("to", "ProvisioningFailed", "content_source").await;
    rig.until_called("to", Rpc::DeleteVolume).await;
    rig.fake.backend().answers.clear();
    rig.until_bound("to").await;
    end(&rig, &["from", "to"]).await;
}

async fn what_cannot_be_copied_says_so(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    make(&rig, "from", json!({ "resources": { "requests": { "storage": "2Mi" } } })).await;
    rig.until_bound("from").await;
    make(&rig, "smaller", copy_of("from")).await;
    rig.until_event(
        "smaller",
        "ProvisioningFailed",
        "spec.resources.requests.storage: a copy is not smaller",
    )
    .await;
    let elsewhere = json!({ "dataSourceRef":
        { "kind": "PersistentVolumeClaim", "name": "from", "namespace": "elsewhere" } });
    make(&rig, "elsewhere", elsewhere).await;
    // The API server drops the namespace of a reference while its feature is off: then it names a claim of its own.
    let asks = serde_json::to_value(rig.read_pvc("elsewhere").await).unwrap();
    if asks["spec"]["dataSourceRef"]["namespace"].is_string() {
        rig.until_event("elsewhere", "ProvisioningFailed", "spec.dataSourceRef.namespace").await;
    }
    let mut block = copy_of("from");
    block["volumeMode"] = json!("Block");
    block["resources"] = json!({ "requests": { "storage": "2Mi" } });
    make(&rig, "device", block).await;
    rig.until_event("device", "ProvisioningFailed", "spec.volumeMode").await;
    assert!(sources(&rig, "smaller").is_empty() && sources(&rig, "device").is_empty());
    assert!(!is_protected(&rig, "from").await);
    for name in ["smaller", "elsewhere", "device"] {
        rig.delete_pvc(name).await;
    }
    end(&rig, &["from"]).await;
}

/// The source of a copy is not let go by what another one names, and not kept by one that was let go before.
async fn a_source_of_two_copies_stays_for_both(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    make(&rig, "from", json!({})).await;
    rig.until_bound("from").await;
    rig.fake.hold("slow", Rpc::CreateVolume);
    make(&rig, "slow", copy_of("from")).await;
    rig.until_called("slow", Rpc::CreateVolume).await;
    make(&rig, "quick", copy_of("from")).await;
    rig.until_bound("quick").await;
    rig.restart(CONTROLLER);
    make(&rig, "later", copy_of("from")).await;
    rig.until_bound("later").await;
    assert!(is_protected(&rig, "from").await, "the slow one is still being made");
    rig.fake.let_go("slow", Rpc::CreateVolume);
    rig.until_bound("slow").await;
    until_let_go(&rig, "from").await;
    end(&rig, &["from", "slow", "quick", "later"]).await;
}

/// The finalizer of another provisioner's copy is not taken.
async fn the_copies_of_another_driver_are_not_touched(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    rig.make_class(&class("theirs", &json!({ "provisioner": "other.example.com" }))).await;
    rig.make_pvc("from", "theirs", json!({})).await;
    let held = Patch::Merge(json!({ "metadata": { "finalizers": [PROTECTION] } }));
    rig.pvc_api().patch("from", &PatchParams::default(), &held).await.unwrap();
    make(&rig, "to", copy_of("from")).await;
    rig.until_event("to", "ProvisioningFailed", "PersistentVolumeClaim from").await;
    // Whoever comes after it is served, so it has been looked at.
    make(&rig, "data", json!({})).await;
    rig.until_bound("data").await;
    rig.delete_pvc("to").await;
    rig.delete_pvc("data").await;
    rig.until_nothing_provisioned().await;
    assert!(is_protected(&rig, "from").await, "{DRIVER} has put none on it");
    let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    rig.pvc_api().patch("from", &PatchParams::default(), &free).await.unwrap();
    rig.delete_pvc("from").await;
}

/// The cases of this module.
pub const CASES: &[Case] = cases![
    a_copy_is_made_of_a_claim_that_stays_until_it_is,
    a_copy_waits_for_its_source,
    a_claim_that_goes_lets_its_source_go,
    a_volume_that_is_no_copy_is_deleted_again,
    what_cannot_be_copied_says_so,
    a_source_of_two_copies_stays_for_both,
    the_copies_of_another_driver_are_not_touched,
    crashes::the_leader_and_the_agent_may_die_at_every_step,
    crashes::the_driver_may_die_in_its_calls,
    crashes::the_api_server_may_go_away_at_every_step,
];
