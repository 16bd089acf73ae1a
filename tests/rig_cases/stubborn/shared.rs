//! Two claims on one node share an Attachment (trap L6).

use std::fs;
use std::path::Path;
use std::sync::Arc;

use moor::api::capability::VolumeUse;
use moor::api::{AccessMode, AttachmentMode};
use moor::csi::Rpc;

use super::{NODE, UNDO, course};
use crate::rig::{CONTROLLER, Cluster, Options, Rig, volume, volume_claim};

pub async fn one_of_two_claims_leaves_after_a_crash_of_the_agent(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let first = rig.in_use("first").await;
    rig.make_claim(&volume_claim("second", "first", NODE)).await;
    let second = rig.until_ready("second").await;
    let attachment = rig.read_attachment_of("first").await.metadata.uid;
    assert_eq!(rig.read_attachment_of("second").await.metadata.uid, attachment);
    fs::write(Path::new(&first).join("word"), "of the first").unwrap();

    rig.kill(NODE);
    rig.delete_claim("first").await;
    rig.run(NODE);
    let since = rig.journal.now();
    rig.until_claim_gone("first").await;
    let word = Path::new(&second).join("word");
    assert_eq!(fs::read_to_string(&word).unwrap(), "of the first");
    fs::write(&word, "of the second").unwrap();
    assert!(!Path::new(&first).exists());
    assert_eq!(course(&rig.calls_since(since, "first")), UNDO[..1]);
    assert_eq!(rig.count("first", Rpc::NodeUnpublishVolume), 1);

    rig.restart(NODE);
    rig.delete_claim("second").await;
    rig.until_claim_gone("second").await;
    assert_eq!(rig.count("first", Rpc::NodeUnpublishVolume), 2);
    for once in [Rpc::NodeStageVolume, Rpc::NodeUnstageVolume, Rpc::ControllerUnpublishVolume] {
        assert_eq!(rig.count("first", once), 1, "{once}");
    }
    assert_eq!(
        fs::read_to_string(rig.fake.backend().content("first").join("word")).unwrap(),
        "of the second"
    );
    rig.remove_volume("first").await;
}

/// What is staged and stays is not staged again, though nobody wanted it when the last claim's undo began.
pub async fn a_claim_that_comes_while_the_last_one_leaves_is_not_staged_again(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.in_use("first").await;
    // Without a leader nothing is closed before the second claim is there.
    rig.kill(CONTROLLER);
    rig.fake.hold("first", Rpc::NodeUnpublishVolume);
    rig.delete_claim("first").await;
    let begun = || (rig.count("first", Rpc::NodeUnpublishVolume) == 1).then_some(());
    cluster.until("the undo has begun", begun, || rig.story("first")).await;
    rig.make_claim(&volume_claim("second", "first", NODE)).await;
    rig.run(CONTROLLER);
    let granted = || cluster.claim("second")?.spec.assignment.as_ref().map(|_| ());
    cluster.until("the second claim is granted", granted, || rig.story("second")).await;
    // Its agent has seen that once it has served one that was granted later.
    rig.in_use("later").await;
    rig.fake.let_go("first", Rpc::NodeUnpublishVolume);
    rig.until_ready("second").await;
    assert_eq!(rig.count("first", Rpc::NodeStageVolume), 1, "{}", rig.story("second"));
    for claim in ["second", "later"] {
        rig.delete_claim(claim).await;
        rig.until_claim_gone(claim).await;
    }
    rig.until_claim_gone("first").await;
    rig.remove_volume("first").await;
    rig.remove_volume("later").await;
}

/// ADR 5: every write of the lock meets the API server's rules, up to the last one, which takes the VolumeHandle's
/// finalizer off.
pub async fn one_writer_follows_another_and_the_volume_goes(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let mode = AccessMode::MultiNodeSingleWriter;
    let mut shared = volume("shared");
    shared.spec.capabilities =
        vec![VolumeUse { access_mode: mode, attachment_mode: AttachmentMode::default() }];
    rig.make_volume(&shared).await;
    let claim = |name: &str, node: &str, read_only: bool| {
        let mut claim = volume_claim(name, "shared", node);
        (claim.spec.access_mode, claim.spec.read_only) = (mode, read_only);
        claim
    };
    rig.make_claim(&claim("first", NODE, false)).await;
    rig.until_ready("first").await;
    // It stays on the node of the first writer, so that the Attachment does too.
    rig.make_claim(&claim("reader", NODE, true)).await;
    rig.until_ready("reader").await;
    rig.make_claim(&claim("second", "node-1", false)).await;
    rig.until_told("second", "Ready", "False", "Held").await;
    for (leaves, comes) in [("first", None), ("reader", Some("second"))] {
        rig.delete_claim(leaves).await;
        rig.until_claim_gone(leaves).await;
        if let Some(comes) = comes {
            rig.until_ready(comes).await;
        }
    }
    rig.delete_claim("second").await;
    rig.until_claim_gone("second").await;
    rig.remove_volume("shared").await;
}
