//! What is done next about a PersistentVolumeClaim that asks for more than its volume has.
//!
//! The words on the claim are those of the stock resizer, since kubelet goes by them: a size is *allocated* to the claim
//! before anything is called, and while it says so nobody asks for another one. moor's own intent is the Volume's
//! `spec.capacity`, and what came of it is on the Volume:
//!
//! ```text
//! ControllerResizeInProgress --(Volume: raised, grown), PersistentVolume--> NodeResizePending --(kubelet)--> none
//!            |  ^                                              |
//!            |  +-- a size that was lowered since              +--> none, where nodes have nothing to do
//!            +--> ControllerResizeInfeasible: the driver cannot give that size
//! ```

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimCondition, PersistentVolumeClaimStatus,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::quantity;
use crate::api::{Volume, VolumeState};
use crate::volume::growth::{self, Fails};

/// What Kubernetes calls the size of a volume among its resources.
const STORAGE: &str = "storage";

/// The words in `status.allocatedResourceStatuses`.
const IN_PROGRESS: &str = "ControllerResizeInProgress";
const INFEASIBLE: &str = "ControllerResizeInfeasible";
const NODE_PENDING: &str = "NodeResizePending";
const NODE_IN_PROGRESS: &str = "NodeResizeInProgress";
const NODE_INFEASIBLE: &str = "NodeResizeInfeasible";

/// The conditions of a claim that are about its size.
const RESIZING: &str = "Resizing";
const FILE_SYSTEM_PENDING: &str = "FileSystemResizePending";
const ERROR: &str = "ControllerResizeError";
const NODE_ERROR: &str = "NodeResizeError";

/// One step. Every variant is at most one write.
#[derive(Clone, Debug, PartialEq)]
pub enum Resize {
    /// Nothing: the claim has what it asks for, or the next step is kubelet's.
    Nothing,
    /// Write this on the claim.
    Say(Said),
    /// Write this size, in bytes, as the Volume's `spec.capacity`.
    Ask(i64),
    /// Write this size, in bytes, as the PersistentVolume's capacity.
    Enlarge(i64),
    /// The Volume is on its way. What goes wrong, if something does.
    Wait(Option<String>),
}

/// What is said on a claim about its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// The volume is to have this size.
    InProgress(i64),
    /// The driver does not give it now.
    Failing(String),
    /// The driver cannot give it. The claim may ask for less.
    Infeasible(String),
    /// The volume has it, and kubelet has the file system follow.
    OnNode,
    /// The claim has it.
    Done(i64),
}

/// A claim's words about its size, in bytes.
struct Claimed<'a> {
    asks: i64,
    has: i64,
    allocated: Option<i64>,
    word: Option<&'a str>,
}

/// Plans the next step. `volume` is the one with the storage of `persistent`.
#[must_use]
pub fn resize(claim: &PersistentVolumeClaim, persistent: &PersistentVolume, volume: &Volume) -> Resize {
    let Some(claimed) = claimed(claim).filter(|claimed| claimed.asks > claimed.has) else {
        return Resize::Nothing;
    };
    let capacity = persistent.spec.as_ref().and_then(|spec| bytes(spec.capacity.as_ref()));
    let Some(capacity) = capacity.filter(|_| is_bound(claim, persistent)) else { return Resize::Nothing };
    if volume.metadata.deletion_timestamp.is_some() {
        return Resize::Nothing;
    }
    if volume.state() != VolumeState::Ready {
        return Resize::Wait(None);
    }
    let fails = growth::fails(volume);
    let (asked, made, reached) = (growth::asked(volume), growth::made(volume), growth::reached(volume));
    let Some(target) = target(&claimed, capacity, made, fails.as_ref()) else { return Resize::Nothing };
    if claimed.allocated != Some(target) || claimed.word.is_none() {
        return Resize::Say(Said::InProgress(target));
    }
    // Below what it has the volume does not go. Above what is wanted by now nobody is to try.
    if asked > target.max(made) || (asked < target && reached < target) {
        return Resize::Ask(target.max(made));
    }
    if reached >= target {
        return grown(volume, target.max(made), capacity);
    }
    match fails {
        None => Resize::Wait(None),
        Some(Fails::Perhaps(words) | Fails::NotAsked(words)) => Resize::Wait(Some(words)),
        Some(Fails::Certainly(words)) => say(claim, Said::Failing(words)),
        Some(Fails::Always(words)) => say(claim, Said::Infeasible(words)),
    }
}

/// The size that the claim is to get next; None while kubelet has the file system follow the one before. What was begun is
/// ended first, unless it is certain that it has not been done.
fn target(claimed: &Claimed<'_>, capacity: i64, made: i64, fails: Option<&Fails>) -> Option<i64> {
    let &Claimed { asks, has, allocated, word } = claimed;
    let begun = allocated.filter(|allocated| *allocated > has).unwrap_or(asks);
    match word {
        Some(NODE_PENDING | NODE_IN_PROGRESS) => Some(begun).filter(|begun| capacity < *begun),
        // What was left to nodes alone has not been done by any.
        Some(NODE_INFEASIBLE) => Some(if made < begun { asks } else { begun }),
        Some(IN_PROGRESS) => {
            let is_free = matches!(fails, Some(Fails::Certainly(_) | Fails::Always(_)));
            Some(if is_free && capacity < asks { asks } else { begun })
        }
        Some(_) | None => Some(if capacity < asks { asks } else { begun }),
    }
}

/// The steps after the storage has the size.
fn grown(volume: &Volume, size: i64, capacity: i64) -> Resize {
    if capacity < size {
        return Resize::Enlarge(size);
    }
    let expansion = volume.status.as_ref().and_then(|status| status.expansion);
    let by_node = expansion.is_some_and(|expansion| expansion.node_expansion_required);
    Resize::Say(if by_node { Said::OnNode } else { Said::Done(size) })
}

/// Says it, if the claim does not say so.
fn say(claim: &PersistentVolumeClaim, said: Said) -> Resize {
    let words = match &said {
        Said::Failing(words) | Said::Infeasible(words) => Some(words.clone()),
        Said::InProgress(_) | Said::OnNode | Said::Done(_) => None,
    };
    if status(claim, &said, None).as_ref() == claim.status.as_ref() {
        return Resize::Wait(words);
    }
    Resize::Say(said)
}

/// The claim's status with what is to be said. `now` is when a condition changes that does.
#[must_use]
pub fn status(
    claim: &PersistentVolumeClaim,
    said: &Said,
    now: Option<&Time>,
) -> Option<PersistentVolumeClaimStatus> {
    let mut status = claim.status.clone()?;
    let sizes = |size: &i64| Quantity(quantity::human(*size));
    let (word, condition, also_kept): (_, _, &[&str]) = match said {
        Said::InProgress(size) => {
            let allocated = status.allocated_resources.get_or_insert_default();
            allocated.insert(STORAGE.to_owned(), sizes(size));
            (Some(IN_PROGRESS), Some((RESIZING, "")), &[])
        }
        Said::Failing(words) => (Some(IN_PROGRESS), Some((ERROR, words.as_str())), &[RESIZING]),
        Said::Infeasible(words) => (Some(INFEASIBLE), Some((ERROR, words.as_str())), &[RESIZING]),
        Said::OnNode => {
            let words = "the volume has the size, and its file system follows when a Pod has it on a node";
            (Some(NODE_PENDING), Some((FILE_SYSTEM_PENDING, words)), &[])
        }
        Said::Done(size) => {
            status.capacity.get_or_insert_default().insert(STORAGE.to_owned(), sizes(size));
            (None, None, &[])
        }
    };
    set_word(&mut status, word);
    let mut conditions = status.conditions.take().unwrap_or_default();
    conditions.retain(|c| {
        let of_size = [RESIZING, FILE_SYSTEM_PENDING, ERROR, NODE_ERROR].contains(&c.type_.as_str());
        let stays =
            condition.is_some_and(|(type_, _)| type_ == c.type_) || also_kept.contains(&c.type_.as_str());
        !of_size || stays
    });
    if let Some((type_, message)) = condition {
        put(&mut conditions, type_, message, now);
    }
    status.conditions = Some(conditions).filter(|conditions| !conditions.is_empty());
    Some(status)
}

fn set_word(status: &mut PersistentVolumeClaimStatus, word: Option<&str>) {
    let mut words: BTreeMap<String, String> = status.allocated_resource_statuses.take().unwrap_or_default();
    match word {
        Some(word) => words.insert(STORAGE.to_owned(), word.to_owned()),
        None => words.remove(STORAGE),
    };
    status.allocated_resource_statuses = Some(words).filter(|words| !words.is_empty());
}

pub(super) fn put(
    conditions: &mut Vec<PersistentVolumeClaimCondition>,
    type_: &str,
    message: &str,
    now: Option<&Time>,
) {
    let message = Some(message.to_owned()).filter(|message| !message.is_empty());
    let found = conditions.iter_mut().find(|condition| condition.type_ == type_);
    match found {
        Some(condition) if condition.status == "True" => condition.message = message,
        found => {
            let condition = PersistentVolumeClaimCondition {
                type_: type_.to_owned(),
                status: "True".to_owned(),
                message,
                last_transition_time: now.cloned(),
                ..PersistentVolumeClaimCondition::default()
            };
            match found {
                Some(old) => *old = condition,
                None => conditions.push(condition),
            }
        }
    }
}

fn claimed(claim: &PersistentVolumeClaim) -> Option<Claimed<'_>> {
    let status = claim.status.as_ref()?;
    let resources = claim.spec.as_ref()?.resources.as_ref()?;
    Some(Claimed {
        asks: bytes(resources.requests.as_ref())?,
        has: bytes(status.capacity.as_ref())?,
        allocated: bytes(status.allocated_resources.as_ref()),
        word: status
            .allocated_resource_statuses
            .as_ref()
            .and_then(|all| all.get(STORAGE))
            .map(String::as_str),
    })
}

fn bytes(resources: Option<&BTreeMap<String, Quantity>>) -> Option<i64> {
    quantity::bytes(resources?.get(STORAGE)?).ok()
}

/// Whether the two are bound to each other, and stay so.
pub(super) fn is_bound(claim: &PersistentVolumeClaim, persistent: &PersistentVolume) -> bool {
    let named = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_ref());
    let of = persistent.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    claim.metadata.deletion_timestamp.is_none()
        && claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
        && named.is_some()
        && named == persistent.metadata.name.as_ref()
        && claim.metadata.uid.is_some()
        && of.and_then(|of| of.uid.as_ref()) == claim.metadata.uid.as_ref()
}

#[cfg(test)]
#[path = "resize_tests.rs"]
mod tests;
