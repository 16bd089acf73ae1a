//! How a volume grows: the order to call ControllerExpandVolume, and what stands for it where the driver has no such call.
//!
//! `spec.capacity` is the whole intent: whoever raises it has the volume grow, and the order stays until the status says that
//! the size is there. A volume that its driver lets grow only while nobody uses it has the order taken back for as long as
//! somebody does.

use super::instance::Grows;
use super::reason::VolumeWaiting;
use super::seen::{Seen, VolumeStep};
use crate::api::Volume;
use crate::api::conditions::{EXPANDED, Reason};
use crate::api::quantity;
use crate::api::volume::{VolumeAssignment, VolumeOperation};
use crate::attachment::HandleSeen;

/// CSI's name of the call, as a failure shows it.
pub const CALL: &str = "ControllerExpandVolume";

/// Why a growth does not get on, as the Volume says it of the size that is asked for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fails {
    /// It may be under way all the same.
    Perhaps(String),
    /// Nothing has been done.
    Certainly(String),
    /// Nothing has been done, nor will be with that size.
    Always(String),
}

/// Why a growth does not get on, if something was said of it since the Volume was changed.
#[must_use]
pub fn fails(volume: &Volume) -> Option<Fails> {
    let status = volume.status.as_ref()?;
    let said = status.conditions.iter().find(|c| c.type_ == EXPANDED && c.status == "False")?;
    if said.observed_generation != volume.metadata.generation {
        return None;
    }
    let words = said.message.clone();
    if said.reason == Reason::CannotExpand.as_str() {
        return Some(Fails::Always(words));
    }
    if said.reason == Reason::ExpandsUnused.as_str() {
        return Some(Fails::Certainly(words));
    }
    let error = status.last_error.as_ref().filter(|error| error.rpc == CALL)?;
    let words = format!("{}: {}: {}", error.rpc, error.code, error.message);
    // As the stock resizer reads the codes. What was never sent says nothing of what was sent before.
    Some(match error.code.as_str() {
        "InvalidArgument" | "OutOfRange" | "NotFound" => Fails::Always(words),
        "Unknown" | "AlreadyExists" | "PermissionDenied" | "FailedPrecondition" | "Unimplemented"
        | "Internal" | "DataLoss" | "Unauthenticated" => Fails::Certainly(words),
        _ => Fails::Perhaps(words),
    })
}

/// The size in bytes that is asked for; 0 where none is.
#[must_use]
pub fn asked(volume: &Volume) -> i64 {
    volume.spec.capacity.as_ref().and_then(|asked| quantity::bytes(asked).ok()).unwrap_or_default()
}

/// The size in bytes that the driver has said; 0 where none is known.
#[must_use]
pub fn made(volume: &Volume) -> i64 {
    volume.status.as_ref().and_then(|status| status.capacity_bytes).unwrap_or_default()
}

/// The size in bytes to which the volume is to grow, if it has not got it.
#[must_use]
pub fn wanted(volume: &Volume) -> Option<i64> {
    let (asked, reached) = (asked(volume), reached(volume));
    // What was created has what was asked for; a status without a size is one that was lost.
    let unknown = reached == 0 && volume.spec.volume_handle.is_none();
    (asked > reached && !unknown).then_some(asked)
}

/// The largest size in bytes that the volume is known to have; 0 where none is known.
#[must_use]
pub fn reached(volume: &Volume) -> i64 {
    let expansion = volume.status.as_ref().and_then(|status| status.expansion);
    made(volume).max(expansion.map_or(0, |expansion| expansion.capacity_bytes))
}

/// Whether the driver has said last that the volume does not grow while it is used.
#[must_use]
pub fn is_blocked(volume: &Volume) -> bool {
    let error = volume.status.as_ref().and_then(|status| status.last_error.as_ref());
    error.is_some_and(|error| error.rpc == CALL && error.code == "FailedPrecondition")
}

/// The next step towards the size that is asked for, of a volume that is Ready and whose VolumeHandle is open.
pub(super) fn grow(seen: &Seen<'_>, own: &HandleSeen) -> VolumeStep {
    let Some(wanted) = wanted(seen.volume) else { return settle(seen.volume) };
    if !seen.same_driver {
        return VolumeStep::Idle;
    }
    match seen.plugin.grows {
        None => VolumeStep::Idle,
        Some(Grows::NotAtAll) => {
            VolumeStep::Wait(VolumeWaiting::CannotExpand { plugin: seen.volume.spec.plugin_name.clone() })
        }
        Some(Grows::OnNodes) => VolumeStep::ReportExpanded(Some(wanted)),
        Some(Grows::ByController) => order(seen, own),
    }
}

/// A failure of a growth that is not wanted any more is not said any longer.
fn settle(volume: &Volume) -> VolumeStep {
    let conditions = volume.status.iter().flat_map(|status| &status.conditions);
    let says_not = conditions.into_iter().any(|c| c.type_ == EXPANDED && c.status == "False");
    if says_not { VolumeStep::ReportExpanded(None) } else { VolumeStep::Idle }
}

/// The call is ordered of who makes the controller calls of the VolumeHandle, so that no two are made beside each other.
fn order(seen: &Seen<'_>, own: &HandleSeen) -> VolumeStep {
    let Some(assignment) = &seen.volume.spec.assignment else { return VolumeStep::Idle };
    let ordered = assignment.operation == VolumeOperation::Expand;
    let take_back = || VolumeStep::Assign(VolumeAssignment { operation: before(seen), ..assignment.clone() });
    if let Some(by) = seen.in_use_by.as_ref().filter(|_| is_blocked(seen.volume)) {
        if ordered {
            return take_back();
        }
        return VolumeStep::Wait(VolumeWaiting::ExpandsUnused { by: by.clone() });
    }
    let caller = assignment.controller.as_ref();
    let to = match (&own.controller, caller) {
        (Some(of_handle), _) => Some(of_handle.clone()),
        (None, Some(caller)) => Some(seen.successor(caller).unwrap_or_else(|| caller.clone())),
        (None, None) => seen.chosen(),
    };
    match to {
        None => VolumeStep::Idle,
        Some(to) if ordered && caller == Some(&to) => VolumeStep::Idle,
        // The VolumeHandle was taken from its caller, who could be making no call then and makes none without it. By now
        // that one may be back, so this is no takeover from somebody who is dead.
        Some(_) if ordered && own.controller.is_some() => take_back(),
        Some(to) => {
            VolumeStep::Assign(VolumeAssignment { operation: VolumeOperation::Expand, controller: Some(to) })
        }
    }
}

/// The order under which the volume came to be, which asks for nothing any more.
pub(super) fn before(seen: &Seen<'_>) -> VolumeOperation {
    match (seen.volume.spec.volume_handle.is_some(), seen.adopts) {
        (false, _) => VolumeOperation::Create,
        (true, true) => VolumeOperation::Adopt,
        (true, false) => VolumeOperation::Validate,
    }
}
