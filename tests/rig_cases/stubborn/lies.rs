//! A driver that answers with OK what it has not done: its word is not enough (rule R8).

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use kube::ResourceExt as _;
use moor::csi::Rpc;

use super::{NODE, UNDO, course};
use crate::rig::{Cluster, Options, Rig, volume, volume_claim};

pub async fn published_without_a_mount(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.fake.pretend("v", Rpc::NodePublishVolume);
    rig.make_volume(&volume("v")).await;
    rig.make_claim(&volume_claim("v", "v", NODE)).await;
    let words = ["nothing is mounted at", "/moor.dev/", "mountPropagation Bidirectional", "next in"];
    let status = rig.until_says("v", "MountNotVisible", &words).await;
    assert_eq!(status.target_path, None);
    until_attempted(&rig, "v", 2).await;
    assert!(!rig.was_written("volumeclaims", "v", "Ready"));

    rig.fake.behave("v", Rpc::NodePublishVolume);
    let target = rig.until_ready("v").await;
    fs::write(Path::new(&target).join("word"), "kept").unwrap();
    rig.delete_claim("v").await;
    rig.until_claim_gone("v").await;
    rig.remove_volume("v").await;
}

/// A driver that mounts for writing what is to be read-only. The claim is read-only all the same, and whoever reads there
/// is waited for.
pub async fn read_only_and_writable(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.fake.backend().writable.insert("v".to_owned());
    rig.make_volume(&volume("v")).await;
    let mut claim = volume_claim("v", "v", NODE);
    claim.spec.read_only = true;
    rig.make_claim(&claim).await;
    let target = rig.until_ready("v").await;
    let error = fs::write(Path::new(&target).join("word"), "no").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem, "{error}");
    assert_eq!(rig.count("v", Rpc::NodePublishVolume), 1);

    fs::write(rig.fake.backend().content("v").join("word"), "kept").unwrap();
    let open = File::open(Path::new(&target).join("word")).unwrap();
    rig.restart(NODE);
    rig.delete_claim("v").await;
    rig.until_says("v", "NodeUnpublishFailed", &["busy", "next in"]).await;
    drop(open);
    rig.until_claim_gone("v").await;
    assert_eq!(fs::read_to_string(rig.fake.backend().content("v").join("word")).unwrap(), "kept");
    rig.remove_volume("v").await;
}

pub async fn unpublished_and_still_mounted(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    still_mounted(&rig, Rpc::NodeUnpublishVolume, 1).await;
}

pub async fn unstaged_and_still_mounted(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    still_mounted(&rig, Rpc::NodeUnstageVolume, 2).await;
}

/// The driver does not do `lie`, and the undo gets no further than the first `far` of its calls.
async fn still_mounted(rig: &Rig, lie: Rpc, far: usize) {
    let target = rig.in_use("v").await;
    fs::write(Path::new(&target).join("word"), "kept").unwrap();
    let since = rig.journal.now();
    rig.fake.pretend("v", lie);
    rig.delete_claim("v").await;
    let words = [lie.name(), "is done", "still mounted", "/moor.dev/", "next in"];
    rig.until_says("v", "StillMounted", &words).await;
    until_attempted(rig, "v", 2).await;
    let attachment = rig.read_attachment_of("v").await.name_any();
    assert!(!rig.was_written("volumeclaims", "v", "NodeDetached"));
    assert!(!rig.was_written("attachments", &attachment, "NodeDetached"));
    assert_eq!(course(&rig.calls_since(since, "v")), UNDO[..far]);

    rig.fake.behave("v", lie);
    rig.until_claim_gone("v").await;
    assert_eq!(course(&rig.calls_since(since, "v")), UNDO);
    assert_eq!(fs::read_to_string(rig.fake.backend().content("v").join("word")).unwrap(), "kept");
    rig.remove_volume("v").await;
}

async fn until_attempted(rig: &Rig, claim: &str, times: i64) {
    let look = || {
        let attempts = rig.cluster.claim(claim)?.status.as_ref()?.attempts?;
        (attempts >= times).then_some(())
    };
    rig.cluster.until(&format!("{times} attempts are counted"), look, || rig.story(claim)).await;
}
