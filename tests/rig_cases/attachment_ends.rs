//! Who ends an Attachment: the agent that has detached it, or the leader (docs/adr/0064).

use std::sync::Arc;

use kube::api::{Patch, PatchParams};
use kube::{Api, Error, ResourceExt as _};
use moor::api::{Attachment, FINALIZER};
use moor::csi::Rpc;
use serde_json::{Value, json};

use crate::cases;
use crate::rig::{
    ApiFault, CONTROLLER, Case, Cluster, Entry, LOOK, NAMESPACE, Options, Rig, volume, volume_claim,
};

/// Makes all controller calls.
const CALLER: &str = "node-1";
const NODE: &str = "node-2";
/// What ends an Attachment.
const END: &str = "PUT attachments";

/// A rig with a claim on a node. Returns the name of its Attachment, too.
async fn with_claim(cluster: &Arc<Cluster>) -> (Arc<Rig>, String) {
    let rig = Rig::start(cluster, Options::default()).await;
    rig.make_volume(&volume("v")).await;
    rig.make_claim(&volume_claim("c", "v", NODE)).await;
    rig.until_ready("c").await;
    let lock = rig.read_attachment_of("c").await.name_any();
    (rig, lock)
}

/// Who wrote this, of the writes that the API server took.
fn writers(rig: &Rig, is: impl Fn(&Entry) -> bool) -> Vec<String> {
    rig.journal.since(0, |entry| entry.is_taken() && is(entry)).into_iter().map(|entry| entry.actor).collect()
}

fn says_detached(entry: &Entry) -> bool {
    entry
        .write()
        .is_some_and(|write| write.kind == "attachments" && write.state() == Some("ControllerDetached"))
}

/// What the API server says to an agent that puts an Attachment with this change; an agent whose token names no node is none's.
async fn put_by(
    cluster: &Cluster,
    node: Option<&str>,
    lock: &str,
    change: impl Fn(&mut Attachment),
) -> Result<(), String> {
    let all: Api<Attachment> = Api::all(cluster.admin.clone());
    let mut changed = all.get(lock).await.unwrap();
    change(&mut changed);
    asked_by(cluster, node, ("PUT", lock), &serde_json::to_value(&changed).unwrap()).await
}

/// The same of an agent that says in its status that it is detached.
async fn says_so(cluster: &Cluster, node: &str, lock: &str) -> Result<(), String> {
    let status = json!({"status": {"state": "ControllerDetached"}});
    asked_by(cluster, Some(node), ("PATCH", &format!("{lock}/status")), &status).await
}

async fn asked_by(
    cluster: &Cluster,
    node: Option<&str>,
    (method, path): (&str, &str),
    body: &Value,
) -> Result<(), String> {
    let content = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let mut request = http::Request::builder()
        .method(method)
        .uri(format!("/apis/moor.dev/v1alpha1/attachments/{path}?dryRun=All"))
        .header("content-type", content)
        .header("impersonate-user", format!("system:serviceaccount:{NAMESPACE}:moor-agent"));
    if let Some(node) = node {
        request = request.header("impersonate-extra-authentication.kubernetes.io%2fnode-name", node);
    }
    match cluster.admin.request_text(request.body(body.to_string().into_bytes()).unwrap()).await {
        Ok(_) => Ok(()),
        Err(Error::Api(status)) => Err(status.message.clone()),
        Err(other) => panic!("{other}"),
    }
}

fn end(attachment: &mut Attachment) {
    attachment.metadata.finalizers = None;
}

async fn only_who_has_detached_a_closed_one_ends_it(cluster: Arc<Cluster>) {
    let (rig, lock) = with_claim(&cluster).await;
    let refused = async |node: Option<&str>, change: fn(&mut Attachment), what: &str| {
        let said = put_by(&cluster, node, &lock, change).await.expect_err(what);
        assert!(said.contains("only the moor controller writes Attachments"), "{what}: {said}");
    };
    refused(Some(CALLER), end, "an open one").await;

    rig.fake.hold("v", Rpc::NodeUnpublishVolume);
    rig.fake.hold("v", Rpc::ControllerUnpublishVolume);
    rig.delete_claim("c").await;
    rig.until_called("v", Rpc::NodeUnpublishVolume).await;
    let is_closed = || cluster.attachment(&lock).filter(|lock| lock.metadata.deletion_timestamp.is_some());
    cluster.until("it is closed", is_closed, || rig.story("v")).await;
    refused(Some(CALLER), end, "one that is mounted").await;
    let said = says_so(&cluster, CALLER, &lock).await.expect_err("mounted");
    assert!(said.contains("before its node's own agent has written NodeDetached"), "{said}");

    rig.fake.let_go("v", Rpc::NodeUnpublishVolume);
    rig.until_called("v", Rpc::ControllerUnpublishVolume).await;
    refused(Some(NODE), end, "the node's agent, which has not detached it").await;
    refused(None, end, "a token of no node").await;
    refused(Some(CALLER), |lock| lock.spec.node_capacity_bytes = Some(7), "its spec").await;
    refused(Some(CALLER), |lock| lock.metadata.labels = Some([("a".into(), "b".into())].into()), "a label")
        .await;
    let both = |lock: &mut Attachment| {
        end(lock);
        lock.spec.node_capacity_bytes = Some(7);
    };
    refused(Some(CALLER), both, "its spec with its end").await;
    put_by(&cluster, Some(CALLER), &lock, end).await.unwrap();
    says_so(&cluster, CALLER, &lock).await.unwrap();

    rig.fake.let_go("v", Rpc::ControllerUnpublishVolume);
    rig.until_claim_gone("c").await;
    assert_eq!(writers(&rig, |entry| entry.label() == END), [CALLER]);
    assert!(writers(&rig, says_detached).is_empty(), "{}", rig.story("v"));
    rig.delete_volume("v").await;
    rig.until_volume_gone("v").await;
    rig.assert_nothing_left().await;
}

/// What agents may not do, or what they are too old for, the leader does.
async fn the_leader_ends_what_an_agent_may_not(cluster: Arc<Cluster>) {
    let (rig, _) = with_claim(&cluster).await;
    rig.set_api_fault(ApiFault::Forbids(END));
    rig.delete_claim("c").await;
    let said = || (!writers(&rig, says_detached).is_empty()).then_some(());
    cluster.until("the agent says that it is detached", said, || rig.story("v")).await;
    rig.set_api_fault(ApiFault::None);
    rig.until_claim_gone("c").await;
    assert_eq!(writers(&rig, |entry| entry.label() == END), [CONTROLLER]);
    assert_eq!(rig.count("v", Rpc::ControllerUnpublishVolume), 1, "{}", rig.story("v"));
    rig.delete_volume("v").await;
    rig.until_volume_gone("v").await;
    rig.assert_nothing_left().await;
}

async fn one_that_others_hold_is_detached_once(cluster: Arc<Cluster>) {
    let (rig, lock) = with_claim(&cluster).await;
    let all: Api<Attachment> = Api::all(cluster.admin.clone());
    let hold = async |finalizers: Value| {
        let patch = Patch::Merge(json!({ "metadata": { "finalizers": finalizers } }));
        all.patch(&lock, &PatchParams::default(), &patch).await.unwrap();
    };
    hold(json!([FINALIZER, "example.com/theirs"])).await;
    rig.delete_claim("c").await;
    while all.get(&lock).await.unwrap().finalizers() != ["example.com/theirs"] {
        tokio::time::sleep(LOOK).await;
    }
    hold(Value::Null).await;
    rig.until_claim_gone("c").await;
    assert_eq!(writers(&rig, says_detached), [CALLER]);
    assert_eq!(rig.count("v", Rpc::ControllerUnpublishVolume), 1, "{}", rig.story("v"));
    rig.delete_volume("v").await;
    rig.until_volume_gone("v").await;
    rig.assert_nothing_left().await;
}

pub const CASES: &[Case] = cases![
    only_who_has_detached_a_closed_one_ends_it,
    the_leader_ends_what_an_agent_may_not,
    one_that_others_hold_is_detached_once,
];
