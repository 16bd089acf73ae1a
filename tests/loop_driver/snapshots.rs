//! Snapshots, and volumes that are made from them.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use moor::csi::proto::csi::v1::volume_capability::access_mode::Mode;
use moor::csi::proto::csi::v1::volume_content_source::{SnapshotSource, Type};
use moor::csi::proto::csi::v1::{
    CreateSnapshotRequest, CreateVolumeRequest, DeleteSnapshotRequest, GetCapacityRequest,
    GetSnapshotRequest, ListSnapshotsRequest, ListSnapshotsResponse, Snapshot, VolumeContentSource,
};
use serde_json::json;
use tonic::{Code, Status};

use crate::bench::{Bench, Driver, taken};
use crate::volume::{Answer, Context, MIB, Volume, block, code, create_request, mount};

pub fn cut_request(name: &str, volume_id: &str) -> CreateSnapshotRequest {
    CreateSnapshotRequest {
        name: name.to_owned(),
        source_volume_id: volume_id.to_owned(),
        ..CreateSnapshotRequest::default()
    }
}

pub fn ready_after(seconds: &str) -> Context {
    Context::from([("readyAfterSeconds".to_owned(), seconds.to_owned())])
}

pub async fn cut(driver: &Driver, request: CreateSnapshotRequest) -> Result<Snapshot, Status> {
    driver.controller().create_snapshot(request).await.map(|made| made.into_inner().snapshot.unwrap())
}

pub async fn delete(driver: &Driver, snapshot_id: &str) -> Answer {
    let request = DeleteSnapshotRequest { snapshot_id: snapshot_id.to_owned(), ..Default::default() };
    driver.controller().delete_snapshot(request).await.map(|_| ())
}

pub async fn get(driver: &Driver, snapshot_id: &str) -> Result<Snapshot, Status> {
    let request = GetSnapshotRequest { snapshot_id: snapshot_id.to_owned(), ..Default::default() };
    driver.controller().get_snapshot(request).await.map(|found| found.into_inner().snapshot.unwrap())
}

pub async fn list(driver: &Driver, request: ListSnapshotsRequest) -> Result<ListSnapshotsResponse, Status> {
    driver.controller().list_snapshots(request).await.map(tonic::Response::into_inner)
}

pub fn ids(page: &ListSnapshotsResponse) -> Vec<String> {
    page.entries.iter().map(|entry| entry.snapshot.clone().unwrap().snapshot_id).collect()
}

fn restore_request(name: &str, snapshot_id: &str, like: &Volume, bytes: i64) -> CreateVolumeRequest {
    let source = SnapshotSource { snapshot_id: snapshot_id.to_owned() };
    CreateVolumeRequest {
        volume_content_source: Some(VolumeContentSource { r#type: Some(Type::Snapshot(source)) }),
        ..create_request(name, &like.capability, bytes)
    }
}

/// Makes a volume from a snapshot, to be used where `like` is.
pub async fn restore(
    driver: &Driver,
    snapshot_id: &str,
    like: &Volume,
    bytes: i64,
) -> Result<Volume, Status> {
    let request = restore_request("restored", snapshot_id, like, bytes);
    let source = request.volume_content_source.clone();
    let made = driver.controller().create_volume(request).await?.into_inner().volume.unwrap();
    assert_eq!(made.content_source, source, "the answer names the source");
    assert!(made.capacity_bytes >= bytes);
    Ok(Volume { id: made.volume_id, context: made.volume_context, ..like.clone() })
}

/// What is in the folder of all snapshots.
fn folders(bench: &Bench) -> usize {
    fs::read_dir(bench.state().join("snapshots")).unwrap().count()
}

fn size_at(path: &Path) -> i64 {
    let found = rustix::fs::statvfs(path).unwrap();
    i64::try_from(found.f_blocks * found.f_frsize).unwrap()
}

#[tokio::test]
async fn a_snapshot_has_one_name_and_one_source() {
    let bench = Bench::new();
    let driver = bench.start("node-1", &[], false).await;
    let volume = Volume::create(&bench, &driver, "node-1", block(Mode::SingleNodeWriter)).await;
    let other = create_request("another", &volume.capability, 8 * MIB);
    let other = driver.controller().create_volume(other).await.unwrap().into_inner().volume.unwrap();
    let made = cut(&driver, cut_request("s", &volume.id)).await.unwrap();
    assert_eq!((made.size_bytes, made.ready_to_use), (320 * MIB, true));
    assert_eq!(made.source_volume_id, volume.id);
    assert!(made.creation_time.unwrap().seconds > 1_700_000_000);
    assert_eq!(cut(&driver, cut_request("s", &volume.id)).await.unwrap(), made, "also again");
    assert_eq!(get(&driver, &made.snapshot_id).await.unwrap(), made);

    let refused = async |request| cut(&driver, request).await.unwrap_err().code();
    assert_eq!(refused(cut_request("s", &other.volume_id)).await, Code::AlreadyExists);
    let parameters = ready_after("5");
    let differs = CreateSnapshotRequest { parameters, ..cut_request("s", &volume.id) };
    assert_eq!(refused(differs).await, Code::AlreadyExists);
    for (name, source) in [("", volume.id.as_str()), ("t", ""), (&"n".repeat(129), &volume.id), ("a\nb", "v")]
    {
        assert_eq!(refused(cut_request(name, source)).await, Code::InvalidArgument, "{name:?} {source:?}");
    }
    for seconds in ["", "601", "-1", "1.5", "soon"] {
        let parameters = ready_after(seconds);
        let request = CreateSnapshotRequest { parameters, ..cut_request("t", &volume.id) };
        assert_eq!(refused(request).await, Code::InvalidArgument, "{seconds:?}");
    }
    for source in ["vol-00000000000000000000000000000000", "../../etc", "x"] {
        assert_eq!(refused(cut_request("t", source)).await, Code::NotFound, "{source}");
    }
    assert_eq!(folders(&bench), 1, "what was refused has left nothing");

    for id in ["", &"x".repeat(129)] {
        assert_eq!(code(delete(&driver, id).await), Code::InvalidArgument);
        assert_eq!(get(&driver, id).await.unwrap_err().code(), Code::InvalidArgument);
    }
    for id in ["../volumes", "snap-", &volume.id] {
        assert_eq!(code(delete(&driver, id).await), Code::Ok, "there is none: {id}");
        assert_eq!(get(&driver, id).await.unwrap_err().code(), Code::NotFound);
    }
    assert_eq!(volume.delete(&driver).await.map_err(|e| e.code()), Ok(()), "no snapshot holds its source");
    assert_eq!(cut(&driver, cut_request("s", &volume.id)).await.unwrap(), made, "without its source too");
    for _ in 0..2 {
        delete(&driver, &made.snapshot_id).await.unwrap();
        assert_eq!(get(&driver, &made.snapshot_id).await.unwrap_err().code(), Code::NotFound);
    }
    assert_eq!(
        refused(cut_request("s", &volume.id)).await,
        Code::NotFound,
        "it is gone, and so is its source"
    );
    assert_eq!(folders(&bench), 0);
    let locks = fs::read_dir(bench.state().join("locks")).unwrap();
    assert!(locks.flatten().all(|lock| !lock.file_name().to_string_lossy().starts_with("snap-")));
    assert!(bench.calls().contains(&format!("\"snapshot\":\"{}\"", made.snapshot_id)));
}

#[tokio::test]
async fn snapshots_are_listed_page_by_page() {
    let bench = Bench::new();
    let driver = bench.start("node-1", &[], false).await;
    let volume = Volume::create(&bench, &driver, "node-1", block(Mode::SingleNodeWriter)).await;
    let other = create_request("another", &volume.capability, 8 * MIB);
    let other = driver.controller().create_volume(other).await.unwrap().into_inner().volume.unwrap();
    let mut all = Vec::new();
    for (name, source) in [("a", &volume.id), ("b", &volume.id), ("c", &other.volume_id)] {
        all.push(cut(&driver, cut_request(name, source)).await.unwrap().snapshot_id);
    }
    let of_other = all[2].clone();
    all.sort();
    let whole = list(&driver, ListSnapshotsRequest::default()).await.unwrap();
    assert_eq!((ids(&whole), whole.next_token), (all.clone(), String::new()));
    let of = |source: &str, one: &str| ListSnapshotsRequest {
        source_volume_id: source.to_owned(),
        snapshot_id: one.to_owned(),
        ..ListSnapshotsRequest::default()
    };
    assert_eq!(ids(&list(&driver, of(&other.volume_id, "")).await.unwrap()), [of_other.as_str()]);
    assert_eq!(ids(&list(&driver, of("", &all[0])).await.unwrap()), [all[0].clone()]);
    assert_eq!(ids(&list(&driver, of(&other.volume_id, &of_other)).await.unwrap()), [of_other.as_str()]);
    for (source, one) in [("nobody's", ""), ("", "../volumes"), (&volume.id, &of_other)] {
        assert!(list(&driver, of(source, one)).await.unwrap().entries.is_empty(), "{source} {one}");
    }
    let page = |token: &str, max_entries| ListSnapshotsRequest {
        starting_token: token.to_owned(),
        max_entries,
        ..ListSnapshotsRequest::default()
    };
    let first = list(&driver, page("", 2)).await.unwrap();
    assert_eq!(ids(&first), all[..2]);
    delete(&driver, &all[1]).await.unwrap();
    let second = list(&driver, page(&first.next_token, 2)).await.unwrap();
    assert_eq!((ids(&second), second.next_token.as_str()), (all[2..].to_vec(), ""));
    assert_eq!(list(&driver, page("", -1)).await.unwrap_err().code(), Code::InvalidArgument);
    for token in ["3", "../../etc", &volume.id] {
        assert_eq!(list(&driver, page(token, 0)).await.unwrap_err().code(), Code::Aborted, "{token}");
    }
}

#[tokio::test]
async fn a_restored_volume_has_the_files_of_its_snapshot() {
    for fs_type in ["ext4", "xfs"] {
        let bench = Bench::new();
        let driver = bench.start("node-1", &[], false).await;
        let capability = mount(Mode::SingleNodeWriter, fs_type);
        let mut volume = Volume::create(&bench, &driver, "node-1", capability).await;
        volume.bring_up(&driver).await;
        let file = volume.target("a").join("file");
        fs::write(&file, "before").unwrap();
        let before = size_at(&volume.target("a"));
        // What nobody has synced is in it as well: the volume stays in use.
        let snapshot = cut(&driver, cut_request("s", &volume.id)).await.unwrap();
        fs::write(&file, "after").unwrap();
        volume.take_down(&driver).await;
        volume.delete(&driver).await.unwrap();

        let small = restore(&driver, &snapshot.snapshot_id, &volume, 319 * MIB).await;
        assert_eq!(small.map(|_| ()).unwrap_err().code(), Code::OutOfRange);
        let mut restored = restore(&driver, &snapshot.snapshot_id, &volume, 640 * MIB).await.unwrap();
        let again = restore(&driver, &snapshot.snapshot_id, &volume, 640 * MIB).await.unwrap();
        assert_eq!(again.id, restored.id, "also again");
        let plain = create_request("restored", &volume.capability, 640 * MIB);
        let error = driver.controller().create_volume(plain).await.unwrap_err();
        assert_eq!(error.code(), Code::AlreadyExists, "without a source it is another volume");
        delete(&driver, &snapshot.snapshot_id).await.unwrap();
        restored.bring_up(&driver).await;
        assert!(size_at(&restored.target("a")) > before + 250 * MIB, "a larger volume has the room");
        assert_eq!(fs::read_to_string(restored.target("a").join("file")).unwrap(), "before");
        fs::write(restored.target("a").join("file"), "goes on").unwrap();
        restored.take_down(&driver).await;
        restored.delete(&driver).await.unwrap();
        let late = restore(&driver, &snapshot.snapshot_id, &volume, 640 * MIB).await;
        assert_eq!(late.map(|_| ()).unwrap_err().code(), Code::NotFound, "the snapshot is gone");
        bench.assert_clean();
    }
}

#[tokio::test]
async fn a_raw_device_is_restored_to_the_byte_when_its_snapshot_is_ready() {
    let bench = Bench::new();
    let driver = bench.start("node-1", &[], false).await;
    let mut volume = Volume::create(&bench, &driver, "node-1", block(Mode::SingleNodeWriter)).await;
    volume.bring_up(&driver).await;
    let device = |one: &Volume| File::options().read(true).write(true).open(one.target("a")).unwrap();
    let write = |byte| {
        let device = device(&volume);
        device.write_all_at(&[byte; 4096], 300 << 20).unwrap();
        device.sync_all().unwrap();
    };
    write(7);
    let parameters = ready_after("3");
    let request = CreateSnapshotRequest { parameters, ..cut_request("s", &volume.id) };
    let snapshot = cut(&driver, request.clone()).await.unwrap();
    assert!(!snapshot.ready_to_use);
    write(9);
    let early = restore(&driver, &snapshot.snapshot_id, &volume, 320 * MIB).await;
    assert_eq!(early.map(|_| ()).unwrap_err().code(), Code::FailedPrecondition);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let ready = cut(&driver, request).await.unwrap();
    assert_eq!(ready, Snapshot { ready_to_use: true, ..snapshot.clone() });
    assert_eq!(get(&driver, &snapshot.snapshot_id).await.unwrap(), ready);
    let mut restored = restore(&driver, &snapshot.snapshot_id, &volume, 320 * MIB).await.unwrap();
    restored.dir = bench.node_dir("restored");
    restored.bring_up(&driver).await;
    let mut found = [0; 4096];
    device(&restored).read_exact_at(&mut found, 300 << 20).unwrap();
    assert_eq!(found, [7; 4096]);
    for one in [&restored, &volume] {
        one.take_down(&driver).await;
        one.delete(&driver).await.unwrap();
    }
    delete(&driver, &snapshot.snapshot_id).await.unwrap();
    bench.assert_clean();
}

#[tokio::test]
async fn a_snapshot_takes_room() {
    let bench = Bench::new();
    let limit = (800 * MIB).to_string();
    let driver = bench.start("node-1", &["--capacity-bytes", &limit], false).await;
    let capacity = async || {
        let answer = driver.controller().get_capacity(GetCapacityRequest::default()).await.unwrap();
        answer.into_inner().available_capacity
    };
    let volume = Volume::create(&bench, &driver, "node-1", block(Mode::SingleNodeWriter)).await;
    let snapshot = cut(&driver, cut_request("s", &volume.id)).await.unwrap();
    assert_eq!(capacity().await, 160 * MIB);
    let error = cut(&driver, cut_request("t", &volume.id)).await.unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted, "{}", error.message());
    delete(&driver, &snapshot.snapshot_id).await.unwrap();
    assert_eq!(capacity().await, 480 * MIB);
    assert_eq!(folders(&bench), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_snapshot_is_made_of_is_left_alone_meanwhile() {
    let bench = Bench::new();
    let driver = bench.start("node-1", &[], false).await;
    let volume = Volume::create(&bench, &driver, "node-1", block(Mode::SingleNodeWriter)).await;
    let fault = bench.fault("any", "CreateSnapshot", &json!({"when": "copied", "do": "hang", "times": 1}));
    let (made, ()) = tokio::join!(cut(&driver, cut_request("s", &volume.id)), async {
        taken(&fault).await;
        assert_eq!(code(volume.delete(&driver).await), Code::Aborted);
        let again = cut(&driver, cut_request("s", &volume.id)).await;
        assert_eq!(again.unwrap_err().code(), Code::Aborted);
        assert!(list(&driver, ListSnapshotsRequest::default()).await.unwrap().entries.is_empty());
        fs::remove_file(&fault).unwrap();
    });
    delete(&driver, &made.unwrap().snapshot_id).await.unwrap();
    assert_eq!(folders(&bench), 0);
}

/// Kills the driver when `call` has come to a step, and starts the next one.
pub async fn kill_at<T>(
    bench: &Bench,
    driver: Driver,
    rpc: &str,
    step: &str,
    call: impl Future<Output = T>,
) -> Driver {
    let fault = bench.fault("any", rpc, &json!({"when": step, "do": "hang", "times": 1}));
    tokio::join!(call, async {
        taken(&fault).await;
        let pid = rustix::process::Pid::from_raw(i32::try_from(driver.pid()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    });
    fs::remove_file(&fault).unwrap();
    driver.kill();
    bench.start("node-1", &[], false).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_leaves_no_half_snapshot() {
    let bench = Bench::new();
    let mut driver = bench.start("node-1", &[], false).await;
    let volume = Volume::create(&bench, &driver, "node-1", block(Mode::SingleNodeWriter)).await;
    let data = |folder: &str, id: &str| bench.state().join(folder).join(id).join("data");
    let write = |text: &str| {
        let file = File::options().write(true).open(data("volumes", &volume.id)).unwrap();
        file.write_all_at(text.as_bytes(), 0).unwrap();
    };
    let request = || cut_request("s", &volume.id);

    write("first");
    let controller = driver.controller();
    let call = async { controller.clone().create_snapshot(request()).await.unwrap_err() };
    driver = kill_at(&bench, driver, "CreateSnapshot", "copied", call).await;
    assert_eq!(folders(&bench), 1, "a half one is there");
    assert!(list(&driver, ListSnapshotsRequest::default()).await.unwrap().entries.is_empty());
    write("later");
    let made = cut(&driver, request()).await.unwrap();
    assert!(fs::read(data("snapshots", &made.snapshot_id)).unwrap().starts_with(b"later"));

    let controller = driver.controller();
    let doomed = DeleteSnapshotRequest { snapshot_id: made.snapshot_id.clone(), ..Default::default() };
    let call = async { controller.clone().delete_snapshot(doomed).await.unwrap_err() };
    driver = kill_at(&bench, driver, "DeleteSnapshot", "forgotten", call).await;
    assert_eq!(get(&driver, &made.snapshot_id).await.unwrap_err().code(), Code::NotFound);
    delete(&driver, &made.snapshot_id).await.unwrap();
    assert_eq!(folders(&bench), 0);

    let controller = driver.controller();
    let call = async { controller.clone().create_snapshot(request()).await.unwrap_err() };
    driver = kill_at(&bench, driver, "CreateSnapshot", "after", call).await;
    let found = cut(&driver, request()).await.unwrap();
    assert_eq!(
        ids(&list(&driver, ListSnapshotsRequest::default()).await.unwrap()),
        [found.snapshot_id.as_str()]
    );
    delete(&driver, &found.snapshot_id).await.unwrap();

    let controller = driver.controller();
    let call = async { controller.clone().create_snapshot(request()).await.unwrap_err() };
    driver = kill_at(&bench, driver, "CreateSnapshot", "copied", call).await;
    volume.delete(&driver).await.unwrap();
    assert_eq!(cut(&driver, request()).await.unwrap_err().code(), Code::NotFound, "its source is gone");
    assert_eq!(folders(&bench), 0, "and so is what was begun");
}

#[tokio::test]
async fn a_restore_that_was_cut_short_is_made_again() {
    let bench = Bench::new();
    let driver = bench.start("node-1", &[], false).await;
    let volume = Volume::create(&bench, &driver, "node-1", block(Mode::SingleNodeWriter)).await;
    let snapshot = cut(&driver, cut_request("s", &volume.id)).await.unwrap();
    let fail = json!({"when": "copied", "do": "fail", "code": "Unavailable", "times": 1});
    for rpc in ["CreateVolume", "CreateSnapshot"] {
        bench.fault("any", rpc, &fail);
    }
    let error = restore(&driver, &snapshot.snapshot_id, &volume, 0).await.map(|_| ()).unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    let restored = restore(&driver, &snapshot.snapshot_id, &volume, 0).await.unwrap();
    assert_eq!(cut(&driver, cut_request("t", &restored.id)).await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(folders(&bench), 1, "what failed has left nothing");
    let second = cut(&driver, cut_request("t", &restored.id)).await.unwrap();
    assert_eq!(second.size_bytes, 1024 * MIB, "what has no size is as large as any volume");
    for one in [&volume, &restored] {
        one.delete(&driver).await.unwrap();
    }
}
