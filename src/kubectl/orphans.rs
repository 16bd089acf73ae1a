//! Storage that no object stands for, and objects whose storage their drivers do not list any more.

use super::page::Page;
use super::scene::Scene;
use super::words::{age, full_name};
use crate::api::conditions::{ORPHANS, STORAGE_FOUND, find, find_as};
use crate::api::quantity;
use crate::api::storage::{OrphanedStorage, StorageKind};
use crate::api::{Plugin, Snapshot, Volume};
use crate::volume::handle_of;

/// The page.
pub(super) fn page(scene: &Scene) -> Page {
    let mut page = Page::default();
    let orphans: Vec<_> = scene.plugins.iter().flat_map(orphans_of).collect();
    if orphans.is_empty() {
        page.line(0, "No storage is known that moor has had made and that no object stands for");
    } else {
        page.heading("Storage that no object stands for");
        let row = |(plugin, orphan): &(&Plugin, &OrphanedStorage)| {
            [
                full_name(&plugin.metadata),
                orphan.kind.as_str().to_owned(),
                orphan.handle.clone(),
                orphan.bytes.map(quantity::human).unwrap_or_default(),
                format!("{} ago", age(scene.now, orphan.since.0)),
                orphan.create_name.clone(),
                orphan.uid.clone(),
            ]
        };
        let rows: Vec<_> = orphans.iter().map(row).collect();
        page.table(2, ["PLUGIN", "KIND", "HANDLE", "SIZE", "FOUND", "MADE AS", "FOR UID"], &rows);
        unnamed(&mut page, scene);
        page.line(2, "To keep one, create an object that names it; it is told no more then:");
        for kind in [StorageKind::Volume, StorageKind::Snapshot] {
            if orphans.iter().any(|(_, orphan)| orphan.kind == kind) {
                page.line(4, registration(kind));
            }
        }
        page.line(
            2,
            "Else make sure that nobody needs it, and delete it with the storage's own tools: moor does not",
        );
    }
    missing(&mut page, scene);
    silent(&mut page, scene);
    page.not_seen(&scene.unseen);
    page
}

fn orphans_of(plugin: &Plugin) -> impl Iterator<Item = (&Plugin, &OrphanedStorage)> {
    let named = plugin.status.iter().flat_map(|status| &status.orphans);
    named.map(move |orphan| (plugin, orphan))
}

fn unnamed(page: &mut Page, scene: &Scene) {
    for plugin in &scene.plugins {
        let Some(status) = &plugin.status else { continue };
        let named = i64::try_from(status.orphans.len()).unwrap_or(i64::MAX);
        let more = status.orphaned_volumes.saturating_add(status.orphaned_snapshots).saturating_sub(named);
        if more > 0 {
            let name = full_name(&plugin.metadata);
            page.line(
                2,
                &format!("and {more} more of Plugin {name}, which come here when some of these are gone"),
            );
        }
    }
}

fn registration(kind: StorageKind) -> &'static str {
    match kind {
        StorageKind::Volume => "a Volume with spec.pluginName PLUGIN and spec.volumeHandle HANDLE",
        StorageKind::Snapshot => "a Snapshot with spec.pluginName PLUGIN and spec.snapshotHandle HANDLE",
    }
}

/// The objects that say that their storage is missing.
fn missing(page: &mut Page, scene: &Scene) {
    let of_volume = |volume: &Volume| {
        let status = volume.status.as_ref()?;
        let found = find_as(&status.conditions, STORAGE_FOUND, "False")?;
        let id = handle_of(volume).unwrap_or_default().to_owned();
        Some((
            StorageKind::Volume,
            full_name(&volume.metadata),
            volume.spec.plugin_name.clone(),
            id,
            found.clone(),
        ))
    };
    let of_snapshot = |snapshot: &Snapshot| {
        let status = snapshot.status.as_ref()?;
        let found = find_as(&status.conditions, STORAGE_FOUND, "False")?;
        let id = snapshot.handle().or(snapshot.said_handle()).unwrap_or_default().to_owned();
        let plugin = snapshot.plugin_name().unwrap_or_default().to_owned();
        Some((StorageKind::Snapshot, full_name(&snapshot.metadata), plugin, id, found.clone()))
    };
    let volumes = scene.volumes.iter().filter_map(of_volume);
    let all: Vec<_> = volumes.chain(scene.snapshots.iter().filter_map(of_snapshot)).collect();
    if all.is_empty() {
        page.line(0, "No object is known whose storage its driver does not list any more");
        return;
    }
    page.heading("Objects whose storage the driver does not list any more");
    let rows: Vec<_> = all
        .into_iter()
        .map(|(kind, name, plugin, id, found)| {
            let since = format!("{} ago", age(scene.now, found.last_transition_time.0));
            [kind.as_str().to_owned(), name, plugin, id, since]
        })
        .collect();
    page.table(2, ["KIND", "NAME", "PLUGIN", "HANDLE", "FOUND"], &rows);
    page.line(2, "Look at the storage: if it is gone, delete the object, and create it anew from a backup");
}

/// Drivers that are not asked: of them nothing is known.
fn silent(page: &mut Page, scene: &Scene) {
    let is_asked = |plugin: &&Plugin| {
        let status = plugin.status.as_ref();
        let lists = |what: &str| status.is_some_and(|status| status.capabilities.controller_has(what));
        lists("LIST_VOLUMES")
            || lists("LIST_SNAPSHOTS")
            || status.is_some_and(|status| find(&status.conditions, ORPHANS).is_some())
    };
    for plugin in scene.plugins.iter().filter(|plugin| !is_asked(plugin)) {
        let name = full_name(&plugin.metadata);
        page.line(0, &format!("The driver of Plugin {name} lists nothing (no LIST_VOLUMES, no LIST_SNAPSHOTS): nothing is known of it"));
    }
}
