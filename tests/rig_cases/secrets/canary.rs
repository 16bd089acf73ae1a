//! Words that are in Secrets and in mount flags, and must be nowhere else.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use data_encoding::BASE64;
use kube::api::{Patch, PatchParams};
use moor::api::SnapshotState;
use moor::csi::Rpc;
use serde_json::{Value, json};
use tonic::Code;

use super::{ADMIN, CALLS, Made};
use crate::rig::fake::WORDS;
use crate::rig::fake::backend::Expand;
use crate::rig::{CONTROLLER, Cluster, Entry, Fault, Options, Rig, registered, volume, volume_claim};
use crate::snapshots::objects::{registered as registered_snapshot, snapshot};

const NODE: &str = "node-2";
const NODES: [&str; 2] = ["node-1", NODE];

/// Kinds of which every object is looked at.
const KINDS: [&str; 14] = [
    "/apis/moor.dev/v1alpha1/plugins",
    "/apis/moor.dev/v1alpha1/plugininstances",
    "/apis/moor.dev/v1alpha1/volumes",
    "/apis/moor.dev/v1alpha1/snapshots",
    "/apis/moor.dev/v1alpha1/volumeclaims",
    "/apis/moor.dev/v1alpha1/volumehandles",
    "/apis/moor.dev/v1alpha1/attachments",
    "/api/v1/events",
    "/apis/events.k8s.io/v1/events",
    "/apis/coordination.k8s.io/v1/leases",
    "/api/v1/persistentvolumes",
    "/api/v1/persistentvolumeclaims",
    "/apis/storage.k8s.io/v1/csidrivers",
    "/api/v1/nodes",
];

/// Where mount flags have to be, since users and the leader put them there for the agents to read.
const FLAGS: [&str; 5] = [
    "/spec/mountOptions",
    "/spec/fixed/mountOptions",
    "/spec/assignment/granted/mountFlags",
    "/spec/assignment/made/mountFlags",
    "/spec/assignment/edit/mountFlags",
];

/// Names of the fields of `spec.secrets`.
const FIELDS: [&str; 9] = [
    "default",
    "controller",
    "controllerPublish",
    "controllerExpand",
    "controllerModify",
    "snapshot",
    "nodeStage",
    "nodePublish",
    "nodeExpand",
];

fn canary(of: &str) -> String {
    format!("canary-of-{}-5ad7", of.to_lowercase())
}

/// An object without its mount flags.
fn without_flags(object: &Value) -> Value {
    let mut object = object.clone();
    for flags in FLAGS {
        if let Some(found) = object.pointer_mut(flags) {
            *found = Value::Null;
        }
    }
    object
}

/// The files below a folder that have one of these words.
fn files_with(folder: &Path, words: &[String], read: &mut usize) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            found.extend(files_with(&path, words, read));
        } else if kind.is_file() {
            // It may be written anew just now, and is looked at under its other name.
            let text = String::from_utf8_lossy(&fs::read(&path).unwrap_or_default()).into_owned();
            *read += text.len();
            found.extend(words.iter().find(|word| text.contains(*word)).map(|word| {
                let at = text.find(word.as_str()).unwrap_or_default();
                let line = text[..at].rsplit('\n').next().unwrap_or_default().to_owned();
                format!("{word} in {}: {line}", path.display())
            }));
        }
    }
    found
}

/// Where a word is to be seen: in what the processes have written to the API server or to disk, log or count, and in objects.
pub async fn places(rig: &Rig, words: &[String], nodes: &[&str]) -> Vec<String> {
    let encoded = words.iter().map(|word| {
        // The last characters depend on what follows.
        let text = BASE64.encode(word.as_bytes());
        text[..text.len() - 4].to_owned()
    });
    let words: Vec<String> = words.iter().cloned().chain(encoded).collect();
    let has = |text: &str| words.iter().find(|word| text.contains(*word)).cloned();
    let mut found = Vec::new();
    let written = rig.journal.since(0, |entry: &Entry| entry.write().is_some());
    assert!(!written.is_empty(), "nothing was written: this shows nothing");
    for entry in written {
        let text = without_flags(&entry.write().unwrap().body).to_string();
        found.extend(has(&text).map(|word| format!("{word} in {entry}: {text}")));
    }
    let mut objects = 0;
    for path in KINDS {
        let get = http::Request::get(path).body(Vec::new()).unwrap();
        let list: Value = serde_json::from_str(&rig.cluster.admin.request_text(get).await.unwrap()).unwrap();
        for object in list["items"].as_array().unwrap() {
            objects += 1;
            let text = without_flags(object).to_string();
            found.extend(has(&text).map(|word| format!("{word} in {path}: {text}")));
        }
    }
    let mut read = 0;
    for node in nodes {
        found.extend(files_with(&rig.state_dir(node), &words, &mut read));
        found.extend(files_with(&rig.kubelet_dir(node), &words, &mut read));
    }
    let mut logged = 0;
    found.extend(files_with(&rig.logs(), &words, &mut logged));
    for actor in nodes.iter().chain([&CONTROLLER]) {
        let text = rig.metrics(actor).await;
        assert!(text.contains("moor_"), "{text}");
        found.extend(has(&text).map(|word| format!("{word} in the metrics of {actor}")));
    }
    assert!(objects > 0 && read > 0 && logged > 0, "nothing was looked at");
    found
}

/// Has a call fail in words that repeat the whole request, waits until moor has told that, and lets it succeed.
async fn fail_once(rig: &Rig, key: &str, rpc: Rpc, ask: impl Future<Output = ()>) {
    let since = rig.journal.now();
    rig.fake.fail(key, rpc, Fault::CodeBefore(Code::Internal));
    ask.await;
    let told = |entry: &Entry| {
        let body = entry.write().filter(|_| entry.is_taken()).map(|write| write.body.to_string());
        body.is_some_and(|text| {
            // What was said is there, and what of it is secret is not.
            text.contains(WORDS)
                && text.contains(rpc.name())
                && (!CALLS.contains(&rpc) || text.contains("<hidden>"))
        })
    };
    let look = || (!rig.journal.since(since, told).is_empty()).then_some(());
    rig.cluster.until(&format!("{rpc} of {key} is told to fail"), look, || rig.story(key)).await;
    rig.fake.heal(key, rpc);
}

async fn change(rig: &Rig, volume: &str, spec: Value) {
    let patch = Patch::Merge(json!({ "spec": spec }));
    rig.volume_api().patch(volume, &PatchParams::default(), &patch).await.unwrap();
}

/// A volume's whole life, in which every call fails first, in words that repeat what it was called with. Each kind of call
/// has a Secret of its own, and all that the processes can log is logged.
pub(super) async fn no_secret_is_to_be_seen_anywhere(cluster: Arc<Cluster>) {
    let options = Options {
        snapshots: true,
        modify: true,
        expand: Expand::ByController,
        traces: true,
        ..Options::default()
    };
    let rig = Rig::start(&cluster, options).await;
    let mut made = Made::new(&cluster);
    let mut templates = json!({});
    for field in FIELDS {
        let name = field.to_lowercase();
        made.make(ADMIN, &name, &canary(field)).await;
        templates[field] = json!({ "name": name, "namespace": ADMIN });
    }
    rig.name_secrets(templates).await;
    for key in ["v", "r", "s", "found"] {
        rig.fake.repeat(key);
    }

    let mut created = volume("v");
    let flags = json!({ "mountFlags": [format!("x-volume={}", canary("flags")), "noatime"] });
    created.spec.mount_options = serde_json::from_value(flags).unwrap();
    fail_once(&rig, "v", Rpc::CreateVolume, rig.make_volume(&created)).await;
    rig.until_volume_ready("v").await;
    let handle = rig.fake.backend().add("r");
    let register = async { rig.make_volume(&registered("r", &handle)).await };
    fail_once(&rig, "r", Rpc::ValidateVolumeCapabilities, register).await;
    rig.until_volume_ready("r").await;

    let mut claim = volume_claim("v", "v", NODE);
    let flags = json!({ "mountFlags": [format!("x-claim={}", canary("claim")), "nodev"] });
    claim.spec.mount_options = serde_json::from_value(flags).unwrap();
    // Each of them waits for the one before.
    for rpc in [Rpc::NodeStageVolume, Rpc::NodePublishVolume] {
        rig.fake.fail("v", rpc, Fault::CodeBefore(Code::Internal));
    }
    fail_once(&rig, "v", Rpc::ControllerPublishVolume, rig.make_claim(&claim)).await;
    fail_once(&rig, "v", Rpc::NodeStageVolume, async {}).await;
    fail_once(&rig, "v", Rpc::NodePublishVolume, async {}).await;
    rig.until_ready("v").await;
    fail_once(&rig, "v", Rpc::ControllerExpandVolume, change(&rig, "v", json!({ "capacity": "2Mi" }))).await;
    rig.until_volume_gets("v", |status| status.capacity.as_deref() == Some("2Mi")).await;
    let gold = json!({ "mutableParameters": { "tier": "gold" } });
    fail_once(&rig, "v", Rpc::ControllerModifyVolume, change(&rig, "v", gold)).await;
    rig.until_volume_gets("v", |status| status.mutable_parameters.contains_key("tier")).await;

    let edited = json!({ "mountOptions": { "mountFlags": [format!("x-edited={}", canary("edited"))] } });
    fail_once(&rig, "v", Rpc::ValidateVolumeCapabilities, change(&rig, "v", edited)).await;
    rig.until_volume_gets("v", |status| status.edit.as_ref().is_some_and(|edit| edit.error.is_none())).await;

    fail_once(&rig, "v", Rpc::CreateSnapshot, async { rig.make_snapshot(&snapshot("s", "v")).await }).await;
    rig.until_snapshot("s", SnapshotState::Ready).await;
    let handle = rig.fake.backend().add_snapshot("found", "v");
    let register = async { rig.make_snapshot(&registered_snapshot("found", &handle, json!({}))).await };
    fail_once(&rig, "found", Rpc::ListSnapshots, register).await;
    rig.until_snapshot("found", SnapshotState::Ready).await;

    let words: Vec<_> = FIELDS.iter().chain(&["flags", "claim", "edited"]).map(|of| canary(of)).collect();
    let mut seen = places(&rig, &words, &NODES).await;
    // What is on its disk is read again.
    rig.restart_and_wait(NODE).await;

    fail_once(&rig, "s", Rpc::DeleteSnapshot, rig.delete_snapshot("s")).await;
    rig.until_snapshot_gone("s").await;
    rig.delete_snapshot("found").await;
    rig.until_snapshot_gone("found").await;
    for rpc in [Rpc::NodeUnstageVolume, Rpc::ControllerUnpublishVolume] {
        rig.fake.fail("v", rpc, Fault::CodeBefore(Code::Internal));
    }
    fail_once(&rig, "v", Rpc::NodeUnpublishVolume, rig.delete_claim("v")).await;
    fail_once(&rig, "v", Rpc::NodeUnstageVolume, async {}).await;
    fail_once(&rig, "v", Rpc::ControllerUnpublishVolume, async {}).await;
    rig.until_claim_gone("v").await;
    fail_once(&rig, "v", Rpc::DeleteVolume, rig.delete_volume("v")).await;
    rig.until_volume_gone("v").await;
    rig.remove(&[] as &[&str], &["r"]).await;
    seen.extend(places(&rig, &words, &NODES).await);
    assert!(seen.is_empty(), "{}", seen.join("\n"));

    // All of it was there to be seen.
    for (key, rpc, of) in [
        ("v", Rpc::CreateVolume, "controller"),
        ("r", Rpc::ValidateVolumeCapabilities, "controller"),
        ("v", Rpc::ControllerPublishVolume, "controllerPublish"),
        ("v", Rpc::NodeStageVolume, "nodeStage"),
        ("v", Rpc::NodePublishVolume, "nodePublish"),
        ("v", Rpc::ControllerExpandVolume, "controllerExpand"),
        ("v", Rpc::ControllerModifyVolume, "controllerModify"),
        ("v", Rpc::CreateSnapshot, "snapshot"),
        ("found", Rpc::ListSnapshots, "snapshot"),
        ("s", Rpc::DeleteSnapshot, "snapshot"),
        ("v", Rpc::ControllerUnpublishVolume, "controllerPublish"),
        ("v", Rpc::DeleteVolume, "controller"),
    ] {
        assert_eq!(super::words(&rig, key, &[rpc]), [canary(of)], "{rpc} of {key}");
    }
    made.remove().await;
}

impl Rig {
    /// Waits until a Volume's status is so.
    async fn until_volume_gets(&self, name: &str, is: impl Fn(&moor::api::VolumeStatus) -> bool) {
        let look = || self.cluster.volume(name)?.status.as_ref().filter(|status| is(status)).map(drop);
        self.cluster.until(&format!("Volume {name} has what was asked for"), look, || self.story(name)).await;
    }
}
