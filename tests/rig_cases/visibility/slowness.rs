//! One hung call delays its volume, and many of them delay those that need the same kind of call: nobody else.

use std::sync::Arc;

use kube::Api;
use kube::api::{Patch, PatchParams};
use moor::api::Plugin;
use moor::csi::Rpc;
use serde_json::json;

use crate::rig::fake::DRIVER;
use crate::rig::{Cluster, Fault, Options, Rig, volume, volume_claim};

/// More than an agent makes at once on a node (32).
const STAGES: usize = 36;
/// What the Plugin is set to, and more than that.
const CONCURRENCY: usize = 3;
const ATTACHES: usize = 5;

/// No call that hangs ends within this test: its deadlines are three times as long as the test's patience, so whatever
/// waited for one would fail the test.
pub async fn hung_calls_hold_up_no_undo_and_no_other_service(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options { longest_call: 900, ..Options::default() }).await;
    let plugins: Api<Plugin> = Api::all(cluster.admin.clone());
    let few = Patch::Merge(json!({"spec": {"controllerConcurrency": CONCURRENCY}}));
    plugins.patch(DRIVER, &PatchParams::default(), &few).await.unwrap();
    for name in ["old-1", "old-2", "old-3"] {
        make(&rig, name, "node-2").await;
        rig.until_ready(name).await;
    }

    // One: nobody notices.
    hang(&rig, "stage-0", Rpc::NodeStageVolume).await;
    until_hanging(&rig, Rpc::NodeStageVolume, 1).await;
    make(&rig, "after-one", "node-2").await;
    rig.until_ready("after-one").await;

    // All that the node makes at once: undoing goes on there, attaching goes on, another node goes on.
    for n in 1..STAGES {
        hang(&rig, &format!("stage-{n}"), Rpc::NodeStageVolume).await;
    }
    until_hanging(&rig, Rpc::NodeStageVolume, 32).await;
    rig.delete_claim("old-1").await;
    rig.until_claim_gone("old-1").await;
    make(&rig, "elsewhere", "node-1").await;
    rig.until_ready("elsewhere").await;

    // All that the controller instance attaches at once: detaching goes on.
    for n in 0..ATTACHES {
        hang(&rig, &format!("attach-{n}"), Rpc::ControllerPublishVolume).await;
    }
    until_hanging(&rig, Rpc::ControllerPublishVolume, CONCURRENCY).await;
    for name in ["old-2", "old-3", "elsewhere"] {
        rig.delete_claim(name).await;
        rig.until_claim_gone(name).await;
    }
    assert!(
        hanging(&rig, Rpc::NodeStageVolume) >= 32
            && hanging(&rig, Rpc::ControllerPublishVolume) >= CONCURRENCY
    );
    rig.fake.assert_obeyed();
}

async fn make(rig: &Rig, name: &str, node: &str) {
    rig.make_volume(&volume(name)).await;
    rig.until_volume_ready(name).await;
    rig.make_claim(&volume_claim(name, name, node)).await;
}

/// A claim whose `rpc` never answers.
async fn hang(rig: &Rig, name: &str, rpc: Rpc) {
    rig.fake.fail(name, rpc, Fault::HangBefore);
    make(rig, name, "node-2").await;
}

/// Calls that have begun and not ended.
fn hanging(rig: &Rig, rpc: Rpc) -> usize {
    let open = |e: &crate::rig::Entry| e.call().is_some_and(|c| c.rpc == rpc) && e.outcome().is_none();
    rig.journal.since(0, open).len()
}

async fn until_hanging(rig: &Rig, rpc: Rpc, number: usize) {
    let look = || (hanging(rig, rpc) >= number).then_some(());
    let shows = || format!("{} hang", hanging(rig, rpc));
    rig.cluster.until(&format!("{number} calls {rpc} hang"), look, shows).await;
    assert_eq!(hanging(rig, rpc), number, "more at once than may");
}
