//! Volumes whose capabilities and mount flags are edited while they are used.

mod crashes;

use std::sync::Arc;

use kube::api::{Patch, PatchParams};
use moor::api::conditions::{APPLIED, READY, find};
use moor::api::{AccessMode, Volume};
use moor::csi::Rpc;
use moor::csi::proto::csi::v1::volume_capability::AccessType;
use moor::csi::proto::csi::v1::{
    NodeStageVolumeRequest, ValidateVolumeCapabilitiesRequest, VolumeCapability,
};
use prost::Message;
use serde_json::{Value, json};

use crate::cases;
use crate::rig::fake::backend::Answers;
use crate::rig::{CONTROLLER, Case, Cluster, Options, Point, Rig, Side, volume, volume_claim};

pub const CASES: &[Case] = cases![
    other_flags_count_when_the_volume_is_staged_next,
    what_lingers_with_other_flags_is_made_anew,
    what_is_added_is_granted_when_the_driver_confirms,
    what_is_taken_away_is_granted_to_nobody_and_taken_from_nobody,
    flags_that_are_not_allowed_change_nothing,
    edits_and_a_growth_take_turns,
    nothing_is_edited_before_the_volume_is_there,
    no_edit_is_asked_about_beside_another_call,
    what_could_not_be_said_is_said_when_the_api_server_is_back,
    crashes::the_leader_and_the_agent_may_die_at_every_step,
];

const NO_CLAIM: [&str; 0] = [];

async fn change(rig: &Rig, name: &str, spec: Value) -> Result<Volume, kube::Error> {
    let patch = Patch::Merge(json!({ "spec": spec }));
    rig.volume_api().patch(name, &PatchParams::default(), &patch).await
}

fn flags(flags: &[&str]) -> Value {
    json!({ "mountOptions": { "mountFlags": flags } })
}

fn modes(modes: &[&str]) -> Value {
    let all: Vec<_> = modes.iter().map(|mode| json!({ "accessMode": mode })).collect();
    json!({ "capabilities": all })
}

/// Waits until the Volume says this of its last edit, and returns the words.
async fn until_says(rig: &Rig, name: &str, reason: &str) -> String {
    let look = || {
        let status = rig.cluster.volume(name)?.status.clone()?;
        let said = status.conditions.into_iter().find(|c| c.type_ == APPLIED)?;
        (said.reason == reason).then_some(said.message)
    };
    rig.cluster.until(&format!("Volume {name} says {reason}"), look, || rig.story(name)).await
}

/// The requests of one kind about a volume.
fn sent<M: Message + Default>(rig: &Rig, key: &str, rpc: Rpc) -> Vec<M> {
    let calls = rig.journal.calls_of(key);
    let calls = calls.iter().filter_map(|entry| entry.call()).filter(|call| call.rpc == rpc);
    calls.map(|call| M::decode(call.arguments.as_slice()).unwrap()).collect()
}

fn flags_of(capability: &VolumeCapability) -> &[String] {
    match &capability.access_type {
        Some(AccessType::Mount(mount)) => &mount.mount_flags,
        Some(AccessType::Block(_)) | None => &[],
    }
}

/// With which flags a volume was staged, each time.
fn staged(rig: &Rig, key: &str) -> Vec<Vec<String>> {
    let all = sent::<NodeStageVolumeRequest>(rig, key, Rpc::NodeStageVolume);
    all.iter().map(|call| flags_of(call.volume_capability.as_ref().unwrap()).to_vec()).collect()
}

async fn other_flags_count_when_the_volume_is_staged_next(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.make_volume(&volume("v")).await;
    rig.make_claim(&volume_claim("first", "v", "node-2")).await;
    rig.until_ready("first").await;
    change(&rig, "v", flags(&["covert=1"])).await.unwrap();
    let said = until_says(&rig, "v", "StagedBefore").await;
    assert!(said.contains("node-2") && !said.contains("covert"), "{said}");
    rig.until_ready("first").await;
    let asked = sent::<ValidateVolumeCapabilitiesRequest>(&rig, "v", Rpc::ValidateVolumeCapabilities);
    let [asked] = asked.as_slice() else { panic!("{asked:?}") };
    assert_eq!(asked.volume_id, "vol-v");
    assert_eq!(flags_of(&asked.volume_capabilities[0]), ["covert=1"]);
    rig.delete_claim("first").await;
    rig.until_claim_gone("first").await;
    until_says(&rig, "v", "Applied").await;
    rig.make_claim(&volume_claim("second", "v", "node-2")).await;
    rig.until_ready("second").await;
    assert_eq!(staged(&rig, "v"), [Vec::new(), vec!["covert=1".to_owned()]]);
    let live = rig.volume_api().get("v").await.unwrap();
    let status = serde_json::to_string(&live.status).unwrap();
    assert!(!status.contains("covert"), "{status}");
    // And back.
    change(&rig, "v", json!({ "mountOptions": null })).await.unwrap();
    until_says(&rig, "v", "StagedBefore").await;
    rig.remove(&["second"], &["v"]).await;
}

/// Nobody uses it, so nobody has to leave before what was edited counts.
async fn what_lingers_with_other_flags_is_made_anew(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options { linger: 3600, ..Options::default() }).await;
    rig.make_volume(&volume("v")).await;
    rig.make_claim(&volume_claim("first", "v", "node-2")).await;
    rig.until_ready("first").await;
    rig.delete_claim("first").await;
    rig.until_claim_gone("first").await;
    change(&rig, "v", flags(&["noatime"])).await.unwrap();
    until_says(&rig, "v", "Applied").await;
    rig.make_claim(&volume_claim("second", "v", "node-2")).await;
    rig.until_ready("second").await;
    assert_eq!(staged(&rig, "v"), [Vec::new(), vec!["noatime".to_owned()]]);
    // What is as it should be is joined.
    rig.delete_claim("second").await;
    rig.until_claim_gone("second").await;
    rig.make_claim(&volume_claim("third", "v", "node-2")).await;
    rig.until_ready("third").await;
    assert_eq!(rig.count("v", Rpc::ControllerPublishVolume), 2);
    rig.remove(&["third"], &["v"]).await;
}

async fn what_is_added_is_granted_when_the_driver_confirms(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.make_volume(&volume("v")).await;
    rig.until_volume_ready("v").await;
    let mut reader = volume_claim("reader", "v", "node-2");
    (reader.spec.access_mode, reader.spec.read_only) = (AccessMode::MultiNodeReader, true);
    rig.make_claim(&reader).await;
    rig.patch_plugin(json!({ "validation": "Strict" })).await;
    let said = rig.until_claim_says("reader", "UseNotListed").await;
    assert!(said.contains("MultiNodeReader/FileSystem"), "{said}");
    let set = |answers| rig.fake.backend().answers.insert("v".to_owned(), answers);
    set(Answers { confirms_nothing: true, ..Answers::default() });
    change(&rig, "v", modes(&["SingleNodeWriter", "MultiNodeReader"])).await.unwrap();
    let said = until_says(&rig, "v", "EditNotConfirmed").await;
    assert!(said.contains("no idea") && said.contains("spec.validation of the Plugin is Strict"), "{said}");
    rig.until_volume_ready("v").await;
    assert_eq!(rig.read_claim("reader").await.spec.assignment, None);
    // Who gives it up is done, and who asks for it later is answered anew.
    change(&rig, "v", modes(&["SingleNodeWriter"])).await.unwrap();
    until_says(&rig, "v", "Applied").await;
    set(Answers::default());
    change(&rig, "v", modes(&["MultiNodeReader", "SingleNodeWriter"])).await.unwrap();
    rig.until_ready("reader").await;
    until_says(&rig, "v", "Applied").await;
    let live = rig.volume_api().get("v").await.unwrap().status.unwrap();
    assert_eq!((live.last_error, live.attempts), (None, None));
    let asked = sent::<ValidateVolumeCapabilitiesRequest>(&rig, "v", Rpc::ValidateVolumeCapabilities);
    assert_eq!(asked.last().unwrap().volume_capabilities.len(), 2);
    rig.remove(&["reader"], &["v"]).await;
}

async fn what_is_taken_away_is_granted_to_nobody_and_taken_from_nobody(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let mut made = volume("v");
    made.spec.capabilities =
        serde_json::from_value(modes(&["SingleNodeWriter", "MultiNodeReader"])["capabilities"].clone())
            .unwrap();
    rig.make_volume(&made).await;
    rig.make_claim(&volume_claim("writer", "v", "node-2")).await;
    let path = rig.until_ready("writer").await;
    change(&rig, "v", modes(&["MultiNodeReader"])).await.unwrap();
    let said = until_says(&rig, "v", "StillUsed").await;
    assert!(said.contains("default/writer (SingleNodeWriter/FileSystem)"), "{said}");
    rig.make_claim(&volume_claim("late", "v", "node-2")).await;
    rig.until_claim_says("late", "UseNotListed").await;
    rig.until_ready("writer").await;
    std::fs::write(format!("{path}/data"), "precious").unwrap();
    rig.delete_claim("writer").await;
    rig.until_claim_gone("writer").await;
    until_says(&rig, "v", "Applied").await;
    assert_eq!(rig.count("v", Rpc::ValidateVolumeCapabilities), 0, "there was nothing to ask");
    // It does not come back by itself.
    change(&rig, "v", modes(&["MultiNodeReader", "SingleNodeWriter"])).await.unwrap();
    rig.until_ready("late").await;
    assert_eq!(rig.count("v", Rpc::ValidateVolumeCapabilities), 1);
    rig.remove(&["late"], &["v"]).await;
}

async fn flags_that_are_not_allowed_change_nothing(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let mut made = volume("v");
    made.spec.mount_options = serde_json::from_value(json!({ "mountFlags": ["old"] })).unwrap();
    rig.make_volume(&made).await;
    rig.until_volume_ready("v").await;
    rig.patch_plugin(json!({ "allow": { "parameterise": { "namespaces": ["other"] } } })).await;
    change(&rig, "v", flags(&["covert"])).await.unwrap();
    let said = until_says(&rig, "v", "EditNotAllowed").await;
    assert!(said.contains("spec.allow.parameterise") && !said.contains("covert"), "{said}");
    rig.make_claim(&volume_claim("c", "v", "node-2")).await;
    rig.until_ready("c").await;
    // What is allowed goes its way beside it.
    rig.patch_plugin(json!({ "allow": { "parameterise": null } })).await;
    until_says(&rig, "v", "StagedBefore").await;
    assert_eq!(staged(&rig, "v"), [["old"]]);
    rig.remove(&["c"], &["v"]).await;
}

async fn edits_and_a_growth_take_turns(cluster: Arc<Cluster>) {
    let expand = crate::rig::fake::backend::Expand::ByController;
    let rig = Rig::start(&cluster, Options { expand, ..Options::default() }).await;
    rig.make_volume(&volume("v")).await;
    rig.until_volume_ready("v").await;
    rig.patch_plugin(json!({ "validation": "Strict" })).await;
    let set = |answers| rig.fake.backend().answers.insert("v".to_owned(), answers);
    set(Answers { confirms_nothing: true, ..Answers::default() });
    change(&rig, "v", flags(&["noatime"])).await.unwrap();
    until_says(&rig, "v", "EditNotConfirmed").await;
    change(&rig, "v", json!({ "capacity": "2Mi" })).await.unwrap();
    let grown = || rig.cluster.volume("v")?.status.as_ref()?.capacity_bytes.filter(|bytes| *bytes == 2 << 20);
    rig.cluster.until("the volume has grown", grown, || rig.story("v")).await;
    set(Answers::default());
    // Another edit is another question, so nobody waits for the next time that the last one is asked.
    change(&rig, "v", flags(&["nodev"])).await.unwrap();
    until_says(&rig, "v", "Applied").await;
    rig.remove(&NO_CLAIM, &["v"]).await;
}

async fn nothing_is_edited_before_the_volume_is_there(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.fake.hold("v", Rpc::CreateVolume);
    rig.make_volume(&volume("v")).await;
    rig.until_called("v", Rpc::CreateVolume).await;
    for (spec, field) in [
        (flags(&["noatime"]), "spec.mountOptions.mountFlags"),
        (modes(&["MultiNodeReader"]), "spec.capabilities"),
    ] {
        let refused = change(&rig, "v", spec).await.unwrap_err().to_string();
        assert!(
            refused.contains(&format!("{field} cannot be changed before the Volume is Ready")),
            "{refused}"
        );
    }
    rig.fake.let_go("v", Rpc::CreateVolume);
    rig.until_volume_ready("v").await;
    let refused =
        change(&rig, "v", json!({ "mountOptions": { "fsType": "xfs" } })).await.unwrap_err().to_string();
    assert!(refused.contains("spec.mountOptions.fsType is immutable"), "{refused}");
    change(&rig, "v", flags(&["noatime"])).await.unwrap();
    until_says(&rig, "v", "Applied").await;
    rig.remove(&NO_CLAIM, &["v"]).await;
}

/// CSI wants one call for a volume at a time, and the driver here complains of two.
async fn no_edit_is_asked_about_beside_another_call(cluster: Arc<Cluster>) {
    // A call that is held back is not to end by its deadline.
    let rig = Rig::start(&cluster, Options { longest_call: 60, ..Options::default() }).await;
    rig.make_volume(&volume("v")).await;
    rig.until_volume_ready("v").await;
    rig.fake.hold("v", Rpc::ControllerPublishVolume);
    rig.make_claim(&volume_claim("c", "v", "node-2")).await;
    rig.until_called("v", Rpc::ControllerPublishVolume).await;
    change(&rig, "v", flags(&["noatime"])).await.unwrap();
    until_says(&rig, "v", "EditPending").await;
    let ordered = || rig.cluster.volume("v")?.edit().map(|_| ());
    rig.cluster.until("the driver is to be asked", ordered, || rig.story("v")).await;
    // Its agent has the time to do what it wants.
    rig.make_volume(&volume("w")).await;
    rig.until_volume_ready("w").await;
    assert_eq!(rig.count("v", Rpc::ValidateVolumeCapabilities), 0, "{}", rig.story("v"));
    rig.fake.let_go("v", Rpc::ControllerPublishVolume);
    rig.until_ready("c").await;
    until_says(&rig, "v", "StagedBefore").await;
    rig.fake.assert_obeyed();
    rig.remove(&["c"], &["v", "w"]).await;
}

/// Nothing else ever brings the leader back to a Volume for which there is nothing left to do.
async fn what_could_not_be_said_is_said_when_the_api_server_is_back(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.make_volume(&volume("v")).await;
    rig.until_volume_ready("v").await;
    let label = "PATCH volumes/status".to_owned();
    let point = Point { actor: CONTROLLER.to_owned(), label, ordinal: 0 };
    let since = rig.journal.now();
    let hit = rig.gate.arm(point.clone(), Side::Before);
    let edited = change(&rig, "v", json!({ "deletionPolicy": "Retain" })).await.unwrap();
    hit.await.unwrap();
    rig.lose_the_api_server_at(&point, since).await;
    let look = || {
        let status = rig.cluster.volume("v")?.status.clone()?;
        let answered = find(&status.conditions, READY)?.observed_generation;
        (answered == edited.metadata.generation).then_some(())
    };
    rig.cluster.until("the edit is answered", look, || rig.story("v")).await;
    change(&rig, "v", json!({ "deletionPolicy": null })).await.unwrap();
    rig.remove(&NO_CLAIM, &["v"]).await;
}
