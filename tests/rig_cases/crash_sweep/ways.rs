//! The ways on which processes are killed.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use futures::future::BoxFuture;
use moor::api::ClaimState;

use crate::rig::{Entry, LOOK, PATIENCE, Rig, registered, volume, volume_claim};

/// From nothing to nothing.
pub struct Way {
    pub name: &'static str,
    pub go: fn(Arc<Rig>, String) -> BoxFuture<'static, ()>,
    /// The calls about the volume, without repetitions.
    pub calls: &'static [&'static str],
    /// While the killed process is down, claim and Volume are deleted: what it has begun has to be undone, by what it
    /// wrote down before.
    pub given_up: bool,
    /// Which writes and calls the short form of the sweep takes.
    pub in_short: fn(&Entry) -> bool,
}

/// The calls alone.
const CALLS: fn(&Entry) -> bool = |entry| entry.call().is_some();

pub const WAYS: [Way; 4] = [
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
        given_up: false,
        in_short: CALLS,
    },
    Way {
        name: "given-up",
        go: |rig, key| Box::pin(given_up(rig, key)),
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
        given_up: true,
        in_short: CALLS,
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
        given_up: false,
        in_short: CALLS,
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
        given_up: false,
        in_short: CALLS,
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
    assert!(!rig.has_storage(&key), "the volume {key} is still there");
}

/// Made in one go, and deleted by whoever comes first: this way when the claim is Ready, or the one who kills.
async fn given_up(rig: Arc<Rig>, key: String) {
    rig.make_volume(&volume(&key)).await;
    rig.make_claim(&volume_claim(&key, &key, "node-2")).await;
    let story = |_| panic!("it never came to an end:\n{}", rig.story(&key));
    tokio::time::timeout(PATIENCE, decided(&rig, &key)).await.unwrap_or_else(story);
    rig.delete_claim(&key).await;
    rig.delete_volume(&key).await;
    rig.until_claim_gone(&key).await;
    rig.until_volume_gone(&key).await;
    assert!(!rig.has_storage(&key), "the volume {key} is still there");
}

/// Returns when the claim is Ready, or somebody has deleted it or its Volume: the claim may be made only after that.
async fn decided(rig: &Rig, key: &str) {
    // Live reads: a watch that has not seen an object yet has not seen it go either.
    while let (Some(claim), Some(volume)) =
        (rig.claim_api().get_opt(key).await.unwrap(), rig.volume_api().get_opt(key).await.unwrap())
    {
        let ready = claim.status.is_some_and(|status| status.state == ClaimState::Ready);
        let is_deleted = claim.metadata.deletion_timestamp.or(volume.metadata.deletion_timestamp).is_some();
        if ready || is_deleted {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
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
    assert!(!rig.has_storage(&key), "the volume {key} is still there");
}

/// What is written at a Ready claim's path is in the volume.
fn used(rig: &Rig, key: &str, target: &str) {
    fs::write(Path::new(target).join("word"), key).unwrap();
    let content = rig.fake.backend().content(key);
    assert_eq!(fs::read_to_string(content.join("word")).unwrap(), key, "{target} is not the volume {key}");
}
