//! Volumes that follow when they are mounted next.

use std::sync::Arc;

use moor::csi::Rpc;
use serde_json::json;

use super::{MI, NODE, OTHER, asked, claim, end, leave, make, raise, start, trace, until_grown, until_says};
use crate::rig::fake::backend::Expand;
use crate::rig::{Cluster, Options, Rig, volume_claim};

const MOUNTS: [Rpc; 3] = [Rpc::NodeStageVolume, Rpc::NodePublishVolume, Rpc::NodeExpandVolume];

/// As kubelet has it: the capacity is the storage's at once, and the volume has the size when a node has followed.
pub async fn an_unused_volume_follows_for_the_next_claim(cluster: Arc<Cluster>) {
    let rig = start(&cluster, Expand::AndNodes).await;
    make(&rig).await;
    raise(&rig, "v", "3Mi").await.unwrap();
    until_says(&rig, "v", "NodesToFollow", &["3Mi", "the next claim"]).await;
    let status = rig.volume_api().get("v").await.unwrap().status.unwrap();
    assert_eq!(status.capacity_bytes, Some(3 * MI));
    assert!(status.expansion.unwrap().node_expansion_required);
    claim(&rig, "c", NODE).await;
    // Before it was Ready.
    assert_eq!(trace(&rig, &MOUNTS), ["NodeStageVolume", "NodePublishVolume", "NodeExpandVolume"]);
    until_grown(&rig, "v", "3Mi").await;
    let expansion = rig.volume_api().get("v").await.unwrap().status.unwrap().expansion.unwrap();
    assert!(!expansion.node_expansion_required);
    leave(&rig, "c").await;
    claim(&rig, "d", OTHER).await;
    assert_eq!(asked(&rig, "v").len(), 1, "the file system has the size");
    end(&rig, &["d"]).await;
}

/// It was attached before the volume grew, and is joined as it is.
pub async fn what_lingers_follows_when_it_is_joined(cluster: Arc<Cluster>) {
    let options = Options { expand: Expand::AndNodes, linger: 3600, ..Options::default() };
    let rig = Rig::start(&cluster, options).await;
    make(&rig).await;
    claim(&rig, "c", NODE).await;
    leave(&rig, "c").await;
    raise(&rig, "v", "3Mi").await.unwrap();
    until_says(&rig, "v", "NodesToFollow", &["the next claim"]).await;
    assert!(asked(&rig, "v").is_empty(), "nothing is mounted");
    claim(&rig, "d", NODE).await;
    assert_eq!(asked(&rig, "v").len(), 1, "{}", rig.story("v"));
    assert_eq!(rig.count("v", Rpc::ControllerPublishVolume), 1);
    until_grown(&rig, "v", "3Mi").await;
    end(&rig, &["d"]).await;
}

pub async fn a_driver_that_grows_what_is_unused_is_asked_at_the_next_mount(cluster: Arc<Cluster>) {
    let rig = start(&cluster, Expand::OnNodesUnused).await;
    rig.patch_plugin(json!({ "toleratesSecondTarget": true })).await;
    make(&rig).await;
    claim(&rig, "c", NODE).await;
    raise(&rig, "v", "3Mi").await.unwrap();
    until_says(&rig, "v", "NodesToFollow", &[NODE, "when all claims of the node have been deleted"]).await;
    // Who comes while it is used changes nothing.
    claim(&rig, "d", NODE).await;
    assert!(asked(&rig, "v").is_empty(), "{}", rig.story("v"));
    leave(&rig, "c").await;
    leave(&rig, "d").await;
    claim(&rig, "e", NODE).await;
    assert_eq!(asked(&rig, "v").len(), 1, "{}", rig.story("v"));
    until_grown(&rig, "v", "3Mi").await;
    end(&rig, &["e"]).await;
}

/// What makes a file system larger writes to it.
pub async fn who_only_reads_does_not_make_it_follow(cluster: Arc<Cluster>) {
    let rig = start(&cluster, Expand::AndNodes).await;
    rig.patch_plugin(json!({ "toleratesSecondTarget": true })).await;
    make(&rig).await;
    let mut reader = volume_claim("reader", "v", NODE);
    reader.spec.read_only = true;
    rig.make_claim(&reader).await;
    rig.until_ready("reader").await;
    raise(&rig, "v", "3Mi").await.unwrap();
    until_says(&rig, "v", "NodesToFollow", &["the next claim that mounts it and may write"]).await;
    assert!(asked(&rig, "v").is_empty(), "{}", rig.story("v"));
    // For whoever writes beside it.
    let path = claim(&rig, "writer", NODE).await;
    until_grown(&rig, "v", "3Mi").await;
    let requests = asked(&rig, "v");
    let [request] = requests.as_slice() else { panic!("{requests:?}") };
    assert!(request.volume_path.ends_with(&path), "{request:?}");
    end(&rig, &["reader", "writer"]).await;
}
