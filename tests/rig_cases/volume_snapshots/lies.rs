//! Whoever names what is another's gets nothing of it.

use std::sync::Arc;

use kube::api::{Patch, PatchParams};
use moor::csi::Rpc;
use serde_json::json;

use super::start;
use crate::rig::snapshot_kinds::snapshots;
use crate::rig::{Cluster, NAMESPACE, Options, SPACE};

/// Of another namespace, whose data would be read.
pub async fn a_volume_snapshot_that_names_anothers_content_gets_nothing(cluster: Arc<Cluster>) {
    let scene = start(&cluster, Options::default()).await;
    scene.make_claim_of("v").await;
    let handle = scene.fake.backend().add_snapshot("secret", "v");
    // The VolumeSnapshot of another namespace, and its content.
    let theirs = json!({ "name": "theirs", "namespace": "other", "uid": "their-uid" });
    scene
        .make_content(
            "theirs",
            json!({ "source": { "snapshotHandle": handle }, "volumeSnapshotRef": theirs }),
        )
        .await;
    scene
        .until("the content is ready", || async {
            let found = scene.content("theirs").await?;
            (crate::rig::at(&found, "/status/readyToUse") == true).then_some(())
        })
        .await;
    // The snapshot-controller writes the status, and so does who can edit it.
    scene.make_vs_of("mine", None, json!({ "volumeSnapshotContentName": "theirs" })).await;
    let lie = json!({ "status": { "boundVolumeSnapshotContentName": "theirs", "readyToUse": true } });
    let api = snapshots(&cluster.admin, SPACE);
    api.patch_status("mine", &PatchParams::default(), &Patch::Merge(lie)).await.unwrap();
    scene.ask_for_restored("r", "mine").await;
    scene.until_event("r", "ProvisioningFailed", "and that is not for it").await;
    assert_eq!(scene.count("r", Rpc::CreateVolume), 0);
}

/// With it a user's words would become a content's.
pub async fn nobody_else_says_for_which_content_a_snapshot_is(cluster: Arc<Cluster>) {
    let _scene = start(&cluster, Options::default()).await;
    let spec = json!({ "volumeName": "v", "volumeSnapshotContent": { "name": "c", "uid": "u" } });
    let snapshot = json!({ "apiVersion": "moor.dev/v1alpha1", "kind": "Snapshot", "metadata": { "name": "forged" },
        "spec": spec });
    for namespace in [SPACE, NAMESPACE] {
        let path = format!("/apis/moor.dev/v1alpha1/namespaces/{namespace}/snapshots?dryRun=All");
        let request = http::Request::post(path)
            .header("content-type", "application/json")
            .header("impersonate-user", "mallory")
            .header("impersonate-group", "system:masters")
            .body(snapshot.to_string().into_bytes());
        let refused = cluster.admin.request_text(request.unwrap()).await.unwrap_err().to_string();
        assert!(
            refused.contains("spec.volumeSnapshotContent is written by the moor controller"),
            "{refused}"
        );
    }
}

/// What the Plugin allows counts for the namespace of the VolumeSnapshot, and not for moor's, where the Snapshot is.
pub async fn a_namespace_that_may_have_nothing_made_is_told(cluster: Arc<Cluster>) {
    let scene = start(&cluster, Options::default()).await;
    scene.make_claim_of("v").await;
    let allow = |who: &str| json!({ "allow": { "create": { "namespaces": [who] } } });
    scene.patch_plugin(allow("elsewhere")).await;
    scene.make_snapshot_class("cold", "s", "Delete", json!({})).await;
    scene.make_vs("s", "cold", "v").await;
    scene.until_vs_told("s", "does not allow this in namespace default").await;
    assert_eq!(scene.count("v", Rpc::CreateSnapshot), 0);
    scene.patch_plugin(allow(SPACE)).await;
    scene.until_vs_ready("s").await;
    scene.delete_vs("s").await;
    scene.until_vs_gone("s").await;
}
