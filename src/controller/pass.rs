//! One pass over one Volume: observe, plan, look or act, until nothing is left to do; then say what is waited for.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::context::Context;
use super::key::key_of;
use super::observe::{Observed, observe};
use super::room::Locked;
use super::{act, drift, looks, record, refusals, unsettled, volumes};
use crate::api::conditions::{READY, Reason};
use crate::claim::Verdict;
use crate::k8s::{ApiError, Next};
use crate::leader::{LeaderStep, Look, Looked, plan};

/// More steps than one Volume can need at a time; the pass goes on behind the keys that wait.
const STEPS: usize = 64;

/// Time between looks at what no watch tells.
const RECHECK: Duration = Duration::from_secs(30);

/// Settles one Volume.
pub(crate) async fn run(ctx: &Context, namespace: &str, name: &str) -> Next {
    let mut locked = None;
    for _ in 0..STEPS {
        if !ctx.leadership.is_leading() {
            return Next::Done;
        }
        let seen = observe(ctx, namespace, name);
        let verdicts = seen.scene(&Looked::default()).verdicts();
        match step(ctx, &seen, &verdicts, &mut locked).await {
            Ok(true) => {}
            Ok(false) => {
                let (key, plugin) = (key_of(namespace, name), unsettled::waits_for(&seen, &verdicts));
                let begins = ctx.unsettled.mark(&key, plugin.as_deref());
                if ctx.room.wait(&key, &seen.claims_seen, &verdicts) || begins {
                    // What it waits for may have come while it was looked at.
                    continue;
                }
                drift::report(ctx, &seen).await;
                let recheck = waits_for_others(&seen).then_some(RECHECK);
                return match record::waiting(ctx, &seen, &verdicts).await {
                    Next::Done => recheck.map_or(Next::Done, Next::After),
                    next @ (Next::Again | Next::After(_) | Next::Retry) => next,
                };
            }
            Err(ApiError::Conflict(request)) => {
                tracing::info!(%request, "changed meanwhile; looking again");
            }
            Err(error) => {
                tracing::warn!(namespace, volume = name, %error, "pass failed");
                refusals::tell(ctx, &seen, &verdicts, &error);
                return Next::Retry;
            }
        }
    }
    Next::Again
}

/// Plans, looks live for as long as the plan asks for it, and does what is due. Returns whether anything has changed: then
/// it is observed again.
async fn step(
    ctx: &Context,
    seen: &Observed,
    verdicts: &[(String, Verdict)],
    mutex: &mut Option<Locked>,
) -> Result<bool, ApiError> {
    let mut looked = Looked::default();
    loop {
        let plan = plan(&seen.scene(&looked), verdicts);
        // Whoever else waits for room there need not wait for anything but the grant.
        if !matches!(plan.step, LeaderStep::CreateAttachment { .. } | LeaderStep::Look(Look::EndedReports)) {
            *mutex = None;
        }
        if let LeaderStep::Look(look) = &plan.step {
            if looks::answer(ctx, seen, look, &mut looked).await? {
                // What is planned next has to know all of it.
                return Ok(true);
            }
            continue;
        }
        if act::act(ctx, seen, &plan.step, mutex).await? {
            return Ok(true);
        }
        if let (Some(volume), Some(why)) = (&seen.volume, &plan.volume_waits) {
            volumes::wait(ctx, volume, why).await?;
        }
        return Ok(false);
    }
}

/// Whether the Volume waits for something that no watch tells: for a PersistentVolume to go, or for a mount of what
/// CreateVolume made and nobody can use, from which no Volume is found.
fn waits_for_others(seen: &Observed) -> bool {
    let Some(status) = seen.volume.as_ref().and_then(|v| v.status.as_ref()) else { return false };
    let waits = |c: &Condition| c.type_ == READY && c.reason == Reason::HandleInPersistentVolume.as_str();
    status.conditions.iter().any(waits) || (status.rejected.is_some() && !seen.forgotten.is_empty())
}
