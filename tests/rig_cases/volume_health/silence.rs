//! Drivers that do not say how a volume is, or say what cannot be.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use moor::api::health::HealthKind;
use moor::csi::Rpc;
use serde_json::json;
use tokio::time::Instant;
use tonic::Code;

use super::{NODE, saying};
use crate::rig::fake::backend::Expand;
use crate::rig::{Cluster, Fault, Options, Rig, volume, volume_claim};

const STATS: Rpc = Rpc::NodeGetVolumeStats;
/// The deadline of a question, which is what a look would hold up others for.
const DEADLINE: Duration = Duration::from_secs(30);

/// Neither its own volume nor another one, nor an agent that is to end.
pub(super) async fn a_driver_that_hangs_delays_nobody(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options { longest_call: 600, ..saying() }).await;
    rig.fake.fail("data", STATS, Fault::HangBefore);
    for name in ["data", "other"] {
        rig.make_volume(&volume(name)).await;
        rig.make_claim(&volume_claim(name, name, NODE)).await;
        rig.until_ready(name).await;
    }
    rig.until_asked_again("data", STATS, 1).await;
    let asked = Instant::now();
    rig.make_volume(&volume("late")).await;
    rig.make_claim(&volume_claim("late", "late", NODE)).await;
    rig.until_ready("late").await;
    for name in ["data", "other", "late"] {
        rig.delete_claim(name).await;
        rig.until_claim_gone(name).await;
    }
    assert!(asked.elapsed() < DEADLINE, "it was waited for: {:?}\n{}", asked.elapsed(), rig.story("data"));

    rig.make_claim(&volume_claim("data", "data", NODE)).await;
    rig.until_ready("data").await;
    rig.until_asked_again("data", STATS, 1).await;
    let asked = Instant::now();
    rig.stop(NODE).await;
    assert!(asked.elapsed() < DEADLINE, "it was waited for at the end: {:?}", asked.elapsed());
    rig.run(NODE);
    rig.fake.heal("data", STATS);
    rig.until_well("data").await;
    for name in ["other", "late"] {
        rig.delete_volume(name).await;
        rig.until_volume_gone(name).await;
    }
    rig.end_health("data").await;
}

/// Nor a call for its volume, beside which nobody asks: CSI wants one at a time, and the driver here complains of two.
pub(super) async fn a_question_gives_way_to_a_call_for_its_volume(cluster: Arc<Cluster>) {
    let options = Options {
        health_interval: 1,
        conditions: true,
        attach: false,
        expand: Expand::ByController,
        longest_call: 600,
        ..Options::default()
    };
    let rig = Rig::start(&cluster, options).await;
    rig.fake.fail("data", Rpc::ControllerGetVolume, Fault::HangBefore);
    rig.make_volume(&volume("data")).await;
    rig.until_volume_ready("data").await;
    rig.until_asked_again("data", Rpc::ControllerGetVolume, 1).await;
    let asked = Instant::now();
    let larger = Patch::Merge(json!({ "spec": { "capacity": "2Mi" } }));
    rig.volume_api().patch("data", &PatchParams::default(), &larger).await.unwrap();
    let grown = || rig.cluster.volume("data")?.status.as_ref()?.capacity_bytes.filter(|b| *b == 2 << 20);
    rig.cluster.until("the volume has grown", grown, || rig.story("data")).await;
    assert!(asked.elapsed() < DEADLINE, "it was waited for: {:?}\n{}", asked.elapsed(), rig.story("data"));
    rig.fake.heal("data", Rpc::ControllerGetVolume);
    let no_claims: [&str; 0] = [];
    rig.remove(&no_claims, &["data"]).await;
}

pub(super) async fn a_driver_that_does_not_say_is_told(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, saying()).await;
    rig.make_volume(&volume("data")).await;
    rig.make_claim(&volume_claim("data", "data", NODE)).await;
    rig.until_ready("data").await;
    rig.until_well("data").await;
    rig.fake.fail("data", STATS, Fault::CodeBefore(Code::Internal));
    let found = rig.until_ill("data", &[HealthKind::NoAnswer]).await;
    assert!(found[0].finding.message.contains("the storage is on strike"), "{found:?}");
    // A claim that is there is served as ever.
    rig.fake.heal("data", STATS);
    rig.until_well("data").await;
    rig.until_health_events("data", 1, 1).await;
    rig.end_health("data").await;
}

/// Then the kernel's own are.
pub(super) async fn numbers_that_cannot_be_are_not_counted(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, saying()).await;
    rig.make_volume(&volume("data")).await;
    rig.answers_so("data", |answers| answers.usage = Some([100, 60, 40]));
    rig.make_claim(&volume_claim("data", "data", NODE)).await;
    rig.until_ready("data").await;
    let used = r#"moor_volume_stats_used_bytes{namespace="default",volume="data"}"#;
    rig.poll("60 bytes are used", || async { rig.sample(NODE, used).await == Some(60.0) }).await;
    for usage in [[100, -60, 40], [100, 400, 40], [i64::MAX, 0, 0], [-1, -1, -1]] {
        rig.answers_so("data", |answers| answers.usage = Some(usage));
        let by_kernel = || async { rig.sample(NODE, used).await.is_some_and(|used| used > 1000.0) };
        rig.poll(&format!("{usage:?} is not taken"), by_kernel).await;
        rig.answers_so("data", |answers| answers.usage = Some([100, 60, 40]));
        rig.poll("60 bytes are used", || async { rig.sample(NODE, used).await == Some(60.0) }).await;
    }
    rig.answers_so("data", |answers| answers.usage = Some([100, 100, 0]));
    rig.until_ill("data", &[HealthKind::Full]).await;
    rig.end_health("data").await;
}
