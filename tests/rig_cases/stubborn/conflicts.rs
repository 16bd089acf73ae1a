//! An object is written by somebody else while a call about it runs and fails: the failure is shown all the same.

use std::sync::Arc;

use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use moor::api::{Attachment, Volume};
use moor::csi::Rpc;
use serde_json::{Value, json};
use tonic::Code;

use super::NODE;
use crate::rig::{Cluster, Entry, Fault, Options, Outcome, Rig, volume, volume_claim};

/// A rig whose call `rpc` about the volume `v` waits, and then fails.
async fn with_held(cluster: &Arc<Cluster>, rpc: Rpc) -> Arc<Rig> {
    // Longer than this test waits: what ends the call is the test.
    let rig = Rig::start(cluster, Options { longest_call: 600, ..Options::default() }).await;
    rig.fake.fail("v", rpc, Fault::CodeBefore(Code::Internal));
    rig.fake.hold("v", rpc);
    rig.make_volume(&volume("v")).await;
    rig
}

async fn until_running(rig: &Rig, rpc: Rpc) {
    let runs = || (rig.count("v", rpc) > 0).then_some(());
    rig.cluster.until(&format!("{rpc} runs"), runs, || rig.story("v")).await;
}

/// Writes something that is no business of moor's.
fn touch() -> Patch<Value> {
    Patch::Merge(json!({"metadata": {"annotations": {"example.com/touched": "yes"}}}))
}

/// The first failure that was written into the status of an object of this kind is the first one that there was.
async fn first_failure_is_shown(rig: &Rig, kind: &str) {
    let status = |e: &Entry| e.write().is_some_and(|w| w.kind == kind && w.subresource == "status");
    let attempts = |e: &Entry| e.write().and_then(|w| w.body.pointer("/status/attempts")?.as_i64());
    let written = || {
        let all = rig.journal.since(0, |e| status(e) && e.is_taken());
        all.iter().find_map(attempts)
    };
    let first = rig.cluster.until("a failure is written", written, || rig.story("v")).await;
    let refused = |e: &Entry| status(e) && e.outcome() == Some(Outcome::Answered(409));
    assert!(!rig.journal.since(0, refused).is_empty(), "nobody was in the way: this shows nothing");
    assert_eq!(first, 1, "the first failure was lost");
}

pub async fn a_failed_attach_is_written_onto_a_newer_attachment(cluster: Arc<Cluster>) {
    const RPC: Rpc = Rpc::ControllerPublishVolume;
    let rig = with_held(&cluster, RPC).await;
    rig.make_claim(&volume_claim("v", "v", NODE)).await;
    until_running(&rig, RPC).await;
    // There is one, and its claim may not have it yet.
    let all: Api<Attachment> = Api::all(cluster.admin.clone());
    let name = all.list(&ListParams::default()).await.unwrap().items.remove(0).name_any();
    all.patch(&name, &PatchParams::default(), &touch()).await.unwrap();
    rig.fake.let_go("v", RPC);
    first_failure_is_shown(&rig, "attachments").await;

    rig.fake.heal("v", RPC);
    rig.until_ready("v").await;
    rig.delete_claim("v").await;
    rig.until_claim_gone("v").await;
    rig.remove_volume("v").await;
}

pub async fn a_failed_create_is_written_onto_a_newer_volume(cluster: Arc<Cluster>) {
    const RPC: Rpc = Rpc::CreateVolume;
    let rig = with_held(&cluster, RPC).await;
    until_running(&rig, RPC).await;
    let all: Api<Volume> = rig.volume_api();
    all.patch("v", &PatchParams::default(), &touch()).await.unwrap();
    rig.fake.let_go("v", RPC);
    first_failure_is_shown(&rig, "volumes").await;

    rig.fake.heal("v", RPC);
    rig.until_volume_ready("v").await;
    rig.remove_volume("v").await;
}
