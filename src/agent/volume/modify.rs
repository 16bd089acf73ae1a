//! ControllerModifyVolume, and what comes of it.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::agent::calls::arguments;
use crate::agent::calls::attempt::{Due, Means};
use crate::agent::calls::failure::Failure;
use crate::agent::calls::retry::Step;
use crate::api::Volume;
use crate::api::conditions::{Desired, Reason};
use crate::api::volume::VolumeStatus;
use crate::csi::{CallError, Meaning, Rpc};
use crate::volume::modification;

/// The mutable parameters that a driver has taken.
#[derive(Clone)]
pub(crate) struct Modified(BTreeMap<String, String>);

impl Modified {
    /// Puts the result into the status, and returns the condition for it.
    pub(super) fn take_in(self, volume: &Volume, status: &mut VolumeStatus) -> Desired {
        // One of unknown outcome is repeated as it was, whatever is asked for by now.
        let words = if self.0 == volume.spec.mutable_parameters {
            "the driver has taken the mutable parameters"
        } else {
            "the driver has taken the mutable parameters that were asked for before; it is asked for the others next"
        };
        modification::ends(status, self.0);
        Desired::new(Reason::Modified, words)
    }
}

/// The step by which failures are counted. It is another one with other parameters, and stays the same when the order was
/// another one in between, which changes the Volume's generation.
pub(super) fn step(volume: &Volume) -> Step<'_> {
    let mut hasher = DefaultHasher::new();
    modification::due(volume).hash(&mut hasher);
    let generation = i64::from_ne_bytes(hasher.finish().to_ne_bytes());
    Step { generation, ..Step::of(volume, Rpc::ControllerModifyVolume) }
}

/// Makes the call.
pub(super) async fn call(
    due: &Due<'_>,
    volume: &Volume,
    with: Means,
) -> Result<Modified, (Failure, Option<CallError>)> {
    let Some(asked) = modification::due(volume).cloned() else {
        let words = "spec.mutableParameters does not ask for anything that the driver has not taken";
        return Err((Failure::local(Reason::BadArguments, due.rpc, words.into()), None));
    };
    let Means { serving, secrets, note: _ } = with;
    let args = arguments::controller_modify(volume, asked.clone(), secrets)
        .map_err(|error| (Failure::arguments(due.rpc, &error), None))?;
    match due.call_controller(&serving.plugin, serving.plugin.controller_modify_volume(args)).await {
        Ok(()) => Ok(Modified(asked)),
        Err(error) => Err((Failure::of_call(&error), Some(error))),
    }
}

/// Whether a Volume still asks for what a failure is about, or a call of unknown outcome does. Else nothing is said of it, and
/// the policies would not have it written.
pub(super) fn is_asked(volume: &Volume, fresh: &Volume) -> bool {
    modification::is_open(fresh) || modification::due(fresh) == modification::due(volume)
}

/// Writes into the status that the call cannot be made.
pub(super) fn kept_back(status: &mut VolumeStatus, volume: &Volume, failure: &Failure) {
    if let Some(asked) = modification::due(volume) {
        modification::kept_back(status, asked, failure.shown());
    }
}

/// Writes into the status that a call that had begun has failed. `known` is whether there may have been a call before this attempt.
pub(super) fn failed(status: &mut VolumeStatus, volume: &Volume, failure: &Failure, known: bool) {
    let Some(asked) = modification::due(volume) else { return };
    let never_sent = failure.meaning == Meaning::NeverSent;
    let outcome_unknown = if never_sent { known } else { !failure.meaning.is_settled_failure() };
    modification::failed(status, asked, failure.shown(), outcome_unknown);
}
