//! What goes wrong with a snapshot: what cannot be had, and answers that are not to be believed.

use std::sync::Arc;

use kube::api::{Patch, PatchParams};
use moor::api::SnapshotState;
use moor::csi::Rpc;
use serde_json::json;

use super::objects::{asked_for, snapshot};
use super::{end, start, taken};
use crate::rig::{Cluster, Options, Rig, volume};

pub(super) async fn what_cannot_be_taken_says_so(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.make_snapshot(&snapshot("early", "v")).await;
    rig.until_snapshot_told("early", "VolumeNotFound", "has no Volume v").await;
    rig.make_volume(&volume("v")).await;
    rig.until_snapshot_told("early", "CannotSnapshot", "CREATE_DELETE_SNAPSHOT").await;
    rig.make_volume(&super::restored("copy", &json!({ "volumeName": "v" }))).await;
    rig.until_volume_told("copy", "SourceNotUsable", "CLONE_VOLUME").await;
    rig.patch_plugin(json!({ "allow": { "create": { "namespaces": [] } } })).await;
    rig.make_snapshot(&snapshot("refused", "v")).await;
    rig.until_snapshot_told("refused", "NotAllowed", "spec.allow.create").await;
    for name in ["early", "refused"] {
        rig.delete_snapshot(name).await;
        rig.until_snapshot_gone(name).await;
    }
    let no_claims: [&str; 0] = [];
    rig.remove(&no_claims, &["copy", "v"]).await;
    assert_eq!(rig.count("v", Rpc::CreateSnapshot), 0);
}

/// It would be restored, or deleted, in the place of the one that was asked for.
pub(super) async fn an_answer_of_another_volume_is_not_taken(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    rig.make_volume(&volume("v")).await;
    rig.until_volume_ready("v").await;
    rig.fake.backend().answers_of.insert("s".into(), "vol-other".into());
    rig.make_snapshot(&snapshot("s", "v")).await;
    rig.until_snapshot_told("s", "CreateSnapshotFailed", "another volume").await;
    asked_for(&rig, "v", 2).await;
    assert_eq!(rig.read_snapshot("s").await.handle(), None);
    rig.fake.backend().answers_of.clear();
    rig.until_snapshot("s", SnapshotState::Ready).await;
    end(&rig, &["s"], &["v"]).await;
}

pub(super) async fn a_deletion_that_the_driver_refuses_waits_and_can_be_given_up(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    taken(&rig, "v", "s").await;
    rig.fake.backend().pinned.insert("s".into());
    rig.delete_snapshot("s").await;
    rig.until_snapshot_told("s", "DeleteSnapshotFailed", "a volume depends on it").await;
    let retain = Patch::Merge(json!({ "spec": { "deletionPolicy": "Retain" } }));
    rig.snapshot_api().patch("s", &PatchParams::default(), &retain).await.unwrap();
    rig.until_snapshot_gone("s").await;
    assert!(rig.fake.backend().snapshots.remove("s").is_some(), "it was given up");
    end(&rig, &[], &["v"]).await;
}
