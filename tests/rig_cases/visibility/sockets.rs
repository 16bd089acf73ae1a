//! A Plugin whose driver no agent finds says where was looked, and what is there instead.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

use kube::Api;
use kube::api::{DeleteParams, PostParams};
use moor::api::Plugin;
use moor::api::conditions::READY;
use serde_json::json;

use crate::rig::fake::DRIVER;
use crate::rig::{Cluster, Options, Rig};

const NODE: &str = "node-1";

async fn make(rig: &Rig, name: &str, socket_path: Option<&str>) {
    let spec = json!({"socketPath": socket_path});
    let plugin = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
    let plugins: Api<Plugin> = Api::all(rig.cluster.admin.clone());
    plugins.create(&PostParams::default(), &plugin).await.unwrap();
}

/// A socket in a folder of its own, on which nobody listens once this is dropped.
fn listen(plugin_dir: &Path, folder: &str) -> UnixListener {
    fs::create_dir_all(plugin_dir.join(folder)).unwrap();
    UnixListener::bind(plugin_dir.join(folder).join("csi.sock")).unwrap()
}

pub async fn what_is_there_instead_of_a_driver_is_told(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options { nodes: vec![(NODE, true)], ..Options::default() }).await;
    let plugin_dir = rig.plugin_dir(NODE);
    make(&rig, "missing", None).await;
    let theirs = format!("{DRIVER}/csi.sock of the driver {DRIVER}");
    let words = ["calls itself missing", plugin_dir.to_str().unwrap(), "On node-1", &theirs];
    rig.until_plugin_says("missing", READY, "NoInstance", &words).await;

    drop(listen(&plugin_dir, "ended"));
    let words = ["ended/csi.sock, on which nobody listens", &theirs];
    rig.until_plugin_says("missing", READY, "NoInstance", &words).await;

    // Two Plugins name one socket, and the driver there calls itself as one of them.
    let path = format!("{DRIVER}/csi.sock");
    make(&rig, "second", Some(&path)).await;
    rig.until_plugin_says("second", READY, "NoInstance", &["spec.socketPath", &theirs]).await;
    make(&rig, "nowhere", Some("nowhere/csi.sock")).await;
    rig.until_plugin_says("nowhere", READY, "NoInstance", &["On node-1: no socket"]).await;

    let plugins: Api<Plugin> = Api::all(cluster.admin.clone());
    for name in ["missing", "second", "nowhere"] {
        plugins.delete(name, &DeleteParams::default()).await.unwrap();
    }
    rig.assert_nothing_left().await;
}
