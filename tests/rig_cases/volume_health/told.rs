//! What drivers say of their volumes.

use std::sync::Arc;

use moor::api::health::HealthKind;
use moor::csi::Rpc;

use super::{NODE, saying};
use crate::rig::{Cluster, Options, Rig, volume, volume_claim};

const STATS: Rpc = Rpc::NodeGetVolumeStats;

/// Its words come as they can be shown.
pub(super) async fn what_a_driver_says_on_a_node_is_told_once_and_ends(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, saying()).await;
    rig.make_volume(&volume("data")).await;
    rig.make_claim(&volume_claim("data", "data", NODE)).await;
    rig.until_ready("data").await;
    rig.until_well("data").await;
    rig.until_health_events("data", 0, 0).await;

    let words = format!("the disk\u{1b}[31m is on\nfire {}", "!".repeat(5000));
    rig.answers_so("data", |answers| answers.ill = Some(words));
    let found = rig.until_ill("data", &[HealthKind::Abnormal]).await;
    assert_eq!(found[0].node_name.as_deref(), Some(NODE));
    let message = &found[0].finding.message;
    assert!(message.starts_with("the disk[31m is on fire !!!") && message.len() == 256, "{message}");
    rig.until_health_events("data", 1, 0).await;
    rig.until_asked_again("data", STATS, 1).await;
    // Nothing changes any more, and a new leader and a new agent say nothing again.
    rig.unwritten_while(rig.until_asked_again("data", STATS, 3)).await;
    rig.restart_and_wait(crate::rig::CONTROLLER).await;
    rig.restart_and_wait(NODE).await;
    rig.until_asked_again("data", STATS, 3).await;
    let again = rig.until_ill("data", &[HealthKind::Abnormal]).await;
    assert_eq!(again[0].finding.since, found[0].finding.since);
    rig.until_health_events("data", 1, 0).await;

    rig.answers_so("data", |answers| answers.ill = None);
    rig.until_well("data").await;
    rig.until_health_events("data", 1, 1).await;
    rig.end_health("data").await;
}

/// All volumes are asked about at once.
pub(super) async fn what_a_driver_lists_is_told_and_ends(cluster: Arc<Cluster>) {
    let options = Options { health_interval: 1, conditions: true, ..Options::default() };
    at_the_storage(&cluster, options, "", Rpc::ListVolumes).await;
}

/// It lists none.
pub(super) async fn what_a_driver_says_of_one_volume_is_told_and_ends(cluster: Arc<Cluster>) {
    let options = Options { health_interval: 1, conditions: true, attach: false, ..Options::default() };
    at_the_storage(&cluster, options, "data", Rpc::ControllerGetVolume).await;
}

/// What the Controller service says of a volume that nobody uses.
async fn at_the_storage(cluster: &Arc<Cluster>, options: Options, about: &str, rpc: Rpc) {
    let rig = Rig::start(cluster, options).await;
    rig.make_volume(&volume("data")).await;
    rig.until_volume_ready("data").await;
    rig.until_well("data").await;
    rig.answers_so("data", |answers| answers.ill_at_storage = Some("a mirror is lost".to_owned()));
    let found = rig.until_ill("data", &[HealthKind::Abnormal]).await;
    assert_eq!((found[0].node_name.as_deref(), &*found[0].finding.message), (None, "a mirror is lost"));
    rig.until_health_events("data", 1, 0).await;
    rig.unwritten_while(rig.until_asked_again(about, rpc, 2)).await;
    rig.answers_so("data", |answers| answers.ill_at_storage = None);
    rig.until_well("data").await;
    rig.until_health_events("data", 1, 1).await;
    rig.delete_volume("data").await;
    rig.until_volume_gone("data").await;
    rig.assert_nothing_left().await;
}

pub(super) async fn words_that_change_all_the_time_are_not_written_all_the_time(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, saying()).await;
    rig.make_volume(&volume("data")).await;
    rig.make_claim(&volume_claim("data", "data", NODE)).await;
    rig.until_ready("data").await;
    rig.until_well("data").await;
    rig.answers_so("data", |answers| answers.ill = Some("1 error so far".to_owned()));
    rig.until_ill("data", &[HealthKind::Abnormal]).await;
    rig.until_health_events("data", 1, 0).await;
    rig.answers_so("data", |answers| answers.ill = Some("2 errors so far".to_owned()));
    rig.unwritten_while(rig.until_asked_again("data", STATS, 3)).await;
    rig.end_health("data").await;
}
