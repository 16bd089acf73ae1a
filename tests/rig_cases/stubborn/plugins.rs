//! The Plugin of a volume in use is deleted, or made anew: another one under the same name (trap B21).

use std::sync::Arc;

use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use moor::api::Plugin;
use moor::api::conditions::{READY, REMOVABLE};
use moor::api::instance::Service;
use moor::csi::Rpc;
use serde_json::json;
use tonic::Code;

use super::{NODE, UNDO, course};
use crate::rig::fake::DRIVER;
use crate::rig::{CONTROLLER, Cluster, Fault, Options, Rig, volume, volume_claim};

const GONE: Fault = Fault::CodeBefore(Code::NotFound);

async fn make_plugin_anew(rig: &Rig) {
    rig.delete_plugin().await;
    rig.make_plugin().await;
}

pub async fn a_plugin_that_was_made_anew_proves_nothing(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    for name in ["plain", "unknown", "early"] {
        rig.in_use(name).await;
    }
    // Of the Plugin that attached NOT_FOUND is proof; the storage did it by itself.
    rig.fake.fail("early", Rpc::ControllerUnpublishVolume, GONE);
    rig.fake.detach_silently("early");
    rig.delete_claim("early").await;
    rig.until_claim_gone("early").await;

    make_plugin_anew(&rig).await;
    let since = rig.journal.now();
    rig.delete_claim("plain").await;
    rig.until_claim_gone("plain").await;
    assert_eq!(course(&rig.calls_since(since, "plain")), UNDO);

    rig.fake.fail("unknown", Rpc::ControllerUnpublishVolume, GONE);
    rig.delete_claim("unknown").await;
    let look = || {
        let error = cluster.attachment_of("unknown")?.status.as_ref()?.last_error.clone()?;
        (error.rpc == Rpc::ControllerUnpublishVolume.name()).then_some(error)
    };
    let said = cluster.until("the detach fails", look, || rig.story("unknown")).await;
    assert_eq!(said.code, "NotFound");
    for words in ["was made anew since the volume was attached", "no proof that it is detached"] {
        assert!(said.message.contains(words), "{}", said.message);
    }
    rig.until_says("unknown", "ControllerUnpublishFailed", &["NotFound", "made anew"]).await;
    assert!(rig.fake.backend().volumes["unknown"].attached.contains_key(NODE));
    rig.fake.heal("unknown", Rpc::ControllerUnpublishVolume);
    rig.until_claim_gone("unknown").await;

    for name in ["plain", "unknown", "early"] {
        rig.delete_volume(name).await;
        rig.until_volume_gone(name).await;
    }
    rig.assert_nothing_left().await;
    assert!(rig.fake.backend().volumes.is_empty());
}

pub async fn a_plugin_that_was_made_anew_has_deleted_nothing(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    for name in ["kept", "given-up", "early", "orphan"] {
        rig.make_volume(&volume(name)).await;
        rig.until_volume_ready(name).await;
        rig.fake.fail(name, Rpc::DeleteVolume, GONE);
    }
    rig.delete_volume("early").await;
    rig.until_volume_gone("early").await;

    make_plugin_anew(&rig).await;
    for name in ["kept", "given-up"] {
        rig.delete_volume(name).await;
        let words =
            ["NotFound", "made anew since the volume was made", "no proof that it is deleted", "Retain"];
        rig.until_volume_says(name, "DeleteVolumeFailed", &words).await;
        assert!(!rig.was_written("volumes", name, "Deleted"));
    }
    rig.fake.heal("kept", Rpc::DeleteVolume);
    rig.until_volume_gone("kept").await;
    assert!(!rig.has_storage("kept"));
    let retain = Patch::Merge(json!({"spec": {"deletionPolicy": "Retain"}}));
    rig.volume_api().patch("given-up", &PatchParams::default(), &retain).await.unwrap();
    rig.until_volume_gone("given-up").await;
    rig.fake.heal("given-up", Rpc::DeleteVolume);
    assert!(rig.has_storage("given-up"));

    // Where no Plugin has the name, the word of the driver that made it counts.
    rig.delete_plugin().await;
    rig.delete_volume("orphan").await;
    rig.until_volume_gone("orphan").await;
    rig.assert_nothing_left().await;
    rig.leaves(&["vol-given-up"], "Retain");
    rig.leaves(&["vol-early", "vol-orphan"], "the driver that made it says that it does not have it");
}

pub async fn everything_ends_without_its_plugin(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let names = ["leaving", "later", "restarted"];
    for name in names {
        rig.in_use(name).await;
    }
    // One is on its way out already.
    rig.fake.fail("leaving", Rpc::NodeUnstageVolume, Fault::CodeBefore(Code::Internal));
    rig.delete_claim("leaving").await;
    rig.until_says("leaving", "NodeUnstageFailed", &[]).await;
    rig.delete_plugin().await;
    rig.fake.heal("leaving", Rpc::NodeUnstageVolume);
    rig.delete_claim("later").await;
    for name in ["leaving", "later"] {
        rig.until_claim_gone(name).await;
    }
    // Nobody remembers the Plugin: records and Attachments have to do.
    for actor in [CONTROLLER, "node-1", NODE] {
        rig.restart(actor);
    }
    let since = rig.journal.now();
    rig.delete_claim("restarted").await;
    rig.until_claim_gone("restarted").await;
    assert_eq!(course(&rig.calls_since(since, "restarted")), UNDO);
    for name in names {
        rig.delete_volume(name).await;
        rig.until_volume_gone(name).await;
    }
    rig.assert_nothing_left().await;
    assert!(rig.fake.backend().volumes.is_empty());
}

pub async fn the_younger_of_two_plugins_says_so_and_has_the_driver_next(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let plugins: Api<Plugin> = Api::all(cluster.admin.clone());
    // The name decides between two of one second.
    let name = "z-younger";
    let younger = json!({"metadata": {"name": name}, "spec": {"driverName": DRIVER}});
    plugins.create(&PostParams::default(), &serde_json::from_value(younger).unwrap()).await.unwrap();
    rig.until_plugin_says(name, READY, "DuplicateDriver", &[DRIVER]).await;
    rig.until_plugin_says(DRIVER, READY, "Healthy", &[]).await;
    let mut waits = volume("waits");
    waits.spec.plugin_name = name.into();
    rig.make_volume(&waits).await;
    rig.until_volume_says("waits", "DuplicateDriver", &[name, DRIVER]).await;

    rig.delete_plugin().await;
    rig.until_plugin_says(name, READY, "Healthy", &[]).await;
    rig.until_volume_ready("waits").await;
    rig.remove_volume("waits").await;
    plugins.delete(name, &DeleteParams::default()).await.unwrap();
}

/// A controller process and a node process on one node, with a socket each and one name.
pub async fn two_processes_of_a_driver_share_a_node(cluster: Arc<Cluster>) {
    const BOTH: &str = "node-1";
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.fake.stop(BOTH, &rig.plugin_dir(BOTH));
    rig.fake.serve_apart(BOTH, &rig.plugin_dir(BOTH));
    let instance = || cluster.instances.state().into_iter().find(|i| i.spec.node_name == BOTH);
    let look = |healthy: [bool; 2]| {
        let found = instance()?;
        let status = found.status.clone()?;
        let services: Vec<_> = status.services.iter().map(|s| (s.service, s.healthy)).collect();
        let wanted = [(Service::Controller, healthy[0]), (Service::Node, healthy[1])];
        (services == wanted && status.healthy == (healthy == [true; 2])).then_some(found)
    };
    let story = || format!("{:?}", instance());
    let before = cluster.until("both processes are known", || look([true, true]), story).await;

    rig.make_volume(&volume("v")).await;
    rig.make_claim(&volume_claim("v", "v", BOTH)).await;
    rig.until_ready("v").await;
    let made = ["CreateVolume", "ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume"];
    assert_eq!(course(&rig.calls_since(0, "v")), made);

    // Without its controller process the node takes what needs none, and the rest waits for that process.
    let since = rig.journal.now();
    rig.fake.kill_controller(BOTH);
    let after = cluster.until("the controller process is missed", || look([false, true]), story).await;
    let status = after.status.as_ref().unwrap();
    assert!(status.controller && status.node && !status.gone, "{status:?}");
    assert!(status.last_error.as_ref().is_some_and(|e| e.contains("-controller/csi.sock")), "{status:?}");
    rig.delete_claim("v").await;
    let unmounted = || (course(&rig.calls_since(since, "v")) == UNDO[..2]).then_some(());
    cluster.until("the node has let go of it", unmounted, || rig.story("v")).await;
    rig.fake.serve_controller(BOTH, &rig.plugin_dir(BOTH));
    rig.until_claim_gone("v").await;
    assert_eq!(course(&rig.calls_since(since, "v")), UNDO);
    rig.restart(BOTH);
    rig.delete_volume("v").await;
    rig.until_volume_gone("v").await;
    rig.assert_nothing_left().await;
    let end = cluster.until("both processes are known again", || look([true, true]), story).await;
    assert_eq!(end.metadata.uid, before.metadata.uid, "its PluginInstance is the same one");
    assert!(rig.fake.backend().volumes.is_empty());
}

/// Nothing else waits for it, and nothing new begins.
pub async fn a_plugin_in_use_waits_and_goes_when_it_is_not(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.in_use("used").await;
    let plugins: Api<Plugin> = Api::all(cluster.admin.clone());
    plugins.delete(DRIVER, &DeleteParams::default()).await.unwrap();
    rig.until_plugin_says(DRIVER, REMOVABLE, "InUse", &["not needed for Volume", "/used"]).await;
    rig.until_plugin_says(DRIVER, READY, "Healthy", &[]).await;
    rig.make_volume(&volume("new")).await;
    rig.until_volume_says("new", "PluginNotFound", &["is being deleted and takes no new volume"]).await;
    // Its driver works on: for those who have the volume, for others who want it, and for the end.
    rig.delete_claim("used").await;
    rig.until_claim_gone("used").await;
    rig.make_claim(&volume_claim("again", "used", NODE)).await;
    rig.until_ready("again").await;
    rig.restart_and_wait(CONTROLLER).await;
    rig.remove(&["again"], &["used", "new"]).await;
    rig.poll("the Plugin is gone", || async { plugins.get_opt(DRIVER).await.unwrap().is_none() }).await;
    rig.fake.assert_obeyed();
    // Another one of its name begins anew.
    rig.make_plugin().await;
    rig.in_use("later").await;
    rig.remove(&["later"], &["later"]).await;
}
