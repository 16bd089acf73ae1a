//! Nodes whose agents are silent: what is written where the plan counts one as lost, and what claims say of the ways out
//! where it does not.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::caches::is_told_of_silence;
use super::context::Context;
use super::nodes::cached_facts;
use super::observe::Observed;
use crate::api::attachment::Lost;
use crate::api::conditions::{self, Desired, Reason, SILENT, is_true};
use crate::api::names::agent_lease_name;
use crate::api::{Attachment, AttachmentState, AttachmentUid, ClaimState, VolumeClaim, VolumeClaimStatus};
use crate::attachment::AttachmentSeen;
use crate::attachment::loss::{self, Cause, Verdict};
use crate::claim::{ClaimSeen, loss as story};
use crate::heartbeat::AgentOnNode;
use crate::k8s::ApiError;
use crate::k8s::events::EventReason;

/// Writes `spec.lost`.
pub(crate) async fn declare(
    ctx: &Context,
    seen: &Observed,
    attachment: &Attachment,
    cause: Cause,
) -> Result<bool, ApiError> {
    let mut declared = attachment.clone();
    let lost = declared.spec.lost.insert(Box::new(Lost {
        node_uid: attachment.spec.fixed.node_uid.clone(),
        reason: cause.as_str().to_owned(),
        since: Time(Timestamp::now()),
    }));
    let words = story::lost(lost, &attachment.spec.node_name, attachment.spec.fixed.attach);
    // The resourceVersion of what was judged guards it: a step of the node since then makes this a conflict.
    ctx.writer.update(&ctx.attachments, attachment, &declared).await?;
    let (name, node) = (&attachment.metadata.name, &attachment.spec.node_name);
    tracing::warn!(attachment = name, node, cause = cause.as_str(), "node is lost");
    let uid = AttachmentUid::of(&attachment.metadata);
    for claim in seen.claims.iter().filter(|c| ClaimSeen::of(c).uses() == Some(&uid)) {
        ctx.recorder.tell(claim, EventReason::NodeLost, "Detach", words.clone());
    }
    Ok(true)
}

/// Ends a claim that nobody has deleted, with its node.
pub(crate) async fn end_claim(
    ctx: &Context,
    claim: &VolumeClaim,
    attachment: &Attachment,
) -> Result<bool, ApiError> {
    let Some(lost) = &attachment.spec.lost else { return Ok(false) };
    let node = &attachment.spec.node_name;
    let message = story::ended(lost, node);
    let desired = Desired { reason: Reason::NodeLost, message };
    let silent = story::of_loss(lost, node, attachment.spec.fixed.attach);
    let change = |status: &mut VolumeClaimStatus| {
        (status.state, status.target_path, status.boot_id) = (ClaimState::Lost, None, None);
        set(status, claim, &desired);
        set(status, claim, &silent);
    };
    write(ctx, claim, change).await
}

/// Writes ControllerDetached without a call where nobody could ever make it.
pub(crate) async fn abandon(ctx: &Context, attachment: &Attachment) -> Result<bool, ApiError> {
    let Some(controller) = &attachment.spec.controller else { return Ok(false) };
    let message = story::abandoned(controller, &attachment.spec.node_name);
    tracing::warn!(attachment = attachment.metadata.name, "{message}");
    let desired = Desired { reason: Reason::Abandoned, message };
    let mut status = attachment.status.clone().unwrap_or_default();
    status.state = AttachmentState::ControllerDetached;
    conditions::set(&mut status.conditions, &desired, attachment.metadata.generation, Timestamp::now());
    ctx.writer.update_status(&ctx.attachments, attachment, &status).await
}

/// Writes the condition NodeSilent on every claim whose node is silent, with what it means and the ways out; takes it
/// back when the node is heard again. One write per claim and change.
pub(crate) async fn tell(ctx: &Context, seen: &Observed) -> Result<(), ApiError> {
    for (claim, object) in seen.each_claim() {
        let wanted = match seen.used_by(claim) {
            Some((attachment, on)) => match &on.spec.lost {
                Some(lost) => Some(story::of_loss(lost, &attachment.node, attachment.attach)),
                None => silence(ctx, seen, (claim, object), (attachment, on)).await?,
            },
            None => None,
        };
        if let Some(desired) = wanted {
            write(ctx, object, |status| set(status, object, &desired)).await?;
        } else if is_told_of_silence(object) && is_over(ctx, claim) {
            let unsay = |status: &mut VolumeClaimStatus| status.conditions.retain(|c| c.type_ != SILENT);
            write(ctx, object, unsay).await?;
        }
    }
    Ok(())
}

/// The condition NodeSilent that a claim should have. It names ways out that are wrong while the node lives, and an
/// API server that is behind makes every node look silent: so what a claim does not say yet is said only after a
/// look.
async fn silence(
    ctx: &Context,
    seen: &Observed,
    (claim, object): (&ClaimSeen, &VolumeClaim),
    (attachment, on): (&AttachmentSeen, &Attachment),
) -> Result<Option<Desired>, ApiError> {
    let by_caches = || {
        let node = cached_facts(ctx, on);
        let judged: Verdict = loss::judge(&loss::Seen { attachment, node: &node, claims: &seen.claims_seen });
        story::of(&judged, claim, &attachment.node)
    };
    let wanted = by_caches();
    let said = is_true(object.status.iter().flat_map(|s| &s.conditions), SILENT);
    if said || !wanted.as_ref().is_some_and(|desired| desired.reason.group().status) {
        return Ok(wanted);
    }
    ctx.leases.refresh(&ctx.lease_api, &agent_lease_name(&attachment.node)).await?;
    Ok(by_caches())
}

/// Whether the silence of the claim's node is over: its agent was heard, or the claim is not bound to it any more. A
/// leader that has just started does not know, and leaves what its predecessor said.
fn is_over(ctx: &Context, claim: &ClaimSeen) -> bool {
    let Some(bound) = claim.assignment.as_ref().filter(|_| claim.uses().is_some()) else { return true };
    let agent = AgentOnNode::of_assignment(bound);
    let now = ctx.nodes.get(&bound.node_name);
    let there = now.map(|node| AgentOnNode { node_uid: node.uid().to_owned(), ..agent.clone() });
    ctx.leases.is_heard(&agent) || there.is_some_and(|agent| ctx.leases.is_heard(&agent))
}

fn set(status: &mut VolumeClaimStatus, claim: &VolumeClaim, desired: &Desired) {
    conditions::set(&mut status.conditions, desired, claim.metadata.generation, Timestamp::now());
}

async fn write(
    ctx: &Context,
    claim: &VolumeClaim,
    change: impl FnOnce(&mut VolumeClaimStatus),
) -> Result<bool, ApiError> {
    let mut status = claim.status.clone().unwrap_or_default();
    change(&mut status);
    ctx.writer.update_status(&ctx.claims, claim, &status).await
}
