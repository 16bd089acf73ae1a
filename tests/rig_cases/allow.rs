//! What a Plugin allows a namespace: nothing is called or granted before, and nothing is taken away after.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{Patch, PatchParams};
use moor::api::Volume;
use moor::csi::Rpc;
use serde_json::{Value, json};

use crate::cases;
use crate::rig::fake::DRIVER;
use crate::rig::{Case, Cluster, Options, Rig, SPACE, registered, volume, volume_claim};

pub const CASES: &[Case] = cases![
    nobody_registers_unless_the_plugin_allows_it,
    a_namespace_is_allowed_by_its_label,
    storage_that_was_registered_is_deleted_only_where_that_is_allowed,
    the_words_of_the_driver_are_only_for_who_may_use_them,
    secrets_are_not_added_past_what_is_allowed,
];

/// The label of a Namespace that the cases go by.
const LABEL: &str = "moor.dev/test-of-allow";

impl Rig {
    /// Sets `spec.allow` of the Plugin, and waits until the controller goes by it; `null` is what a Plugin has that says
    /// nothing.
    async fn allow(&self, allow: Value) {
        // First nothing: a merge would leave entries that are not given.
        for allow in [Value::Null, allow] {
            self.patch_plugin(json!({ "allow": allow })).await;
        }
    }

    async fn change_volume(&self, name: &str, spec: Value) {
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.volume_api().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Makes a Volume for storage that exists.
    async fn register(&self, name: &str, key: &str) {
        let handle = self.fake.backend().add(key);
        self.make_volume(&registered(name, &handle)).await;
    }

    /// That nothing was begun for a Volume that waits: no call, no assignment.
    async fn assert_untouched(&self, volume: &str, key: &str) {
        let live = self.volume_api().get(volume).await.unwrap();
        assert_eq!(live.spec.assignment, None, "{volume}");
        assert_eq!(self.journal.trace_of(key), Vec::<String>::new(), "{volume}");
    }
}

fn of(name: &str, spec: &Value) -> Volume {
    serde_json::from_value(json!({ "metadata": { "name": name, "namespace": SPACE }, "spec": spec })).unwrap()
}

async fn label(cluster: &Cluster, value: Option<&str>) {
    let namespaces: Api<Namespace> = Api::all(cluster.admin.clone());
    let patch = Patch::Merge(json!({ "metadata": { "labels": { LABEL: value } } }));
    namespaces.patch(SPACE, &PatchParams::default(), &patch).await.unwrap();
}

/// A Plugin that says nothing lets volumes be made and none be registered.
async fn nobody_registers_unless_the_plugin_allows_it(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.allow(Value::Null).await;
    rig.register("taken", "theirs").await;
    let words = ["spec.volumeHandle", "namespace default", "spec.allow.register"];
    rig.until_volume_says("taken", "NotAllowed", &words).await;
    rig.assert_untouched("taken", "theirs").await;
    rig.make_claim(&volume_claim("c", "taken", "node-1")).await;
    rig.until_claim_says("c", "VolumeNotReady").await;
    // Made volumes go on beside it.
    rig.make_volume(&volume("made")).await;
    rig.make_claim(&volume_claim("m", "made", "node-1")).await;
    rig.until_ready("m").await;
    rig.assert_untouched("taken", "theirs").await;

    rig.allow(json!({ "register": { "namespaces": ["other", SPACE] } })).await;
    rig.until_ready("c").await;

    // Less is allowed: what there is stays, and can be claimed.
    rig.allow(json!({ "create": { "namespaces": [] } })).await;
    rig.make_volume(&volume("late")).await;
    rig.until_volume_says("late", "NotAllowed", &["spec.capacity", "spec.allow.create"]).await;
    rig.delete_claim("c").await;
    rig.until_claim_gone("c").await;
    rig.make_claim(&volume_claim("again", "taken", "node-2")).await;
    rig.until_ready("again").await;
    rig.assert_untouched("late", "late").await;

    rig.remove(&["again", "m"], &["taken", "made", "late"]).await;
    assert_eq!(rig.count("theirs", Rpc::DeleteVolume), 0);
}

/// A Namespace may get the label after the Volume was made.
async fn a_namespace_is_allowed_by_its_label(cluster: Arc<Cluster>) {
    label(&cluster, None).await;
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.allow(json!({ "register": { "namespaces": ["other"], "matchLabels": { LABEL: "storage" } } })).await;
    rig.register("v", "theirs").await;
    rig.until_volume_says("v", "NotAllowed", &["spec.allow.register"]).await;
    label(&cluster, Some("else")).await;
    rig.register("w", "more").await;
    rig.until_volume_says("w", "NotAllowed", &["spec.allow.register"]).await;
    rig.assert_untouched("v", "theirs").await;
    label(&cluster, Some("storage")).await;
    rig.until_volume_ready("v").await;
    rig.until_volume_ready("w").await;
    label(&cluster, None).await;
    rig.remove(&[] as &[&str], &["v", "w"]).await;
}

/// A right of its own, asked for when the Volume comes and again before its storage goes.
async fn storage_that_was_registered_is_deleted_only_where_that_is_allowed(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let everybody = json!({ "namespaces": ["*"] });
    rig.allow(json!({ "register": everybody })).await;
    let words = ["spec.deletionPolicy", "spec.allow.deleteRegistered", "Retain"];
    let handle = rig.fake.backend().add("wanted");
    rig.make_volume(&of(
        "wants",
        &json!({ "pluginName": DRIVER, "volumeHandle": handle, "deletionPolicy": "Delete" }),
    ))
    .await;
    rig.until_volume_says("wants", "NotAllowed", &words).await;
    rig.assert_untouched("wants", "wanted").await;

    // Said only when the Volume is there.
    rig.register("sly", "taken").await;
    rig.until_volume_ready("sly").await;
    rig.change_volume("sly", json!({ "deletionPolicy": "Delete" })).await;
    rig.delete_volume("sly").await;
    rig.until_volume_says("sly", "NotAllowed", &words).await;
    rig.change_volume("sly", json!({ "deletionPolicy": "Retain" })).await;
    rig.until_volume_gone("sly").await;
    assert_eq!(rig.count("taken", Rpc::DeleteVolume), 0);

    // A Plugin that is gone allows nothing any more.
    rig.register("alone", "left").await;
    rig.until_volume_ready("alone").await;
    rig.change_volume("alone", json!({ "deletionPolicy": "Delete" })).await;
    rig.delete_plugin().await;
    rig.delete_volume("alone").await;
    rig.until_volume_says("alone", "NotAllowed", &["does not exist", "Retain"]).await;
    rig.make_plugin().await;
    rig.until_volume_gone("alone").await;
    assert_eq!(rig.count("left", Rpc::DeleteVolume), 1, "the new Plugin allows it");

    rig.until_volume_ready("wants").await;
    rig.remove(&[] as &[&str], &["wants"]).await;
    assert_eq!(rig.count("wanted", Rpc::DeleteVolume), 1);
}

/// Parameters, and the options of mounts, of Volumes and of claims. The flags themselves are not repeated.
async fn the_words_of_the_driver_are_only_for_who_may_use_them(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.allow(json!({ "parameterise": { "namespaces": ["other"] } })).await;
    rig.make_volume(&volume("p")).await;
    rig.until_volume_says("p", "NotAllowed", &["spec.parameters", "spec.allow.parameterise"]).await;
    rig.assert_untouched("p", "p").await;
    let plain = json!({ "pluginName": DRIVER, "capacity": "1Mi" });
    let with = |more: Value| {
        let mut spec = plain.clone();
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    rig.make_volume(&of("t", &with(json!({ "mountOptions": { "fsType": "xfs" } })))).await;
    rig.until_volume_says("t", "NotAllowed", &["spec.mountOptions.fsType"]).await;
    rig.make_volume(&of("f", &with(json!({ "mountOptions": { "mountFlags": ["covert"] } })))).await;
    let said = rig.until_volume_says("f", "NotAllowed", &["spec.mountOptions.mountFlags"]).await;
    assert!(!said.contains("covert"), "{said}");

    rig.make_volume(&of("v", &plain)).await;
    rig.until_volume_ready("v").await;
    let mut flagged = volume_claim("a", "v", "node-1");
    flagged.spec.mount_options = serde_json::from_value(json!({ "mountFlags": ["covert"] })).unwrap();
    rig.make_claim(&flagged).await;
    let said = rig.until_claim_says("a", "NotAllowed").await;
    assert!(said.contains("spec.mountOptions.mountFlags") && !said.contains("covert"), "{said}");
    assert_eq!(rig.read_claim("a").await.spec.assignment, None);
    // A younger one does not stand behind a claim that is not granted whatever happens.
    rig.make_claim(&volume_claim("b", "v", "node-2")).await;
    rig.until_ready("b").await;
    rig.delete_claim("b").await;
    rig.until_claim_gone("b").await;
    rig.allow(Value::Null).await;
    rig.until_ready("a").await;
    for volume in ["p", "t", "f"] {
        rig.until_volume_ready(volume).await;
    }
    rig.remove(&["a"], &["v", "p", "t", "f"]).await;
}

/// They speak to the driver as parameters do, and are judged before the grant: what comes later was never allowed.
async fn secrets_are_not_added_past_what_is_allowed(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.allow(json!({ "parameterise": { "namespaces": ["other"] } })).await;
    let plain = json!({ "pluginName": DRIVER, "capacity": "1Mi" });
    let with = |secrets: Value| {
        let mut spec = plain.clone();
        spec["secrets"] = secrets;
        spec
    };
    let change = |name: &'static str, secrets: Value| {
        let (volumes, patch) = (rig.volume_api(), json!({ "spec": { "secrets": secrets } }));
        async move { volumes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await }
    };
    for (name, spec) in [("bare", plain.clone()), ("empty", with(json!({})))] {
        rig.make_volume(&of(name, &spec)).await;
        rig.until_volume_ready(name).await;
        for kind in ["controller", "controllerPublish", "nodeStage", "nodePublish"] {
            let refused = change(name, json!({ kind: "smuggled" })).await.map(drop).unwrap_err().to_string();
            assert!(refused.contains("spec.secrets") && refused.contains("create another"), "{refused}");
        }
        change(name, json!({})).await.unwrap();
    }
    // Before the grant they are judged.
    rig.make_volume(&of("late", &with(json!({ "nodeStage": "a" })))).await;
    rig.until_volume_says("late", "NotAllowed", &["spec.secrets", "spec.allow.parameterise"]).await;
    change("late", Value::Null).await.unwrap();
    rig.until_volume_ready("late").await;

    rig.allow(Value::Null).await;
    rig.make_volume(&of("asked", &with(json!({ "nodeStage": "a" })))).await;
    rig.until_volume_ready("asked").await;
    // Rotated, and for other calls too.
    change("asked", json!({ "nodeStage": "b", "nodePublish": "c" })).await.unwrap();
    change("asked", Value::Null).await.unwrap();
    rig.remove(&[] as &[&str], &["bare", "empty", "late", "asked"]).await;
}
