//! How what claims get of a Ready volume is edited: spec.capabilities and spec.mountOptions.mountFlags.
//!
//! `spec` is the whole intent, and `spec.assignment.granted` what counts. What is taken out of the capabilities counts no more
//! at once, for claims that are not granted yet. What is added, and other flags, are allowed by the Plugin and confirmed by the
//! driver first (ValidateVolumeCapabilities, as for a volume that is registered), where there is one to ask. Flags count when
//! the volume is staged next: what is staged stays as it is.

use super::seen::{Seen, VolumeStep, Wish};
use crate::api::conditions::{APPLIED, Desired, Reason, find, first_few};
use crate::api::edit::{Edit, EditAnswer, GrantedUse};
use crate::api::volume::VolumeAssignment;
use crate::api::{Volume, VolumeState};
use crate::attachment::{AttachmentSeen, HandleSeen};
use crate::claim::ClaimSeen;
use crate::plugin::allow::{MOUNT_FLAGS, NotAllowed, Right};

/// CSI's name of the call, as a failure shows it.
pub const CALL: &str = "ValidateVolumeCapabilities";
/// Names of nodes or claims in one message.
const NAMED: usize = 3;

/// What is asked for and not granted yet.
#[must_use]
pub fn wanted(volume: &Volume) -> Option<GrantedUse> {
    let asked = GrantedUse::asked(&volume.spec);
    volume.granted().filter(|granted| !granted.is_same(&asked)).map(|_| asked)
}

/// What the driver has said of the edit that is asked for now.
fn answer(volume: &Volume) -> Option<&EditAnswer> {
    let edit = volume.edit()?;
    let said = volume.status.as_ref()?.edit.as_ref()?;
    (said.number == edit.number && edit.asked == GrantedUse::asked(&volume.spec)).then_some(said)
}

/// Whether the driver is asked about the last edit until it confirms: that is what spec says, and it has not been confirmed.
#[must_use]
pub fn is_open(volume: &Volume) -> bool {
    let said = volume.status.as_ref().and_then(|status| status.edit.as_ref());
    let is_asked = volume.edit().is_some_and(|edit| edit.asked == GrantedUse::asked(&volume.spec));
    is_asked
        && volume
            .edit()
            .is_some_and(|edit| said.is_none_or(|said| said.number != edit.number || said.error.is_some()))
}

/// Whether the driver has not confirmed the edit that is asked for now, so that other calls which are due come first.
pub(super) fn is_refused(volume: &Volume) -> bool {
    answer(volume).is_some_and(|said| said.error.is_some())
}

/// Whether the driver has not confirmed it since the Volume was changed last.
pub(super) fn has_just_failed(volume: &Volume) -> bool {
    let said = volume.status.as_ref().and_then(|status| find(&status.conditions, APPLIED));
    said.is_some_and(|said| {
        said.reason == Reason::EditNotConfirmed.as_str()
            && said.observed_generation == volume.metadata.generation
    })
}

/// The edit that is asked for now: the last one, or one after it.
pub(super) fn next(volume: &Volume) -> Edit {
    let asked = GrantedUse::asked(&volume.spec);
    match volume.edit() {
        Some(last) if last.asked == asked => last.clone(),
        last => Edit { number: last.map_or(0, |last| last.number) + 1, asked },
    }
}

/// What becomes of an edit, of a volume that is Ready and whose VolumeHandle, `own`, is open.
pub(super) fn wish(seen: &Seen<'_>, own: &HandleSeen) -> Wish {
    let volume = seen.volume;
    let (Some(assignment), Some(granted)) = (&volume.spec.assignment, volume.granted()) else {
        return Wish::Nothing;
    };
    let next = || VolumeAssignment { edit: Some(Box::new(next(volume))), ..assignment.clone() };
    let Some(wanted) = wanted(volume) else {
        // Who went back, and comes to it again later, asks anew: an answer is not kept for that.
        let is_other = |edit: &Edit| !edit.asked.is_same(granted);
        let is_left = volume.edit().is_some_and(is_other);
        return if is_left { Wish::Write(VolumeStep::Assign(next())) } else { Wish::Nothing };
    };
    if lacks(volume, seen.not_allowed.as_ref()).is_some() {
        return Wish::Nothing;
    }
    let takes_away = wanted.mount_flags == granted.mount_flags && granted.lists_all_of(&wanted);
    let has_caller = own.controller.is_some() || assignment.controller.is_some();
    let may_have_one = !seen.plugin.controllers.is_empty() || seen.plugin.controllers_said.is_some();
    let nobody_to_ask = seen.adopts || !(has_caller || may_have_one);
    let is_confirmed = seen.same_driver && answer(volume).is_some_and(|said| said.error.is_none());
    if takes_away || nobody_to_ask || is_confirmed {
        let made = assignment.made.clone().or_else(|| assignment.granted.clone().map(Box::new));
        let granted = Some(wanted);
        return Wish::Write(VolumeStep::Assign(VolumeAssignment { granted, made, ..next() }));
    }
    if seen.same_driver { Wish::Call } else { Wish::Nothing }
}

/// Which right is missing for what was edited. Flags that were granted stay granted.
fn lacks(volume: &Volume, not_allowed: Option<&NotAllowed>) -> Option<NotAllowed> {
    let asked = GrantedUse::asked(&volume.spec).mount_flags;
    let is_asked = !asked.is_empty() && volume.granted().is_some_and(|granted| granted.mount_flags != asked);
    let lack = not_allowed.filter(|lack| is_asked && lack.right == Right::Parameterise)?;
    Some(NotAllowed { field: MOUNT_FLAGS, ..lack.clone() })
}

/// What the Volume says of its last edit; None: nothing, as there was none, or what it says already.
#[must_use]
pub fn condition(
    volume: &Volume,
    not_allowed: Option<&NotAllowed>,
    claims: &[ClaimSeen],
    locks: &[AttachmentSeen],
) -> Option<Desired> {
    let said = volume.status.as_ref().and_then(|status| find(&status.conditions, APPLIED));
    let is_ready = volume.state() == VolumeState::Ready && volume.metadata.deletion_timestamp.is_none();
    if !is_ready || (volume.edit().is_none() && wanted(volume).is_none() && said.is_none()) {
        return None;
    }
    let desired = if let Some(lack) = lacks(volume, not_allowed) {
        let why = lack.message_or("set it back to what it was");
        Desired::new(Reason::EditNotAllowed, format!("{why}; the volume is staged as before"))
    } else if wanted(volume).is_some() {
        // What the driver says of it its agent writes.
        if is_refused(volume) {
            return None;
        }
        let words = "spec.capabilities or spec.mountOptions was edited, which counts when the driver has been asked and confirms \
                     it; until then claims get the volume in the uses that were listed before and still are, and staged as before";
        Desired::new(Reason::EditPending, words)
    } else {
        in_use(volume, claims, locks).unwrap_or_else(|| {
            Desired::new(
                Reason::Applied,
                "claims get the volume as spec.capabilities and spec.mountOptions say",
            )
        })
    };
    Some(desired)
}

/// Who still has the volume as it was before.
fn in_use(volume: &Volume, claims: &[ClaimSeen], locks: &[AttachmentSeen]) -> Option<Desired> {
    let listed = volume.uses();
    let is_listed = |claim: &&ClaimSeen| {
        listed.iter().any(|one| one.access_mode == claim.mode && one.attachment_mode == claim.attachment_mode)
    };
    let users = || claims.iter().filter(|claim| !claim.deleted && claim.uses().is_some());
    let unlisted: Vec<String> = users()
        .filter(|claim| !is_listed(claim))
        .map(|claim| format!("VolumeClaim {} ({}/{})", claim.key(), claim.mode, claim.attachment_mode))
        .collect();
    if !unlisted.is_empty() {
        let by = first_few(unlisted, NAMED);
        let words = format!(
            "spec.capabilities does not list any more how {by} uses the volume: it keeps it until it is deleted, and no \
             other claim gets it so"
        );
        return Some(Desired::new(Reason::StillUsed, words));
    }
    let mut nodes: Vec<&str> = locks
        .iter()
        .filter(|lock| lock.staged_as.flags != volume.mount_flags())
        .filter(|lock| users().any(|claim| !claim.of_pod && claim.uses() == Some(&lock.uid)))
        .map(|lock| lock.node.as_str())
        .collect();
    nodes.sort_unstable();
    let of = first_few(nodes.iter().copied(), NAMED);
    let words = format!(
        "on {of} the volume is staged with other mount flags than spec.mountOptions says now; they count there when all \
         claims of the node have been deleted"
    );
    (!nodes.is_empty()).then(|| Desired::new(Reason::StagedBefore, words))
}

#[cfg(test)]
#[path = "edit_tests.rs"]
mod tests;
