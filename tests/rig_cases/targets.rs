//! The paths at which claims are mounted, over restarts of their agent and of their node (trap B10).

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{ListParams, ResourceExt as _};
use moor::api::conditions::READY;
use moor::csi::Rpc;
use rustix::mount::{UnmountFlags, mount_bind, unmount};

use crate::cases;
use crate::rig::{Case, Cluster, Consumer, DriverIn, LOOK, Options, Rig, SPACE, volume, volume_claim};

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

/// Where a claim is going to be mounted.
async fn target_of(rig: &Rig, claim: &str) -> PathBuf {
    rig.targets_dir(NODE).join(rig.read_claim(claim).await.uid().unwrap()).join("target")
}

/// The driver has made it. A Pod that finds it would write into nothing.
async fn a_failed_publish_leaves_no_path(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.fake.backend().unmountable.insert("data".to_owned());
    rig.make_volume(&volume("data")).await;
    rig.make_claim(&volume_claim("data", "data", NODE)).await;
    rig.until_told("data", READY, "False", "NodePublishFailed").await;
    let path = target_of(&rig, "data").await;
    assert!(!path.exists(), "{} is there and nothing is mounted on it", path.display());
    rig.fake.backend().unmountable.clear();
    // The next attempt comes at once.
    rig.restart(NODE);
    assert_eq!(Path::new(&rig.until_ready("data").await), path);
    rig.remove(&["data"], &["data"]).await;
}

/// To remove it would end that mount, and nobody would be told.
async fn a_path_on_which_somebody_else_has_a_mount_stays(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.fake.hold("data", Rpc::NodePublishVolume);
    rig.fake.pretend("data", Rpc::NodePublishVolume);
    rig.make_volume(&volume("data")).await;
    rig.make_claim(&volume_claim("data", "data", NODE)).await;
    let called = || (rig.count("data", Rpc::NodePublishVolume) > 0).then_some(());
    cluster.until("the volume is being published", called, || rig.story("data")).await;
    let path = target_of(&rig, "data").await;
    fs::create_dir(&path).unwrap();
    let other = Consumer::mounting_at(&cluster, path.to_str().unwrap()).await;
    rig.fake.let_go("data", Rpc::NodePublishVolume);
    rig.until_told("data", READY, "False", "MountNotVisible").await;
    assert!(path.exists(), "{} was removed under a mount", path.display());
    drop(other);
    rig.restart(NODE);
    let gone = || (!path.exists()).then_some(());
    cluster.until("it goes when nobody has it any more", gone, || rig.story("data")).await;
    rig.fake.behave("data", Rpc::NodePublishVolume);
    rig.restart(NODE);
    rig.until_ready("data").await;
    rig.remove(&["data"], &["data"]).await;
}

async fn a_path_that_has_lost_its_mount_goes(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options { supervised: false, ..Options::default() }).await;
    // Right after its start an agent does not know the driver's process, and goes by the node's.
    let node = rig.part(NODE, DriverIn::Pod);
    rig.until_served(NODE).await;
    rig.make_volume(&volume("data")).await;
    rig.make_claim(&volume_claim("data", "data", NODE)).await;
    let path = rig.until_ready("data").await;
    rig.kill(NODE);
    unmount(&path, UnmountFlags::empty()).unwrap();
    // As a driver does that knows nothing of it any more.
    rig.fake.backend().volumes.get_mut("data").unwrap().published.clear();
    rig.fake.hold("data", Rpc::NodeStageVolume);
    rig.run(NODE);
    let staging = || (rig.count("data", Rpc::NodeStageVolume) > 1).then_some(());
    cluster.until("the volume is being staged again", staging, || rig.story("data")).await;
    assert!(!Path::new(&path).exists(), "{path} is there and nothing is mounted on it");
    rig.fake.let_go("data", Rpc::NodeStageVolume);
    let published = || (rig.count("data", Rpc::NodePublishVolume) > 1).then_some(());
    cluster.until("the volume is being published again", published, || rig.story("data")).await;
    assert_eq!(rig.until_ready("data").await, path);
    rig.delete_claim("data").await;
    rig.until_claim_gone("data").await;
    node.join();
    rig.remove(&[""; 0], &["data"]).await;
}

/// A Pod that asked for the path to be made was there before the agent after a reboot.
async fn what_lies_under_the_folder_of_the_targets_is_told_and_kept(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.make_volume(&volume("data")).await;
    rig.make_claim(&volume_claim("data", "data", NODE)).await;
    let path = rig.until_ready("data").await;
    let uid = rig.read_claim("data").await.uid().unwrap();
    rig.crash_node(NODE);
    let folder = rig.targets_dir(NODE);
    let empty = folder.join("00000000-0000-4000-8000-000000000000/target");
    for target in [Path::new(&path), &empty] {
        fs::create_dir_all(target).unwrap();
    }
    fs::write(format!("{path}/file"), "on the node's own disk").unwrap();
    rig.boot_node(NODE, false);
    let again = || (rig.count("data", Rpc::NodePublishVolume) > 1).then_some(());
    cluster.until("the volume is being published again", again, || rig.story("data")).await;
    rig.until_ready("data").await;
    let events: Api<Event> = Api::namespaced(cluster.admin.clone(), SPACE);
    let about = |e: &Event| e.regarding.as_ref().is_some_and(|r| r.uid.as_deref() == Some(&uid));
    let look = async {
        loop {
            let all = events.list(&ListParams::default()).await.unwrap();
            let mut orphans = all.into_iter().filter(|e| e.reason.as_deref() == Some("Orphan") && about(e));
            if let Some(note) = orphans.find_map(|e| e.note) {
                return note;
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    let note = tokio::time::timeout(crate::rig::PATIENCE, look).await.expect("it is told");
    assert!(note.contains(&path) && note.contains("mount --bind"), "{note}");
    rig.delete_claim("data").await;
    rig.until_claim_gone("data").await;
    // An agent that is behind goes on until it has seen that nothing is left, and takes the folder with it only then.
    let forgets = || rig.records(NODE).is_empty().then_some(());
    cluster.until("the node has no record left", forgets, || rig.story("data")).await;
    rig.stop(NODE).await;
    assert!(Path::new(&path).join("file").exists() && !empty.exists());
    fs::remove_dir_all(&folder).unwrap();
    rig.run(NODE);
    rig.remove(&[""; 0], &["data"]).await;
}

/// The cases of this module.
pub const CASES: &[Case] = cases![
    a_failed_publish_leaves_no_path,
    a_path_on_which_somebody_else_has_a_mount_stays,
    a_path_that_has_lost_its_mount_goes,
    what_lies_under_the_folder_of_the_targets_is_told_and_kept,
    after_a_reboot_there_is_no_target_before_its_mount,
    the_folder_of_the_targets_is_handed_on_and_goes_with_the_last_agent,
    no_folder_is_mounted_over_what_is_in_use,
    targets_that_other_boots_have_left_are_removed
];
