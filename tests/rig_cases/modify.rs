//! Claims that name another VolumeAttributesClass, and Volumes whose mutable parameters are changed.

mod crashes;
mod volumes;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use moor::csi::Rpc;
use moor::csi::proto::csi::v1::{
    ControllerExpandVolumeRequest, ControllerModifyVolumeRequest, CreateVolumeRequest,
};
use prost::Message;
use serde_json::{Value, json};
use tonic::Code;

use crate::cases;
use crate::provision::objects::class;
use crate::rig::fake::DRIVER;
use crate::rig::fake::backend::Expand;
use crate::rig::{Binder, Case, Cluster, Fault, Options, Rig, SPACE};

type Parameters = BTreeMap<String, String>;

fn tier(tier: &str) -> Parameters {
    BTreeMap::from([("tier".to_owned(), tier.to_owned())])
}

async fn start(cluster: &Arc<Cluster>) -> (Arc<Rig>, Binder) {
    let options = Options { modify: true, expand: Expand::ByController, ..Options::default() };
    let rig = Rig::start(cluster, options).await;
    let binder = Binder::start(&cluster.admin);
    (rig, binder)
}

/// Makes a VolumeAttributesClass.
async fn make(rig: &Rig, name: &str, driver: &str, parameters: &Value) {
    let class = json!({ "metadata": { "name": name }, "driverName": driver, "parameters": parameters });
    let classes: Api<VolumeAttributesClass> = Api::all(rig.cluster.admin.clone());
    classes.create(&PostParams::default(), &serde_json::from_value(class).unwrap()).await.unwrap();
}

/// Makes the classes that ask for tiers of their names.
async fn tiers(rig: &Rig, names: &[&str]) {
    for name in names {
        make(rig, name, DRIVER, &json!({ "tier": name })).await;
    }
}

/// Makes a claim and waits until it is bound. Its volume is known by the same name.
async fn bound(rig: &Rig, name: &str, attributes: Option<&str>) {
    let more = json!({ "parameters": { "key": name }, "allowVolumeExpansion": true });
    rig.make_class(&class(name, &more)).await;
    rig.make_pvc(name, name, json!({ "volumeAttributesClassName": attributes })).await;
    rig.until_bound(name).await;
}

async fn ask(rig: &Rig, name: &str, attributes: Option<&str>) {
    let patch = json!({ "spec": { "volumeAttributesClassName": attributes } });
    rig.pvc_api().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

async fn until(rig: &Rig, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    rig.until(&format!("claim {name} {what}"), || async {
        let claim = serde_json::to_value(rig.read_pvc(name).await).unwrap();
        is(&claim).then_some(claim)
    })
    .await
}

fn word(claim: &Value) -> Option<&str> {
    claim["status"]["modifyVolumeStatus"]["status"].as_str()
}

fn target(claim: &Value) -> Option<&str> {
    claim["status"]["modifyVolumeStatus"]["targetVolumeAttributesClassName"].as_str()
}

fn current(claim: &Value) -> Option<&str> {
    claim["status"]["currentVolumeAttributesClassName"].as_str()
}

/// The message of a condition that is True.
fn said<'a>(claim: &'a Value, type_: &str) -> Option<&'a str> {
    let all = claim["status"]["conditions"].as_array()?;
    let found = all.iter().find(|c| c["type"] == type_ && c["status"] == "True")?;
    Some(found["message"].as_str().unwrap_or_default())
}

async fn until_done(rig: &Rig, name: &str, is: &str) {
    let done = |claim: &Value| current(claim) == Some(is) && claim["status"]["modifyVolumeStatus"].is_null();
    let claim = until(rig, name, &format!("has {is}"), done).await;
    assert!(claim["status"]["conditions"].as_array().is_none_or(Vec::is_empty), "{claim}");
    let persistent = rig.until_bound(name).await.spec.unwrap();
    assert_eq!(persistent.volume_attributes_class_name.as_deref(), Some(is));
}

/// The requests of one kind about a volume.
fn sent<M: Message + Default>(rig: &Rig, key: &str, rpc: Rpc) -> Vec<M> {
    let calls = rig.journal.calls_of(key);
    let calls = calls.iter().filter_map(|entry| entry.call()).filter(|call| call.rpc == rpc);
    calls.map(|call| M::decode(call.arguments.as_slice()).unwrap()).collect()
}

/// What the driver was asked to make of a volume.
fn asked(rig: &Rig, key: &str) -> Vec<Parameters> {
    let calls = sent::<ControllerModifyVolumeRequest>(rig, key, Rpc::ControllerModifyVolume).into_iter();
    calls
        .inspect(|call| assert_eq!(call.volume_id, format!("vol-{key}")))
        .map(|call| call.mutable_parameters)
        .collect()
}

/// The driver was asked for gold until that was done, more than once, and then for silver.
fn assert_gold_before_silver(rig: &Rig, key: &str) {
    let all = asked(rig, key);
    let (last, golds) = all.split_last().unwrap();
    assert!(
        *last == tier("silver") && golds.len() > 1 && golds.iter().all(|p| *p == tier("gold")),
        "{all:?}"
    );
}

fn has(rig: &Rig, key: &str) -> Parameters {
    rig.fake.backend().volumes[key].modified.clone()
}

async fn end(rig: &Rig, name: &str) {
    rig.delete_pvc(name).await;
    rig.until_nothing_provisioned().await;
    rig.assert_nothing_left().await;
}

async fn a_claim_is_given_a_class_and_another_and_the_first_again(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    tiers(&rig, &["gold", "silver"]).await;
    bound(&rig, "v", None).await;
    for class in ["gold", "silver", "gold"] {
        ask(&rig, "v", Some(class)).await;
        until_done(&rig, "v", class).await;
        assert_eq!(has(&rig, "v"), tier(class));
        rig.until_event("v", "VolumeModifySuccessful", class).await;
    }
    rig.until_event("v", "VolumeModify", "gold").await;
    assert_eq!(asked(&rig, "v"), [tier("gold"), tier("silver"), tier("gold")]);
    end(&rig, "v").await;
}

async fn a_claim_that_is_made_with_a_class_has_it_from_the_start(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    tiers(&rig, &["gold", "silver"]).await;
    bound(&rig, "v", Some("gold")).await;
    until_done(&rig, "v", "gold").await;
    let made = sent::<CreateVolumeRequest>(&rig, "v", Rpc::CreateVolume);
    assert!(!made.is_empty() && made.iter().all(|call| call.mutable_parameters == tier("gold")), "{made:?}");
    ask(&rig, "v", Some("silver")).await;
    until_done(&rig, "v", "silver").await;
    assert_eq!(asked(&rig, "v"), [tier("silver")], "it was not asked for what it had");
    end(&rig, "v").await;
}

async fn a_class_that_does_not_exist_is_waited_for(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    bound(&rig, "v", None).await;
    ask(&rig, "v", Some("gold")).await;
    let claim = until(&rig, "v", "waits for its class", |claim| word(claim) == Some("Pending")).await;
    assert_eq!(target(&claim), Some("gold"));
    rig.until_event("v", "VolumeModifyFailed", "VolumeAttributesClass gold does not exist").await;
    tiers(&rig, &["gold"]).await;
    until_done(&rig, "v", "gold").await;
    end(&rig, "v").await;
}

/// Whoever has begun nothing may ask for something else at once.
async fn a_class_of_another_driver_is_named_and_left(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    make(&rig, "theirs", "other.example.com", &json!({ "tier": "x" })).await;
    tiers(&rig, &["gold"]).await;
    bound(&rig, "v", None).await;
    ask(&rig, "v", Some("theirs")).await;
    until(&rig, "v", "is to name another one", |claim| word(claim) == Some("Infeasible")).await;
    rig.until_event("v", "VolumeModifyFailed", "is for the driver other.example.com").await;
    ask(&rig, "v", Some("gold")).await;
    until_done(&rig, "v", "gold").await;
    assert_eq!(asked(&rig, "v"), [tier("gold")]);
    end(&rig, "v").await;
}

async fn until_infeasible(rig: &Rig, name: &str) -> Value {
    until(rig, name, "cannot be modified", |claim| word(claim) == Some("Infeasible")).await
}

/// The words are the driver's. After a refusal nobody knows what the volume has, so it is asked for what it had.
async fn what_the_driver_refuses_is_said_and_may_be_changed(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    make(&rig, "bad", DRIVER, &json!({ "colour": "red" })).await;
    tiers(&rig, &["gold", "silver"]).await;
    bound(&rig, "v", Some("gold")).await;
    ask(&rig, "v", Some("bad")).await;
    let claim = until_infeasible(&rig, "v").await;
    assert!(said(&claim, "ModifyVolumeError").unwrap().contains("there is no parameter colour"), "{claim}");
    assert_eq!((target(&claim), current(&claim)), (Some("bad"), Some("gold")));
    assert!(said(&claim, "ModifyingVolume").is_none(), "{claim}");
    rig.until_event("v", "VolumeModifyFailed", "InvalidArgument").await;
    ask(&rig, "v", Some("gold")).await;
    until_done(&rig, "v", "gold").await;
    assert_eq!(asked(&rig, "v").last(), Some(&tier("gold")));
    ask(&rig, "v", Some("bad")).await;
    until_infeasible(&rig, "v").await;
    ask(&rig, "v", Some("silver")).await;
    until_done(&rig, "v", "silver").await;
    assert_eq!(has(&rig, "v"), tier("silver"));
    end(&rig, "v").await;
}

async fn a_claim_that_had_no_class_may_name_none_again(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    make(&rig, "bad", DRIVER, &json!({ "colour": "red" })).await;
    bound(&rig, "v", None).await;
    ask(&rig, "v", Some("bad")).await;
    until_infeasible(&rig, "v").await;
    ask(&rig, "v", None).await;
    let claim = until(&rig, "v", "says nothing of it", |claim| word(claim).is_none()).await;
    assert!(claim["status"]["conditions"].as_array().is_none_or(Vec::is_empty), "{claim}");
    rig.until_event("v", "VolumeModifyCancelled", "").await;
    let volume =
        rig.provisioned_api().get(&format!("pvc-{}", claim["metadata"]["uid"].as_str().unwrap())).await;
    assert!(volume.unwrap().spec.mutable_parameters.is_empty());
    end(&rig, "v").await;
}

/// It may have been done: nothing else is asked for before that is known.
async fn a_call_of_unknown_outcome_is_repeated_before_another(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    tiers(&rig, &["gold", "silver"]).await;
    bound(&rig, "v", None).await;
    rig.fake.fail("v", Rpc::ControllerModifyVolume, Fault::CodeAfter(Code::Unavailable));
    ask(&rig, "v", Some("gold")).await;
    let fails = |claim: &Value| said(claim, "ModifyVolumeError").is_some();
    let claim = until(&rig, "v", "says why", fails).await;
    assert_eq!((word(&claim), target(&claim)), (Some("InProgress"), Some("gold")));
    ask(&rig, "v", Some("silver")).await;
    let before = asked(&rig, "v").len();
    rig.until("the driver is asked again", || async { (asked(&rig, "v").len() > before).then_some(()) })
        .await;
    let claim = until(&rig, "v", "goes on", |claim| word(claim) == Some("InProgress")).await;
    assert_eq!(target(&claim), Some("gold"));
    rig.fake.heal("v", Rpc::ControllerModifyVolume);
    until_done(&rig, "v", "silver").await;
    assert_gold_before_silver(&rig, "v");
    end(&rig, "v").await;
}

async fn a_driver_that_cannot_modify_is_named(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let _binder = Binder::start(&cluster.admin);
    tiers(&rig, &["gold"]).await;
    bound(&rig, "v", None).await;
    ask(&rig, "v", Some("gold")).await;
    until(&rig, "v", "waits", |claim| word(claim) == Some("Pending")).await;
    rig.until_event("v", "VolumeModifyFailed", "MODIFY_VOLUME").await;
    assert!(asked(&rig, "v").is_empty());
    end(&rig, "v").await;
}

/// Neither waits for the end of what the other one is refused.
async fn a_claim_grows_while_its_class_is_refused_and_the_other_way_round(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    make(&rig, "bad", DRIVER, &json!({ "colour": "red" })).await;
    tiers(&rig, &["gold"]).await;
    let grow = async |size: &str| {
        let patch = json!({ "spec": { "resources": { "requests": { "storage": size } } } });
        rig.pvc_api().patch("v", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    };
    bound(&rig, "v", None).await;
    until(&rig, "v", "has a size", |claim| claim["status"]["capacity"]["storage"].is_string()).await;
    ask(&rig, "v", Some("bad")).await;
    until_infeasible(&rig, "v").await;
    grow("2Mi").await;
    until(&rig, "v", "has 2Mi", |claim| claim["status"]["capacity"]["storage"] == "2Mi").await;
    rig.fake.backend().most = 2 << 20;
    grow("9Mi").await;
    let refused = |claim: &Value| {
        claim["status"]["allocatedResourceStatuses"]["storage"] == "ControllerResizeInfeasible"
    };
    until(&rig, "v", "cannot grow", refused).await;
    ask(&rig, "v", Some("gold")).await;
    let done = |claim: &Value| current(claim) == Some("gold") && word(claim).is_none();
    until(&rig, "v", "has gold", done).await;
    assert_eq!(has(&rig, "v"), tier("gold"));
    end(&rig, "v").await;
}

/// Nothing is sent of the growth, for as long as nobody makes its Secret.
async fn a_class_is_followed_while_a_growth_waits_for_its_secret(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    tiers(&rig, &["gold"]).await;
    let parameters = json!({ "key": "v", "csi.storage.k8s.io/controller-expand-secret-name": "absent",
        "csi.storage.k8s.io/controller-expand-secret-namespace": SPACE });
    let more = json!({ "parameters": parameters, "allowVolumeExpansion": true });
    rig.make_class(&class("v", &more)).await;
    rig.make_pvc("v", "v", json!({})).await;
    rig.until_bound("v").await;
    let grow = json!({ "spec": { "resources": { "requests": { "storage": "2Mi" } } } });
    rig.pvc_api().patch("v", &PatchParams::default(), &Patch::Merge(grow)).await.unwrap();
    rig.until_event("v", "VolumeResizeFailed", "absent").await;
    ask(&rig, "v", Some("gold")).await;
    let done = |claim: &Value| current(claim) == Some("gold") && word(claim).is_none();
    until(&rig, "v", "has gold", done).await;
    assert_eq!(has(&rig, "v"), tier("gold"));
    assert_eq!(sent::<ControllerExpandVolumeRequest>(&rig, "v", Rpc::ControllerExpandVolume), []);
    end(&rig, "v").await;
}

/// The cases of this module.
pub const CASES: &[Case] = cases![
    a_claim_is_given_a_class_and_another_and_the_first_again,
    a_claim_that_is_made_with_a_class_has_it_from_the_start,
    a_class_that_does_not_exist_is_waited_for,
    a_class_of_another_driver_is_named_and_left,
    what_the_driver_refuses_is_said_and_may_be_changed,
    a_claim_that_had_no_class_may_name_none_again,
    a_call_of_unknown_outcome_is_repeated_before_another,
    a_driver_that_cannot_modify_is_named,
    a_claim_grows_while_its_class_is_refused_and_the_other_way_round,
    a_class_is_followed_while_a_growth_waits_for_its_secret,
    volumes::parameters_are_not_changed_while_the_volume_is_made,
    volumes::a_volume_is_modified_when_its_parameters_are_changed,
    volumes::what_is_asked_for_during_a_call_of_unknown_outcome_comes_after_it,
    volumes::an_agent_says_nothing_is_under_way_that_nobody_asked_for,
    volumes::a_namespace_that_may_not_parameterise_changes_nothing,
    volumes::nothing_is_attached_beside_a_call_that_modifies,
    volumes::a_modified_volume_whose_status_is_lost_is_created_as_at_first,
    crashes::the_leader_and_the_agent_may_die_at_every_step,
    crashes::the_api_server_may_go_away_at_every_step,
    crashes::an_agent_that_dies_in_the_call_repeats_it_before_another,
];
