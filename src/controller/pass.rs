//! One pass over one Volume: observe, plan, act, record, until nothing is left to do.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::context::Context;
use super::mapping::key_of;
use super::observe::{Observed, observe};
use super::refresh::refresh;
use super::{claims, drift, forgotten, handles, losses, record, refusals, unsettled, volumes, writers};
use crate::api::conditions::READY;
use crate::api::instance::{PluginInstanceStatus, Service};
use crate::attachment::closing::{self, ClosingStep};
use crate::claim::admission::{self, Grant, Verdict};
use crate::claim::release::{self, ReleaseStep};
use crate::claim::writer::retire;
use crate::claim::{ClaimSeen, Mount};
use crate::k8s::{ApiError, Next};
use crate::volume::{self, VolumeStep};

/// More steps than one Volume can need at a time; the pass goes on behind the keys that wait.
const STEPS: usize = 64;

/// Time between looks at what no watch tells.
const RECHECK: Duration = Duration::from_secs(30);

/// What a step did.
pub(crate) enum Did {
    /// Something changed: look again.
    Step,
    /// Nothing could be done now.
    Nothing,
}

/// Settles one Volume.
pub(crate) async fn run(ctx: &Context, namespace: &str, name: &str) -> Next {
    for _ in 0..STEPS {
        if !ctx.leadership.is_leading() {
            return Next::Done;
        }
        let seen = observe(ctx, namespace, name);
        match step(ctx, &seen).await {
            Ok(Did::Step) => {}
            Ok(Did::Nothing) => {
                let verdicts = verdicts(&seen);
                let (key, plugin) = (key_of(namespace, name), unsettled::waits_for(&seen, &verdicts));
                let begins = ctx.unsettled.mark(&key, plugin.as_deref());
                if ctx.room.wait(&key, &seen.claims_seen, &verdicts) || begins {
                    // What it waits for may have come while it was looked at.
                    continue;
                }
                drift::report(ctx, &seen).await;
                let recheck = waits_for_others(&seen).then_some(RECHECK);
                return match record::waiting(ctx, &seen, &verdicts).await {
                    Next::Done => {
                        recheck.or_else(|| drift::again(ctx, &seen)).map_or(Next::Done, Next::After)
                    }
                    next => next,
                };
            }
            Err(ApiError::Conflict(request)) => {
                tracing::info!(%request, "changed meanwhile; looking again");
                if let Err(error) = refresh(ctx, &request).await {
                    tracing::warn!(namespace, volume = name, %error, "cannot look again");
                    return Next::Retry;
                }
            }
            Err(error) => {
                tracing::warn!(namespace, volume = name, %error, "pass failed");
                refusals::tell(ctx, &seen, &verdicts(&seen), &error);
                return Next::Retry;
            }
        }
    }
    Next::Again
}

/// It waits for a PersistentVolume to go, and those are not watched.
fn waits_for_others(seen: &Observed) -> bool {
    let status = seen.volume.as_ref().and_then(|v| v.status.as_ref());
    let waits = |c: &Condition| c.type_ == READY && c.reason == "HandleInPersistentVolume";
    status.is_some_and(|s| s.conditions.iter().any(waits))
}

/// What admission says now.
pub(crate) fn verdicts(seen: &Observed) -> Vec<(String, Verdict)> {
    admission::admit(&admission_view(seen))
}

fn admission_view(seen: &Observed) -> admission::Seen<'_> {
    admission::Seen {
        volume_name: &seen.name,
        volume: seen.volume_seen.as_ref(),
        handle: seen.handle_seen.as_ref(),
        claims: &seen.claims_seen,
        attachments: &seen.locks_seen,
        nodes: &seen.nodes,
        forgotten: &seen.forgotten,
        not_allowed: &seen.refused.claims,
    }
}

/// What the Volume needs now.
pub(crate) fn volume_step(seen: &Observed, verdicts: &[(String, Verdict)]) -> VolumeStep {
    let Some(object) = &seen.volume else {
        return handles::heir_without_volume(seen).map_or(VolumeStep::Idle, VolumeStep::MoveHandle);
    };
    let closing = seen.handle_seen.as_ref().is_some_and(|h| h.closing);
    let wanted_mode = if closing {
        admission::wanted_mode(&admission_view(seen))
    } else {
        verdicts.iter().find_map(|(_, v)| match v {
            Verdict::Grant(Grant::SwitchMode { mode }) => Some(*mode),
            _ => None,
        })
    };
    volume::plan(&volume::Seen {
        volume: object,
        held: object.metadata.finalizers.iter().flatten().any(|f| f == crate::api::FINALIZER),
        plugin: seen.plugin.as_ref().map(|p| p.spec.balancing),
        older_plugin: seen.older_plugin.as_deref(),
        not_allowed: seen.refused.volume.clone(),
        same_driver: volumes::is_of_driver(object, &seen.driver),
        controllers: &seen.controllers,
        names_controllers: seen.plugin.as_ref().is_some_and(|p| p.spec.controller_nodes.is_some()),
        any_healthy: seen
            .instances
            .iter()
            .any(|i| i.status.as_ref().is_some_and(PluginInstanceStatus::is_healthy_for_any)),
        can_create: seen.controlling.iter().filter_map(|i| i.status.as_ref()).any(|s| {
            s.is_healthy_for(Service::Controller) && s.capabilities.controller_has("CREATE_DELETE_VOLUME")
        }),
        attaches: seen.attaches(),
        handle: seen.handle_seen.as_ref(),
        in_use_by: in_use_by(seen),
        wanted_mode,
    })
}

fn in_use_by(seen: &Observed) -> Option<String> {
    let granted = seen.claims_seen.iter().find(|c| c.uses().is_some());
    // What locks a handle that is another Volume's is that Volume's affair.
    let uid = seen.volume_seen.as_ref().map(|v| &v.uid);
    let mine = seen.handle_seen.as_ref().is_none_or(|h| Some(&h.volume_uid) == uid);
    let locked = seen.locks_seen.first().filter(|_| mine);
    let mounted = seen.forgotten.first().filter(|_| mine);
    granted
        .map(|c| format!("claim {}", c.key()))
        .or_else(|| locked.map(|a| format!("Attachment {} on node {}", a.name, a.node)))
        .or_else(|| {
            mounted.map(|m| match m.mount {
                Mount::NotSaid => format!("node {}, which has yet to say what it has mounted", m.node),
                Mount::InLease => format!("a mount on node {} (Lease {})", m.node, m.instance),
                Mount::Reported(_) | Mount::Named => {
                    format!("a mount on node {} (PluginInstance {})", m.node, m.instance)
                }
            })
        })
}

/// Does the first thing that is due. Leaving comes before arriving, the Volume before its claims.
async fn step(ctx: &Context, seen: &Observed) -> Result<Did, ApiError> {
    if matches!(losses::settle(ctx, seen).await?, Did::Step) {
        return Ok(Did::Step);
    }
    let verdicts = verdicts(seen);
    let joined: Vec<&str> = verdicts
        .iter()
        .filter_map(|(_, v)| match v {
            Verdict::Grant(Grant::Join { uid, .. } | Grant::NameWriter { uid, .. }) => Some(uid.as_str()),
            _ => None,
        })
        .collect();
    for (attachment, object) in seen.attachments_seen.iter().zip(&seen.attachments) {
        let plan = if ctx.caution.is_on() { closing::plan_with_caution } else { closing::plan };
        match plan(attachment, &seen.claims_seen) {
            // About to be joined: closing it would only make the claim come back.
            Some(ClosingStep::Close | ClosingStep::CloseIfUnused)
                if joined.contains(&attachment.uid.as_str()) => {}
            Some(ClosingStep::Close) => return claims::close(ctx, object).await,
            Some(ClosingStep::CloseIfUnused) => return claims::close_if_unused(ctx, object).await,
            Some(ClosingStep::Free) => return claims::free_attachment(ctx, object).await,
            Some(ClosingStep::FreeIfStillOut) if losses::is_still_out(ctx, attachment, object).await? => {
                return claims::free_attachment(ctx, object).await;
            }
            Some(ClosingStep::FreeIfStillOut) | None => {}
        }
    }
    for (claim, object) in seen.claims_seen.iter().zip(&seen.claims) {
        let Some(step) = release::plan(claim, &seen.attachments_seen) else { continue };
        if step == ReleaseStep::Free
            && let Some(writer) = retire(seen.handle_seen.as_ref(), claim)
        {
            return writers::write(ctx, seen, &writer).await;
        }
        if matches!(claims::release(ctx, object, step).await?, Did::Step) {
            return Ok(Did::Step);
        }
    }
    if let Some(volume) = &seen.volume
        && matches!(volumes::mend(ctx, seen, volume).await?, Did::Step)
    {
        return Ok(Did::Step);
    }
    if matches!(volume_action(ctx, seen, volume_step(seen, &verdicts)).await?, Did::Step) {
        return Ok(Did::Step);
    }
    if let Some(attachment) = handles::misplaced(seen) {
        return claims::move_controller(ctx, seen, attachment).await;
    }
    let grants = verdicts.iter().any(|(_, verdict)| matches!(verdict, Verdict::Grant(_)));
    if grants && !forgotten::have_ended(ctx, &seen.ended).await? {
        return Ok(Did::Nothing);
    }
    for (uid, verdict) in &verdicts {
        let Verdict::Grant(grant) = verdict else { continue };
        let Some(claim) = seen.claim(uid) else { continue };
        match grant {
            Grant::Create { attachment, node } => {
                return claims::create_attachment(ctx, seen, claim, attachment, node).await;
            }
            Grant::NameWriter { attachment, uid } => {
                return writers::name(ctx, seen, claim, attachment, uid).await;
            }
            Grant::Join { attachment, uid } => {
                let writes = ClaimSeen::of(claim).needs_writer_lock();
                if writes && !writers::may_follow(ctx, seen).await? {
                    return Ok(Did::Nothing);
                }
                return claims::assign(ctx, claim, attachment, uid).await;
            }
            Grant::SwitchMode { .. } => {}
        }
    }
    // After the claims: one that can be granted now has the node, and nothing is undone there.
    drift::act(ctx, seen).await
}

async fn volume_action(ctx: &Context, seen: &Observed, step: VolumeStep) -> Result<Did, ApiError> {
    if let VolumeStep::MoveHandle(to) = &step {
        return handles::move_to(ctx, seen, to).await;
    }
    let Some(object) = &seen.volume else { return Ok(Did::Nothing) };
    match step {
        VolumeStep::Idle | VolumeStep::MoveHandle(_) => Ok(Did::Nothing),
        VolumeStep::Wait(why) => volumes::wait(ctx, object, &why).await,
        VolumeStep::Assign(to) => volumes::assign(ctx, seen, object, &to).await,
        VolumeStep::MakeHandle => handles::make(ctx, seen, object).await,
        VolumeStep::ContestHandle => handles::contest(ctx, seen, object).await,
        VolumeStep::JudgeRejected => volumes::judge_rejected(ctx, seen, object).await,
        VolumeStep::JudgeAnew => volumes::judge_anew(ctx, object).await,
        VolumeStep::ReportReady => volumes::report_ready(ctx, seen, object).await,
        VolumeStep::BeginClosing => handles::begin_closing(ctx, seen).await,
        VolumeStep::FinishClosing { mode, first_controller } => {
            handles::finish_closing(ctx, seen, mode, first_controller.as_ref()).await
        }
        VolumeStep::AssignDelete(to) => volumes::assign_delete(ctx, seen, object, to).await,
        VolumeStep::RestoreStatus => volumes::restore_status(ctx, seen, object).await,
        VolumeStep::RemoveHandle => handles::remove(ctx, seen).await,
        VolumeStep::FreeVolume => volumes::free(ctx, seen, object).await,
    }
}
