//! Whoever uses a volume after its claim was deleted: nobody else gets it before that ends.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, ResourceExt as _};
use moor::api::conditions::{Condition, UNDONE};
use moor::api::instance::FORCE_UNDO;
use moor::api::{ClaimState, PluginInstance};
use moor::csi::Rpc;
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use serde_json::json;

use crate::cases;
use crate::rig::fake::backend::Medium;
use crate::rig::{Case, Cluster, Consumer, Disk, DriverIn, Fault, Options, Rig, SPACE, volume, volume_claim};

/// Where it is in use.
pub const NODE: &str = "node-2";
/// Who gets it next.
pub const NEXT: &str = "node-1";
/// What the claim says while somebody uses what it had.
pub const IN_USE: &str = "StillInUse";

/// A volume that is mounted on [`NODE`]. Claim and Volume have one name. Returns where.
async fn mounted(rig: &Rig, name: &str) -> String {
    rig.make_volume(&volume(name)).await;
    rig.make_claim(&volume_claim(name, name, NODE)).await;
    rig.until_ready(name).await
}

/// Deletes the claim and waits until it says who uses the volume. Nothing is given up.
pub async fn deleted_in_use(rig: &Rig, name: &str, pid: &str, program: &str) {
    rig.delete_claim(name).await;
    let status =
        rig.until_says(name, IN_USE, &[NODE, &format!("pid {pid} ({program})"), "forceDetach"]).await;
    assert_eq!(status.state, ClaimState::Taken);
    assert_eq!(rig.count(name, Rpc::ControllerUnpublishVolume), 0);
}

/// Waits until the agent has looked again, and found the same.
pub async fn until_looked_again(rig: &Rig, name: &str) {
    let attempts = |name: &str| rig.cluster.claim(name)?.status.as_ref()?.attempts;
    let before = rig.read_claim(name).await.status.unwrap().attempts.unwrap();
    let again = || attempts(name).filter(|now| *now > before).map(drop);
    rig.cluster.until("it was looked at again", again, || rig.story(name)).await;
    assert_eq!(rig.count(name, Rpc::ControllerUnpublishVolume), 0);
}

/// The next claim is Ready, and the volume was detached before it was attached for it.
pub async fn until_handed_on(rig: &Rig, name: &str, next: &str) {
    rig.until_claim_gone(name).await;
    rig.until_ready(next).await;
    let calls = rig.journal.calls_of(name);
    let rpc = |entry: &crate::rig::Entry| entry.call().unwrap().rpc;
    let detached = calls.iter().find(|e| rpc(e) == Rpc::ControllerUnpublishVolume).unwrap();
    let attached = calls.iter().rfind(|e| rpc(e) == Rpc::ControllerPublishVolume).unwrap();
    assert!(detached.ended.unwrap().0 < attached.began);
    rig.remove(&[next], &[name]).await;
}

pub async fn a_copy_of_the_mount_holds_the_volume(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let target = mounted(&rig, "held").await;
    let consumer = Consumer::writing(&cluster, &target, ".").await;
    rig.make_claim(&volume_claim("next", "held", NEXT)).await;
    deleted_in_use(&rig, "held", &consumer.pid(), "sh").await;
    let log = rig.fake.backend().content("held").join("log");
    consumer.until_it_writes_on(&cluster, &log).await;
    until_looked_again(&rig, "held").await;
    assert_ne!(rig.read_claim("next").await.status.unwrap().state, ClaimState::Ready);
    // The driver is not asked to give up what is in use.
    assert_eq!(rig.count("held", Rpc::NodeUnstageVolume), 0);
    drop(consumer);
    until_handed_on(&rig, "held", "next").await;
}

/// A container that has got the node's tree without what becomes of it later holds what it has mounted below `part` of
/// moor's folder, by an open file. The kernel ends mounts that others have on a directory when it is removed.
async fn held_by_a_copy_of_the_nodes_tree(cluster: &Arc<Cluster>, name: &str, part: &str) {
    let rig = Rig::start(cluster, Options::default()).await;
    rig.fake.backend().untidy.insert("tree".to_owned());
    let target = mounted(&rig, name).await;
    let own = rig.kubelet_dir(NODE).join("plugins/kubernetes.io/csi/moor.dev").join(part);
    let staging = own.join(rig.read_attachment_of(name).await.uid().unwrap());
    let place = if part == "staging" { staging } else { target.into() };
    let file = place.join("word");
    fs::write(&file, "kept").unwrap();
    let consumer =
        Consumer::in_the_nodes_tree(cluster, &own.to_string_lossy(), &file.to_string_lossy()).await;
    rig.make_claim(&volume_claim("next", name, NEXT)).await;
    deleted_in_use(&rig, name, &consumer.pid(), "sleep").await;
    until_looked_again(&rig, name).await;
    drop(consumer);
    until_handed_on(&rig, name, "next").await;
}

/// Its driver leaves the target to whoever has called it.
pub async fn a_target_in_a_copy_of_the_nodes_tree_holds_the_volume(cluster: Arc<Cluster>) {
    held_by_a_copy_of_the_nodes_tree(&cluster, "tree", "targets").await;
}

pub async fn a_staging_path_in_a_copy_of_the_nodes_tree_holds_the_volume(cluster: Arc<Cluster>) {
    held_by_a_copy_of_the_nodes_tree(&cluster, "staged", "staging").await;
}

/// It has a part of the volume mounted, at a path of its own, as by a subPath.
pub async fn a_container_holds_the_volume_through_a_restart_of_the_agent(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let target = mounted(&rig, "inside").await;
    let consumer = Consumer::writing(&cluster, &target, "part").await;
    rig.make_claim(&volume_claim("next", "inside", NEXT)).await;
    deleted_in_use(&rig, "inside", &consumer.pid(), "sh").await;
    rig.restart(NODE);
    until_looked_again(&rig, "inside").await;
    let log = rig.fake.backend().content("inside").join("part/log");
    consumer.until_it_writes_on(&cluster, &log).await;
    drop(consumer);
    until_handed_on(&rig, "inside", "next").await;
}

/// The agent dies after the driver has unmounted and before it has written that down.
pub async fn a_crash_while_it_is_unpublished_forgets_no_consumer(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let target = mounted(&rig, "crash").await;
    let consumer = Consumer::writing(&cluster, &target, "part").await;
    rig.fake.fail("crash", Rpc::NodeUnpublishVolume, Fault::HangAfter);
    rig.delete_claim("crash").await;
    let gone = || (!fs::exists(&target).unwrap()).then_some(());
    cluster.until("the driver has unmounted it", gone, || rig.story("crash")).await;
    rig.kill(NODE);
    rig.fake.heal("crash", Rpc::NodeUnpublishVolume);
    rig.run(NODE);
    deleted_in_use(&rig, "crash", &consumer.pid(), "sh").await;
    drop(consumer);
    rig.remove(&["crash"], &["crash"]).await;
}

pub async fn force_frees_what_is_in_use_and_says_what_it_skipped(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let target = mounted(&rig, "forced").await;
    let consumer = Consumer::writing(&cluster, &target, ".").await;
    let uid = rig.read_claim("forced").await.uid().unwrap();
    deleted_in_use(&rig, "forced", &consumer.pid(), "sh").await;
    rig.force_detach("forced").await;
    rig.until_claim_gone("forced").await;
    let events: Api<Event> = Api::namespaced(cluster.admin.clone(), SPACE);
    let about = |e: &Event| e.regarding.as_ref().is_some_and(|r| r.uid.as_deref() == Some(&uid));
    loop {
        let all = events.list(&ListParams::default()).await.unwrap();
        let mut forced = all.into_iter().filter(|e| e.reason.as_deref() == Some("Forced") && about(e));
        if let Some(note) = forced.find_map(|e| e.note) {
            assert!(note.contains(&format!("pid {} (sh)", consumer.pid())), "{note}");
            break;
        }
        tokio::time::sleep(crate::rig::LOOK).await;
    }
    drop(consumer);
    rig.remove(&["forced"], &["forced"]).await;
}

/// Its consumer's copy of the mount takes writes, which a reader's does not.
pub async fn a_reader_goes_on_while_a_writer_waits_for_its_consumer(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let target = mounted(&rig, "writer").await;
    let consumer = Consumer::writing(&cluster, &target, ".").await;
    let mut reader = volume_claim("reader", "writer", NODE);
    reader.spec.read_only = true;
    rig.make_claim(&reader).await;
    let other = rig.until_ready("reader").await;
    let reads = Consumer::sleeping(&cluster, &other).await;
    deleted_in_use(&rig, "writer", &consumer.pid(), "sh").await;
    until_looked_again(&rig, "writer").await;
    assert_eq!(rig.read_claim("reader").await.status.unwrap().state, ClaimState::Ready);
    drop(consumer);
    rig.until_claim_gone("writer").await;
    fs::read(Path::new(&other).join("log")).unwrap();
    assert_eq!(rig.count("writer", Rpc::NodeUnstageVolume), 0);
    // The reader's consumer holds it in its turn.
    rig.delete_claim("reader").await;
    rig.until_says("reader", IN_USE, &[&format!("pid {}", reads.pid())]).await;
    drop(reads);
    rig.remove(&["reader"], &["writer"]).await;
}

/// [`NODE`] is given up for lost, and comes back when the claim is gone.
async fn until_lost_and_back(rig: &Rig, name: &str) {
    rig.kill(NODE);
    rig.expire_lease(NODE).await;
    rig.delete_claim(name).await;
    rig.mark_out_of_service(NODE, true).await;
    rig.until_claim_gone(name).await;
    rig.mark_out_of_service(NODE, false).await;
    rig.run(NODE);
}

/// The PluginInstance of [`NODE`], and what it says of what waits to be undone there.
fn undone(cluster: &Cluster) -> Option<(String, Condition)> {
    let all = cluster.instances.state();
    let instance = all.into_iter().find(|instance| instance.spec.node_name == NODE)?;
    let mut said = instance.status.as_ref()?.conditions.iter();
    Some((instance.name_any(), said.find(|condition| condition.type_ == UNDONE)?.clone()))
}

/// A node that was lost is back, and who uses the volume there has no claim any more to be named on.
pub async fn what_no_claim_tells_of_is_told_by_the_instance_and_forced_there(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let target = mounted(&rig, "back").await;
    let consumer = Consumer::writing(&cluster, &target, ".").await;
    let attachment = rig.read_attachment_of("back").await.uid().unwrap();
    until_lost_and_back(&rig, "back").await;
    let undone = || undone(&cluster);
    let waits = || undone().filter(|(_, said)| said.status == "False");
    let (instance, said) =
        cluster.until("the instance says what waits", waits, || format!("{:?}", undone())).await;
    let order = format!("plugininstance {instance} {FORCE_UNDO}={attachment}");
    for word in ["vol-back", &format!("pid {} (sh)", consumer.pid()), &order] {
        assert!(said.message.contains(word), "{word}: {}", said.message);
    }
    let instances: Api<PluginInstance> = Api::all(cluster.admin.clone());
    let order = json!({"metadata": {"annotations": {FORCE_UNDO: attachment}}});
    instances.patch(&instance, &PatchParams::default(), &Patch::Merge(order)).await.unwrap();
    let over = || undone().filter(|(_, said)| said.status == "True").map(drop);
    cluster.until("nothing waits any more", over, || format!("{:?}", undone())).await;
    rig.make_claim(&volume_claim("again", "back", NODE)).await;
    rig.until_ready("again").await;
    drop(consumer);
    rig.remove(&["again"], &["back"]).await;
}

/// Nobody has ordered that what a process on the node has open be unmounted under it, where no table would show it.
pub async fn a_file_that_is_open_on_a_lost_node_holds_the_volume(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let target = mounted(&rig, "lost").await;
    let file = fs::File::create(Path::new(&target).join("word")).unwrap();
    until_lost_and_back(&rig, "lost").await;
    let waits = || undone(&cluster).filter(|(_, said)| said.status == "False");
    let (_, said) =
        cluster.until("the instance says what waits", waits, || format!("{:?}", undone(&cluster))).await;
    for word in ["vol-lost", &target, "is in use on the node", FORCE_UNDO] {
        assert!(said.message.contains(word), "{word}: {}", said.message);
    }
    drop(file);
    let over = || undone(&cluster).filter(|(_, said)| said.status == "True").map(drop);
    cluster.until("nothing waits any more", over, || format!("{:?}", undone(&cluster))).await;
    rig.remove(&[""; 0], &["lost"]).await;
}

/// Nobody has it mounted, and the kernel has not let go of it.
pub async fn a_file_system_that_lives_on_holds_the_volume(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let disk = Disk::make(&cluster.directory.join("alive.disk"));
    rig.fake.backend().media.insert("alive".to_owned(), Medium::FileSystem(disk.device.clone()));
    let target = mounted(&rig, "alive").await;
    let file = Path::new(&target).join("word");
    fs::write(&file, "kept").unwrap();
    let consumer = Consumer::holding(&cluster, &file.to_string_lossy()).await;
    rig.make_claim(&volume_claim("next", "alive", NEXT)).await;
    deleted_in_use(&rig, "alive", &consumer.pid(), "sleep").await;
    rig.restart(NODE);
    until_looked_again(&rig, "alive").await;
    drop(consumer);
    until_handed_on(&rig, "alive", "next").await;
}

/// What the driver has mounted for itself before the first claim is there for good, and no undo waits for it. Who has a copy
/// of the claim's mount is told from it.
pub async fn a_mount_of_the_drivers_own_holds_nothing(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.make_volume(&volume("kept")).await;
    rig.until_volume_ready("kept").await;
    let content = rig.fake.backend().content("kept");
    mount_bind(&content, &content).unwrap();
    rig.make_claim(&volume_claim("kept", "kept", NODE)).await;
    let target = rig.until_ready("kept").await;
    let consumer = Consumer::sleeping(&cluster, &target).await;
    deleted_in_use(&rig, "kept", &consumer.pid(), "sleep").await;
    drop(consumer);
    rig.until_claim_gone("kept").await;
    unmount(&content, UnmountFlags::empty()).unwrap();
    rig.remove(&["kept"], &["kept"]).await;
}

/// A driver that enters the node's namespace to mount there what is not for one claim alone.
pub async fn a_mount_that_the_driver_keeps_on_the_node_holds_nothing(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let parted = rig.part(NODE, DriverIn::Pod);
    rig.make_volume(&volume("shares")).await;
    rig.until_volume_ready("shares").await;
    let content = rig.fake.backend().content("shares");
    let content = content.to_str().unwrap();
    parted.run_on_node(&["mount", "--bind", content, content]);
    rig.make_claim(&volume_claim("shares", "shares", NODE)).await;
    rig.until_ready("shares").await;
    // A bind of somebody else's at another place is a user's.
    parted.run_on_node(&["mount", "--bind", content, "/mnt"]);
    rig.delete_claim("shares").await;
    rig.until_says("shares", IN_USE, &["the mount at /mnt on the node itself"]).await;
    parted.run_on_node(&["umount", "/mnt"]);
    rig.until_claim_gone("shares").await;
    parted.join();
    rig.remove(&["shares"], &["shares"]).await;
}

/// The cases of this module.
pub const CASES: &[Case] = cases![
    a_copy_of_the_mount_holds_the_volume,
    a_target_in_a_copy_of_the_nodes_tree_holds_the_volume,
    a_staging_path_in_a_copy_of_the_nodes_tree_holds_the_volume,
    a_container_holds_the_volume_through_a_restart_of_the_agent,
    a_crash_while_it_is_unpublished_forgets_no_consumer,
    force_frees_what_is_in_use_and_says_what_it_skipped,
    a_reader_goes_on_while_a_writer_waits_for_its_consumer,
    what_no_claim_tells_of_is_told_by_the_instance_and_forced_there,
    a_file_that_is_open_on_a_lost_node_holds_the_volume,
    a_file_system_that_lives_on_holds_the_volume,
    a_mount_of_the_drivers_own_holds_nothing,
    a_mount_that_the_driver_keeps_on_the_node_holds_nothing,
];
