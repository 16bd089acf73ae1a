//! Secrets that a Plugin names for volumes that name none.

use std::sync::Arc;

use moor::api::{SnapshotState, Volume};
use moor::csi::Rpc;
use serde_json::{Value, json};

use super::{ADMIN, CALLS, Made, taken, word, words};
use crate::provision::objects::class;
use crate::rig::{Binder, Cluster, Options, Rig, SPACE, registered, volume, volume_claim};
use crate::snapshots::objects::{registered as registered_snapshot, snapshot};

const NODE: &str = "node-2";

fn of_admin(name: &str) -> Value {
    json!({ "namespace": ADMIN, "name": name })
}

fn with(key: &str, secrets: Value) -> Volume {
    let mut made = volume(key);
    made.spec.secrets = serde_json::from_value(secrets).unwrap();
    made
}

async fn start(cluster: &Arc<Cluster>) -> Arc<Rig> {
    Rig::start(cluster, Options { snapshots: true, ..Options::default() }).await
}

/// Attaches a volume and detaches it.
async fn use_it(rig: &Rig, key: &str) {
    rig.make_claim(&volume_claim(key, key, NODE)).await;
    rig.until_ready(key).await;
    rig.delete_claim(key).await;
    rig.until_claim_gone(key).await;
}

/// By a template, and beside a Volume that names some of its own.
pub async fn those_of_the_plugin_count_where_a_volume_names_none(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    let mut made = Made::new(&cluster);
    made.make(ADMIN, &format!("key-{SPACE}"), "of the admin").await;
    made.make(ADMIN, "stage", "for staging").await;
    made.make(SPACE, "own", "of the user").await;
    let templates = json!({ "default": of_admin("key-${pvc.namespace}"), "nodeStage": of_admin("stage") });
    rig.name_secrets(templates).await;
    rig.make_volume(&volume("plain")).await;
    rig.make_volume(&with("mixed", json!({ "controller": "own", "nodeStage": "own" }))).await;
    for key in ["plain", "mixed"] {
        rig.until_volume_ready(key).await;
        rig.make_snapshot(&snapshot(&format!("s-{key}"), key)).await;
        rig.until_snapshot(&format!("s-{key}"), SnapshotState::Ready).await;
        use_it(&rig, key).await;
    }
    // One that nobody has taken goes by the Plugin, and one that says so by its own.
    let handles = ["found", "named"].map(|key| rig.fake.backend().add_snapshot(key, "plain"));
    rig.make_snapshot(&registered_snapshot("found", &handles[0], json!({}))).await;
    rig.make_snapshot(&registered_snapshot("named", &handles[1], json!({ "secretName": "own" }))).await;
    for name in ["found", "named"] {
        rig.until_snapshot(name, SnapshotState::Ready).await;
    }
    for name in ["s-plain", "s-mixed", "found", "named"] {
        rig.delete_snapshot(name).await;
        rig.until_snapshot_gone(name).await;
    }
    rig.remove(&[] as &[&str], &["plain", "mixed"]).await;

    let attach = [Rpc::ControllerPublishVolume, Rpc::ControllerUnpublishVolume, Rpc::NodePublishVolume];
    let of_storage = [Rpc::CreateVolume, Rpc::DeleteVolume, Rpc::CreateSnapshot];
    for (key, rpcs, word) in [
        ("plain", &of_storage[..], "of the admin"),
        ("plain", &attach, "of the admin"),
        ("plain", &[Rpc::NodeStageVolume], "for staging"),
        ("mixed", &of_storage, "of the user"),
        ("mixed", &attach, "of the admin"),
        ("mixed", &[Rpc::NodeStageVolume], "of the user"),
        ("s-plain", &[Rpc::DeleteSnapshot], "of the admin"),
        ("s-mixed", &[Rpc::DeleteSnapshot], "of the user"),
        ("found", &[Rpc::ListSnapshots], "of the admin"),
        ("named", &[Rpc::ListSnapshots], "of the user"),
    ] {
        assert_eq!(words(&rig, key, rpcs), [word], "{key} {rpcs:?}");
    }
    made.remove().await;
}

/// The Volume's own.
pub async fn one_counts_for_every_kind_of_call(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    let mut made = Made::new(&cluster);
    made.make(SPACE, "own", "for all").await;
    let handle = rig.fake.backend().add("r");
    let mut found = registered("r", &handle);
    found.spec.secrets = serde_json::from_value(json!({ "default": "own" })).unwrap();
    rig.make_volume(&found).await;
    rig.make_volume(&with("v", json!({ "default": "own" }))).await;
    for key in ["v", "r"] {
        rig.until_volume_ready(key).await;
    }
    rig.make_snapshot(&snapshot("s", "v")).await;
    rig.until_snapshot("s", SnapshotState::Ready).await;
    use_it(&rig, "v").await;
    rig.delete_snapshot("s").await;
    rig.until_snapshot_gone("s").await;
    rig.remove(&[] as &[&str], &["v", "r"]).await;
    let calls = rig.journal.since(0, |entry| entry.call().is_some_and(|call| CALLS.contains(&call.rpc)));
    let calls: Vec<_> = calls.iter().filter_map(|entry| entry.call()).collect();
    assert!(calls.len() >= 9, "this shows nothing: {calls:?}");
    for call in calls {
        assert_eq!(taken(call), Some(word("for all")), "{}", call.rpc);
    }
    made.remove().await;
}

/// The names are fixed when a Volume is taken up. The Plugin may name others since, or be gone.
pub async fn undo_goes_by_what_was_named_when_it_began(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    let mut made = Made::new(&cluster);
    made.make(ADMIN, "first", "first").await;
    made.make(ADMIN, "second", "second").await;
    rig.make_volume(&volume("before")).await;
    rig.until_volume_ready("before").await;
    rig.name_secrets(json!({ "default": of_admin("first") })).await;
    rig.make_volume(&volume("v")).await;
    rig.until_volume_ready("v").await;
    rig.make_claim(&volume_claim("v", "v", NODE)).await;
    rig.until_ready("v").await;
    rig.name_secrets(json!({ "default": of_admin("second") })).await;
    rig.make_volume(&volume("after")).await;
    rig.until_volume_ready("after").await;
    use_it(&rig, "before").await;
    rig.delete_plugin().await;
    rig.remove(&["v"], &["v", "after", "before"]).await;
    let all = [
        Rpc::CreateVolume,
        Rpc::ControllerPublishVolume,
        Rpc::NodeStageVolume,
        Rpc::NodePublishVolume,
        Rpc::ControllerUnpublishVolume,
        Rpc::DeleteVolume,
    ];
    for (key, word) in [("before", ""), ("v", "first"), ("after", "second")] {
        assert_eq!(words(&rig, key, &all), [word], "{key}");
    }
    made.remove().await;
}

/// Whoever names a Volume does not choose among the Secrets of an administrator's namespace.
pub async fn nobody_reaches_anothers_secret_by_a_name(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    let mut made = Made::new(&cluster);
    made.make(ADMIN, "treasure", "of the admin").await;
    made.make(SPACE, "treasure", "of the user").await;
    for (name, namespace, field, says) in [
        ("${pvc.name}", ADMIN, "spec.secrets.default.name", "${pvc.name} in the name needs ${pvc.namespace}"),
        ("${pvc.namespace}-${pvc.name}", ADMIN, "spec.secrets.default.name", "needs ${pvc.namespace}"),
        (
            "${pvc.annotations['key']}",
            SPACE,
            "spec.secrets.default.name",
            "${pvc.namespace}, ${pvc.name} and ${pv.name}",
        ),
        ("${volume.name}", SPACE, "spec.secrets.default.name", "may stand"),
        ("a/b", SPACE, "spec.secrets.default.name", "must be the name of a Secret"),
        ("$treasure", SPACE, "spec.secrets.default.name", "must be the name of a Secret"),
        ("key", "${pvc.name}", "spec.secrets.default.namespace", "must be the name of a namespace"),
        ("key", "a.b", "spec.secrets.default.namespace", "must be the name of a namespace"),
        ("key", "", "spec.secrets.default.namespace", "at least 1 chars"),
    ] {
        let refused = rig.refused(json!({ "default": { "name": name, "namespace": namespace } })).await;
        assert!(refused.contains(field) && refused.contains(says), "{namespace}/{name}: {refused}");
    }
    let refused = rig.refused(json!({ "nodeStage": { "name": "key" } })).await;
    assert!(refused.contains("spec.secrets.nodeStage.namespace"), "{refused}");

    rig.name_secrets(json!({ "default": { "name": "${pvc.name}", "namespace": "${pvc.namespace}" } })).await;
    let mut named = volume("v");
    named.metadata.name = Some("treasure".into());
    rig.make_volume(&named).await;
    rig.until_volume_ready("treasure").await;
    assert_eq!(words(&rig, "v", &[Rpc::CreateVolume]), ["of the user"]);
    // A Secret that is not there is waited for, under its whole name.
    rig.make_volume(&volume("poor")).await;
    let missing = format!("Secret {SPACE}/poor does not exist");
    rig.until_volume_says("poor", "SecretNotFound", &[&missing]).await;
    made.make(SPACE, "poor", "of the user").await;
    rig.until_volume_ready("poor").await;
    // And what comes to no name at all is said of the field.
    let long = format!("key-{}", "${pvc.name}".repeat(4));
    rig.name_secrets(json!({ "default": { "name": long, "namespace": "${pvc.namespace}" } })).await;
    let mut unnamed = volume("w");
    unnamed.metadata.name = Some("w".repeat(63));
    rig.make_volume(&unnamed).await;
    let told = ["spec.secrets.default.name of Plugin", "not the name of a Secret"];
    rig.until_volume_says(&"w".repeat(63), "SecretUnreadable", &told).await;
    assert_eq!(rig.count("w", Rpc::CreateVolume), 0);
    rig.name_secrets(Value::Null).await;
    rig.until_volume_ready(&"w".repeat(63)).await;
    rig.remove(&[] as &[&str], &["treasure", "poor", &"w".repeat(63)]).await;
    made.remove().await;
}

/// A class comes before the Plugin, for each kind of call, and both stand in the PersistentVolume, by which kubelets read them.
pub async fn those_of_kubernetes_volumes_come_from_class_and_plugin(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    let _binder = Binder::start(&cluster.admin);
    let mut made = Made::new(&cluster);
    made.make(SPACE, "stage", "of the class").await;
    made.make(SPACE, "data", "of the Plugin").await;
    rig.name_secrets(json!({ "default": { "name": "${pvc.name}", "namespace": "${pvc.namespace}" } })).await;
    let parameters = json!({ "key": "v", "csi.storage.k8s.io/node-stage-secret-name": "stage",
        "csi.storage.k8s.io/node-stage-secret-namespace": "${pvc.namespace}" });
    rig.make_class(&class("fast", &json!({ "parameters": parameters }))).await;
    rig.make_pvc("data", "fast", json!({})).await;
    let csi = rig.until_bound("data").await.spec.unwrap().csi.unwrap();
    let named = |secret: Option<k8s_openapi::api::core::v1::SecretReference>| {
        let secret = secret.unwrap();
        format!("{}/{}", secret.namespace.unwrap(), secret.name.unwrap())
    };
    assert_eq!(named(csi.node_stage_secret_ref), format!("{SPACE}/stage"));
    for of_plugin in [
        csi.controller_publish_secret_ref,
        csi.node_publish_secret_ref,
        csi.controller_expand_secret_ref,
        csi.node_expand_secret_ref,
    ] {
        assert_eq!(named(of_plugin), format!("{SPACE}/data"));
    }
    // The Plugin may say otherwise since.
    rig.name_secrets(Value::Null).await;
    rig.delete_pvc("data").await;
    rig.until_nothing_provisioned().await;
    assert_eq!(words(&rig, "v", &[Rpc::CreateVolume, Rpc::DeleteVolume]), ["of the Plugin"]);
    rig.assert_nothing_left().await;
    made.remove().await;
}
