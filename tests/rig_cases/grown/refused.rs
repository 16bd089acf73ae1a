//! Nodes that cannot follow: the claims go on, and nobody waits for it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use moor::api::conditions::{EXPANDED, READY, find, is_true};
use moor::csi::Rpc;
use serde_json::json;
use tonic::Code;

use super::{MI, NODE, asked, claim, end, leave, make, raise, start, until_grown, until_says};
use crate::rig::fake::backend::Expand;
use crate::rig::{Cluster, Fault, Rig, SPACE, volume, volume_claim};

/// The Attachment is Ready and says why the volume has not grown there.
async fn assert_told(rig: &Rig, claim: &str, words: &str) {
    let status = rig.read_attachment_of(claim).await.status.unwrap();
    assert!(is_true(&status.conditions, READY), "{status:?}");
    let said = find(&status.conditions, EXPANDED).unwrap();
    assert_eq!(said.reason, "NodeExpandFailed");
    assert!(said.message.contains(words), "{said:?}");
    let error = status.last_error.unwrap();
    assert_eq!(error.rpc, "NodeExpandVolume");
    assert!(status.attempts.is_some() && status.next_retry.is_some());
}

pub async fn a_growth_that_is_refused_takes_nothing_away_and_blocks_nobody(cluster: Arc<Cluster>) {
    let rig = start(&cluster, Expand::AndNodes).await;
    rig.patch_plugin(json!({ "toleratesSecondTarget": true })).await;
    make(&rig).await;
    let path = claim(&rig, "c", NODE).await;
    std::fs::write(format!("{path}/data"), "precious").unwrap();
    rig.fake.fail("v", Rpc::NodeExpandVolume, Fault::CodeBefore(Code::FailedPrecondition));
    raise(&rig, "v", "3Mi").await.unwrap();
    until_says(&rig, "v", "NodeExpandFailed", &[NODE, "FailedPrecondition"]).await;
    assert_told(&rig, "c", "FailedPrecondition").await;
    assert_eq!(rig.until_ready("c").await, path);
    assert_eq!(std::fs::read_to_string(format!("{path}/data")).unwrap(), "precious");
    // Who comes waits for one attempt at most, and who leaves for none.
    claim(&rig, "d", NODE).await;
    leave(&rig, "c").await;
    leave(&rig, "d").await;
    until_says(&rig, "v", "NodesToFollow", &["the next claim"]).await;
    assert_eq!(rig.count("v", Rpc::ControllerUnpublishVolume), 1, "{}", rig.story("v"));
    // Also where it is tried before the claim is Ready.
    let before = asked(&rig, "v").len();
    claim(&rig, "e", NODE).await;
    assert!(asked(&rig, "v").len() > before, "{}", rig.story("v"));
    until_says(&rig, "v", "NodeExpandFailed", &["FailedPrecondition"]).await;
    rig.fake.heal("v", Rpc::NodeExpandVolume);
    until_grown(&rig, "v", "3Mi").await;
    let status = rig.read_attachment_of("e").await.status.unwrap();
    assert_eq!((status.last_error, status.attempts), (None, None));
    assert!(is_true(&status.conditions, EXPANDED), "{:?}", status.conditions);
    end(&rig, &["e"]).await;
}

/// No call has made the storage larger, so it is nodes alone that say what can be had.
pub async fn a_size_that_cannot_be_had_may_be_lowered(cluster: Arc<Cluster>) {
    let rig = start(&cluster, Expand::OnNodes).await;
    make(&rig).await;
    claim(&rig, "c", NODE).await;
    rig.fake.backend().most = 2 * MI;
    raise(&rig, "v", "9Mi").await.unwrap();
    until_says(&rig, "v", "NodeExpandFailed", &[NODE, "the storage is smaller"]).await;
    let capacity = || async { rig.volume_api().get("v").await.unwrap().status.unwrap().capacity_bytes };
    assert_eq!(capacity().await, Some(MI), "nobody has made it larger");
    raise(&rig, "v", "2Mi").await.unwrap();
    until_grown(&rig, "v", "2Mi").await;
    assert_eq!(rig.fake.backend().volumes["v"].grown_on[NODE], 2 * MI);
    let sizes: Vec<_> = asked(&rig, "v").iter().map(|r| r.capacity_range.unwrap().required_bytes).collect();
    assert_eq!((sizes.first(), sizes.last()), (Some(&(9 * MI)), Some(&(2 * MI))), "{sizes:?}");
    let status = rig.read_attachment_of("c").await.status.unwrap();
    assert_eq!((status.last_error, status.node_capacity_bytes), (None, Some(2 * MI)));
    // And up again.
    rig.fake.backend().most = 4 * MI;
    raise(&rig, "v", "4Mi").await.unwrap();
    until_grown(&rig, "v", "4Mi").await;
    end(&rig, &["c"]).await;
}

/// CSI wants one call for a volume at a time, and the driver here complains of two.
pub async fn a_claim_that_leaves_waits_for_the_end_of_the_call(cluster: Arc<Cluster>) {
    let rig = start(&cluster, Expand::AndNodes).await;
    make(&rig).await;
    claim(&rig, "c", NODE).await;
    rig.fake.hold("v", Rpc::NodeExpandVolume);
    raise(&rig, "v", "3Mi").await.unwrap();
    rig.until_called("v", Rpc::NodeExpandVolume).await;
    rig.delete_claim("c").await;
    // Its agent has the time to do what it wants.
    rig.make_volume(&volume("w")).await;
    rig.make_claim(&volume_claim("x", "w", NODE)).await;
    rig.until_ready("x").await;
    assert_eq!(rig.count("v", Rpc::NodeUnpublishVolume), 0, "{}", rig.story("v"));
    rig.fake.let_go("v", Rpc::NodeExpandVolume);
    rig.until_claim_gone("c").await;
    assert_eq!(asked(&rig, "v").len(), 1, "nothing is made larger that is being undone");
    rig.remove(&["x"], &["w"]).await;
    end(&rig, &super::NO_CLAIM).await;
}

pub async fn a_secret_that_is_missing_is_said(cluster: Arc<Cluster>) {
    let rig = start(&cluster, Expand::AndNodes).await;
    let mut locked = volume("v");
    locked.spec.secrets = serde_json::from_value(json!({ "nodeExpand": "key" })).unwrap();
    rig.make_volume(&locked).await;
    let path = claim(&rig, "c", NODE).await;
    raise(&rig, "v", "3Mi").await.unwrap();
    until_says(&rig, "v", "NodeExpandFailed", &["SecretNotFound", "key"]).await;
    assert_told(&rig, "c", "key").await;
    assert_eq!(rig.until_ready("c").await, path);
    assert!(asked(&rig, "v").is_empty());
    let secrets: Api<Secret> = Api::namespaced(cluster.admin.clone(), SPACE);
    let secret = json!({ "metadata": { "name": "key" }, "stringData": { "word": "open-sesame" } });
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    until_grown(&rig, "v", "3Mi").await;
    assert_eq!(asked(&rig, "v")[0].secrets["word"], "open-sesame");
    secrets.delete("key", &kube::api::DeleteParams::default()).await.unwrap();
    end(&rig, &["c"]).await;
}
