//! A driver that is killed, or told to end, in the middle of a call.

use std::fs;
use std::path::Path;
use std::time::Duration;

use moor::csi::proto::csi::v1::volume_capability::access_mode::Mode;
use serde_json::{Value, json};
use tonic::Code;

use crate::bench::{Bench, Driver, taken};
use crate::volume::{Answer, Volume, block, code, create_request, mount};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Create,
    Attach,
    Stage,
    Publish,
    PublishReadOnly,
    Unpublish,
    Unstage,
    Detach,
    Delete,
}

impl Step {
    fn rpc(self) -> &'static str {
        match self {
            Self::Create => "CreateVolume",
            Self::Attach => "ControllerPublishVolume",
            Self::Stage => "NodeStageVolume",
            Self::Publish | Self::PublishReadOnly => "NodePublishVolume",
            Self::Unpublish => "NodeUnpublishVolume",
            Self::Unstage => "NodeUnstageVolume",
            Self::Detach => "ControllerUnpublishVolume",
            Self::Delete => "DeleteVolume",
        }
    }

    async fn run(self, volume: &mut Volume, driver: &Driver) -> Answer {
        match self {
            Self::Create => {
                let request = create_request("a volume", &volume.capability, 320 << 20);
                driver.controller().create_volume(request).await.map(|made| {
                    // An interrupted create may have begun another incarnation.
                    volume.context = made.into_inner().volume.unwrap().volume_context;
                })
            }
            Self::Attach => volume.attach(driver).await,
            Self::Stage => volume.stage(driver).await,
            Self::Publish => volume.publish(driver, "a", false).await,
            Self::PublishReadOnly => volume.publish(driver, "b", true).await,
            Self::Unpublish => {
                volume.unpublish(driver, "b").await?;
                volume.unpublish(driver, "a").await
            }
            Self::Unstage => volume.unstage(driver).await,
            Self::Detach => volume.detach(driver).await,
            Self::Delete => volume.delete(driver).await,
        }
    }
}

/// Where each call can be cut short.
const CUTS: [(Step, &[&str]); 9] = [
    (Step::Create, &["data", "after"]),
    (Step::Attach, &["after"]),
    (Step::Stage, &["blank", "formatted", "attached", "mounted", "after"]),
    (Step::Publish, &["bound", "after"]),
    (Step::PublishReadOnly, &["bound", "after"]),
    (Step::Unpublish, &["unmounted", "after"]),
    (Step::Unstage, &["unmounted", "detached", "after"]),
    (Step::Detach, &["fenced", "after"]),
    (Step::Delete, &["forgotten", "after"]),
];

/// Kills the driver at every step of every call, each time with the same call repeated by its successor.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_call_completes_what_a_kill_has_cut_short() {
    for capability in [mount(Mode::SingleNodeMultiWriter, "ext4"), block(Mode::SingleNodeMultiWriter)] {
        let bench = Bench::new();
        let mut driver = bench.shared("node-1", &[]).await;
        let mut volume = Volume::create(&bench, &driver, "node-1", capability.clone()).await;
        volume.delete(&driver).await.unwrap();
        let is_mount = capability == mount(Mode::SingleNodeMultiWriter, "ext4");
        for (step, cuts) in CUTS {
            for cut in cuts {
                let only_mounts = (step == Step::Stage && !["attached", "after"].contains(cut))
                    || (step == Step::Unstage && *cut == "unmounted");
                if only_mounts && !is_mount {
                    continue;
                }
                let fault =
                    bench.fault("node-1", step.rpc(), &json!({"when": cut, "do": "hang", "times": 1}));
                let mut interrupted = volume.clone();
                tokio::join!(
                    async {
                        let answer = step.run(&mut interrupted, &driver).await;
                        assert_ne!(code(answer), Code::Ok, "{step:?} {cut}");
                    },
                    async {
                        taken(&fault).await;
                        let pid =
                            rustix::process::Pid::from_raw(i32::try_from(driver.pid()).unwrap()).unwrap();
                        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
                    }
                );
                fs::remove_file(&fault).unwrap();
                // Its connections may close before its socket does, which would still take the next one.
                driver.kill();
                driver = bench.shared("node-1", &[]).await;
            }
            let answer = step.run(&mut volume, &driver).await;
            assert_eq!(code(answer.clone()), Code::Ok, "{step:?}: {answer:?}");
            if step == Step::PublishReadOnly {
                check_content(&volume, is_mount);
            }
        }
        bench.assert_clean();
        assert_eq!(fs::read_dir(bench.state().join("volumes")).unwrap().count(), 0);
    }
}

fn check_content(volume: &Volume, is_mount: bool) {
    let (writable, readonly) = (volume.target("a"), volume.target("b"));
    if is_mount {
        fs::write(writable.join("file"), "x").unwrap();
        assert!(fs::write(readonly.join("file"), "y").is_err());
    } else {
        let open = |path: &Path| fs::File::options().write(true).open(path);
        let write = |path: &Path| {
            use std::io::Write as _;
            open(path).and_then(|mut file| file.write_all(&[1; 4096]).and_then(|()| file.sync_all()))
        };
        write(&writable).unwrap();
        assert!(write(&readonly).is_err());
    }
}

#[tokio::test]
async fn a_read_only_target_is_never_writable_not_even_half_way() {
    let bench = Bench::new();
    let driver = bench.shared("node-1", &[]).await;
    let mut volume = Volume::create(&bench, &driver, "node-1", mount(Mode::SingleNodeWriter, "")).await;
    volume.attach(&driver).await.unwrap();
    volume.stage(&driver).await.unwrap();
    bench.fault(
        "node-1",
        "NodePublishVolume",
        &json!({"when": "bound", "do": "fail", "code": "ABORTED", "times": 1}),
    );
    assert_eq!(code(volume.publish(&driver, "a", true).await), Code::Aborted);
    assert!(fs::write(volume.target("a").join("file"), "half way").is_err());
    volume.publish(&driver, "a", true).await.unwrap();
    assert!(fs::write(volume.target("a").join("file"), "x").is_err());
    volume.take_down(&driver).await;
    bench.assert_clean();
}

#[tokio::test]
async fn an_interrupted_mkfs_is_started_over() {
    let bench = Bench::new();
    let driver = bench.shared("node-1", &[]).await;
    let mut volume = Volume::create(&bench, &driver, "node-1", mount(Mode::SingleNodeWriter, "")).await;
    let dir = bench.state().join("volumes").join(&volume.id);
    let half = fs::File::options().write(true).open(dir.join("data")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&half, &[7; 4096], 1 << 20).unwrap();
    fs::write(dir.join("formatting"), "").unwrap();
    volume.bring_up(&driver).await;
    assert!(!dir.join("formatting").exists());
    volume.take_down(&driver).await;
    bench.assert_clean();
}

#[tokio::test]
async fn a_restarted_driver_adopts_its_device() {
    let bench = Bench::new();
    let driver = bench.shared("node-1", &[]).await;
    let mut volume = Volume::create(&bench, &driver, "node-1", mount(Mode::SingleNodeWriter, "")).await;
    volume.bring_up(&driver).await;
    let devices = bench.devices();
    driver.kill();
    let driver = bench.shared("node-1", &[]).await;
    volume.bring_up(&driver).await;
    assert_eq!(bench.devices(), devices);
    volume.take_down(&driver).await;
    bench.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_ends_it_after_the_calls_in_flight() {
    let bench = Bench::new();
    let mut driver = bench.shared("node-1", &[]).await;
    let capability = mount(Mode::SingleNodeWriter, "");
    let hang = json!({"when": "data", "do": "hang", "times": 1});
    let fault = bench.fault("any", "CreateVolume", &hang);
    let mut controller = driver.controller();
    let call = tokio::spawn(async move {
        controller.create_volume(create_request("a volume", &capability, 1 << 20)).await
    });
    taken(&fault).await;
    assert_eq!(driver.terminate().await, Some(0));
    let answer = tokio::time::timeout(Duration::from_secs(5), call).await.unwrap().unwrap();
    assert_eq!(answer.unwrap_err().code(), Code::Unavailable, "an asked-for hang is let go with an answer");
    assert!(!driver.socket().exists());
}

#[tokio::test]
async fn the_record_tells_the_calls_and_no_secrets() {
    let bench = Bench::new();
    let driver = bench.shared("node-1", &[]).await;
    let mut volume = Volume::create(&bench, &driver, "node-1", mount(Mode::SingleNodeWriter, "")).await;
    volume.bring_up(&driver).await;
    assert_eq!(code(volume.unstage(&driver).await), Code::FailedPrecondition);
    volume.take_down(&driver).await;
    let text = bench.calls();
    let token = volume.publish_context.values().next().unwrap();
    assert!(!text.contains("hunter2") && !text.contains(token.as_str()), "{text}");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ended: Vec<(&str, &str)> = lines
        .iter()
        .filter(|line| line["phase"] == "end")
        .map(|line| (line["rpc"].as_str().unwrap(), line["code"].as_str().unwrap()))
        .collect();
    assert_eq!(
        ended,
        [
            ("CreateVolume", "Ok"),
            ("ControllerPublishVolume", "Ok"),
            ("NodeStageVolume", "Ok"),
            ("NodePublishVolume", "Ok"),
            ("NodeUnstageVolume", "FailedPrecondition"),
            ("NodeUnpublishVolume", "Ok"),
            ("NodeUnstageVolume", "Ok"),
            ("ControllerUnpublishVolume", "Ok"),
        ]
    );
    assert!(lines.windows(2).all(|pair| pair[0]["seq"].as_u64() < pair[1]["seq"].as_u64()));
}
