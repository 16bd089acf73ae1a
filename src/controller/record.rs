//! Records what claims wait for: one write when the reason changes, none while it stays.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use super::context::Context;
use super::losses;
use super::observe::Observed;
use super::pass::verdicts;
use crate::api::VolumeClaim;
use crate::api::conditions::{self, Desired, READY};
use crate::claim::admission::Verdict;
use crate::claim::reason::Waiting;
use crate::k8s::{ApiError, Next, Target};

/// A wait that moor itself ends is only written when it lasts: most are over before anybody looks, and
/// each write costs the API server as much as a grant.
const PATIENCE: Duration = Duration::from_secs(1);

/// Writes the condition of every waiting claim.
pub(crate) async fn waiting(ctx: &Context, seen: &Observed) -> Next {
    let mut next = Next::Done;
    match losses::tell(ctx, seen).await {
        Ok(()) => {}
        Err(ApiError::Conflict(_)) => return Next::Again,
        Err(error) => {
            tracing::warn!(namespace = seen.namespace, volume = seen.name, %error, "cannot record what its nodes do");
            return Next::Retry;
        }
    }
    for (uid, verdict) in verdicts(seen) {
        let Verdict::Wait(why) = verdict else { continue };
        let Some(claim) = seen.claim(&uid) else { continue };
        let brief = matches!(why, Waiting::VolumeNotReady { .. } | Waiting::ModeChanging);
        let created = claim.metadata.creation_timestamp.as_ref();
        if brief && created.is_some_and(|t| is_young(t.0, Timestamp::now())) {
            next = Next::After(PATIENCE);
            continue;
        }
        match write(ctx, claim, &why).await {
            Ok(()) => {}
            Err(ApiError::Conflict(_)) => next = Next::Again,
            Err(error) => {
                tracing::warn!(claim = claim.metadata.name, %error, "cannot record what it waits for");
                return Next::Retry;
            }
        }
    }
    next
}

/// Creation times are whole seconds, so a claim can look up to one older than it is. One from the future shows that the
/// clocks differ, and nothing is held back for that.
fn is_young(created: Timestamp, now: Timestamp) -> bool {
    Duration::try_from(now.duration_since(created)).is_ok_and(|age| age < PATIENCE * 2)
}

async fn write(ctx: &Context, claim: &VolumeClaim, why: &Waiting) -> Result<(), ApiError> {
    let generation = claim.metadata.generation;
    let status = claim.status.clone().unwrap_or_default();
    let desired = Desired { type_: READY, status: false, reason: why.reason(), message: why.message() };
    let mut all = status.conditions;
    let changed = conditions::set(&mut all, &desired, generation, Timestamp::now());
    if !changed {
        return Ok(());
    }
    let holder = why.holder().map(|h| json!({ "holder": h.who, "nodeName": h.node, "state": h.state }));
    let fields = json!({
        "conditions": all,
        "waitingFor": holder,
        "observedGeneration": generation,
    });
    let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    let target = Target::of(claim);
    match ctx.writer.patch_status(&ctx.claim_api(namespace), &target, fields).await {
        Ok(claim) => ctx.claims.apply(claim),
        Err(ApiError::Gone(_)) => ctx.claims.remove_confirmed(&target.uid),
        Err(error) => return Err(error),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_jumps_holds_no_condition_back() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let created = at(1_700_000_000);
        assert!(is_young(created, created) && is_young(created, at(1_700_000_001)));
        assert!(!is_young(created, at(1_700_000_002)));
        // An hour ahead, an hour behind.
        assert!(!is_young(created, at(1_700_003_600)));
        assert!(!is_young(created, at(1_699_996_400)));
    }
}
