//! The paths at which claims are mounted, over restarts of their agent and of their node (interleavings B10).

use std::fs;
use std::path::Path;
use std::sync::Arc;

use moor::csi::Rpc;
use rustix::mount::{UnmountFlags, mount_bind, unmount};

use crate::cases;
use crate::rig::{Case, Cluster, Options, Rig, volume, volume_claim};

const NODE: &str = "node-2";

/// How many mounts there are at exactly this path.
fn mounts_at(path: &Path) -> usize {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().filter(|line| line.split(' ').nth(4).is_some_and(|point| Path::new(point) == path)).count()
}

/// Whoever looks for the path in that time waits, and writes nowhere.
async fn after_a_reboot_there_is_no_target_before_its_mount(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.make_volume(&volume("data")).await;
    rig.make_claim(&volume_claim("data", "data", NODE)).await;
    let path = rig.until_ready("data").await;
    fs::write(format!("{path}/file"), "kept").unwrap();

    rig.crash_node(NODE);
    assert!(!Path::new(&path).exists(), "{path} is there and nothing is mounted on it");
    rig.fake.hold("data", Rpc::NodeStageVolume);
    rig.boot_node(NODE, false);
    let staging = || (rig.count("data", Rpc::NodeStageVolume) > 1).then_some(());
    cluster.until("the volume is being staged again", staging, || rig.story("data")).await;
    assert!(!Path::new(&path).exists(), "{path} is there before its volume");
    rig.fake.let_go("data", Rpc::NodeStageVolume);
    let published = || (rig.count("data", Rpc::NodePublishVolume) > 1).then_some(());
    cluster.until("the volume is being published again", published, || rig.story("data")).await;
    assert_eq!(rig.until_ready("data").await, path);
    assert_eq!(fs::read_to_string(format!("{path}/file")).unwrap(), "kept");
    rig.remove(&["data"], &["data"]).await;
}

async fn the_folder_of_the_targets_is_handed_on_and_goes_with_the_last_agent(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let folder = rig.targets_dir(NODE);
    rig.make_volume(&volume("data")).await;
    rig.make_claim(&volume_claim("data", "data", NODE)).await;
    let path = rig.until_ready("data").await;
    assert!(Path::new(&path).starts_with(&folder), "{path}");

    rig.restart_and_wait(NODE).await;
    assert_eq!((mounts_at(&folder), mounts_at(Path::new(&path))), (1, 1));
    // One that ends in order leaves it for the claim.
    rig.stop(NODE).await;
    assert_eq!((mounts_at(&folder), mounts_at(Path::new(&path))), (1, 1));
    rig.run(NODE);
    rig.remove(&["data"], &["data"]).await;
    rig.stop(NODE).await;
    assert_eq!(mounts_at(&folder), 0, "the last one leaves nothing");
    rig.run(NODE);
    rig.until_served(NODE).await;
}

/// What was mounted over the folder may have mounts of claims in it.
async fn no_folder_is_mounted_over_what_is_in_use(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let kubelet = rig.kubelet_dir(NODE);
    mount_bind(&kubelet, &kubelet).unwrap();
    rig.make_volume(&volume("data")).await;
    rig.make_claim(&volume_claim("data", "data", NODE)).await;
    let path = rig.until_ready("data").await;
    fs::write(format!("{path}/file"), "kept").unwrap();
    rig.restart_and_wait(NODE).await;
    assert_eq!(fs::read_to_string(format!("{path}/file")).unwrap(), "kept");
    rig.delete_claim("data").await;
    rig.until_claim_gone("data").await;
    unmount(&kubelet, UnmountFlags::DETACH).unwrap();
    rig.remove(&[""; 0], &["data"]).await;
}

/// An earlier version kept them on the node's disk.
async fn targets_that_other_boots_have_left_are_removed(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let old = rig.targets_dir(NODE).with_file_name("claims");
    rig.stop(NODE).await;
    for name in ["empty", "written"] {
        fs::create_dir_all(old.join(name).join("target")).unwrap();
    }
    let file = old.join("written/target/file");
    fs::write(&file, "on the node's own disk").unwrap();
    rig.run(NODE);
    let left = || fs::read_dir(&old).unwrap().map(|e| e.unwrap().file_name()).collect::<Vec<_>>();
    let one = || (left() == ["written"]).then_some(());
    cluster.until("what is empty is gone", one, || format!("{:?}", left())).await;
    assert!(file.exists());
    fs::remove_dir_all(&old).unwrap();
}

/// The cases of this module.
pub const CASES: &[Case] = cases![
    after_a_reboot_there_is_no_target_before_its_mount,
    the_folder_of_the_targets_is_handed_on_and_goes_with_the_last_agent,
    no_folder_is_mounted_over_what_is_in_use,
    targets_that_other_boots_have_left_are_removed
];
