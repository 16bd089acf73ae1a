//! What the controller knows: the caches of what it watches, and what it has made of them. All of it is in memory, and
//! none of it makes a request.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::storage::v1::{CSIDriver, CSIStorageCapacity, StorageClass};

use super::caches::{self, BY_PLACE};
use super::caution::Caution;
use super::corrections::Corrections;
use super::gone::GoneObserver;
use super::instances::InstancesByPlugin;
use super::key::{Key, Place};
use super::linger::Linger;
use super::pod_looks::PodLooks;
use super::provisioning::Provisioning;
use super::room::Room;
use super::unsettled::Unsettled;
use super::workload_caches::WorkloadCaches;
use crate::api::{Attachment, Plugin, PluginInstance, Snapshot, Volume, VolumeClaim, VolumeHandle};
use crate::heartbeat::{AgentOnNode, LeaseObserver};
use crate::k8s::node::LeanNode;
use crate::k8s::{Cache, Queue};
use crate::plugin::workload::Site;
use crate::provision::{
    VolumeGroupSnapshotContent, VolumeSnapshotContent, WatchedClaim, WatchedPersistentVolume,
};

/// Caches, queue and observers.
pub(crate) struct Known {
    pub(crate) queue: Arc<Queue<Key>>,
    pub(crate) plugins: Arc<Cache<Plugin>>,
    pub(crate) instances: Arc<Cache<PluginInstance>>,
    pub(crate) volumes: Arc<Cache<Volume>>,
    pub(crate) snapshots: Arc<Cache<Snapshot>>,
    pub(crate) claims: Arc<Cache<VolumeClaim>>,
    pub(crate) handles: Arc<Cache<VolumeHandle>>,
    pub(crate) attachments: Arc<Cache<Attachment>>,
    pub(crate) nodes: Arc<Cache<LeanNode>>,
    /// The Namespaces, for their labels.
    pub(crate) namespaces: Arc<Cache<Namespace>>,
    pub(crate) csi_drivers: Arc<Cache<CSIDriver>>,
    /// moor's own, which say how much room drivers have. No others.
    pub(crate) csi_capacities: Arc<Cache<CSIStorageCapacity>>,
    /// PersistentVolumeClaims that wait for a provisioner, whosever that is, ask for more than they have, name another
    /// VolumeAttributesClass, or are being copied. No others.
    pub(crate) pvcs: Arc<Cache<WatchedClaim>>,
    /// PersistentVolumes with a CSI driver that nobody claims any more or somebody deletes, and those of which nothing would
    /// be kept then though their storage is to go. No others.
    pub(crate) pvs: Arc<Cache<WatchedPersistentVolume>>,
    pub(crate) classes: Arc<Cache<StorageClass>>,
    /// None where the cluster has no such kind.
    pub(crate) contents: Arc<Cache<VolumeSnapshotContent>>,
    pub(crate) group_contents: Arc<Cache<VolumeGroupSnapshotContent>>,
    pub(crate) lease_cache: Arc<Cache<Lease>>,
    /// Of Plugins that declare Pods of their drivers, and no others.
    pub(crate) workloads: WorkloadCaches,
    pub(crate) leases: LeaseObserver,
    pub(crate) caution: Arc<Caution>,
    pub(crate) room: Room,
    pub(crate) provisioning: Provisioning,
    pub(crate) unsettled: Unsettled,
    pub(crate) linger: Linger,
    pub(crate) by_plugin: InstancesByPlugin,
    /// Controller processes that are gone.
    pub(crate) gone: GoneObserver,
    /// Controller processes that are gone or not well.
    pub(crate) ill: GoneObserver,
    /// Drivers of which no process is left.
    pub(crate) left: GoneObserver,
    pub(crate) pods: PodLooks,
    /// Of CSIDriver objects.
    pub(crate) corrections: Corrections,
    /// Namespace of the agents' Leases.
    pub(crate) namespace: String,
    /// Longest time that one CSI call may take (rule R2).
    pub(crate) longest_call: Duration,
    /// When this process began.
    pub(crate) started: Timestamp,
}

impl Known {
    /// Nothing is known yet.
    pub(crate) fn new(site: Site, longest_call: Duration, lingers: Duration) -> Self {
        let namespace = site.namespace.clone();
        Self {
            queue: Arc::default(),
            plugins: Arc::new(Cache::new(&["plugins"])),
            instances: Arc::new(caches::instance_cache()),
            volumes: Arc::new(caches::volume_cache()),
            snapshots: Arc::new(caches::snapshot_cache()),
            claims: Arc::new(caches::claim_cache()),
            handles: Arc::new(caches::handle_cache()),
            attachments: Arc::new(caches::attachment_cache()),
            nodes: Arc::new(Cache::new(&["nodes"])),
            namespaces: Arc::new(Cache::new(&["namespaces"])),
            csi_drivers: Arc::new(Cache::new(&["csidrivers"])),
            csi_capacities: Arc::new(caches::capacity_cache()),
            pvcs: Arc::new(Cache::new(&["persistentvolumeclaims"]).that_keeps(|claim| {
                claim.awaits() || claim.grows() || claim.modifies() || claim.is_copied()
            })),
            pvs: Arc::new(Cache::new(&["persistentvolumes"]).that_keeps(WatchedPersistentVolume::concerns)),
            classes: Arc::new(Cache::new(&["storageclasses"]).without_annotations()),
            contents: Arc::new(Cache::new(&["volumesnapshotcontents"])),
            group_contents: Arc::new(Cache::new(&["volumegroupsnapshotcontents"])),
            lease_cache: Arc::new(caches::lease_cache()),
            workloads: WorkloadCaches::new(site),
            leases: LeaseObserver::default(),
            caution: Arc::default(),
            room: Room::default(),
            provisioning: Provisioning::default(),
            unsettled: Unsettled::default(),
            linger: Linger::new(lingers),
            by_plugin: InstancesByPlugin::default(),
            gone: GoneObserver::of_controllers(),
            ill: GoneObserver::of_healthy_controllers(),
            left: GoneObserver::of_drivers(),
            pods: PodLooks::default(),
            corrections: Corrections::default(),
            namespace,
            longest_call,
            started: Timestamp::now(),
        }
    }

    /// Waits until every cache has been filled once: before that nothing is decided.
    pub(crate) async fn synced(&self) {
        self.plugins.synced().await;
        self.instances.synced().await;
        self.volumes.synced().await;
        self.snapshots.synced().await;
        self.claims.synced().await;
        self.handles.synced().await;
        self.attachments.synced().await;
        self.nodes.synced().await;
        self.namespaces.synced().await;
        self.csi_drivers.synced().await;
        self.csi_capacities.synced().await;
        self.pvcs.synced().await;
        self.pvs.synced().await;
        self.classes.synced().await;
        self.contents.synced().await;
        self.group_contents.synced().await;
        // What has not been listed would look like an agent that has no Lease.
        self.lease_cache.synced().await;
        self.workloads.synced().await;
    }

    /// Whether every cache has been filled once. A standby is ready too: it can take over at once.
    pub(crate) fn synced_now(&self) -> bool {
        self.synced().now_or_never().is_some()
    }

    /// How many volumes of a driver are attached to a node, or may be: one that leaves counts until it is gone (trap
    /// L9).
    pub(crate) fn load(&self, place: &Place) -> usize {
        self.attachments.count(BY_PLACE, &place.to_string())
    }

    /// How long the Lease of the agent beside an instance has been expired, as this process observed it;
    /// `None` while it is fresh or has not been watched for long enough.
    pub(crate) fn silent_for(&self, instance: &PluginInstance) -> Option<Duration> {
        self.leases.silent_for(&AgentOnNode::of_instance(instance))
    }

    /// Whether no call of a controller instance can be running, as the caches say: its agent has been silent for longer
    /// than any call takes, or is silent on a machine of which somebody vouches that it is off (rule R2).
    pub(crate) fn looks_dead(&self, node: &str, silent: Option<Duration>) -> bool {
        let off = || self.nodes.get(node).is_some_and(|n| n.is_out_of_service());
        silent.is_some_and(|s| s > self.longest_call || off())
    }
}

/// Where nothing is run.
#[cfg(test)]
pub(super) fn site() -> Site {
    Site::new("moor-system".into(), "/var/lib/kubelet".into(), None)
}
