//! csi-sanity, the public conformance test of CSI drivers, on the sockets that the agent serves kubelet.
//!
//! A Pod, its claim and its PersistentVolume have to exist for a volume to be published there, at kubelet's own paths: these
//! are put in its calls on the way (`kubelets.rs`). Everything else goes through as csi-sanity says it.

mod kubelets;

use std::fs;
use std::process::Stdio;
use std::sync::Arc;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use crate::cases;
use crate::rig::fake::backend::Expand;
use crate::rig::{Case, Cluster, Options, Rig, say};

const NODE: &str = "node-1";
/// What it prints before it dials.
const CONNECTING: &str = "STEP: connecting to CSI driver";

async fn csi_sanity_passes_on_the_agents_sockets(cluster: Arc<Cluster>) {
    // csi-sanity attaches by itself where a driver does, and that is the controller's.
    let options = Options { attach: false, expand: Expand::AndNodes, ..Options::default() };
    let rig = Rig::start(&cluster, options).await;
    let kubelet = rig.kubelet(NODE).await;
    let folder = rig.folder("sanity");
    let (staging, mounts) = (folder.join("staging"), folder.join("mounts"));
    fs::create_dir_all(&folder).unwrap();
    let socket = folder.join("csi.sock");
    let mut child = Command::new(cluster.part("csi-sanity").await)
        .args(["--ginkgo.no-color", "--ginkgo.v", "--ginkgo.timeout=150s"])
        .args(["--ginkgo.focus", "Identity Service|Node Service"])
        .arg("--csi.endpoint")
        .arg(format!("unix://{}", socket.display()))
        .args(["--csi.testvolumesize", "1048576", "--csi.testvolumeexpandsize", "2097152"])
        .arg("--csi.stagingdir")
        .arg(&staging)
        .arg("--csi.mountdir")
        .arg(&mounts)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (mut log, mut server) = (Vec::new(), None);
    while let Some(line) = lines.next_line().await.unwrap() {
        // It waits for its connection to change until that is ready: one that is ready before never does.
        if line.contains(CONNECTING) && server.is_none() {
            server = Some(kubelets::serve(&rig, &kubelet, &socket, &mounts, &staging));
        }
        log.push(line);
    }
    let status = child.wait().await.unwrap();
    let log = log.join("\n");
    let ran = log.lines().find(|line| line.trim_start().starts_with("Ran ")).unwrap_or_default();
    let count: usize = ran.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or_default();
    assert!(status.success(), "{log}");
    // Those of the Node service alone are 21, of the Identity service 3.
    assert!(count >= 24, "only {count} of its cases ran:\n{log}");
    say(&format!("  csi-sanity: {}", ran.trim()));
    drop(server);
    rig.until_no_pod_claims().await;
    rig.fake.assert_obeyed();
}

/// The cases of this module.
pub const CASES: &[Case] = cases![csi_sanity_passes_on_the_agents_sockets];
