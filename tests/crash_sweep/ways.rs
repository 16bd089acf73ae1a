//! The ways on which processes are killed.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use futures::future::BoxFuture;

use crate::rig::{Rig, registered, volume, volume_claim};

/// From nothing to nothing.
pub struct Way {
    pub name: &'static str,
    pub go: fn(Arc<Rig>, String) -> BoxFuture<'static, ()>,
    /// The calls about the volume, without repetitions.
    pub calls: &'static [&'static str],
}

pub const WAYS: [Way; 3] = [
    Way {
        name: "created",
        go: |rig, key| Box::pin(created(rig, key)),
        calls: &[
            "CreateVolume",
            "ControllerPublishVolume",
            "NodeStageVolume",
            "NodePublishVolume",
            "NodeUnpublishVolume",
            "NodeUnstageVolume",
            "ControllerUnpublishVolume",
            "DeleteVolume",
        ],
    },
    Way {
        name: "registered-shared",
        go: |rig, key| Box::pin(registered_and_shared(rig, key)),
        calls: &[
            "ValidateVolumeCapabilities",
            "ControllerPublishVolume",
            "NodeStageVolume",
            "NodePublishVolume",
            "NodeUnpublishVolume",
            "NodeUnstageVolume",
            "ControllerUnpublishVolume",
        ],
    },
    Way {
        name: "all-at-once",
        go: |rig, key| Box::pin(all_at_once(rig, key)),
        calls: &[
            "CreateVolume",
            "ControllerPublishVolume",
            "NodeStageVolume",
            "NodePublishVolume",
            "NodeUnpublishVolume",
            "NodeUnstageVolume",
            "ControllerUnpublishVolume",
            "DeleteVolume",
        ],
    },
];

/// A volume that moor creates, attaches by one node, mounts on another, and deletes. Claim and Volume have one name.
async fn created(rig: Arc<Rig>, key: String) {
    rig.make_volume(&volume(&key)).await;
    rig.until_volume_ready(&key).await;
    rig.make_claim(&volume_claim(&key, &key, "node-2")).await;
    used(&rig, &key, &rig.until_ready(&key).await);
    rig.delete_claim(&key).await;
    rig.until_claim_gone(&key).await;
    rig.delete_volume(&key).await;
    rig.until_volume_gone(&key).await;
    assert!(!rig.fake.backend().volumes.contains_key(&key), "the volume {key} is still there");
}

/// A volume that exists, used twice on the node whose agent also attaches, and left to its owner.
async fn registered_and_shared(rig: Arc<Rig>, key: String) {
    let handle = rig.fake.backend().add(&key);
    let second = format!("{key}-second");
    rig.make_volume(&registered(&key, &handle)).await;
    rig.make_claim(&volume_claim(&key, &key, "node-1")).await;
    used(&rig, &key, &rig.until_ready(&key).await);
    rig.make_claim(&volume_claim(&second, &key, "node-1")).await;
    used(&rig, &key, &rig.until_ready(&second).await);
    rig.delete_claim(&key).await;
    rig.until_claim_gone(&key).await;
    rig.delete_claim(&second).await;
    rig.until_claim_gone(&second).await;
    rig.delete_volume(&key).await;
    rig.until_volume_gone(&key).await;
    assert!(rig.fake.backend().volumes.remove(&key).is_some(), "the registered volume {key} was deleted");
}

/// Made in one go and deleted in one go, the Volume first.
async fn all_at_once(rig: Arc<Rig>, key: String) {
    rig.make_claim(&volume_claim(&key, &key, "node-2")).await;
    rig.make_volume(&volume(&key)).await;
    used(&rig, &key, &rig.until_ready(&key).await);
    rig.delete_volume(&key).await;
    rig.delete_claim(&key).await;
    rig.until_claim_gone(&key).await;
    rig.until_volume_gone(&key).await;
    assert!(!rig.fake.backend().volumes.contains_key(&key), "the volume {key} is still there");
}

/// What is written at a Ready claim's path is in the volume.
fn used(rig: &Rig, key: &str, target: &str) {
    fs::write(Path::new(target).join("word"), key).unwrap();
    let content = rig.fake.backend().content(key);
    assert_eq!(fs::read_to_string(content.join("word")).unwrap(), key, "{target} is not the volume {key}");
}
