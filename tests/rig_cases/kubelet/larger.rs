//! Volumes that were made larger while Pods have them.

use std::sync::Arc;
use std::time::Duration;

use moor::csi::Rpc;
use moor::csi::proto::csi::v1 as wire;
use prost::Message as _;
use tonic::Code;

use super::NODE;
use crate::rig::fake::WORDS;
use crate::rig::{Can, Cluster, Entry, Fault, Kubelet, LOOK, Options, Point, Rig, Side, is_final};

const BYTES: i64 = 2 << 20;

async fn start(cluster: &Arc<Cluster>) -> (Arc<Rig>, Kubelet) {
    let options = Options { can: vec![Can::ExpandVolume], ..Options::default() };
    let rig = Rig::start(cluster, options).await;
    let kubelet = rig.kubelet(NODE).await;
    rig.make_volume_for_pods("data").await;
    (rig, kubelet)
}

async fn end(rig: &Rig, kubelet: &Kubelet) {
    kubelet.give_up("data").await;
    rig.remove_for_pods("data").await;
    rig.fake.assert_obeyed();
}

/// The requests that the driver got.
fn asked(rig: &Rig) -> Vec<wire::NodeExpandVolumeRequest> {
    let calls = rig.journal.calls_of("data").into_iter().filter_map(|entry| entry.call().cloned());
    let calls = calls.filter(|call| call.rpc == Rpc::NodeExpandVolume);
    calls.map(|call| wire::NodeExpandVolumeRequest::decode(call.arguments.as_slice()).unwrap()).collect()
}

pub(super) async fn a_volume_grows_for_the_pods_that_have_it(cluster: Arc<Cluster>) {
    let (rig, kubelet) = start(&cluster).await;
    assert!(kubelet.capabilities().await.contains(&Can::ExpandVolume));
    // Nobody has it yet: kubelet asks after it has published it.
    let status = kubelet.expand("pod-a", "data", BYTES).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    let target = kubelet.mount("pod-a", "data").await;
    kubelet.mount("pod-b", "data").await;
    assert!(asked(&rig).is_empty());

    for larger in [BYTES, BYTES, 2 * BYTES] {
        assert_eq!(kubelet.expand("pod-a", "data", larger).await.unwrap(), larger);
    }
    let sizes: Vec<_> = asked(&rig).iter().map(|r| r.capacity_range.unwrap().required_bytes).collect();
    assert_eq!(sizes, [BYTES, BYTES, 2 * BYTES], "what is as large already is the driver's to know");
    let first = asked(&rig).remove(0);
    assert_eq!(Some(first.volume_path.as_str()), target.to_str());
    assert_eq!(Some(first.staging_target_path.as_str()), kubelet.staging("data").to_str());
    assert!(first.volume_capability.is_some());

    // kubelet may name the path of a Pod that has gone by now.
    kubelet.unmount("pod-a", "data").await;
    assert_eq!(kubelet.expand("pod-a", "data", 3 * BYTES).await.unwrap(), 3 * BYTES);
    let last = asked(&rig).pop().unwrap();
    assert_eq!(Some(last.volume_path.as_str()), kubelet.target("pod-b", "data").to_str());
    kubelet.unmount("pod-b", "data").await;
    let status = kubelet.expand("pod-b", "data", BYTES).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert_eq!(asked(&rig).len(), 4);
    end(&rig, &kubelet).await;
}

/// The driver goes on when kubelet has waited for long enough, and so does its turn.
pub(super) async fn nothing_is_enlarged_beside_another_call(cluster: Arc<Cluster>) {
    let (rig, kubelet) = start(&cluster).await;
    kubelet.mount("pod-a", "data").await;
    rig.fake.hold("data", Rpc::NodeExpandVolume);
    // Its answer comes 5 s before this.
    let hasty = kubelet.within(Duration::from_secs(6));
    let status = hasty.expand("pod-a", "data", BYTES).await.unwrap_err();
    assert!(!is_final(status.code()), "{status}");
    assert_eq!(asked(&rig).len(), 1);
    let leaving = tokio::spawn({
        let kubelet = kubelet.clone();
        async move { kubelet.unmount("pod-a", "data").await }
    });
    // It waits for its turn like the Pod that leaves; a call beside one that is held would be against CSI.
    let status = hasty.expand("pod-a", "data", BYTES).await.unwrap_err();
    assert!(!is_final(status.code()), "{status}");
    rig.fake.let_go("data", Rpc::NodeExpandVolume);
    leaving.await.unwrap();
    end(&rig, &kubelet).await;
}

/// Who dies in a call of kubelet's.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Agent,
    Driver,
    Kubelet,
}

/// What the driver was at is not known, so kubelet asks again.
pub(super) async fn whoever_dies_in_the_call_it_is_made_again(cluster: Arc<Cluster>) {
    let (rig, kubelet) = start(&cluster).await;
    let target = kubelet.mount("pod-a", "data").await;
    let since = rig.journal.now();
    kubelet.expand("pod-a", "data", BYTES).await.unwrap();
    let is_it = |entry: &Entry| entry.call().is_some_and(|call| call.rpc == Rpc::NodeExpandVolume);
    let point = Point::of(rig.journal.since(since, is_it)).remove(0);
    let mut larger = BYTES;
    for victim in [Victim::Agent, Victim::Driver, Victim::Kubelet] {
        for side in [Side::Before, Side::After] {
            larger += 1 << 20;
            let hit = rig.gate.arm(point.clone(), side);
            let call = tokio::spawn({
                let (rig, kubelet, before) = (rig.clone(), kubelet.clone(), asked(&rig).len());
                async move {
                    // A driver that was started anew is not called before it has said who it is.
                    while asked(&rig).len() == before {
                        let _ = kubelet.expand("pod-a", "data", larger).await;
                        tokio::time::sleep(LOOK).await;
                    }
                }
            });
            rig.gate.reached(&point, hit).await;
            match victim {
                Victim::Agent => {
                    rig.kill(NODE);
                    rig.gate.disarm();
                    rig.run(NODE);
                }
                Victim::Driver => rig.lose_the_driver_at(&point, false),
                Victim::Kubelet => {
                    // Its connection breaks with it.
                    call.abort();
                    rig.gate.release();
                    kubelet.register(true, "").await;
                }
            }
            let ended = call.await;
            assert!(ended.is_ok() || ended.is_err_and(|error| error.is_cancelled()), "{victim:?} {side:?}");
            let again = || async { kubelet.expand("pod-a", "data", larger).await.is_ok() };
            rig.poll(&format!("it is enlarged, {victim:?} {side:?}"), again).await;
            let last = asked(&rig).pop().unwrap();
            assert_eq!(last.capacity_range.unwrap().required_bytes, larger, "{victim:?} {side:?}");
            assert_eq!(Some(last.volume_path.as_str()), target.to_str());
        }
    }
    kubelet.unmount("pod-a", "data").await;
    end(&rig, &kubelet).await;
}

/// kubelet and whoever watches the PersistentVolumeClaim go by the driver's own code; none of them ends the mount.
pub(super) async fn what_the_driver_says_of_a_larger_volume_reaches_kubelet(cluster: Arc<Cluster>) {
    let (rig, kubelet) = start(&cluster).await;
    let target = kubelet.mount("pod-a", "data").await;
    for code in [Code::FailedPrecondition, Code::OutOfRange, Code::Internal, Code::Aborted] {
        rig.fake.fail("data", Rpc::NodeExpandVolume, Fault::CodeBefore(code));
        let status = kubelet.expand("pod-a", "data", BYTES).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (code, WORDS));
    }
    rig.fake.heal("data", Rpc::NodeExpandVolume);
    rig.fake.stop(NODE, &rig.plugin_dir(NODE));
    let status = kubelet.expand("pod-a", "data", BYTES).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    rig.fake.serve(NODE, &rig.plugin_dir(NODE), false);
    rig.poll("it is enlarged", || async { kubelet.expand("pod-a", "data", BYTES).await.is_ok() }).await;
    let status = kubelet.expand("pod-a", "data", -1).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    std::fs::write(target.join("word"), "mounted all the time").unwrap();
    kubelet.unmount("pod-a", "data").await;
    end(&rig, &kubelet).await;
}

pub(super) async fn a_driver_that_cannot_is_not_asked(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let kubelet = rig.kubelet(NODE).await;
    rig.make_volume_for_pods("data").await;
    kubelet.mount("pod-a", "data").await;
    assert!(!kubelet.capabilities().await.contains(&Can::ExpandVolume));
    let status = kubelet.expand("pod-a", "data", BYTES).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented, "{status}");
    assert!(asked(&rig).is_empty());
    kubelet.unmount("pod-a", "data").await;
    end(&rig, &kubelet).await;
}
