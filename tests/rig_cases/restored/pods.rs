//! A backup from before a Pod got its volume.

use std::fs;
use std::sync::Arc;

use super::{pass_the_old_revision, until_ended, until_forgotten, until_renewed};
use crate::rig::{CONTROLLER, Cluster, Options, Rig};

const NODE: &str = "node-2";

/// Neither the claim nor the Attachment is there, and the Pod runs: kubelet's call is answered by the record, and what kubelet
/// gives up is unmounted.
pub async fn a_pod_keeps_what_only_its_node_knows_of(shared: Arc<Cluster>) {
    let cluster = Arc::new(shared.start_another().await);
    let rig = Rig::start(&cluster, Options { supervised: false, ..Options::default() }).await;
    let kubelet = rig.kubelet(NODE).await;
    rig.make_volume_for_pods("data").await;
    rig.stop(CONTROLLER).await;
    cluster.back_up().await;
    rig.run(CONTROLLER);
    let target = kubelet.mount("pod-a", "data").await;
    fs::write(target.join("word"), "kept").unwrap();

    until_renewed(&rig, &["node-1", NODE]).await;
    let old = rig.revision().await;
    cluster.restore().await;
    // Before the agents have connected again, or after: their Leases tell them either way.
    pass_the_old_revision(&rig, old + 100).await;
    for actor in [CONTROLLER, "node-1", NODE] {
        until_ended(&rig, actor).await;
        rig.restart(actor);
    }
    until_forgotten(&rig, NODE, &["vol-data"]).await;
    assert!(rig.pod_claims().await.is_empty(), "the backup has the claim, and so this shows nothing");
    let since = rig.journal.now();
    kubelet.mount("pod-a", "data").await;
    let made = rig.journal.since(since, |entry| entry.call().is_some());
    assert!(made.is_empty(), "{made:?}");
    assert_eq!(fs::read_to_string(target.join("word")).unwrap(), "kept");
    assert!(rig.pod_claims().await.is_empty(), "nothing is granted by a record");
    kubelet.unmount("pod-a", "data").await;
    assert!(!target.exists());
}
