//! Whoever uses a raw device after its claim was deleted: nobody else gets it before that ends.

use std::fs;
use std::sync::Arc;

use moor::api::capability::VolumeUse;
use moor::api::{AccessMode, AttachmentMode, VolumeClaim};
use moor::csi::Rpc;

use super::consumers::{IN_USE, NEXT, NODE, deleted_in_use, until_handed_on, until_looked_again};
use crate::cases;
use crate::rig::fake::backend::Medium;
use crate::rig::{Case, Cluster, Consumer, Disk, Fault, Options, Rig, Swap, volume, volume_claim};

/// A claim for the volume `open`, which is a device, and is made with that on `disk`.
fn claim_of_device(name: &str, node: &str) -> VolumeClaim {
    let mut claim = volume_claim(name, "open", node);
    claim.spec.attachment_mode = AttachmentMode::BlockDevice;
    claim
}

async fn make_device(rig: &Rig, disk: &Disk) {
    rig.fake.backend().media.insert("open".to_owned(), Medium::Device(disk.device.clone()));
    let raw = VolumeUse { access_mode: AccessMode::default(), attachment_mode: AttachmentMode::BlockDevice };
    let mut object = volume("open");
    object.spec.capabilities = vec![raw];
    rig.make_volume(&object).await;
}

pub async fn a_device_that_is_open_holds_the_volume(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let disk = Disk::make(&cluster.directory.join("open.disk"));
    make_device(&rig, &disk).await;
    rig.make_claim(&claim_of_device("open", NODE)).await;
    let target = rig.until_ready("open").await;
    let consumer = Consumer::holding(&cluster, &target).await;
    rig.make_claim(&claim_of_device("next", NEXT)).await;
    deleted_in_use(&rig, "open", &consumer.pid(), "sleep").await;
    rig.restart(NODE);
    until_looked_again(&rig, "open").await;
    drop(consumer);
    until_handed_on(&rig, "open", "next").await;
}

/// It is asked when the driver has given it up, as till then the driver may be who has it.
pub async fn a_device_that_only_the_kernel_uses_holds_the_volume(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let disk = Disk::make(&cluster.directory.join("swap.disk"));
    make_device(&rig, &disk).await;
    rig.make_claim(&claim_of_device("open", NODE)).await;
    rig.until_ready("open").await;
    let swap = Swap::to(&disk.device);
    rig.make_claim(&claim_of_device("next", NEXT)).await;
    rig.delete_claim("open").await;
    rig.until_says("open", IN_USE, &[NODE, "somebody who cannot be seen", "is busy"]).await;
    rig.restart(NODE);
    until_looked_again(&rig, "open").await;
    drop(swap);
    until_handed_on(&rig, "open", "next").await;
}

/// An earlier version has not recorded by what it is recognised. The agent dies after the driver has unmounted and before
/// it has written that down.
pub async fn a_device_of_an_earlier_version_holds_the_volume(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let disk = Disk::make(&cluster.directory.join("earlier.disk"));
    make_device(&rig, &disk).await;
    rig.make_claim(&claim_of_device("open", NODE)).await;
    let target = rig.until_ready("open").await;
    let consumer = Consumer::holding(&cluster, &target).await;
    rig.kill(NODE);
    rig.change_record(NODE, |record| {
        let targets = record["targets"].as_object_mut().unwrap().values_mut();
        targets.for_each(|target| drop(target.as_object_mut().unwrap().remove("imprint").unwrap()));
    });
    rig.fake.fail("open", Rpc::NodeUnpublishVolume, Fault::HangAfter);
    rig.run(NODE);
    rig.delete_claim("open").await;
    let gone = || (!fs::exists(&target).unwrap()).then_some(());
    cluster.until("the driver has unmounted it", gone, || rig.story("open")).await;
    rig.kill(NODE);
    rig.fake.heal("open", Rpc::NodeUnpublishVolume);
    rig.run(NODE);
    deleted_in_use(&rig, "open", &consumer.pid(), "sleep").await;
    drop(consumer);
    rig.remove(&["open"], &["open"]).await;
}

/// The cases of this module.
pub const CASES: &[Case] = cases![
    a_device_that_is_open_holds_the_volume,
    a_device_that_only_the_kernel_uses_holds_the_volume,
    a_device_of_an_earlier_version_holds_the_volume,
];
