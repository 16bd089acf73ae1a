//! ControllerUnpublishVolume for a node that is lost.

use std::fs;

use moor::csi::proto::csi::v1::volume_capability::access_mode::Mode;
use serde_json::json;
use tonic::Code;

use crate::bench::{Bench, Survivor, eventually};
use crate::volume::{Volume, block, code, mount};

/// A crashed node leaves its device behind, as a disk would stay attached; the fence takes it away.
#[tokio::test]
async fn a_dead_nodes_device_goes() {
    let bench = Bench::new();
    let one = bench.shared_apart("node-1").await;
    let two = bench.shared("node-2", &[]).await;
    let mut lost = Volume::create(&bench, &two, "node-1", mount(Mode::SingleNodeWriter, "ext4")).await;
    lost.bring_up(&one).await;
    let survivor = Survivor::beside(&one);
    let wrote = survivor.shell(&format!("echo kept > {0}/a/file && sync -f {0}/a/file", lost.dir.display()));
    assert!(wrote.status.success(), "{wrote:?}");
    one.kill();
    drop(survivor);
    assert_eq!(bench.devices().len(), 1, "the crash leaves it behind");

    let mut volume = lost.on(&bench, "node-2");
    assert_eq!(code(volume.attach(&two).await), Code::FailedPrecondition);
    lost.detach(&two).await.unwrap();
    assert_eq!(bench.devices().len(), 0, "fenced");
    volume.bring_up(&two).await;
    assert_eq!(fs::read_to_string(volume.target("a").join("file")).unwrap(), "kept\n");
    volume.take_down(&two).await;
    bench.assert_clean();
}

/// The node is cut off and yet alive: it must not write to what its successor has.
#[tokio::test]
async fn a_living_node_is_cut_off() {
    let bench = Bench::new();
    let one = bench.shared_apart("node-1").await;
    let two = bench.shared("node-2", &[]).await;
    let mut lost = Volume::create(&bench, &two, "node-1", mount(Mode::SingleNodeWriter, "ext4")).await;
    lost.bring_up(&one).await;
    let path = lost.dir.join("a").display().to_string();
    let survivor = Survivor::beside(&one);
    assert!(survivor.shell(&format!("echo kept > {path}/file && sync -f {path}/file")).status.success());

    lost.detach(&two).await.unwrap();
    let mut volume = lost.on(&bench, "node-2");
    volume.bring_up(&two).await;
    let file = volume.target("a").join("file");
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept\n");
    fs::write(&file, "the successor's").unwrap();
    survivor.shell(&format!("echo late > {path}/file; sync -f {path}/file; echo late > {path}/late; sync"));
    volume.take_down(&two).await;
    volume.bring_up(&two).await;
    assert_eq!(fs::read_to_string(&file).unwrap(), "the successor's");
    assert!(!volume.target("a").join("late").exists());

    // Back again, the node cannot go on, and cleans up in order.
    assert_eq!(code(lost.publish(&one, "a", false).await), Code::FailedPrecondition);
    assert_eq!(code(lost.stage(&one).await), Code::FailedPrecondition);
    lost.unpublish(&one, "a").await.unwrap();
    lost.unstage(&one).await.unwrap();
    assert_eq!(bench.devices().len(), 1, "only the successor's");
    volume.take_down(&two).await;

    lost.bring_up(&one).await;
    let read = survivor.shell(&format!("cat {path}/file"));
    assert_eq!(String::from_utf8(read.stdout).unwrap(), "the successor's");
    lost.take_down(&one).await;
    drop(survivor);
    bench.assert_clean();
}

/// A fence that is cut short is completed by the same call.
#[tokio::test]
async fn a_fence_may_be_repeated() {
    for cut in ["frozen", "copied", "fenced"] {
        let bench = Bench::new();
        let one = bench.shared_apart("node-1").await;
        let two = bench.shared("node-2", &[]).await;
        let mut lost = Volume::create(&bench, &two, "node-1", block(Mode::SingleNodeWriter)).await;
        lost.bring_up(&one).await;
        let survivor = Survivor::beside(&one);
        let target = lost.target("a").display().to_string();
        // Opened before the fence and kept open, as a workload has it.
        let script = format!("printf kept > {target}; sync; exec 3<>{target}; exec sleep 600 <&3");
        let workload = Survivor::running(&one, &script);
        eventually("the workload has it open", || {
            fs::read_link(format!("/proc/{}/fd/3", workload.pid())).is_ok_and(|path| path == lost.target("a"))
        })
        .await;
        one.kill();

        let fault = json!({"when": cut, "do": "fail", "code": "UNAVAILABLE", "times": 1});
        bench.fault("node-2", "ControllerUnpublishVolume", &fault);
        assert_eq!(code(lost.detach(&two).await), Code::Unavailable, "{cut}");
        let mut volume = lost.on(&bench, "node-2");
        assert_eq!(code(volume.attach(&two).await), Code::FailedPrecondition, "not yet fenced");
        lost.detach(&two).await.unwrap();
        volume.bring_up(&two).await;
        assert!(fs::File::open(volume.target("a")).is_ok_and(|mut file| {
            use std::io::Read as _;
            let mut bytes = [0; 4];
            file.read_exact(&mut bytes).is_ok() && &bytes == b"kept"
        }));
        drop(workload);
        drop(survivor);
        volume.take_down(&two).await;
        volume.delete(&two).await.unwrap();
        eventually("the ghost goes", || bench.devices().is_empty()).await;
        bench.assert_clean();
    }
}

/// The node comes back before anybody has fenced it: its device is its own again.
#[tokio::test]
async fn a_crashed_node_that_returns_takes_up_its_device() {
    let bench = Bench::new();
    let one = bench.shared_apart("node-1").await;
    let mut volume = Volume::create(&bench, &one, "node-1", mount(Mode::SingleNodeWriter, "ext4")).await;
    volume.bring_up(&one).await;
    let devices = bench.devices();
    one.kill();
    let one = bench.shared("node-1", &[]).await;
    assert_eq!(
        code(volume.detach(&one).await),
        Code::FailedPrecondition,
        "staged here, as far as it can see"
    );
    volume.stage(&one).await.unwrap();
    volume.publish(&one, "a", false).await.unwrap();
    assert_eq!(bench.devices(), devices);
    volume.take_down(&one).await;
    bench.assert_clean();
}
