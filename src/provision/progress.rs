//! What is done next about a claim whose Volume is there: until the PersistentVolume is made, which ends provisioning.

use k8s_openapi::api::core::v1::PersistentVolume;

use super::persistent_volume::{Match, compare, persistent_volume};
use crate::api::conditions::{READY, find};
use crate::api::provision::Provision;
use crate::api::reason::Reason;
use crate::api::{Volume, VolumeState};

/// The claim, by a live read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimNow<'a> {
    /// It is gone, or going, or another one of its name is there.
    Gone,
    /// It is there.
    There {
        /// The node that the scheduler has chosen.
        selected_node: Option<&'a str>,
        /// Whether that node exists.
        node_exists: bool,
        /// The PersistentVolume to which it is bound.
        volume_name: Option<&'a str>,
    },
}

/// The PersistentVolume of the name that is to be made, by a live read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PersistentVolumeNow<'a> {
    /// Nobody has looked: it is not looked at before the Volume is Ready.
    Unasked,
    /// There is none.
    Absent,
    /// There is one.
    There(&'a PersistentVolume),
}

/// One step. Every variant is at most one side effect, but for the words that go with it.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Nothing to do until something changes.
    Idle,
    /// Nobody wants the volume any more: delete the Volume, and what was made with it.
    DeleteVolume,
    /// GET the PersistentVolume.
    Look,
    /// Make the PersistentVolume.
    Make(Box<PersistentVolume>),
    /// The PersistentVolume is there: write it on the Volume.
    Record {
        /// Another provisioner of the driver has made it.
        by_another: bool,
    },
    /// Take the chosen node off the claim, then delete the Volume: there is no room at that node, or the node is gone.
    Reschedule(String),
    /// Say what goes wrong.
    Tell(String),
}

/// Plans the next step. `volume` was made for the claim.
#[must_use]
pub fn plan(volume: &Volume, claim: ClaimNow<'_>, found: PersistentVolumeNow<'_>) -> Step {
    let Some(provision) = &volume.spec.persistent_volume else { return Step::Idle };
    let recorded = volume.status.as_ref().is_some_and(|status| status.persistent_volume.is_some());
    if recorded || volume.metadata.deletion_timestamp.is_some() {
        // What is made ends with the PersistentVolume; what is being deleted with itself.
        return Step::Idle;
    }
    match volume.state() {
        VolumeState::Pending | VolumeState::Created => under_way(volume, provision, claim),
        VolumeState::Ready => ready(volume, provision, claim, found),
        VolumeState::Deleted => Step::Idle,
    }
}

fn under_way(volume: &Volume, provision: &Provision, claim: ClaimNow<'_>) -> Step {
    let ClaimNow::There { selected_node, node_exists, volume_name } = claim else {
        return Step::DeleteVolume;
    };
    if volume_name.is_some_and(|name| name != provision.name) {
        return Step::DeleteVolume;
    }
    if volume.source_is_gone() {
        // It never will be made, and the claim is told what has become of what it names.
        return Step::DeleteVolume;
    }
    let is_late = provision.selected_node.is_some();
    if volume.state() == VolumeState::Pending && is_late {
        if selected_node != provision.selected_node.as_deref() {
            // Asked for with another node in mind, and not made yet.
            return Step::DeleteVolume;
        }
        if !node_exists {
            return Step::Reschedule("the node that the scheduler chose does not exist any more".to_owned());
        }
        if let Some(words) = is_full(volume).filter(|_| provision.in_places) {
            return Step::Reschedule(words);
        }
    }
    goes_wrong(volume).map_or(Step::Idle, Step::Tell)
}

fn ready(
    volume: &Volume,
    provision: &Provision,
    claim: ClaimNow<'_>,
    found: PersistentVolumeNow<'_>,
) -> Step {
    let Some(wanted) = persistent_volume(volume) else { return Step::Idle };
    let name = &provision.name;
    match (found, claim) {
        (PersistentVolumeNow::Unasked, _) => Step::Look,
        (PersistentVolumeNow::There(found), claim) => match (compare(&wanted, found), claim) {
            // Also where the claim is gone meanwhile: what becomes of it is up to the PersistentVolume from now on.
            (Match::Own { by_another }, ClaimNow::Gone | ClaimNow::There { .. }) => {
                Step::Record { by_another }
            }
            (Match::Other(_), ClaimNow::Gone) => Step::DeleteVolume,
            (Match::Other(what), ClaimNow::There { .. }) => {
                Step::Tell(format!("PersistentVolume {name} exists, and {what}; delete it, or the claim"))
            }
        },
        (PersistentVolumeNow::Absent, ClaimNow::Gone) => Step::DeleteVolume,
        (PersistentVolumeNow::Absent, ClaimNow::There { volume_name: Some(other), .. }) if other != name => {
            Step::DeleteVolume
        }
        (PersistentVolumeNow::Absent, ClaimNow::There { .. }) => Step::Make(Box::new(wanted)),
    }
}

/// What the driver said, if it said clearly that there is no room and that it has made nothing.
fn is_full(volume: &Volume) -> Option<String> {
    let status = volume.status.as_ref().filter(|status| status.rejected.is_none())?;
    let error = status.last_error.as_ref().filter(|_| !volume.may_exist())?;
    let is_full = error.code == "ResourceExhausted" && error.rpc == "CreateVolume";
    is_full.then(|| format!("{}: {}: {}", error.rpc, error.code, error.message))
}

/// What somebody has to know: the driver's words, or what the Volume waits for that does not come by itself.
fn goes_wrong(volume: &Volume) -> Option<String> {
    let status = volume.status.as_ref()?;
    if let Some(error) = &status.last_error {
        return Some(format!("{}: {}: {}", error.rpc, error.code, error.message));
    }
    let ready = find(&status.conditions, READY).filter(|c| c.status != "True")?;
    let comes = [Reason::Creating, Reason::Created, Reason::Validated, Reason::Ready];
    let comes = comes.iter().any(|reason| reason.as_str() == ready.reason);
    (!comes && !ready.message.is_empty()).then(|| ready.message.clone())
}

#[cfg(test)]
#[path = "progress_tests.rs"]
mod tests;
