//! What the API server cannot refuse, and what its condition says, in the words of docs/bad-input.md.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Error;
use moor::csi::Rpc;
use serde_json::{Value, json};
use tonic::Code;

use super::manifest::{Manifest, Who};
use super::table::{Fate, Page, Row, Unrefused, is_update, shown};
use crate::rig::fake::DRIVER;
use crate::rig::{Cluster, Fault, LOOK, Options, PATIENCE, Rig, SPACE, volume};

/// A namespace that may have volumes made and nothing else.
const PLAIN: &str = "plain";
/// How long a condition is given to become what it stays, when it is written down.
const SETTLED: Duration = Duration::from_secs(20);

pub async fn every_row_gets_its_condition_as_it_is_written(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options { snapshots: true, ..Options::default() }).await;
    set_the_scene(&rig).await;
    let storage = || -> Vec<String> {
        let backend = rig.fake.backend();
        backend.volumes.keys().chain(backend.snapshots.keys()).cloned().collect()
    };
    let (page, before) = (Page::read(), storage());
    let mut made = Vec::new();
    for row in page.rows(&[Fate::Taken]) {
        let manifest = Manifest::new(&row.kind, &row.given[0], &row.name());
        let refusal = manifest.make(&cluster.admin, Who::User).await.err();
        made.push((row, manifest, refusal));
    }
    if is_update() {
        tokio::time::sleep(SETTLED).await;
    }
    let end = Instant::now() + PATIENCE / 2;
    let mut all = Vec::new();
    // Twice: what is said for a moment only is not what a user finds.
    for _ in 0..2 {
        all.clear();
        for (row, manifest, refusal) in &made {
            let message = match refusal {
                None => message(&cluster, row, manifest, end).await,
                Some(refusal) => Err(Unrefused(format!("is not taken: {refusal:?}"))),
            };
            all.push((row.clone(), message));
        }
    }
    page.settle(&[Fate::Taken], &all);
    assert_eq!(storage(), before, "something was made at the driver");
}

/// What the page says that there is.
async fn set_the_scene(rig: &Rig) {
    let only = |namespaces: &[&str]| json!({ "namespaces": namespaces });
    let allow =
        json!({ "register": only(&[SPACE]), "parameterise": only(&[SPACE]), "deleteRegistered": only(&[]) });
    rig.patch_plugin(json!({ "allow": allow })).await;
    rig.make_plugin_named("twin", json!({ "driverName": DRIVER })).await;
    rig.fake.fail("too-large", Rpc::CreateVolume, Fault::CodeBefore(Code::OutOfRange));
    make_namespace(rig, PLAIN).await;
    rig.make_volume(&volume("data")).await;
    rig.until_volume_ready("data").await;
    let spec = format!("metadata: {{ namespace: {PLAIN} }}, spec: {{ pluginName: {DRIVER}, capacity: 1Gi }}");
    let other = Manifest::new("Volume", &spec, "data");
    other.make(&rig.cluster.admin, Who::User).await.unwrap();
    let end = Instant::now() + PATIENCE;
    while other.read(&rig.cluster.admin).await.pointer("/status/state") != Some(&json!("Ready")) {
        assert!(Instant::now() < end, "Volume data of namespace {PLAIN} is never Ready");
        tokio::time::sleep(LOOK).await;
    }
}

/// A namespace stays for the cases that come later.
async fn make_namespace(rig: &Rig, name: &str) {
    let request = http::Request::post("/api/v1/namespaces").header("content-type", "application/json");
    let body = json!({ "metadata": { "name": name } }).to_string().into_bytes();
    match rig.cluster.admin.request_text(request.body(body).unwrap()).await {
        Err(Error::Api(status)) if status.code == 409 => {}
        other => drop(other.unwrap()),
    }
}

/// What the condition of the row says: as soon as it is what the page says, or at the end of all patience.
async fn message(
    cluster: &Cluster,
    row: &Row,
    manifest: &Manifest,
    end: Instant,
) -> Result<String, Unrefused> {
    let (type_, reason) = row.given[1].split_once(": ").unwrap();
    loop {
        let live = manifest.read(&cluster.admin).await;
        let conditions = live.pointer("/status/conditions").and_then(Value::as_array);
        let found =
            conditions.and_then(|all| all.iter().find(|c| c["type"] == type_ && c["status"] == "False"));
        let found = found.filter(|found| found["reason"] == reason);
        let said = found.map(|found| shown(untimed(found["message"].as_str().unwrap()), &row.name()));
        let late = Instant::now() > end;
        match said {
            Some(said) if late || is_update() || said == row.message => return Ok(said),
            None if late => {
                return Err(Unrefused(format!("never says {type_} False {reason}, but {}", live["status"])));
            }
            Some(_) | None => tokio::time::sleep(LOOK).await,
        }
    }
}

/// A message without how often it was tried, and when it is again.
fn untimed(message: &str) -> &str {
    message.split_once("; attempt ").map_or(message, |(words, _)| words)
}
