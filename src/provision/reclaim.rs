//! What becomes of a volume when nobody claims its PersistentVolume any more, or somebody deletes that.

use k8s_openapi::api::core::v1::PersistentVolume;

use super::annotations::{PROVISIONED_BY, annotation};
use super::persistent_volume::{FINALIZER, IDENTITY, identity_of};
use crate::api::Volume;
use crate::api::provision::ReclaimPolicy;
use crate::api::volume::DeletionPolicy;

/// How a PersistentVolume that moor may reclaim ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// What is to become of the storage.
    pub policy: ReclaimPolicy,
    /// Somebody deletes the PersistentVolume.
    pub deleted: bool,
    /// moor has made it, so that there has been a Volume with its storage.
    pub made_here: bool,
}

/// The Volume that has the storage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum VolumeNow<'a> {
    /// There is none, by live reads, and no VolumeHandle.
    Gone,
    /// There is none, and the VolumeHandle is there that one had.
    Removed,
    /// It is there.
    There(&'a Volume),
    /// A Volume of somebody else than moor has the storage.
    OfUsers(&'a Volume),
}

/// One step. Every variant is at most one side effect, or two that may be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reclaim {
    /// Nothing: it is in use, it stays, or it is somebody else's.
    Nothing,
    /// Write the policy on the Volume, and delete it.
    DeleteVolume(DeletionPolicy),
    /// Delete the PersistentVolume: its storage is gone, or others go on with it.
    DeletePersistentVolume,
    /// Take the finalizer off.
    Free,
    /// The Volume is on its way. What it says goes wrong, if something does.
    Wait(Option<String>),
    /// It cannot be done. In words.
    Refuse(String),
}

impl Ends {
    /// How the PersistentVolume ends; None while it is in use or stays, and of one that is somebody else's. `served` says
    /// whether moor serves a driver of that name.
    #[must_use]
    pub fn of(volume: &PersistentVolume, served: impl Fn(&str) -> bool) -> Option<Self> {
        let (meta, spec) = (&volume.metadata, volume.spec.as_ref()?);
        let driver = &spec.csi.as_ref()?.driver;
        if annotation(meta.annotations.as_ref(), PROVISIONED_BY) != Some(driver) || !served(driver) {
            return None;
        }
        let deleted = meta.deletion_timestamp.is_some();
        let held = meta.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER);
        if deleted && !held {
            // Done, and others keep it.
            return None;
        }
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
        let unclaimed = phase == "Released" || (deleted && matches!(phase, "Available" | "Failed"));
        let policy = match spec.persistent_volume_reclaim_policy.as_deref() {
            Some("Delete") => ReclaimPolicy::Delete,
            // Without a word the storage stays.
            None | Some("Retain" | "Recycle") => ReclaimPolicy::Retain,
            Some(_) => return None,
        };
        let goes = unclaimed && (deleted || policy == ReclaimPolicy::Delete);
        let identity = spec.csi.as_ref()?.volume_attributes.as_ref().and_then(|all| all.get(IDENTITY));
        let made_here = identity.is_some_and(|identity| *identity == identity_of(driver));
        goes.then_some(Self { policy, deleted, made_here })
    }
}

/// Plans the next step. `has_other` says that a further PersistentVolume stands for the same storage, which has to be
/// looked for live before a Volume is deleted.
#[must_use]
pub fn reclaim(ends: Ends, volume: VolumeNow<'_>, has_other: bool) -> Reclaim {
    let away = if ends.deleted { Reclaim::Free } else { Reclaim::DeletePersistentVolume };
    if has_other {
        // The last one decides.
        return away;
    }
    let volume = match volume {
        VolumeNow::Gone if ends.made_here || ends.policy == ReclaimPolicy::Retain => return away,
        VolumeNow::Gone => {
            return Reclaim::Refuse(
                "another provisioner has made it, and no Volume has its storage: delete the storage by hand, and set \
                 persistentVolumeReclaimPolicy to Retain"
                    .to_owned(),
            );
        }
        VolumeNow::Removed if ends.policy == ReclaimPolicy::Retain => return away,
        VolumeNow::Removed => {
            return Reclaim::Refuse(
                "the Volume that had its storage was removed by force, and its VolumeHandle is left: delete the storage by \
                 hand, and set persistentVolumeReclaimPolicy to Retain"
                    .to_owned(),
            );
        }
        VolumeNow::OfUsers(volume) => return of_users(ends, volume, away),
        VolumeNow::There(volume) => volume,
    };
    let going = volume.metadata.deletion_timestamp.is_some();
    match (ends.policy, volume.spec.deletion_policy) {
        (ReclaimPolicy::Retain, Some(DeletionPolicy::Retain)) if going => away,
        (ReclaimPolicy::Retain, _) => Reclaim::DeleteVolume(DeletionPolicy::Retain),
        (ReclaimPolicy::Delete, Some(DeletionPolicy::Delete)) if going => Reclaim::Wait(words(volume)),
        (ReclaimPolicy::Delete, _) => Reclaim::DeleteVolume(DeletionPolicy::Delete),
    }
}

fn of_users(ends: Ends, volume: &Volume, away: Reclaim) -> Reclaim {
    match ends.policy {
        ReclaimPolicy::Retain => away,
        ReclaimPolicy::Delete => {
            let owner = volume.reference();
            Reclaim::Refuse(format!(
                "Volume {}/{} has the storage, and was not made for a PersistentVolume: delete that Volume, or set \
                 persistentVolumeReclaimPolicy to Retain",
                owner.namespace, owner.name
            ))
        }
    }
}

fn words(volume: &Volume) -> Option<String> {
    let error = volume.status.as_ref()?.last_error.as_ref()?;
    Some(format!("{}: {}: {}", error.rpc, error.code, error.message))
}

#[cfg(test)]
#[path = "reclaim_tests.rs"]
mod tests;
