//! Says of an object that was edited, and is as Ready as before, that it is so as it is now: who waits for an edit looks at the
//! generation that its condition Ready has seen, and where nothing has to be done for an edit nobody else writes it.

use super::context::Context;
use super::observe::Observed;
use crate::api::Snapshot;
use crate::api::conditions::{Condition, READY};
use crate::k8s::ApiError;

/// Answers the Volume and its claims, after a pass in which nothing was left to be done for them.
pub(super) async fn report(ctx: &Context, seen: &Observed) -> Result<(), ApiError> {
    if let Some(volume) = &seen.volume
        && volume.metadata.deletion_timestamp.is_none()
        && let Some(mut status) = volume.status.clone()
        && answer(&mut status.conditions, volume.metadata.generation)
    {
        status.observed_generation = volume.metadata.generation;
        ctx.writer.update_status(&ctx.volumes, volume, &status).await?;
    }
    let living = seen.claims.iter().filter(|claim| claim.metadata.deletion_timestamp.is_none());
    for claim in living {
        if let Some(mut status) = claim.status.clone()
            && answer(&mut status.conditions, claim.metadata.generation)
        {
            status.observed_generation = claim.metadata.generation;
            ctx.writer.update_status(&ctx.claims, claim, &status).await?;
        }
    }
    Ok(())
}

/// Answers a Snapshot for which nothing is left to be done.
pub(super) async fn snapshot(ctx: &Context, snapshot: &Snapshot) -> Result<(), ApiError> {
    if snapshot.metadata.deletion_timestamp.is_none()
        && let Some(mut status) = snapshot.status.clone()
        && answer(&mut status.conditions, snapshot.metadata.generation)
    {
        status.observed_generation = snapshot.metadata.generation;
        ctx.writer.update_status(&ctx.snapshots, snapshot, &status).await?;
    }
    Ok(())
}

/// Has the condition Ready answer this generation, if it is True. Returns whether it answered another one. Why an object is not
/// Ready is said anew by whoever found it.
fn answer(conditions: &mut [Condition], generation: Option<i64>) -> bool {
    let ready = conditions.iter_mut().find(|c| c.type_ == READY && c.status == "True");
    let Some(ready) = ready.filter(|ready| ready.observed_generation != generation) else { return false };
    ready.observed_generation = generation;
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::conditions::{Desired, Reason, set};

    #[test]
    fn only_what_is_ready_is_answered_and_once() {
        let said = |reason| {
            let mut all = Vec::new();
            set(&mut all, &Desired::new(reason, "so"), Some(1), jiff::Timestamp::UNIX_EPOCH);
            all
        };
        let mut ready = said(Reason::Ready);
        assert!(!answer(&mut ready, Some(1)), "it is answered");
        assert!(answer(&mut ready, Some(2)) && !answer(&mut ready, Some(2)));
        assert_eq!(ready[0].observed_generation, Some(2));
        assert!(!answer(&mut said(Reason::Staging), Some(2)), "whoever stages says so");
        assert!(!answer(&mut [], Some(2)));
    }
}
