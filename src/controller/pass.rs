//! One pass over one Volume: observe, plan, look or act, until nothing is left to do; then say what is waited for.

use std::time::Duration;

use super::context::Context;
use super::key::{Key, VolumeKey};
use super::observe::{Observed, observe};
use super::room::Locked;
use super::{
    act, answered, drift, edits, expansions, health, looks, orphans, record, refusals, schedulable, volumes,
};
use crate::api::caller::ControllerRef;
use crate::api::conditions::{Condition, READY, Reason};
use crate::api::{ClaimUid, VolumeState};
use crate::claim::Verdict;
use crate::k8s::{ApiError, Next};
use crate::leader::{LeaderStep, Look, Looked, plan};
use crate::volume::{InstanceSeen, edit, growth, modification};

/// More steps than one Volume can need at a time; the pass goes on behind the keys that wait.
const STEPS: usize = 64;

/// Time between looks at what no watch tells.
const RECHECK: Duration = Duration::from_secs(30);

/// Settles one Volume.
pub(crate) async fn run(ctx: &Context, volume: &VolumeKey) -> Next {
    let mut locked = None;
    for _ in 0..STEPS {
        if !ctx.leadership.is_leading() {
            return Next::Done;
        }
        let seen = observe(ctx, volume);
        let verdicts = seen.scene(&Looked::default()).verdicts();
        match step(ctx, &seen, &verdicts, &mut locked).await {
            Ok(true) => {}
            Ok(false) => {
                let (key, plugin) = (Key::Volume(volume.clone()), waits_for_instances(&seen, &verdicts));
                let begins = ctx.unsettled.mark(&key, plugin.as_deref());
                if ctx.room.wait(&key, &seen.claims_seen, &verdicts) || begins {
                    make_room(ctx, &key);
                    // What it waits for may have come while it was looked at.
                    continue;
                }
                let told = tell(ctx, &seen).await;
                let others = waits_for_others(&seen).then_some(RECHECK);
                let recheck = others.into_iter().chain(told.recheck).chain(seen.lingering.ends);
                let recheck = recheck.chain(ctx.pods.next(&seen.claims_seen)).min();
                return match (record::waiting(ctx, &seen, &verdicts).await, told.again) {
                    (Next::Done | Next::After(_), Some(again)) => again,
                    (Next::Done, None) => recheck.map_or(Next::Done, Next::After),
                    (Next::After(later), None) => {
                        Next::After(recheck.map_or(later, |recheck| recheck.min(later)))
                    }
                    (next @ (Next::Again | Next::Retry | Next::Unanswered), _) => next,
                };
            }
            Err(ApiError::Conflict(request)) => {
                tracing::info!(%request, "changed meanwhile; looking again");
            }
            Err(error) => {
                tracing::warn!(%volume, %error, "pass failed");
                refusals::tell(ctx, &seen, &verdicts, &error);
                return error.next();
            }
        }
    }
    Next::Again
}

/// What came of telling how a Volume is.
struct Told {
    /// When it is tried again to write what could not be written. Nothing else may ever bring the Volume back.
    again: Option<Next>,
    /// When something is to be told that no watch brings.
    recheck: Option<Duration>,
}

/// Tells on the Volume, and on its claims, how they are, after a pass in which nothing was left to be done.
async fn tell(ctx: &Context, seen: &Observed) -> Told {
    let mut recheck = None;
    let told = [
        ("cannot report the drift", drift::report(ctx, seen).await),
        ("cannot report how far an edit is", edits::report(ctx, seen).await),
        ("cannot report which nodes have to follow", expansions::report(ctx, seen).await),
        ("cannot report how the volume is", health::report(ctx, seen).await),
        ("cannot report whether its storage is there", orphans::report(ctx, seen).await),
        ("cannot answer its last edit", answered::report(ctx, seen).await),
        (
            "cannot tell whether it is schedulable",
            schedulable::report(ctx, seen).await.map(|next| recheck = next),
        ),
    ];
    let mut again = None;
    for (what, told) in told {
        if let Err(error) = told {
            error.log(&seen.key, what);
            // What was not answered is soonest to be asked again.
            again = again.filter(|next| *next == Next::Unanswered).or(Some(error.next()));
        }
    }
    Told { again, recheck }
}

/// Has the Volumes looked at that linger where a claim of this one waits for room.
fn make_room(ctx: &Context, key: &Key) {
    for node in ctx.room.sought_by(key) {
        for volume in ctx.linger.on(node.as_deref()) {
            ctx.queue.add(Key::Volume(volume));
        }
    }
}

/// Plans, looks live for as long as the plan asks for it, and does what is due. Returns whether anything has changed: then
/// it is observed again.
async fn step(
    ctx: &Context,
    seen: &Observed,
    verdicts: &[(ClaimUid, Verdict)],
    mutex: &mut Option<Locked>,
) -> Result<bool, ApiError> {
    let mut looked = Looked::default();
    loop {
        let plan = plan(&seen.scene(&looked), verdicts);
        // Whoever else waits for room there need not wait for anything but the grant. What is looked at before it is looked at in each
        // step anew: it would never come to the grant if it took the mutex again after that.
        if !matches!(plan.step, LeaderStep::CreateAttachment { .. } | LeaderStep::Look(_)) {
            *mutex = None;
        }
        if let LeaderStep::Look(look) = plan.step {
            let looks = at_once(seen, verdicts, looked.clone(), look);
            if looks::answer(ctx, seen, &looks, &mut looked).await? {
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

/// This look, and behind one for what is in the way those that the plan asks for if it finds nothing, as it mostly does. Each LIST waits
/// until the API server's cache is as new as etcd, which one after the other takes longer than all else about a deletion.
fn at_once(
    seen: &Observed,
    verdicts: &[(ClaimUid, Verdict)],
    mut supposed: Looked,
    first: Look,
) -> Vec<Look> {
    let (mut looks, mut next) = (Vec::new(), LeaderStep::Look(first));
    while let LeaderStep::Look(look) = next {
        let goes_on = supposed.suppose_nothing(&look);
        if goes_on || looks.is_empty() {
            looks.push(look);
        }
        if !goes_on {
            break;
        }
        next = plan(&seen.scene(&supposed), verdicts).step;
    }
    looks
}

/// Whether the Volume waits for something that no watch tells: for a PersistentVolume to go, or for a mount of what
/// CreateVolume made and nobody can use, from which no Volume is found.
fn waits_for_others(seen: &Observed) -> bool {
    let Some(status) = seen.volume.as_ref().and_then(|v| v.status.as_ref()) else { return false };
    let waits = |c: &Condition| c.type_ == READY && c.reason == Reason::HandleInPersistentVolume.as_str();
    status.conditions.iter().any(waits) || (status.rejected.is_some() && !seen.forgotten.is_empty())
}

/// The Plugin for whose instances a Volume waits, if it does, after a look at which nothing could be done. A Volume that is
/// Ready, with a healthy instance for its calls and nothing that comes or goes, does not.
fn waits_for_instances(seen: &Observed, verdicts: &[(ClaimUid, Verdict)]) -> Option<String> {
    let Some(volume) = &seen.volume else {
        // Removed by hand, with something left to undo.
        return seen.attachments.first().map(|left| left.spec.fixed.plugin_name.clone());
    };
    let is_ready = volume.metadata.deletion_timestamp.is_none() && volume.state() == VolumeState::Ready;
    let opened = seen.handle_seen.as_ref().is_some_and(|h| !h.closing);
    // What is told of them names the nodes whose instances have the node ids.
    let drifts =
        seen.handle.as_ref().and_then(|h| h.status.as_ref()).is_some_and(|status| status.drift.is_some());
    let of_handle = seen.handle.as_ref().and_then(|h| h.spec.controller.as_ref());
    let of_locks = seen.attachments.iter().filter_map(|a| a.spec.controller.as_ref());
    let served = are_served(of_handle.into_iter().chain(of_locks), &seen.controllers);
    let leaves = seen.claims_seen.iter().any(|c| c.deleted) || seen.attachments_seen.iter().any(|a| a.lost);
    let waits = |(_, verdict): &(ClaimUid, Verdict)| {
        let Verdict::Wait(why) = verdict else { return true };
        why.is_for_instances()
    };
    let settled = is_ready
        && opened
        && served
        && !drifts
        && !leaves
        && growth::wanted(volume).is_none()
        && modification::due(volume).is_none()
        && edit::wanted(volume).is_none()
        && seen.forgotten.is_empty()
        && !verdicts.iter().any(waits);
    (!settled).then(|| volume.spec.plugin_name.clone())
}

/// Whether each of these instances makes the calls that it was given. One that is not to be given new ones does too:
/// a Volume does not wait for another.
fn are_served<'a>(named: impl IntoIterator<Item = &'a ControllerRef>, all: &[InstanceSeen]) -> bool {
    let serves = |named: &ControllerRef| {
        all.iter().any(|c| c.name == named.instance && c.serving && !c.is_dead_for(named))
    };
    named.into_iter().all(serves)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_does_not_wait_whose_instance_may_only_not_be_given_more() {
        let named = ControllerRef::new("i", "node", 0);
        let seen = |healthy, serving, dead| InstanceSeen {
            name: "i".into(),
            agent: "node".into(),
            healthy,
            serving,
            silent: false,
            dead,
            tenure: 0,
            relieved: 0,
            topology: std::collections::BTreeMap::new(),
        };
        let served = |seen| are_served([&named], &[seen]);
        assert!(served(seen(true, true, false)));
        assert!(served(seen(false, true, false)), "it is not selected any more");
        assert!(!served(seen(false, false, false)) && !served(seen(false, true, true)));
        assert!(!are_served([&named], &[]) && are_served([], &[]));
    }
}
