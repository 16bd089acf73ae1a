//! Which passes over Snapshots an event asks for, and which passes a Snapshot asks for.

use std::sync::Arc;

use super::caches::{
    BY_SNAPSHOT_HANDLE, BY_SOURCE, BY_VOLUME, BY_VOLUME_HANDLE, UNSETTLED, from_snapshot, from_volume,
    is_unsettled,
};
use super::key::{Key, VolumeKey};
use super::known::Known;
use crate::api::snapshot::SnapshotAssignment;
use crate::api::{Snapshot, Volume};

/// Snapshots that wait for somebody.
pub(crate) fn unsettled(known: &Known) -> Vec<Arc<Snapshot>> {
    known.snapshots.by_index(UNSETTLED, UNSETTLED.0)
}

/// Asks for passes over the Snapshots that may wait for this Plugin. Of one that is not assigned it is not known which it is.
pub(crate) fn wake_unsettled(known: &Known, plugin: &str) {
    let may_be = |snapshot: &Arc<Snapshot>| snapshot.plugin_name().is_none_or(|name| name == plugin);
    for snapshot in unsettled(known).into_iter().filter(may_be) {
        known.queue.sweep(Key::of_snapshot(&snapshot));
    }
}

/// Asks for passes over what waits for a Snapshot: the Volumes that are made of it, and its own Volumes, which may be deleted.
pub(crate) fn snapshot_changed(known: &Known, before: Option<&Arc<Snapshot>>, after: Option<&Arc<Snapshot>>) {
    let Some(snapshot) = after.or(before) else { return };
    known.queue.add(Key::of_snapshot(snapshot));
    if let Some(of) = &snapshot.spec.volume_snapshot_content {
        known.queue.add(Key::of_content(snapshot.is_group(), &of.name));
    }
    let (namespace, name) = (snapshot.metadata.namespace.clone(), snapshot.metadata.name.clone());
    let key = VolumeKey { namespace: namespace.unwrap_or_default(), name: name.unwrap_or_default() };
    wake_made_from(known, &from_snapshot(&key));
    // One that is to be deleted, or is not known to be its own, waits for all others that stand for the same.
    for id in [before, after].into_iter().flatten().flat_map(|snapshot| snapshot.handles()) {
        for other in known.snapshots.by_index(BY_SNAPSHOT_HANDLE, id) {
            if other.metadata.uid != snapshot.metadata.uid && is_unsettled(&other) {
                known.queue.add(Key::of_snapshot(&other));
            }
            // A group waits for the Snapshots of its members' contents.
            if let Some(of) = other.spec.volume_snapshot_content.as_ref().filter(|_| other.is_group()) {
                known.queue.add(Key::GroupContent(of.name.clone()));
            }
        }
    }
    // Whoever registers the volume anew, when its first Volume was removed by force, waits for its snapshots too.
    for of in snapshot.spec.assignment.iter().flat_map(SnapshotAssignment::taken_of) {
        for contender in known.volumes.by_index(BY_VOLUME_HANDLE, &of.volume_handle) {
            known.queue.add(Key::of(&contender));
        }
    }
    for of in VolumeKey::of_snapshots_volumes(snapshot) {
        let volume = known.volumes.get_in(of.named());
        if volume.is_some_and(|volume| volume.metadata.deletion_timestamp.is_some()) {
            known.queue.add(Key::Volume(of));
        }
    }
}

/// Asks for passes over what is made of a Volume, or is to be, and over what it is made of: that may be deleted, and wait for it.
pub(crate) fn volume_changed(known: &Known, key: &VolumeKey, volume: Option<&Volume>) {
    for snapshot in known.snapshots.by_index(BY_VOLUME, &key.to_string()) {
        if is_unsettled(&snapshot) {
            known.queue.add(Key::of_snapshot(&snapshot));
        }
    }
    wake_made_from(known, &from_volume(key));
    let assigned = volume.and_then(|volume| volume.spec.assignment.as_ref()?.source.as_ref());
    for id in assigned.iter().filter_map(|source| source.snapshot_handle.as_deref()) {
        for snapshot in known.snapshots.by_index(BY_SNAPSHOT_HANDLE, id) {
            known.queue.sweep(Key::of_snapshot(&snapshot));
        }
    }
    let Some(source) = volume.and_then(|volume| volume.spec.source.as_ref()) else { return };
    let named = |name: &String| VolumeKey { namespace: key.namespace.clone(), name: name.clone() };
    if let Some(name) = &source.volume_name {
        known.queue.sweep(Key::Volume(named(name)));
    }
    if let Some(name) = &source.snapshot_name {
        known.queue.sweep(Key::Snapshot(named(name)));
    }
}

fn wake_made_from(known: &Known, source: &str) {
    for volume in known.volumes.by_index(BY_SOURCE, source) {
        if volume.spec.assignment.is_none() {
            known.queue.add(Key::of(&volume));
        }
    }
}
