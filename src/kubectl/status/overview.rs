//! The page of everything: drivers, how many of what in which state, what waits longest, and who is silent.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

use super::super::page::Page;
use super::super::scene::{Scene, Scope};
use super::super::words::{age, full_name, reason_and_message, tally, troubles};
use super::rows::{conditions_of, ills};
use crate::api::conditions::{Condition, READY, Reason, SILENT, UNDONE, find, find_as, is_true};
use crate::api::names::agent_lease_name;
use crate::api::{Attachment, ClaimState, Plugin, VolumeClaim};

/// Most things that wait which are named.
const NAMED: usize = 10;

/// Adds the page.
pub(super) fn add(page: &mut Page, scene: &Scene, scope: &Scope) {
    plugins(page, scene);
    page.heading(&format!("Objects{}", scope.of()));
    page.fact("Volumes", &counted(&scene.volumes, |volume| format!("{:?}", volume.state())));
    page.fact("Snapshots", &counted(&scene.snapshots, |snapshot| format!("{:?}", snapshot.state())));
    page.fact("Claims", &counted(&scene.claims, |claim| format!("{:?}", state_of(claim))));
    if scope.namespace().is_none() {
        let attached =
            scene.attachments.iter().map(|a| a.status.as_ref().map(|s| s.state).unwrap_or_default());
        page.fact("Attachments", &tally(attached));
    }
    waits(page, scene);
    silent(page, scene, scope);
}

/// Counts objects by state, and how many of them are being deleted.
fn counted<K: Resource<DynamicType = ()>>(all: &[K], state: impl Fn(&K) -> String) -> String {
    let mut by_state: BTreeMap<String, usize> = BTreeMap::new();
    for object in all {
        *by_state.entry(state(object)).or_default() += 1;
    }
    let leaving = all.iter().filter(|object| object.meta().deletion_timestamp.is_some()).count();
    let each: Vec<_> = by_state.iter().map(|(state, count)| format!("{count} {state}")).collect();
    match (all.len(), leaving) {
        (0, _) => "none".into(),
        (count, 0) => format!("{count}: {}", each.join(", ")),
        (count, leaving) => format!("{count}: {}; {leaving} of them leaving", each.join(", ")),
    }
}

/// Whether a claim has no volume any more, although it was granted one.
fn has_ended(claim: &VolumeClaim) -> bool {
    matches!(state_of(claim), ClaimState::Lost | ClaimState::NodeDetached)
}

fn state_of(claim: &VolumeClaim) -> ClaimState {
    claim.status.as_ref().map(|status| status.state).unwrap_or_default()
}

fn plugins(page: &mut Page, scene: &Scene) {
    if scene.plugins.is_empty() {
        page.heading("No Plugin is seen");
        return;
    }
    let row = |plugin: &Plugin| {
        let status = plugin.status.clone().unwrap_or_default();
        let ready = find(&status.conditions, READY);
        let well = ready.map_or("not said", |ready| if ready.status == "True" { "yes" } else { "no" });
        [
            full_name(&plugin.metadata),
            plugin.driver_name().to_owned(),
            well.to_owned(),
            format!("{}/{}", status.controllers_healthy, status.controllers_expected),
            format!("{}/{}", status.nodes_healthy, status.nodes_expected),
            status.version.unwrap_or_default(),
        ]
    };
    page.heading("Plugins");
    let rows: Vec<_> = scene.plugins.iter().map(row).collect();
    page.table(2, ["PLUGIN", "DRIVER", "WELL", "CONTROLLERS", "NODES", "VERSION"], &rows);
    for plugin in &scene.plugins {
        let name = full_name(&plugin.metadata);
        for trouble in troubles(conditions_of(plugin.status.as_ref(), |status| &status.conditions)) {
            let lasted = age(scene.now, trouble.last_transition_time.0);
            page.line(4, &format!("{name}: for {lasted}: {}", reason_and_message(trouble)));
        }
        let mut instances: Vec<_> = scene.instances.iter().filter(|i| i.spec.plugin_name == name).collect();
        instances.sort_by_key(|instance| &instance.spec.node_name);
        for instance in instances {
            ills(page, scene, instance, &format!("{name} on {}", instance.spec.node_name));
        }
    }
}

/// Something that waits.
struct Wait {
    since: Timestamp,
    what: String,
    why: String,
}

fn waits(page: &mut Page, scene: &Scene) {
    let mut all = Vec::new();
    for volume in &scene.volumes {
        let now = conditions_of(volume.status.as_ref(), |status| &status.conditions);
        all.extend(waits_of("Volume", &volume.metadata, now));
    }
    for snapshot in &scene.snapshots {
        let now = conditions_of(snapshot.status.as_ref(), |status| &status.conditions);
        all.extend(waits_of("Snapshot", &snapshot.metadata, now));
    }
    for claim in &scene.claims {
        let now = conditions_of(claim.status.as_ref(), |status| &status.conditions);
        all.extend(waits_of("VolumeClaim", &claim.metadata, now));
    }
    // Whatever keeps one from a claim is told at the claim. What keeps it from going no claim tells.
    let goes = |a: &&Attachment| a.metadata.deletion_timestamp.is_some() || a.spec.lost.is_some();
    for attachment in scene.attachments.iter().filter(goes) {
        let now = conditions_of(attachment.status.as_ref(), |status| &status.conditions);
        let spec = &attachment.spec;
        let what =
            format!("Attachment of {}/{} on {}", spec.volume.namespace, spec.volume.name, spec.node_name);
        all.extend(waits_as(what, &attachment.metadata, now));
    }
    for instance in &scene.instances {
        let now = conditions_of(instance.status.as_ref(), |status| &status.conditions);
        let undone = find_as(now, UNDONE, "False").into_iter();
        let what = format!("PluginInstance {}", full_name(&instance.metadata));
        all.extend(undone.map(|undone| Wait {
            since: undone.last_transition_time.0,
            what: what.clone(),
            why: reason_and_message(undone),
        }));
    }
    if all.is_empty() {
        page.heading("Nothing waits");
        return;
    }
    all.sort_by(|a, b| (a.since, &a.what).cmp(&(b.since, &b.what)));
    page.heading("Waits longest");
    let rows: Vec<_> =
        all.iter().take(NAMED).map(|w| [age(scene.now, w.since), w.what.clone(), w.why.clone()]).collect();
    page.table(2, ["FOR", "WHAT", "WHY"], &rows);
    if let Some(more) = all.len().checked_sub(NAMED).filter(|more| *more > 0) {
        page.line(2, &format!("and {more} more"));
    }
}

/// What an object waits for. That its node is silent is told for all claims of the node at once.
fn waits_of(kind: &str, meta: &ObjectMeta, conditions: &[Condition]) -> Vec<Wait> {
    waits_as(format!("{kind} {}", full_name(meta)), meta, conditions)
}

fn waits_as(what: String, meta: &ObjectMeta, conditions: &[Condition]) -> Vec<Wait> {
    let told = troubles(conditions)
        .into_iter()
        .filter(|c| c.type_ != SILENT || c.reason != Reason::NoHeartbeat.as_str());
    let told = told.map(|trouble| (trouble.last_transition_time.0, reason_and_message(trouble)));
    if let Some(deleted) = &meta.deletion_timestamp {
        let told: Vec<_> = told.map(|(_, why)| why).collect();
        let why = if told.is_empty() { "deleted".into() } else { format!("deleted; {}", told.join("; ")) };
        return vec![Wait { since: deleted.0, what, why }];
    }
    if find(conditions, READY).is_none() {
        let since = meta.creation_timestamp.as_ref().map(|time| time.0).unwrap_or_default();
        return vec![Wait { since, what, why: "nothing is said of it yet".into() }];
    }
    told.map(|(since, why)| Wait { since, what: what.clone(), why }).collect()
}

/// The nodes that are silent, by the Leases of their agents and by what the leader has said on claims.
fn silent(page: &mut Page, scene: &Scene, scope: &Scope) {
    let mut nodes: BTreeMap<String, (String, Option<Timestamp>, usize)> = BTreeMap::new();
    for agent in scene.agents.iter().flatten() {
        if let Some(since) = agent.silent_since(scene.now) {
            nodes.insert(agent.lease.clone(), (agent.node().to_owned(), Some(since), 0));
        }
    }
    let with_volume = || {
        let all = scene.claims.iter().filter(|claim| !has_ended(claim));
        all.filter_map(|claim| Some((claim, claim.spec.assignment.as_ref()?.node_name.as_str())))
    };
    for (claim, node) in with_volume() {
        let now = conditions_of(claim.status.as_ref(), |status| &status.conditions);
        if is_true(now, SILENT) || (scene.agents.is_some() && scene.agent(node).is_none()) {
            nodes.entry(agent_lease_name(node)).or_insert_with(|| (node.to_owned(), None, 0));
        }
    }
    for (_, node) in with_volume() {
        if let Some((name, _, claims)) = nodes.get_mut(&agent_lease_name(node)) {
            // The name of a Lease does not always have that of its node.
            node.clone_into(name);
            *claims += 1;
        }
    }
    if nodes.is_empty() {
        let known = scene.agents.is_some();
        page.heading(if known { "No node is silent" } else { "No claim says that its node is silent" });
        return;
    }
    page.heading("Silent nodes");
    let of = scope.of();
    for (node, since, claims) in nodes.into_values() {
        let lasted =
            since.map_or_else(String::new, |since| format!(", last heard {} ago", age(scene.now, since)));
        let keep = match claims {
            0 => format!("no claim{of} has a volume there"),
            1 => format!("1 claim{of} keeps its volume there"),
            more => format!("{more} claims{of} keep their volumes there"),
        };
        page.line(2, &format!("{node}{lasted}: {keep}"));
    }
}
