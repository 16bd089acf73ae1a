//! What passes are about: their keys in the queue.

use std::fmt;

use crate::api::attachment::VolumeRef;
use crate::api::provision::ProvisionedFor;
use crate::api::{Snapshot, Volume, VolumeClaim};
use crate::k8s::Named;

/// What a pass is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// A Volume with all that hangs on it; it may not exist.
    Volume(VolumeKey),
    /// A Snapshot.
    Snapshot(VolumeKey),
    /// A Plugin's status.
    Plugin(String),
    /// What the scheduler is told of the room that a Plugin's driver has; the Plugin may not exist.
    Capacities(String),
    /// A PersistentVolumeClaim that is or was to be provisioned.
    Provision(ProvisionedFor),
    /// A PersistentVolumeClaim that asks for more than it has.
    Resize(ProvisionedFor),
    /// A PersistentVolumeClaim that names another VolumeAttributesClass than it has.
    Modify(ProvisionedFor),
    /// A PersistentVolumeClaim that is kept because its volume is copied.
    Copied(ProvisionedFor),
    /// A PersistentVolume that ends; its name.
    PersistentVolume(String),
    /// A VolumeSnapshotContent; its name. It may be gone.
    Content(String),
    /// A VolumeGroupSnapshotContent; its name. It may be gone.
    GroupContent(String),
    /// A Volume that was made of a PersistentVolume, which may be gone; its name.
    Import(String),
    /// A Volume that Pods use by a PersistentVolumeClaim, or are or were to.
    Export(VolumeKey),
}

/// A Volume or a Snapshot by its names. It may not exist.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct VolumeKey {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    /// The kind that the pass is about.
    pub(crate) fn about(&self) -> &'static str {
        match self {
            Self::Volume(_) => "Volume",
            Self::Snapshot(_) => "Snapshot",
            Self::Plugin(_) => "Plugin",
            Self::Provision(_) | Self::Resize(_) | Self::Modify(_) | Self::Copied(_) => {
                "PersistentVolumeClaim"
            }
            Self::Capacities(_) => "CSIStorageCapacity",
            Self::PersistentVolume(_) => "PersistentVolume",
            Self::Content(_) => "VolumeSnapshotContent",
            Self::GroupContent(_) => "VolumeGroupSnapshotContent",
            Self::Import(_) => "imported Volume",
            Self::Export(_) => "exported Volume",
        }
    }

    /// The pass over this Volume.
    pub(crate) fn of(volume: &Volume) -> Self {
        Self::of_owner(&volume.reference())
    }

    /// The pass over the content of this name, for which a Snapshot was made.
    pub(crate) fn of_content(is_group: bool, name: &str) -> Self {
        if is_group { Self::GroupContent(name.to_owned()) } else { Self::Content(name.to_owned()) }
    }

    /// The pass over this Snapshot.
    pub(crate) fn of_snapshot(snapshot: &Snapshot) -> Self {
        let meta = &snapshot.metadata;
        let (namespace, name) = (meta.namespace.clone(), meta.name.clone());
        Self::Snapshot(VolumeKey { namespace: namespace.unwrap_or_default(), name: name.unwrap_or_default() })
    }

    /// The pass over the Volume that an object was made for.
    pub(crate) fn of_owner(owner: &VolumeRef) -> Self {
        Self::Volume(VolumeKey::of_owner(owner))
    }

    /// The pass over the Volume that a claim names.
    pub(crate) fn of_claim(claim: &VolumeClaim) -> Self {
        Self::Volume(VolumeKey::of_claim(claim))
    }
}

impl VolumeKey {
    /// The Volume that an object was made for.
    pub(crate) fn of_owner(owner: &VolumeRef) -> Self {
        Self { namespace: owner.namespace.clone(), name: owner.name.clone() }
    }

    /// The Volume that a claim names.
    pub(crate) fn of_claim(claim: &VolumeClaim) -> Self {
        let namespace = claim.metadata.namespace.clone().unwrap_or_default();
        Self { namespace, name: claim.spec.volume_name.clone() }
    }

    /// The Volumes that a Snapshot is taken of.
    pub(crate) fn of_snapshots_volumes(snapshot: &Snapshot) -> impl Iterator<Item = Self> {
        let namespace = snapshot.metadata.namespace.clone().unwrap_or_default();
        snapshot.spec.volumes().map(move |name| Self { namespace: namespace.clone(), name: name.clone() })
    }

    /// Its names, as caches ask for them.
    pub(crate) fn named(&self) -> Named<'_> {
        Named { namespace: &self.namespace, name: &self.name }
    }
}

impl fmt::Display for VolumeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A driver on a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) driver: String,
    pub(crate) node: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.driver, self.node)
    }
}
