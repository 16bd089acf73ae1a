//! The page of a Snapshot: what it is of, how far it is, and what is made of it.

use super::super::page::Page;
use super::super::scene::Scene;
use super::super::words::{age, conditions, full_name, last_said, since, turned};
use super::origin::{may_be_made_of, may_be_of};
use super::rows::{caller, conditions_of, leaving};
use super::volume::copies;
use crate::api::snapshot::{MemberStatus, SnapshotStatus, SnapshotVolume};
use crate::api::{Snapshot, Volume, quantity};

/// Adds the page.
pub(super) fn add(page: &mut Page, scene: &Scene, snapshot: &Snapshot) {
    let now = scene.now;
    let status = snapshot.status.clone().unwrap_or_default();
    page.heading(&format!("Snapshot {}", full_name(&snapshot.metadata)));
    for name in snapshot.spec.volumes() {
        page.fact("Of", &of(scene, snapshot, name));
    }
    if snapshot.spec.snapshot_handle.is_some() {
        page.fact("Of", "a snapshot that exists, and was registered");
    }
    let content = snapshot.spec.volume_snapshot_content.as_ref();
    let kind = if snapshot.is_group() { "VolumeGroupSnapshotContent" } else { "VolumeSnapshotContent" };
    page.fact_if("For", content.map(|of| format!("{kind} {}", of.name)));
    page.fact_if("Plugin", snapshot.plugin_name().map(str::to_owned));
    let conditions_now = conditions_of(snapshot.status.as_ref(), |status| &status.conditions);
    let lasted = turned(&snapshot.metadata, conditions_now).map(|at| format!(" {}", since(now, at)));
    page.fact("State", &format!("{:?}{}", status.state, lasted.unwrap_or_default()));
    leaving(page, scene, &snapshot.metadata);
    page.fact_if(
        "Taken",
        status.creation_time.as_ref().map(|at| format!("{} ago, at {}", age(now, at.0), at.0)),
    );
    page.fact_if("Needs", status.restore_size.clone());
    page.fact_if("Handle", status.snapshot_handle.clone().or_else(|| snapshot.spec.snapshot_handle.clone()));
    let end = if snapshot.spec.deletes_storage() {
        "the driver is told to delete it"
    } else {
        "the driver keeps it"
    };
    page.fact("At its end", end);
    if let Some(assignment) = &snapshot.spec.assignment {
        let calls = caller(scene, &assignment.controller);
        page.fact("Own calls", &format!("{:?}, by {calls}", assignment.operation));
    }
    page.fact_if(
        "Last said",
        last_said(now, status.last_error.as_deref(), status.attempts, status.next_retry.as_ref()),
    );
    let namespace = snapshot.metadata.namespace.as_ref();
    let made = |volume: &&Volume| {
        let source = volume.spec.source.as_ref().and_then(|source| source.snapshot_name.as_ref());
        volume.metadata.namespace.as_ref() == namespace
            && source.is_some()
            && source == snapshot.metadata.name.as_ref()
            && may_be_made_of(volume, &snapshot.metadata)
    };
    members(page, snapshot, &status);
    copies(page, scene.volumes.iter().filter(made));
    conditions(page, now, "Snapshot", conditions_now);
}

/// The members of a group, each with the Volume that it is of.
fn members(page: &mut Page, snapshot: &Snapshot, status: &SnapshotStatus) {
    if status.members.is_empty() {
        return;
    }
    let volumes = snapshot.taken_of();
    let name = |handle: &Option<String>| {
        let is_of = |of: &SnapshotVolume| handle.as_ref() == Some(&of.volume_handle);
        let named = volumes.iter().find(|(_, of)| of.is_some_and(is_of)).map(|(name, _)| (*name).to_owned());
        named.or_else(|| handle.clone()).unwrap_or_default()
    };
    let row = |member: &MemberStatus| {
        let state = if member.ready_to_use { "Ready" } else { "Created" };
        let needs = member.restore_size_bytes.map(quantity::human).unwrap_or_default();
        [name(&member.volume_handle), member.snapshot_handle.clone(), needs, state.to_owned()]
    };
    page.heading("Members");
    page.table(
        2,
        ["VOLUME", "HANDLE", "NEEDS", "STATE"],
        &status.members.iter().map(row).collect::<Vec<_>>(),
    );
}

fn of(scene: &Scene, snapshot: &Snapshot, name: &String) -> String {
    let namespace = snapshot.metadata.namespace.as_ref();
    let is = |volume: &&Volume| {
        volume.metadata.namespace.as_ref() == namespace && volume.metadata.name.as_ref() == Some(name)
    };
    match scene.volumes.iter().find(is) {
        Some(volume) if !may_be_of(snapshot, volume) => {
            format!(
                "an earlier Volume {name}, whose volume was another one than that of the Volume of this name"
            )
        }
        Some(volume) => format!("Volume {name}, {:?}", volume.state()),
        None => format!("Volume {name}, {}", scene.missing::<Volume>()),
    }
}
