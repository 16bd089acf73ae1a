//! Which pass an event asks for.

use std::sync::Arc;

use super::context::Context;
use crate::api::{Attachment, PluginInstance, Volume, VolumeClaim};
use crate::k8s::node::LeanNode;
use crate::k8s::{Cache, Queue};

/// What a pass is about.
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

/// Claims by the Volume they name, and Attachments by the Volume they were made for: `namespace/name`.
pub(crate) const BY_VOLUME: &str = "volume";
/// Attachments by the name of their VolumeHandle.
pub(crate) const BY_HANDLE: &str = "handle";
/// Attachments by their node.
pub(crate) const BY_NODE: &str = "node";
/// Attachments by `driver/node`.
pub(crate) const BY_DRIVER_NODE: &str = "driver-node";
/// Volumes and PluginInstances by their Plugin.
pub(crate) const BY_PLUGIN: &str = "plugin";
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
        .with_index(BY_NODE, |a: &Attachment| vec![a.spec.node_name.clone()])
        .with_index(BY_DRIVER_NODE, |a: &Attachment| {
            vec![volume_key(&a.spec.fixed.driver_name, &a.spec.node_name)]
        })
}

pub(crate) fn volume_cache() -> Cache<Volume> {
    Cache::new(&["volumes"]).with_index(BY_PLUGIN, |v: &Volume| vec![v.spec.plugin_name.clone()])
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
    let Context { queue, plugins, instances, volumes, claims, handles, attachments, nodes, .. } = ctx;
    let q = Arc::clone(queue);
    claims.on_change(move |before, after| {
        if let Some(c) = after.or(before) {
            q.add(key_of(c.metadata.namespace.as_deref().unwrap_or_default(), &c.spec.volume_name));
        }
    });
    let q = Arc::clone(queue);
    attachments.on_change(move |before, after| {
        if let Some(a) = after.or(before) {
            q.add(key_of(&a.spec.volume.namespace, &a.spec.volume.name));
        }
    });
    let q = Arc::clone(queue);
    handles.on_change(move |before, after| {
        // Owner and contender are both concerned when a handle changes hands.
        for h in before.into_iter().chain(after) {
            q.add(key_of(&h.spec.volume.namespace, &h.spec.volume.name));
        }
    });
    let q = Arc::clone(queue);
    volumes.on_change(move |before, after| {
        if let Some(v) = after.or(before) {
            q.add(key_of(
                v.metadata.namespace.as_deref().unwrap_or_default(),
                v.metadata.name.as_deref().unwrap_or_default(),
            ));
        }
    });
    let (q, all) = (Arc::clone(queue), Arc::clone(attachments));
    nodes.on_change(move |before, after| {
        let Some(node) = after.or(before) else { return };
        let facts = |n: &Arc<LeanNode>| (n.uid().to_owned(), n.is_out_of_service(), n.boot_id().to_owned());
        if before.map(facts) != after.map(facts) {
            for a in all.by_index(BY_NODE, node.metadata.name.as_deref().unwrap_or_default()) {
                q.add(key_of(&a.spec.volume.namespace, &a.spec.volume.name));
            }
        }
    });
    let (q, all) = (Arc::clone(queue), Arc::clone(volumes));
    plugins.on_change(move |before, after| {
        let Some(p) = after.or(before) else { return };
        let name = p.metadata.name.clone().unwrap_or_default();
        // A status write of our own changes nothing for Volumes.
        if before.map(|b| &b.spec) != after.map(|a| &a.spec) {
            add_volumes_of(&q, &all, &name);
        }
        q.add(Key::Plugin(name));
    });
    let (q, all) = (Arc::clone(queue), Arc::clone(volumes));
    instances.on_change(move |before, after| {
        let Some(i) = after.or(before) else { return };
        add_volumes_of(&q, &all, &i.spec.plugin_name);
        q.add(Key::Plugin(i.spec.plugin_name.clone()));
    });
}

pub(crate) fn add_volumes_of(queue: &Queue<Key>, volumes: &Cache<Volume>, plugin: &str) {
    for v in volumes.by_index(BY_PLUGIN, plugin) {
        queue.add(key_of(
            v.metadata.namespace.as_deref().unwrap_or_default(),
            v.metadata.name.as_deref().unwrap_or_default(),
        ));
    }
}
