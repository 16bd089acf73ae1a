//! What only an Event can tell: objects that cannot be read, and writes that the API server refuses.

use std::sync::Arc;

use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, Error};
use serde_json::{Value, json};

use crate::cases;
use crate::rig::{Case, Cluster, LOOK, Options, PATIENCE, Rig, volume, volume_claim};

pub const CASES: &[Case] =
    cases![an_object_that_cannot_be_read_is_told_and_stalls_nobody, a_write_that_is_refused_is_told];

const PLUGINS: &str = "/apis/moor.dev/v1alpha1/plugins";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

/// The note of an Event about an object of this name, once there is one; else that there is none.
async fn told(cluster: &Cluster, kind: &str, name: &str, reason: &str) -> String {
    let events: Api<Event> = Api::all(cluster.admin.clone());
    let about = |event: &Event| {
        let of = event.regarding.as_ref();
        let is = of.is_some_and(|of| of.kind.as_deref() == Some(kind) && of.name.as_deref() == Some(name));
        is && event.reason.as_deref() == Some(reason)
    };
    let look = async {
        loop {
            let listed = events.list(&ListParams::default()).await.unwrap();
            if let Some(event) = listed.items.into_iter().find(about) {
                return event.note.unwrap_or_default();
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    let found = tokio::time::timeout(PATIENCE, look).await;
    found.unwrap_or_else(|_| format!("no Event {reason} about {kind} {name}"))
}

async fn post(client: &Client, path: &str, object: &Value) -> Result<String, Error> {
    let request = http::Request::post(path).header("content-type", "application/json");
    client.request_text(request.body(object.to_string().into_bytes()).unwrap()).await
}

async fn delete(client: &Client, path: String) {
    client.request_text(http::Request::delete(path).body(Vec::new()).unwrap()).await.unwrap();
}

/// Asks until the API server answers as it should: it heeds changes of its own rules a little later.
async fn post_until(client: &Client, path: &str, object: &Value, is: fn(&Result<String, Error>) -> bool) {
    let look = async {
        loop {
            let answer = post(client, path, object).await;
            if is(&answer) {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    let answered = tokio::time::timeout(PATIENCE, look).await;
    answered.unwrap_or_else(|_| panic!("{path} is never answered as it should be"));
}

/// Gives a kind the schema that this definition of it has.
async fn set_schema(definitions: &Api<CustomResourceDefinition>, of: &CustomResourceDefinition) {
    let patch = Patch::Merge(json!({ "spec": { "versions": of.spec.versions } }));
    let name = of.metadata.name.as_deref().unwrap();
    definitions.patch(name, &PatchParams::default(), &patch).await.unwrap();
}

/// As an older version, or a hand in etcd, may have left it: its schema is away while it is made.
async fn make_torn_plugin(cluster: &Cluster) {
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.admin.clone());
    let whole = definitions.get("plugins.moor.dev").await.unwrap();
    let mut open = whole.clone();
    let anything = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    open.spec.versions[0].schema = serde_json::from_value(json!({ "openAPIV3Schema": anything })).unwrap();
    let torn = |name: &str| {
        json!({ "apiVersion": "moor.dev/v1alpha1", "kind": "Plugin", "metadata": { "name": name },
            "spec": { "driverName": "torn.example", "controllerConcurrency": "covert" } })
    };
    set_schema(&definitions, &open).await;
    post_until(&cluster.admin, PLUGINS, &torn("torn"), Result::is_ok).await;
    set_schema(&definitions, &whole).await;
    let dry = format!("{PLUGINS}?dryRun=All");
    post_until(&cluster.admin, &dry, &torn("other"), Result::is_err).await;
}

/// An Event names it, and says what is wrong without what was found there.
async fn an_object_that_cannot_be_read_is_told_and_stalls_nobody(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    make_torn_plugin(&cluster).await;
    let note = told(&cluster, "Plugin", "torn", "InvalidObject").await;
    // Whoever reads all Plugins cannot as long as it is there, and the next case does.
    delete(&cluster.admin, format!("{PLUGINS}/torn")).await;
    assert!(note.contains("Plugin torn cannot be read") && note.contains("expected i64"), "{note}");
    assert!(!note.contains("covert"), "{note}");
    rig.make_volume(&volume("v")).await;
    rig.make_claim(&volume_claim("c", "v", "node-1")).await;
    rig.until_ready("c").await;
    rig.remove(&["c"], &["v"]).await;
}

/// A policy of somebody else stands in the way of moor's own writes. That it is heeded shows at Plugins, for which an
/// example is shorter.
async fn a_write_that_is_refused_is_told(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.make_volume(&volume("v")).await;
    rig.until_volume_ready("v").await;
    let rules = json!([{ "apiGroups": ["moor.dev"], "apiVersions": ["*"], "resources": ["attachments", "plugins"],
        "operations": ["CREATE"] }]);
    let policy = json!({ "metadata": { "name": "frozen" }, "spec": { "matchConstraints": { "resourceRules": rules },
        "validations": [{ "expression": "false", "message": "nothing is attached today" }] } });
    let binding = json!({ "metadata": { "name": "frozen" },
        "spec": { "policyName": "frozen", "validationActions": ["Deny"] } });
    post(&cluster.admin, POLICIES, &policy).await.unwrap();
    post(&cluster.admin, BINDINGS, &binding).await.unwrap();
    let plugin = json!({ "apiVersion": "moor.dev/v1alpha1", "kind": "Plugin", "metadata": { "name": "a" }, "spec": {} });
    let is_heeded = |answer: &Result<String, Error>| match answer {
        Err(Error::Api(status)) => status.message.contains("nothing is attached today"),
        _ => false,
    };
    post_until(&cluster.admin, &format!("{PLUGINS}?dryRun=All"), &plugin, is_heeded).await;

    rig.make_claim(&volume_claim("c", "v", "node-1")).await;
    let of_volume = told(&cluster, "Volume", "v", "WriteRefused").await;
    let of_claim = told(&cluster, "VolumeClaim", "c", "WriteRefused").await;
    for path in [POLICIES, BINDINGS] {
        delete(&cluster.admin, format!("{path}/frozen")).await;
    }
    for note in [of_volume, of_claim] {
        assert!(note.contains("create Attachment") && note.contains("nothing is attached today"), "{note}");
    }
    rig.until_ready("c").await;
    rig.remove(&["c"], &["v"]).await;
}
