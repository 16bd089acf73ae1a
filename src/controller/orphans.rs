//! Tells what the agents have found of storage and objects that do not have each other: on the Plugin, the Volume, the Snapshot.
//! Nothing is done about it (docs/adr/0041).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::caches::{BY_SNAPSHOT_HANDLE, BY_VOLUME_HANDLE};
use super::context::Context;
use super::key::{Key, VolumeKey};
use super::known::Known;
use super::observe::{Observed, is_selected};
use super::volumes;
use crate::api::conditions::{self, Condition, Desired, ORPHANS, STORAGE_FOUND};
use crate::api::lock::{DriverVolume, handle_name};
use crate::api::storage::{OrphanedStorage, StorageKind};
use crate::api::{Plugin, PluginInstance, PluginStatus};
use crate::k8s::cache::Cached;
use crate::k8s::events::EventReason;
use crate::k8s::{ApiError, Cache};
use crate::plugin::orphans::{self, Orphans};
use crate::provision::{Given, SnapshotContent};
use crate::volume::handle_of;
use crate::volume::persistent_volume::CsiSource;

/// What is wrong, or is not any more, and the Event that tells it.
pub(super) type Turn = (Desired, Option<EventReason>);

/// The orphans of a Plugin's driver: what agents have found, without what Kubernetes has.
pub(crate) async fn found(
    ctx: &Context,
    plugin: &Plugin,
    instances: &[Arc<PluginInstance>],
) -> Result<Orphans, ApiError> {
    // As of a Volume, by those that may be given its calls.
    let controlling = instances.iter().filter(|instance| is_selected(ctx, plugin, instance));
    let found = orphans::orphans(plugin, controlling.map(Arc::as_ref));
    let told = plugin.status.as_ref().map(|status| &*status.orphans).unwrap_or_default();
    let mut kept = BTreeSet::new();
    for orphan in &found.named {
        // That it is nobody's was found out when it was first told.
        let is_told = told.iter().any(|told| told.kind == orphan.kind && told.handle == orphan.handle);
        if has_object(ctx, plugin, orphan) || (!is_told && is_kubernetes(ctx, plugin, orphan).await?) {
            kept.insert((orphan.kind, orphan.handle.clone()));
        }
    }
    Ok(found.without(|orphan| kept.contains(&(orphan.kind, orphan.handle.clone()))))
}

/// Whether an object stands for it, as far as the caches know: a node's word alone has nobody's storage told as left (rule R13).
fn has_object(known: &Known, plugin: &Plugin, orphan: &OrphanedStorage) -> bool {
    let (driver, handle) = (plugin.driver_name(), orphan.handle.as_str());
    match orphan.kind {
        StorageKind::Volume => {
            known.handles.get(&handle_name(DriverVolume { driver, handle })).is_some()
                || !known.volumes.by_index(BY_VOLUME_HANDLE, handle).is_empty()
        }
        StorageKind::Snapshot => !known.snapshots.by_index(BY_SNAPSHOT_HANDLE, handle).is_empty(),
    }
}

/// Whether a PersistentVolume or a content of VolumeSnapshots stands for it. The latter by the cache: a moment later it would be told.
async fn is_kubernetes(ctx: &Context, plugin: &Plugin, orphan: &OrphanedStorage) -> Result<bool, ApiError> {
    let drivers = BTreeSet::from([plugin.driver_name(), plugin.kubelet_name().unwrap_or_default()]);
    match orphan.kind {
        StorageKind::Volume => {
            for driver in drivers {
                let source = CsiSource { driver: driver.to_owned(), volume_handle: orphan.handle.clone() };
                let named = ctx.persistent_volumes.naming(&source, None).await?;
                if named.is_some_and(|named| named.certain) {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        StorageKind::Snapshot => {
            let handle = orphan.handle.as_str();
            Ok(stands(&ctx.contents, &drivers, handle) || stands(&ctx.group_contents, &drivers, handle))
        }
    }
}

/// Whether one of these contents stands for a snapshot of one of these drivers: its own, or a group's member.
fn stands<C: SnapshotContent + Cached>(contents: &Cache<C>, drivers: &BTreeSet<&str>, handle: &str) -> bool {
    let is = |there: &Given| there.handle == handle || there.members.iter().any(|member| member == handle);
    let of = |content: &Arc<C>| {
        let there = content.given().or_else(|| content.said_there());
        drivers.contains(content.driver()) && there.as_ref().is_some_and(is)
    };
    contents.all().iter().any(of)
}

/// Puts the orphans into a Plugin's status. Returns the condition, if there is anything to say.
pub(crate) fn say(status: &mut PluginStatus, found: Orphans) -> Option<Desired> {
    let condition = found.condition(conditions::find(&status.conditions, ORPHANS).is_some());
    (status.orphaned_volumes, status.orphaned_snapshots) = (found.volumes, found.snapshots);
    status.orphans = found.named;
    condition
}

/// Publishes an Event if there are orphans that there were not before.
pub(crate) fn tell(ctx: &Context, plugin: &Arc<Plugin>, after: &PluginStatus) {
    let before = plugin.status.as_ref().map(|status| &*status.orphans).unwrap_or_default();
    let is_new = |orphan: &OrphanedStorage| {
        !before.iter().any(|told| told.kind == orphan.kind && told.handle == orphan.handle)
    };
    let condition = conditions::find_as(&after.conditions, ORPHANS, "True");
    if let Some(condition) = condition.filter(|_| after.orphans.iter().any(is_new)) {
        ctx.recorder.tell(plugin, EventReason::OrphanedStorage, "Audit", condition.message.clone());
    }
}

/// Asks for passes over the objects of which an instance says otherwise than before whether their storage is missing.
pub(crate) fn instance_changed(
    known: &Known,
    before: Option<&Arc<PluginInstance>>,
    after: Option<&Arc<PluginInstance>>,
) {
    let of = |instance: Option<&Arc<PluginInstance>>| {
        let report = instance.and_then(|instance| instance.status.as_ref()?.storage.as_ref());
        let missing = report.into_iter().flat_map(|report| &report.missing);
        let key = |namespace: &str, name: &str| VolumeKey { namespace: namespace.into(), name: name.into() };
        missing.map(|one| (one.kind, key(&one.namespace, &one.name))).collect::<BTreeSet<_>>()
    };
    for (kind, key) in of(before).symmetric_difference(&of(after)) {
        known.queue.sweep(match kind {
            StorageKind::Volume => Key::Volume(key.clone()),
            StorageKind::Snapshot => Key::Snapshot(key.clone()),
        });
    }
}

/// What the object with this UID is to say of its storage, if that is otherwise than it says.
pub(super) fn turn<'a>(
    plugin: Option<&'a Plugin>,
    instances: impl Iterator<Item = &'a PluginInstance>,
    (kind, id, uid): (StorageKind, &str, &str),
    said: &[Condition],
) -> Option<Turn> {
    let was = conditions::find(said, STORAGE_FOUND).map(|condition| condition.status == "False");
    let is_missing = plugin.and_then(|plugin| orphans::is_missing(plugin, instances, uid)).unwrap_or(false);
    let desired = orphans::found(is_missing, was.is_some(), kind, id)?;
    let event = match (was.unwrap_or(false), is_missing) {
        (false, true) => Some(EventReason::StorageMissing),
        (true, false) => Some(EventReason::StorageFound),
        (true, true) | (false, false) => None,
    };
    Some((desired, event))
}

/// Keeps the Volume's condition StorageFound as the agents have found it, and publishes an Event at each turn.
pub(crate) async fn report(ctx: &Context, seen: &Observed) -> Result<(), ApiError> {
    let Some(volume) = &seen.volume else { return Ok(()) };
    let said = volume.status.as_ref().map(|status| &*status.conditions).unwrap_or_default();
    let instances = seen.controlling.iter().map(Arc::as_ref);
    let of = (
        StorageKind::Volume,
        handle_of(volume).unwrap_or_default(),
        volume.metadata.uid.as_deref().unwrap_or_default(),
    );
    let Some((desired, event)) = turn(seen.plugin.as_deref(), instances, of, said) else { return Ok(()) };
    volumes::record(ctx, volume, &desired, |_| {}).await?;
    if let Some(event) = event {
        ctx.recorder.tell(volume, event, "Audit", desired.message.clone());
    }
    Ok(())
}
