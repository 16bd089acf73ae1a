//! The Volume and its VolumeHandle: what [`crate::volume::plan`] finds due, after the live reads that it asks for.

use super::look::{CallerNow, Look};
use super::plan::LeaderStep;
use super::scene::Scene;
use super::storage;
use crate::api::attachment::ControllerRef;
use crate::api::volume::VolumeAssignment;
use crate::api::{AccessMode, FINALIZER, VolumeState, lock};
use crate::attachment::AttachmentSeen;
use crate::claim::Mount;
use crate::claim::admission::{self, Grant, Verdict};
use crate::volume::{self, VolumeStep, VolumeWaiting, handle_of, is_of_driver};

/// What is due about the Volume.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Due {
    /// Nothing, or something that a live read has ruled out for now.
    Nothing,
    /// This step.
    Step(LeaderStep),
    /// A wait for something that others do, which the Volume's condition names.
    Wait(VolumeWaiting),
}

impl Due {
    pub(super) fn step(&self) -> Option<LeaderStep> {
        match self {
            Self::Step(step) => Some(step.clone()),
            Self::Nothing | Self::Wait(_) => None,
        }
    }

    pub(super) fn waits(self) -> Option<VolumeWaiting> {
        match self {
            Self::Wait(why) => Some(why),
            Self::Nothing | Self::Step(_) => None,
        }
    }
}

/// What is due now.
pub(super) fn plan(scene: &Scene<'_>, verdicts: &[(String, Verdict)]) -> Due {
    let due = match due(scene, verdicts) {
        VolumeStep::Idle => Ok(Due::Nothing),
        VolumeStep::Wait(why) => Ok(Due::Wait(why)),
        VolumeStep::Assign(to) => assign(scene, to),
        VolumeStep::MakeHandle => storage::make_handle(scene),
        VolumeStep::ContestHandle => storage::contest_handle(scene),
        VolumeStep::JudgeRejected => storage::judge_rejected(scene),
        VolumeStep::JudgeAnew => Ok(Due::Step(LeaderStep::AllowDeletion(false))),
        VolumeStep::ReportReady => Ok(Due::Step(LeaderStep::ReportReady)),
        VolumeStep::BeginClosing => Ok(Due::Step(LeaderStep::BeginClosing)),
        VolumeStep::FinishClosing { mode, first_controller } => finish_closing(scene, mode, first_controller),
        VolumeStep::AssignDelete(to) => storage::delete(scene, to),
        VolumeStep::RestoreStatus => Ok(Due::Step(LeaderStep::RestoreStatus { state_too: true })),
        VolumeStep::RemoveHandle => remove_handle(scene),
        VolumeStep::FreeVolume => free(scene),
        VolumeStep::GiveUp(caller) => give_up(scene, &caller),
        VolumeStep::MoveHandle(to) => move_handle(scene, to),
    };
    due.unwrap_or_else(|look| Due::Step(LeaderStep::Look(look)))
}

fn due(scene: &Scene<'_>, verdicts: &[(String, Verdict)]) -> VolumeStep {
    let Some(volume) = scene.volume else {
        return heir_without_volume(scene).map_or(VolumeStep::Idle, VolumeStep::MoveHandle);
    };
    let wanted_mode = if scene.handle.is_some_and(|handle| handle.closing) {
        admission::wanted_mode(&scene.admission())
    } else {
        verdicts.iter().find_map(|(_, verdict)| match verdict {
            Verdict::Grant(Grant::SwitchMode { mode }) => Some(*mode),
            Verdict::Grant(_) | Verdict::Wait(_) => None,
        })
    };
    volume::plan(&volume::Seen {
        volume,
        held: volume.metadata.finalizers.iter().flatten().any(|f| f == FINALIZER),
        plugin: scene.plugin,
        not_allowed: scene.volume_not_allowed.cloned(),
        same_driver: is_of_driver(volume, scene.driver),
        handle: scene.handle,
        in_use_by: in_use_by(scene),
        wanted_mode,
    })
}

/// The controller instance that takes over a VolumeHandle whose Volume is gone, if the one that it names is dead.
pub(super) fn heir_without_volume(scene: &Scene<'_>) -> Option<ControllerRef> {
    volume::heir_without_volume(scene.handle?, scene.plugin.controllers, scene.plugin.balancing?)
}

pub(super) fn in_use_by(scene: &Scene<'_>) -> Option<String> {
    let granted = scene.claims.iter().find(|claim| claim.uses().is_some());
    // What locks a handle that is another Volume's is that Volume's affair.
    let is_own = scene.handle.is_none() || scene.own_handle().is_some();
    let locked = scene.locks.first().filter(|_| is_own);
    let mounted = scene.forgotten.first().filter(|_| is_own);
    granted
        .map(|claim| format!("claim {}", claim.key()))
        .or_else(|| locked.map(|a| format!("Attachment {} on node {}", a.name, a.node)))
        .or_else(|| {
            mounted.map(|m| match m.mount {
                Mount::NotSaid => format!("node {}, which has yet to say what it has mounted", m.node),
                Mount::InLease => format!("a mount on node {} (Lease {})", m.node, m.instance),
                Mount::Reported(_) | Mount::Unreadable(_) | Mount::Named => {
                    format!("a mount on node {} (PluginInstance {})", m.node, m.instance)
                }
            })
        })
}

/// Puts right a status that names another volume than the Volume's own VolumeHandle, or none: somebody edited it, and
/// DeleteVolume goes by it.
pub(super) fn mend(scene: &Scene<'_>) -> Option<LeaderStep> {
    let (own, status) = (scene.own_handle()?, scene.volume?.status.as_ref()?);
    let known = matches!(status.state, VolumeState::Created | VolumeState::Ready);
    let differs = status.volume_handle.as_ref() != Some(&own.volume_handle);
    (known && differs).then_some(LeaderStep::RestoreStatus { state_too: false })
}

fn assign(scene: &Scene<'_>, to: VolumeAssignment) -> Result<Due, Look> {
    let moves = may_move(scene, moves_from(scene, &to))?;
    Ok(if moves { Due::Step(LeaderStep::AssignVolume(to)) } else { Due::Nothing })
}

/// The instance that an unfinished operation is taken from: it may still be making the call (rule R2).
pub(super) fn moves_from<'a>(scene: &Scene<'a>, to: &VolumeAssignment) -> Option<&'a ControllerRef> {
    let now = scene.volume?.spec.assignment.as_ref().filter(|now| now.operation == to.operation)?;
    now.controller.as_ref().filter(|from| to.controller.as_ref() != Some(from))
}

/// Whether calls may be taken from this instance: live reads have to say that it can be making none.
pub(super) fn may_move(scene: &Scene<'_>, from: Option<&ControllerRef>) -> Result<bool, Look> {
    let Some(from) = from else { return Ok(true) };
    match scene.looked.callers.get(&from.instance) {
        None => Err(Look::Caller(from.clone())),
        Some(CallerNow::MayCall) => Ok(false),
        Some(CallerNow::CutOff | CallerNow::Left) => Ok(true),
    }
}

/// Opens the VolumeHandle, once nothing of an earlier epoch is left.
fn finish_closing(
    scene: &Scene<'_>,
    mode: AccessMode,
    first_controller: Option<ControllerRef>,
) -> Result<Due, Look> {
    let Some(handle) = scene.handle else { return Ok(Due::Nothing) };
    let is_left = |locks: &[AttachmentSeen]| locks.iter().any(|a| a.epoch < handle.epoch);
    // Claims may use it for long, and the watch tells when they have left.
    if is_left(scene.locks) || is_left(scene.live_locks()?) {
        return Ok(Due::Nothing);
    }
    Ok(Due::Step(LeaderStep::FinishClosing { mode, first_controller }))
}

/// Removes the VolumeHandle, after a quorum LIST found no Attachment.
pub(super) fn remove_handle(scene: &Scene<'_>) -> Result<Due, Look> {
    if scene.handle.is_none() || !scene.live_locks()?.is_empty() {
        return Ok(Due::Nothing);
    }
    Ok(Due::Step(LeaderStep::RemoveHandle))
}

/// Names another controller instance on the VolumeHandle, if the one that it names can be making no call (rule R2).
pub(super) fn move_handle(scene: &Scene<'_>, to: ControllerRef) -> Result<Due, Look> {
    let from = scene.handle.and_then(|handle| handle.controller.as_ref());
    let moves = from.is_some() && may_move(scene, from)?;
    Ok(if moves { Due::Step(LeaderStep::MoveHandle(to)) } else { Due::Nothing })
}

/// Lets the Volume go without its call, if the instance that has it can be making none (rule R2).
fn give_up(scene: &Scene<'_>, caller: &ControllerRef) -> Result<Due, Look> {
    if !may_move(scene, Some(caller))? {
        return Ok(Due::Nothing);
    }
    if scene.own_handle().is_some() { remove_handle(scene) } else { free(scene) }
}

/// Lets the Volume go, after a GET showed that its VolumeHandle is gone or another's.
pub(super) fn free(scene: &Scene<'_>) -> Result<Due, Look> {
    let Some(volume) = scene.volume else { return Ok(Due::Nothing) };
    // The name in its status too: by now nobody may be left to say what the driver is called.
    let computed = handle_of(volume).map(|id| lock::handle_name(scene.driver, id));
    let recorded = volume.status.as_ref().and_then(|status| status.handle_name.clone());
    for name in computed.into_iter().chain(recorded) {
        let Some(owner) = scene.looked.owners.get(&name) else { return Err(Look::Handle { name }) };
        if owner.is_some() && *owner == volume.metadata.uid {
            return Ok(Due::Nothing);
        }
    }
    Ok(Due::Step(LeaderStep::FreeVolume))
}
