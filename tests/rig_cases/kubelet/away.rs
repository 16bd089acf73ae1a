//! The API server is away.

use std::sync::Arc;
use std::time::Duration;

use moor::csi::Rpc;
use tonic::Code;

use super::NODE;
use crate::rig::{Cluster, Options, Rig};

/// How many mounts there are at exactly this path.
fn is_mounted(path: &std::path::Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().any(|line| line.split(' ').nth(4).is_some_and(|point| std::path::Path::new(point) == path))
}

/// Only the bind mount goes: of a node that may be lost by now nothing is written to the volume's device.
pub(super) async fn a_pod_leaves_while_the_api_server_is_away(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let kubelet = rig.kubelet(NODE).await;
    rig.make_volume_for_pods("data").await;
    let target = kubelet.mount("pod-a", "data").await;
    rig.take_the_api_server_from(NODE);
    // Until the Lease is too old for any other call.
    let hasty = kubelet.within(Duration::from_secs(6));
    rig.poll("the agent says that it reaches nobody", || async {
        let status = hasty.publish("pod-b", "data").await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        status.message().contains("has not reached the API server")
    })
    .await;

    kubelet.unpublish("pod-a", "data").await.unwrap();
    assert!(!is_mounted(&target), "{} is mounted", target.display());
    let status = hasty.unstage("data").await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert_eq!(rig.count("data", Rpc::NodeUnstageVolume), 0, "unstaged on an old Lease");
    assert_eq!(rig.pod_claims().await.len(), 1, "nobody can have deleted it");
    // What was published is not made again for kubelet either.
    let status = hasty.publish("pod-a", "data").await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");

    rig.give_the_api_server_back_to(NODE);
    kubelet.give_up("data").await;
    for pod in ["pod-a", "pod-b"] {
        kubelet.unmount(pod, "data").await;
    }
    rig.remove_for_pods("data").await;
}
