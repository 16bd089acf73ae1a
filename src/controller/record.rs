//! Records what claims wait for: one write when the reason changes, none while it stays. Far back in a line of claims the
//! reason is one that outlasts a change of hands.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::context::Context;
use super::observe::Observed;
use super::{claims, losses};
use crate::api::caller::ControllerRef;
use crate::api::claim::WaitingFor;
use crate::api::conditions::{Desired, READY, find_as, patience_left};
use crate::api::{ClaimUid, VolumeClaim, VolumeClaimStatus};
use crate::claim::admission::Verdict;
use crate::claim::ended;
use crate::claim::leaving::{self, Caller, Telling};
use crate::claim::line::told;
use crate::claim::reason::{Holder, Waiting};
use crate::k8s::{ApiError, Next};
use crate::volume::InstanceSeen;

/// Number of claims that are told at a time. Between two times the Volume is looked at again: who can be granted by
/// then does not wait until a long line has been told why it waits.
const AT_A_TIME: usize = 16;

/// Writes the condition of every claim that waits, leaves or has ended, and does not say so yet.
pub(crate) async fn waiting(ctx: &Context, seen: &Observed, verdicts: &[(ClaimUid, Verdict)]) -> Next {
    match tell_all(ctx, seen, verdicts).await {
        Ok(next) => next,
        Err(error) => {
            error.log(&seen.key, "cannot record what its claims wait for");
            error.next()
        }
    }
}

async fn tell_all(
    ctx: &Context,
    seen: &Observed,
    verdicts: &[(ClaimUid, Verdict)],
) -> Result<Next, ApiError> {
    losses::tell(ctx, seen).await?;
    ended(ctx, seen).await?;
    let mut next = leaving(ctx, seen).await?;
    let by_uid: HashMap<&str, &Arc<VolumeClaim>> =
        seen.claims.iter().filter_map(|c| Some((c.metadata.uid.as_deref()?, c))).collect();
    let mut written = 0;
    for (uid, why) in told(verdicts) {
        let Some(claim) = by_uid.get(uid) else { continue };
        let created = claim.metadata.creation_timestamp.as_ref();
        if let Some(left) = created.and_then(|t| patience_left(t.0, Timestamp::now())) {
            next = Some(next.map_or(left, |n| n.min(left)));
            continue;
        }
        let why = if let Waiting::NodeNotUsable { node, .. } = &why
            && ctx.nodes.get(node).is_none()
        {
            Waiting::no_such_node(node)
        } else {
            why
        };
        if write(ctx, seen, claim, &why).await? {
            written += 1;
            if written == AT_A_TIME {
                return Ok(Next::Again);
            }
        }
    }
    Ok(next.map_or(Next::Done, Next::After))
}

/// Says what a claim waits for. Returns whether that was news.
async fn write(ctx: &Context, seen: &Observed, claim: &VolumeClaim, why: &Waiting) -> Result<bool, ApiError> {
    let waits = Desired { reason: why.reason(), message: why.message() };
    let holder = why.holder().map(|h| {
        let told = |text: String| (!text.is_empty()).then_some(text);
        let since = held_since(ctx, seen, &h);
        WaitingFor { holder: h.who, node_name: told(h.node), state: told(h.state), since }
    });
    claims::say(ctx, claim, &waits, |status| status.waiting_for = holder.map(Box::new)).await
}

/// Since when the holder has the volume; None for a claim that stands in line and does not have it.
fn held_since(ctx: &Context, seen: &Observed, holder: &Holder) -> Option<Time> {
    if holder.node.is_empty() {
        return None;
    }
    if let Some(name) = holder.who.strip_prefix("Attachment/") {
        return ctx.attachments.get(name)?.metadata.creation_timestamp.clone();
    }
    let (_, claim) = seen.each_claim().find(|(claim, _)| claim.key() == holder.who)?;
    let ready = find_as(claim.status.iter().flat_map(|s| &s.conditions), READY, "True");
    let since = ready.map(|ready| ready.last_transition_time.clone());
    since.or_else(|| claim.metadata.creation_timestamp.clone())
}

/// Says on claims that were ended from outside that they are of no use any more.
async fn ended(ctx: &Context, seen: &Observed) -> Result<(), ApiError> {
    for (claim, object) in seen.each_claim() {
        let Some(desired) = ended::of(claim) else { continue };
        let clear = |status: &mut VolumeClaimStatus| {
            tracing::warn!(claim = object.metadata.name, "{}", desired.message);
            (status.target_path, status.waiting_for) = (None, None);
        };
        claims::say(ctx, object, &desired, clear).await?;
    }
    Ok(())
}

/// Says on deleted claims how far the detach of their Attachment is. Returns when to look again.
async fn leaving(ctx: &Context, seen: &Observed) -> Result<Option<Duration>, ApiError> {
    let mut next: Option<Duration> = None;
    for (claim, object) in seen.each_claim().filter(|(claim, _)| claim.deleted) {
        let Some((attachment, on)) = seen.used_by(claim) else { continue };
        let closing = on.metadata.deletion_timestamp.as_ref();
        let left = closing.and_then(|t| patience_left(t.0, Timestamp::now()));
        let plugin_gone = seen.plugin.is_none().then_some(on.spec.fixed.plugin_name.as_str());
        let caller = caller(&seen.controllers, attachment.controller.as_ref(), plugin_gone);
        let status = on.status.clone().unwrap_or_default();
        match leaving::of(claim, attachment, &status, left, caller) {
            Telling::Nothing => {}
            Telling::Later(left) => next = Some(next.map_or(left, |n| n.min(left))),
            Telling::Now(desired) => {
                let copy = |said: &mut VolumeClaimStatus| {
                    said.state = claim.state.while_leaving();
                    (said.last_error, said.attempts) = (status.last_error, status.attempts);
                    said.next_retry = status.next_retry;
                };
                claims::say(ctx, object, &desired, copy).await?;
            }
        }
    }
    Ok(next)
}

/// What is known of the instance that an Attachment's calls are assigned to. It makes them also where its Plugin selects
/// others for new work; without a Plugin no PluginInstance says how its driver does.
fn caller<'a>(
    controllers: &[InstanceSeen],
    by: Option<&ControllerRef>,
    plugin_gone: Option<&'a str>,
) -> Caller<'a> {
    let known = controllers.iter().find(|c| Some(&c.name) == by.map(|by| &by.instance));
    match (known, plugin_gone) {
        (Some(known), _) if known.serving => Caller::Works,
        (Some(known), Some(plugin)) if known.silent => Caller::Orphaned { plugin },
        (Some(_), Some(_)) => Caller::Works,
        (Some(_) | None, _) => Caller::Absent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_that_is_not_selected_still_serves_what_it_was_given() {
        let instance = InstanceSeen {
            name: "i".into(),
            agent: "node-1".into(),
            healthy: false,
            serving: true,
            silent: false,
            dead: false,
            tenure: 0,
            relieved: 0,
            topology: std::collections::BTreeMap::new(),
        };
        let by = instance.to_ref();
        let of = |instance: &InstanceSeen, gone| caller(std::slice::from_ref(instance), Some(&by), gone);
        assert_eq!(of(&instance, None), Caller::Works);
        let idle = InstanceSeen { serving: false, ..instance.clone() };
        assert_eq!(of(&idle, None), Caller::Absent);
        assert_eq!(caller(&[instance], None, None), Caller::Absent);
        // Nothing is reported without the Plugin, and the agent goes on.
        assert_eq!(of(&idle, Some("p")), Caller::Works);
        let silent = InstanceSeen { silent: true, ..idle };
        assert_eq!(of(&silent, None), Caller::Absent);
        assert_eq!(of(&silent, Some("p")), Caller::Orphaned { plugin: "p" });
    }
}
