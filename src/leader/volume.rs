//! The Volume and its VolumeHandle: what [`crate::volume::plan`] finds due, after the live reads that it asks for.

use super::look::Look;
use super::pods::may_have;
use super::release::{free, give_up, remove_handle};
use super::scene::Scene;
use super::step::{Due, LeaderStep};
use super::storage;
use super::takeover::{heir_without_volume, may_move, move_handle, moves_from};
use crate::api::caller::ControllerRef;
use crate::api::volume::{Segments, VolumeAssignment};
use crate::api::{AccessMode, ClaimUid, FINALIZER, Volume, VolumeState, has_finalizer};
use crate::attachment::AttachmentSeen;
use crate::claim::admission::{self, Grant, Verdict};
use crate::claim::{ClaimSeen, Entitled};
use crate::volume::{self, SourceLack, VolumeStep, VolumeWaiting, is_of_driver};

/// What is due now.
pub(super) fn plan(scene: &Scene<'_>, verdicts: &[(ClaimUid, Verdict)]) -> Due {
    let due = match due(scene, verdicts) {
        VolumeStep::Idle => Ok(Due::Nothing),
        VolumeStep::Wait(why) => Ok(Due::Wait(why)),
        VolumeStep::Assign(to) => assign(scene, to),
        VolumeStep::MakeHandle => storage::make_handle(scene),
        VolumeStep::ContestHandle => storage::contest_handle(scene),
        VolumeStep::JudgeRejected => storage::judge_rejected(scene),
        VolumeStep::JudgeAnew => Ok(Due::Step(LeaderStep::AllowDeletion(false))),
        VolumeStep::ReportReady => Ok(Due::Step(LeaderStep::ReportReady)),
        VolumeStep::BeginClosing { last } => Ok(Due::Step(LeaderStep::BeginClosing { last })),
        VolumeStep::FinishClosing { mode, first_controller } => finish_closing(scene, mode, first_controller),
        VolumeStep::AssignDelete(to) => storage::delete(scene, to),
        VolumeStep::RestoreStatus => Ok(Due::Step(LeaderStep::RestoreStatus { state_too: true })),
        VolumeStep::RemoveHandle => remove_handle(scene),
        VolumeStep::FreeVolume => free(scene),
        VolumeStep::GiveUp(caller) => give_up(scene, &caller),
        VolumeStep::MoveHandle(to) => move_handle(scene, to),
        VolumeStep::ReportExpanded(by_nodes) => Ok(Due::Step(LeaderStep::ReportExpanded(by_nodes))),
        VolumeStep::ReportModified => Ok(Due::Step(LeaderStep::ReportModified)),
    };
    due.unwrap_or_else(|look| Due::Step(LeaderStep::Look(look)))
}

fn due(scene: &Scene<'_>, verdicts: &[(ClaimUid, Verdict)]) -> VolumeStep {
    let Some(volume) = scene.volume else {
        return heir_without_volume(scene).map_or(VolumeStep::Idle, VolumeStep::MoveHandle);
    };
    let wanted_mode = if scene.handle.is_some_and(|handle| handle.closing) {
        admission::wanted_mode(&scene.admission())
    } else {
        // Nor does a claim whose Pod nobody has looked at yet end what others use.
        let may = |uid: &ClaimUid| {
            scene.claims.iter().any(|claim| claim.uid == *uid && may_have(scene, claim) == Ok(true))
        };
        verdicts.iter().filter(|(uid, _)| may(uid)).find_map(|(_, verdict)| match verdict {
            Verdict::Grant(Grant::SwitchMode { mode }) => Some(*mode),
            Verdict::Grant(_) | Verdict::Wait(_) => None,
        })
    };
    volume::plan(&volume::Seen {
        volume,
        held: has_finalizer(&volume.metadata, FINALIZER),
        plugin: scene.plugin,
        not_allowed: scene.volume_not_allowed.cloned(),
        same_driver: is_of_driver(volume, scene.driver),
        adopts: scene.kept_as.is_some(),
        handle: scene.handle,
        source: scene.source,
        copied_by: scene.copied_by.map(str::to_owned),
        in_use_by: scene.in_use_by(),
        has_attachments: scene
            .attachments
            .iter()
            .any(|a| volume.metadata.uid.as_deref() == Some(&a.volume_uid)),
        first_place: first_place(scene, volume),
        wanted_mode,
    })
}

/// Where the first claim is of a volume that is made there. One of a Pod counts when it is known that the Pod may have it.
fn first_place(scene: &Scene<'_>, volume: &Volume) -> Option<Segments> {
    if !volume.is_to_be_placed() {
        return None;
    }
    let may = |claim: &ClaimSeen| !claim.of_pod || scene.entitled(claim) == Some(&Entitled::Yes);
    let node = admission::first_node(&scene.admission(), may)?;
    Some(Segments { segments: node.topology.clone() })
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
    let is_first = scene.volume.is_some_and(|volume| volume.spec.assignment.is_none());
    if let Some((of, id)) = to
        .source
        .as_ref()
        .and_then(|s| Some((s.uid.clone(), s.snapshot_handle.clone()?)))
        .filter(|_| is_first)
    {
        // Two may have been found to be the only one at the same time.
        if let Some(by) = scene.looked.shared_with.clone().ok_or(Look::Holders { of, id })? {
            return Ok(Due::Wait(VolumeWaiting::Source(SourceLack::Shared(by))));
        }
    }
    let moves = may_move(scene, moves_from(scene, &to))?;
    Ok(if moves { Due::Step(LeaderStep::AssignVolume(to)) } else { Due::Nothing })
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
