//! The controller's caches, and by what their objects are found.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::storage::v1::CSIStorageCapacity;

use super::key::{Place, VolumeKey};
use crate::api::attachment::ControllerRef;
use crate::api::names::{AGENTS, agent_lease_name, agent_of_lease};
use crate::api::{Attachment, PluginInstance, Volume, VolumeClaim, VolumeHandle};
use crate::heartbeat::Forgotten;
use crate::k8s::node::LeanNode;
use crate::k8s::{Cache, Index};
use crate::provision::capacity;
use crate::volume::handle_of;

/// Claims by the Volume they name, and Attachments by the Volume they were made for: a [`VolumeKey`].
pub(crate) const BY_VOLUME: Index = Index("volume");
/// Attachments by the name of their VolumeHandle.
pub(crate) const BY_HANDLE: Index = Index("handle");
/// Attachments by their node.
pub(crate) const BY_NODE: Index = Index("node");
/// Attachments by their driver and node: a [`Place`].
pub(crate) const BY_PLACE: Index = Index("place");
/// Volumes, PluginInstances, Attachments, CSIStorageCapacity objects and the Pods of workloads by their Plugin.
pub(crate) const BY_PLUGIN: Index = Index("plugin");
/// Volumes by the volume that they name or have, as its driver knows it.
pub(crate) const BY_VOLUME_HANDLE: Index = Index("volume-handle");
/// VolumeHandles by the UID of the Volume that owns them.
pub(crate) const BY_OWNER: Index = Index("owner");
/// Volumes by their namespace.
pub(crate) const BY_NAMESPACE: Index = Index("namespace");
/// Volumes, VolumeHandles and Attachments by the controller instance of their calls.
pub(crate) const BY_CONTROLLER: Index = Index("controller");
/// PluginInstances by their agent.
pub(crate) const BY_AGENT: Index = Index("agent");
/// Leases of agents by the VolumeHandles of which they name mounts.
pub(crate) const BY_FORGOTTEN: Index = Index("forgotten");

/// The index key of VolumeHandles of a driver that have no controller instance. No instance has such a name.
pub(crate) fn nobody(driver: &str) -> String {
    format!("{driver}/")
}

pub(crate) fn claim_cache() -> Cache<VolumeClaim> {
    Cache::new(&["claims"]).with_index(BY_VOLUME, |c: &VolumeClaim| vec![VolumeKey::of_claim(c).to_string()])
}

pub(crate) fn attachment_cache() -> Cache<Attachment> {
    Cache::new(&["attachments"])
        .with_index(BY_VOLUME, |a: &Attachment| vec![VolumeKey::of_owner(&a.spec.volume).to_string()])
        .with_index(BY_HANDLE, |a: &Attachment| vec![a.spec.fixed.handle_name.clone()])
        .with_index(BY_PLUGIN, |a: &Attachment| vec![a.spec.fixed.plugin_name.clone()])
        .with_index(BY_NODE, |a: &Attachment| vec![a.spec.node_name.clone()])
        .with_index(BY_CONTROLLER, |a: &Attachment| name_of(a.spec.controller.as_ref()))
        .with_index(BY_PLACE, |a: &Attachment| {
            let (driver, node) = (a.spec.fixed.driver_name.clone(), a.spec.node_name.clone());
            vec![Place { driver, node }.to_string()]
        })
}

pub(crate) fn volume_cache() -> Cache<Volume> {
    Cache::new(&["volumes"])
        .with_index(BY_PLUGIN, |v: &Volume| vec![v.spec.plugin_name.clone()])
        .with_index(BY_VOLUME_HANDLE, |v: &Volume| handle_of(v).into_iter().map(str::to_owned).collect())
        .with_index(BY_NAMESPACE, |v: &Volume| v.metadata.namespace.iter().cloned().collect())
        .with_index(BY_CONTROLLER, |v: &Volume| name_of(v.caller()))
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
    // An annotation is an order to the instance's agent, which alone reads it.
    Cache::new(&["plugininstances"])
        .without_annotations()
        .with_index(BY_PLUGIN, |i: &PluginInstance| vec![i.spec.plugin_name.clone()])
        .with_index(BY_AGENT, |i: &PluginInstance| vec![i.spec.agent.clone()])
}

pub(crate) fn capacity_cache() -> Cache<CSIStorageCapacity> {
    Cache::new(&["csistoragecapacities"])
        .that_keeps(capacity::is_ours)
        .with_index(BY_PLUGIN, |c: &CSIStorageCapacity| {
            capacity::plugin_of(c).map(str::to_owned).into_iter().collect()
        })
}

pub(crate) fn lease_cache() -> Cache<Lease> {
    Cache::new(&["leases"]).with_index(BY_FORGOTTEN, |lease: &Lease| {
        let said = Forgotten::said_in(lease);
        let of_agent = lease.metadata.name.as_deref().is_some_and(|name| name.starts_with(AGENTS));
        said.names().filter(|_| of_agent).map(str::to_owned).collect()
    })
}

/// The name of the node whose agent has this Lease. A very long one cannot be read from the Lease's name.
pub(crate) fn node_of_lease(nodes: &Cache<LeanNode>, lease: &Lease) -> Option<String> {
    let name = lease.metadata.name.as_deref()?;
    let whole = agent_of_lease(name).map(str::to_owned);
    let is = |node: &str| agent_lease_name(node) == name;
    let found = || nodes.all().iter().filter_map(|n| n.metadata.name.clone()).find(|node| is(node));
    whole.or_else(|| name.starts_with(AGENTS).then(found)?)
}

#[cfg(test)]
#[path = "caches_tests.rs"]
mod tests;
