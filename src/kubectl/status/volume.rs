//! The page of a Volume: who uses it, where, since when, and who waits.

use super::super::page::Page;
use super::super::scene::Scene;
use super::super::words::{conditions, full_name, last_said, since, turned, turned_age, why};
use super::origin::{may_be_made_of, may_be_of};
use super::rows::{attachments, caller, claims, conditions_of, leaving};
use crate::api::volume::{DeletionPolicy, Modification, VolumeAssignment};
use crate::api::{Snapshot, Volume, VolumeStatus};
use crate::volume::health;

/// Adds the page.
pub(super) fn add(page: &mut Page, scene: &Scene, volume: &Volume) {
    let now = scene.now;
    let status = volume.status.clone().unwrap_or_default();
    page.heading(&format!("Volume {}", full_name(&volume.metadata)));
    page.fact("Plugin", &plugin(scene, &volume.spec.plugin_name));
    let conditions_now = conditions_of(volume.status.as_ref(), |status| &status.conditions);
    let lasted = turned(&volume.metadata, conditions_now).map(|at| format!(" {}", since(now, at)));
    page.fact("State", &format!("{:?}{}", status.state, lasted.unwrap_or_default()));
    leaving(page, scene, &volume.metadata);
    page.fact_if("Size", size(volume, &status));
    page.fact_if("Handle", status.volume_handle.clone().or_else(|| volume.spec.volume_handle.clone()));
    page.fact_if("Made of", source(volume));
    page.fact(
        "At its end",
        if volume.spec.deletes_storage() { "its storage is deleted" } else { "its storage stays" },
    );
    page.fact_if("For Pods", pods(volume, &status));
    if let Some(assignment) = &volume.spec.assignment {
        page.fact("Own calls", &own_calls(scene, assignment));
    }
    held(page, scene, &status);
    for finding in &status.health {
        let lasted = since(now, finding.finding.since.0);
        page.fact("Health", &format!("{} {lasted}", health::words(finding)));
    }
    page.fact_if(
        "Last said",
        last_said(now, status.last_error.as_deref(), status.attempts, status.next_retry.as_ref()),
    );
    if let Some(failure) = &status.expansion_failure {
        let said = last_said(now, Some(&failure.error), None, None).unwrap_or_default();
        page.fact("Larger", &format!("{} bytes were asked for in vain: {said}", failure.capacity_bytes));
    }
    if let Some(Modification { error: Some(error), .. }) = status.modification.as_deref() {
        page.fact(
            "Modified",
            &format!("not yet: {}", last_said(now, Some(error), None, None).unwrap_or_default()),
        );
    }
    let (using, waiting): (Vec<_>, Vec<_>) =
        scene.claims_of(volume).partition(|claim| claim.spec.assignment.is_some());
    if using.is_empty() {
        page.heading("No claim has it");
    }
    claims(page, scene, "Used by", using.into_iter());
    claims(page, scene, "Waited for by", waiting.into_iter());
    attachments(page, scene, scene.attachments_of(volume));
    children(page, scene, volume);
    conditions(page, now, "Volume", conditions_now);
}

fn plugin(scene: &Scene, name: &str) -> String {
    let Some(plugin) = scene.plugin(name) else { return format!("{name}, which is not seen") };
    let now = conditions_of(plugin.status.as_ref(), |status| &status.conditions);
    format!("{name} (driver {}), {}", plugin.driver_name(), super::plugin::well(now))
}

fn size(volume: &Volume, status: &VolumeStatus) -> Option<String> {
    let asked = volume.spec.capacity.as_ref().map(|asked| asked.0.as_str());
    match (&status.capacity, asked) {
        (Some(has), Some(asked)) if has != asked => Some(format!("{has}, asked for {asked}")),
        (Some(has), _) => Some(has.clone()),
        (None, Some(asked)) => Some(format!("asked for {asked}")),
        (None, None) => None,
    }
}

fn source(volume: &Volume) -> Option<String> {
    let source = volume.spec.source.as_ref()?;
    match (&source.snapshot_name, &source.volume_name) {
        (Some(group), Some(member)) => Some(format!("Snapshot {group}, that of Volume {member}")),
        (Some(snapshot), None) => Some(format!("Snapshot {snapshot}")),
        (None, Some(volume)) => Some(format!("Volume {volume}")),
        (None, None) => None,
    }
}

fn pods(volume: &Volume, status: &VolumeStatus) -> Option<String> {
    if let Some(made) = &status.export {
        let (claim, volume) = (&made.persistent_volume_claim, &made.persistent_volume);
        return Some(format!("PersistentVolumeClaim {claim}, by PersistentVolume {volume}"));
    }
    if let Some(export) = &volume.spec.persistent_volume_claim {
        return Some(format!("PersistentVolumeClaim {}, which is not made yet", export.name));
    }
    let made = volume.spec.persistent_volume.as_ref()?;
    let (namespace, name) = (&made.claim.namespace, &made.claim.name);
    Some(format!("PersistentVolumeClaim {namespace}/{name}, by PersistentVolume {}", made.name))
}

fn own_calls(scene: &Scene, assignment: &VolumeAssignment) -> String {
    let operation = assignment.operation;
    match &assignment.controller {
        Some(controller) => format!("{operation:?}, by {}", caller(scene, controller)),
        None => format!("{operation:?}, by nobody: the driver has no Controller service"),
    }
}

/// The lock on the driver's volume.
fn held(page: &mut Page, scene: &Scene, status: &VolumeStatus) {
    let Some(handle) = status.handle_name.as_deref().and_then(|name| scene.handle(name)) else { return };
    let spec = &handle.spec;
    let closing = match spec.closed_for.filter(|_| spec.closing) {
        Some(DeletionPolicy::Delete) => ", closed: the storage is to be deleted",
        Some(DeletionPolicy::Retain) => ", closed: the storage is to stay",
        None if spec.closing => ", closing: those who use it so are waited for",
        None => "",
    };
    page.fact("Used as", &format!("{}{closing}", spec.mode));
    if let Some(writer) = &spec.writer {
        page.fact("Written by", &writer.holder.claim);
    }
    for node in handle.status.iter().filter_map(|status| status.drift.as_ref()).flat_map(|drift| &drift.nodes)
    {
        let lasted = since(scene.now, node.since.0);
        page.fact("Drift", &format!("{:?} at the storage on node id {} {lasted}", node.kind, node.node_id));
    }
}

/// What is made of it: Snapshots, and Volumes.
fn children(page: &mut Page, scene: &Scene, volume: &Volume) {
    let (namespace, name) = (volume.metadata.namespace.as_ref(), volume.metadata.name.as_ref());
    let of = |snapshot: &&Snapshot| {
        snapshot.metadata.namespace.as_ref() == namespace
            && snapshot.spec.volumes().any(|of| Some(of) == name)
            && may_be_of(snapshot, volume)
    };
    let row = |snapshot: &Snapshot| {
        let now = conditions_of(snapshot.status.as_ref(), |status| &status.conditions);
        let state = format!("{:?}", snapshot.state());
        [full_name(&snapshot.metadata), state, turned_age(scene.now, &snapshot.metadata, now), why(now)]
    };
    let snapshots: Vec<_> = scene.snapshots.iter().filter(of).map(row).collect();
    if !snapshots.is_empty() {
        page.heading("Snapshots of it");
        page.table(2, ["SNAPSHOT", "STATE", "SINCE", "WHY"], &snapshots);
    }
    let copied = |other: &&Volume| {
        let source = other.spec.source.as_ref().filter(|source| source.snapshot_name.is_none());
        let source = source.and_then(|source| source.volume_name.as_ref());
        other.metadata.namespace.as_ref() == namespace
            && name.is_some()
            && source == name
            && may_be_made_of(other, &volume.metadata)
    };
    copies(page, scene.volumes.iter().filter(copied));
}

/// Adds the Volumes that are made of something.
pub(super) fn copies<'a>(page: &mut Page, copies: impl Iterator<Item = &'a Volume>) {
    let row = |volume: &Volume| {
        let now = conditions_of(volume.status.as_ref(), |status| &status.conditions);
        [full_name(&volume.metadata), format!("{:?}", volume.state()), why(now)]
    };
    let rows: Vec<_> = copies.map(row).collect();
    if !rows.is_empty() {
        page.heading("Volumes made of it");
        page.table(2, ["VOLUME", "STATE", "WHY"], &rows);
    }
}
