//! Where volumes are made.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolume;
use moor::csi::Rpc;
use serde_json::json;

use super::objects::class;
use crate::rig::fake::ZONE;
use crate::rig::{Binder, Cluster, Options, Rig};

async fn start(cluster: &Arc<Cluster>) -> (Arc<Rig>, Binder) {
    let options = Options { topology: true, ..Options::default() };
    (Rig::start(cluster, options).await, Binder::start(&cluster.admin))
}

/// The zones from which a PersistentVolume can be reached.
fn zones(volume: &PersistentVolume) -> Vec<String> {
    let affinity = volume.spec.as_ref().unwrap().node_affinity.clone().unwrap();
    let terms = affinity.required.unwrap().node_selector_terms;
    let all = terms.into_iter().flat_map(|term| term.match_expressions.unwrap());
    all.inspect(|one| assert_eq!(one.key, ZONE)).flat_map(|one| one.values.unwrap()).collect()
}

pub async fn a_claim_that_waits_for_its_consumer_gets_its_volume_there(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    let late = json!({ "parameters": { "key": "v" }, "volumeBindingMode": "WaitForFirstConsumer" });
    rig.make_class(&class("late", &late)).await;
    rig.make_class(&class("now", &json!({ "parameters": { "key": "w" } }))).await;
    let waiting = rig.make_pvc("data", "late", json!({})).await;
    rig.make_pvc("other", "now", json!({})).await;
    rig.until_bound("other").await;
    assert!(
        rig.provisioned_api().get_opt(&format!("pvc-{waiting}")).await.unwrap().is_none(),
        "nobody was chosen"
    );
    rig.choose("data", "node-2").await;
    assert_eq!(zones(&rig.until_bound("data").await), ["node-2"]);
    for claim in ["data", "other"] {
        rig.delete_pvc(claim).await;
    }
    rig.until_nothing_provisioned().await;
    rig.assert_nothing_left().await;
}

pub async fn allowed_topologies_are_kept_to(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    for node in ["node-1", "node-2"] {
        let only = json!([{ "matchLabelExpressions": [{ "key": ZONE, "values": [node] }] }]);
        let more = json!({ "parameters": { "key": node }, "allowedTopologies": only });
        rig.make_class(&class(node, &more)).await;
        rig.make_pvc(node, node, json!({})).await;
        assert_eq!(zones(&rig.until_bound(node).await), [node]);
    }
    let nowhere = json!([{ "matchLabelExpressions": [{ "key": ZONE, "values": ["the moon"] }] }]);
    rig.make_class(&class("nowhere", &json!({ "allowedTopologies": nowhere }))).await;
    rig.make_pvc("nowhere", "nowhere", json!({})).await;
    rig.until_event("nowhere", "ProvisioningFailed", "allowedTopologies").await;
}

pub async fn a_full_place_is_left_for_another(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    let late = json!({ "parameters": { "key": "v" }, "volumeBindingMode": "WaitForFirstConsumer" });
    rig.make_class(&class("late", &late)).await;
    rig.fake.backend().full.insert("node-1".into());
    rig.make_pvc("data", "late", json!({})).await;
    rig.choose("data", "node-1").await;
    rig.until("the scheduler may choose again", || async {
        rig.chosen("data").await.is_none().then_some(())
    })
    .await;
    rig.until_event("data", "ProvisioningFailed", "this zone is full").await;
    rig.choose("data", "node-2").await;
    assert_eq!(zones(&rig.until_bound("data").await), ["node-2"]);
    rig.delete_pvc("data").await;
    rig.until_nothing_provisioned().await;
    assert_eq!(rig.count("v", Rpc::DeleteVolume), 1, "nothing was made in the full one");
    rig.assert_nothing_left().await;
}

pub async fn a_chosen_node_that_does_not_exist_is_taken_off(cluster: Arc<Cluster>) {
    let (rig, _binder) = start(&cluster).await;
    let late = json!({ "parameters": { "key": "v" }, "volumeBindingMode": "WaitForFirstConsumer" });
    rig.make_class(&class("late", &late)).await;
    rig.make_pvc("data", "late", json!({})).await;
    rig.choose("data", "node-9").await;
    rig.until("the scheduler may choose again", || async {
        rig.chosen("data").await.is_none().then_some(())
    })
    .await;
    rig.choose("data", "node-1").await;
    assert_eq!(zones(&rig.until_bound("data").await), ["node-1"]);
}
