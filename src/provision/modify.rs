//! What is done next about a PersistentVolumeClaim that names another VolumeAttributesClass than its volume has.
//!
//! The words on the claim are those of the stock resizer. moor's own intent is the Volume's `spec.mutableParameters`, and what
//! came of it is on the Volume:
//!
//! ```text
//! Pending: there is no such class, or it is of no use --> InProgress --(Volume: asked, followed), PersistentVolume--> none
//!                                                          |   ^
//!                                                          |   +-- another class that is named since
//!                                                          +--> Infeasible: the driver calls it an invalid argument, or
//!                                                               it is another driver's class, or has too many parameters
//! ```
//!
//! Which class is asked for may change at any time, but while the driver may be following one: then that one comes first. Of
//! claims of one storage that name different classes the Volume says which it was asked for last ([`MODIFIED_FOR`]).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ModifyVolumeStatus, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimStatus,
};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::parameters::too_many;
use super::resize::{is_bound, put};
use crate::api::{Volume, VolumeState};
use crate::volume::growth::Fails;
use crate::volume::modification;

/// The words in `status.modifyVolumeStatus`.
const PENDING: &str = "Pending";
const IN_PROGRESS: &str = "InProgress";
const INFEASIBLE: &str = "Infeasible";

/// The conditions of a claim that are about its class.
const MODIFYING: &str = "ModifyingVolume";
const ERROR: &str = "ModifyVolumeError";

/// Annotation of a Volume with the UID of the claim whose class it is asked to be like.
pub const MODIFIED_FOR: &str = "moor.dev/modified-for";

/// Annotation of a Volume with the resourceVersion at which its claim was found to name another class than the one that was
/// begun. It is there to be written: a leader that has died may have asked for what was begun, and its write, which may be under
/// way still, was decided on the Volume as it was before.
pub const LEFT_AT: &str = "moor.dev/class-left-at";

/// Everything the decision looks at.
#[derive(Clone, Copy, Debug)]
pub struct Claimed<'a> {
    /// The claim, as it is now.
    pub claim: &'a PersistentVolumeClaim,
    /// Its PersistentVolume.
    pub persistent: &'a PersistentVolume,
    /// The Volume that has the storage, as it is now: an older one would be taken for one that has followed.
    pub volume: &'a Volume,
    /// The driver's name in PersistentVolumes and classes.
    pub driver: &'a str,
    /// Some instance of the driver has said that it has MODIFY_VOLUME.
    pub modifies: bool,
}

/// One step. Every variant is at most one write.
#[derive(Clone, Debug, PartialEq)]
pub enum Modify {
    /// Nothing: the claim has the class that it names.
    Nothing,
    /// Write this on the claim.
    Say(Said),
    /// Write these as the Volume's `spec.mutableParameters`.
    Ask(BTreeMap<String, String>),
    /// Write this as [`LEFT_AT`] on the Volume: another class was begun before than the claim names now.
    Leave(String),
    /// Write this as the PersistentVolume's class.
    Name(String),
    /// The Volume is on its way, or something is missing. What goes wrong, if something does.
    Wait(Option<String>),
}

/// What is said on a claim about its class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// The volume is to be as this class says, which is of no use now, for this reason.
    Pending(String, String),
    /// The driver is asked for what this class says.
    InProgress(String),
    /// The driver does not follow now.
    Failing(String),
    /// The driver cannot follow what this class says, for this reason. The claim may name another one.
    Infeasible(String, String),
    /// The volume is as this class says.
    Done(String),
    /// It names none any more.
    Cancelled,
}

/// The class that the volume is to be made like next; None where none is to be looked up.
#[must_use]
pub fn target<'a>(claim: &'a PersistentVolumeClaim, volume: &Volume) -> Option<&'a str> {
    let is_begun = |word: &str| [IN_PROGRESS, INFEASIBLE].contains(&word) && modification::is_open(volume);
    let begun = word(claim).filter(|(word, _)| is_begun(word));
    let asks = name(claim.spec.as_ref()?.volume_attributes_class_name.as_ref());
    let target = begun.and_then(|(_, target)| target).or(asks)?;
    let settled = word(claim).is_none() && current(claim) == Some(target);
    (!settled).then_some(target)
}

/// Plans the next step. `class` is the one that [`target`] names, if it is there.
#[must_use]
pub fn modify(seen: &Claimed<'_>, class: Option<&VolumeAttributesClass>) -> Modify {
    let Claimed { claim, persistent, volume, .. } = *seen;
    if !is_bound(claim, persistent) || volume.metadata.deletion_timestamp.is_some() {
        return Modify::Nothing;
    }
    if volume.state() != VolumeState::Ready {
        return Modify::Wait(None);
    }
    let left = || Modify::Leave(claim.metadata.resource_version.clone().unwrap_or_default());
    match (target(claim, volume), word(claim)) {
        (Some(target), Some((_, begun))) if begun != Some(target) && may_land(claim, volume) => left(),
        (Some(target), _) => follow(seen, target, class),
        // It was done before the claim named none any more.
        (None, Some((IN_PROGRESS, Some(of))))
            if current(claim).is_none() && named(persistent) == Some(of) =>
        {
            Modify::Say(Said::Done(of.to_owned()))
        }
        (None, Some((IN_PROGRESS, Some(of)))) if current(claim).is_none() && has_followed(claim, volume) => {
            Modify::Name(of.to_owned())
        }
        (None, _) if word(claim).is_none() || current(claim).is_some() => Modify::Nothing,
        // The claim came without a class, and so did the volume.
        (None, _) if !volume.spec.mutable_parameters.is_empty() => Modify::Ask(BTreeMap::new()),
        (None, _) if may_land(claim, volume) => left(),
        (None, _) => Modify::Say(Said::Cancelled),
    }
}

/// Whether a write that asks for what was begun may still land on the Volume. While the driver has something to follow nothing
/// is called done before the Volume is written.
fn may_land(claim: &PersistentVolumeClaim, volume: &Volume) -> bool {
    let left_at = volume.metadata.annotations.as_ref().and_then(|all| all.get(LEFT_AT));
    modification::due(volume).is_none() && left_at != claim.metadata.resource_version.as_ref()
}

fn follow(seen: &Claimed<'_>, target: &str, class: Option<&VolumeAttributesClass>) -> Modify {
    let Claimed { claim, persistent, volume, .. } = *seen;
    let said = word(claim).filter(|(_, of)| *of == Some(target)).map(|(word, _)| word);
    let wanted = match parameters(seen, target, class) {
        Ok(wanted) => wanted,
        // What was begun goes on without its class.
        Err(useless) if modification::is_open(volume) => return Modify::Wait(Some(useless.words())),
        // The driver is not to follow later what the claim does not name any more.
        Err(_) if modification::due(volume).is_some() && !is_of_another(claim, volume) => {
            return Modify::Ask(volume.status.clone().unwrap_or_default().mutable_parameters);
        }
        Err(Useless::Yet(why)) => return say(claim, Said::Pending(target.to_owned(), why)),
        Err(Useless::Ever(why)) => return say(claim, Said::Infeasible(target.to_owned(), why)),
    };
    let asked = volume.spec.mutable_parameters == wanted;
    match said {
        Some(IN_PROGRESS) => {}
        Some(INFEASIBLE) if asked => {}
        Some(_) | None => return Modify::Say(Said::InProgress(target.to_owned())),
    }
    if !asked && is_of_another(claim, volume) {
        if named(persistent) == Some(target) {
            return Modify::Say(Said::Done(target.to_owned()));
        }
        if modification::due(volume).is_some() {
            let words =
                "another PersistentVolumeClaim of the same storage names another class, which comes first";
            return Modify::Wait(Some(words.to_owned()));
        }
    }
    if !asked {
        return Modify::Ask(wanted);
    }
    if modification::due(volume).is_none() {
        return if named(persistent) == Some(target) {
            Modify::Say(Said::Done(target.to_owned()))
        } else {
            Modify::Name(target.to_owned())
        };
    }
    match modification::fails(volume) {
        None => Modify::Wait(None),
        Some(Fails::Perhaps(words) | Fails::NotAsked(words) | Fails::Certainly(words)) => {
            say(claim, Said::Failing(words))
        }
        Some(Fails::Always(words)) => say(claim, Said::Infeasible(target.to_owned(), words)),
    }
}

/// UID of the claim for which the Volume was asked last.
fn asked_for(volume: &Volume) -> Option<&str> {
    volume.metadata.annotations.as_ref()?.get(MODIFIED_FOR).map(String::as_str)
}

fn is_of_another(claim: &PersistentVolumeClaim, volume: &Volume) -> bool {
    asked_for(volume).is_some_and(|uid| Some(uid) != claim.metadata.uid.as_deref())
}

/// Whether the driver has followed what the Volume was asked for by this claim.
fn has_followed(claim: &PersistentVolumeClaim, volume: &Volume) -> bool {
    asked_for(volume).is_some_and(|uid| Some(uid) == claim.metadata.uid.as_deref())
        && !volume.spec.mutable_parameters.is_empty()
        && modification::due(volume).is_none()
}

/// Why a class is of no use.
enum Useless {
    /// It may be of use later.
    Yet(String),
    /// It never will, whatever it says: it cannot be changed.
    Ever(String),
}

impl Useless {
    fn words(self) -> String {
        match self {
            Self::Yet(words) | Self::Ever(words) => words,
        }
    }
}

/// What the class says, or why it is of no use.
fn parameters(
    seen: &Claimed<'_>,
    target: &str,
    class: Option<&VolumeAttributesClass>,
) -> Result<BTreeMap<String, String>, Useless> {
    let Some(class) = class else {
        let words = format!(
            "VolumeAttributesClass {target} does not exist; the volume is modified when it is created"
        );
        return Err(Useless::Yet(words));
    };
    if class.driver_name != seen.driver {
        return Err(Useless::Ever(format!(
            "VolumeAttributesClass {target} is for the driver {}, and the volume is of {}; name one that is for that",
            class.driver_name, seen.driver
        )));
    }
    if !seen.modifies {
        return Err(Useless::Yet(format!(
            "VolumeAttributesClass {target}: the driver {} has no MODIFY_VOLUME; set spec.volumeAttributesClassName back",
            seen.driver
        )));
    }
    let wanted = class.parameters.clone().unwrap_or_default();
    match too_many(&wanted) {
        Some(why) => Err(Useless::Ever(format!("VolumeAttributesClass {target}: {why}; name another one"))),
        None => Ok(wanted),
    }
}

/// Says it, if the claim does not say so.
fn say(claim: &PersistentVolumeClaim, said: Said) -> Modify {
    let words = match &said {
        Said::Pending(_, words) | Said::Failing(words) | Said::Infeasible(_, words) => Some(words.clone()),
        Said::InProgress(_) | Said::Done(_) | Said::Cancelled => None,
    };
    if status(claim, &said, None).as_ref() == claim.status.as_ref() {
        return Modify::Wait(words);
    }
    Modify::Say(said)
}

/// The claim's status with what is to be said. `now` is when a condition changes that does.
#[must_use]
pub fn status(
    claim: &PersistentVolumeClaim,
    said: &Said,
    now: Option<&Time>,
) -> Option<PersistentVolumeClaimStatus> {
    let mut status = claim.status.clone()?;
    let target = word(claim).and_then(|(_, target)| target).map(str::to_owned);
    let (word, condition) = match said {
        // What is said of an earlier attempt stays.
        Said::Pending(target, _) => (Some((PENDING, Some(target.clone()))), None),
        Said::InProgress(target) => {
            let words = "the driver is asked for what the class says";
            (Some((IN_PROGRESS, Some(target.clone()))), Some((MODIFYING, words)))
        }
        Said::Failing(words) => (Some((IN_PROGRESS, target)), Some((ERROR, words.as_str()))),
        Said::Infeasible(target, words) => {
            (Some((INFEASIBLE, Some(target.clone()))), Some((ERROR, words.as_str())))
        }
        Said::Done(target) => {
            status.current_volume_attributes_class_name = Some(target.clone());
            (None, None)
        }
        Said::Cancelled => (None, None),
    };
    status.modify_volume_status = word.map(|(word, target)| ModifyVolumeStatus {
        status: word.to_owned(),
        target_volume_attributes_class_name: target,
    });
    if !matches!(said, Said::Pending(..)) {
        let mut conditions = status.conditions.take().unwrap_or_default();
        let stays = |type_: &str| condition.is_some_and(|(said, _)| said == type_);
        conditions.retain(|c| ![MODIFYING, ERROR].contains(&c.type_.as_str()) || stays(&c.type_));
        if let Some((type_, message)) = condition {
            put(&mut conditions, type_, message, now);
        }
        status.conditions = Some(conditions).filter(|conditions| !conditions.is_empty());
    }
    Some(status)
}

/// What the claim says of a modification: how it stands, and for which class.
fn word(claim: &PersistentVolumeClaim) -> Option<(&str, Option<&str>)> {
    let said = claim.status.as_ref()?.modify_volume_status.as_ref()?;
    Some((said.status.as_str(), name(said.target_volume_attributes_class_name.as_ref())))
}

/// The class that the claim has.
fn current(claim: &PersistentVolumeClaim) -> Option<&str> {
    name(claim.status.as_ref()?.current_volume_attributes_class_name.as_ref())
}

/// The class that the PersistentVolume has.
fn named(persistent: &PersistentVolume) -> Option<&str> {
    name(persistent.spec.as_ref()?.volume_attributes_class_name.as_ref())
}

/// An empty name is none.
fn name(named: Option<&String>) -> Option<&str> {
    named.map(String::as_str).filter(|named| !named.is_empty())
}

#[cfg(test)]
#[path = "modify_tests.rs"]
mod tests;
