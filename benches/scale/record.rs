//! The writes that moor makes about one object, as its own behaviour says them.
//!
//! Before anything is measured moor takes a Volume and a claim on each of two nodes through all phases, by way of the rig's
//! proxy, which writes down every write. What in them is of these objects alone (names, UIDs, versions) becomes a
//! placeholder. So the bare client makes moor's writes of today, and nobody has to keep two lists in step.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use moor::api::capability::AccessMode;
use moor::api::lock::{DriverVolume, attachment_name, handle_name};
use serde_json::{Value, json};

use crate::cluster::{Cluster, path_of, send};
use crate::plugin::DRIVER;
use crate::rig::proxy::{self, Role, Upstream};
use crate::rig::stall::Stalls;
use crate::rig::{CONTROLLER, Entry, Gate, Journal, Write};
use crate::rounds::{Phase, request_of, warm_up};
use crate::watch::Goal;

/// No writes for so long: those about an object that is Ready, or gone, have been made.
const QUIET: Duration = Duration::from_millis(500);
/// Two processes now and then race, and one of them finds that its write is not needed any more. What most of so many
/// Volumes and claims take is the rule.
const SAMPLES: usize = 5;

/// Kinds in plural, and what an object of the kind is here.
pub const KINDS: [(&str, &str); 4] = [
    ("volumes", "volume"),
    ("volumeclaims", "claim"),
    ("volumehandles", "handle"),
    ("attachments", "attachment"),
];

/// What stands in a body for the version of the object that the client last saw.
pub const VERSION: &str = "{version}";

/// One write, to be made about other objects.
#[derive(Clone, Debug)]
pub struct Step {
    /// The controller, or a node's name.
    pub actor: String,
    pub verb: String,
    /// Plural name of the kind.
    pub kind: String,
    /// With placeholders.
    pub path: String,
    /// With placeholders. A PUT has none: it sends the object as it was last seen, without its finalizers.
    pub body: String,
    /// Fields of the metadata that a PUT sends.
    pub metadata: Vec<String>,
}

impl Step {
    /// Who makes it, verb and resource.
    pub fn shown(&self) -> String {
        let actor = if self.actor == CONTROLLER { "controller" } else { "agent" };
        let subresource = if self.path.ends_with("/status") { "/status" } else { "" };
        format!("{actor} {} {}{subresource}", self.verb, self.kind)
    }
}

/// The writes of each phase, by the node of the claim.
pub type Script = BTreeMap<String, BTreeMap<Phase, Vec<Step>>>;

/// What stands for an object of this role: `{volume}`, and its UID.
pub fn placeholders(role: &str) -> [String; 2] {
    [format!("{{{role}}}"), format!("{{{role}-uid}}")]
}

/// The names of the VolumeHandle and the Attachment of a Volume with this UID on a node.
pub fn locks(volume_uid: &str, node: &str) -> [String; 2] {
    // What the plugin answers to CreateVolume.
    let handle = format!("moor-{volume_uid}");
    let volume = DriverVolume { driver: DRIVER, handle: &handle };
    [handle_name(volume), attachment_name(volume, AccessMode::SingleNodeWriter, node)]
}

/// Has moor take Volumes and claims through all phases, one after the other. Moor's processes are started for this and have
/// ended afterwards.
pub async fn record(cluster: &Arc<Cluster>) -> Script {
    let journal = Journal::default();
    let upstream = tokio::sync::watch::Sender::new(Upstream::new(cluster.control_plane.admin.clone()));
    let mut kubeconfigs = BTreeMap::<String, PathBuf>::new();
    let folder = cluster.directory.join("recorded");
    std::fs::create_dir_all(&folder).unwrap();
    for actor in cluster.actors.keys() {
        let role = if actor == CONTROLLER { Role::Controller } else { Role::Agent(actor) };
        let led = upstream.subscribe();
        let (gate, stalls) = (Gate::default(), Stalls::default());
        let path = proxy::open(&folder, actor, &role, led, journal.clone(), gate, stalls).await;
        kubeconfigs.insert(actor.clone(), path);
    }
    cluster.run(Some(&kubeconfigs));
    // What is written only once, for the first object of all, is not the objects'.
    warm_up(cluster, None).await;
    let mut script = Script::new();
    for node in cluster.nodes.iter().take(2) {
        let mut samples = Vec::new();
        for _ in 0..SAMPLES {
            samples.push(record_one(cluster, &journal, node).await);
        }
        script.insert(node.clone(), Phase::PARTS.map(|phase| (phase, usual(&samples, phase))).into());
    }
    cluster.stop().await;
    // The agent of the first node makes the plugin's Controller calls; all others are like the second.
    for node in cluster.nodes.iter().skip(2) {
        let alike = like(&script[&cluster.nodes[1]], cluster, [&cluster.nodes[1], node]).await;
        script.insert(node.clone(), alike);
    }
    script
}

/// The steps of one node as those of another.
async fn like(
    steps: &BTreeMap<Phase, Vec<Step>>,
    cluster: &Cluster,
    nodes: [&String; 2],
) -> BTreeMap<Phase, Vec<Step>> {
    let mut renamed = Vec::new();
    for node in nodes {
        let text = send(&cluster.user, "GET", &format!("/api/v1/nodes/{node}"), &Value::Null).await.unwrap();
        let object: Value = serde_json::from_str(&text).unwrap();
        renamed.push([node.clone(), object["metadata"]["uid"].as_str().unwrap().to_owned()]);
    }
    let other =
        |text: &str| text.replace(&renamed[0][0], &renamed[1][0]).replace(&renamed[0][1], &renamed[1][1]);
    let step = |step: &Step| Step {
        actor: other(&step.actor),
        path: other(&step.path),
        body: other(&step.body),
        ..step.clone()
    };
    steps.iter().map(|(phase, steps)| (*phase, steps.iter().map(step).collect())).collect()
}

/// The steps of a phase as most samples have them; of those that are as many the longest.
fn usual(samples: &[BTreeMap<Phase, Vec<Step>>], phase: Phase) -> Vec<Step> {
    let labels = |sample: &BTreeMap<Phase, Vec<Step>>| -> Vec<(String, String)> {
        sample[&phase].iter().map(|step| (step.verb.clone(), step.path.clone())).collect()
    };
    let so_many = |this: &Vec<_>| samples.iter().filter(|other| labels(other) == *this).count();
    let rank = |sample: &&BTreeMap<Phase, Vec<Step>>| {
        let labels = labels(sample);
        (so_many(&labels), labels.len())
    };
    samples.iter().max_by_key(rank).unwrap()[&phase].clone()
}

async fn record_one(cluster: &Cluster, journal: &Journal, node: &str) -> BTreeMap<Phase, Vec<Step>> {
    // The Events of an object outlive it, and are named after it.
    let name = format!("recorded-{}", cluster.next_round());
    let mut known = BTreeMap::new();
    let mut entries = BTreeMap::new();
    for phase in Phase::PARTS {
        let since = journal.now();
        let observer = phase.observer(cluster);
        observer.begin(phase.goals());
        observer.sent(&name);
        let (method, body) = request_of(phase, &name, node);
        cluster.ask(method, phase.kind(), &name, &body).await;
        observer.until_all_are_there().await;
        until_quiet(journal).await;
        if phase.goals() == [Goal::Ready] {
            learn(cluster, phase, &name, node, &mut known).await;
        }
        let is_about = |entry: &Entry| entry.is_taken() && entry.write().is_some_and(is_about_objects);
        entries.insert(phase, journal.since(since, is_about));
    }
    let steps = |of: Vec<Entry>| of.iter().map(|entry| step(entry, &known)).collect();
    entries.into_iter().map(|(phase, of)| (phase, steps(of))).collect()
}

/// Of the kinds that a Volume and a claim are made of, and what is told of them. Should moor write others for each of them one
/// day, its rounds have writes that the bare client's have not, and the bench fails.
fn is_about_objects(write: &Write) -> bool {
    write.kind == "events" || KINDS.iter().any(|(kind, _)| *kind == write.kind)
}

/// Waits until nothing more is written about the objects. That nothing will be cannot be seen, only waited for.
async fn until_quiet(journal: &Journal) {
    loop {
        let since = journal.now();
        tokio::time::sleep(QUIET).await;
        let write = |entry: &Entry| entry.write().is_some_and(is_about_objects);
        if journal.since(since, write).is_empty() {
            return;
        }
    }
}

/// Notes the names and UIDs of what there is now, with what stands for them.
async fn learn(
    cluster: &Cluster,
    phase: Phase,
    name: &str,
    node: &str,
    known: &mut BTreeMap<String, String>,
) {
    let read = async |path: String| -> Value {
        serde_json::from_str(&send(&cluster.user, "GET", &path, &Value::Null).await.unwrap()).unwrap()
    };
    let uid_of = |object: &Value| object["metadata"]["uid"].as_str().unwrap().to_owned();
    let own = read(format!("{}/{name}", path_of(phase.kind()))).await;
    let volume = read(format!("{}/{name}", path_of("volumes"))).await;
    let [handle, attachment] = locks(&uid_of(&volume), node);
    let (role, lock_role, kind, lock) = match phase {
        Phase::MakeVolumes => ("volume", "handle", "volumehandles", handle),
        _ => ("claim", "attachment", "attachments", attachment),
    };
    let held = read(format!("/apis/moor.dev/v1alpha1/{kind}/{lock}")).await;
    for (role, name, object) in [(role, name, &own), (lock_role, &lock, &held)] {
        let [for_name, for_uid] = placeholders(role);
        known.insert(uid_of(object), for_uid);
        // Volume and claim have one name.
        known.insert(name.to_owned(), if role == "claim" { "{volume}".to_owned() } else { for_name });
    }
}

fn step(entry: &Entry, known: &BTreeMap<String, String>) -> Step {
    let write = entry.write().unwrap();
    let in_general = |text: String| known.iter().fold(text, |text, (this, any)| text.replace(this, any));
    let mut body = write.body.clone();
    let metadata = body["metadata"].as_object().map(|metadata| metadata.keys().cloned().collect());
    for place in ["/metadata/resourceVersion", "/preconditions/resourceVersion"] {
        if let Some(version) = body.pointer_mut(place) {
            *version = json!(VERSION);
        }
    }
    // Of other groups nothing is written but what is new.
    let version = body["apiVersion"].as_str().filter(|_| write.verb == "POST");
    let mut path = vec!["/apis", version.unwrap_or("moor.dev/v1alpha1")];
    if !write.namespace.is_empty() {
        path.extend(["namespaces", &write.namespace]);
    }
    path.push(&write.kind);
    // What is new has its name in the body.
    let place = [write.name.as_str(), &write.subresource].into_iter().filter(|part| !part.is_empty());
    path.extend(place.filter(|_| write.verb != "POST"));
    let path = path.join("/");
    Step {
        actor: entry.actor.clone(),
        verb: write.verb.clone(),
        kind: write.kind.clone(),
        path: in_general(path),
        body: if write.verb == "PUT" { String::new() } else { in_general(body.to_string()) },
        metadata: metadata.unwrap_or_default(),
    }
}
