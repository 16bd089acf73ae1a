//! What is left on a node of which no claim tells any more: it is told by the PluginInstance, and goes in its turn.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, ResourceExt as _};
use moor::api::PluginInstance;
use moor::api::conditions::UNDONE;
use moor::api::instance::FORCE_UNDO;
use moor::api::names::instance_name;
use moor::csi::Rpc;
use serde_json::json;

use crate::cases;
use crate::rig::fake::DRIVER;
use crate::rig::{Case, Cluster, Options, Rig, volume, volume_claim};

const NODE: &str = "node-2";

/// Its UID, and what it says of what is to be undone.
fn instance(cluster: &Cluster) -> Option<(String, Condition)> {
    let name = instance_name(NODE, DRIVER);
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

    let (name, instances) = (instance_name(NODE, DRIVER), Api::<PluginInstance>::all(cluster.admin.clone()));
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

/// The cases of this module.
pub const CASES: &[Case] = cases![what_waits_is_told_again_and_forced_without_a_driver,];
