//! A backup that has an agent's Lease and not its PluginInstance, which was made after it (rule R7, trap N15).

use std::sync::Arc;

use kube::Api;
use kube::api::DeleteParams;
use moor::api::PluginInstance;
use moor::api::instance::UNDO_FORGOTTEN;
use moor::csi::Rpc;

use super::{
    instance, make_volumes, state_of, until, until_ended, until_forgotten, until_renewed, use_volume,
};
use crate::rig::{CONTROLLER, Cluster, Options, Rig, volume_claim};

/// Nothing that the restored state has says that the node has anything of the driver; its Lease alone says that there is an
/// agent, which has yet to say what it has mounted.
pub async fn a_node_without_a_plugin_instance_is_waited_for_too(shared: Arc<Cluster>) {
    let cluster = Arc::new(shared.start_another().await);
    let nodes = vec![("node-1", true), ("node-2", false), ("node-3", false)];
    let rig = Rig::start(&cluster, Options { nodes, supervised: false, ..Options::default() }).await;
    make_volumes(&rig, &["shared"]).await;
    // In the backup nobody but the rival asks for the volume, and its node cannot take it yet.
    rig.stop("node-3").await;
    rig.until_counted(&[("node-1", true), ("node-2", false)]).await;
    rig.make_claim(&volume_claim("rival", "shared", "node-3")).await;
    // Away while the backup is made, so that nobody makes its PluginInstance again before.
    rig.kill("node-2");
    let name = instance(&rig, "node-2").await.unwrap().metadata.name.unwrap();
    let instances: Api<PluginInstance> = Api::all(cluster.admin.clone());
    instances.delete(&name, &DeleteParams::default()).await.unwrap();
    rig.stop(CONTROLLER).await;
    cluster.back_up().await;
    rig.run(CONTROLLER);
    rig.run("node-2");
    let path = use_volume(&rig, "user", "shared", "node-2").await;

    let before = rig.journal.now();
    until_renewed(&rig, &["node-1", "node-2"]).await;
    cluster.restore().await;
    for actor in [CONTROLLER, "node-1", "node-2"] {
        until_ended(&rig, actor).await;
    }
    // These say that they have nothing, and are not waited for any more.
    rig.restart("node-1");
    rig.run("node-3");
    rig.restart(CONTROLLER);
    let said = until("the leader waits for node-2", || async {
        let (.., text) = state_of(&rig, "rival").await.filter(|(_, reason, _)| reason == "Forgotten")?;
        text.contains("node-2").then_some(text)
    })
    .await;
    assert!(said.contains("has yet to say"), "{said}");
    assert!(instance(&rig, "node-2").await.is_none(), "the backup has it, and so it proves nothing");
    rig.restart("node-2");
    let mounted = until_forgotten(&rig, "node-2", &["vol-shared"]).await;
    until("the rival reads what is mounted there", || async {
        let (.., text) = state_of(&rig, "rival").await.filter(|(_, reason, _)| reason == "Forgotten")?;
        text.contains(&format!("{UNDO_FORGOTTEN}={}", mounted[0].attachment_uid)).then_some(())
    })
    .await;
    let granted = rig.journal.since(before, |entry| {
        let makes = [Rpc::ControllerPublishVolume, Rpc::NodeStageVolume, Rpc::NodePublishVolume];
        entry.call().is_some_and(|call| makes.contains(&call.rpc))
    });
    assert!(granted.is_empty(), "{granted:?}");
    assert_eq!(std::fs::read_to_string(format!("{path}/data")).unwrap(), "user");
}
