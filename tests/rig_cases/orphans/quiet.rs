//! Of what nothing is told.

use std::sync::Arc;

use moor::api::PluginInstance;
use moor::api::conditions::{ORPHANS, find};
use moor::csi::Rpc;
use serde_json::json;

use super::{NODE, start};
use crate::rig::fake::DRIVER;
use crate::rig::{Cluster, Entry, Fault, Options, Rig, volume};

/// Storage that has moor's name while its object does not know its id yet, and storage that is there until it is deleted.
pub(super) async fn what_is_being_made_or_deleted_is_no_orphan(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    // Its driver puts the name that it is given into the id.
    let mut made = volume("made");
    made.spec.parameters.clear();
    rig.make_volume(&made).await;
    rig.until_volume_ready("made").await;
    let key = format!("moor-{}", rig.cluster.volume("made").unwrap().metadata.uid.clone().unwrap());
    rig.until_compared(Rpc::ListVolumes, 1).await;
    rig.fake.hold(&key, Rpc::DeleteVolume);
    rig.delete_volume("made").await;
    rig.until_called_about(&key, Rpc::DeleteVolume).await;
    // A second one, which is there before its driver has answered.
    rig.fake.fail("slow", Rpc::CreateVolume, Fault::CodeAfter(tonic::Code::DeadlineExceeded));
    rig.make_volume(&volume("slow")).await;
    rig.until_called_about("slow", Rpc::CreateVolume).await;
    rig.until_compared(Rpc::ListVolumes, 4).await;
    assert!(rig.orphans().await.is_empty());
    rig.fake.heal("slow", Rpc::CreateVolume);
    rig.until_volume_ready("slow").await;
    rig.fake.let_go(&key, Rpc::DeleteVolume);
    rig.until_volume_gone("made").await;
    rig.until_compared(Rpc::ListVolumes, 2).await;
    assert!(rig.orphans().await.is_empty());
    nothing_was_told(&rig).await;
    let no_claims: [&str; 0] = [];
    rig.remove(&no_claims, &["slow"]).await;
}

/// Names as moor makes them, of another installation that has the same storage; and a volume that somebody has registered here.
pub(super) async fn what_others_have_made_is_no_orphan(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    let theirs =
        ["moor-11111111-2222-4333-8444-555555555555", "pvc-11111111-2222-4333-8444-666666666666", "other"];
    for key in theirs {
        rig.fake.backend().add(key);
        rig.fake.backend().add_snapshot(key, key);
    }
    rig.make_volume(&crate::rig::registered("guest", "vol-other")).await;
    rig.until_volume_ready("guest").await;
    rig.until_compared(Rpc::ListVolumes, 2).await;
    rig.delete_volume("guest").await;
    rig.until_volume_gone("guest").await;
    rig.until_compared(Rpc::ListSnapshots, 4).await;
    assert!(rig.orphans().await.is_empty());
    nothing_was_told(&rig).await;
    assert_eq!(rig.deletions(), 0);
    rig.end_orphans().await;
}

/// Somebody would delete it there.
pub(super) async fn storage_in_use_is_told_as_left_by_no_node(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    rig.make_volume(&volume("data")).await;
    rig.until_volume_ready("data").await;
    rig.until_compared(Rpc::ListVolumes, 2).await;
    rig.stop(NODE).await;
    let orphan = |handle: &str| json!({ "kind": "Volume", "handle": handle, "uid": "u", "createName": "moor-u", "since": "2026-01-01T00:00:00Z" });
    let report = json!({ "orphans": [orphan("vol-data"), orphan("vol-nobody")], "orphanedVolumes": 2 });
    rig.rogue(NODE).await.say_of_driver(json!({ "storage": report })).await;
    rig.until_orphans(&["vol-nobody"]).await;
    rig.until_counted_orphans("Volume", 1.0).await;
    rig.run(NODE);
    rig.until_orphans(&[]).await;
    let no_claims: [&str; 0] = [];
    rig.remove(&no_claims, &["data"]).await;
}

async fn nothing_was_told(rig: &Rig) {
    let plugin = rig.plugin_api().get(DRIVER).await.unwrap();
    let conditions = plugin.status.map(|status| status.conditions).unwrap_or_default();
    assert!(find(&conditions, ORPHANS).is_none(), "{conditions:?}");
}

pub(super) async fn a_driver_that_lists_nothing_is_not_asked(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options { audit_interval: 1, attach: false, ..Options::default() }).await;
    for key in ["one", "two"] {
        rig.make_volume(&volume(key)).await;
        rig.until_volume_ready(key).await;
        rig.leave_storage(key).await;
    }
    // Audits of such a driver go on, and ask nothing: as many as there are until the Plugin has been written anew.
    rig.patch_plugin(json!({ "healthTimeoutSeconds": 31 })).await;
    let lists = |entry: &Entry| {
        let rpc = entry.call().map(|call| call.rpc);
        rpc == Some(Rpc::ListVolumes) || rpc == Some(Rpc::ListSnapshots)
    };
    assert!(
        rig.journal.since(0, lists).is_empty(),
        "{}",
        crate::rig::Journal::text(&rig.journal.since(0, lists))
    );
    let instances: kube::Api<PluginInstance> = kube::Api::all(cluster.admin.clone());
    for instance in instances.list(&kube::api::ListParams::default()).await.unwrap() {
        assert_eq!(instance.status.unwrap_or_default().storage, None);
    }
    rig.fake.backend().volumes.clear();
    rig.assert_nothing_left().await;
}
