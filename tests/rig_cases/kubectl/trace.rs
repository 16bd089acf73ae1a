//! The calls that agents keep: `moor trace` beside them, and `kubectl moor trace`, which asks them in their Pods. Here they have
//! none, so that it names them.

use std::process::Command;
use std::sync::Arc;

use moor::csi::Rpc;
use serde_json::Value;

use super::kubectl_moor;
use crate::cases;
use crate::rig::{Case, Cluster, Fault, Options, Rig, SPACE, volume, volume_claim};
use crate::snapshots::objects::snapshot;

/// What must not be in any trace.
const FLAG: &str = "x-covert=hunter2";

/// What `moor trace` says on a node.
async fn trace(rig: &Rig, node: &str, words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_moor"));
    command.arg("trace").args(words).arg("--state-dir").arg(rig.state_dir(node));
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let [out, error] = [done.stdout, done.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(done.status.success(), "{out}{error}");
    out
}

/// The methods and outcomes of the calls about a volume, as a node's agent has kept them.
async fn calls(rig: &Rig, node: &str, id: &str) -> Vec<(String, String)> {
    let told: Value = serde_json::from_str(&trace(rig, node, &[id, "--output=json"]).await).unwrap();
    assert_eq!(told["node"], node);
    let word =
        |call: &Value, at: &str| call.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
    let calls = told["calls"].as_array().unwrap();
    calls.iter().map(|call| (word(call, "/rpc"), word(call, "/end/code"))).collect()
}

async fn an_agent_tells_the_calls_of_a_volume(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options { snapshots: true, ..Options::default() }).await;
    let mut flagged = volume("data");
    flagged.spec.mount_options.get_or_insert_default().mount_flags = vec![FLAG.to_owned()];
    rig.make_volume(&flagged).await;
    rig.make_claim(&volume_claim("db", "data", "node-1")).await;
    rig.until_ready("db").await;
    rig.make_snapshot(&snapshot("before", "data")).await;
    rig.until_snapshot("before", moor::api::SnapshotState::Ready).await;
    rig.delete_snapshot("before").await;
    rig.until_snapshot_gone("before").await;
    let went = |all: &[&str]| all.iter().map(|rpc| ((*rpc).to_owned(), "Ok".to_owned())).collect::<Vec<_>>();
    // The Snapshot is gone, and the agent knows whose it was.
    let wanted = went(&[
        "CreateVolume",
        "ControllerPublishVolume",
        "NodeStageVolume",
        "NodePublishVolume",
        "CreateSnapshot",
        "DeleteSnapshot",
    ]);
    assert_eq!(calls(&rig, "node-1", "vol-data").await, wanted);
    let text = trace(&rig, "node-1", &["vol-data"]).await;
    for part in [
        " NodeStageVolume fake.moor.dev vol-data ",
        " ms Ok\n  > NodeStageVolumeRequest { volume_id: \"vol-data\", ",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert!(text.contains("mount_flags: <1 hidden>"), "{text}");
    for all in [trace(&rig, "node-1", &[]).await, trace(&rig, "node-1", &["--output=json"]).await] {
        assert!(all.contains("vol-data") && !all.contains("hunter2"), "{all}");
    }
    assert!(trace(&rig, "node-2", &["vol-data"]).await.starts_with("No call is kept; "));

    // One that fails, and one that is running.
    rig.make_volume(&volume("ill")).await;
    rig.fake.fail("ill", Rpc::NodeStageVolume, Fault::CodeBefore(tonic::Code::Unavailable));
    rig.make_claim(&volume_claim("ill", "ill", "node-2")).await;
    rig.until_says("ill", "NodeStageFailed", &["the storage is on strike"]).await;
    let text = trace(&rig, "node-2", &["vol-ill"]).await;
    assert!(text.contains(" ms Unavailable\n") && text.contains("\n  < the storage is on strike"), "{text}");
    rig.fake.hold("data", Rpc::NodeUnpublishVolume);
    rig.delete_claim("db").await;
    let is_running = || async {
        trace(&rig, "node-1", &["vol-data"])
            .await
            .contains(" NodeUnpublishVolume fake.moor.dev vol-data is running\n")
    };
    rig.until_so("the trace tells the call that is running", "db", is_running).await;
    rig.fake.let_go("data", Rpc::NodeUnpublishVolume);
    rig.until_claim_gone("db").await;

    // A new process begins anew.
    rig.kill("node-2");
    rig.fake.heal("ill", Rpc::NodeStageVolume);
    rig.run("node-2");
    rig.until_ready("ill").await;
    let after = calls(&rig, "node-2", "vol-ill").await;
    assert!(after.iter().all(|(_, code)| code == "Ok") && !after.is_empty(), "{after:?}");
    rig.remove(&["db", "ill"], &["data", "ill"]).await;
}

async fn who_cannot_be_asked_is_named(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.make_volume(&volume("data")).await;
    rig.make_claim(&volume_claim("db", "data", "node-2")).await;
    rig.until_ready("db").await;
    let admin = cluster.kubeconfig("admin", None).await;
    let nobody = |node: &str| format!("  {node}: no agent has a Pod there, in namespace moor-system\n");
    let (first, second) = (nobody("node-1"), nobody("node-2"));
    for line in ["trace data", "trace default/data --messages", "trace volume data --all"] {
        kubectl_moor(&admin, line).await.has(&[
            "Calls about Volume default/data, by fake.moor.dev\n  None is remembered\n",
            "\nNot reached: their calls are not here\n",
            &first,
            &second,
        ]);
    }
    kubectl_moor(&admin, "trace handle vol-data").await.has(&["nobody: no agent has a Pod"]);
    kubectl_moor(&admin, "trace none")
        .await
        .is_refused(&format!("there is no Volume none in namespace {SPACE}"));
    kubectl_moor(&admin, "trace pod web").await.is_refused("give a Volume's name");
    rig.remove(&["db"], &["data"]).await;
}

/// The cases of this file.
pub const CASES: &[Case] = cases![an_agent_tells_the_calls_of_a_volume, who_cannot_be_asked_is_named];
