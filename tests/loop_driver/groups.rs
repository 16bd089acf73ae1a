//! Snapshots of several volumes at one moment.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use moor::csi::proto::csi::v1::volume_capability::access_mode::Mode;
use moor::csi::proto::csi::v1::{
    CreateVolumeGroupSnapshotRequest, DeleteVolumeGroupSnapshotRequest, GetVolumeGroupSnapshotRequest,
    ListSnapshotsRequest, VolumeGroupSnapshot,
};
use tonic::{Code, Status};

use crate::bench::{Bench, Driver};
use crate::snapshots::{cut, cut_request, delete, get, ids, kill_at, list, ready_after, restore};
use crate::volume::{Answer, MIB, Volume, block, code, create_request};

fn request(name: &str, sources: &[&str]) -> CreateVolumeGroupSnapshotRequest {
    CreateVolumeGroupSnapshotRequest {
        name: name.to_owned(),
        source_volume_ids: sources.iter().map(|id| (*id).to_owned()).collect(),
        ..CreateVolumeGroupSnapshotRequest::default()
    }
}

async fn cut_all(
    driver: &Driver,
    request: CreateVolumeGroupSnapshotRequest,
) -> Result<VolumeGroupSnapshot, Status> {
    let made = driver.groups().create_volume_group_snapshot(request).await?;
    Ok(made.into_inner().group_snapshot.unwrap())
}

fn members(group: &VolumeGroupSnapshot) -> Vec<String> {
    group.snapshots.iter().map(|snapshot| snapshot.snapshot_id.clone()).collect()
}

async fn get_all(driver: &Driver, id: &str, members: &[String]) -> Result<VolumeGroupSnapshot, Status> {
    let request = GetVolumeGroupSnapshotRequest {
        group_snapshot_id: id.to_owned(),
        snapshot_ids: members.to_vec(),
        ..GetVolumeGroupSnapshotRequest::default()
    };
    let found = driver.groups().get_volume_group_snapshot(request).await?;
    Ok(found.into_inner().group_snapshot.unwrap())
}

fn delete_request(id: &str, members: &[String]) -> DeleteVolumeGroupSnapshotRequest {
    DeleteVolumeGroupSnapshotRequest {
        group_snapshot_id: id.to_owned(),
        snapshot_ids: members.to_vec(),
        ..DeleteVolumeGroupSnapshotRequest::default()
    }
}

async fn delete_all(driver: &Driver, id: &str, members: &[String]) -> Answer {
    driver.groups().delete_volume_group_snapshot(delete_request(id, members)).await.map(|_| ())
}

/// Two volumes of raw bytes.
async fn pair(bench: &Bench, driver: &Driver) -> [Volume; 2] {
    let one = Volume::create(bench, driver, "node-1", block(Mode::SingleNodeWriter)).await;
    let other = create_request("another", &one.capability, 8 * MIB);
    let other = driver.controller().create_volume(other).await.unwrap().into_inner().volume.unwrap();
    let dir = bench.node_dir("another");
    let other = Volume { id: other.volume_id, context: other.volume_context, dir, ..one.clone() };
    [one, other]
}

/// What is in the folder of all groups.
fn folders(bench: &Bench) -> usize {
    fs::read_dir(bench.state().join("groups")).unwrap().count()
}

#[tokio::test]
async fn a_group_comes_and_goes_with_all_its_members() {
    let bench = Bench::new();
    let driver = bench.start("node-1", &[], false).await;
    let mut volumes = pair(&bench, &driver).await;
    for volume in &mut volumes {
        volume.bring_up(&driver).await;
    }
    let device = |one: &Volume| File::options().read(true).write(true).open(one.target("a")).unwrap();
    let write = |byte| {
        for volume in &volumes {
            device(volume).write_all_at(&[byte; 4096], 0).unwrap();
        }
    };
    write(7);
    let sources = [volumes[0].id.as_str(), volumes[1].id.as_str()];
    let group = cut_all(&driver, request("g", &sources)).await.unwrap();
    write(9);
    assert!(group.ready_to_use && group.creation_time.is_some());
    assert_eq!(group.snapshots.len(), 2);
    for snapshot in &group.snapshots {
        assert_eq!(snapshot.group_snapshot_id, group.group_snapshot_id);
        assert_eq!(snapshot.creation_time, group.creation_time, "one moment");
        assert_eq!(get(&driver, &snapshot.snapshot_id).await.unwrap(), *snapshot);
        let alone = delete(&driver, &snapshot.snapshot_id).await;
        assert_eq!(code(alone), Code::InvalidArgument, "a member goes with its group");
    }
    let again = cut_all(&driver, request("g", &[sources[1], sources[0]])).await.unwrap();
    assert_eq!(again, group, "whatever the order");
    let plain = cut(&driver, cut_request("g", sources[0])).await.unwrap();
    assert_eq!(plain.group_snapshot_id, "");
    let mut expected = [members(&group), vec![plain.snapshot_id.clone()]].concat();
    expected.sort();
    assert_eq!(ids(&list(&driver, ListSnapshotsRequest::default()).await.unwrap()), expected);

    for volume in &volumes {
        let snapshot = group.snapshots.iter().find(|one| one.source_volume_id == volume.id).unwrap();
        let mut restored =
            restore(&driver, &snapshot.snapshot_id, volume, snapshot.size_bytes).await.unwrap();
        restored.dir = bench.node_dir("restored");
        restored.bring_up(&driver).await;
        let mut found = [0; 4096];
        device(&restored).read_exact_at(&mut found, 0).unwrap();
        assert_eq!(found, [7; 4096]);
        restored.take_down(&driver).await;
        restored.delete(&driver).await.unwrap();
    }

    let (id, all) = (&group.group_snapshot_id, members(&group));
    assert_eq!(get_all(&driver, id, &all).await.unwrap(), group);
    for wrong in [&all[..1], &[], std::slice::from_ref(&plain.snapshot_id)] {
        assert_eq!(get_all(&driver, id, wrong).await.unwrap_err().code(), Code::InvalidArgument);
        assert_eq!(code(delete_all(&driver, id, wrong).await), Code::InvalidArgument);
    }
    for _ in 0..2 {
        delete_all(&driver, id, &all).await.unwrap();
        assert_eq!(get_all(&driver, id, &all).await.unwrap_err().code(), Code::NotFound);
    }
    delete(&driver, &all[0]).await.unwrap();
    assert_eq!(get(&driver, &all[0]).await.unwrap_err().code(), Code::NotFound);
    delete(&driver, &plain.snapshot_id).await.unwrap();
    assert_eq!(folders(&bench), 0);
    let locks = fs::read_dir(bench.state().join("locks")).unwrap();
    let names: Vec<_> = locks.flatten().map(|lock| lock.file_name().into_string().unwrap()).collect();
    assert!(!names.iter().any(|name| name.starts_with("snap-") || name.starts_with("group-")), "{names:?}");
    for volume in &volumes {
        volume.take_down(&driver).await;
    }
    bench.assert_clean();
}

#[tokio::test]
async fn a_group_that_cannot_be_is_refused_and_leaves_nothing() {
    let bench = Bench::new();
    let driver = bench.start("node-1", &[], false).await;
    let volumes = pair(&bench, &driver).await;
    let sources = [volumes[0].id.as_str(), volumes[1].id.as_str()];
    let refused = async |request| cut_all(&driver, request).await.unwrap_err().code();
    let wrong: [(&str, &[&str]); 5] = [
        ("", &sources),
        ("g", &[]),
        ("g", &["", sources[0]]),
        ("g", &[sources[0], sources[0]]),
        (&"n".repeat(129), &sources),
    ];
    for (name, sources) in wrong {
        assert_eq!(refused(request(name, sources)).await, Code::InvalidArgument, "{name:?} {sources:?}");
    }
    for missing in ["vol-00000000000000000000000000000000", "../../etc"] {
        assert_eq!(refused(request("g", &[sources[0], missing])).await, Code::NotFound);
    }
    let parameters = ready_after("601");
    let bad = CreateVolumeGroupSnapshotRequest { parameters, ..request("g", &sources) };
    assert_eq!(refused(bad).await, Code::InvalidArgument);
    assert_eq!(folders(&bench), 0);

    let parameters = ready_after("600");
    let later = CreateVolumeGroupSnapshotRequest { parameters, ..request("g", &sources) };
    let group = cut_all(&driver, later).await.unwrap();
    assert!(!group.ready_to_use && group.snapshots.iter().all(|snapshot| !snapshot.ready_to_use));
    assert_eq!(refused(request("g", &sources)).await, Code::AlreadyExists);
    assert_eq!(refused(request("g", &sources[..1])).await, Code::AlreadyExists);
    for id in ["", &"x".repeat(129)] {
        assert_eq!(code(delete_all(&driver, id, &[]).await), Code::InvalidArgument);
        assert_eq!(get_all(&driver, id, &[]).await.unwrap_err().code(), Code::InvalidArgument);
    }
    for id in ["../volumes", "group-", sources[0]] {
        assert_eq!(code(delete_all(&driver, id, &[]).await), Code::Ok, "there is none: {id}");
        assert_eq!(get_all(&driver, id, &[]).await.unwrap_err().code(), Code::NotFound);
    }
    delete_all(&driver, &group.group_snapshot_id, &members(&group)).await.unwrap();
    assert_eq!(folders(&bench), 0);
}

/// Were each volume looked at by itself, the quiet one would be of another moment.
#[tokio::test]
async fn a_group_with_a_volume_that_is_written_to_all_the_time_is_refused() {
    let bench = Bench::new();
    let driver = bench.start("node-1", &[], false).await;
    let mut volumes = pair(&bench, &driver).await;
    for volume in &mut volumes {
        volume.bring_up(&driver).await;
    }
    let ends = Arc::new(AtomicBool::new(false));
    let (path, ended) = (volumes[1].target("a"), Arc::clone(&ends));
    let writer = std::thread::spawn(move || {
        let device = File::options().write(true).open(path).unwrap();
        while !ended.load(Ordering::Relaxed) {
            device.write_all_at(b"more", 0).unwrap();
            device.sync_all().unwrap();
        }
    });
    let refused = cut_all(&driver, request("g", &[&volumes[0].id, &volumes[1].id])).await;
    ends.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    let error = refused.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition, "{}", error.message());
    assert!(error.message().contains(&volumes[1].id), "{}", error.message());
    assert_eq!(folders(&bench), 0);
    for volume in &volumes {
        volume.take_down(&driver).await;
    }
    bench.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_leaves_no_half_group() {
    let bench = Bench::new();
    let mut driver = bench.start("node-1", &[], false).await;
    let volumes = pair(&bench, &driver).await;
    let sources = [volumes[0].id.as_str(), volumes[1].id.as_str()];
    for step in ["copied", "members"] {
        let groups = driver.groups();
        let call =
            async { groups.clone().create_volume_group_snapshot(request("g", &sources)).await.unwrap_err() };
        driver = kill_at(&bench, driver, "CreateVolumeGroupSnapshot", step, call).await;
        assert_eq!(folders(&bench), 1, "a half one is there");
        assert!(list(&driver, ListSnapshotsRequest::default()).await.unwrap().entries.is_empty());
    }
    let group = cut_all(&driver, request("g", &sources)).await.unwrap();
    assert_eq!(group.snapshots.len(), 2);
    let (id, all) = (&group.group_snapshot_id, members(&group));
    let groups = driver.groups();
    let call =
        async { groups.clone().delete_volume_group_snapshot(delete_request(id, &all)).await.unwrap_err() };
    driver = kill_at(&bench, driver, "DeleteVolumeGroupSnapshot", "forgotten", call).await;
    assert!(list(&driver, ListSnapshotsRequest::default()).await.unwrap().entries.is_empty());
    assert_eq!(get(&driver, &all[0]).await.unwrap_err().code(), Code::NotFound);
    delete(&driver, &all[0]).await.unwrap();
    assert_eq!(folders(&bench), 1, "what is left is the group's to clear away");
    delete_all(&driver, id, &all).await.unwrap();
    assert_eq!(folders(&bench), 0);
}
