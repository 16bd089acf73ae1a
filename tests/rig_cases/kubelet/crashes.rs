//! Of a Pod that comes and goes every write and call, with a crash before it and after it: kubelet calls again.

use std::sync::Arc;

use crate::crash_sweep::{Way, sweep};
use crate::rig::{CONTROLLER, Cluster, Kubelet, Rig, Write};

use super::NODE;

const WAY: Way = Way {
    name: "pod",
    go: |rig, key| Box::pin(comes_and_goes(rig, key)),
    calls: &[
        "CreateVolume",
        "ControllerPublishVolume",
        "NodeStageVolume",
        "NodePublishVolume",
        "NodeUnpublishVolume",
        "NodeUnstageVolume",
        "ControllerUnpublishVolume",
        "DeleteVolume",
    ],
    given_up: false,
    in_short: |entry| {
        let makes_or_deletes = |write: &Write| ["POST", "DELETE"].contains(&&*write.verb);
        entry.call().is_some() || (entry.actor == CONTROLLER && entry.write().is_some_and(makes_or_deletes))
    },
};

async fn comes_and_goes(rig: Arc<Rig>, key: String) {
    let kubelet = rig.kubelet(NODE).await;
    comes(&rig, &kubelet, &key).await;
    goes(&rig, &kubelet, &key).await;
}

/// A volume is made, and a Pod has it.
pub(super) async fn comes(rig: &Rig, kubelet: &Kubelet, key: &str) {
    rig.make_volume_for_pods(key).await;
    is_used(rig, kubelet, key).await;
}

/// kubelet calls until the Pod has its volume.
pub(super) async fn is_used(rig: &Rig, kubelet: &Kubelet, key: &str) {
    let target = kubelet.mount(&format!("pod-{key}"), key).await;
    std::fs::write(target.join("word"), key).unwrap();
    let content = rig.fake.backend().content(key);
    assert_eq!(std::fs::read_to_string(content.join("word")).unwrap(), key);
}

/// kubelet calls until the Pod has nothing any more; then the volume is deleted, and nothing is left.
pub(super) async fn goes(rig: &Rig, kubelet: &Kubelet, key: &str) {
    kubelet.unmount(&format!("pod-{key}"), key).await;
    kubelet.give_up(key).await;
    rig.remove_for_pods(key).await;
}

pub(super) async fn every_crash_point_of_a_pod(cluster: Arc<Cluster>) {
    sweep(&cluster, &[WAY]).await;
}
