//! What is left on a node of which no claim tells any more: it is told by the PluginInstance, and goes in its turn.

use std::fs;
use std::sync::Arc;

use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, ResourceExt as _};
use moor::api::PluginInstance;
use moor::api::conditions::{Condition, UNDONE};
use moor::api::instance::FORCE_UNDO;
use moor::api::names::{DriverOn, instance_name};
use moor::csi::Rpc;
use serde_json::json;

use crate::cases;
use crate::rig::fake::DRIVER;
use crate::rig::{Case, Cluster, Options, Rig, volume, volume_claim};

const NODE: &str = "node-2";

/// Its UID, and what it says of what is to be undone.
fn instance(cluster: &Cluster) -> Option<(String, Condition)> {
    let name = instance_name(DriverOn { driver: DRIVER, node: NODE });
    let found = cluster.instances.state().into_iter().find(|i| i.name_any() == name)?;
    let mut said = found.status.as_ref()?.conditions.iter();
    Some((found.uid()?, said.find(|condition| condition.type_ == UNDONE)?.clone()))
}

/// Waits until another object than that of the UID `before` says that something waits. Returns its UID.
async fn until_it_waits(cluster: &Cluster, before: &str, word: &str) -> String {
    let waits = || {
        let (uid, said) = instance(cluster)?;
        (uid != before && said.status == "False" && said.message.contains(word)).then_some(uid)
    };
    cluster.until("the instance says what waits", waits, || format!("{:?}", instance(cluster))).await
}

/// A node that was lost is back, and its driver is not. The PluginInstance is all that can tell of what it has left, and
/// where it is ordered undone: it is made again for as long as that is so, with its Plugin and without.
async fn what_waits_is_told_again_and_forced_without_a_driver(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.make_volume(&volume("left")).await;
    rig.make_claim(&volume_claim("left", "left", NODE)).await;
    rig.until_ready("left").await;
    let attachment = rig.read_attachment_of("left").await.uid().unwrap();
    rig.kill(NODE);
    rig.expire_lease(NODE).await;
    rig.delete_claim("left").await;
    rig.mark_out_of_service(NODE, true).await;
    rig.until_claim_gone("left").await;
    rig.mark_out_of_service(NODE, false).await;
    rig.fake.stop(NODE, &rig.plugin_dir(NODE));
    rig.run(NODE);
    let order = format!("{FORCE_UNDO}={attachment}");
    let first = until_it_waits(&cluster, "", &order).await;

    let (name, instances) = (
        instance_name(DriverOn { driver: DRIVER, node: NODE }),
        Api::<PluginInstance>::all(cluster.admin.clone()),
    );
    instances.delete(&name, &DeleteParams::default()).await.unwrap();
    let second = until_it_waits(&cluster, &first, &order).await;
    rig.delete_plugin().await;
    instances.delete(&name, &DeleteParams::default()).await.unwrap();
    until_it_waits(&cluster, &second, &order).await;
    assert_eq!(rig.records(NODE).len(), 1);

    let patch = Patch::Merge(json!({"metadata": {"annotations": {FORCE_UNDO: attachment}}}));
    instances.patch(&name, &PatchParams::default(), &patch).await.unwrap();
    let undone = || rig.leaks_on(NODE).is_empty().then_some(());
    cluster.until("nothing is left", undone, || format!("{:?}", rig.leaks_on(NODE))).await;
    for rpc in [Rpc::NodeUnpublishVolume, Rpc::NodeUnstageVolume] {
        assert_eq!(rig.count("left", rpc), 0, "{rpc}");
    }
    // Without a Plugin and with nothing left nobody needs it.
    let gone = || cluster.instances.state().iter().all(|i| i.name_any() != name).then_some(());
    cluster.until("the instance is gone", gone, || format!("{:?}", instance(&cluster))).await;

    // A driver that starts has nothing mounted.
    rig.fake.backend().forget_node(NODE);
    rig.make_plugin().await;
    rig.fake.serve(NODE, &rig.plugin_dir(NODE), false);
    rig.until_served(NODE).await;
    rig.make_claim(&volume_claim("again", "left", NODE)).await;
    rig.until_ready("again").await;
    rig.remove(&["again"], &["left"]).await;
}

/// A record was away while its volume was granted anew, and is there again: the driver, which goes by the volume id, would
/// take the newer mount.
async fn an_old_record_waits_for_a_newer_mount_to_leave(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.make_volume(&volume("v")).await;
    rig.make_claim(&volume_claim("old", "v", NODE)).await;
    rig.until_ready("old").await;
    let [record] = &rig.records(NODE)[..] else { panic!("{:?}", rig.records(NODE)) };
    let file = rig.state_dir(NODE).join("records").join(record);
    let text = fs::read(&file).unwrap();
    rig.delete_claim("old").await;
    rig.until_claim_gone("old").await;
    rig.make_claim(&volume_claim("new", "v", NODE)).await;
    let path = rig.until_ready("new").await;
    fs::write(format!("{path}/data"), "precious").unwrap();

    let lock = rig.read_attachment_of("new").await.name_any();
    rig.kill(NODE);
    fs::write(&file, text).unwrap();
    let since = rig.journal.now();
    rig.run(NODE);
    let looked = || rig.journal.has_read(since, NODE, "attachments", &lock).then_some(());
    cluster.until("the agent has looked for its Attachment", looked, || rig.story("v")).await;
    // What comes after it on this node is done.
    rig.make_volume(&volume("next")).await;
    rig.make_claim(&volume_claim("next", "next", NODE)).await;
    rig.until_ready("next").await;
    assert_eq!(rig.count("v", Rpc::NodeUnpublishVolume), 1, "that of the old claim");
    assert_eq!(fs::read_to_string(format!("{path}/data")).unwrap(), "precious");
    assert!(file.exists());

    rig.delete_claim("new").await;
    rig.until_claim_gone("new").await;
    let undone = || (!file.exists()).then_some(());
    cluster.until("the old record is undone", undone, || format!("{:?}", rig.records(NODE))).await;
    assert_eq!(rig.count("v", Rpc::NodeUnpublishVolume), 3);
    rig.remove(&["next"], &["v", "next"]).await;
}

/// The cases of this module.
pub const CASES: &[Case] = cases![
    what_waits_is_told_again_and_forced_without_a_driver,
    an_old_record_waits_for_a_newer_mount_to_leave,
];
