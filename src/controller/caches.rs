//! The controller's caches, and by what their objects are found.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::storage::v1::CSIStorageCapacity;

use super::key::{Place, VolumeKey};
use crate::api::caller::ControllerRef;
use crate::api::conditions::{SILENT, find};
use crate::api::names::{AGENTS, agent_lease_name, agent_of_lease};
use crate::api::{Attachment, PluginInstance, Snapshot, SnapshotState, Volume, VolumeClaim, VolumeHandle};
use crate::heartbeat::Forgotten;
use crate::k8s::node::LeanNode;
use crate::k8s::{Cache, Index};
use crate::provision::capacity;
use crate::volume::handle_of;

/// Claims and Snapshots by the Volume they name, and Attachments by the Volume they were made for: a [`VolumeKey`].
pub(crate) const BY_VOLUME: Index = Index("volume");
/// Attachments by the name of their VolumeHandle.
pub(crate) const BY_HANDLE: Index = Index("handle");
/// Attachments by their node.
pub(crate) const BY_NODE: Index = Index("node");
/// Attachments by their node's name and UID: [`machine_of`].
pub(crate) const BY_MACHINE: Index = Index("machine");
/// Claims that say that their node is silent, under the index's own name.
pub(crate) const TOLD_OF_SILENCE: Index = Index("told-of-silence");
/// Attachments by their driver and node: a [`Place`].
pub(crate) const BY_PLACE: Index = Index("place");
/// Volumes, Snapshots, PluginInstances, Attachments, CSIStorageCapacity objects and the Pods of workloads by their Plugin.
pub(crate) const BY_PLUGIN: Index = Index("plugin");
/// Volumes by the volume that they name or have, as its driver knows it.
pub(crate) const BY_VOLUME_HANDLE: Index = Index("volume-handle");
/// Snapshots by the snapshot that they name or have, as its driver knows it.
pub(crate) const BY_SNAPSHOT_HANDLE: Index = Index("snapshot-handle");
/// VolumeHandles by the UID of the Volume that owns them.
pub(crate) const BY_OWNER: Index = Index("owner");
/// Volumes and Snapshots by their namespace.
pub(crate) const BY_NAMESPACE: Index = Index("namespace");
/// Volumes, Snapshots, VolumeHandles and Attachments by the controller instance of their calls.
pub(crate) const BY_CONTROLLER: Index = Index("controller");
/// PluginInstances by their agent.
pub(crate) const BY_AGENT: Index = Index("agent");
/// Volumes by what they are made from: [`from_volume`], [`from_snapshot`].
pub(crate) const BY_SOURCE: Index = Index("source");
/// Snapshots that wait for somebody, under the index's own name.
pub(crate) const UNSETTLED: Index = Index("unsettled");
/// Snapshots of moor's own by the name of the VolumeSnapshotContent that they were made for.
pub(crate) const BY_CONTENT: Index = Index("content");
/// Leases of agents by the VolumeHandles of which they name mounts.
pub(crate) const BY_FORGOTTEN: Index = Index("forgotten");

/// The index key of VolumeHandles of a driver that have no controller instance. No instance has such a name.
pub(crate) fn nobody(driver: &str) -> String {
    format!("{driver}/")
}

pub(crate) fn claim_cache() -> Cache<VolumeClaim> {
    Cache::new(&["claims"])
        .with_index(BY_VOLUME, |c: &VolumeClaim| vec![VolumeKey::of_claim(c).to_string()])
        .with_index(TOLD_OF_SILENCE, |c: &VolumeClaim| {
            is_told_of_silence(c).then(|| TOLD_OF_SILENCE.0.to_owned()).into_iter().collect()
        })
}

/// Whether a claim says that its node is silent, and somebody has to take that back when it is over.
pub(crate) fn is_told_of_silence(claim: &VolumeClaim) -> bool {
    let says = claim.status.as_ref();
    let says = says.is_some_and(|s| !s.state.is_final() && find(&s.conditions, SILENT).is_some());
    says && !claim.is_let_go()
}

/// The key of [`BY_MACHINE`] of an Attachment.
pub(crate) fn machine_of(attachment: &Attachment) -> String {
    format!("{}/{}", attachment.spec.node_name, attachment.spec.fixed.node_uid)
}

pub(crate) fn attachment_cache() -> Cache<Attachment> {
    Cache::new(&["attachments"])
        .with_index(BY_VOLUME, |a: &Attachment| vec![VolumeKey::of_owner(&a.spec.volume).to_string()])
        .with_index(BY_HANDLE, |a: &Attachment| vec![a.spec.fixed.handle_name.clone()])
        .with_index(BY_PLUGIN, |a: &Attachment| vec![a.spec.fixed.plugin_name.clone()])
        .with_index(BY_NODE, |a: &Attachment| vec![a.spec.node_name.clone()])
        .with_index(BY_MACHINE, |a: &Attachment| vec![machine_of(a)])
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
        .with_index(BY_SOURCE, |v: &Volume| source_of(v).into_iter().collect())
}

/// The key of [`BY_SOURCE`] for Volumes that are made from this Volume.
pub(crate) fn from_volume(key: &VolumeKey) -> String {
    format!("volume/{key}")
}

/// The key of [`BY_SOURCE`] for Volumes that are made from this Snapshot.
pub(crate) fn from_snapshot(key: &VolumeKey) -> String {
    format!("snapshot/{key}")
}

fn source_of(volume: &Volume) -> Option<String> {
    let (source, namespace) = (volume.spec.source.as_ref()?, volume.metadata.namespace.clone()?);
    let named = |name: &String| VolumeKey { namespace: namespace.clone(), name: name.clone() };
    let of_snapshot = source.snapshot_name.as_ref().map(|name| from_snapshot(&named(name)));
    of_snapshot.or_else(|| Some(from_volume(&named(source.volume_name.as_ref()?))))
}

pub(crate) fn snapshot_cache() -> Cache<Snapshot> {
    Cache::new(&["snapshots"])
        .with_index(BY_VOLUME, |s: &Snapshot| {
            VolumeKey::of_snapshots_volumes(s).map(|key| key.to_string()).collect()
        })
        .with_index(BY_CONTROLLER, |s: &Snapshot| name_of(s.caller()))
        .with_index(BY_SNAPSHOT_HANDLE, |s: &Snapshot| {
            let said = s.said_handle().filter(|_| s.handle().is_none());
            s.handles().chain(said).map(str::to_owned).collect()
        })
        .with_index(BY_PLUGIN, |s: &Snapshot| s.plugin_name().map(str::to_owned).into_iter().collect())
        .with_index(BY_NAMESPACE, |s: &Snapshot| s.metadata.namespace.iter().cloned().collect())
        .with_index(BY_CONTENT, |s: &Snapshot| {
            s.spec.volume_snapshot_content.as_ref().map(|of| of.name.clone()).into_iter().collect()
        })
        .with_index(UNSETTLED, |s: &Snapshot| {
            is_unsettled(s).then(|| UNSETTLED.0.to_owned()).into_iter().collect()
        })
}

/// Whether a Snapshot waits for somebody: it is not ready, not known to be its own, or deleted.
pub(crate) fn is_unsettled(snapshot: &Snapshot) -> bool {
    let is_ready = snapshot.state() == SnapshotState::Ready && snapshot.handle().is_some();
    !is_ready || snapshot.metadata.deletion_timestamp.is_some()
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
