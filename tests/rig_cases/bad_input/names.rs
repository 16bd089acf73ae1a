//! Names that no object can have, and sizes and handles that say nothing.

use std::fmt::Debug;
use std::sync::Arc;

use kube::Api;
use kube::api::PostParams;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::rig::{Cluster, Options, Rig, registered, volume, volume_claim};

/// A spec that lacks what is given, with which it is refused, and words of the refusal.
type Row = (Value, &'static [&'static str]);

const NAME: &str = "must be the name of an object";
const SECRET: &str = "must be the name of a Secret";

async fn refuses<K>(api: &Api<K>, whole: &K, rows: &[Row])
where
    K: Clone + Debug + Serialize + DeserializeOwned,
{
    for (change, words) in rows {
        let mut object = serde_json::to_value(whole).unwrap();
        object["spec"].as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let object: K = serde_json::from_value(object).unwrap();
        match api.create(&PostParams::default(), &object).await {
            Err(kube::Error::Api(said)) => {
                assert_eq!(said.code, 422, "{change}: {said}");
                assert!(words.iter().all(|word| said.message.contains(word)), "{change}: {said}");
            }
            other => panic!("{change}: {other:?}"),
        }
    }
}

/// The API server refuses them, with the field and the remedy. A name is part of the path of requests: what follows a
/// question mark would be dropped, and another object read.
pub async fn names_that_no_object_has_are_refused(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let secret = |kind: &str, name: &str| json!({ "secrets": { kind: name } });
    let created: [Row; 12] = [
        (secret("controller", "s-create?a=b"), &["spec.secrets.controller", SECRET]),
        (secret("controllerPublish", "../../other/secrets/s"), &["spec.secrets.controllerPublish", SECRET]),
        (secret("nodeStage", "Upper"), &["spec.secrets.nodeStage", SECRET, "lower case"]),
        (secret("nodePublish", ""), &["spec.secrets.nodePublish", "at least 1 chars"]),
        (secret("nodePublish", "a..b"), &["spec.secrets.nodePublish", SECRET]),
        (secret("nodePublish", "a\n"), &["spec.secrets.nodePublish", SECRET]),
        (secret("nodePublish", "a/b/c"), &["spec.secrets.nodePublish", SECRET]),
        (json!({ "pluginName": "a/b" }), &["spec.pluginName", NAME]),
        (json!({ "pluginName": "-a" }), &["spec.pluginName", NAME]),
        (json!({ "capacity": "100m" }), &["spec.capacity", "at least one byte"]),
        (json!({ "capacityLimit": "0.5" }), &["spec.capacityLimit", "at least one byte"]),
        (json!({ "capacity": 0 }), &["spec.capacity", "at least one byte"]),
    ];
    refuses(&rig.volume_api(), &volume("v"), &created).await;
    let blank: [Row; 2] = [
        (json!({ "volumeHandle": " \t\n" }), &["spec.volumeHandle", "must not be blank"]),
        (json!({ "volumeHandle": "" }), &["spec.volumeHandle", "at least 1 chars"]),
    ];
    refuses(&rig.volume_api(), &registered("v", "h"), &blank).await;
    let claimed: [Row; 5] = [
        (json!({ "volumeName": "v?x=y" }), &["spec.volumeName", NAME]),
        (json!({ "nodeName": "node_1" }), &["spec.nodeName", NAME]),
        (json!({ "nodeName": "node-1 " }), &["spec.nodeName", NAME]),
        (json!({ "nodeSelector": { "disk": "ssd" } }), &["spec.nodeSelector", "give one of the two"]),
        (json!({ "nodeSelector": { "disk": "s".repeat(64) } }), &["spec.nodeSelector.disk", "63"]),
    ];
    refuses(&rig.claim_api(), &volume_claim("c", "v", "node-2"), &claimed).await;

    // What can be is taken: the longest name, dots, one byte and what is rounded up.
    let long = ["a".repeat(63), "b".repeat(63), "c".repeat(63), "0".repeat(61)].join(".");
    let secrets = json!({ "controller": long, "nodeStage": "a.b-c.1", "nodePublish": "0" });
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    for size in [json!("1"), json!("1500m")] {
        let mut whole = serde_json::to_value(volume("v")).unwrap();
        whole["spec"]["secrets"] = secrets.clone();
        whole["spec"]["capacity"] = size;
        rig.volume_api().create(&dry, &serde_json::from_value(whole).unwrap()).await.unwrap();
    }
    rig.assert_nothing_left().await;
}

/// It may come, so the claim waits and says what for.
pub async fn a_claim_for_a_node_that_is_not_there_says_so(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.make_volume(&volume("v")).await;
    rig.make_claim(&volume_claim("c", "v", "nowhere")).await;
    let said = rig.until_claim_says("c", "NodeNotUsable").await;
    assert!(said.contains("node nowhere: there is no Node of this name"), "{said}");
    rig.delete_claim("c").await;
    rig.until_claim_gone("c").await;
    rig.delete_volume("v").await;
    rig.until_volume_gone("v").await;
    rig.assert_nothing_left().await;
}
