//! Which pass an event asks for.

use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::storage::v1::{CSIDriver, CSIStorageCapacity, StorageClass};

use super::caches::{BY_AGENT, BY_NAMESPACE, BY_NODE, BY_PLUGIN, BY_VOLUME, BY_VOLUME_HANDLE, node_of_lease};
use super::key::{Key, VolumeKey};
use super::known::Known;
use super::{
    capacities, concern, contents, exports, forgotten, machines, orphans, plugins,
    provision_events as provision, schedulable, snapshot_events, workloads,
};
use crate::api::{Attachment, ClaimUid, Plugin, PluginInstance, Snapshot, Volume, VolumeClaim, VolumeHandle};
use crate::claim::ClaimSeen;
use crate::heartbeat::{AgentOnNode, Leftovers, Sockets};
use crate::k8s::Cache;
use crate::k8s::cache::Cached;
use crate::k8s::node::LeanNode;
use crate::plugin::change::Change;
use crate::plugin::csi_driver::{plugin_of, serves};
use crate::provision::{
    VolumeGroupSnapshotContent, VolumeSnapshotContent, WatchedClaim, WatchedPersistentVolume, capacity,
};
use crate::volume::handle_of;

/// An object before or after an event; None where it was not there.
type State<'a, K> = Option<&'a Arc<K>>;

/// Connects every cache to the queue, and to what remembers what it has seen there.
pub(crate) fn connect(known: &Arc<Known>) {
    on(known, &known.plugins, plugin_changed);
    on(known, &known.instances, instance_changed);
    on(known, &known.volumes, volume_changed);
    on(known, &known.snapshots, snapshot_changed);
    on(known, &known.claims, claim_changed);
    on(known, &known.handles, handle_changed);
    on(known, &known.attachments, attachment_changed);
    on(known, &known.nodes, node_changed);
    on(known, &known.namespaces, namespace_changed);
    on(known, &known.csi_drivers, csi_driver_changed);
    on(known, &known.csi_capacities, csi_capacity_changed);
    on(known, &known.pvcs, pvc_changed);
    on(known, &known.pvs, pv_changed);
    on(known, &known.classes, class_changed);
    on(known, &known.contents, content_changed);
    on(known, &known.group_contents, group_content_changed);
    on(known, &known.lease_cache, lease_changed);
    on(known, &known.workloads.deployments, workloads::changed);
    on(known, &known.workloads.daemon_sets, workloads::changed);
}

/// Has `heed` called at every event of a cache, which is itself a part of what is known and does not keep the rest alive.
fn on<K: Cached>(known: &Arc<Known>, cache: &Cache<K>, heed: fn(&Known, State<'_, K>, State<'_, K>)) {
    let known = Arc::downgrade(known);
    cache.on_change(move |before, after| {
        if let Some(known) = known.upgrade() {
            heed(&known, before, after);
        }
    });
}

/// What is believed of the instances on a Node depends on whether the Node is there, is the same machine, and on its
/// labels.
fn node_changed(known: &Known, before: State<'_, LeanNode>, after: State<'_, LeanNode>) {
    let Some(node) = after.or(before) else { return };
    let name = node.metadata.name.as_deref().unwrap_or_default();
    if after.is_none() {
        provision::node_gone(known, name);
    }
    let marks = |n: &Arc<LeanNode>| (n.uid().to_owned(), n.metadata.labels.clone());
    if before.map(marks) != after.map(marks) {
        // Claims pick nodes by their labels too.
        add_waiting(known, name);
        // Where controller calls are made may go by labels, of the Node that an instance names by its UID. This can
        // give each Volume of the Plugin an heir, or its first instance.
        for instance in known.instances.by_index(BY_AGENT, name) {
            let plugin = known.plugins.get(&instance.spec.plugin_name);
            if plugin.is_some_and(|plugin| plugin.spec.controller_nodes.is_some()) {
                concern::wake_all_of(known, &instance.spec.plugin_name);
                known.queue.sweep(Key::Plugin(instance.spec.plugin_name.clone()));
            }
            // The scheduler finds the node's room by its labels.
            capacities::changed(known, &instance.spec.plugin_name);
        }
    }
    let retires = |n: &Arc<LeanNode>| n.retires();
    if before.map(retires) != after.map(retires) {
        // Nothing lingers there; or claims that name no node may come.
        known.linger.on(Some(name)).into_iter().for_each(|volume| known.queue.add(Key::Volume(volume)));
        add_waiting(known, name);
    }
    let facts = |n: &Arc<LeanNode>| (n.uid().to_owned(), n.is_out_of_service(), n.boot_id().to_owned());
    if before.map(facts) != after.map(facts) {
        add_attached(known, name);
        add_waiting(known, name);
        for instance in known.instances.by_index(BY_AGENT, name) {
            // Volumes whose calls are made there, wherever they are attached, and claims for a node that the driver
            // knows by the same id.
            concern::wake(known, &instance, Change::STANDING);
            known.queue.sweep(Key::Plugin(instance.spec.plugin_name.clone()));
            capacities::changed(known, &instance.spec.plugin_name);
        }
    }
}

/// Only a change of an instance that decides something asks for passes over Volumes. A Plugin's status has the versions
/// and words as well.
fn instance_changed(known: &Known, before: State<'_, PluginInstance>, after: State<'_, PluginInstance>) {
    let Some(instance) = after.or(before) else { return };
    // First, so that whoever is woken finds it.
    if after.is_none() {
        machines::keep(known, &instance.spec.agent);
    }
    known.gone.changed(before, after);
    known.ill.changed(before, after);
    known.left.changed(before, after);
    known.by_plugin.changed(&instance.spec.plugin_name);
    provision::instance_changed(known, before.map(Arc::as_ref), after.map(Arc::as_ref));
    concern::wake(known, instance, Change::between(before.map(Arc::as_ref), after.map(Arc::as_ref)));
    orphans::instance_changed(known, before, after);
    known.queue.sweep(Key::Plugin(instance.spec.plugin_name.clone()));
    capacities::changed(known, &instance.spec.plugin_name);
}

fn plugin_changed(known: &Known, before: State<'_, Plugin>, after: State<'_, Plugin>) {
    let Some(plugin) = after.or(before) else { return };
    let name = plugin.metadata.name.as_deref().unwrap_or_default();
    if before.map(|b| b.spec.roles) != after.map(|a| a.spec.roles) {
        known.instances.by_index(BY_PLUGIN, name).iter().for_each(|i| known.gone.restart(i));
    }
    // A status write of our own changes nothing for Volumes, nor for Plugins of the same driver.
    let said = |plugin: &Arc<Plugin>| {
        let (spec, meta) = (plugin.spec.clone(), &plugin.metadata);
        (spec, meta.uid.clone(), plugin.ends(), plugin.withdrawn().map(str::to_owned))
    };
    if before.map(said) != after.map(said) {
        let drivers: Vec<&str> = before.into_iter().chain(after).map(|p| p.driver_name()).collect();
        let at_kubelets: Vec<&str> =
            before.into_iter().chain(after).filter_map(|p| p.kubelet_name()).collect();
        for other in known.plugins.all() {
            let other_name = other.metadata.name.clone().unwrap_or_default();
            if drivers.contains(&other.driver_name()) {
                concern::wake_all_of(known, &other_name);
            } else if !other.kubelet_name().is_some_and(|name| at_kubelets.contains(&name)) {
                continue;
            }
            capacities::changed(known, &other_name);
            known.queue.sweep(Key::Plugin(other_name));
        }
        concern::wake_all_of(known, name);
        capacities::changed(known, name);
        before.into_iter().chain(after).for_each(|plugin| provision::plugin_changed(known, plugin));
    }
    let stands = |plugin: &Arc<Plugin>| schedulable::told(plugin);
    if before.map(stands) != after.map(stands) {
        concern::wake_all_of(known, name);
    }
    let spread = |plugin: &Arc<Plugin>| (plugin.balancing(), plugin.active().cloned());
    if before.map(spread) != after.map(spread) {
        concern::wake_for_active(known, name, before.and_then(|plugin| plugin.active()));
        capacities::changed(known, name);
    }
    known.queue.sweep(Key::Plugin(name.to_owned()));
}

/// Somebody has made, changed or deleted the CSIDriver object of a Plugin, which kubelets heed at once.
fn csi_driver_changed(known: &Known, before: State<'_, CSIDriver>, after: State<'_, CSIDriver>) {
    for object in before.into_iter().chain(after) {
        if let Some(plugin) = plugin_of(object) {
            known.queue.add(Key::Plugin(plugin.to_owned()));
            capacities::changed(known, plugin);
        }
        let name = object.metadata.name.as_deref();
        if before.map(|found| serves(found)) != after.map(|found| serves(found)) {
            provision::name_changed(known, name.unwrap_or_default());
        }
        for plugin in known.plugins.all().iter().filter(|plugin| plugin.kubelet_name() == name) {
            let plugin = plugin.metadata.name.clone().unwrap_or_default();
            capacities::changed(known, &plugin);
            known.queue.add(Key::Plugin(plugin));
        }
    }
}

/// Somebody has changed or deleted what moor says of a driver's room.
fn csi_capacity_changed(
    known: &Known,
    before: State<'_, CSIStorageCapacity>,
    after: State<'_, CSIStorageCapacity>,
) {
    for plugin in before.into_iter().chain(after).filter_map(|object| capacity::plugin_of(object)) {
        capacities::changed(known, plugin);
    }
}

/// What a Plugin allows depends on the labels of a Namespace.
fn namespace_changed(known: &Known, before: State<'_, Namespace>, after: State<'_, Namespace>) {
    let labels = |n: &Arc<Namespace>| n.metadata.labels.clone();
    if let Some(after) = after.filter(|after| before.map(labels) != Some(labels(after))) {
        let name = after.metadata.name.as_deref().unwrap_or_default();
        for volume in known.volumes.by_index(BY_NAMESPACE, name) {
            known.queue.add(Key::of(&volume));
        }
        for snapshot in known.snapshots.by_index(BY_NAMESPACE, name) {
            known.queue.add(Key::of_snapshot(&snapshot));
        }
    }
}

/// Claims may wait for a node whose agent is heard again, or has undone something.
fn lease_changed(known: &Known, before: State<'_, Lease>, after: State<'_, Lease>) {
    let was_heard = after.is_some_and(|after| known.leases.is_heard(&AgentOnNode::of_lease(after)));
    // First, so that whoever is woken finds it counted.
    known.leases.changed(before, after);
    known.caution.changed(before.map(Arc::as_ref), after.map(Arc::as_ref));
    forgotten::eased(known, before, after);
    if after.is_none_or(|after| !was_heard || Sockets::differ(before.map(Arc::as_ref), after)) {
        plugins::sockets_changed(known);
    }
    let Some(after) = after else { return };
    let agent = |lease: &Arc<Lease>| AgentOnNode::of_lease(lease);
    if before.map(agent) != Some(agent(after))
        && let Some(node) = node_of_lease(&known.nodes, after)
    {
        machines::keep(known, &node);
    }
    let says_less = before.is_some_and(|before| {
        let (said, says) = (Leftovers::said_in(before), Leftovers::said_in(after));
        said != Leftovers::none() && said != says
    });
    let is_back = before.is_none() || !was_heard;
    if (says_less || is_back)
        && let Some(node) = node_of_lease(&known.nodes, after)
    {
        add_waiting(known, &node);
        // A claim for any node may be held up by what is attached there. All nodes are back at once when the API server was away.
        if says_less {
            add_attached(known, &node);
        } else {
            let attached = known.attachments.by_index(BY_NODE, &node);
            concern::sweep(known, attached.iter().map(|attachment| Key::of_owner(&attachment.spec.volume)));
        }
    }
}

fn attachment_changed(known: &Known, before: State<'_, Attachment>, after: State<'_, Attachment>) {
    if let Some(attachment) = after.or(before) {
        known.queue.add(Key::of_owner(&attachment.spec.volume));
    }
    let (Some(gone), None) = (before, after) else { return };
    let (fixed, node) = (&gone.spec.fixed, &gone.spec.node_name);
    plugin_is_left(known, &fixed.plugin_name);
    // Whoever has the handle now, or wants it, where the Volume of then is gone.
    if let Some(handle) = known.handles.get(&fixed.handle_name) {
        known.queue.add(Key::of_owner(&handle.spec.volume));
    }
    add_contenders(known, &gone.spec.volume_handle);
    let counts = |i: &Arc<PluginInstance>| {
        i.spec.driver_name == fixed.driver_name && i.status.as_ref().is_some_and(|s| s.max_volumes > 0)
    };
    if known.instances.by_index(BY_AGENT, node).iter().any(counts) {
        add_waiting(known, node);
    }
}

/// Owner and contender are both concerned when a VolumeHandle changes hands.
fn handle_changed(known: &Known, before: State<'_, VolumeHandle>, after: State<'_, VolumeHandle>) {
    for handle in before.into_iter().chain(after) {
        known.queue.add(Key::of_owner(&handle.spec.volume));
        snapshot_events::volume_changed(known, &VolumeKey::of_owner(&handle.spec.volume), None);
    }
    if let (Some(gone), None) = (before, after) {
        add_contenders(known, &gone.spec.volume_handle);
    }
}

fn volume_changed(known: &Known, before: State<'_, Volume>, after: State<'_, Volume>) {
    // Removed by force it leaves its VolumeHandle to whoever waits for it.
    if let (Some(id), None) = (before.and_then(|v| handle_of(v)), after) {
        add_contenders(known, id);
    }
    if let (Some(gone), None) = (before, after) {
        plugin_is_left(known, &gone.spec.plugin_name);
    }
    if let Some(volume) = after.or(before) {
        known.queue.add(Key::of(volume));
        provision::volume_changed(known, volume);
        exports::volume_changed(known, volume);
        snapshot_events::volume_changed(known, &VolumeKey::of_owner(&volume.reference()), Some(volume));
    }
}

fn snapshot_changed(known: &Known, before: State<'_, Snapshot>, after: State<'_, Snapshot>) {
    snapshot_events::snapshot_changed(known, before, after);
    if let (Some(gone), None) = (before, after)
        && let Some(plugin) = gone.plugin_name()
    {
        plugin_is_left(known, plugin);
    }
}

fn pvc_changed(known: &Known, before: State<'_, WatchedClaim>, after: State<'_, WatchedClaim>) {
    if let Some(claim) = after.or(before) {
        provision::claim_changed(known, claim);
    }
    if let (Some(gone), None) = (before, after) {
        exports::pvc_gone(known, gone);
    }
}

fn pv_changed(
    known: &Known,
    before: State<'_, WatchedPersistentVolume>,
    after: State<'_, WatchedPersistentVolume>,
) {
    if let Some(volume) = after.or(before) {
        provision::persistent_volume_changed(known, volume);
    }
    if let (Some(left), None) = (before, after) {
        provision::persistent_volume_left(known, left);
    }
}

fn class_changed(known: &Known, before: State<'_, StorageClass>, after: State<'_, StorageClass>) {
    if let Some(class) = after.or(before) {
        provision::class_changed(known, class);
    }
}

fn content_changed(
    known: &Known,
    before: State<'_, VolumeSnapshotContent>,
    after: State<'_, VolumeSnapshotContent>,
) {
    contents::changed(known, before.map(Arc::as_ref), after.map(Arc::as_ref));
}

fn group_content_changed(
    known: &Known,
    before: State<'_, VolumeGroupSnapshotContent>,
    after: State<'_, VolumeGroupSnapshotContent>,
) {
    if let Some(group) = after.or(before) {
        contents::group_changed(known, group);
    }
}

/// A claim asks for a pass over the Volume that it names, whether that exists or not.
fn claim_changed(known: &Known, before: State<'_, VolumeClaim>, after: State<'_, VolumeClaim>) {
    if let Some(claim) = after.or(before) {
        if after.is_none_or(|after| !ClaimSeen::of(after).needs_pod()) {
            known.pods.forget(&ClaimUid::of(&claim.metadata));
        }
        known.queue.add(Key::of_claim(claim));
    }
    if let (Some(gone), None) = (before, after)
        && gone.spec.pod.is_some()
    {
        exports::claim_gone(known, gone);
        for attachment in known.attachments.by_index(BY_VOLUME, &VolumeKey::of_claim(gone).to_string()) {
            plugin_is_left(known, &attachment.spec.fixed.plugin_name);
        }
    }
}

/// Of a Plugin that Pods are not served any more the CSIDriver object goes with the last of them, and one that is deleted goes
/// with the last that needs its driver.
fn plugin_is_left(known: &Known, plugin: &str) {
    let ends = |plugin: Arc<Plugin>| plugin.kubelet_name().is_none() || plugin.ends();
    if known.plugins.get(plugin).is_none_or(ends) {
        known.queue.sweep(Key::Plugin(plugin.to_owned()));
    }
}

/// Asks for passes over the Volumes that are attached to a node.
fn add_attached(known: &Known, node: &str) {
    for attachment in known.attachments.by_index(BY_NODE, node) {
        known.queue.add(Key::of_owner(&attachment.spec.volume));
    }
}

/// Asks for passes over the Volumes with claims that may be placed on a node now.
fn add_waiting(known: &Known, node: &str) {
    known.room.waiting_for(node).into_iter().for_each(|key| known.queue.add(key));
}

/// Asks for passes over all Volumes that name this volume of a driver.
fn add_contenders(known: &Known, id: &str) {
    for volume in known.volumes.by_index(BY_VOLUME_HANDLE, id) {
        known.queue.add(Key::of(&volume));
    }
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
