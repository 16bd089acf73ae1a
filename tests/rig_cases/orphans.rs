//! Storage that no object stands for, and objects whose storage is gone: what is found and told, and that nothing is done
//! (docs/adr/0041, docs/volume-failures.md V22 to V25).

mod lies;
mod quiet;

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use moor::api::conditions::{ORPHANS, STORAGE_FOUND, find};
use moor::api::storage::OrphanedStorage;
use moor::api::{Plugin, SnapshotState, VolumeHandle};
use moor::csi::Rpc;
use serde_json::json;

use crate::cases;
use crate::kubectl::kubectl_moor;
use crate::rig::fake::DRIVER;
use crate::rig::{CONTROLLER, Case, Cluster, Entry, Options, Rig, registered, volume};
use crate::snapshots::objects::{self, snapshot};

/// The node whose driver makes the controller calls.
const NODE: &str = "node-1";

async fn start(cluster: &Arc<Cluster>) -> Arc<Rig> {
    let options = Options { audit_interval: 1, longest_call: 600, snapshots: true, ..Options::default() };
    Rig::start(cluster, options).await
}

impl Rig {
    /// Waits until the driver has answered so many whole listings of this kind that began after now.
    async fn until_compared(&self, rpc: Rpc, times: usize) {
        let since = self.journal.now();
        let of = |entry: &Entry| entry.call().is_some_and(|call| call.rpc == rpc && call.key.is_empty());
        let listed = || self.journal.since(since, of).iter().filter(|entry| entry.is_ok()).count();
        let look = || (listed() >= times).then_some(());
        self.cluster.until(&format!("{rpc} is answered"), look, || format!("{} times", listed())).await;
    }

    /// What the driver keeps for nobody, as it is told, by handle.
    async fn orphans(&self) -> Vec<OrphanedStorage> {
        let plugin = self.plugin_api().get(DRIVER).await.unwrap();
        plugin.status.map(|status| status.orphans).unwrap_or_default()
    }

    /// How many Events have told of orphans.
    async fn told_of_plugin(&self) -> i32 {
        let uid = self.plugin_api().get(DRIVER).await.unwrap().metadata.uid;
        self.events_about(uid, "OrphanedStorage").await
    }

    /// Waits until exactly these are told as orphans.
    async fn until_orphans(&self, handles: &[&str]) -> Vec<OrphanedStorage> {
        let wanted: BTreeSet<&str> = handles.iter().copied().collect();
        let look = |plugin: &Plugin| {
            let status = plugin.status.as_ref()?;
            let told: BTreeSet<&str> = status.orphans.iter().map(|orphan| orphan.handle.as_str()).collect();
            (told == wanted).then(|| status.orphans.clone())
        };
        self.until_plugin(DRIVER, &format!("tells of {handles:?}"), look).await
    }

    /// Deletes a Volume, and leaves its storage.
    async fn leave_storage(&self, name: &str) {
        let retain = Patch::Merge(json!({ "spec": { "deletionPolicy": "Retain" } }));
        self.volume_api().patch(name, &PatchParams::default(), &retain).await.unwrap();
        self.delete_volume(name).await;
        self.until_volume_gone(name).await;
    }

    /// As [`Self::leave_storage`], of a Snapshot.
    async fn leave_snapshot(&self, name: &str) {
        let retain = Patch::Merge(json!({ "spec": { "deletionPolicy": "Retain" } }));
        self.snapshot_api().patch(name, &PatchParams::default(), &retain).await.unwrap();
        self.delete_snapshot(name).await;
        self.until_snapshot_gone(name).await;
    }

    /// Takes what is left behind moor's back, and ends.
    async fn end_orphans(&self) {
        let left: Vec<String> = self.fake.backend().volumes.keys().cloned().collect();
        for key in left {
            self.fake.backend().volumes.remove(&key);
        }
        self.fake.backend().snapshots.clear();
        self.until_orphans(&[]).await;
        self.assert_nothing_left().await;
    }

    /// How often anything was deleted at the driver.
    fn deletions(&self) -> usize {
        let deletes = |entry: &Entry| {
            let rpc = entry.call().map(|call| call.rpc);
            rpc == Some(Rpc::DeleteVolume) || rpc == Some(Rpc::DeleteSnapshot)
        };
        self.journal.since(0, deletes).len()
    }

    /// Waits until the leader counts so many orphans of a kind.
    async fn until_counted_orphans(&self, kind: &str, so_many: f64) {
        let sample = format!(r#"moor_orphans{{plugin="{DRIVER}",kind="{kind}"}}"#);
        self.poll(&format!("{sample} is {so_many}"), || async {
            self.sample(CONTROLLER, &sample).await == Some(so_many)
        })
        .await;
    }

    /// Waits until an object's condition StorageFound has this status.
    async fn until_volume_found(&self, name: &str, is_found: bool) {
        let wanted = if is_found { "True" } else { "False" };
        let look = || {
            let status = self.cluster.volume(name)?.status.clone()?;
            find(&status.conditions, STORAGE_FOUND).filter(|found| found.status == wanted).map(drop)
        };
        self.cluster.until(&format!("StorageFound of {name} is {wanted}"), look, || self.story(name)).await;
    }

    /// As [`Self::until_volume_found`].
    async fn until_snapshot_found(&self, name: &str, is_found: bool) {
        let wanted = if is_found { "True" } else { "False" };
        self.until_so(&format!("StorageFound is {wanted}"), name, || async {
            let status = self.read_snapshot(name).await.status.unwrap();
            find(&status.conditions, STORAGE_FOUND).is_some_and(|found| found.status == wanted)
        })
        .await;
    }
}

/// On the Plugin, as a metric, in an Event and on a page; and it ends when the storage is a Volume's again.
async fn storage_that_is_left_is_told_until_it_is_registered(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    rig.make_volume(&volume("left")).await;
    rig.until_volume_ready("left").await;
    rig.until_compared(Rpc::ListVolumes, 2).await;
    let uid = rig.cluster.volume("left").unwrap().metadata.uid.clone().unwrap();
    assert!(rig.orphans().await.is_empty());
    rig.leave_storage("left").await;
    let told = rig.until_orphans(&["vol-left"]).await;
    assert_eq!((told[0].uid.as_str(), told[0].create_name.clone()), (uid.as_str(), format!("moor-{uid}")));
    let words = ["1 volume that moor has had made", "volume vol-left", "kubectl moor orphans"];
    rig.until_plugin_says(DRIVER, ORPHANS, "OrphansFound", &words).await;
    rig.until_counted_orphans("Volume", 1.0).await;
    rig.poll("an Event tells it", || async { rig.told_of_plugin().await == 1 }).await;
    let admin = cluster.kubeconfig("admin", None).await;
    kubectl_moor(&admin, "orphans").await.has(&[
        "Storage that no object stands for\n",
        "  fake.moor.dev  Volume  vol-left ",
        "a Volume with spec.pluginName PLUGIN and spec.volumeHandle HANDLE",
    ]);
    // Neither a new agent nor a new leader says it again, or otherwise.
    rig.restart_and_wait(NODE).await;
    rig.restart_and_wait(CONTROLLER).await;
    rig.until_compared(Rpc::ListVolumes, 2).await;
    assert_eq!(rig.until_orphans(&["vol-left"]).await, told);
    assert_eq!(rig.told_of_plugin().await, 1);
    assert_eq!(rig.deletions(), 0);

    rig.make_volume(&registered("again", "vol-left")).await;
    rig.until_volume_ready("again").await;
    rig.until_orphans(&[]).await;
    rig.until_plugin_says(DRIVER, ORPHANS, "NoOrphans", &[]).await;
    rig.until_counted_orphans("Volume", 0.0).await;
    assert_eq!(rig.deletions(), 0);
    // It was made for moor, whoever has registered it since.
    rig.delete_volume("again").await;
    rig.until_volume_gone("again").await;
    rig.until_orphans(&["vol-left"]).await;
    rig.end_orphans().await;
}

async fn a_snapshot_that_is_left_is_told_until_it_is_gone(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    rig.make_volume(&volume("of")).await;
    rig.until_volume_ready("of").await;
    rig.make_snapshot(&snapshot("left", "of")).await;
    rig.until_snapshot("left", SnapshotState::Ready).await;
    rig.until_compared(Rpc::ListSnapshots, 2).await;
    rig.leave_snapshot("left").await;
    rig.until_orphans(&["snap-left"]).await;
    let words = ["1 snapshot that moor has had made", "snapshot snap-left"];
    rig.until_plugin_says(DRIVER, ORPHANS, "OrphansFound", &words).await;
    rig.until_counted_orphans("Snapshot", 1.0).await;
    assert_eq!(rig.deletions(), 0);
    // Registered, and given up again.
    rig.make_snapshot(&objects::registered("again", "snap-left", json!({}))).await;
    rig.until_orphans(&[]).await;
    rig.delete_snapshot("again").await;
    rig.until_snapshot_gone("again").await;
    rig.until_orphans(&["snap-left"]).await;
    rig.fake.backend().snapshots.clear();
    rig.until_orphans(&[]).await;
    rig.until_counted_orphans("Snapshot", 0.0).await;
    rig.delete_volume("of").await;
    rig.until_volume_gone("of").await;
    rig.assert_nothing_left().await;
}

/// Whoever has removed the objects: nothing asks the driver to delete anything.
async fn storage_whose_objects_were_removed_by_force_is_told(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    rig.make_volume(&volume("forced")).await;
    rig.until_volume_ready("forced").await;
    rig.until_compared(Rpc::ListVolumes, 2).await;
    let handle = rig.cluster.volume("forced").unwrap().status.as_ref().unwrap().handle_name.clone().unwrap();
    rig.stop(CONTROLLER).await;
    let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    rig.volume_api().patch("forced", &PatchParams::default(), &free).await.unwrap();
    rig.delete_volume("forced").await;
    rig.until_volume_gone("forced").await;
    // Its lock still says whose it is.
    rig.until_compared(Rpc::ListVolumes, 3).await;
    let handles: Api<VolumeHandle> = Api::all(cluster.admin.clone());
    handles.patch(&handle, &PatchParams::default(), &free).await.unwrap();
    handles.delete(&handle, &DeleteParams::default()).await.unwrap();
    rig.run(CONTROLLER);
    rig.until_orphans(&["vol-forced"]).await;
    assert_eq!(rig.deletions(), 0);
    rig.end_orphans().await;
}

/// A Volume, and a Snapshot: told as long as it lasts, and left as they are.
async fn objects_whose_storage_vanishes_are_told_until_it_is_back(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    for key in ["gone", "stays"] {
        rig.make_volume(&volume(key)).await;
        rig.until_volume_ready(key).await;
    }
    rig.make_snapshot(&snapshot("moment", "stays")).await;
    rig.until_snapshot("moment", SnapshotState::Ready).await;
    rig.until_compared(Rpc::ListSnapshots, 3).await;
    let calls = rig.journal.calls_of("gone").len();
    rig.fake.backend().listing.hides.extend(["gone".to_owned(), "moment".to_owned()]);
    rig.until_volume_found("gone", false).await;
    rig.until_snapshot_found("moment", false).await;
    rig.poll("an Event tells it", || async { rig.events_told("gone", "StorageMissing").await == 1 }).await;
    let without = r#"moor_objects_without_storage{kind="Volume"}"#;
    rig.poll("it is counted", || async { rig.sample(CONTROLLER, without).await == Some(1.0) }).await;
    let admin = cluster.kubeconfig("admin", None).await;
    kubectl_moor(&admin, "orphans").await.has(&[
        "Objects whose storage the driver does not list any more\n",
        "  Volume    default/gone    fake.moor.dev  vol-gone ",
        "  Snapshot  default/moment  fake.moor.dev  snap-moment ",
    ]);
    rig.restart_and_wait(NODE).await;
    rig.until_compared(Rpc::ListSnapshots, 3).await;
    rig.until_volume_found("gone", false).await;
    let status = rig.cluster.volume("stays").unwrap().status.clone().unwrap();
    assert!(find(&status.conditions, STORAGE_FOUND).is_none(), "{status:?}");
    assert_eq!(rig.journal.calls_of("gone").len(), calls, "{}", rig.story("gone"));

    rig.fake.backend().listing.hides.clear();
    rig.until_volume_found("gone", true).await;
    rig.until_snapshot_found("moment", true).await;
    rig.poll("an Event tells it", || async { rig.events_told("gone", "StorageFound").await == 1 }).await;
    assert_eq!(rig.events_told("gone", "StorageMissing").await, 1);
    rig.delete_snapshot("moment").await;
    rig.until_snapshot_gone("moment").await;
    let no_claims: [&str; 0] = [];
    rig.remove(&no_claims, &["gone", "stays"]).await;
}

/// The cases of this module.
pub const CASES: &[Case] = cases![
    storage_that_is_left_is_told_until_it_is_registered,
    a_snapshot_that_is_left_is_told_until_it_is_gone,
    storage_whose_objects_were_removed_by_force_is_told,
    objects_whose_storage_vanishes_are_told_until_it_is_back,
    lies::a_listing_of_many_pages_is_compared_as_a_whole,
    lies::a_listing_that_is_not_whole_says_nothing,
    quiet::what_is_being_made_or_deleted_is_no_orphan,
    quiet::what_others_have_made_is_no_orphan,
    quiet::storage_in_use_is_told_as_left_by_no_node,
    quiet::a_driver_that_lists_nothing_is_not_asked,
];
