//! One claim per state: what its status and its line of `kubectl get vc` say.

use std::sync::Arc;

use moor::api::claim::VolumeClaimStatus;
use moor::csi::Rpc;
use serde_json::Value;
use tonic::Code;

use crate::rig::fake::WORDS;
use crate::rig::{Cluster, Fault, Journal, Options, Rig, SPACE, Write, condition, say, volume, volume_claim};

/// Widest line that is read without wrapping.
const WIDTH: usize = 120;

/// A rig with one Volume and one claim of this name on a node.
async fn with_claim(cluster: &Arc<Cluster>, name: &str, node: &str) -> Arc<Rig> {
    let rig = Rig::start(cluster, Options::default()).await;
    rig.make_volume(&volume(name)).await;
    rig.until_volume_ready(name).await;
    rig.make_claim(&volume_claim(name, name, node)).await;
    rig
}

/// Waits until the claim's status is as wanted.
async fn until(
    rig: &Rig,
    claim: &str,
    what: &str,
    is: impl Fn(&VolumeClaimStatus) -> bool,
) -> VolumeClaimStatus {
    let look = || rig.cluster.claim(claim)?.status.clone().filter(|s| is(s));
    rig.cluster.until(&format!("claim {claim}: {what}"), look, || rig.story(claim)).await
}

fn says(status: &VolumeClaimStatus, reason: &str, words: &[&str]) -> bool {
    condition(&status.conditions).is_some_and(|c| {
        c.status == "False" && c.reason == reason && words.iter().all(|w| c.message.contains(w))
    })
}

/// The lines that `kubectl get` prints, of the columns that are not for `-o wide`.
async fn table(rig: &Rig, path: &str) -> Vec<Vec<(String, String)>> {
    let request = http::Request::get(path)
        .header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Vec::new())
        .unwrap();
    let table: Value = rig.cluster.admin.request(request).await.unwrap();
    let columns = table["columnDefinitions"].as_array().unwrap();
    let cell = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let rows = table["rows"].as_array().unwrap().iter().map(|row| {
        let cells = columns.iter().zip(row["cells"].as_array().unwrap());
        let shown = cells.filter(|(column, _)| column["priority"] == 0);
        shown.map(|(column, value)| (column["name"].as_str().unwrap().to_owned(), cell(value))).collect()
    });
    rows.collect()
}

/// The claim's line, which is printed, checked for its width, and returned by column.
async fn line(rig: &Rig, claim: &str) -> impl Fn(&str) -> String {
    let rows = table(rig, &format!("/apis/moor.dev/v1alpha1/namespaces/{SPACE}/volumeclaims")).await;
    let row = rows.into_iter().find(|row| row[0].1 == claim).unwrap();
    let widths: Vec<usize> = row.iter().map(|(name, value)| name.len().max(value.len())).collect();
    let print = |cells: Vec<&str>| {
        let cells = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}   "));
        say(&format!("    {}", cells.collect::<String>().trim_end()));
    };
    print(row.iter().map(|(name, _)| name.as_str()).collect());
    print(row.iter().map(|(_, value)| value.as_str()).collect());
    let width = widths.iter().sum::<usize>() + 3 * (widths.len() - 1);
    assert!(width <= WIDTH, "{width} columns: {row:?}");
    move |column: &str| {
        let found = row.iter().find(|(name, _)| name == column);
        found.unwrap_or_else(|| panic!("no column {column} in {row:?}")).1.clone()
    }
}

pub async fn a_failing_attach_is_on_the_claim(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.fake.fail("db", Rpc::ControllerPublishVolume, Fault::CodeBefore(Code::Internal));
    rig.make_volume(&volume("db")).await;
    rig.until_volume_ready("db").await;
    rig.make_claim(&volume_claim("db", "db", "node-2")).await;
    let status = until(&rig, "db", "shows the second attempt", |s| {
        s.attempts >= Some(2)
            && says(s, "Attaching", &["agent of node node-1", "Internal", WORDS, "attempt", "next at"])
    })
    .await;
    let failed = status.last_error.unwrap();
    assert_eq!((failed.rpc.as_str(), failed.code.as_str()), ("ControllerPublishVolume", "Internal"));
    assert!(status.next_retry.is_some());
    let line = line(&rig, "db").await;
    assert_eq!(
        (line("State"), line("Node"), line("Why")),
        ("Taken".into(), "node-2".into(), "Attaching".into())
    );

    rig.fake.heal("db", Rpc::ControllerPublishVolume);
    rig.until_ready("db").await;
    let status = rig.read_claim("db").await.status.unwrap();
    assert_eq!((status.last_error, status.attempts, status.next_retry), (None, None, None));
    let ready = condition(&status.conditions).unwrap();
    assert!(ready.message.contains("on node node-2"), "{}", ready.message);
    let line = self::line(&rig, "db").await;
    assert_eq!(
        (line("State"), line("Why"), line("Waits For")),
        ("Ready".into(), "Published".into(), String::new())
    );
    assert!(!line("Since").is_empty() && line("Leaving").is_empty());
}

pub async fn a_failing_stage_is_on_the_claim(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.fake.fail("db", Rpc::NodeStageVolume, Fault::CodeBefore(Code::Internal));
    rig.make_volume(&volume("db")).await;
    rig.make_claim(&volume_claim("db", "db", "node-2")).await;
    let status = until(&rig, "db", "shows the second attempt", |s| {
        s.attempts >= Some(2) && says(s, "NodeStageFailed", &["on node node-2", "Internal", WORDS, "attempt"])
    })
    .await;
    assert_eq!(status.last_error.unwrap().rpc, "NodeStageVolume");
    assert!(status.next_retry.is_some());
    assert_eq!(line(&rig, "db").await("Why"), "NodeStageFailed");
}

pub async fn a_hung_unpublish_is_on_the_claim(cluster: Arc<Cluster>) {
    let rig = with_claim(&cluster, "db", "node-2").await;
    rig.until_ready("db").await;
    rig.fake.fail("db", Rpc::NodeUnpublishVolume, Fault::HangBefore);
    rig.delete_claim("db").await;
    until(&rig, "db", "says what runs", |s| says(s, "Unpublishing", &["NodeUnpublishVolume is running"]))
        .await;
    let line = line(&rig, "db").await;
    assert!(!line("Leaving").is_empty(), "that it is deleted is to be seen");
    assert_eq!(line("State"), "Taken", "it is not to be used any more");
    until(&rig, "db", "says how it ended", |s| {
        s.attempts >= Some(1) && says(s, "NodeUnpublishFailed", &["DeadlineExceeded"])
    })
    .await;
    rig.fake.heal("db", Rpc::NodeUnpublishVolume);
    rig.until_claim_gone("db").await;
}

pub async fn a_failing_detach_is_on_the_deleted_claim(cluster: Arc<Cluster>) {
    let rig = with_claim(&cluster, "db", "node-2").await;
    rig.until_ready("db").await;
    rig.fake.fail("db", Rpc::ControllerUnpublishVolume, Fault::CodeBefore(Code::Internal));
    rig.delete_claim("db").await;
    let status = until(&rig, "db", "shows the second attempt", |s| {
        let words = ["agent of node node-1", "from node node-2", "Internal", WORDS, "next at"];
        s.attempts >= Some(2) && says(s, "ControllerUnpublishFailed", &words)
    })
    .await;
    assert_eq!(status.last_error.unwrap().rpc, "ControllerUnpublishVolume");
    let line = line(&rig, "db").await;
    assert_eq!((line("Node"), line("Why")), ("node-2".into(), "ControllerUnpublishFailed".into()));
    assert!(!line("Leaving").is_empty());
    rig.fake.heal("db", Rpc::ControllerUnpublishVolume);
    rig.until_claim_gone("db").await;
}

/// One that only hangs says so, too, long before its deadline.
pub async fn a_hung_detach_is_on_the_deleted_claim(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options { longest_call: 900, ..Options::default() }).await;
    rig.make_volume(&volume("db")).await;
    rig.make_claim(&volume_claim("db", "db", "node-2")).await;
    rig.until_ready("db").await;
    rig.fake.fail("db", Rpc::ControllerUnpublishVolume, Fault::HangBefore);
    rig.delete_claim("db").await;
    until(&rig, "db", "says that it takes long", |s| {
        says(s, "Detaching", &["agent of node node-1", "from node node-2"])
    })
    .await;
}

pub async fn a_waiting_claim_names_its_holder(cluster: Arc<Cluster>) {
    let rig = with_claim(&cluster, "db", "node-2").await;
    rig.until_ready("db").await;
    rig.make_claim(&volume_claim("next", "db", "node-1")).await;
    let status = until(&rig, "next", "waits", |s| s.waiting_for.is_some()).await;
    let holder = status.waiting_for.clone().unwrap();
    assert_eq!((holder.holder.as_str(), holder.node_name.as_deref()), ("default/db", Some("node-2")));
    let held = rig.read_claim("db").await.status.unwrap();
    let since = condition(&held.conditions).unwrap().last_transition_time.clone();
    assert_eq!(holder.since, Some(since), "since it is Ready");
    assert!(says(&status, "Held", &["default/db on node node-2 (Ready)"]));
    let line = line(&rig, "next").await;
    assert_eq!((line("Why"), line("Waits For")), ("Held".into(), "default/db".into()));

    rig.fake.fail("db", Rpc::NodeUnstageVolume, Fault::CodeBefore(Code::Internal));
    rig.delete_claim("db").await;
    until(&rig, "next", "names the leaver", |s| says(s, "Held", &["default/db on node node-2 (leaving)"]))
        .await;
    until(&rig, "db", "says why", |s| says(s, "NodeUnstageFailed", &[WORDS])).await;
    rig.fake.heal("db", Rpc::NodeUnstageVolume);
    rig.until_ready("next").await;
    rig.until_claim_gone("db").await;
}

/// What is told costs nothing where nothing is wrong.
pub async fn a_detach_that_goes_well_costs_four_writes(cluster: Arc<Cluster>) {
    let rig = with_claim(&cluster, "db", "node-2").await;
    rig.until_ready("db").await;
    let since = rig.journal.now();
    rig.delete_claim("db").await;
    rig.until_claim_gone("db").await;
    // Where the leader sees the deletion late, its own write and an agent's meet, and one of them is made again.
    let writes = rig.journal.since(since, |e| {
        let about = |w: &Write| matches!(w.kind.as_str(), "volumeclaims" | "attachments");
        e.is_taken() && e.write().is_some_and(about)
    });
    // A machine or a watch that is slow makes it last, and what lasts is told, once.
    let (told, writes): (Vec<_>, Vec<_>) = writes.into_iter().partition(|e| {
        let tells = |w: &Write| w.kind == "volumeclaims" && w.subresource == "status";
        e.actor == "controller" && e.write().is_some_and(tells)
    });
    let text = Journal::text(&writes);
    assert!(told.len() <= 1, "told:\n{}", Journal::text(&told));
    assert_eq!(writes.len(), 4, "{text}");
}
