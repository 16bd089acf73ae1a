//! Ways in which Pods use their volumes.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt as _;
use std::sync::Arc;
use std::time::Duration;

use moor::csi::Rpc;
use moor::csi::proto::csi::v1 as wire;
use moor::csi::proto::csi::v1::volume_capability::{AccessType, MountVolume};
use prost::Message as _;
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use tonic::Code;

use super::NODE;
use crate::rig::fake::backend::Medium;
use crate::rig::{Can, Cluster, Disk, Kubelet, Options, Rig, Wish};

const CONTEXT: &str = "context=\"system_u:object_r:container_file_t:s0:c1,c2\"";

fn requests(rig: &Rig, rpc: Rpc) -> Vec<Vec<u8>> {
    let calls = rig.journal.calls_of("data").into_iter().filter_map(|entry| entry.call().cloned());
    calls.filter(|call| call.rpc == rpc).map(|call| call.arguments).collect()
}

fn mount_of(capability: Option<wire::VolumeCapability>) -> MountVolume {
    match capability.unwrap().access_type.unwrap() {
        AccessType::Mount(mount) => mount,
        AccessType::Block(block) => panic!("{block:?}"),
    }
}

fn staged(rig: &Rig) -> Vec<MountVolume> {
    let all = requests(rig, Rpc::NodeStageVolume).into_iter();
    all.map(|r| mount_of(wire::NodeStageVolumeRequest::decode(r.as_slice()).unwrap().volume_capability))
        .collect()
}

fn published(rig: &Rig) -> Vec<MountVolume> {
    let all = requests(rig, Rpc::NodePublishVolume).into_iter();
    all.map(|r| mount_of(wire::NodePublishVolumeRequest::decode(r.as_slice()).unwrap().volume_capability))
        .collect()
}

async fn end(rig: &Rig, kubelet: &Kubelet) {
    kubelet.give_up("data").await;
    rig.remove_for_pods("data").await;
    rig.fake.assert_obeyed();
}

pub(super) async fn group_and_selinux_context_reach_both_calls(cluster: Arc<Cluster>) {
    let options = Options { can: vec![Can::VolumeMountGroup], ..Options::default() };
    let rig = Rig::start(&cluster, options).await;
    let kubelet = rig.kubelet(NODE).await;
    assert!(kubelet.capabilities().await.contains(&Can::VolumeMountGroup));
    rig.make_volume_for_pods("data").await;
    let of = |group: &str, flags: &[&str]| {
        let flags = flags.iter().map(|&flag| flag.to_owned()).collect();
        kubelet.wishing(Wish { group: group.to_owned(), flags, ..Wish::default() })
    };
    let first = of("2000", &["noatime", CONTEXT]);
    first.mount("pod-a", "data").await;
    let wanted = |group: &str, flags: &[&str]| MountVolume {
        volume_mount_group: group.to_owned(),
        mount_flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
        ..MountVolume::default()
    };
    assert_eq!(staged(&rig), [wanted("2000", &["noatime", CONTEXT])]);
    assert_eq!(published(&rig), staged(&rig));
    // A Pod of another group beside it has its own where that is possible, in its own mount.
    of("3000", &["noatime", CONTEXT]).mount("pod-b", "data").await;
    assert_eq!(staged(&rig).len(), 1);
    assert_eq!(published(&rig)[1], wanted("3000", &["noatime", CONTEXT]));
    for pod in ["pod-a", "pod-b"] {
        kubelet.unmount(pod, "data").await;
    }
    kubelet.give_up("data").await;

    // The next one is staged as it wants.
    let other = "context=\"system_u:object_r:container_file_t:s0:c3,c4\"";
    of("4000", &[other]).mount("pod-c", "data").await;
    assert_eq!(staged(&rig)[1], wanted("4000", &[other]));
    assert_eq!(published(&rig)[2], wanted("4000", &[other]));
    let said = serde_json::to_string(&rig.pod_claims().await.remove(0).status).unwrap();
    assert!(!said.contains("container_file_t"), "{said}");
    kubelet.unmount("pod-c", "data").await;
    end(&rig, &kubelet).await;
}

pub(super) async fn a_pod_that_only_reads_cannot_write(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let kubelet = rig.kubelet(NODE).await;
    rig.make_volume_for_pods("data").await;
    let writes = kubelet.mount("pod-a", "data").await;
    let reads = kubelet.wishing(Wish { read_only: true, ..Wish::default() }).mount("pod-b", "data").await;
    fs::write(writes.join("word"), "for both").unwrap();
    assert_eq!(fs::read_to_string(reads.join("word")).unwrap(), "for both");
    let error = fs::write(reads.join("word"), "no").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem, "{error}");
    for pod in ["pod-a", "pod-b"] {
        kubelet.unmount(pod, "data").await;
    }
    end(&rig, &kubelet).await;
}

/// kubelet lets no container write such a device, so that it does not matter that the device itself takes writes.
pub(super) async fn a_raw_device_that_a_pod_only_reads(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let wish = Wish { is_block: true, read_only: true, ..Wish::default() };
    let kubelet = rig.kubelet(NODE).await.wishing(wish);
    let disk = Disk::make(&cluster.directory.join("read.disk"));
    rig.fake.backend().media.insert("data".to_owned(), Medium::Device(disk.device.clone()));
    rig.make_device_for_pods("data").await;
    let device = kubelet.mount("pod-a", "data").await;
    assert!(fs::metadata(&device).unwrap().file_type().is_block_device(), "{}", device.display());
    kubelet.unmount("pod-a", "data").await;
    end(&rig, &kubelet).await;
}

/// kubelet removes the staging path of a raw device with everything below it.
pub(super) async fn a_raw_device_for_two_pods(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let kubelet = rig.kubelet(NODE).await.wishing(Wish { is_block: true, ..Wish::default() });
    let disk = Disk::make(&cluster.directory.join("pods.disk"));
    rig.fake.backend().media.insert("data".to_owned(), Medium::Device(disk.device.clone()));
    rig.make_device_for_pods("data").await;
    let first = kubelet.mount("pod-a", "data").await;
    let second = kubelet.mount("pod-b", "data").await;
    for device in [&first, &second] {
        assert!(fs::metadata(device).unwrap().file_type().is_block_device(), "{}", device.display());
    }
    kubelet.unmount("pod-a", "data").await;
    assert!(fs::metadata(&second).unwrap().file_type().is_block_device());
    kubelet.unmount("pod-b", "data").await;

    let below = kubelet.staging("data").join("more");
    fs::create_dir(&below).unwrap();
    fs::write(rig.fake.backend().content("data").join("word"), "precious").unwrap();
    mount_bind(rig.fake.backend().content("data"), &below).unwrap();
    let hasty = kubelet.within(Duration::from_secs(8));
    for _ in 0..2 {
        let status = hasty.unstage("data").await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status}");
    }
    assert_eq!(fs::read_to_string(below.join("word")).unwrap(), "precious");
    unmount(&below, UnmountFlags::empty()).unwrap();
    kubelet.give_up("data").await;
    assert!(!kubelet.staging("data").exists());
    rig.remove_for_pods("data").await;
    rig.fake.assert_obeyed();
}
