//! Two claims on one node share an Attachment (reference nomad.md L6).

use std::fs;
use std::path::Path;
use std::sync::Arc;

use moor::csi::Rpc;

use super::rig::{Cluster, Options, Rig, volume_claim};
use super::{NODE, UNDO, course};

pub async fn one_of_two_claims_leaves_after_a_crash_of_the_agent(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let first = rig.in_use("first").await;
    rig.make_claim(&volume_claim("second", "first", NODE)).await;
    let second = rig.until_ready("second").await;
    let attachment = |claim| cluster.attachment_of(claim).unwrap().metadata.uid.clone();
    assert_eq!(attachment("first"), attachment("second"));
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
