//! The page of a node: its agent, its drivers, and the volumes on it.

use super::super::page::Page;
use super::super::scene::{Scene, Scope, node_of};
use super::plugin::process;
use super::rows::{attachments, claims, ills};
use crate::api::PluginInstance;

/// Adds the page. False: there is nothing to say.
pub(super) fn add(page: &mut Page, scene: &Scene, node: &str, scope: &Scope) -> bool {
    let mut instances: Vec<_> = scene.instances.iter().filter(|i| i.spec.node_name == node).collect();
    let on_it: Vec<_> = scene.attachments.iter().filter(|a| a.spec.node_name == node).collect();
    let (using, waiting): (Vec<_>, Vec<_>) = scene
        .claims
        .iter()
        .filter(|claim| node_of(claim) == Some(node))
        .partition(|claim| claim.spec.assignment.is_some());
    let agent = scene.agent(node);
    let is_empty = instances.is_empty() && on_it.is_empty() && using.is_empty() && waiting.is_empty();
    if agent.is_none() && is_empty {
        return false;
    }
    page.heading(&format!("Node {node}"));
    page.fact("Agent", &scene.heard(node));
    if agent.is_some_and(|agent| agent.leftovers) {
        page.fact(
            "Left over",
            "mounts of volumes that were taken from it while it was silent, or it has yet to find out; it undoes them \
             before it gets those volumes again",
        );
    }
    instances.sort_by_key(|instance| &instance.spec.plugin_name);
    drivers(page, scene, &instances);
    let of = scope.of();
    claims(page, scene, &format!("Claims{of} that have a volume there"), using.into_iter());
    claims(page, scene, &format!("Claims{of} that wait for one there"), waiting.into_iter());
    attachments(page, scene, on_it.into_iter());
    true
}

fn drivers(page: &mut Page, scene: &Scene, instances: &[&PluginInstance]) {
    if instances.is_empty() {
        let sees = scene.sees::<PluginInstance>();
        page.heading(if sees { "No driver was found there" } else { "Its drivers are not seen" });
        return;
    }
    let row = |instance: &&PluginInstance| {
        let [well, since, serves, volumes, id, version] = process(scene, instance);
        [instance.spec.plugin_name.clone(), well, since, serves, volumes, id, version]
    };
    page.heading("Drivers");
    let rows: Vec<_> = instances.iter().map(row).collect();
    page.table(2, ["PLUGIN", "WELL", "SINCE", "SERVES", "VOLUMES", "NODE ID", "VERSION"], &rows);
    for instance in instances {
        ills(page, scene, instance, &instance.spec.plugin_name);
    }
}
