//! The page of a Plugin: its driver on every node, and what there is of it.

use super::super::page::Page;
use super::super::scene::{Scene, Scope};
use super::super::words::{conditions, full_name, tally, turned_age};
use super::rows::{caller, conditions_of, ills, leaving};
use crate::api::conditions::{Condition, READY, find};
use crate::api::{Attachment, Plugin, PluginInstance, Snapshot, Volume};

/// Adds the page.
pub(super) fn add(page: &mut Page, scene: &Scene, plugin: &Plugin, scope: &Scope) {
    let name = full_name(&plugin.metadata);
    let status = plugin.status.clone().unwrap_or_default();
    page.heading(&format!("Plugin {name}"));
    let version = status.version.as_ref().map(|version| format!(" {version}")).unwrap_or_default();
    page.fact("Driver", &format!("{}{version}", plugin.driver_name()));
    page.fact("State", &well(&status.conditions));
    leaving(page, scene, &plugin.metadata);
    page.fact("Controllers", &so_many_well(status.controllers_healthy, status.controllers_expected));
    page.fact("Nodes", &so_many_well(status.nodes_healthy, status.nodes_expected));
    page.fact("Calls", &format!("{:?}", plugin.balancing()));
    page.fact_if("Made by", status.active.as_ref().map(|active| caller(scene, active)));
    page.fact(
        "Pods",
        &plugin.kubelet_name().map_or_else(|| "not served".into(), |name| format!("served as {name}")),
    );
    let volumes = scene.volumes.iter().filter(|volume| volume.spec.plugin_name == name);
    page.fact("Volumes", &format!("{}{}", tally(volumes.map(Volume::state)), scope.of()));
    let snapshots = scene.snapshots.iter().filter(|snapshot| snapshot.plugin_name() == Some(&name));
    page.fact("Snapshots", &format!("{}{}", tally(snapshots.map(Snapshot::state)), scope.of()));
    let attached = scene.attachments.iter().filter(|attachment| attachment.spec.fixed.plugin_name == name);
    page.fact("Attachments", &tally(attached.map(state_of)));
    instances(page, scene, &name);
    conditions(page, scene.now, "Plugin", &status.conditions);
}

/// Whether a driver is well, by its conditions.
pub(super) fn well(conditions: &[Condition]) -> String {
    match find(conditions, READY) {
        None => "not known yet".into(),
        Some(ready) if ready.status == "True" => "well".into(),
        Some(ready) => format!("not well ({})", ready.reason),
    }
}

fn so_many_well(healthy: i64, expected: i64) -> String {
    format!("{healthy} of {expected} well")
}

fn state_of(attachment: &Attachment) -> crate::api::AttachmentState {
    attachment.status.as_ref().map(|status| status.state).unwrap_or_default()
}

/// Its processes, with what is wrong with each.
fn instances(page: &mut Page, scene: &Scene, plugin: &str) {
    let mut all: Vec<_> =
        scene.instances.iter().filter(|instance| instance.spec.plugin_name == plugin).collect();
    all.sort_by_key(|instance| &instance.spec.node_name);
    if all.is_empty() {
        page.heading("No agent has found its driver");
        return;
    }
    let row = |instance: &&PluginInstance| {
        let [well, since, serves, volumes, id, version] = process(scene, instance);
        let node = &instance.spec.node_name;
        [node.clone(), well, since, serves, volumes, id, version, scene.heard(node)]
    };
    page.heading("Instances");
    let rows: Vec<_> = all.iter().map(row).collect();
    page.table(2, ["NODE", "WELL", "SINCE", "SERVES", "VOLUMES", "NODE ID", "VERSION", "AGENT"], &rows);
    for instance in all {
        ills(page, scene, instance, &format!("on {}", instance.spec.node_name));
    }
}

/// What tables of processes say of one: whether it is well, since when, what it serves, the volumes on its node, and how its
/// driver calls the node and itself.
pub(super) fn process(scene: &Scene, instance: &PluginInstance) -> [String; 6] {
    let status = instance.status.clone().unwrap_or_default();
    let (node, plugin) = (&instance.spec.node_name, &instance.spec.plugin_name);
    [
        if status.healthy { "yes" } else { "no" }.to_owned(),
        turned_age(scene.now, &instance.metadata, conditions_of(Some(&status), |status| &status.conditions)),
        services(status.controller, status.node).to_owned(),
        volumes_on(scene, node, plugin, status.max_volumes),
        status.node_id,
        status.version,
    ]
}

/// What a process serves.
pub(super) fn services(controller: bool, node: bool) -> &'static str {
    match (controller, node) {
        (true, true) => "Controller, Node",
        (true, false) => "Controller",
        (false, true) => "Node",
        (false, false) => "nothing",
    }
}

/// How many volumes of a driver are on a node, and how many may be.
pub(super) fn volumes_on(scene: &Scene, node: &str, plugin: &str, most: i64) -> String {
    let here = |attachment: &&Attachment| {
        attachment.spec.node_name == node && attachment.spec.fixed.plugin_name == plugin
    };
    let count = scene.attachments.iter().filter(here).count();
    if most > 0 { format!("{count} of {most}") } else { count.to_string() }
}
