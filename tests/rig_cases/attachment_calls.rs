//! Who may still make the calls of an Attachment.

use std::sync::Arc;

use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use moor::api::Attachment;
use moor::csi::Rpc;
use serde_json::json;
use tonic::Code;

use crate::cases;
use crate::rig::{Case, Cluster, Entry, Fault, Journal, LOOK, Options, PATIENCE, Rig, volume, volume_claim};

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

impl Rig {
    /// Waits until an Attachment is as `is` says. Returns what it is then.
    async fn until_attachment(&self, name: &str, is: impl Fn(&Attachment) -> bool) -> Attachment {
        let all: Api<Attachment> = Api::all(self.cluster.admin.clone());
        let look = async {
            loop {
                match all.get_opt(name).await.unwrap() {
                    Some(found) if is(&found) => return found,
                    _ => tokio::time::sleep(LOOK).await,
                }
            }
        };
        tokio::time::timeout(PATIENCE, look).await.unwrap_or_else(|_| panic!("{}", self.story(name)))
    }

    /// Makes a claim while the caller's agent does nothing, and deletes it when it has its lock. Returns when that is closed.
    async fn claim_and_let_go(&self, claim: &str) {
        self.make_claim(&volume_claim(claim, "v", NODE)).await;
        let granted = async {
            while self.read_claim(claim).await.spec.assignment.is_none() {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(PATIENCE, granted).await.unwrap_or_else(|_| panic!("{}", self.story(claim)));
        let lock = self.read_attachment_of(claim).await.name_any();
        self.delete_claim(claim).await;
        self.until_attachment(&lock, |found| found.metadata.deletion_timestamp.is_some()).await;
    }
}

/// A claim is deleted before its agent has seen its Attachment. By what is written down an earlier process may have attached the
/// volume, so it is detached, once.
async fn what_is_closed_before_it_is_attached_is_detached(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.make_volume(&volume("v")).await;
    rig.until_volume_ready("v").await;
    rig.freeze(CALLER);
    rig.claim_and_let_go("c").await;
    rig.thaw(CALLER);
    rig.until_claim_gone("c").await;
    // It may have seen what was not closed yet, and have attached that.
    assert!(rig.count("v", Rpc::ControllerPublishVolume) <= 1, "{}", rig.story("v"));
    assert_eq!(rig.count("v", Rpc::ControllerUnpublishVolume), 1, "{}", rig.story("v"));
    rig.delete_volume("v").await;
    rig.until_volume_gone("v").await;
    rig.assert_nothing_left().await;
}

/// The agent crashes in the middle of the call. Nothing that it has written speaks of it; who comes next detaches what may
/// be attached: itself when it is there again, or another one in its place, which has called nothing.
async fn what_may_be_attached_is_detached_after_a_crash(cluster: Arc<Cluster>) {
    for comes_back in [true, false] {
        let nodes = vec![(CALLER, true), (NODE, true)];
        let rig = Rig::start(&cluster, Options { nodes, longest_call: 5, ..Options::default() }).await;
        rig.make_volume(&volume("v")).await;
        rig.until_volume_ready("v").await;
        let handle = rig.handle_of("v").await.unwrap();
        let caller = handle.spec.controller.unwrap().agent.clone();
        let node = if caller == CALLER { NODE } else { CALLER };
        rig.fake.fail("v", Rpc::ControllerPublishVolume, Fault::HangAfter);
        rig.make_claim(&volume_claim("c", "v", node)).await;
        let attaches = || rig.journal.trace_of("v").contains(&"ControllerPublishVolume").then_some(());
        cluster.until("the volume is being attached", attaches, || rig.story("v")).await;
        let lock = rig.read_attachment_of("c").await.name_any();
        rig.kill(&caller);
        rig.fake.heal("v", Rpc::ControllerPublishVolume);
        rig.delete_claim("c").await;
        rig.until_attachment(&lock, |found| found.metadata.deletion_timestamp.is_some()).await;
        if comes_back {
            rig.run(&caller);
        } else {
            rig.expire_lease(&caller).await;
        }
        rig.until_claim_gone("c").await;
        if !comes_back {
            rig.run(&caller);
        }
        assert_eq!(rig.count("v", Rpc::ControllerPublishVolume), 1);
        assert_eq!(rig.count("v", Rpc::ControllerUnpublishVolume), 1, "{}", rig.story("v"));
        rig.delete_volume("v").await;
        rig.until_volume_gone("v").await;
        rig.assert_nothing_left().await;
        rig.end().await;
        cluster.wipe().await;
    }
}

/// The cases of this module.
pub const CASES: &[Case] = cases![
    a_lock_that_is_gone_is_not_attached_from_memory,
    what_is_closed_before_it_is_attached_is_detached,
    what_may_be_attached_is_detached_after_a_crash,
];
