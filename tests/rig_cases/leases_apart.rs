//! Leases in an etcd of their own (`--etcd-servers-overrides`), as where there are many: its revisions say nothing about
//! those of moor's objects.

use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams};
use moor::api::VolumeClaim;
use moor::csi::Rpc;
use serde_json::json;

use crate::cases;
use crate::rig::{Case, Cluster, NAMESPACE, Options, Rig, volume, volume_claim};

const NODE: &str = "node-2";

/// Writes Leases until their etcd has counted further than that of the claims will in this case.
async fn run_ahead(rig: &Rig) {
    let leases: Api<Lease> = Api::namespaced(rig.cluster.admin.clone(), NAMESPACE);
    let enough = rig.revision().await + 400;
    for number in 0.. {
        let spec = json!({"leaseTransitions": number});
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "counter"}, "spec": spec});
        let how = PatchParams::apply("rig").force();
        let written = leases.patch("counter", &how, &Patch::Apply(lease)).await.unwrap();
        if written.metadata.resource_version.unwrap().parse::<u64>().unwrap() > enough {
            return;
        }
    }
}

async fn what_was_deleted_is_not_taken_for_forgotten(shared: Arc<Cluster>) {
    let cluster = Arc::new(shared.start_with_leases_apart().await);
    let rig = Rig::start(&cluster, Options::default()).await;
    run_ahead(&rig).await;
    // The agent's own Lease is among the last then.
    rig.restart_and_wait(NODE).await;
    rig.make_volume(&volume("data")).await;
    rig.make_claim(&volume_claim("data", "data", NODE)).await;
    rig.until_ready("data").await;

    // Removed by hand while its agent is away.
    rig.kill(NODE);
    rig.delete_claim("data").await;
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let _: VolumeClaim = rig.claim_api().patch("data", &PatchParams::default(), &free).await.unwrap();
    rig.until_claim_gone("data").await;
    rig.run(NODE);
    let undone = || (rig.count("data", Rpc::NodeUnstageVolume) > 0).then_some(());
    cluster.until("it is unmounted", undone, || rig.story("data")).await;
    rig.remove(&[""; 0], &["data"]).await;
    assert_eq!(rig.ended(), [""; 0], "an agent thought that etcd had been restored");
}

/// The cases of this module.
pub const CASES: &[Case] = cases![what_was_deleted_is_not_taken_for_forgotten];
