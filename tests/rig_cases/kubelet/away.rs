//! The API server is away.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use moor::csi::Rpc;
use tonic::Code;

use super::NODE;
use crate::rig::{Cluster, Options, Rig};

/// Pods that leave at once: more than the calls that an agent makes at a time to undo (32).
const MANY: usize = 40;

/// Whether something is mounted at exactly this path.
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
    assert_eq!(rig.count("data", Rpc::NodePublishVolume), 1, "granted from memory");

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

/// As in a drain. No answer waits for the API server, and none for those that are before it in line for longer than kubelet
/// does; the claims go when the server is back.
pub(super) async fn many_pods_leave_at_once(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let kubelet = rig.kubelet(NODE).await;
    let keys: Vec<String> = (0..MANY).map(|n| format!("data-{n}")).collect();
    let pod = |key: &str| format!("pod-{key}");
    for key in &keys {
        rig.make_volume_for_pods(key).await;
        kubelet.take(&pod(key), key).await;
    }
    let coming = keys.iter().map(|key| {
        let kubelet = &kubelet;
        async move { kubelet.mount(&pod(key), key).await }
    });
    let targets = join_all(coming).await;
    rig.take_the_api_server_from(NODE);
    let leaving = keys.iter().map(|key| {
        let kubelet = &kubelet;
        async move { kubelet.unmount(&pod(key), key).await }
    });
    join_all(leaving).await;
    let left: Vec<_> = targets.iter().filter(|target| is_mounted(target)).collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(rig.pod_claims().await.len(), MANY, "nobody can have deleted them");
    rig.give_the_api_server_back_to(NODE);
    join_all(keys.iter().map(|key| kubelet.give_up(key))).await;
    rig.remove_all_for_pods(&keys.iter().map(String::as_str).collect::<Vec<_>>()).await;
    rig.fake.assert_obeyed();
}
