//! Every property of every kind is edited on live objects, one at a time and in pairs, to values inside and outside of what its
//! schema allows, and back: each edit is refused with its message or answered, and after each that was taken back everything is
//! as it was before.

pub mod patch;
mod scene;
pub mod schema;
pub mod values;

use std::sync::Arc;

use kube::core::Status;
use serde_json::{Value, json};

use crate::bad_input::manifest::said;
use crate::cases;
use crate::rig::{Case, Cluster, is_whole, say};
use scene::Scene;
use schema::{Property, of_kind, properties};
use values::candidates;

pub const CASES: &[Case] =
    cases![plugins, volumes, snapshots, volume_claims, plugin_instances, volume_handles, attachments];

/// The kinds that are users'. Of all others every word is moor's, and a rule may speak of their spec as a whole.
const OF_USERS: [&str; 4] = ["Plugin", "Volume", "Snapshot", "VolumeClaim"];
/// Of the pairs of a kind the short form tries those of each property with so many that follow it.
const NEIGHBOURS: usize = 2;

/// How many edits there were.
#[derive(Default)]
struct Count {
    properties: usize,
    refused: usize,
    same: usize,
    taken: usize,
    pairs: usize,
}

/// What became of an edit.
enum Outcome {
    Refused,
    /// The object says it already.
    Same,
    /// It was taken, and then taken back.
    Taken,
}

/// An edit that was taken, alone.
struct Taken {
    property: Property,
    value: Value,
}

async fn campaign(cluster: &Arc<Cluster>, kind: &str, plural: &str) {
    let scene = Scene::make(cluster, plural).await;
    let schema = of_kind(kind);
    let mut count = Count::default();
    let mut taken = Vec::new();
    for property in properties(kind, "spec") {
        count.properties += 1;
        for candidate in candidates(&property.schema) {
            let value = candidate.value;
            let live = scene.read().await;
            let patch = patch::putting(&schema, &live, &property, value.clone());
            let edit = format!("{kind} {property} = {}", short(&value));
            match edited(&scene, &live, &patch, &edit, &[&property], candidate.outside).await {
                Outcome::Refused => count.refused += 1,
                Outcome::Same => count.same += 1,
                Outcome::Taken => {
                    count.taken += 1;
                    taken.push(Taken { property: property.clone(), value });
                }
            }
        }
    }
    statuses(&scene, kind, &schema, &mut count).await;
    // One value of each property that can be edited at all, and the last one: the first is often that there is none.
    taken.reverse();
    taken.dedup_by(|next, before| next.property.path == before.property.path);
    for (number, first) in taken.iter().enumerate() {
        let most = if is_whole() { taken.len() } else { NEIGHBOURS };
        for second in taken.iter().skip(number + 1).take(most) {
            let live = scene.read().await;
            let patches =
                [first, second].map(|one| patch::putting(&schema, &live, &one.property, one.value.clone()));
            let [one, other] = patches;
            let edit = format!("{kind} {} and {}", first.property, second.property);
            let both = [&first.property, &second.property];
            let _ = edited(&scene, &live, &patch::both(one, other), &edit, &both, false).await;
            count.pairs += 1;
        }
    }
    scene.end().await;
    say(&format!(
        "{kind}: {} properties; of one at a time {} edits were refused, {} changed nothing, {} were taken and taken back; {} of two",
        count.properties, count.refused, count.same, count.taken, count.pairs
    ));
}

/// Makes an edit and, if it is taken, takes it back.
async fn edited(
    scene: &Scene,
    live: &Value,
    patch: &Value,
    edit: &str,
    of: &[&Property],
    is_outside: bool,
) -> Outcome {
    let after = match scene.ask("PATCH", &scene.path, patch).await {
        Err(refused) => {
            assert_is_told(&refused, edit, of);
            return Outcome::Refused;
        }
        Ok(after) => after,
    };
    assert!(!is_outside, "{edit} is not what the schema allows, and was taken: {after}");
    if after["metadata"]["generation"] == live["metadata"]["generation"] {
        return Outcome::Same;
    }
    scene.until_answered(&scene.path).await;
    // What moor has written into it meanwhile stays moor's.
    let own = |object: &Value| {
        let mut spec = object["spec"].clone();
        spec.as_object_mut().unwrap().remove("assignment");
        spec
    };
    let back = json!({ "spec": patch::leading(&own(&after), &own(live)) });
    if let Err(refused) = scene.ask("PATCH", &scene.path, &back).await {
        panic!("{edit} was taken, and cannot be taken back by {back}: {}", refused.message);
    }
    scene.until_answered(&scene.path).await;
    if of.iter().any(|property| ["controller", "node"].contains(&property.field())) {
        scene.remove_workloads().await;
    }
    scene.until_as_before(edit).await;
    Outcome::Taken
}

/// No user writes a status.
async fn statuses(scene: &Scene, kind: &str, schema: &Value, count: &mut Count) {
    for property in properties(kind, "status") {
        count.properties += 1;
        let live = scene.read().await;
        for candidate in
            candidates(&property.schema).into_iter().filter(|candidate| !candidate.value.is_null())
        {
            let patch = patch::putting(schema, &live, &property, candidate.value.clone());
            let edit = format!("{kind} {property} = {}", short(&candidate.value));
            let refused = scene.ask("PATCH", &format!("{}/status", scene.path), &patch).await;
            let refused = refused.err().unwrap_or_else(|| panic!("{edit} was taken from a user"));
            assert_is_told(&refused, &edit, &[&property]);
            count.refused += 1;
        }
    }
    scene.until_as_before("all that users wrote into its status").await;
}

/// A refusal names the field, or the kind that is not for users.
fn assert_is_told(refused: &Status, edit: &str, of: &[&Property]) {
    let words = said(refused);
    let is_named = of.iter().any(|property| words.contains(property.field()));
    let is_kept = words.contains("moor controller") || words.contains("written by");
    let is_of_users = edit.split(' ').next().is_some_and(|kind| OF_USERS.contains(&kind));
    let is_of_whole = !is_of_users && words.starts_with("spec");
    assert!(is_named || is_kept || is_of_whole, "{edit} is refused without a word on what is wrong: {words}");
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(60).collect()
}

async fn plugins(cluster: Arc<Cluster>) {
    campaign(&cluster, "Plugin", "plugins").await;
}

async fn volumes(cluster: Arc<Cluster>) {
    campaign(&cluster, "Volume", "volumes").await;
}

async fn snapshots(cluster: Arc<Cluster>) {
    campaign(&cluster, "Snapshot", "snapshots").await;
}

async fn volume_claims(cluster: Arc<Cluster>) {
    campaign(&cluster, "VolumeClaim", "volumeclaims").await;
}

async fn plugin_instances(cluster: Arc<Cluster>) {
    campaign(&cluster, "PluginInstance", "plugininstances").await;
}

async fn volume_handles(cluster: Arc<Cluster>) {
    campaign(&cluster, "VolumeHandle", "volumehandles").await;
}

async fn attachments(cluster: Arc<Cluster>) {
    campaign(&cluster, "Attachment", "attachments").await;
}
