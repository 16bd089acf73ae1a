//! Volumes that grow, and volumes that are copies of others.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use moor::csi::proto::csi::v1::volume_capability::access_mode::Mode;
use moor::csi::proto::csi::v1::volume_content_source::{Type, VolumeSource};
use moor::csi::proto::csi::v1::{
    CapacityRange, ControllerExpandVolumeRequest, CreateVolumeRequest, GetCapacityRequest,
    NodeExpandVolumeRequest, NodeGetVolumeStatsRequest, VolumeContentSource,
};
use serde_json::json;
use tonic::{Code, Status};

use crate::bench::{Bench, Driver, Survivor};
use crate::volume::{MIB, Volume, block, create_request, mount, text};

/// The controller's half.
async fn enlarge(volume: &Volume, driver: &Driver, bytes: i64) -> Result<i64, Status> {
    let request = ControllerExpandVolumeRequest {
        volume_id: volume.id.clone(),
        capacity_range: Some(CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
        volume_capability: Some(volume.capability.clone()),
        ..ControllerExpandVolumeRequest::default()
    };
    let answer = driver.controller().controller_expand_volume(request).await?.into_inner();
    assert!(answer.node_expansion_required);
    Ok(answer.capacity_bytes)
}

/// The node's half, at one of the paths where the volume is.
async fn grow(volume: &Volume, driver: &Driver, path: &Path, bytes: i64) -> Result<i64, Status> {
    let request = NodeExpandVolumeRequest {
        volume_id: volume.id.clone(),
        volume_path: text(path),
        capacity_range: Some(CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
        staging_target_path: text(&volume.staging()),
        ..NodeExpandVolumeRequest::default()
    };
    Ok(driver.node().node_expand_volume(request).await?.into_inner().capacity_bytes)
}

/// The size of the file system that is seen at a path.
fn size_at(path: &Path) -> i64 {
    let found = rustix::fs::statvfs(path).unwrap();
    i64::try_from(found.f_blocks * found.f_frsize).unwrap()
}

fn device_size(path: &Path) -> i64 {
    let answer = Command::new("blockdev").arg("--getsize64").arg(path).output().unwrap();
    String::from_utf8(answer.stdout).unwrap().trim().parse().unwrap()
}

/// The file systems that may be enlarged while they are mounted: ext4 for those only who have CAP_SYS_RESOURCE, which is
/// taken from whole machines at times.
fn grow_mounted() -> Vec<&'static str> {
    const SYS_RESOURCE: u32 = 24;
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    let has = u64::from_str_radix(mask.trim(), 16).unwrap() >> SYS_RESOURCE & 1 == 1;
    if has {
        return vec!["ext4", "xfs"];
    }
    eprintln!("without CAP_SYS_RESOURCE no mounted ext4 grows: xfs alone is tested");
    vec!["xfs"]
}

#[tokio::test]
async fn a_mounted_file_system_grows_and_keeps_its_files() {
    for fs_type in grow_mounted() {
        let bench = Bench::new();
        let driver = bench.start("node-1", &[], false).await;
        let capability = mount(Mode::SingleNodeWriter, fs_type);
        let mut volume = Volume::create(&bench, &driver, "node-1", capability).await;
        volume.bring_up(&driver).await;
        fs::write(volume.target("a").join("file"), "kept").unwrap();
        let before = size_at(&volume.target("a"));

        let error = grow(&volume, &driver, &volume.target("a"), 640 * MIB).await.unwrap_err();
        assert_eq!(error.code(), Code::OutOfRange, "the controller's half comes first");
        assert_eq!(enlarge(&volume, &driver, 640 * MIB - 1).await.unwrap(), 640 * MIB, "in whole MiB");
        assert_eq!(size_at(&volume.target("a")), before, "the node's half has not been called");
        for path in [volume.target("a"), volume.staging()] {
            assert_eq!(grow(&volume, &driver, &path, 640 * MIB).await.unwrap(), 640 * MIB, "also again");
        }
        assert!(size_at(&volume.target("a")) > before + 250 * MIB, "{fs_type}");
        assert_eq!(fs::read_to_string(volume.target("a").join("file")).unwrap(), "kept");
        let elsewhere = grow(&volume, &driver, &bench.path("elsewhere"), 0).await.unwrap_err();
        assert_eq!(elsewhere.code(), Code::NotFound);
        volume.take_down(&driver).await;
        volume.delete(&driver).await.unwrap();
        bench.assert_clean();
    }
}

#[tokio::test]
async fn a_volume_that_grew_while_nobody_had_it_is_grown_when_it_is_staged() {
    for fs_type in ["ext4", "xfs"] {
        let bench = Bench::new();
        let driver = bench.start("node-1", &[], false).await;
        let capability = mount(Mode::SingleNodeWriter, fs_type);
        let mut volume = Volume::create(&bench, &driver, "node-1", capability).await;
        volume.bring_up(&driver).await;
        fs::write(volume.target("a").join("file"), "kept").unwrap();
        let before = size_at(&volume.staging());
        volume.take_down(&driver).await;
        enlarge(&volume, &driver, 640 * MIB).await.unwrap();
        let fault = json!({"when": "grown", "do": "fail", "code": "Unavailable", "times": 1});
        bench.fault("any", "NodeStageVolume", &fault);
        volume.attach(&driver).await.unwrap();
        assert_eq!(volume.stage(&driver).await.unwrap_err().code(), Code::Unavailable);
        volume.bring_up(&driver).await;
        assert!(size_at(&volume.staging()) > before + 250 * MIB, "{fs_type}");
        assert_eq!(fs::read_to_string(volume.target("a").join("file")).unwrap(), "kept");
        volume.take_down(&driver).await;
        volume.delete(&driver).await.unwrap();
        bench.assert_clean();
    }
}

#[tokio::test]
async fn a_raw_device_grows() {
    let bench = Bench::new();
    let driver = bench.start("node-1", &[], false).await;
    let mut volume = Volume::create(&bench, &driver, "node-1", block(Mode::SingleNodeWriter)).await;
    volume.bring_up(&driver).await;
    assert_eq!(device_size(&volume.target("a")), 320 * MIB);
    enlarge(&volume, &driver, 640 * MIB).await.unwrap();
    grow(&volume, &driver, &volume.target("a"), 640 * MIB).await.unwrap();
    assert_eq!(device_size(&volume.target("a")), 640 * MIB);
    volume.take_down(&driver).await;
    volume.delete(&driver).await.unwrap();
    bench.assert_clean();
}

#[tokio::test]
async fn an_expansion_that_was_cut_short_is_finished_by_the_next_call() {
    for (rpc, step) in [
        ("ControllerExpandVolume", "enlarged"),
        ("NodeExpandVolume", "resized"),
        ("NodeExpandVolume", "grown"),
    ] {
        let bench = Bench::new();
        let driver = bench.start("node-1", &[], false).await;
        let capability = mount(Mode::SingleNodeWriter, "xfs");
        let mut volume = Volume::create(&bench, &driver, "node-1", capability).await;
        volume.bring_up(&driver).await;
        let before = size_at(&volume.staging());
        let fault = json!({"when": step, "do": "fail", "code": "Unavailable", "times": 1});
        bench.fault("any", rpc, &fault);
        let whole = async || {
            enlarge(&volume, &driver, 640 * MIB).await?;
            grow(&volume, &driver, &volume.staging(), 640 * MIB).await
        };
        assert_eq!(whole().await.unwrap_err().code(), Code::Unavailable, "{rpc} {step}");
        assert_eq!(whole().await.unwrap(), 640 * MIB, "{rpc} {step}");
        assert!(size_at(&volume.staging()) > before + 250 * MIB, "{rpc} {step}");
        volume.take_down(&driver).await;
        volume.delete(&driver).await.unwrap();
        bench.assert_clean();
    }
}

#[tokio::test]
async fn there_is_as_much_room_as_the_driver_is_told_to_offer() {
    let bench = Bench::new();
    let limit = (400 * MIB).to_string();
    let driver = bench.start("node-1", &["--capacity-bytes", &limit], false).await;
    let capacity = async || {
        let answer = driver.controller().get_capacity(GetCapacityRequest::default()).await.unwrap();
        answer.into_inner().available_capacity
    };
    assert_eq!(capacity().await, 400 * MIB);
    let volume = Volume::create(&bench, &driver, "node-1", block(Mode::SingleNodeWriter)).await;
    assert_eq!(capacity().await, 80 * MIB);
    let another = create_request("another", &volume.capability, 81 * MIB);
    let error = driver.controller().create_volume(another).await.unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted, "{}", error.message());
    assert_eq!(enlarge(&volume, &driver, 401 * MIB).await.unwrap_err().code(), Code::ResourceExhausted);
    assert_eq!(enlarge(&volume, &driver, 400 * MIB).await.unwrap(), 400 * MIB);
    assert_eq!(capacity().await, 0);
    volume.delete(&driver).await.unwrap();
    assert_eq!(capacity().await, 400 * MIB);
}

fn copy_request(name: &str, volume: &Volume, bytes: i64) -> CreateVolumeRequest {
    let source = VolumeSource { volume_id: volume.id.clone() };
    CreateVolumeRequest {
        volume_content_source: Some(VolumeContentSource { r#type: Some(Type::Volume(source)) }),
        ..create_request(name, &volume.capability, bytes)
    }
}

/// Copies a volume.
async fn copy(volume: &Volume, driver: &Driver, bytes: i64) -> Result<Volume, Status> {
    let request = copy_request("a copy", volume, bytes);
    let source = request.volume_content_source.clone();
    let made = driver.controller().create_volume(request).await?.into_inner().volume.unwrap();
    assert_eq!(made.content_source, source, "the answer names the source");
    assert!(made.capacity_bytes >= 320 * MIB, "no smaller than its source");
    Ok(Volume { id: made.volume_id, context: made.volume_context, ..volume.clone() })
}

#[tokio::test]
async fn a_copy_has_the_files_and_goes_its_own_way_beside_its_source() {
    for fs_type in ["ext4", "xfs"] {
        let bench = Bench::new();
        let driver = bench.start("node-1", &[], false).await;
        let capability = mount(Mode::SingleNodeWriter, fs_type);
        let mut volume = Volume::create(&bench, &driver, "node-1", capability).await;
        volume.bring_up(&driver).await;
        fs::write(volume.target("a").join("file"), "of the source").unwrap();
        let before = size_at(&volume.target("a"));
        // What nobody has synced is in the copy as well: the source stays in use.
        let mut copied = copy(&volume, &driver, 640 * MIB).await.unwrap();
        assert_eq!(copy(&volume, &driver, 640 * MIB).await.unwrap().id, copied.id, "also again");
        let plain = create_request("a copy", &volume.capability, 640 * MIB);
        let error = driver.controller().create_volume(plain).await.unwrap_err();
        assert_eq!(error.code(), Code::AlreadyExists, "another source is another volume");
        copied.dir = bench.node_dir("copied");
        copied.bring_up(&driver).await;
        assert!(size_at(&copied.target("a")) > before + 250 * MIB, "a larger copy has the room");
        assert_eq!(fs::read_to_string(copied.target("a").join("file")).unwrap(), "of the source");
        fs::write(copied.target("a").join("file"), "of the copy").unwrap();
        assert_eq!(fs::read_to_string(volume.target("a").join("file")).unwrap(), "of the source");
        for one in [&copied, &volume] {
            one.take_down(&driver).await;
            one.delete(&driver).await.unwrap();
        }
        bench.assert_clean();
    }
}

/// Drivers whose nodes see nothing of each other's mounts.
#[tokio::test]
async fn a_copy_has_what_was_written_on_another_node() {
    for capability in [mount(Mode::SingleNodeWriter, "ext4"), mount(Mode::SingleNodeWriter, "xfs")] {
        let bench = Bench::new();
        let (driver, elsewhere) = (bench.shared_apart("node-1").await, bench.shared_apart("node-2").await);
        let mut volume = Volume::create(&bench, &driver, "node-1", capability).await;
        volume.bring_up(&driver).await;
        let file = |one: &Volume| one.target("a").join("file").display().to_string();
        let users = (Survivor::beside(&driver), Survivor::beside(&elsewhere));
        assert!(users.0.shell(&format!("echo kept > {}", file(&volume))).status.success());
        let mut copied = copy(&volume, &elsewhere, 0).await.unwrap();
        (copied.node, copied.dir) = ("node-2".to_owned(), bench.node_dir("node-2"));
        copied.bring_up(&elsewhere).await;
        let read = users.1.shell(&format!("cat {}", file(&copied)));
        assert_eq!(String::from_utf8(read.stdout).unwrap(), "kept\n");
        drop(users);
        for (one, driver) in [(&copied, &elsewhere), (&volume, &driver)] {
            one.take_down(driver).await;
            one.delete(driver).await.unwrap();
        }
        bench.assert_clean();
    }
}

#[tokio::test]
async fn a_copy_of_a_volume_that_is_written_to_all_the_time_is_refused_and_leaves_nothing() {
    let bench = Bench::new();
    let driver = bench.start("node-1", &[], false).await;
    let mut volume = Volume::create(&bench, &driver, "node-1", mount(Mode::SingleNodeWriter, "ext4")).await;
    volume.bring_up(&driver).await;
    let entries = || fs::read_dir(bench.state().join("volumes")).unwrap().count();
    let (before, ends) = (entries(), Arc::new(AtomicBool::new(false)));
    let (path, ended) = (volume.target("a").join("file"), Arc::clone(&ends));
    let writer = std::thread::spawn(move || {
        let mut file = File::create(path).unwrap();
        while !ended.load(Ordering::Relaxed) {
            std::io::Write::write_all(&mut file, b"more").unwrap();
            file.sync_all().unwrap();
        }
    });
    let refused = copy(&volume, &driver, 0).await;
    ends.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    let error = refused.map(|_| ()).unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition, "{}", error.message());
    assert!(error.message().contains("was written to"), "{}", error.message());
    assert_eq!(entries(), before);
    let copied = copy(&volume, &driver, 0).await.unwrap();
    copied.delete(&driver).await.unwrap();
    volume.take_down(&driver).await;
    volume.delete(&driver).await.unwrap();
    bench.assert_clean();
}

#[tokio::test]
async fn a_copy_of_a_volume_that_grew_while_nobody_had_it_has_the_room() {
    for fs_type in ["ext4", "xfs"] {
        let bench = Bench::new();
        let driver = bench.start("node-1", &[], false).await;
        let capability = mount(Mode::SingleNodeWriter, fs_type);
        let mut volume = Volume::create(&bench, &driver, "node-1", capability).await;
        volume.bring_up(&driver).await;
        let before = size_at(&volume.target("a"));
        volume.take_down(&driver).await;
        enlarge(&volume, &driver, 640 * MIB).await.unwrap();
        let mut copied = copy(&volume, &driver, 640 * MIB).await.unwrap();
        copied.bring_up(&driver).await;
        assert!(size_at(&copied.target("a")) > before + 250 * MIB, "{fs_type}");
        copied.take_down(&driver).await;
        for one in [&copied, &volume] {
            one.delete(&driver).await.unwrap();
        }
        bench.assert_clean();
    }
}

#[tokio::test]
async fn a_copy_that_was_cut_short_is_made_again() {
    let bench = Bench::new();
    let driver = bench.start("node-1", &[], false).await;
    let volume = Volume::create(&bench, &driver, "node-1", block(Mode::SingleNodeWriter)).await;
    let data = |id: &str| bench.state().join("volumes").join(id).join("data");
    fs::write(data(&volume.id), "content").unwrap();
    File::options().write(true).open(data(&volume.id)).unwrap().set_len(320 << 20).unwrap();
    bench.fault(
        "any",
        "CreateVolume",
        &json!({"when": "copied", "do": "fail", "code": "Unavailable", "times": 1}),
    );
    assert_eq!(copy(&volume, &driver, 0).await.map(|_| ()).unwrap_err().code(), Code::Unavailable);
    let copied = copy(&volume, &driver, 0).await.unwrap();
    assert!(fs::read(data(&copied.id)).unwrap().starts_with(b"content"));
    volume.delete(&driver).await.unwrap();
    let error = driver.controller().create_volume(copy_request("late", &volume, 0)).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound, "the source is gone");
    copied.delete(&driver).await.unwrap();
}

#[tokio::test]
async fn stats_say_how_full_a_volume_is() {
    let bench = Bench::new();
    let driver = bench.start("node-1", &[], false).await;
    let mut volume = Volume::create(&bench, &driver, "node-1", mount(Mode::SingleNodeWriter, "ext4")).await;
    volume.bring_up(&driver).await;
    let stats = async |path: &Path| {
        let request = NodeGetVolumeStatsRequest {
            volume_id: volume.id.clone(),
            volume_path: text(path),
            ..NodeGetVolumeStatsRequest::default()
        };
        driver.node().node_get_volume_stats(request).await.map(|answer| answer.into_inner().usage)
    };
    let before = stats(&volume.target("a")).await.unwrap();
    assert_eq!(before.len(), 2, "bytes and inodes");
    assert_eq!(before[0].total, size_at(&volume.target("a")));
    let mut file = File::create(volume.target("a").join("file")).unwrap();
    std::io::Write::write_all(&mut file, &vec![1; 20 << 20]).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let after = stats(&volume.target("a")).await.unwrap();
    assert!(after[0].used >= before[0].used + 20 * MIB && after[1].used == before[1].used + 1, "{after:?}");
    assert_eq!(stats(&bench.path("elsewhere")).await.unwrap_err().code(), Code::NotFound);
    volume.take_down(&driver).await;
    volume.delete(&driver).await.unwrap();
}
