//! How a volume is modified: when ControllerModifyVolume is due, and with which parameters.
//!
//! `spec.mutableParameters` is the whole intent. What the driver has taken is in `status.mutableParameters`; what it is being
//! asked for is written before the call, and from then on nobody knows what it has until it has answered. A call whose
//! outcome is unknown is repeated as it is before anything else is asked for. After a refusal it is not known either what the
//! volume has, so whoever goes back to the earlier parameters has the driver asked for them.

use std::collections::BTreeMap;

use super::growth::Fails;
use super::reason::VolumeWaiting;
use super::seen::{Seen, VolumeStep, Wish};
use crate::api::Volume;
use crate::api::conditions::{CallFailure, Condition, MODIFIED, Reason, find_as};
use crate::api::volume::{Modification, VolumeStatus};

/// CSI's name of the call, as a failure shows it.
pub const CALL: &str = "ControllerModifyVolume";

/// Parameters as CSI has them.
type Parameters = BTreeMap<String, String>;

/// The parameters that the driver is to be asked for next; None where it has what is asked for. A driver goes by the keys that
/// it is given, so without any there is nothing to ask.
#[must_use]
pub fn due(volume: &Volume) -> Option<&Parameters> {
    let status = volume.status.as_ref();
    if let Some(open) = status.and_then(open) {
        return Some(&open.parameters);
    }
    let wanted = &volume.spec.mutable_parameters;
    let has = status.map(|status| &status.mutable_parameters);
    (!wanted.is_empty() && has != Some(wanted)).then_some(wanted)
}

/// The call whose outcome is not known.
fn open(status: &VolumeStatus) -> Option<&Modification> {
    status.modification.as_deref().filter(|modification| modification.outcome_unknown)
}

/// Whether the driver may be at a call, or may have followed one of which nobody knows.
#[must_use]
pub fn is_open(volume: &Volume) -> bool {
    volume.status.as_ref().and_then(open).is_some()
}

/// Why a modification does not get on, if something was said of the parameters that are due.
#[must_use]
pub fn fails(volume: &Volume) -> Option<Fails> {
    let status = volume.status.as_ref()?;
    let due = due(volume)?;
    if let Some(said) = condition(volume).filter(|c| c.reason == Reason::CannotModify.as_str())
        && said.observed_generation == volume.metadata.generation
    {
        return Some(Fails::Certainly(said.message.clone()));
    }
    let last = status.modification.as_deref().filter(|last| last.parameters == *due)?;
    let CallFailure { rpc, code, message } = last.error.as_ref()?;
    let words = format!("{rpc}: {code}: {message}");
    Some(match code.as_str() {
        _ if last.outcome_unknown => Fails::Perhaps(words),
        "InvalidArgument" => Fails::Always(words),
        _ => Fails::Certainly(words),
    })
}

/// Whether the last attempt has failed since the Volume was changed last.
pub(super) fn has_just_failed(volume: &Volume) -> bool {
    condition(volume).is_some_and(|said| said.observed_generation == volume.metadata.generation)
}

/// What the Volume says of it, if it could not be modified.
fn condition(volume: &Volume) -> Option<&Condition> {
    let conditions = &volume.status.as_ref()?.conditions;
    find_as(conditions, MODIFIED, "False")
}

/// Writes into a status that the driver is asked for these parameters from now on.
pub fn begins(status: &mut VolumeStatus, asked: &Parameters) {
    // What was said of an earlier attempt is not said of this one.
    status.modification =
        Some(Modification { parameters: asked.clone(), outcome_unknown: true, error: None }.into());
    status.mutable_parameters.clear();
}

/// Writes into a status that the driver has followed.
pub fn ends(status: &mut VolumeStatus, asked: Parameters) {
    status.modification = None;
    status.mutable_parameters = asked;
}

/// Writes into a status that a call failed, or was not sent after it had begun. `outcome_unknown` is whether the driver may be at it, or may
/// have followed an earlier one.
pub fn failed(status: &mut VolumeStatus, asked: &Parameters, error: CallFailure, outcome_unknown: bool) {
    status.modification =
        Some(Modification { parameters: asked.clone(), outcome_unknown, error: Some(error) }.into());
}

/// Writes into a status that a call cannot be made now. That says nothing of one before it: what may be under way stays as it
/// was asked for.
pub fn kept_back(status: &mut VolumeStatus, asked: &Parameters, error: CallFailure) {
    let begun = open(status).map(|begun| begun.parameters.clone());
    let outcome_unknown = begun.is_some();
    failed(status, begun.as_ref().unwrap_or(asked), error, outcome_unknown);
}

/// What becomes of the parameters that are asked for, of a volume that is Ready and whose VolumeHandle is open.
pub(super) fn wish(seen: &Seen<'_>) -> Wish {
    if due(seen.volume).is_none() {
        return settle(seen.volume);
    }
    if !seen.same_driver {
        return Wish::Nothing;
    }
    match seen.plugin.modifies {
        None => Wish::Nothing,
        // What may be under way ends first, and its agent has the order until then.
        Some(_) if is_open(seen.volume) => Wish::Call,
        Some(false) => {
            Wish::Wait(VolumeWaiting::CannotModify { plugin: seen.volume.spec.plugin_name.clone() })
        }
        Some(true) => match &seen.not_allowed {
            Some(lack) => Wish::Wait(VolumeWaiting::ModifyNotAllowed(lack.clone())),
            None => Wish::Call,
        },
    }
}

/// A failure with parameters that are not wanted any more is not said any longer.
fn settle(volume: &Volume) -> Wish {
    if condition(volume).is_some() { Wish::Write(VolumeStep::ReportModified) } else { Wish::Nothing }
}
