//! Who may still make the calls of an Attachment.

use std::sync::Arc;

use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use moor::api::Attachment;
use moor::csi::Rpc;
use serde_json::json;
use tonic::Code;

use crate::cases;
use crate::rig::{Case, Cluster, Entry, Fault, Journal, Options, Rig, volume, volume_claim};

/// Makes all controller calls.
const CALLER: &str = "node-1";
const NODE: &str = "node-2";

/// The lock is taken away by hand (break-glass) while the agent that attaches hears of no Attachment. Its VolumeHandle is
/// as it was: by that alone the call could be made, and nobody would ever undo it.
async fn a_lock_that_is_gone_is_not_attached_from_memory(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.make_volume(&volume("v")).await;
    rig.until_volume_ready("v").await;
    rig.fake.fail("v", Rpc::ControllerPublishVolume, Fault::CodeBefore(Code::Unavailable));
    rig.make_claim(&volume_claim("c", "v", NODE)).await;
    // Its next attempt is some time away.
    let tried = || (rig.count("v", Rpc::ControllerPublishVolume) >= 3).then_some(());
    cluster.until("some attempts have failed", tried, || rig.story("v")).await;
    let lock = rig.read_attachment_of("c").await.metadata.name.unwrap();
    rig.stall(CALLER, "attachments");
    let since = rig.journal.now();

    let all: Api<Attachment> = Api::all(cluster.admin.clone());
    rig.delete_claim("c").await;
    all.delete(&lock, &DeleteParams::default()).await.unwrap();
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    all.patch(&lock, &PatchParams::default(), &free).await.unwrap();
    rig.until_claim_gone("c").await;
    rig.fake.heal("v", Rpc::ControllerPublishVolume);
    let calls = || {
        let attaches = |e: &Entry| e.call().is_some_and(|call| call.rpc == Rpc::ControllerPublishVolume);
        rig.journal.since(since, |e| e.is_ok() && attaches(e))
    };
    let tried = || {
        let looked = rig.journal.has_read(since, CALLER, "attachments", &lock);
        (looked || !calls().is_empty()).then_some(())
    };
    cluster.until("the agent turns to the Attachment", tried, || rig.story("v")).await;
    rig.unstall(CALLER, "attachments");

    // It works again, and not on that.
    rig.make_claim(&volume_claim("then", "v", NODE)).await;
    rig.until_ready("then").await;
    let made = calls();
    assert_eq!(made.len(), 1, "attached for nobody: {}", Journal::text(&made));
    rig.remove(&["then"], &["v"]).await;
}

/// The cases of this module.
pub const CASES: &[Case] = cases![a_lock_that_is_gone_is_not_attached_from_memory];
