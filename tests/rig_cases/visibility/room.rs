//! Claims that wait for a node, and what ends their wait.

use std::sync::Arc;

use kube::Api;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use moor::api::{Attachment, ClaimState};
use serde_json::json;

use crate::rig::{CONTROLLER, Cluster, Options, Rig, volume, volume_claim};

const NODE: &str = "node-2";
const NONE: &[&str] = &[];

async fn with_volumes(cluster: &Arc<Cluster>, max_volumes: i64, names: &[String]) -> Arc<Rig> {
    let rig = Rig::start(cluster, Options { max_volumes, ..Options::default() }).await;
    for name in names {
        rig.make_volume(&volume(name)).await;
    }
    for name in names {
        rig.until_volume_ready(name).await;
    }
    rig
}

fn names(number: usize) -> Vec<String> {
    (0..number).map(|n| format!("data-{n}")).collect()
}

pub async fn a_full_node_takes_the_next_when_one_leaves(cluster: Arc<Cluster>) {
    let all = names(2);
    let rig = with_volumes(&cluster, 1, &all).await;
    rig.make_claim(&volume_claim(&all[0], &all[0], NODE)).await;
    rig.until_ready(&all[0]).await;
    rig.make_claim(&volume_claim(&all[1], &all[1], NODE)).await;
    let message = rig.until_told(&all[1], "Ready", "False", "NodeNotUsable").await;
    assert!(message.contains("limit of volumes"), "{message}");
    rig.delete_claim(&all[0]).await;
    rig.until_ready(&all[1]).await;
    rig.remove(&all[1..], &all).await;
}

/// L9. The driver refuses what is too much, and such a claim would never become Ready.
pub async fn claims_of_one_moment_do_not_overfill_a_node(cluster: Arc<Cluster>) {
    let all = names(12);
    let rig = with_volumes(&cluster, 3, &all).await;
    let claims: Vec<_> = all.iter().map(|name| volume_claim(name, name, NODE)).collect();
    futures::future::join_all(claims.iter().map(|claim| rig.make_claim(claim))).await;
    let mut waiting = all.clone();
    // Each that leaves makes room for another, until all have had their turn.
    while !waiting.is_empty() {
        let ready = |name: &String| {
            let status = rig.cluster.claim(name)?.status.clone()?;
            (status.state == ClaimState::Ready).then(|| name.clone())
        };
        let one = || waiting.iter().find_map(ready);
        let next = rig.cluster.until("one more is Ready", one, || rig.story(&waiting[0])).await;
        rig.delete_claim(&next).await;
        waiting.retain(|name| *name != next);
    }
    rig.remove(NONE, &all).await;
}

/// L9. A leader that gives its Lease back has granted in its last moment what the next one has not heard of.
pub async fn what_an_earlier_leader_has_granted_is_counted(cluster: Arc<Cluster>) {
    let all = names(2);
    let rig = with_volumes(&cluster, 1, &all).await;
    rig.make_claim(&volume_claim(&all[0], &all[0], NODE)).await;
    rig.until_ready(&all[0]).await;
    let granted = rig.read_attachment_of(&all[0]).await;
    rig.delete_claim(&all[0]).await;
    rig.until_claim_gone(&all[0]).await;
    let attachments: Api<Attachment> = Api::all(cluster.admin.clone());
    let name = granted.metadata.name.clone().unwrap();
    rig.until_gone("Attachment", &name, &attachments, || cluster.attachment(&name).is_some()).await;

    rig.stall(CONTROLLER, "attachments");
    rig.restart_and_wait(CONTROLLER).await;
    // What the earlier leader had granted for a claim that is gone by now.
    let metadata =
        ObjectMeta { name: Some(name), finalizers: granted.metadata.finalizers, ..ObjectMeta::default() };
    let again = Attachment { metadata, spec: granted.spec, status: None };
    attachments.create(&PostParams::default(), &again).await.unwrap();
    rig.make_claim(&volume_claim(&all[1], &all[1], NODE)).await;
    let message = rig.until_told(&all[1], "Ready", "False", "NodeNotUsable").await;
    assert!(message.contains("limit of volumes"), "{message}");
    rig.unstall(CONTROLLER, "attachments");
    rig.until_ready(&all[1]).await;
    rig.remove(&all[1..], &all).await;
}

pub async fn a_node_that_is_back_in_service_takes_who_waited(cluster: Arc<Cluster>) {
    let all = names(1);
    let rig = with_volumes(&cluster, 0, &all).await;
    // A leader knows of what was there before it.
    rig.kill(CONTROLLER);
    rig.mark_out_of_service(NODE, true).await;
    rig.run(CONTROLLER);
    rig.make_claim(&volume_claim(&all[0], &all[0], NODE)).await;
    rig.until_told(&all[0], "Ready", "False", "NodeNotUsable").await;
    rig.mark_out_of_service(NODE, false).await;
    rig.until_ready(&all[0]).await;
    rig.remove(&all, &all).await;
}

pub async fn who_names_no_node_gets_none_that_is_cordoned(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let anywhere = |name: &str| {
        let mut claim = volume_claim(name, name, NODE);
        claim.spec.node_name = None;
        claim
    };
    let all = names(3);
    for name in &all {
        rig.make_volume(&volume(name)).await;
    }
    // A leader knows of what was there before it.
    rig.kill(CONTROLLER);
    rig.cordon("node-1", true).await;
    rig.run(CONTROLLER);
    for name in &all[..2] {
        rig.make_claim(&anywhere(name)).await;
        rig.until_ready(name).await;
        let node = cluster.claim(name).unwrap().spec.assignment.clone().unwrap().node_name;
        assert_eq!(node, "node-2", "{}", rig.story(name));
    }
    rig.kill(CONTROLLER);
    rig.cordon("node-2", true).await;
    rig.run(CONTROLLER);
    rig.make_claim(&anywhere(&all[2])).await;
    rig.until_says(&all[2], "NoNode", &["none of the 2 nodes", "2 cordoned"]).await;
    rig.cordon("node-1", false).await;
    rig.until_ready(&all[2]).await;
    rig.cordon("node-2", false).await;
    rig.remove(&all, &all).await;
}

pub async fn who_selects_nodes_by_labels_gets_one_that_has_them(cluster: Arc<Cluster>) {
    let all = names(2);
    let rig = with_volumes(&cluster, 0, &all).await;
    let selecting = |name: &str| {
        let mut claim = volume_claim(name, name, NODE);
        claim.spec.node_name = None;
        claim.spec.node_selector = [("disk".to_owned(), "ssd".to_owned())].into();
        claim
    };
    rig.label_node(NODE, "disk", Some("hdd")).await;
    rig.make_claim(&selecting(&all[0])).await;
    rig.until_says(&all[0], "NoNode", &["2 without the labels of spec.nodeSelector"]).await;
    rig.label_node(NODE, "disk", Some("ssd")).await;
    rig.until_ready(&all[0]).await;
    rig.make_claim(&selecting(&all[1])).await;
    rig.until_ready(&all[1]).await;
    for name in &all {
        let node = cluster.claim(name).unwrap().spec.assignment.clone().unwrap().node_name;
        assert_eq!(node, NODE, "{}", rig.story(name));
    }
    let other = Patch::Merge(json!({ "spec": { "nodeSelector": { "disk": "hdd" } } }));
    let refused = rig.claim_api().patch(&all[0], &PatchParams::default(), &other).await.unwrap_err();
    assert!(refused.to_string().contains("spec.nodeSelector is immutable"), "{refused}");
    // What is granted stays, whatever becomes of labels.
    rig.label_node(NODE, "disk", None).await;
    rig.restart(CONTROLLER);
    rig.remove(&all, &all).await;
}
