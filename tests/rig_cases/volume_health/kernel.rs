//! What is seen on a node, of real file systems. The driver says nothing of them.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use moor::api::capability::VolumeUse;
use moor::api::health::HealthKind;
use moor::api::{AccessMode, AttachmentMode};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};

use super::NODE;
use crate::rig::fake::backend::Medium;
use crate::rig::{Cluster, DeadMount, Disk, Options, Rig, volume, volume_claim};

async fn start(cluster: &Arc<Cluster>) -> Arc<Rig> {
    Rig::start(cluster, Options { health_interval: 1, ..Options::default() }).await
}

/// A volume whose content is a small file system of its own, in use. Returns where that is, and the target.
async fn use_small(rig: &Rig) -> (PathBuf, PathBuf) {
    rig.make_volume(&volume("data")).await;
    rig.until_volume_ready("data").await;
    let content = rig.fake.backend().content("data");
    mount("none", &content, "tmpfs", MountFlags::empty(), c"size=1m,nr_inodes=100").unwrap();
    rig.make_claim(&volume_claim("data", "data", NODE)).await;
    let target = rig.until_ready("data").await;
    until_looked_at(rig).await;
    (content, target.into())
}

/// How full a volume is is counted at the first look, also where nothing is wrong.
async fn until_looked_at(rig: &Rig) {
    let size = r#"moor_volume_stats_capacity_bytes{namespace="default",volume="data"}"#;
    let is_counted = || async { rig.sample(NODE, size).await.is_some_and(|size| size > 0.0) };
    rig.poll("somebody has looked at the volume", is_counted).await;
}

async fn end(rig: &Rig, content: &Path) {
    rig.delete_claim("data").await;
    rig.until_claim_gone("data").await;
    unmount(content, UnmountFlags::empty()).unwrap();
    rig.delete_volume("data").await;
    rig.until_volume_gone("data").await;
    rig.assert_nothing_left().await;
    rig.fake.assert_obeyed();
}

pub(super) async fn a_file_system_that_goes_read_only_is_told(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    let (content, target) = use_small(&rig).await;
    rig.until_well("data").await;
    mount_remount(&content, MountFlags::RDONLY, c"").unwrap();
    assert!(File::create(target.join("word")).is_err());
    let found = rig.until_ill("data", &[HealthKind::ReadOnly]).await;
    assert_eq!(found[0].node_name.as_deref(), Some(NODE));
    rig.until_health_events("data", 1, 0).await;
    mount_remount(&content, MountFlags::empty(), c"").unwrap();
    rig.until_well("data").await;
    rig.until_health_events("data", 1, 1).await;
    end(&rig, &content).await;
}

pub(super) async fn a_file_system_that_is_full_is_told(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    let (content, target) = use_small(&rig).await;
    rig.until_well("data").await;
    let filler = target.join("filler");
    let mut file = File::create(&filler).unwrap();
    while file.write(&[0; 4096]).is_ok_and(|written| written > 0) {}
    rig.until_ill("data", &[HealthKind::Full]).await;
    let used = r#"moor_volume_stats_used_bytes{namespace="default",volume="data"}"#;
    assert_eq!(rig.sample(NODE, used).await, Some(f64::from(1 << 20)));
    fs::remove_file(&filler).unwrap();
    drop(file);
    rig.until_well("data").await;
    // No file has bytes.
    let names = (0..1000).map(|n| target.join(format!("{n}")));
    let files: Vec<_> = names.take_while(|path| File::create(path).is_ok()).collect();
    rig.until_ill("data", &[HealthKind::OutOfInodes]).await;
    for path in files {
        fs::remove_file(path).unwrap();
    }
    rig.until_well("data").await;
    rig.until_health_events("data", 2, 2).await;
    end(&rig, &content).await;
    // What is counted goes with the volume.
    rig.poll("nothing is counted", || async { rig.sample(NODE, used).await.is_none() }).await;
}

/// As of a driver whose server in user space was killed. It is no reason not to unmount it.
pub(super) async fn a_file_system_without_its_server_is_told(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    rig.make_volume(&volume("data")).await;
    rig.until_volume_ready("data").await;
    let content = rig.fake.backend().content("data");
    let mut dead = DeadMount::at(&content);
    dead.end_server();
    rig.make_claim(&volume_claim("data", "data", NODE)).await;
    rig.until_ready("data").await;
    let found = rig.until_ill("data", &[HealthKind::Stale]).await;
    assert!(found[0].finding.message.contains("not connected"), "{found:?}");
    rig.delete_claim("data").await;
    rig.until_claim_gone("data").await;
    // What was wrong there was wrong there alone.
    let look = || {
        let status = cluster.volume("data")?.status.clone()?;
        let is_said = status.conditions.iter().any(|condition| condition.type_ == "Healthy");
        (status.health.is_empty() && !is_said).then_some(())
    };
    cluster.until("nobody knows how it is", look, || rig.story("data")).await;
    rig.until_health_events("data", 1, 0).await;
    drop(dead);
    rig.delete_volume("data").await;
    rig.until_volume_gone("data").await;
    rig.assert_nothing_left().await;
}

/// Somebody has unmounted it by hand.
pub(super) async fn a_mount_that_is_gone_is_told(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    let (content, target) = use_small(&rig).await;
    rig.until_well("data").await;
    unmount(&target, UnmountFlags::empty()).unwrap();
    let found = rig.until_ill("data", &[HealthKind::NotMounted]).await;
    assert!(found[0].finding.message.contains(target.to_str().unwrap()), "{found:?}");
    end(&rig, &content).await;
}

pub(super) async fn a_device_is_counted(cluster: Arc<Cluster>) {
    let rig = start(&cluster).await;
    let disk = Disk::make(&cluster.directory.join("counted.disk"));
    rig.fake.backend().media.insert("data".to_owned(), Medium::Device(disk.device.clone()));
    let mut object = volume("data");
    object.spec.capabilities =
        vec![VolumeUse { access_mode: AccessMode::default(), attachment_mode: AttachmentMode::BlockDevice }];
    rig.make_volume(&object).await;
    let mut claim = volume_claim("data", "data", NODE);
    claim.spec.attachment_mode = AttachmentMode::BlockDevice;
    rig.make_claim(&claim).await;
    rig.until_ready("data").await;
    until_looked_at(&rig).await;
    rig.end_health("data").await;
}
