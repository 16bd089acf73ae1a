//! Whose word counts: a node says how volumes are on it, and of no other node; the driver's word has who makes its calls.

use std::sync::Arc;

use kube::Error;
use moor::api::VolumeHandle;
use serde_json::{Value, json};

use super::{NEXT, NODE};
use crate::rig::{Cluster, Options, Rig, volume, volume_claim};

fn is_refused<T: std::fmt::Debug>(answer: Result<T, Error>, words: &str) {
    let refused = answer.unwrap_err().to_string();
    assert!(refused.contains(words), "{refused}");
}

pub(super) async fn only_who_has_looked_says_how_a_volume_is(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.make_volume(&volume("data")).await;
    rig.make_claim(&volume_claim("data", "data", NEXT)).await;
    rig.until_ready("data").await;
    let lie: Value = json!({"health": [{"kind": "Full", "message": "m", "since": "2026-01-02T03:04:05Z"}]});
    let attachment = rig.read_attachment_of("data").await.metadata.name.unwrap();
    let handle = rig.read_attachment_of("data").await.spec.fixed.handle_name;
    // The one attaches it, and the other has it mounted.
    let (attaches, mounts) = (rig.rogue(NODE).await, rig.rogue(NEXT).await);
    is_refused(attaches.say_of_attachment(&attachment, lie.clone()).await, "status.health");
    is_refused(mounts.say_of_handle(&handle, lie.clone()).await, "VolumeHandle");
    is_refused(attaches.say_of_volume("data", lie.clone()).await, "status.health");
    mounts.say_of_attachment(&attachment, lie.clone()).await.unwrap();
    let said: VolumeHandle = attaches.say_of_handle(&handle, lie).await.unwrap();
    assert_eq!(said.status.unwrap().health.unwrap().len(), 1);
    // The driver has not said that it says such things, so that word does not count.
    let found = rig.until_ill("data", &[moor::api::health::HealthKind::Full]).await;
    assert_eq!(found[0].node_name.as_deref(), Some(NEXT));
    rig.end_health("data").await;
}
