//! Whose calls another controller instance may take over: the one that has them may still be making one (rule R2).

use super::look::Look;
use super::scene::Scene;
use super::step::{Due, LeaderStep};
use crate::api::caller::ControllerRef;
use crate::api::volume::VolumeAssignment;
use crate::volume::{CallerNow, Places};

/// The instance that an unfinished operation is taken from: it may still be making the call (rule R2). Where the VolumeHandle names
/// nobody it may also be taking a snapshot, whatever it was ordered.
pub(super) fn moves_from<'a>(scene: &Scene<'a>, to: &VolumeAssignment) -> Option<&'a ControllerRef> {
    let is_alone = scene.own_handle().is_some_and(|own| own.controller.is_none());
    let is_same = |now: &&VolumeAssignment| is_alone || now.operation == to.operation;
    let now = scene.volume?.spec.assignment.as_ref().filter(is_same)?;
    now.controller.as_ref().filter(|from| to.controller.as_ref() != Some(from))
}

/// Whether calls may be taken from this instance: live reads have to say that it can be making none.
pub(super) fn may_move(scene: &Scene<'_>, from: Option<&ControllerRef>) -> Result<bool, Look> {
    let Some(from) = from else { return Ok(true) };
    match scene.looked.callers.get(from) {
        None => Err(Look::Caller(from.clone())),
        Some(CallerNow::MayCall) => Ok(false),
        Some(CallerNow::CutOff | CallerNow::Relieved) => Ok(true),
    }
}

/// The controller instance that takes over a VolumeHandle whose Volume was removed by hand, if the one that it names is
/// dead: what was attached for that Volume is still to be detached. Where the Volume was nobody says any more.
pub(super) fn heir_without_volume(scene: &Scene<'_>) -> Option<ControllerRef> {
    let handle = scene.handle?;
    scene.plugin.successor(handle.controller.as_ref()?, Places::default(), &handle.volume_uid)
}

/// Names another controller instance on the VolumeHandle, if the one that it names can be making no call (rule R2).
pub(super) fn move_handle(scene: &Scene<'_>, to: ControllerRef) -> Result<Due, Look> {
    let from = scene.handle.and_then(|handle| handle.controller.as_ref());
    let moves = from.is_some() && may_move(scene, from)?;
    Ok(if moves { Due::Step(LeaderStep::MoveHandle(to)) } else { Due::Nothing })
}
