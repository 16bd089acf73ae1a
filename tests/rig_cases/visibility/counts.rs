//! `/metrics` says what is there.

use std::sync::Arc;

use moor::csi::Rpc;

use crate::rig::fake::DRIVER;
use crate::rig::{CONTROLLER, Cluster, LOOK, Options, PATIENCE, Rig, volume, volume_claim};

const NODE: &str = "node-2";

impl Rig {
    /// Waits until a process says this of a sample, which is named with its labels.
    async fn until_sample(&self, actor: &str, sample: &str, wanted: impl Fn(f64) -> bool) {
        let look = async {
            while !self.sample(actor, sample).await.is_some_and(&wanted) {
                tokio::time::sleep(LOOK).await;
            }
        };
        if tokio::time::timeout(PATIENCE, look).await.is_err() {
            let found = self.sample(actor, sample).await;
            assert!(found.is_some_and(&wanted), "{sample} of {actor} is {found:?}");
        }
    }
}

pub async fn what_is_counted_is_what_is_there(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let some = |least: f64| move |found: f64| found >= least;
    let exactly = |wanted: f64| move |found: f64| (found - wanted).abs() < 0.1;
    for actor in [CONTROLLER, NODE] {
        rig.until_sample(actor, "process_resident_memory_bytes", some(1e6)).await;
        rig.until_sample(
            actor,
            &format!("moor_build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION")),
            exactly(1.0),
        )
        .await;
    }
    for part in ["controller", "node"] {
        for state in ["expected", "healthy"] {
            let labels = format!("plugin=\"{DRIVER}\",part=\"{part}\",state=\"{state}\"");
            rig.until_sample(CONTROLLER, &format!("moor_plugin_instances{{{labels}}}"), some(1.0)).await;
        }
    }

    rig.make_volume(&volume("v")).await;
    rig.make_claim(&volume_claim("v", "v", NODE)).await;
    rig.until_ready("v").await;
    for sample in [
        "moor_volumes{state=\"Ready\"}",
        "moor_attachments{state=\"Attached\"}",
        "moor_claims{state=\"Ready\"}",
    ] {
        rig.until_sample(CONTROLLER, sample, exactly(1.0)).await;
    }
    for (actor, method) in [(NODE, "Node/NodeStageVolume"), ("node-1", "Controller/ControllerPublishVolume")]
    {
        let labels =
            format!("driver_name=\"{DRIVER}\",method_name=\"/csi.v1.{method}\",grpc_status_code=\"OK\"");
        rig.until_sample(actor, &format!("moor_csi_operations_seconds_count{{{labels}}}"), exactly(1.0))
            .await;
    }

    rig.until_sample(CONTROLLER, "moor_oldest_waiting_claim_seconds", exactly(0.0)).await;
    rig.make_claim(&volume_claim("w", "v", "nowhere")).await;
    rig.until_sample(CONTROLLER, "moor_oldest_waiting_claim_seconds", some(1.0)).await;
    rig.until_sample(CONTROLLER, "moor_claims{state=\"Pending\"}", exactly(1.0)).await;
    rig.delete_claim("w").await;
    rig.until_claim_gone("w").await;
    rig.until_sample(CONTROLLER, "moor_oldest_waiting_claim_seconds", exactly(0.0)).await;

    rig.until_sample(CONTROLLER, "moor_silent_nodes", exactly(0.0)).await;
    rig.kill(NODE);
    rig.delete_claim("v").await;
    rig.until_sample(CONTROLLER, "moor_oldest_leaving_claim_seconds", some(2.0)).await;
    rig.expire_lease(NODE).await;
    rig.until_sample(CONTROLLER, "moor_silent_nodes", exactly(1.0)).await;
    rig.run(NODE);
    rig.until_sample(CONTROLLER, "moor_silent_nodes", exactly(0.0)).await;
    rig.until_claim_gone("v").await;
    rig.until_sample(CONTROLLER, "moor_oldest_leaving_claim_seconds", exactly(0.0)).await;
    assert_eq!(rig.count("v", Rpc::ControllerUnpublishVolume), 1);
    rig.remove(&[""; 0], &["v"]).await;
}
