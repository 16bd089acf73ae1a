//! Calls out of order, with wrong arguments or for the wrong node are refused, with CSI's codes.

use std::collections::BTreeMap;
use std::fs;

use moor::csi::proto::csi::v1::volume_capability::access_mode::Mode;
use moor::csi::proto::csi::v1::{CapacityRange, NodeGetInfoRequest, Topology, TopologyRequirement};
use tonic::Code;

use crate::bench::Bench;
use crate::volume::{Context, MIB, Volume, block, code, create_request, mount};

#[tokio::test]
async fn each_step_needs_the_one_before() {
    let bench = Bench::new();
    let driver = bench.shared("node-1", &[]).await;
    let mut volume = Volume::create(&bench, &driver, "node-1", mount(Mode::SingleNodeWriter, "")).await;

    assert_eq!(code(volume.stage(&driver).await), Code::FailedPrecondition, "not attached");
    volume.attach(&driver).await.unwrap();
    assert_eq!(code(volume.publish(&driver, "a", false).await), Code::FailedPrecondition, "not staged");
    assert_eq!(code(volume.delete(&driver).await), Code::FailedPrecondition, "attached");
    let without = Volume { publish_context: Context::new(), ..volume.clone() };
    assert_eq!(code(without.stage(&driver).await), Code::InvalidArgument, "publish_context is missing");
    volume.stage(&driver).await.unwrap();
    assert_eq!(code(volume.detach(&driver).await), Code::FailedPrecondition, "staged on this node");
    volume.publish(&driver, "a", false).await.unwrap();
    assert_eq!(code(volume.publish(&driver, "b", false).await), Code::FailedPrecondition, "one target");
    assert!(!volume.target("b").exists());
    assert_eq!(code(volume.publish(&driver, "a", true).await), Code::AlreadyExists);
    assert_eq!(code(volume.unstage(&driver).await), Code::FailedPrecondition, "published");
    assert_eq!(code(volume.detach(&driver).await), Code::FailedPrecondition);
    let other_use = Volume { capability: mount(Mode::SingleNodeMultiWriter, ""), ..volume.clone() };
    assert_eq!(code(other_use.stage(&driver).await), Code::FailedPrecondition, "attached in another mode");

    let old = volume.clone();
    volume.take_down(&driver).await;
    volume.attach(&driver).await.unwrap();
    assert_eq!(code(old.stage(&driver).await), Code::FailedPrecondition, "context of an ended attachment");
    volume.detach(&driver).await.unwrap();
    bench.assert_clean();
}

#[tokio::test]
async fn every_step_may_be_repeated() {
    let bench = Bench::new();
    let driver = bench.shared("node-1", &[]).await;
    for capability in [mount(Mode::SingleNodeWriter, "ext4"), block(Mode::SingleNodeWriter)] {
        let mut volume = Volume::create(&bench, &driver, "node-1", capability.clone()).await;
        let again = Volume::create(&bench, &driver, "node-1", capability).await;
        assert_eq!((&again.id, &again.context), (&volume.id, &volume.context));
        volume.attach(&driver).await.unwrap();
        let context = volume.publish_context.clone();
        volume.attach(&driver).await.unwrap();
        assert_eq!(volume.publish_context, context);
        for _ in 0..2 {
            volume.stage(&driver).await.unwrap();
        }
        for _ in 0..2 {
            volume.publish(&driver, "a", false).await.unwrap();
        }
        assert_eq!(bench.devices().len(), 1);
        for _ in 0..2 {
            volume.unpublish(&driver, "a").await.unwrap();
        }
        for _ in 0..2 {
            volume.unstage(&driver).await.unwrap();
        }
        for _ in 0..2 {
            volume.detach(&driver).await.unwrap();
        }
        for _ in 0..2 {
            volume.delete(&driver).await.unwrap();
        }
    }
    bench.assert_clean();
}

#[tokio::test]
async fn a_name_stands_for_one_volume() {
    let bench = Bench::new();
    let driver = bench.shared("node-1", &[]).await;
    let capability = mount(Mode::SingleNodeWriter, "");
    let first = create_request("name", &capability, 64 * MIB);
    driver.controller().create_volume(first.clone()).await.unwrap();
    let mut other = first.clone();
    other.capacity_range = Some(CapacityRange { required_bytes: 65 * MIB, limit_bytes: 0 });
    assert_eq!(driver.controller().create_volume(other).await.unwrap_err().code(), Code::AlreadyExists);
    let mut other = first.clone();
    other.parameters = BTreeMap::from([("a".into(), "b".into())]);
    assert_eq!(driver.controller().create_volume(other).await.unwrap_err().code(), Code::AlreadyExists);
    let mut small = create_request("xfs", &mount(Mode::SingleNodeWriter, "xfs"), MIB);
    small.capacity_range = Some(CapacityRange { required_bytes: MIB, limit_bytes: 2 * MIB });
    assert_eq!(driver.controller().create_volume(small).await.unwrap_err().code(), Code::OutOfRange);
    let long = create_request(&"n".repeat(129), &capability, MIB);
    assert_eq!(driver.controller().create_volume(long).await.unwrap_err().code(), Code::InvalidArgument);
    let shared = create_request("shared", &mount(Mode::MultiNodeMultiWriter, ""), MIB);
    assert_eq!(driver.controller().create_volume(shared).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_single_node_volume_is_on_one_node() {
    let bench = Bench::new();
    let one = bench.shared("node-1", &[]).await;
    let two = bench.shared("node-2", &["--max-volumes-per-node", "1"]).await;
    let mut here = Volume::create(&bench, &one, "node-1", mount(Mode::SingleNodeWriter, "")).await;
    let mut there = here.on(&bench, "node-2");
    here.bring_up(&one).await;
    fs::write(here.target("a").join("file"), "moved").unwrap();

    let refused = there.attach(&two).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("node-1"), "{}", refused.message());
    assert_eq!(code(there.stage(&two).await), Code::FailedPrecondition);
    let mut nowhere = here.on(&bench, "node-3");
    assert_eq!(code(nowhere.attach(&one).await), Code::NotFound);

    here.take_down(&one).await;
    // Any process answers for any node.
    there.attach(&one).await.unwrap();
    there.stage(&two).await.unwrap();
    there.publish(&two, "a", false).await.unwrap();
    assert_eq!(fs::read_to_string(there.target("a").join("file")).unwrap(), "moved");

    let request = create_request("second", &there.capability, MIB);
    let made = one.controller().create_volume(request).await.unwrap().into_inner().volume.unwrap();
    let mut second = Volume { id: made.volume_id, context: made.volume_context, ..there.clone() };
    assert_eq!(code(second.attach(&two).await), Code::ResourceExhausted);
    there.take_down(&two).await;
    second.attach(&two).await.unwrap();
    bench.assert_clean();
}

#[tokio::test]
async fn readers_on_several_nodes_have_devices_of_their_own() {
    let bench = Bench::new();
    let one = bench.shared("node-1", &[]).await;
    let two = bench.shared("node-2", &[]).await;
    let mut writer = Volume::create(&bench, &one, "node-1", mount(Mode::SingleNodeWriter, "")).await;
    writer.bring_up(&one).await;
    fs::write(writer.target("a").join("file"), "read").unwrap();
    writer.take_down(&one).await;

    let mut here = Volume { capability: mount(Mode::MultiNodeReaderOnly, ""), ..writer };
    let mut there = here.on(&bench, "node-2");
    here.bring_up(&one).await;
    there.bring_up(&two).await;
    assert_eq!(bench.devices().len(), 2, "two nodes never share a device");
    for volume in [&here, &there] {
        assert_eq!(fs::read_to_string(volume.target("a").join("file")).unwrap(), "read");
        assert!(fs::write(volume.target("a").join("file"), "x").is_err());
    }
    here.take_down(&one).await;
    assert_eq!(fs::read_to_string(there.target("a").join("file")).unwrap(), "read");
    there.take_down(&two).await;
    bench.assert_clean();
}

/// Devices are handed out by the kernel to whoever asks first.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_stage_at_once_get_different_devices() {
    let bench = Bench::new();
    let drivers = [bench.shared("node-1", &[]).await, bench.shared("node-2", &[]).await];
    let capability = block(Mode::SingleNodeWriter);
    let mut volumes = Vec::new();
    for at in 0..10 {
        let request = create_request(&format!("volume {at}"), &capability, MIB);
        let made = drivers[0].controller().create_volume(request).await.unwrap().into_inner().volume.unwrap();
        let node = format!("node-{}", at % 2 + 1);
        let dir = bench.node_dir(&format!("{node}/{at}"));
        let mut volume = Volume {
            id: made.volume_id,
            context: made.volume_context,
            capability: capability.clone(),
            readonly: false,
            node,
            dir,
            publish_context: Context::new(),
        };
        volume.attach(&drivers[0]).await.unwrap();
        volumes.push(volume);
    }
    let staged = volumes.iter().enumerate().map(|(at, volume)| volume.stage(&drivers[at % 2]));
    for answer in futures::future::join_all(staged).await {
        answer.unwrap();
    }
    assert_eq!(bench.devices().len(), 10);
    let unstaged = volumes.iter().enumerate().map(|(at, volume)| volume.unstage(&drivers[at % 2]));
    for answer in futures::future::join_all(unstaged).await {
        answer.unwrap();
    }
    bench.assert_clean();
}

#[tokio::test]
async fn a_node_of_its_own_has_its_own_volumes() {
    let bench = Bench::new();
    let driver = bench.start("node-1", &["--driver-name", "other.example.com"], false).await;
    let info = driver.node().node_get_info(NodeGetInfoRequest {}).await.unwrap().into_inner();
    let topology = |node: &str| Topology {
        segments: BTreeMap::from([("other.example.com/node".to_owned(), node.to_owned())]),
    };
    assert_eq!(info.accessible_topology, Some(topology("node-1")));
    let mut request = create_request("a volume", &block(Mode::SingleNodeWriter), MIB);
    request.accessibility_requirements =
        Some(TopologyRequirement { requisite: vec![topology("node-2")], preferred: Vec::new() });
    let refused = driver.controller().create_volume(request.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    request.accessibility_requirements = Some(TopologyRequirement {
        requisite: vec![topology("node-2"), topology("node-1")],
        preferred: Vec::new(),
    });
    let made = driver.controller().create_volume(request).await.unwrap().into_inner().volume.unwrap();
    assert_eq!(made.accessible_topology, [topology("node-1")]);
    let mut elsewhere = Volume {
        id: made.volume_id,
        context: made.volume_context,
        capability: block(Mode::SingleNodeWriter),
        readonly: false,
        node: "node-2".to_owned(),
        dir: bench.node_dir("node-2"),
        publish_context: Context::new(),
    };
    assert_eq!(code(elsewhere.attach(&driver).await), Code::NotFound);
}
