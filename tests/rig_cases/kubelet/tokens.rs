//! Tokens of Pods, which kubelet brings again and again where the CSIDriver object says requiresRepublish.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use moor::csi::Rpc;
use moor::csi::proto::csi::v1 as wire;
use prost::Message as _;
use serde_json::json;
use tonic::Code;

use super::NODE;
use super::plain::is_work;
use crate::rig::{Cluster, Fault, Kubelet, Options, Rig, Wish, is_final};

/// As kubelet has it.
fn tokens(word: &str) -> String {
    json!({"storage": {"token": format!("token-{word}-secret"), "expirationTimestamp": "2040-01-01T00:00:00Z"}})
        .to_string()
}

fn bringing(kubelet: &Kubelet, word: &str) -> Kubelet {
    kubelet.wishing(Wish { tokens: Some(tokens(word)), ..Wish::default() })
}

/// The requests to publish that the driver got, in their order.
fn published(rig: &Rig) -> Vec<wire::NodePublishVolumeRequest> {
    let calls = rig.journal.calls_of("data").into_iter().filter_map(|entry| entry.call().cloned());
    let calls = calls.filter(|call| call.rpc == Rpc::NodePublishVolume);
    calls.map(|call| wire::NodePublishVolumeRequest::decode(call.arguments.as_slice()).unwrap()).collect()
}

/// What of it are tokens, and the rest.
fn parted(mut request: wire::NodePublishVolumeRequest) -> (Option<String>, wire::NodePublishVolumeRequest) {
    (request.volume_context.remove("csi.storage.k8s.io/serviceAccount.tokens"), request)
}

/// Files below a folder in which a word is.
fn with_word(folder: &Path, word: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            found.extend(with_word(&path, word));
        } else if kind.is_file() && String::from_utf8_lossy(&fs::read(&path).unwrap()).contains(word) {
            found.push(path.display().to_string());
        }
    }
    found
}

async fn ask_for_tokens(rig: &Rig) {
    let asks = json!({"requiresRepublish": true, "tokenRequests": [{"audience": "storage"}]});
    rig.patch_plugin(json!({"kubernetes": {"csiDriver": asks}})).await;
}

pub(super) async fn new_tokens_reach_the_driver_and_nothing_else(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let kubelet = rig.kubelet(NODE).await;
    rig.make_volume_for_pods("data").await;
    let target = bringing(&kubelet, "first").mount("pod-a", "data").await;
    let without = rig.journal.now();
    bringing(&kubelet, "unwanted").publish("pod-a", "data").await.unwrap();
    assert!(rig.journal.since(without, is_work).is_empty(), "nobody wants to be published again");

    ask_for_tokens(&rig).await;
    let again = || async {
        bringing(&kubelet, "second").publish("pod-a", "data").await.unwrap();
        published(&rig).len() > 1
    };
    rig.poll("the agent hears of requiresRepublish", again).await;
    let since = rig.journal.now();
    bringing(&kubelet, "third").publish("pod-a", "data").await.unwrap();
    let made = rig.journal.since(since, is_work);
    assert!(made.len() == 1 && made[0].call().is_some(), "{made:?}");
    let (brought, rest): (Vec<_>, Vec<_>) = published(&rig).into_iter().map(parted).unzip();
    assert_eq!(brought, ["first", "second", "third"].map(|word| Some(tokens(word))));
    assert!(rest.windows(2).all(|two| two[0] == two[1]), "with other arguments: {rest:?}");

    // What becomes of it does not end the mount.
    rig.fake.fail("data", Rpc::NodePublishVolume, Fault::CodeBefore(Code::InvalidArgument));
    let status = bringing(&kubelet, "fourth").publish("pod-a", "data").await.unwrap_err();
    assert!(!is_final(status.code()), "{status}");
    rig.fake.heal("data", Rpc::NodePublishVolume);
    fs::write(target.join("word"), "mounted all the time").unwrap();
    let claims = serde_json::to_string(&rig.pod_claims().await).unwrap();
    assert!(!claims.contains("-secret"), "{claims}");
    for folder in [rig.state_dir(NODE), rig.kubelet_dir(NODE), rig.logs()] {
        let told = with_word(&folder, "-secret");
        assert!(told.is_empty(), "tokens are in {told:?}");
    }

    // Also by an agent that has only the record.
    rig.restart_and_wait(NODE).await;
    let before = published(&rig).len();
    let again = || async { bringing(&kubelet, "fifth").publish("pod-a", "data").await.is_ok() };
    rig.poll("the next process hands them over", again).await;
    let last = published(&rig).pop().map(parted).unwrap();
    assert!(
        published(&rig).len() > before && last.0 == Some(tokens("fifth")) && last.1 == rest[0],
        "{last:?}"
    );
    kubelet.unmount("pod-a", "data").await;
    kubelet.give_up("data").await;
    rig.remove_for_pods("data").await;
    rig.fake.assert_obeyed();
}
