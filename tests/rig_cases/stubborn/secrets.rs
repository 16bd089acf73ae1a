//! Secrets that are gone when they are needed to undo (rule R12).

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use moor::csi::Rpc;
use moor::csi::proto::csi::v1 as wire;
use serde_json::json;
use tonic::Code;

use super::NODE;
use crate::rig::{Cluster, Entry, Fault, Options, Rig, SPACE, volume, volume_claim};

const SECRET: &str = "credentials";
const WORD: &str = "open-sesame";
const FAILS: Fault = Fault::CodeBefore(Code::Internal);

/// The arguments of all calls `rpc` so far.
fn arguments<M: prost::Message + Default>(rig: &Rig, rpc: Rpc) -> Vec<M> {
    let calls = rig.journal.calls_of("v");
    let calls = calls.iter().filter_map(|entry| entry.call()).filter(|call| call.rpc == rpc);
    calls.map(|call| M::decode(call.arguments.as_slice()).unwrap()).collect()
}

pub async fn undo_goes_on_without_its_secrets(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let secrets: Api<Secret> = Api::namespaced(cluster.admin.clone(), SPACE);
    let secret = json!({"metadata": {"name": SECRET}, "stringData": {"word": WORD}});
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    let mut all = volume("v");
    let every = json!({"controller": SECRET, "controllerPublish": SECRET, "nodeStage": SECRET, "nodePublish": SECRET});
    all.spec.secrets = serde_json::from_value(every).unwrap();
    rig.make_volume(&all).await;
    rig.make_claim(&volume_claim("v", "v", NODE)).await;
    rig.until_ready("v").await;
    let given = BTreeMap::from([("word".to_owned(), WORD.to_owned())]);
    let attached: Vec<wire::ControllerPublishVolumeRequest> = arguments(&rig, Rpc::ControllerPublishVolume);
    assert!(attached.iter().all(|call| call.secrets == given), "this shows nothing");

    rig.fake.fail("v", Rpc::ControllerUnpublishVolume, FAILS);
    rig.fake.fail("v", Rpc::DeleteVolume, FAILS);
    secrets.delete(SECRET, &DeleteParams::default()).await.unwrap();
    let note = format!("Secret {SPACE}/{SECRET} is gone, ControllerUnpublishVolume was called without it");
    rig.delete_claim("v").await;
    rig.until_says("v", "ControllerUnpublishFailed", &["Internal", &note]).await;
    rig.fake.heal("v", Rpc::ControllerUnpublishVolume);
    rig.until_claim_gone("v").await;
    let detached: Vec<wire::ControllerUnpublishVolumeRequest> =
        arguments(&rig, Rpc::ControllerUnpublishVolume);
    assert!(detached.iter().all(|call| call.secrets.is_empty()));
    // Also when it succeeds.
    let done = |e: &Entry| {
        let write =
            e.write().filter(|w| w.subresource == "status" && w.state() == Some("ControllerDetached"));
        write.is_some() && e.is_taken()
    };
    let said: Vec<_> =
        rig.journal.since(0, done).iter().map(|e| e.write().unwrap().body.to_string()).collect();
    assert!(said.len() == 1 && said[0].contains(&note), "{said:?}");

    rig.delete_volume("v").await;
    let note = format!("Secret {SPACE}/{SECRET} is gone, DeleteVolume was called without it");
    rig.until_volume_says("v", "DeleteVolumeFailed", &["Internal", &note]).await;
    rig.fake.heal("v", Rpc::DeleteVolume);
    rig.until_volume_gone("v").await;
    let deleted: Vec<wire::DeleteVolumeRequest> = arguments(&rig, Rpc::DeleteVolume);
    assert!(deleted.iter().all(|call| call.secrets.is_empty()));
    rig.assert_nothing_left().await;
}
