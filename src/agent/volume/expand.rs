//! ControllerExpandVolume, and what its answer says.

use crate::agent::calls::arguments;
use crate::agent::calls::attempt::{Due, Means};
use crate::agent::calls::failure::Failure;
use crate::api::Volume;
use crate::api::conditions::{Desired, Reason};
use crate::api::quantity;
use crate::api::volume::{Expansion, VolumeStatus};
use crate::csi::{CallError, Origin, Rpc};
use crate::volume::{growth, on_nodes};

/// A volume that was made larger.
#[derive(Clone)]
pub(crate) struct Expanded {
    /// What was asked for.
    asked: i64,
    /// What it has, in bytes.
    capacity: i64,
    /// NodeExpandVolume has to follow.
    by_nodes: bool,
}

impl Expanded {
    /// Puts the result into the status, and returns the condition for it.
    pub(super) fn take_in(self, volume: &Volume, status: &mut VolumeStatus) -> Desired {
        let Self { asked, capacity, by_nodes } = self;
        status.capacity = Some(quantity::human(capacity));
        status.capacity_bytes = Some(capacity);
        status.expansion_failure = None;
        let expansion = Expansion { capacity_bytes: asked, node_expansion_required: by_nodes };
        status.expansion = Some(expansion);
        on_nodes::grown(volume, Expansion { capacity_bytes: capacity, ..expansion })
    }
}

/// Makes the call.
pub(super) async fn call(
    due: &Due<'_>,
    volume: &Volume,
    with: Means,
) -> Result<Expanded, (Failure, Option<CallError>)> {
    let Some(asked) = growth::wanted(volume) else {
        let words = "spec.capacity is not above the size that the volume has";
        return Err((Failure::local(Reason::BadArguments, due.rpc, words.into()), None));
    };
    let Means { serving, secrets, note: _ } = with;
    let modes = serving.fingerprint.controller_modes;
    let args = arguments::controller_expand(volume, asked, secrets, modes)
        .map_err(|error| (Failure::arguments(due.rpc, &error), None))?;
    let answer = due.call_controller(&serving.plugin, serving.plugin.controller_expand_volume(args)).await;
    let answer = answer.map_err(|error| (Failure::of_call(&error), Some(error)))?;
    let capacity =
        size(asked, answer.capacity_bytes).map_err(|error| (Failure::of_call(&error), Some(error)))?;
    Ok(Expanded { asked, capacity, by_nodes: answer.node_expansion_required })
}

/// The size that the volume has now. A driver that says 0 does not know, and is believed.
fn size(asked: i64, answered: i64) -> Result<i64, CallError> {
    match answered {
        0 => Ok(asked),
        bytes if bytes >= asked => Ok(bytes),
        bytes => Err(CallError {
            rpc: Rpc::ControllerExpandVolume,
            code: tonic::Code::OutOfRange,
            message: format!("the driver answered with {bytes} bytes, and {asked} were asked for"),
            origin: Origin::Driver,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_as_large_as_was_asked_or_it_has_not_grown() {
        assert_eq!(size(10, 0).ok(), Some(10));
        assert_eq!(size(10, 10).ok(), Some(10));
        assert_eq!(size(10, 16).ok(), Some(16));
        assert_eq!(size(10, 9).unwrap_err().code, tonic::Code::OutOfRange);
        assert!(size(10, -1).is_err());
    }

    #[test]
    fn the_answer_is_kept_with_what_was_asked() {
        let mut status = VolumeStatus::default();
        let expanded = Expanded { asked: 1 << 30, capacity: 2 << 30, by_nodes: true };
        let said = expanded.take_in(&Volume::default(), &mut status);
        assert_eq!(
            status.expansion,
            Some(Expansion { capacity_bytes: 1 << 30, node_expansion_required: true })
        );
        assert_eq!((status.capacity.as_deref(), status.capacity_bytes), (Some("2Gi"), Some(2 << 30)));
        assert!(said.message.contains("2Gi") && said.message.contains("NodeExpandVolume"));
    }
}
