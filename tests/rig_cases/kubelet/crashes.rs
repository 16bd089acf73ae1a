//! Of a Pod that comes and goes every write and call, with a crash before it and after it: kubelet calls again.

use std::sync::Arc;

use crate::crash_sweep::{Way, sweep};
use crate::rig::{Cluster, Rig};

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
};

async fn comes_and_goes(rig: Arc<Rig>, key: String) {
    let kubelet = rig.kubelet(NODE).await;
    rig.make_volume_for_pods(&key).await;
    let pod = format!("pod-{key}");
    let target = kubelet.mount(&pod, &key).await;
    std::fs::write(target.join("word"), &key).unwrap();
    let content = rig.fake.backend().content(&key);
    assert_eq!(std::fs::read_to_string(content.join("word")).unwrap(), key);
    kubelet.unmount(&pod, &key).await;
    kubelet.give_up(&key).await;
    rig.remove_for_pods(&key).await;
}

pub(super) async fn every_crash_point_of_a_pod(cluster: Arc<Cluster>) {
    sweep(&cluster, &[WAY]).await;
}
