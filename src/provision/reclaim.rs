//! What becomes of a volume when nobody claims its PersistentVolume any more, or somebody deletes that.

use k8s_openapi::api::core::v1::PersistentVolume;

use super::annotations::PROVISIONED_BY;
use super::persistent_volume::FINALIZER;
use crate::api::conditions::{READY, Reason, find};
use crate::api::provision::ReclaimPolicy;
use crate::api::volume::DeletionPolicy;
use crate::api::{Volume, VolumeState, has_finalizer};

/// How a PersistentVolume that moor may reclaim ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// What is to become of the storage.
    pub policy: ReclaimPolicy,
    /// Somebody deletes the PersistentVolume.
    pub deleted: bool,
    /// It has the finalizer that keeps it until its storage is gone.
    pub held: bool,
}

/// The Volume that has the storage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum VolumeNow<'a> {
    /// There was one with which the storage was to go. It is gone.
    Gone,
    /// There is none, and nobody knows that one was told to delete the storage; or one was removed by force. A driver that has
    /// deleted the storage already answers with OK.
    Absent,
    /// moor keeps it for PersistentVolumes.
    Kept {
        /// The Volume.
        volume: &'a Volume,
        /// Some instance of the driver makes its controller calls.
        callable: bool,
    },
    /// It is provisioned for a claim, whose PersistentVolume has not been made yet.
    BeingMade,
    /// A Volume of somebody else than moor has the storage.
    OfUsers(&'a Volume),
}

/// One step. Every variant is at most one side effect, or two that may be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reclaim {
    /// Put the finalizer on: from now on the PersistentVolume is there until its storage is gone.
    Hold,
    /// Make the Volume of the PersistentVolume, by which its storage can be deleted.
    Import,
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
        driver_of(volume, served)?;
        let (meta, spec) = (&volume.metadata, volume.spec.as_ref()?);
        let deleted = meta.deletion_timestamp.is_some();
        let held = is_held(volume);
        if deleted && !held {
            // Done, and others keep it.
            return None;
        }
        let phase = phase(volume);
        let unclaimed = phase == "Released" || (deleted && matches!(phase, "Available" | "Failed"));
        let policy = match spec.persistent_volume_reclaim_policy.as_deref() {
            Some("Delete") => ReclaimPolicy::Delete,
            // Without a word the storage stays.
            None | Some("Retain" | "Recycle") => ReclaimPolicy::Retain,
            Some(_) => return None,
        };
        let goes = unclaimed && (deleted || policy == ReclaimPolicy::Delete);
        goes.then_some(Self { policy, deleted, held })
    }
}

/// Whether the PersistentVolume is in use, and its storage is to go with it: it must not be gone before.
#[must_use]
pub fn is_to_be_held(volume: &PersistentVolume, served: impl Fn(&str) -> bool) -> bool {
    let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    driver_of(volume, served).is_some()
        && policy == Some("Delete")
        && phase(volume) == "Bound"
        && volume.metadata.deletion_timestamp.is_none()
        && !is_held(volume)
}

/// The driver, if moor does for this PersistentVolume what the driver's provisioner would: also for one that somebody has
/// written by hand, but not for one that names another provisioner.
fn driver_of(volume: &PersistentVolume, served: impl Fn(&str) -> bool) -> Option<&str> {
    let driver = volume.spec.as_ref()?.csi.as_ref()?.driver.as_str();
    let by = volume.metadata.annotations.as_ref().and_then(|all| all.get(PROVISIONED_BY));
    (by.is_none_or(|by| by == driver) && served(driver)).then_some(driver)
}

fn is_held(volume: &PersistentVolume) -> bool {
    has_finalizer(&volume.metadata, FINALIZER)
}

fn phase(volume: &PersistentVolume) -> &str {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Plans the next step for the PersistentVolume `name`. `has_other` says that a further PersistentVolume stands for the same
/// storage, which has to be looked for live before a Volume is deleted.
#[must_use]
pub fn reclaim(name: &str, ends: Ends, volume: VolumeNow<'_>, has_other: bool) -> Reclaim {
    if !ends.held {
        return Reclaim::Hold;
    }
    let away = if ends.deleted { Reclaim::Free } else { Reclaim::DeletePersistentVolume };
    if has_other {
        // The last one decides.
        return away;
    }
    match (volume, ends.policy) {
        (VolumeNow::Gone, _) | (VolumeNow::Absent | VolumeNow::OfUsers(_), ReclaimPolicy::Retain) => away,
        (VolumeNow::Absent, ReclaimPolicy::Delete) => Reclaim::Import,
        (VolumeNow::BeingMade, _) => Reclaim::Wait(None),
        (VolumeNow::OfUsers(volume), ReclaimPolicy::Delete) => of_users(volume),
        (VolumeNow::Kept { volume, .. }, ReclaimPolicy::Retain) => {
            match (is_going(volume), volume.spec.deletion_policy) {
                (true, Some(DeletionPolicy::Retain)) => away,
                (true, Some(DeletionPolicy::Delete) | None) | (false, _) => {
                    Reclaim::DeleteVolume(DeletionPolicy::Retain)
                }
            }
        }
        (VolumeNow::Kept { volume, callable }, ReclaimPolicy::Delete) => delete(name, volume, callable),
    }
}

fn is_going(volume: &Volume) -> bool {
    volume.metadata.deletion_timestamp.is_some()
}

/// Has the storage deleted by way of its Volume.
fn delete(name: &str, volume: &Volume, callable: bool) -> Reclaim {
    let spec = &volume.spec;
    let is_ordered = spec.reclaimed_for.as_deref() == Some(name);
    let is_import = spec.volume_handle.is_some();
    match (is_going(volume), is_ordered && spec.deletion_policy == Some(DeletionPolicy::Delete)) {
        (true, true) => Reclaim::Wait(goes_wrong(volume)),
        // Somebody has deleted it, and it leaves the storage: another one is made after it.
        (true, false) if is_import => Reclaim::Wait(goes_wrong(volume)),
        // Without the lock nobody would be asked to delete anything.
        (false, _) if is_import && volume.state() != VolumeState::Ready => Reclaim::Wait(goes_wrong(volume)),
        (false, _) if is_import && !callable => Reclaim::Refuse(format!(
            "no instance of Plugin {} serves the Controller service, so nobody can call DeleteVolume: start the driver with \
             it, or delete the storage by hand and set persistentVolumeReclaimPolicy to Retain",
            spec.plugin_name
        )),
        (true | false, _) => Reclaim::DeleteVolume(DeletionPolicy::Delete),
    }
}

fn of_users(volume: &Volume) -> Reclaim {
    let owner = volume.reference();
    Reclaim::Refuse(format!(
        "Volume {}/{} has the storage, and was not made for a PersistentVolume: delete that Volume, or set \
         persistentVolumeReclaimPolicy to Retain",
        owner.namespace, owner.name
    ))
}

/// What somebody has to know: the driver's words, or what the Volume waits for.
fn goes_wrong(volume: &Volume) -> Option<String> {
    let status = volume.status.as_ref()?;
    if let Some(error) = &status.last_error {
        return Some(format!("{}: {}: {}", error.rpc, error.code, error.message));
    }
    let ready = find(&status.conditions, READY).filter(|c| c.status != "True")?;
    // That it is being detached is no failure.
    let told = [Reason::AgentNotHeard, Reason::DuplicateHandle, Reason::NoInstance, Reason::PluginNotFound];
    told.iter().any(|reason| reason.as_str() == ready.reason).then(|| ready.message.clone())
}

#[cfg(test)]
#[path = "reclaim_tests.rs"]
mod tests;
