//! Claims of Pods that were made, or are deleted, by somebody who may not.

use std::sync::Arc;

use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Error};
use moor::api::{FINALIZER, VolumeClaim};
use serde_json::{Value, json};

use super::NODE;
use crate::rig::{CONTROLLER, Cluster, NAMESPACE, Options, Rig};

/// The name of a right claim.
const NAME: &str = "pod-uid-a-0123456789abcdef";
/// Somebody who may use moor, and is none of its processes.
const USER: &str = "somebody";

fn claim(name: &str, node: &str, more: &Value) -> VolumeClaim {
    let pod = json!({"namespace": "default", "name": "a", "uid": "uid-a", "persistentVolume": "pv-data"});
    let mut spec = json!({"volumeName": "none", "nodeName": node, "pod": pod});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    let mut claim: VolumeClaim = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
    claim.metadata = ObjectMeta {
        name: Some(name.to_owned()),
        finalizers: Some(vec![FINALIZER.to_owned()]),
        ..ObjectMeta::default()
    };
    claim
}

fn refused<T: std::fmt::Debug>(what: &str, answer: Result<T, Error>, word: &str) {
    match answer {
        Err(Error::Api(status)) if status.code == 403 || status.code == 422 => {
            assert!(status.message.contains(word), "{what}: {}", status.message);
        }
        other => panic!("{what}: {other:?}"),
    }
}

/// Binds the user to what users may do with claims.
async fn bind_user(rig: &Rig) {
    let bindings: Api<RoleBinding> = Api::namespaced(rig.cluster.admin.clone(), NAMESPACE);
    let binding = json!({
        "metadata": {"name": "user"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "moor-edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}],
    });
    let binding = serde_json::from_value(binding).unwrap();
    bindings.create(&PostParams::default(), &binding).await.unwrap();
}

/// Makes a claim by way of the user, who may make claims.
async fn by_user(rig: &Rig, claim: &VolumeClaim) -> Result<String, Error> {
    let path = format!("/apis/moor.dev/v1alpha1/namespaces/{NAMESPACE}/volumeclaims?dryRun=All");
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .header("impersonate-user", USER)
        .header("impersonate-group", "system:authenticated");
    let body = serde_json::to_vec(claim).unwrap();
    rig.cluster.admin.request_text(request.body(body).unwrap()).await
}

/// With a token of one node's agent.
pub(super) async fn an_agent_makes_claims_of_pods_on_its_own_node_alone(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let ours = rig.rogue(NODE).await.claims(NAMESPACE);
    let theirs = rig.rogue("node-1").await.claims(NAMESPACE);
    bind_user(&rig).await;
    let make = PostParams::default();

    let right = claim(NAME, NODE, &json!({}));
    refused("another node's", theirs.create(&make, &right).await, "on its own node");
    refused(
        "no Pod's",
        ours.create(&make, &claim(NAME, NODE, &json!({"pod": null}))).await,
        "no claim of a Pod",
    );
    refused(
        "no node's",
        ours.create(&make, &claim(NAME, NODE, &json!({"nodeName": null}))).await,
        "nodeName",
    );
    refused(
        "another name",
        ours.create(&make, &claim("pod-b-1", NODE, &json!({}))).await,
        "pod-<UID of the Pod>",
    );
    let by_force = claim(NAME, NODE, &json!({"forceDetach": true}));
    refused("by force", ours.create(&make, &by_force).await, "forceDetach");
    let mut foreign = right.clone();
    foreign.metadata.finalizers = Some(vec![FINALIZER.to_owned(), "example.com/stay".to_owned()]);
    refused("a foreign finalizer", ours.create(&make, &foreign).await, "no other");
    foreign.metadata.finalizers = None;
    refused("no finalizer", ours.create(&make, &foreign).await, "no other");
    let elsewhere = rig.rogue(NODE).await.claims("kube-system");
    refused(
        "neither moor's namespace nor the Pod's",
        elsewhere.create(&make, &right).await,
        "in the Pod's own",
    );
    refused("a user", by_user(&rig, &right).await, "moor");
    let mut bare = right.clone();
    bare.metadata.finalizers = None;
    refused(
        "a user without the finalizer",
        by_user(&rig, &bare).await,
        "spec.pod is written by moor's agents",
    );

    // The controller deletes the claim of a Pod that is not there, and is not to be the first.
    rig.stop(CONTROLLER).await;
    ours.create(&make, &right).await.unwrap();
    for (what, spec) in [
        ("another mode", json!({"accessMode": "MultiNodeMultiWriter"})),
        ("another node", json!({"nodeName": "node-1"})),
        ("another Pod", json!({"pod": {"uid": "uid-b"}})),
        (
            "a grant",
            json!({"assignment": {"attachment": "a", "attachmentUID": "u", "nodeName": NODE, "nodeUID": "n"}}),
        ),
    ] {
        let patch = Patch::Merge(json!({"spec": spec}));
        refused(what, ours.patch(NAME, &PatchParams::default(), &patch).await, "cannot patch");
    }
    refused(
        "another node deletes it",
        theirs.delete(NAME, &DeleteParams::default()).await,
        "on its own node",
    );
    let all: Api<VolumeClaim> = rig.claims_for_pods();
    let native = serde_json::from_value(
        json!({"metadata": {"name": "native"}, "spec": {"volumeName": "none", "nodeName": NODE}}),
    );
    all.create(&make, &native.unwrap()).await.unwrap();
    refused(
        "a user's is deleted",
        ours.delete("native", &DeleteParams::default()).await,
        "no claim of a Pod",
    );
    ours.delete(NAME, &DeleteParams::default()).await.unwrap();
    all.delete("native", &DeleteParams::default()).await.unwrap();
    rig.run(CONTROLLER);
    rig.assert_nothing_left().await;
}
