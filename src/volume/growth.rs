//! How a volume grows: when ControllerExpandVolume is due, and what stands for it where the driver has no such call.
//!
//! `spec.capacity` is the whole intent: whoever raises it has the volume grow, and the order stays until the status says that
//! the size is there (`orders.rs`). A volume that its driver lets grow only while nobody uses it has the order taken back for
//! as long as somebody does.

use super::instance::Grows;
use super::reason::VolumeWaiting;
use super::seen::{Seen, VolumeStep, Wish};
pub use super::size::{asked, made};
use crate::api::Volume;
use crate::api::conditions::{CallFailure, Condition, EXPANDED, Reason, find_as};
use crate::api::volume::{ExpansionFailure, VolumeStatus};

/// CSI's name of the call, as a failure shows it.
pub const CALL: &str = "ControllerExpandVolume";

/// Why a growth, or a modification, does not get on, as the Volume says it of what is asked for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fails {
    /// It may be under way all the same.
    Perhaps(String),
    /// The driver was not asked, and has nothing under way: a Secret is missing, or the driver itself.
    NotAsked(String),
    /// Nothing has been done.
    Certainly(String),
    /// Nothing has been done, nor will be with what is asked for.
    Always(String),
}

/// Why a growth does not get on, if something was said of the size that is asked for now. Other orders in between change
/// nothing about that.
#[must_use]
pub fn fails(volume: &Volume) -> Option<Fails> {
    let status = volume.status.as_ref()?;
    if let Some(said) =
        condition(volume).filter(|said| said.observed_generation == volume.metadata.generation)
    {
        if said.reason == Reason::CannotExpand.as_str() {
            return Some(Fails::Always(said.message.clone()));
        }
        if said.reason == Reason::ExpandsUnused.as_str() {
            return Some(Fails::Certainly(said.message.clone()));
        }
    }
    let failure = status.expansion_failure.as_ref().filter(|f| f.capacity_bytes == asked(volume))?;
    Some(meaning(failure))
}

fn meaning(failure: &ExpansionFailure) -> Fails {
    let error = &failure.error;
    let words = format!("{}: {}: {}", error.rpc, error.code, error.message);
    // As the stock resizer reads the codes. What was never sent says nothing of what was sent before.
    match error.code.as_str() {
        "InvalidArgument" | "OutOfRange" | "NotFound" => Fails::Always(words),
        "Unknown" | "AlreadyExists" | "PermissionDenied" | "FailedPrecondition" | "Unimplemented"
        | "Internal" | "DataLoss" | "Unauthenticated" => Fails::Certainly(words),
        code if is_before_the_call(code) && !failure.outcome_unknown => Fails::NotAsked(words),
        _ => Fails::Perhaps(words),
    }
}

/// What keeps a call from being made: its word stands where that of a driver's answer would.
const BEFORE_THE_CALL: [Reason; 4] =
    [Reason::SecretNotFound, Reason::SecretUnreadable, Reason::PluginNotRunning, Reason::BadArguments];

fn is_before_the_call(code: &str) -> bool {
    BEFORE_THE_CALL.iter().any(|reason| reason.as_str() == code)
}

/// Writes into a status that the volume does not have the size that is asked for, and why.
pub fn failed(status: &mut VolumeStatus, volume: &Volume, error: CallFailure) {
    // A final answer settles what was unknown before it, whatever size that was for.
    let before = volume.status.as_ref().and_then(|status| status.expansion_failure.as_ref());
    let outcome_unknown = is_before_the_call(&error.code)
        && before.is_some_and(|before| matches!(meaning(before), Fails::Perhaps(_)));
    status.expansion_failure =
        Some(ExpansionFailure { capacity_bytes: asked(volume), error, outcome_unknown }.into());
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
    let failure = volume.status.as_ref().and_then(|status| status.expansion_failure.as_ref());
    failure.is_some_and(|failure| failure.error.code == "FailedPrecondition")
}

/// What becomes of the size that is asked for, of a volume that is Ready and whose VolumeHandle is open.
pub(super) fn wish(seen: &Seen<'_>) -> Wish {
    let Some(wanted) = wanted(seen.volume) else { return settle(seen.volume) };
    if !seen.same_driver {
        return Wish::Nothing;
    }
    match seen.plugin.grows {
        None => Wish::Nothing,
        Some(Grows::NotAtAll) => {
            Wish::Wait(VolumeWaiting::CannotExpand { plugin: seen.volume.spec.plugin_name.clone() })
        }
        Some(Grows::OnNodes) => Wish::Write(VolumeStep::ReportExpanded(Some(wanted))),
        Some(Grows::ByController) => match seen.in_use_by.as_ref().filter(|_| is_blocked(seen.volume)) {
            Some(by) => Wish::Wait(VolumeWaiting::ExpandsUnused { by: by.clone() }),
            None => Wish::Call,
        },
    }
}

/// A failure of a growth that is not wanted any more is not said any longer.
fn settle(volume: &Volume) -> Wish {
    if condition(volume).is_some() { Wish::Write(VolumeStep::ReportExpanded(None)) } else { Wish::Nothing }
}

/// Whether the last attempt has failed since the Volume was changed last.
pub(super) fn has_just_failed(volume: &Volume) -> bool {
    condition(volume).is_some_and(|said| said.observed_generation == volume.metadata.generation)
}

/// What the Volume says of it, if it could not grow. That nodes have to follow is another matter (`on_nodes.rs`).
fn condition(volume: &Volume) -> Option<&Condition> {
    let conditions = &volume.status.as_ref()?.conditions;
    let is_of_nodes = |said: &Condition| {
        [Reason::NodesToFollow, Reason::NodeExpandFailed].iter().any(|reason| said.reason == reason.as_str())
    };
    find_as(conditions, EXPANDED, "False").filter(|said| !is_of_nodes(said))
}
