//! How the driver says that a volume is.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

use moor::csi::proto::csi::v1::volume_capability::access_mode::Mode;
use moor::csi::proto::csi::v1::{ListVolumesRequest, NodeGetVolumeStatsRequest, VolumeCondition};
use rustix::mount::{UnmountFlags, unmount};

use crate::bench::{Bench, Driver};
use crate::volume::{Volume, block, text};

/// What the Node service says.
async fn on_node(volume: &Volume, driver: &Driver) -> VolumeCondition {
    let request = NodeGetVolumeStatsRequest {
        volume_id: volume.id.clone(),
        volume_path: text(&volume.target("a")),
        ..NodeGetVolumeStatsRequest::default()
    };
    let answer = driver.node().node_get_volume_stats(request).await.unwrap().into_inner();
    answer.volume_condition.unwrap()
}

/// What the Controller service says.
async fn listed(volume: &Volume, driver: &Driver) -> VolumeCondition {
    let page = driver.controller().list_volumes(ListVolumesRequest::default()).await.unwrap().into_inner();
    let is_it = |of: &moor::csi::proto::csi::v1::list_volumes_response::Entry| {
        of.volume.as_ref().is_some_and(|found| found.volume_id == volume.id)
    };
    page.entries.into_iter().find(is_it).unwrap().status.unwrap().volume_condition.unwrap()
}

#[tokio::test]
async fn a_volume_whose_data_or_device_is_gone_is_not_well() {
    let bench = Bench::new();
    let driver = bench.start("node-1", &[], false).await;
    let mut volume = Volume::create(&bench, &driver, "node-1", block(Mode::SingleNodeWriter)).await;
    volume.bring_up(&driver).await;
    let is_well = async || {
        let (node, controller) = (on_node(&volume, &driver).await, listed(&volume, &driver).await);
        assert!(!node.abnormal && !controller.abnormal, "{node:?} {controller:?}");
    };
    is_well().await;

    let data = bench.state().join("volumes").join(&volume.id).join("data");
    let bytes = fs::metadata(&data).unwrap().len();
    let file = File::options().write(true).open(&data).unwrap();
    file.set_len(bytes - 4096).unwrap();
    for told in [on_node(&volume, &driver).await, listed(&volume, &driver).await] {
        assert!(told.abnormal && told.message.contains("fewer than"), "{told:?}");
    }
    file.set_len(bytes).unwrap();
    is_well().await;

    let aside = data.with_extension("aside");
    fs::rename(&data, &aside).unwrap();
    for told in [on_node(&volume, &driver).await, listed(&volume, &driver).await] {
        assert!(told.abnormal && told.message.contains("data file is gone"), "{told:?}");
    }
    fs::rename(&aside, &data).unwrap();
    is_well().await;

    let number = rustix::fs::minor(fs::metadata(volume.target("a")).unwrap().rdev());
    let detached =
        Command::new("losetup").arg("--detach").arg(format!("/dev/loop{number}")).status().unwrap();
    assert!(detached.success());
    let told = on_node(&volume, &driver).await;
    assert!(told.abnormal && told.message.contains("loop device is gone"), "{told:?}");
    assert!(!listed(&volume, &driver).await.abnormal, "its data is there");

    // What the node of the device stands for may be anybody's by now, so the driver does not unmount it.
    unmount(volume.target("a"), UnmountFlags::empty()).unwrap();
    volume.take_down(&driver).await;
    volume.delete(&driver).await.unwrap();
}
