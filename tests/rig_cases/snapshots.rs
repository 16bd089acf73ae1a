//! Snapshots, and Volumes that are made of Snapshots and of other Volumes. Every fault of their calls, and everybody who may die in
//! one, is in `operations.rs`.

mod faults;
pub mod objects;

use std::sync::Arc;

use moor::api::SnapshotState;
use moor::csi::Rpc;
use serde_json::json;

use crate::cases;
use crate::rig::{Case, Cluster, Options, Rig, volume, volume_claim};
use objects::{asked_for, restored, snapshot, sources};

async fn start(cluster: &Arc<Cluster>) -> Arc<Rig> {
    Rig::start(cluster, Options { snapshots: true, clones: true, ..Options::default() }).await
}

/// A Volume that is Ready, and a Snapshot of it that is too.
async fn taken(rig: &Rig, of: &str, name: &str) {
    rig.make_volume(&volume(of)).await;
    rig.until_volume_ready(of).await;
    rig.make_snapshot(&snapshot(name, of)).await;
    rig.until_snapshot(name, SnapshotState::Ready).await;
}

async fn a_snapshot_is_taken_and_restored_and_deleted(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    taken(&rig, "v", "s").await;
    let status = rig.read_snapshot("s").await.status.unwrap();
    assert_eq!(status.snapshot_handle.as_deref(), Some("snap-s"));
    assert_eq!(status.source_volume_handle.as_deref(), Some("vol-v"));
    assert!(!status.may_exist && status.last_error.is_none(), "{status:?}");
    rig.make_volume(&restored("r", &json!({ "snapshotName": "s" }))).await;
    rig.until_volume_ready("r").await;
    assert_eq!(sources(&rig, "r"), ["snap-s"]);
    // It outlives the volume that it is of.
    rig.delete_volume("v").await;
    rig.until_volume_gone("v").await;
    rig.delete_snapshot("s").await;
    rig.until_snapshot_gone("s").await;
    assert!(rig.fake.backend().snapshots.is_empty());
    let no_claims: [&str; 0] = [];
    rig.remove(&no_claims, &["r"]).await;
}

async fn a_snapshot_that_is_not_ready_is_asked_for_again(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    rig.make_volume(&volume("v")).await;
    rig.until_volume_ready("v").await;
    rig.fake.backend().unready.insert("s".into());
    rig.make_snapshot(&snapshot("s", "v")).await;
    rig.until_snapshot("s", SnapshotState::Created).await;
    rig.until_snapshot_told("s", "NotReadyToUse", "snap-s").await;
    // Neither is there a volume of it, nor does its own volume go.
    rig.make_volume(&restored("r", &json!({ "snapshotName": "s" }))).await;
    rig.until_volume_told("r", "SourceNotUsable", "Snapshot s is not Ready").await;
    rig.delete_volume("v").await;
    rig.until_volume_told("v", "InUse", "Snapshot s, which is being made of this volume").await;
    asked_for(&rig, "v", 3).await;
    assert!(rig.has_storage("v") && !rig.has_storage("r"));
    rig.fake.backend().unready.clear();
    rig.until_snapshot("s", SnapshotState::Ready).await;
    rig.until_volume_gone("v").await;
    rig.until_volume_ready("r").await;
    end(&rig, &["s"], &["r"]).await;
}

/// Whoever deletes the volume meanwhile waits for its snapshot.
async fn a_volume_stays_until_its_snapshot_is_taken(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    rig.make_volume(&volume("v")).await;
    rig.until_volume_ready("v").await;
    rig.fake.hold("v", Rpc::CreateSnapshot);
    rig.make_snapshot(&snapshot("s", "v")).await;
    asked_for(&rig, "v", 1).await;
    rig.delete_volume("v").await;
    rig.until_volume_told("v", "InUse", "Snapshot s").await;
    assert_eq!(rig.count("v", Rpc::DeleteVolume), 0);
    rig.fake.let_go("v", Rpc::CreateSnapshot);
    rig.until_volume_gone("v").await;
    rig.until_snapshot("s", SnapshotState::Ready).await;
    end(&rig, &["s"], &[]).await;
}

/// Whoever deletes a snapshot meanwhile waits for the volume that is made of it, and so does who deletes a volume that is
/// copied.
async fn what_a_volume_is_made_of_stays_until_it_is_made(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    taken(&rig, "v", "s").await;
    for (key, source) in [("r", json!({ "snapshotName": "s" })), ("c", json!({ "volumeName": "v" }))] {
        rig.fake.hold(key, Rpc::CreateVolume);
        rig.make_volume(&restored(key, &source)).await;
        rig.until_called_about(key, Rpc::CreateVolume).await;
    }
    rig.delete_snapshot("s").await;
    rig.delete_volume("v").await;
    rig.until_snapshot_told("s", "InUse", "Volume r is being made of it").await;
    rig.until_volume_told("v", "InUse", "Volume c, which is being made of this volume").await;
    assert_eq!(rig.count("s", Rpc::DeleteSnapshot) + rig.count("v", Rpc::DeleteVolume), 0);
    rig.fake.let_go("r", Rpc::CreateVolume);
    rig.until_snapshot_gone("s").await;
    rig.fake.let_go("c", Rpc::CreateVolume);
    rig.until_volume_gone("v").await;
    rig.until_volume_ready("c").await;
    assert_eq!((sources(&rig, "r"), sources(&rig, "c")), (vec!["snap-s".into()], vec!["vol-v".into()]));
    end(&rig, &[], &["r", "c"]).await;
}

/// A source that is kept by something else is no source any more.
async fn nothing_is_begun_of_what_is_being_deleted(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    rig.make_volume(&volume("v")).await;
    rig.make_claim(&volume_claim("c", "v", "node-1")).await;
    rig.until_ready("c").await;
    rig.delete_volume("v").await;
    rig.until_volume_told("v", "InUse", "claim").await;
    rig.make_snapshot(&snapshot("s", "v")).await;
    rig.until_snapshot_told("s", "VolumeDeleted", "Volume v is being deleted").await;
    rig.make_volume(&restored("copy", &json!({ "volumeName": "v" }))).await;
    rig.until_volume_told("copy", "SourceNotUsable", "Volume v is being deleted").await;
    rig.delete_snapshot("s").await;
    rig.until_snapshot_gone("s").await;
    rig.delete_volume("copy").await;
    rig.until_volume_gone("copy").await;
    assert_eq!(rig.count("v", Rpc::CreateSnapshot) + rig.count("copy", Rpc::CreateVolume), 0);
    rig.remove(&["c"], &["v"]).await;
}

/// As above, and the leader has not seen the deletion: the agent looks before its first call.
async fn an_agent_begins_nothing_of_what_is_being_deleted(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    taken(&rig, "v", "s").await;
    rig.make_claim(&volume_claim("c", "v", "node-1")).await;
    rig.until_ready("c").await;
    rig.stall("node-1", "snapshots");
    rig.stall("node-1", "volumes");
    rig.make_snapshot(&snapshot("late", "v")).await;
    rig.until_assigned_snapshot("late").await;
    rig.make_volume(&restored("r", &json!({ "snapshotName": "s" }))).await;
    rig.until_assigned_volume("r").await;
    rig.delete_volume("v").await;
    rig.delete_snapshot("s").await;
    rig.unstall("node-1", "snapshots");
    rig.unstall("node-1", "volumes");
    rig.until_snapshot_told("late", "VolumeDeleted", "nothing was begun").await;
    rig.until_volume_told("r", "SourceNotUsable", "deleted before it was begun").await;
    // Nobody waits for them.
    rig.until_snapshot_gone("s").await;
    rig.delete_claim("c").await;
    rig.until_volume_gone("v").await;
    rig.delete_snapshot("late").await;
    rig.delete_volume("r").await;
    rig.until_snapshot_gone("late").await;
    rig.until_volume_gone("r").await;
    assert_eq!(rig.count("r", Rpc::CreateVolume), 0);
    assert_eq!(rig.count("v", Rpc::CreateSnapshot), 1, "of the first");
    rig.assert_nothing_left().await;
}

async fn a_snapshot_that_exists_is_registered_and_left_or_deleted(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    rig.fake.backend().add("old");
    let id = rig.fake.backend().add_snapshot("kept", "old");
    rig.make_snapshot(&objects::registered("s", &id, json!({}))).await;
    rig.until_snapshot("s", SnapshotState::Ready).await;
    assert_eq!(rig.count("kept", Rpc::ListSnapshots), 1);
    rig.make_snapshot(&objects::registered("wrong", "snap-other", json!({}))).await;
    rig.until_snapshot_told("wrong", "SnapshotNotFound", "snap-other").await;
    rig.delete_snapshot("wrong").await;
    rig.until_snapshot_gone("wrong").await;
    // It is made of the registered one as of any.
    rig.make_volume(&restored("r", &json!({ "snapshotName": "s" }))).await;
    rig.until_volume_ready("r").await;
    // Two stand for the same, of which one is to delete it.
    rig.make_snapshot(&objects::registered("twin", &id, json!({ "deletionPolicy": "Delete" }))).await;
    rig.until_snapshot("twin", SnapshotState::Ready).await;
    rig.delete_snapshot("twin").await;
    rig.until_snapshot_told("twin", "SnapshotShared", "Snapshot s stands for the same").await;
    assert_eq!(rig.count("kept", Rpc::DeleteSnapshot), 0);
    rig.delete_snapshot("s").await;
    rig.until_snapshot_gone("s").await;
    rig.until_snapshot_gone("twin").await;
    assert_eq!(rig.count("kept", Rpc::DeleteSnapshot), 1, "by the one that was to delete it");
    end(&rig, &[], &["r"]).await;
}

/// Where storage is local to nodes only one place knows of a snapshot, and nobody says which one.
async fn a_snapshot_that_exists_is_looked_for_in_each_place(cluster: Arc<Cluster>) {
    let nodes = vec![("node-1", true), ("node-2", true)];
    let options = Options { nodes, topology: true, snapshots: true, ..Options::default() };
    let rig = Rig::start(&cluster, options).await;
    rig.patch_plugin(json!({ "balancing": "PerTopology" })).await;
    for (name, node) in [("a", "node-1"), ("b", "node-2")] {
        rig.fake.backend().add(&format!("of-{name}"));
        let id = rig.fake.backend().add_snapshot(name, &format!("of-{name}"));
        rig.fake.backend().listing.only_on.insert(name.into(), node.into());
        rig.make_snapshot(&objects::registered(name, &id, json!({ "deletionPolicy": "Delete" }))).await;
        rig.until_snapshot(name, SnapshotState::Ready).await;
    }
    assert_eq!((rig.count("a", Rpc::ListSnapshots), rig.count("b", Rpc::ListSnapshots)), (1, 2));
    // The last place has said it too.
    rig.make_snapshot(&objects::registered("wrong", "snap-wrong", json!({}))).await;
    rig.until_snapshot_told("wrong", "SnapshotNotFound", "lists no snapshot snap-wrong").await;
    rig.until("each place is asked", || async {
        (rig.count("wrong", Rpc::ListSnapshots) == 2).then_some(())
    })
    .await;
    rig.delete_snapshot("wrong").await;
    rig.until_snapshot_gone("wrong").await;
    end(&rig, &["a", "b"], &[]).await;
}

/// Deletes Snapshots and Volumes, and waits until nothing is left of anything.
async fn end(rig: &Rig, snapshots: &[&str], volumes: &[&str]) {
    for name in snapshots {
        rig.delete_snapshot(name).await;
        rig.until_snapshot_gone(name).await;
    }
    let no_claims: [&str; 0] = [];
    rig.remove(&no_claims, volumes).await;
    let left = rig.fake.backend().snapshots.len();
    assert_eq!(left, 0, "snapshots are left");
}

/// The cases of this module.
pub const CASES: &[Case] = cases![
    a_snapshot_is_taken_and_restored_and_deleted,
    a_snapshot_that_is_not_ready_is_asked_for_again,
    a_volume_stays_until_its_snapshot_is_taken,
    what_a_volume_is_made_of_stays_until_it_is_made,
    nothing_is_begun_of_what_is_being_deleted,
    an_agent_begins_nothing_of_what_is_being_deleted,
    a_snapshot_that_exists_is_registered_and_left_or_deleted,
    a_snapshot_that_exists_is_looked_for_in_each_place,
    faults::what_cannot_be_taken_says_so,
    faults::an_answer_of_another_volume_is_not_taken,
    faults::a_deletion_that_the_driver_refuses_waits_and_can_be_given_up,
];
