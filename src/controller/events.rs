//! Which pass an event asks for.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;

use super::caches::{BY_AGENT, BY_NAMESPACE, BY_NODE, BY_PLUGIN, BY_VOLUME_HANDLE, node_of_lease};
use super::concern::Concern;
use super::context::Context;
use super::forgotten;
use super::instances::InstancesByPlugin;
use super::key::{Key, key_of, key_of_volume};
use super::machines;
use super::room::Room;
use crate::api::{Attachment, Plugin, PluginInstance, Volume, VolumeClaim};
use crate::heartbeat::Leftovers;
use crate::k8s::node::LeanNode;
use crate::k8s::{Cache, Named, Queue};
use crate::plugin::change::Change;
use crate::volume::handle_of;

/// Connects every cache to the queue.
pub(crate) fn connect(ctx: &Context) {
    let Context { queue, plugins, instances, volumes, claims, handles, nodes, .. } = ctx;
    connect_claims(claims, queue);
    connect_leases(ctx);
    machines::connect(ctx);
    connect_attachments(ctx);
    connect_namespaces(ctx);
    let (q, all) = (Arc::clone(queue), Arc::clone(volumes));
    handles.on_change(move |before, after| {
        // Owner and contender are both concerned when a handle changes hands.
        for h in before.into_iter().chain(after) {
            q.add(key_of(&h.spec.volume.namespace, &h.spec.volume.name));
        }
        if let (Some(gone), None) = (before, after) {
            add_contenders(&q, &all, &gone.spec.volume_handle);
        }
    });
    let (q, all) = (Arc::clone(queue), Arc::clone(volumes));
    volumes.on_change(move |before, after| {
        // Removed by force it leaves its VolumeHandle to whoever waits for it.
        if let (Some(id), None) = (before.and_then(|v| handle_of(v)), after) {
            add_contenders(&q, &all, id);
        }
        if let Some(v) = after.or(before) {
            q.add(key_of_volume(v));
        }
    });
    connect_nodes(nodes, instances, plugins, (Concern::new(ctx), OfPlugin::new(ctx)));
    connect_plugins(plugins, OfPlugin::new(ctx));
    let gone = Arc::clone(&ctx.gone);
    instances.on_change(move |before, after| gone.changed(before, after));
    let (gone, all) = (Arc::clone(&ctx.gone), Arc::clone(instances));
    plugins.on_change(move |before, after| {
        let roles = |plugin: &Arc<Plugin>| plugin.spec.roles;
        let name = after.or(before).and_then(|plugin| plugin.metadata.name.as_deref());
        if before.map(roles) != after.map(roles) {
            all.by_index(BY_PLUGIN, name.unwrap_or_default()).iter().for_each(|i| gone.restart(i));
        }
    });
    connect_instances(instances, &ctx.by_plugin, Concern::new(ctx));
}

/// Connects Nodes: what is believed of the instances on one depends on whether the Node is there, is the same
/// machine, and on its labels.
fn connect_nodes(
    nodes: &Cache<LeanNode>,
    instances: &Arc<Cache<PluginInstance>>,
    plugins: &Arc<Cache<Plugin>>,
    (concern, of_plugin): (Concern, OfPlugin),
) {
    let (on_node, named) = (Arc::clone(instances), Arc::clone(plugins));
    nodes.on_change(move |before, after| {
        let Some(node) = after.or(before) else { return };
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let marks = |n: &Arc<LeanNode>| (n.uid().to_owned(), n.metadata.labels.clone());
        if before.map(marks) != after.map(marks) {
            // Where controller calls are made may go by labels, of the Node that an instance names by its UID. This can
            // give each Volume of the Plugin an heir, or its first instance.
            for instance in on_node.by_index(BY_AGENT, name) {
                let plugin = named.get(&instance.spec.plugin_name);
                if plugin.is_some_and(|plugin| plugin.spec.controller_nodes.is_some()) {
                    of_plugin.wake(&instance.spec.plugin_name);
                    of_plugin.queue.sweep(Key::Plugin(instance.spec.plugin_name.clone()));
                }
            }
        }
        let facts = |n: &Arc<LeanNode>| (n.uid().to_owned(), n.is_out_of_service(), n.boot_id().to_owned());
        if before.map(facts) != after.map(facts) {
            add_attached(&concern.queue, &concern.attachments, name);
            add_waiting(&concern.queue, &concern.room, name);
            for instance in on_node.by_index(BY_AGENT, name) {
                // Volumes whose calls are made there, wherever they are attached, and claims for a node that the driver
                // knows by the same id.
                concern.wake(&instance, Change::STANDING);
                concern.queue.sweep(Key::Plugin(instance.spec.plugin_name.clone()));
            }
        }
    });
}

/// Connects PluginInstances. Only a change that decides something asks for passes over Volumes. A Plugin's status has
/// the versions and words as well.
fn connect_instances(
    instances: &Cache<PluginInstance>,
    by_plugin: &Arc<InstancesByPlugin>,
    concern: Concern,
) {
    let by_plugin = Arc::clone(by_plugin);
    instances.on_change(move |before, after| {
        let Some(i) = after.or(before) else { return };
        // First, so that whoever is woken finds it.
        by_plugin.changed(&i.spec.plugin_name);
        concern.wake(i, Change::between(before.map(Arc::as_ref), after.map(Arc::as_ref)));
        concern.queue.sweep(Key::Plugin(i.spec.plugin_name.clone()));
    });
}

fn connect_plugins(plugins: &Arc<Cache<Plugin>>, of_plugin: OfPlugin) {
    let others = Arc::downgrade(plugins);
    plugins.on_change(move |before, after| {
        let Some(p) = after.or(before) else { return };
        let name = p.metadata.name.clone().unwrap_or_default();
        // A status write of our own changes nothing for Volumes, nor for Plugins of the same driver.
        if before.map(|b| (&b.spec, &b.metadata.uid)) != after.map(|a| (&a.spec, &a.metadata.uid)) {
            let drivers: Vec<&str> = before.into_iter().chain(after).map(|p| p.driver_name()).collect();
            let others = others.upgrade().map(|others| others.all()).unwrap_or_default();
            for other in others.iter().filter(|other| drivers.contains(&other.driver_name())) {
                let other = other.metadata.name.as_deref().unwrap_or_default();
                of_plugin.wake(other);
                of_plugin.queue.sweep(Key::Plugin(other.to_owned()));
            }
            of_plugin.wake(&name);
        }
        of_plugin.queue.sweep(Key::Plugin(name));
    });
}

/// Connects Namespaces: what a Plugin allows depends on their labels.
fn connect_namespaces(ctx: &Context) {
    let (q, all) = (Arc::clone(&ctx.queue), Arc::clone(&ctx.volumes));
    ctx.namespaces.on_change(move |before, after| {
        let labels = |n: &Arc<Namespace>| n.metadata.labels.clone();
        if let Some(after) = after.filter(|after| before.map(labels) != Some(labels(after))) {
            let name = after.metadata.name.as_deref().unwrap_or_default();
            all.by_index(BY_NAMESPACE, name).iter().for_each(|volume| q.add(key_of_volume(volume)));
        }
    });
}

/// Connects the agents' Leases: claims may wait for a node that is heard again, or has undone something.
fn connect_leases(ctx: &Context) {
    let (q, room, all) = (Arc::clone(&ctx.queue), Arc::clone(&ctx.room), Arc::clone(&ctx.attachments));
    let (observer, nodes) = (Arc::clone(&ctx.leases), Arc::clone(&ctx.nodes));
    let (handles, caution) = (Arc::clone(&ctx.handles), Arc::clone(&ctx.caution));
    ctx.lease_cache.on_change(move |before, after| {
        let was_heard = after.is_some_and(|after| observer.has_heard(after));
        // First, so that whoever is woken finds it counted.
        observer.changed(before, after);
        caution.changed(before.map(Arc::as_ref), after.map(Arc::as_ref));
        forgotten::eased(&q, &handles, before, after);
        let Some(after) = after else { return };
        let says_less = before.is_none_or(|before| {
            let (said, says) = (Leftovers::said_in(before), Leftovers::said_in(after));
            said != Leftovers::none() && said != says
        });
        let eases = says_less || !was_heard;
        if eases && let Some(node) = node_of_lease(&nodes, after) {
            add_waiting(&q, &room, &node);
            // A claim for any node may be held up by what is attached there.
            add_attached(&q, &all, &node);
        }
    });
}

fn connect_attachments(ctx: &Context) {
    let (q, room) = (Arc::clone(&ctx.queue), Arc::clone(&ctx.room));
    let (handles, volumes) = (Arc::clone(&ctx.handles), Arc::clone(&ctx.volumes));
    let instances = Arc::clone(&ctx.instances);
    ctx.attachments.on_change(move |before, after| {
        if let Some(a) = after.or(before) {
            q.add(key_of(&a.spec.volume.namespace, &a.spec.volume.name));
        }
        let (Some(gone), None) = (before, after) else { return };
        let (fixed, node) = (&gone.spec.fixed, &gone.spec.node_name);
        // Whoever has the handle now, or wants it, where the Volume of then is gone.
        if let Some(handle) = handles.get(&fixed.handle_name) {
            q.add(key_of(&handle.spec.volume.namespace, &handle.spec.volume.name));
        }
        add_contenders(&q, &volumes, &gone.spec.volume_handle);
        let counts = |i: &Arc<PluginInstance>| {
            i.spec.driver_name == fixed.driver_name && i.status.as_ref().is_some_and(|s| s.max_volumes > 0)
        };
        if instances.by_index(BY_AGENT, node).iter().any(counts) {
            add_waiting(&q, &room, node);
        }
    });
}

/// Asks for passes over the Volumes that are attached to a node.
fn add_attached(queue: &Queue<Key>, attachments: &Cache<Attachment>, node: &str) {
    for a in attachments.by_index(BY_NODE, node) {
        queue.add(key_of(&a.spec.volume.namespace, &a.spec.volume.name));
    }
}

/// Asks for passes over the Volumes with claims that may be placed on a node now.
fn add_waiting(queue: &Queue<Key>, room: &Room, node: &str) {
    room.waiting_for(node).into_iter().for_each(|key| queue.add(key));
}

/// Connects claims: each asks for a pass over the Volume that it names, whether that exists or not.
fn connect_claims(claims: &Cache<VolumeClaim>, queue: &Arc<Queue<Key>>) {
    let q = Arc::clone(queue);
    claims.on_change(move |before, after| {
        if let Some(c) = after.or(before) {
            q.add(key_of(c.metadata.namespace.as_deref().unwrap_or_default(), &c.spec.volume_name));
        }
    });
}

/// Asks for passes over all Volumes that name this volume of a driver.
fn add_contenders(queue: &Queue<Key>, volumes: &Cache<Volume>, id: &str) {
    volumes.by_index(BY_VOLUME_HANDLE, id).iter().for_each(|volume| queue.add(key_of_volume(volume)));
}

/// The caches of what depends on a Plugin.
pub(crate) struct OfPlugin {
    queue: Arc<Queue<Key>>,
    volumes: Arc<Cache<Volume>>,
    attachments: Arc<Cache<Attachment>>,
}

impl OfPlugin {
    pub(crate) fn new(ctx: &Context) -> Self {
        let Context { queue, volumes, attachments, .. } = ctx;
        Self { queue: queue.clone(), volumes: volumes.clone(), attachments: attachments.clone() }
    }

    /// Asks for passes over the Plugin's Volumes, also over those that were removed by hand while something was
    /// attached for them.
    pub(crate) fn wake(&self, plugin: &str) {
        for volume in self.volumes.by_index(BY_PLUGIN, plugin) {
            self.queue.sweep(key_of_volume(&volume));
        }
        for attachment in self.attachments.by_index(BY_PLUGIN, plugin) {
            let owner = &attachment.spec.volume;
            if self.volumes.get_in(Named { namespace: &owner.namespace, name: &owner.name }).is_none() {
                self.queue.sweep(key_of(&owner.namespace, &owner.name));
            }
        }
    }
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
