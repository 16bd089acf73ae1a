//! Volumes used as they should be: file systems, raw devices, read-only.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use moor::agent::{HostPath, is_writable_device};
use moor::csi::proto::csi::v1::ListVolumesRequest;
use moor::csi::proto::csi::v1::volume_capability::access_mode::Mode;
use tonic::Code;

use crate::bench::Bench;
use crate::volume::{MIB, Volume, block, code, create_request, mount};

fn write_at(path: &Path, at: u64, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = File::options().write(true).open(path)?;
    file.seek(SeekFrom::Start(at))?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn read_at(path: &Path, at: u64, length: usize) -> Vec<u8> {
    let mut file = File::open(path).unwrap();
    file.seek(SeekFrom::Start(at)).unwrap();
    let mut bytes = vec![0; length];
    file.read_exact(&mut bytes).unwrap();
    bytes
}

#[tokio::test]
async fn a_file_system_keeps_its_files_over_detach() {
    for fs_type in ["", "ext4", "xfs"] {
        let bench = Bench::new();
        let driver = bench.start("node-1", &[], false).await;
        let capability = mount(Mode::SingleNodeWriter, fs_type);
        let mut volume = Volume::create(&bench, &driver, "node-1", capability).await;
        volume.bring_up(&driver).await;
        fs::write(volume.target("a").join("file"), "kept").unwrap();

        volume.take_down(&driver).await;
        bench.assert_clean();
        volume.bring_up(&driver).await;
        assert_eq!(fs::read_to_string(volume.target("a").join("file")).unwrap(), "kept");
        volume.take_down(&driver).await;
        volume.delete(&driver).await.unwrap();
        bench.assert_clean();
        assert_eq!(fs::read_dir(bench.state().join("volumes")).unwrap().count(), 0);
    }
}

#[tokio::test]
async fn a_read_only_target_refuses_writes_beside_one_that_takes_them() {
    let bench = Bench::new();
    let driver = bench.start("node-1", &[], false).await;
    let mut volume =
        Volume::create(&bench, &driver, "node-1", mount(Mode::SingleNodeMultiWriter, "ext4")).await;
    volume.bring_up(&driver).await;
    volume.publish(&driver, "b", true).await.unwrap();

    fs::write(volume.target("a").join("file"), "seen").unwrap();
    assert_eq!(fs::read_to_string(volume.target("b").join("file")).unwrap(), "seen");
    let error = fs::write(volume.target("b").join("file"), "refused").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);

    assert_eq!(code(volume.unstage(&driver).await), Code::FailedPrecondition);
    volume.unpublish(&driver, "a").await.unwrap();
    assert_eq!(code(volume.unstage(&driver).await), Code::FailedPrecondition, "b is left");
    volume.unpublish(&driver, "b").await.unwrap();
    volume.unstage(&driver).await.unwrap();
    volume.detach(&driver).await.unwrap();
    bench.assert_clean();
}

#[tokio::test]
async fn a_volume_attached_read_only_cannot_be_written_in_any_way() {
    let bench = Bench::new();
    let driver = bench.start("node-1", &[], false).await;
    for fs_type in ["ext4", "xfs"] {
        let mut volume =
            Volume::create(&bench, &driver, "node-1", mount(Mode::SingleNodeWriter, fs_type)).await;
        volume.bring_up(&driver).await;
        fs::write(volume.target("a").join("file"), "kept").unwrap();
        volume.take_down(&driver).await;

        volume.readonly = true;
        volume.bring_up(&driver).await;
        assert_eq!(fs::read_to_string(volume.target("a").join("file")).unwrap(), "kept");
        assert!(fs::write(volume.target("a").join("file"), "x").is_err());
        let device = bench.devices().into_keys().next().unwrap();
        assert!(write_at(Path::new(&device), 0, b"x").is_err(), "not even past the file system");
        volume.take_down(&driver).await;
        volume.delete(&driver).await.unwrap();
    }
    bench.assert_clean();
}

#[tokio::test]
async fn a_raw_device_is_written_and_a_read_only_one_beside_it_is_not() {
    let bench = Bench::new();
    let driver = bench.start("node-1", &[], false).await;
    let mut volume = Volume::create(&bench, &driver, "node-1", block(Mode::SingleNodeMultiWriter)).await;
    volume.bring_up(&driver).await;
    let writer = volume.target("a");
    assert!(fs::metadata(&writer).unwrap().file_type().is_block_device());
    write_at(&writer, 4096, b"raw bytes").unwrap();
    assert_eq!(read_at(&writer, 4096, 9), b"raw bytes");

    volume.publish(&driver, "b", true).await.unwrap();
    let reader = volume.target("b");
    assert_eq!(read_at(&reader, 4096, 9), b"raw bytes");
    assert!(write_at(&reader, 4096, b"x").is_err(), "the device itself refuses");
    assert_eq!(bench.devices().len(), 2);
    // So an agent tells them apart.
    for (path, writable) in [(&writer, true), (&reader, false), (&writer.with_extension("none"), false)] {
        let path = HostPath::recorded(path.to_str().unwrap());
        assert_eq!(is_writable_device(&path).await.unwrap_or_default(), writable, "{path}");
    }
    write_at(&writer, 1 << 20, b"still written").unwrap();
    assert_eq!(code(volume.publish(&driver, "b", false).await), Code::AlreadyExists);

    volume.unpublish(&driver, "b").await.unwrap();
    assert_eq!(bench.devices().len(), 1, "the reader's device goes with its last target");
    volume.take_down(&driver).await;
    bench.assert_clean();
    volume.bring_up(&driver).await;
    assert_eq!(read_at(&writer, 1 << 20, 13), b"still written");
    volume.take_down(&driver).await;
    bench.assert_clean();
}

#[tokio::test]
async fn what_is_on_a_volume_is_never_formatted_over() {
    let bench = Bench::new();
    let driver = bench.start("node-1", &[], false).await;
    let mut volume = Volume::create(&bench, &driver, "node-1", block(Mode::SingleNodeWriter)).await;
    volume.bring_up(&driver).await;
    write_at(&volume.target("a"), 200 << 20, b"precious").unwrap();
    volume.take_down(&driver).await;

    volume.capability = mount(Mode::SingleNodeWriter, "ext4");
    volume.attach(&driver).await.unwrap();
    assert_eq!(code(volume.stage(&driver).await), Code::FailedPrecondition);
    volume.unstage(&driver).await.unwrap();
    volume.detach(&driver).await.unwrap();

    volume.capability = block(Mode::SingleNodeWriter);
    volume.bring_up(&driver).await;
    assert_eq!(read_at(&volume.target("a"), 200 << 20, 8), b"precious");
    volume.take_down(&driver).await;
    bench.assert_clean();
}

#[tokio::test]
async fn another_file_system_than_the_one_asked_for_is_left_alone() {
    let bench = Bench::new();
    let driver = bench.start("node-1", &[], false).await;
    let mut volume = Volume::create(&bench, &driver, "node-1", mount(Mode::SingleNodeWriter, "xfs")).await;
    volume.bring_up(&driver).await;
    volume.take_down(&driver).await;
    volume.capability = mount(Mode::SingleNodeWriter, "ext4");
    volume.attach(&driver).await.unwrap();
    assert_eq!(code(volume.stage(&driver).await), Code::FailedPrecondition);
    volume.unstage(&driver).await.unwrap();
    volume.detach(&driver).await.unwrap();
    // Asking for none takes what is there.
    volume.capability = mount(Mode::SingleNodeWriter, "");
    volume.bring_up(&driver).await;
    volume.take_down(&driver).await;
    bench.assert_clean();
}

#[tokio::test]
async fn a_busy_volume_is_not_taken_from_its_user() {
    let bench = Bench::new();
    let driver = bench.start("node-1", &[], false).await;
    let mut volume = Volume::create(&bench, &driver, "node-1", mount(Mode::SingleNodeWriter, "")).await;
    volume.bring_up(&driver).await;
    let open = File::create(volume.target("a").join("open")).unwrap();
    let refused = volume.unpublish(&driver, "a").await.unwrap_err();
    assert_eq!(refused.code(), Code::Internal);
    assert!(refused.message().contains("still in use"), "{}", refused.message());
    drop(open);
    volume.take_down(&driver).await;

    volume.capability = block(Mode::SingleNodeWriter);
    volume.attach(&driver).await.unwrap();
    volume.stage(&driver).await.unwrap();
    let device = bench.devices().into_keys().next().unwrap();
    let open = File::open(device).unwrap();
    assert_eq!(code(volume.unstage(&driver).await), Code::Internal);
    assert_eq!(code(volume.stage(&driver).await), Code::Internal, "a device that is going is not used again");
    drop(open);
    volume.unstage(&driver).await.unwrap();
    volume.detach(&driver).await.unwrap();
    bench.assert_clean();
}

#[tokio::test]
async fn volumes_are_listed_in_pages_with_their_nodes() {
    let bench = Bench::new();
    let driver = bench.shared("node-1", &[]).await;
    let capability = mount(Mode::SingleNodeWriter, "");
    for name in ["one", "two", "three"] {
        driver.controller().create_volume(create_request(name, &capability, MIB)).await.unwrap();
    }
    let mut volume = Volume::create(&bench, &driver, "node-1", capability).await;
    volume.attach(&driver).await.unwrap();
    let (mut seen, mut starting_token) = (Vec::new(), String::new());
    loop {
        let request = ListVolumesRequest { max_entries: 3, starting_token };
        let page = driver.controller().list_volumes(request).await.unwrap().into_inner();
        seen.extend(page.entries);
        starting_token = page.next_token;
        if starting_token.is_empty() {
            break;
        }
    }
    assert_eq!(seen.len(), 4);
    for entry in seen {
        let nodes = entry.status.unwrap().published_node_ids;
        let expected: &[&str] = if entry.volume.unwrap().volume_id == volume.id { &["node-1"] } else { &[] };
        assert_eq!(nodes, expected);
    }
    let request = ListVolumesRequest { starting_token: "elsewhere".into(), ..ListVolumesRequest::default() };
    assert_eq!(driver.controller().list_volumes(request).await.unwrap_err().code(), Code::Aborted);
}
