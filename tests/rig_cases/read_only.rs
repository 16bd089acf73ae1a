//! What a process of the node can do at the paths of claims that share a volume: a read-only one cannot be written to, and
//! its neighbours can. With a driver that mounts as those on Kubernetes' mount library do, in a Pod or on the node.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::sync::Arc;

use moor::api::VolumeClaim;
use moor::csi::Rpc;
use serde_json::Value;

use crate::cases;
use crate::rig::{Case, Cluster, DriverIn, Options, Parted, Rig, lay_cover, volume, volume_claim};

pub const CASES: &[Case] = cases![
    neighbours_of_a_driver_in_a_pod,
    neighbours_of_a_driver_on_the_node,
    covers_of_a_driver_in_a_pod_are_left_behind,
    covers_of_a_driver_on_the_node_are_left_behind,
    a_cover_in_use_is_waited_for,
    mount_flags_reach_the_node,
    flags_that_an_earlier_version_has_not_set_are_set,
    what_cannot_be_set_is_not_ready,
];

const NODE: &str = "node-2";

async fn start(cluster: &Arc<Cluster>, driver: DriverIn) -> (Arc<Rig>, Parted) {
    let rig = Rig::start(cluster, Options { supervised: false, ..Options::default() }).await;
    let parted = rig.part(NODE, driver);
    rig.until_served(NODE).await;
    rig.make_volume(&volume("v")).await;
    (rig, parted)
}

fn claim(name: &str, read_only: bool) -> VolumeClaim {
    let mut claim = volume_claim(name, "v", NODE);
    claim.spec.read_only = read_only;
    claim
}

/// Makes a claim: `b` is read-only, others are not. Returns its path.
async fn arrive(rig: &Rig, name: &str) -> String {
    rig.make_claim(&claim(name, name == "b")).await;
    rig.until_ready(name).await
}

async fn leave(rig: &Rig, name: &str) {
    rig.delete_claim(name).await;
    rig.until_claim_gone(name).await;
}

async fn end(rig: &Rig, node: Parted) {
    node.join();
    rig.delete_volume("v").await;
    rig.until_volume_gone("v").await;
    rig.assert_nothing_left().await;
}

#[track_caller]
fn assert_writable(node: &Parted, path: &str) {
    fs::write(node.path(path).join("word"), "written").unwrap();
    assert_eq!(node.mounts_at(path).len(), 1, "{:?}", node.mounts_at(path));
}

#[track_caller]
fn assert_read_only(node: &Parted, path: &str) {
    let error = fs::write(node.path(path).join("word"), "no").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem, "{error}");
    assert_eq!(node.mounts_at(path).len(), 1, "{:?}", node.mounts_at(path));
}

pub async fn neighbours_of_a_driver_in_a_pod(cluster: Arc<Cluster>) {
    neighbours(&cluster, DriverIn::Pod).await;
}

pub async fn neighbours_of_a_driver_on_the_node(cluster: Arc<Cluster>) {
    neighbours(&cluster, DriverIn::Node).await;
}

/// In every order of coming and going, and when the agent is killed in between.
async fn neighbours(cluster: &Arc<Cluster>, driver: DriverIn) {
    let (rig, node) = start(cluster, driver).await;
    for (first, second) in [("a", "b"), ("b", "a")] {
        for (leaves, stays) in [("a", "b"), ("b", "a")] {
            arrive(&rig, first).await;
            arrive(&rig, second).await;
            let (a, b) = (rig.until_ready("a").await, rig.until_ready("b").await);
            assert_writable(&node, &a);
            assert_read_only(&node, &b);
            rig.restart_and_wait(NODE).await;
            assert_writable(&node, &a);
            assert_read_only(&node, &b);
            leave(&rig, leaves).await;
            if stays == "a" {
                assert_writable(&node, &a);
            } else {
                assert_read_only(&node, &b);
            }
            leave(&rig, stays).await;
            assert!(node.mounts_at(&a).is_empty() && node.mounts_at(&b).is_empty());
        }
    }
    end(&rig, node).await;
}

pub async fn covers_of_a_driver_in_a_pod_are_left_behind(cluster: Arc<Cluster>) {
    covers(&cluster, DriverIn::Pod).await;
}

pub async fn covers_of_a_driver_on_the_node_are_left_behind(cluster: Arc<Cluster>) {
    covers(&cluster, DriverIn::Node).await;
}

/// An agent finds what an earlier version has mounted and recorded.
async fn covers(cluster: &Arc<Cluster>, driver: DriverIn) {
    let (rig, node) = start(cluster, driver).await;
    let (a, b) = (arrive(&rig, "a").await, arrive(&rig, "b").await);
    cover(&rig, &node, &b).await;
    fs::write(node.path(&a).join("word"), "no").unwrap_err();
    // One that comes now is bound from what lies over the staging path.
    rig.run(NODE);
    rig.until_served(NODE).await;
    let c = arrive(&rig, "c").await;
    fs::write(node.path(&c).join("word"), "no").unwrap_err();
    rig.kill(NODE);
    record_cover(&rig, &b);

    let published = rig.count("v", Rpc::NodePublishVolume);
    rig.run(NODE);
    until_uncovered(&rig).await;
    assert_writable(&node, &a);
    assert_read_only(&node, &b);
    assert_writable(&node, &c);
    assert_eq!(rig.count("v", Rpc::NodePublishVolume), published);

    // Killed after it has taken the cover off, and before it has made the mount read-only.
    rig.kill(NODE);
    node.let_write(&b);
    record_cover(&rig, &b);
    rig.run(NODE);
    until_uncovered(&rig).await;
    assert_read_only(&node, &b);
    for name in ["b", "a", "c"] {
        leave(&rig, name).await;
    }
    end(&rig, node).await;
}

pub async fn a_cover_in_use_is_waited_for(cluster: Arc<Cluster>) {
    let (rig, node) = start(&cluster, DriverIn::Pod).await;
    let (a, b) = (arrive(&rig, "a").await, arrive(&rig, "b").await);
    fs::write(node.path(&a).join("word"), "kept").unwrap();
    cover(&rig, &node, &b).await;
    record_cover(&rig, &b);
    let open = File::open(node.path(&b).join("word")).unwrap();
    rig.run(NODE);
    rig.until_says("b", "TargetInUse", &["busy", "next in"]).await;
    drop(open);
    rig.until_ready("b").await;
    assert_writable(&node, &a);
    assert_read_only(&node, &b);

    // Nobody waits on order.
    rig.kill(NODE);
    cover_again(&node, &b);
    record_cover(&rig, &b);
    let open = File::open(node.path(&b).join("word")).unwrap();
    rig.delete_claim("b").await;
    rig.force_detach("b").await;
    rig.run(NODE);
    rig.until_claim_gone("b").await;
    drop(open);
    assert_writable(&node, &a);
    leave(&rig, "a").await;
    end(&rig, node).await;
}

/// The driver ignores them, and the neighbour has none.
pub async fn mount_flags_reach_the_node(cluster: Arc<Cluster>) {
    let (rig, node) = start(&cluster, DriverIn::Pod).await;
    let mut strict = claim("strict", false);
    let options = serde_json::from_value(serde_json::json!({"mountFlags": ["noexec", "nosuid", "noatime"]}));
    strict.spec.mount_options = Some(options.unwrap());
    rig.make_claim(&strict).await;
    let strict = rig.until_ready("strict").await;
    let a = arrive(&rig, "a").await;
    let has = |path: &str, flag: &str| node.mounts_at(path)[0].split(',').any(|one| one == flag);
    for flag in ["rw", "noexec", "nosuid", "noatime"] {
        assert!(has(&strict, flag), "{flag} in {:?}", node.mounts_at(&strict));
    }
    assert!(!has(&a, "noexec") && !has(&a, "nosuid"));
    assert_writable(&node, &strict);
    leave(&rig, "strict").await;
    leave(&rig, "a").await;
    end(&rig, node).await;
}

/// It left to the driver what a mount may do, and did not look.
pub async fn flags_that_an_earlier_version_has_not_set_are_set(cluster: Arc<Cluster>) {
    let (rig, node) = start(&cluster, DriverIn::Pod).await;
    let (a, b) = (arrive(&rig, "a").await, arrive(&rig, "b").await);
    let namespace = node.process().join("ns/mnt");
    let published = rig.count("v", Rpc::NodePublishVolume);
    rig.kill(NODE);
    let forget = || {
        node.let_write(&b);
        fs::write(node.path(&b).join("word"), "written").unwrap();
        rig.change_record(NODE, |record| drop(record.as_object_mut().unwrap().remove("flagsSeen")));
    };
    forget();
    rig.run(NODE);
    let set = || node.mounts_at(&b)[0].split(',').any(|flag| flag == "ro").then_some(());
    cluster.until("the flag is set", set, || rig.story("v")).await;
    assert_read_only(&node, &b);
    assert_writable(&node, &a);
    assert_eq!(rig.count("v", Rpc::NodePublishVolume), published);

    // Where it cannot be set nobody is left to believe in it.
    rig.kill(NODE);
    forget();
    rig.set_namespace(NODE, "/proc/none/ns/mnt".as_ref());
    rig.run(NODE);
    rig.until_says("b", "MountWritable", &["can be written to"]).await;
    rig.kill(NODE);
    rig.set_namespace(NODE, &namespace);
    rig.run(NODE);
    rig.until_ready("b").await;
    assert_read_only(&node, &b);
    leave(&rig, "b").await;
    leave(&rig, "a").await;
    end(&rig, node).await;
}

pub async fn what_cannot_be_set_is_not_ready(cluster: Arc<Cluster>) {
    let (rig, node) = start(&cluster, DriverIn::Pod).await;
    let namespace = node.process().join("ns/mnt");
    rig.kill(NODE);
    rig.set_namespace(NODE, "/proc/none/ns/mnt".as_ref());
    rig.run(NODE);
    let a = arrive(&rig, "a").await;
    rig.make_claim(&claim("b", true)).await;
    let words = ["can be written to", "/proc/none/ns/mnt", "hostPID", "next in"];
    rig.until_says("b", "MountWritable", &words).await;
    let mut strict = claim("strict", false);
    let options = serde_json::from_value(serde_json::json!({"mountFlags": ["noexec"]}));
    strict.spec.mount_options = Some(options.unwrap());
    rig.make_claim(&strict).await;
    let status = rig.until_says("strict", "MountFlagsMissing", &["hostPID", "next in"]).await;
    assert!(!serde_json::to_string(&status).unwrap().contains("noexec"));
    assert_writable(&node, &a);

    rig.kill(NODE);
    rig.set_namespace(NODE, &namespace);
    rig.run(NODE);
    let b = rig.until_ready("b").await;
    assert_read_only(&node, &b);
    rig.until_ready("strict").await;
    for name in ["a", "b", "strict"] {
        leave(&rig, name).await;
    }
    end(&rig, node).await;
}

/// Ends the agent, and leaves what an earlier version's would have left where `b` is: a mount that can be written to, and
/// one over it.
async fn cover(rig: &Rig, node: &Parted, b: &str) {
    rig.stop(NODE).await;
    node.let_write(b);
    cover_again(node, b);
}

fn cover_again(node: &Parted, b: &str) {
    lay_cover(b);
    assert!(node.mounts_at(b).len() > 1, "{:?}", node.mounts_at(b));
}

/// Writes into the records that the target at `path` is covered. The agent does not run.
fn record_cover(rig: &Rig, path: &str) {
    let (file, mut record) = record(rig);
    let targets = record["targets"].as_object_mut().unwrap();
    let target = targets.values_mut().find(|target| target["path"] == path).unwrap();
    target["covered"] = true.into();
    fs::write(file, record.to_string()).unwrap();
}

/// Waits until the agent has seen to all covers that its record speaks of.
async fn until_uncovered(rig: &Rig) {
    let uncovered = || (!record(rig).1.to_string().contains("covered")).then_some(());
    rig.cluster.until("no cover is recorded", uncovered, || record(rig).1.to_string()).await;
}

/// The only record of the node.
fn record(rig: &Rig) -> (std::path::PathBuf, Value) {
    let files = fs::read_dir(rig.state_dir(NODE).join("records")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.filter(|file| file.extension().is_some_and(|e| e == "json")).collect();
    let file = files.pop().unwrap();
    let record = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    (file, record)
}
