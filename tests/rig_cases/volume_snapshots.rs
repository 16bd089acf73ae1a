//! VolumeSnapshots of claims that moor provisions, with a snapshot-controller, and volumes that are made of them.

mod crashes;
mod lies;
pub mod objects;
mod there;

use std::sync::Arc;

use moor::csi::Rpc;
use serde_json::json;

use crate::cases;
use crate::rig::fake::WORDS;
use crate::rig::snapshot_kinds::{define, undefine};
use crate::rig::{Binder, Case, Cluster, Fault, Options, Rig, SnapshotController, at};

use super::provision::class;
use super::snapshots::objects::sources;
use objects::of;

/// Kubernetes with its snapshot-controller, and moor.
struct Scene {
    rig: Arc<Rig>,
    kubernetes: (Binder, SnapshotController),
}

async fn start(cluster: &Arc<Cluster>, options: Options) -> Scene {
    define(&cluster.admin).await;
    let rig = Rig::start(cluster, Options { snapshots: true, ..options }).await;
    let kubernetes = (Binder::start(&cluster.admin), SnapshotController::start(cluster).await);
    Scene { rig, kubernetes }
}

impl std::ops::Deref for Scene {
    type Target = Rig;

    fn deref(&self) -> &Rig {
        &self.rig
    }
}

impl Rig {
    /// Makes a claim whose volume the driver knows as `key`, with a class of its own.
    pub async fn make_claim_of(&self, key: &str) {
        self.make_class(&class(key, &json!({ "parameters": { "key": key } }))).await;
        self.make_pvc(key, key, json!({})).await;
        self.until_bound(key).await;
    }

    /// Makes a claim whose volume is to be made of a VolumeSnapshot.
    pub async fn ask_for_restored(&self, key: &str, snapshot: &str) {
        self.make_class(&class(key, &json!({ "parameters": { "key": key } }))).await;
        self.make_pvc(key, key, of(snapshot)).await;
    }
}

/// From the VolumeSnapshot to the driver and back, and a volume that is made of it.
async fn a_claim_is_snapshotted_and_restored(cluster: Arc<Cluster>) {
    let scene = start(&cluster, Options::default()).await;
    scene.make_claim_of("v").await;
    let more = json!({ "csi.storage.k8s.io/snapshotter-list-secret-name": "l",
        "csi.storage.k8s.io/snapshotter-list-secret-namespace": "ns" });
    scene.make_snapshot_class("cold", "s", "Delete", more).await;
    // What the driver says a volume of it needs.
    scene.fake.backend().volumes.get_mut("v").unwrap().grown = 1 << 20;
    let uid = scene.make_vs("s", "cold", "v").await;
    let content = scene.until_vs_ready("s").await;
    assert_eq!(at(&content, "/status/snapshotHandle"), "snap-s");
    assert_eq!(at(&content, "/status/restoreSize"), 1 << 20);
    assert!(at(&content, "/status/creationTime").as_i64().unwrap() > 1_700_000_000_000_000_000);
    let asked = &scene.asked_to_take("v")[0];
    assert_eq!(asked.name, format!("snapshot-{uid}"), "csi-snapshotter finds it by this name");
    assert_eq!(asked.parameters.keys().collect::<Vec<_>>(), ["key"]);
    scene.ask_for_restored("r", "s").await;
    scene.until_bound("r").await;
    assert_eq!(sources(&scene, "r"), ["snap-s"]);
    scene.delete_pvc("r").await;
    scene.delete_pvc("v").await;
    scene.delete_vs("s").await;
    scene.until_vs_gone("s").await;
    scene.until_nothing_kept().await;
    scene.until_nothing_provisioned().await;
    assert!(scene.fake.backend().snapshots.is_empty());
    assert_eq!((scene.count("v", Rpc::CreateSnapshot), scene.count("s", Rpc::DeleteSnapshot)), (1, 1));
    scene.assert_nothing_left().await;
}

/// The content stays, and when an administrator deletes it the storage does.
async fn what_is_retained_stays_with_its_storage(cluster: Arc<Cluster>) {
    let scene = start(&cluster, Options::default()).await;
    scene.make_claim_of("v").await;
    scene.make_snapshot_class("cold", "s", "Retain", json!({})).await;
    scene.make_vs("s", "cold", "v").await;
    let content = scene.until_vs_ready("s").await.metadata.name.unwrap();
    scene.delete_vs("s").await;
    scene.until_vs_gone("s").await;
    assert!(scene.content(&content).await.is_some());
    scene.delete_content(&content).await;
    scene.until_content_gone(&content).await;
    scene.until_nothing_kept().await;
    assert_eq!(scene.count("s", Rpc::DeleteSnapshot), 0);
    assert!(scene.fake.backend().snapshots.contains_key("s"));
    scene.leaves(&["snap-s"], "Retain");
}

/// In the words of the driver, and no longer than it is so.
async fn what_the_driver_refuses_is_told_to_who_asked(cluster: Arc<Cluster>) {
    let scene = start(&cluster, Options::default()).await;
    scene.make_claim_of("v").await;
    scene.fake.fail("v", Rpc::CreateSnapshot, Fault::CodeBefore(tonic::Code::Internal));
    scene.make_snapshot_class("cold", "s", "Delete", json!({})).await;
    let uid = scene.make_vs("s", "cold", "v").await;
    scene.until_vs_told("s", WORDS).await;
    let content = format!("snapcontent-{uid}");
    scene.until_event(&content, "SnapshotCreationFailed", WORDS).await;
    // A volume of it waits, and says for what.
    scene.ask_for_restored("r", "s").await;
    scene
        .until_event("r", "ProvisioningFailed", "VolumeSnapshot s, of which the volume is to be made, is not")
        .await;
    scene.fake.heal("v", Rpc::CreateSnapshot);
    let content = scene.until_vs_ready("s").await;
    assert!(at(&content, "/status/error").is_null(), "{content:?}");
    scene.until_bound("r").await;
    // So it is at the end.
    scene.fake.fail("s", Rpc::DeleteSnapshot, Fault::CodeBefore(tonic::Code::Internal));
    scene.delete_vs("s").await;
    scene.until_event(&content.metadata.name.unwrap(), "SnapshotDeleteError", WORDS).await;
    assert!(scene.vs("s").await.is_some());
    scene.fake.heal("s", Rpc::DeleteSnapshot);
    scene.until_vs_gone("s").await;
    scene.until_nothing_kept().await;
    assert!(scene.fake.backend().snapshots.is_empty());
}

/// The driver works on it: nothing is made of it, and it is asked again.
async fn one_that_is_not_ready_is_waited_for(cluster: Arc<Cluster>) {
    let scene = start(&cluster, Options::default()).await;
    scene.make_claim_of("v").await;
    scene.fake.backend().unready.insert("s".into());
    scene.make_snapshot_class("cold", "s", "Delete", json!({})).await;
    let uid = scene.make_vs("s", "cold", "v").await;
    let content = format!("snapcontent-{uid}");
    scene
        .until("the content has its handle", || async {
            let found = scene.content(&content).await?;
            assert_ne!(at(&found, "/status/readyToUse"), true);
            (at(&found, "/status/snapshotHandle") == "snap-s").then_some(())
        })
        .await;
    scene.ask_for_restored("r", "s").await;
    scene.until_event("r", "ProvisioningFailed", "is not ready to use").await;
    assert!(!scene.has_storage("r"));
    scene.fake.backend().unready.clear();
    scene.until_vs_ready("s").await;
    scene.until_bound("r").await;
    assert_eq!(sources(&scene, "r"), ["snap-s"]);
}

/// The definitions are not Kubernetes' own: moor runs without them, takes them up when they come, and goes on when they go.
async fn the_kinds_may_come_later_and_go(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options { snapshots: true, ..Options::default() }).await;
    let _binder = Binder::start(&cluster.admin);
    rig.make_claim_of("v").await;
    rig.ask_for_restored("r", "s").await;
    rig.until_event("r", "ProvisioningFailed", "the cluster has no such kind").await;
    define(&cluster.admin).await;
    let controller = SnapshotController::start(&cluster).await;
    rig.until_event("r", "ProvisioningFailed", "does not exist, or is being deleted").await;
    rig.make_snapshot_class("cold", "s", "Delete", json!({})).await;
    rig.make_vs("s", "cold", "v").await;
    rig.until_bound("r").await;
    drop(controller);
    undefine(&cluster.admin).await;
    rig.leaves(&["snap-s"], "all that named it went with the definition of its kind");
    rig.make_claim_of("w").await;
    assert!(rig.ended().is_empty(), "{:?}", rig.ended());
    // A leader that comes without them leads.
    rig.restart_and_wait(crate::rig::CONTROLLER).await;
    rig.make_claim_of("x").await;
    // And with them again it finds that what they were of is gone, which is no reason to delete anything.
    define(&cluster.admin).await;
    rig.until_nothing_kept().await;
    assert!(rig.fake.backend().snapshots.contains_key("s"));
    assert_eq!(rig.count("s", Rpc::DeleteSnapshot), 0);
}

/// The cases of this module.
pub const CASES: &[Case] = cases![
    a_claim_is_snapshotted_and_restored,
    what_is_retained_stays_with_its_storage,
    what_the_driver_refuses_is_told_to_who_asked,
    one_that_is_not_ready_is_waited_for,
    the_kinds_may_come_later_and_go,
    there::one_that_exists_is_registered_restored_and_deleted,
    there::one_that_csi_snapshotter_has_taken_is_taken_over,
    there::one_of_a_volume_that_nobody_has_asked_for_is_taken,
    there::what_somebody_deletes_by_hand_is_made_anew,
    there::an_order_to_nobody_has_deleted_nothing,
    there::a_content_that_is_removed_by_force_leaves_its_storage,
    there::secrets_are_those_of_the_class,
    there::a_users_volume_is_snapshotted_by_its_owner,
    lies::a_volume_snapshot_that_names_anothers_content_gets_nothing,
    lies::nobody_else_says_for_which_content_a_snapshot_is,
    lies::a_namespace_that_may_have_nothing_made_is_told,
    crashes::the_leader_may_die_at_every_write,
    crashes::the_api_server_may_go_away_at_every_write,
];
