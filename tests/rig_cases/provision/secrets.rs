//! The Secrets that a StorageClass names, from CreateVolume to DeleteVolume, and a Pod in between.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use moor::csi::Rpc;
use moor::csi::proto::csi::v1 as wire;
use prost::Message;
use serde_json::json;

use super::objects::class;
use crate::rig::{Binder, Cluster, LOOK, Options, PATIENCE, Rig, SPACE};
use crate::secrets::places;

const NODE: &str = "node-2";

/// Each kind of Secret with the part of its value that no other has.
const KINDS: [&str; 6] =
    ["provisioner", "controller-publish", "node-stage", "node-publish", "controller-expand", "node-expand"];

fn word(kind: &str) -> String {
    format!("open-sesame-{kind}")
}

fn value(kind: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("word".to_owned(), word(kind))])
}

/// The requests of one kind about the volume.
fn sent<M: Message + Default>(rig: &Rig, rpc: Rpc) -> Vec<M> {
    let calls = rig.journal.calls_of("v");
    let calls = calls.iter().filter_map(|entry| entry.call()).filter(|call| call.rpc == rpc);
    let all: Vec<M> = calls.map(|call| M::decode(call.arguments.as_slice()).unwrap()).collect();
    assert!(!all.is_empty(), "{} was not called", rpc.name());
    all
}

/// By templates, and each with another value, so that none goes where another belongs.
pub async fn those_of_a_class_reach_the_driver_and_nobody_else(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let _binder = Binder::start(&cluster.admin);
    let kubelet = rig.kubelet(NODE).await;
    let secrets: Api<Secret> = Api::namespaced(cluster.admin.clone(), SPACE);
    let mut parameters = json!({ "key": "v" });
    for kind in KINDS {
        let secret =
            json!({ "metadata": { "name": format!("data-{kind}") }, "stringData": { "word": word(kind) } });
        secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
        // An annotation may be gone when the volume is deleted.
        let name = if kind == "provisioner" { "${pvc.name}" } else { "${pvc.annotations['keys']}" };
        parameters[format!("csi.storage.k8s.io/{kind}-secret-name")] = json!(format!("{name}-{kind}"));
        parameters[format!("csi.storage.k8s.io/{kind}-secret-namespace")] = json!("${pvc.namespace}");
    }
    rig.make_class(&class("fast", &json!({ "parameters": parameters }))).await;
    rig.make_annotated_pvc("data", "fast", json!({ "keys": "data" })).await;
    let pv = rig.until_bound("data").await;
    let name = pv.metadata.name.clone().unwrap();
    let csi = pv.spec.clone().unwrap().csi.unwrap();
    let named = |secret: Option<k8s_openapi::api::core::v1::SecretReference>| {
        let secret = secret.unwrap();
        (secret.namespace.unwrap(), secret.name.unwrap())
    };
    for (kind, secret) in [
        ("controller-publish", csi.controller_publish_secret_ref),
        ("node-stage", csi.node_stage_secret_ref),
        ("node-publish", csi.node_publish_secret_ref),
        ("controller-expand", csi.controller_expand_secret_ref),
        ("node-expand", csi.node_expand_secret_ref),
    ] {
        assert_eq!(named(secret), (SPACE.to_owned(), format!("data-{kind}")));
    }

    // kubelet reads those of the node itself.
    let volumes = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }]);
    let uid = cluster.make_pod("web", NODE, &volumes).await.metadata.uid.unwrap();
    let pods = rig.kubelet_dir(NODE).join("pods").join(&uid);
    let target = pods.join("volumes/kubernetes.io~csi").join(&name).join("mount");
    fs::create_dir_all(target.parent().unwrap()).unwrap();
    fs::create_dir_all(kubelet.staging("v")).unwrap();
    let mut publish = kubelet.publication("web", "v");
    publish.target_path = target.to_str().unwrap().to_owned();
    publish.volume_context.insert("csi.storage.k8s.io/pod.uid".into(), uid);
    publish.secrets = value("node-publish").into_iter().collect();
    let stage = wire::NodeStageVolumeRequest {
        volume_id: "vol-v".into(),
        staging_target_path: publish.staging_target_path.clone(),
        volume_capability: publish.volume_capability.clone(),
        secrets: value("node-stage").into_iter().collect(),
        ..Default::default()
    };
    kubelet.node().await.unwrap().node_stage_volume(stage).await.unwrap();
    let published = tokio::time::timeout(PATIENCE, async {
        while let Err(status) = kubelet.send(publish.clone()).await {
            assert!(!crate::rig::is_final(status.code()), "{status}");
            tokio::time::sleep(LOOK).await;
        }
    });
    published.await.expect("the Pod never had its volume");

    let target_path = publish.target_path.clone();
    let unpublish = wire::NodeUnpublishVolumeRequest { volume_id: "vol-v".into(), target_path };
    kubelet.node().await.unwrap().node_unpublish_volume(unpublish).await.unwrap();
    kubelet.unstage("v").await.unwrap();
    for left in [target.as_path(), target.parent().unwrap()] {
        let _ = fs::remove_dir(left);
    }
    let _ = fs::remove_dir_all(&pods);
    rig.until_no_pod_claims().await;
    rig.remove_pod("web").await;
    rig.delete_pvc("data").await;
    rig.until_nothing_provisioned().await;

    let created: Vec<wire::CreateVolumeRequest> = sent(&rig, Rpc::CreateVolume);
    assert!(created.iter().all(|call| call.secrets == value("provisioner")));
    let left: Vec<_> = created[0].parameters.keys().filter(|key| key.contains("secret")).collect();
    assert!(left.is_empty(), "{left:?}");
    let attached: Vec<wire::ControllerPublishVolumeRequest> = sent(&rig, Rpc::ControllerPublishVolume);
    assert!(attached.iter().all(|call| call.secrets == value("controller-publish")));
    let staged: Vec<wire::NodeStageVolumeRequest> = sent(&rig, Rpc::NodeStageVolume);
    assert!(staged.iter().all(|call| call.secrets == value("node-stage")));
    let published: Vec<wire::NodePublishVolumeRequest> = sent(&rig, Rpc::NodePublishVolume);
    assert!(published.iter().all(|call| call.secrets == value("node-publish")));
    let detached: Vec<wire::ControllerUnpublishVolumeRequest> = sent(&rig, Rpc::ControllerUnpublishVolume);
    assert!(detached.iter().all(|call| call.secrets == value("controller-publish")));
    let deleted: Vec<wire::DeleteVolumeRequest> = sent(&rig, Rpc::DeleteVolume);
    assert!(deleted.iter().all(|call| call.secrets == value("provisioner")));
    let seen = places(&rig, &["open-sesame".to_owned()], &["node-1", NODE]).await;
    assert!(seen.is_empty(), "{}", seen.join("\n"));
    for kind in KINDS {
        secrets.delete(&format!("data-{kind}"), &kube::api::DeleteParams::default()).await.unwrap();
    }
    rig.assert_nothing_left().await;
}
