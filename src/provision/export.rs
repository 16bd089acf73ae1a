//! What is done next about a Volume that Pods are to use: `Volume.spec.persistentVolumeClaim`.
//!
//! ```text
//! status.export --> PersistentVolume, for a claim of that name --> its UID --> PersistentVolumeClaim --> Exported
//! claim deleted by hand: PersistentVolume free again --> PersistentVolumeClaim
//! to end: no Pod uses it --> claim deleted and gone --> PersistentVolume deleted and gone --> no status.export
//! ```
//!
//! Nobody but who can write PersistentVolumes can have one named as a Volume's own is, after the Volume's UID. `status.export` is the
//! leader's alone: a policy refuses it to agents, who write the rest of the status (`moor-volume-status`).

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::export_objects::{self as objects, Source, Use};
use crate::api::conditions::{Desired, EXPORTED, Reason, find};
use crate::api::export::Exported;
use crate::api::{Volume, VolumeState, names, quantity};

/// Everything that the decision looks at.
#[derive(Clone, Debug)]
pub struct Seen<'a> {
    /// The Volume.
    pub volume: &'a Volume,
    /// moor's own namespace.
    pub own_namespace: &'a str,
    /// The name of the driver at kubelets; None while its Plugin serves no Pods, or has another driver than the VolumeHandle.
    pub driver: Option<&'a str>,
    /// The volume id, by the Volume's own VolumeHandle; None without one.
    pub volume_handle: Option<&'a str>,
    /// The Pods that have the volume, or wait for it, in words.
    pub used_by: Option<String>,
    /// The PersistentVolumeClaim of the name that [`claim_of`] says, by a live read.
    pub claim: Option<&'a PersistentVolumeClaim>,
    /// The PersistentVolume of the Volume's own name for one, by a live read.
    pub persistent: Option<&'a PersistentVolume>,
}

/// One step. Every variant is at most one write.
#[derive(Clone, Debug, PartialEq)]
pub enum Export {
    /// Nothing: the Volume is not exported, nor to be.
    Nothing,
    /// Write this condition, if the Volume does not say so. A False one is looked at again.
    Say(Desired),
    /// Write this into `status.export`.
    Record(Exported),
    /// Make the PersistentVolume.
    MakePersistentVolume(Box<PersistentVolume>),
    /// Make the PersistentVolumeClaim.
    MakeClaim(Box<PersistentVolumeClaim>),
    /// Write what is different in the PersistentVolume.
    Change(Box<PersistentVolume>),
    /// Delete the PersistentVolumeClaim that was seen.
    DeleteClaim,
    /// Delete the PersistentVolume that was seen.
    DeletePersistentVolume,
    /// Take `status.export` and the condition away.
    End,
}

/// Name of the PersistentVolumeClaim that is to be looked at; None of a Volume that is not exported, nor to be.
#[must_use]
pub fn claim_of(volume: &Volume) -> Option<&str> {
    made(volume).map(|made| made.persistent_volume_claim.as_str()).or_else(|| wanted(volume))
}

/// Whether anything is, or was, to be done about the Volume's export.
#[must_use]
pub fn concerns(volume: &Volume) -> bool {
    claim_of(volume).is_some() || says_anything(volume)
}

fn wanted(volume: &Volume) -> Option<&str> {
    let stands = volume.metadata.deletion_timestamp.is_none();
    volume.spec.persistent_volume_claim.as_ref().filter(|_| stands).map(|claim| claim.name.as_str())
}

fn made(volume: &Volume) -> Option<&Exported> {
    volume.status.as_ref()?.export.as_deref()
}

fn says_anything(volume: &Volume) -> bool {
    find(volume.status.iter().flat_map(|status| &status.conditions), EXPORTED).is_some()
}

/// The PersistentVolume of the Volume's own name.
enum Found<'a> {
    Absent,
    Own(&'a PersistentVolume),
    /// Somebody else's, or another one than the one that was recorded.
    Other,
}

impl<'a> Seen<'a> {
    fn persistent_volume(&self, recorded: Option<&str>) -> Found<'a> {
        let Some(found) = self.persistent else { return Found::Absent };
        let uid = found.metadata.uid.as_deref();
        let is_own = match recorded {
            Some(recorded) => uid == Some(recorded),
            // Made by a leader that died before it could write that down.
            None => objects::is_persistent_volume_of(self.volume, found, self.volume_handle),
        };
        if is_own { Found::Own(found) } else { Found::Other }
    }

    fn own_claim(&self) -> Option<&'a PersistentVolumeClaim> {
        self.claim.filter(|claim| objects::is_claim_of(self.volume, claim))
    }

    fn claim_name(&self, name: &str) -> String {
        format!("{}/{name}", self.volume.metadata.namespace.as_deref().unwrap_or_default())
    }

    /// Where and how Pods use the volume; Err says why they cannot.
    fn means(&self) -> Result<(Source<'a>, Use), Desired> {
        let cannot = |why: String| Desired::new(Reason::CannotExport, why);
        if self.volume.metadata.namespace.as_deref() == Some(self.own_namespace) {
            return Err(cannot(format!(
                "Volumes of namespace {} are moor's own for Pods: create the Volume in the namespace of the Pods",
                self.own_namespace
            )));
        }
        if objects::names_foreign_secret(self.volume) {
            return Err(cannot(
                "spec.secrets names a Secret of another namespace: name one of this Volume's namespace"
                    .to_owned(),
            ));
        }
        let how = objects::use_of(self.volume).map_err(cannot)?;
        let waits = |why: String| Desired::new(Reason::ExportWaits, why);
        let volume_handle = self.volume_handle.filter(|_| self.volume.state() == VolumeState::Ready);
        let Some(volume_handle) = volume_handle else {
            return Err(waits("the Volume is not Ready yet; see its condition Ready".to_owned()));
        };
        let Some(driver) = self.driver else {
            let plugin = &self.volume.spec.plugin_name;
            return Err(waits(format!(
                "Plugin {plugin} does not serve Pods now; `kubectl get plugin {plugin}` says why"
            )));
        };
        Ok((Source { driver, volume_handle }, how))
    }
}

/// Plans the next step.
#[must_use]
pub fn export(seen: &Seen<'_>) -> Export {
    match (wanted(seen.volume), made(seen.volume)) {
        (None, None) if says_anything(seen.volume) => Export::End,
        (None, None) => Export::Nothing,
        (Some(name), None) => begin(seen, name),
        (Some(name), Some(made)) if made.persistent_volume_claim == name => go_on(seen, made),
        // Another name: what has the one before ends first.
        (Some(_) | None, Some(made)) => end(seen, made),
    }
}

fn begin(seen: &Seen<'_>, name: &str) -> Export {
    if let Err(lack) = seen.means() {
        return Export::Say(lack);
    }
    if let Some(taken) = taken(seen, name) {
        return taken;
    }
    let uid = seen.volume.metadata.uid.as_deref().unwrap_or_default();
    Export::Record(Exported {
        persistent_volume_claim: name.to_owned(),
        persistent_volume: names::export(uid),
        persistent_volume_uid: None,
    })
}

/// What is said where somebody else has the name of the claim.
fn taken(seen: &Seen<'_>, name: &str) -> Option<Export> {
    let other = seen.claim.filter(|claim| !objects::is_claim_of(seen.volume, claim))?;
    let (name, whose) = (seen.claim_name(name), objects::whose(other));
    Some(Export::Say(Desired::new(
        Reason::ExportNameTaken,
        format!(
            "PersistentVolumeClaim {name} exists and {whose}; it is left as it is. Delete it, or name another one in \
             spec.persistentVolumeClaim"
        ),
    )))
}

fn go_on(seen: &Seen<'_>, made: &Exported) -> Export {
    let (source, how) = match seen.means() {
        Ok(means) => means,
        Err(lack) => return Export::Say(lack),
    };
    let name = &made.persistent_volume_claim;
    if let Some(taken) = taken(seen, name) {
        return taken;
    }
    let own_claim = seen.own_claim();
    if own_claim.is_some_and(|claim| claim.metadata.deletion_timestamp.is_some()) {
        let words = format!(
            "PersistentVolumeClaim {} is being deleted, and is made anew when it is gone; take spec.persistentVolumeClaim \
             away if it is not wanted any more",
            seen.claim_name(name)
        );
        return Export::Say(Desired::new(Reason::ExportWaits, words));
    }
    match seen.persistent_volume(made.persistent_volume_uid.as_deref()) {
        // It was removed by force.
        Found::Absent if made.persistent_volume_uid.is_some() => {
            Export::Record(Exported { persistent_volume_uid: None, ..made.clone() })
        }
        Found::Absent => {
            let claim_uid = own_claim.and_then(|claim| claim.metadata.uid.as_deref());
            let persistent = objects::persistent_volume(seen.volume, source, name, claim_uid, &how);
            Export::MakePersistentVolume(Box::new(persistent))
        }
        Found::Other => Export::Say(Desired::new(
            Reason::ExportNameTaken,
            format!(
                "PersistentVolume {} exists and was not made for this Volume; it is left as it is. Delete it",
                names::export(seen.volume.metadata.uid.as_deref().unwrap_or_default())
            ),
        )),
        Found::Own(persistent) if made.persistent_volume_uid.is_none() => {
            let uid = persistent.metadata.uid.clone();
            Export::Record(Exported { persistent_volume_uid: uid, ..made.clone() })
        }
        Found::Own(persistent) => keep(seen, made, persistent, &how),
    }
}

/// The steps with a PersistentVolume that is there.
fn keep(seen: &Seen<'_>, made: &Exported, persistent: &PersistentVolume, how: &Use) -> Export {
    let (name, volume) = (&made.persistent_volume_claim, seen.volume);
    let waits = |words: String| Export::Say(Desired::new(Reason::ExportWaits, words));
    if persistent.metadata.deletion_timestamp.is_some() {
        return waits(format!(
            "PersistentVolume {} is being deleted, and is made anew when it is gone",
            made.persistent_volume
        ));
    }
    if let Some(field) = objects::outdated(volume, seen.driver, persistent) {
        return waits(format!(
            "PersistentVolume {} has another {field} than the Volume and its Plugin have now, and Kubernetes lets nobody change \
             it; take spec.persistentVolumeClaim away, and set it again when the condition is gone",
            made.persistent_volume
        ));
    }
    let own_claim = seen.own_claim();
    let bound_to = persistent.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()?.uid.as_deref());
    let claim_uid = own_claim.and_then(|claim| claim.metadata.uid.as_deref());
    if bound_to.is_some() && bound_to != claim_uid {
        if phase(persistent) == "Released" {
            return Export::Change(Box::new(freed(persistent)));
        }
        return waits(format!(
            "the PersistentVolumeClaim to which PersistentVolume {} was bound is gone; another one is made when Kubernetes \
             has released it",
            made.persistent_volume
        ));
    }
    if own_claim.is_none() {
        return Export::MakeClaim(Box::new(objects::claim(volume, name, how)));
    }
    if capacity(persistent).is_some_and(|has| has < objects::size_of(volume)) {
        return Export::Change(Box::new(enlarged(persistent, objects::size_of(volume))));
    }
    Export::Say(Desired::new(
        Reason::Exported,
        format!(
            "Pods use it by PersistentVolumeClaim {}, of PersistentVolume {}",
            seen.claim_name(name),
            made.persistent_volume
        ),
    ))
}

fn end(seen: &Seen<'_>, made: &Exported) -> Export {
    let name = seen.claim_name(&made.persistent_volume_claim);
    let ends = |words: String| Export::Say(Desired::new(Reason::ExportEnds, words));
    if let Some(by) = &seen.used_by {
        return ends(format!("PersistentVolumeClaim {name} is to go, and waits for {by}; end what uses it"));
    }
    if let Some(claim) = seen.own_claim() {
        if claim.metadata.deletion_timestamp.is_none() {
            return Export::DeleteClaim;
        }
        return ends(format!(
            "PersistentVolumeClaim {name} is being deleted; Kubernetes keeps it for as long as a Pod uses it, which \
             `kubectl describe pvc` names"
        ));
    }
    let Found::Own(persistent) = seen.persistent_volume(made.persistent_volume_uid.as_deref()) else {
        return Export::End;
    };
    let persistent_name = &made.persistent_volume;
    let bound_to = persistent.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()?.uid.as_ref());
    if bound_to.is_some() && bound_to == seen.claim.and_then(|claim| claim.metadata.uid.as_ref()) {
        return ends(format!(
            "PersistentVolume {persistent_name} is bound to PersistentVolumeClaim {name}, which was not made for this \
             Volume; delete that"
        ));
    }
    let policy = persistent.spec.as_ref().and_then(|s| s.persistent_volume_reclaim_policy.as_deref());
    if policy != Some("Retain") {
        // What becomes of the storage is up to the Volume.
        return Export::Change(Box::new(retained(persistent)));
    }
    if persistent.metadata.deletion_timestamp.is_none() {
        return Export::DeletePersistentVolume;
    }
    ends(format!(
        "PersistentVolume {persistent_name} is being deleted; its metadata.finalizers say who keeps it"
    ))
}

fn phase(persistent: &PersistentVolume) -> &str {
    persistent.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn capacity(persistent: &PersistentVolume) -> Option<i64> {
    let capacity = persistent.spec.as_ref()?.capacity.as_ref()?;
    quantity::bytes(capacity.get("storage")?).ok()
}

/// As before it was bound: for a claim of that name, whichever that is.
fn freed(persistent: &PersistentVolume) -> PersistentVolume {
    let mut after = persistent.clone();
    if let Some(claim) = after.spec.as_mut().and_then(|spec| spec.claim_ref.as_mut()) {
        (claim.uid, claim.resource_version) = (None, None);
    }
    after
}

fn enlarged(persistent: &PersistentVolume, size: i64) -> PersistentVolume {
    let mut after = persistent.clone();
    let capacity = after.spec.get_or_insert_default().capacity.get_or_insert_default();
    capacity.insert("storage".to_owned(), Quantity(quantity::human(size)));
    after
}

fn retained(persistent: &PersistentVolume) -> PersistentVolume {
    let mut after = persistent.clone();
    after.spec.get_or_insert_default().persistent_volume_reclaim_policy = Some("Retain".to_owned());
    after
}

#[cfg(test)]
#[path = "export_tests.rs"]
mod tests;
