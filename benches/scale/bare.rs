//! The bare client: makes the writes that moor makes, with the identities that moor has, and decides nothing.
//!
//! What moor is slower by is what it takes to decide: to read, to watch, to call the plugin, to keep its records.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::record::{KINDS, Script, Step, VERSION, locks, placeholders};
use crate::rounds::Phase;

/// Who makes the writes of a [`Script`].
pub struct Client {
    script: Script,
}

/// What is known of one Volume and its claim, and of what moor makes for the two.
pub struct Chain {
    /// Of both.
    name: String,
    node: String,
    /// What the placeholders stand for here.
    values: Vec<(String, String)>,
    /// The objects as they were last answered, by the plural names of their kinds.
    known: HashMap<&'static str, Known>,
}

struct Known {
    version: String,
    text: String,
}

/// The part of an answer that the next write goes by.
#[derive(Deserialize)]
struct Answer {
    kind: String,
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    resource_version: String,
}

impl Chain {
    pub fn new(name: String, node: &str) -> Self {
        Self { name, node: node.to_owned(), values: Vec::new(), known: HashMap::new() }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn node(&self) -> &str {
        &self.node
    }

    /// An object of this kind was answered.
    pub fn learn(&mut self, kind: &str, text: String) {
        let Some((kind, role)) = KINDS.into_iter().find(|(plural, _)| *plural == kind) else { return };
        let answer: Answer = serde_json::from_str(&text).unwrap();
        // A deletion that leaves nothing is answered with the word that it succeeded.
        if answer.kind == "Status" {
            return;
        }
        let Metadata { uid, resource_version: version } = answer.metadata;
        if self.known.insert(kind, Known { version, text }).is_some() {
            return;
        }
        let [for_name, for_uid] = placeholders(role);
        if role == "volume" {
            let [handle, attachment] = locks(&uid, &self.node);
            let [for_handle, for_attachment] =
                ["handle", "attachment"].map(|role| placeholders(role)[0].clone());
            self.values.extend([
                (for_name, self.name.clone()),
                (for_handle, handle),
                (for_attachment, attachment),
            ]);
        }
        self.values.push((for_uid, uid));
    }

    /// The claim and its Attachment are gone: what is made next under their names are others.
    pub fn forget_claim(&mut self) {
        for (kind, role) in KINDS.into_iter().filter(|(_, role)| ["claim", "attachment"].contains(role)) {
            self.known.remove(kind);
            let [_, for_uid] = placeholders(role);
            self.values.retain(|(any, _)| *any != for_uid);
        }
    }

    fn filled(&self, text: &str) -> String {
        self.values.iter().fold(text.to_owned(), |text, (any, this)| text.replace(any, this))
    }

    /// The object as it was last seen, with the fields of its metadata that moor sends, and without finalizers.
    fn let_go(&self, step: &Step) -> String {
        let mut object: Value = serde_json::from_str(&self.known[step.kind.as_str()].text).unwrap();
        object["metadata"].as_object_mut().unwrap().retain(|field, _| step.metadata.contains(field));
        object.to_string()
    }
}

impl Client {
    pub fn new(script: Script) -> Self {
        Self { script }
    }

    /// The writes of one phase about one object, whose claim is on this node.
    pub fn steps(&self, node: &str, phase: Phase) -> &[Step] {
        &self.script[node][&phase]
    }

    /// Makes the writes of one phase about one object, one after the other.
    pub async fn walk(&self, cluster: &Cluster, phase: Phase, chain: &mut Chain) {
        for number in 0..self.steps(&chain.node, phase).len() {
            self.make(cluster, (phase, number), chain).await;
        }
    }

    /// Makes one write of one phase about one object.
    pub async fn make(&self, cluster: &Cluster, (phase, number): (Phase, usize), chain: &mut Chain) {
        let step = &self.steps(&chain.node, phase)[number];
        let path = chain.filled(&step.path);
        let body = if step.verb == "PUT" { chain.let_go(step) } else { chain.filled(&step.body) };
        let version = chain.known.get(step.kind.as_str()).map_or("", |known| &known.version);
        let body = body.replace(VERSION, version);
        let content = if step.verb == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = http::Request::builder().method(step.verb.as_str()).uri(&path);
        let request = request.header("content-type", content).body(body.clone().into_bytes()).unwrap();
        let answer = cluster.actors[&step.actor].client.request_text(request).await;
        let answer = answer.unwrap_or_else(|error| panic!("{} {path}: {error}\n{body}", step.verb));
        chain.learn(&step.kind, answer);
    }

    /// The writes of all phases, for people.
    pub fn shown(&self) -> String {
        let mut lines = Vec::new();
        for (node, phases) in &self.script {
            for (phase, steps) in phases {
                lines.push(format!("{node}, {}:", phase.name()));
                let line =
                    |step: &Step| format!("  {}: {} {} {}", step.actor, step.verb, step.path, step.body);
                lines.extend(steps.iter().map(line));
            }
        }
        lines.join("\n")
    }
}
