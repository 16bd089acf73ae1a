//! A driver has something mounted in its folder of sockets, and that is dead.

use std::sync::Arc;

use crate::cases;
use crate::rig::fake::DRIVER;
use crate::rig::{Case, Cluster, DeadMount, Options, Rig, volume, volume_claim};

const NODE: &str = "node-2";

async fn the_drivers_in_other_folders_are_seen(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let dead = DeadMount::at(&rig.plugin_dir(NODE).join("dead"));
    // The new agent has to find the driver by its socket.
    rig.restart_and_wait(NODE).await;
    rig.make_volume(&volume("data")).await;
    rig.make_claim(&volume_claim("data", "data", NODE)).await;
    rig.until_ready("data").await;
    // One that comes later too.
    rig.fake.stop(NODE, &rig.plugin_dir(NODE));
    let healthy = || {
        let all = rig.cluster.instances.state();
        let one = all.into_iter().find(|i| i.spec.node_name == NODE);
        one.and_then(|i| i.status.as_ref().map(|status| status.healthy))
    };
    let gone = || (healthy() == Some(false)).then_some(());
    rig.cluster.until("its end is noticed", gone, || format!("{:?}", healthy())).await;
    rig.fake.serve(NODE, &rig.plugin_dir(NODE), false);
    rig.until_served(NODE).await;
    drop(dead);
    rig.remove(&["data"], &["data"]).await;
}

/// The folder of a driver that is connected already: its connection is there, and whoever looks up the path of its socket
/// hangs.
async fn a_driver_is_called_whose_folder_has_died_since(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let dead = DeadMount::at(&rig.plugin_dir(NODE).join(DRIVER));
    let names: Vec<String> = (0..4).map(|n| format!("data-{n}")).collect();
    for name in &names {
        rig.make_volume(&volume(name)).await;
        rig.make_claim(&volume_claim(name, name, NODE)).await;
    }
    for name in &names {
        rig.until_ready(name).await;
    }
    drop(dead);
    rig.remove(&names, &names).await;
}

/// The cases of this module.
pub const CASES: &[Case] =
    cases![the_drivers_in_other_folders_are_seen, a_driver_is_called_whose_folder_has_died_since];
