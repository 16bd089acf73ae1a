//! Which pass an event asks for.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;

use super::concern::{Concern, nobody};
use super::context::Context;
use super::forgotten;
use super::instances::InstancesByPlugin;
use super::machines;
use super::room::Room;
use crate::api::attachment::ControllerRef;
use crate::api::names::{AGENTS, agent_lease_name, agent_of_lease};
use crate::api::{Attachment, Plugin, PluginInstance, Volume, VolumeClaim, VolumeHandle};
use crate::heartbeat::Leftovers;
use crate::heartbeat::lease::DURATION;
use crate::k8s::node::LeanNode;
use crate::k8s::{Cache, Queue};
use crate::plugin::change::Change;
use crate::volume::handle_of;

/// The key of a pass in the queue: what it is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// A Volume with all that hangs on it; it may not exist.
    Volume {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A Plugin's status.
    Plugin(String),
}

impl Key {
    /// The kind that the pass is about.
    pub(crate) fn about(&self) -> &'static str {
        match self {
            Self::Volume { .. } => "Volume",
            Self::Plugin(_) => "Plugin",
        }
    }
}

/// Claims by the Volume they name, and Attachments by the Volume they were made for: `namespace/name`.
pub(crate) const BY_VOLUME: &str = "volume";
/// Attachments by the name of their VolumeHandle.
pub(crate) const BY_HANDLE: &str = "handle";
/// Attachments by their node.
pub(crate) const BY_NODE: &str = "node";
/// Attachments by `driver/node`.
pub(crate) const BY_DRIVER_NODE: &str = "driver-node";
/// Volumes, PluginInstances and Attachments by their Plugin.
pub(crate) const BY_PLUGIN: &str = "plugin";
/// Volumes by the volume that they name or have, as its driver knows it.
pub(crate) const BY_VOLUME_HANDLE: &str = "volume-handle";
/// VolumeHandles by the UID of the Volume that owns them.
pub(crate) const BY_OWNER: &str = "owner";
/// Volumes by their namespace.
pub(crate) const BY_NAMESPACE: &str = "namespace";
/// Volumes, VolumeHandles and Attachments by the controller instance of their calls.
pub(crate) const BY_CONTROLLER: &str = "controller";
/// PluginInstances by their agent.
pub(crate) const BY_AGENT: &str = "agent";

pub(crate) fn volume_key(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

pub(crate) fn claim_cache() -> Cache<VolumeClaim> {
    Cache::new(&["claims"]).with_index(BY_VOLUME, |c: &VolumeClaim| {
        let namespace = c.metadata.namespace.as_deref().unwrap_or_default();
        vec![volume_key(namespace, &c.spec.volume_name)]
    })
}

pub(crate) fn attachment_cache() -> Cache<Attachment> {
    Cache::new(&["attachments"])
        .with_index(BY_VOLUME, |a: &Attachment| {
            vec![volume_key(&a.spec.volume.namespace, &a.spec.volume.name)]
        })
        .with_index(BY_HANDLE, |a: &Attachment| vec![a.spec.fixed.handle_name.clone()])
        .with_index(BY_PLUGIN, |a: &Attachment| vec![a.spec.fixed.plugin_name.clone()])
        .with_index(BY_NODE, |a: &Attachment| vec![a.spec.node_name.clone()])
        .with_index(BY_CONTROLLER, |a: &Attachment| name_of(a.spec.controller.as_ref()))
        .with_index(BY_DRIVER_NODE, |a: &Attachment| {
            vec![volume_key(&a.spec.fixed.driver_name, &a.spec.node_name)]
        })
}

pub(crate) fn volume_cache() -> Cache<Volume> {
    Cache::new(&["volumes"])
        .with_index(BY_PLUGIN, |v: &Volume| vec![v.spec.plugin_name.clone()])
        .with_index(BY_VOLUME_HANDLE, |v: &Volume| handle_of(v).into_iter().map(str::to_owned).collect())
        .with_index(BY_NAMESPACE, |v: &Volume| v.metadata.namespace.iter().cloned().collect())
        .with_index(BY_CONTROLLER, |v: &Volume| {
            name_of(v.spec.assignment.as_ref().and_then(|a| a.controller.as_ref()))
        })
}

fn name_of(controller: Option<&ControllerRef>) -> Vec<String> {
    controller.map(|c| c.instance.clone()).into_iter().collect()
}

pub(crate) fn handle_cache() -> Cache<VolumeHandle> {
    Cache::new(&["volumehandles"])
        .with_index(BY_OWNER, |h: &VolumeHandle| vec![h.spec.volume.uid.clone()])
        .with_index(BY_CONTROLLER, |h: &VolumeHandle| match &h.spec.controller {
            Some(controller) => vec![controller.instance.clone()],
            None => vec![nobody(&h.spec.driver_name)],
        })
}

pub(crate) fn instance_cache() -> Cache<PluginInstance> {
    Cache::new(&["plugininstances"])
        .with_index(BY_PLUGIN, |i: &PluginInstance| vec![i.spec.plugin_name.clone()])
        .with_index(BY_AGENT, |i: &PluginInstance| vec![i.spec.agent.clone()])
}

pub(crate) fn key_of(namespace: &str, name: &str) -> Key {
    Key::Volume { namespace: namespace.to_owned(), name: name.to_owned() }
}

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
                let plugin = named.get("", &instance.spec.plugin_name);
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

/// The name of the node whose agent has this Lease. A very long one cannot be read from the Lease's name.
pub(crate) fn node_of_lease(nodes: &Cache<LeanNode>, lease: &Lease) -> Option<String> {
    let name = lease.metadata.name.as_deref()?;
    let whole = agent_of_lease(name).map(str::to_owned);
    let is = |node: &str| agent_lease_name(node) == name;
    let found = || nodes.all().iter().filter_map(|n| n.metadata.name.clone()).find(|node| is(node));
    whole.or_else(|| name.starts_with(AGENTS).then(found)?)
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
        if let Some(handle) = handles.get("", &fixed.handle_name) {
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

/// Whether a Lease was last renewed longer ago than it lasts, or in the future, by the times that it names.
pub(crate) fn is_out_of_date(lease: &Lease, now: Timestamp) -> bool {
    let Some(spec) = &lease.spec else { return true };
    let lasts = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let lasts = lasts.map_or(DURATION, Duration::from_secs).min(DURATION);
    spec.renew_time.as_ref().is_none_or(|renewed| now.duration_since(renewed.0).unsigned_abs() > lasts)
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
            if self.volumes.get(&owner.namespace, &owner.name).is_none() {
                self.queue.sweep(key_of(&owner.namespace, &owner.name));
            }
        }
    }
}

pub(crate) fn key_of_volume(volume: &Volume) -> Key {
    let meta = &volume.metadata;
    let (namespace, name) = (meta.namespace.as_deref(), meta.name.as_deref());
    key_of(namespace.unwrap_or_default(), name.unwrap_or_default())
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
