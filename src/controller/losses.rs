//! Nodes that are not heard of: declares them lost where rule R4 allows it, and says what a person can do where not.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use serde_json::json;

use super::claims::patch_status;
use super::context::Context;
use super::observe::Observed;
use super::pass::Did;
use crate::api::attachment::Lost;
use crate::api::conditions::{self, Desired, READY};
use crate::api::plugin::Balancing;
use crate::api::{Attachment, AttachmentState, ClaimState, VolumeClaim};
use crate::attachment::AttachmentSeen;
use crate::attachment::loss::{self, Cause, Machine, NodeNow, Verdict};
use crate::claim::observed::reaches;
use crate::claim::{ClaimSeen, loss as story};
use crate::k8s::events::Reason;
use crate::k8s::lease::agent_lease_name;
use crate::k8s::node::LeanNode;
use crate::k8s::read::{get_live, look_through};
use crate::k8s::{ApiError, Target};
use crate::plugin;

/// Does the first thing that is due about a node of this Volume's Attachments.
pub(crate) async fn settle(ctx: &Context, seen: &Observed) -> Result<Did, ApiError> {
    for (attachment, object) in seen.attachments_seen.iter().zip(&seen.attachments) {
        let did = if attachment.lost {
            after_loss(ctx, seen, attachment, object).await?
        } else if let Verdict::Lost(cause) = verdict(ctx, seen, attachment, object) {
            declare(ctx, seen, attachment, object, cause).await?
        } else {
            Did::Nothing
        };
        if matches!(did, Did::Step) {
            return Ok(did);
        }
    }
    Ok(Did::Nothing)
}

/// What the caches say of an Attachment's node. Good enough to wait and to tell, not to declare.
fn verdict(ctx: &Context, seen: &Observed, attachment: &AttachmentSeen, object: &Attachment) -> Verdict {
    let node = ctx.nodes.get("", &attachment.node);
    let lease = agent_lease_name(&attachment.node);
    let silent = ctx.leases.expired_on_node_for(&lease, &attachment.node_uid).is_some();
    // Nearly every node is heard, in every pass, and then nobody asks for them.
    let claims = if silent { users(&seen.claims_seen, attachment) } else { Vec::new() };
    loss::judge(&loss::Seen {
        attachment,
        machine: &machine(object),
        node: &node_now(ctx, object, node.as_deref()),
        silent,
        heard_now: node.is_some_and(|n| ctx.leases.expired_on_node_for(&lease, n.uid()).is_none()),
        claims: &claims,
    })
}

fn machine(attachment: &Attachment) -> Machine {
    let fixed = &attachment.spec.fixed;
    Machine {
        node_uid: fixed.node_uid.clone(),
        node_id: fixed.node_id.clone(),
        boot_id: fixed.boot_id.clone(),
    }
}

fn node_now(ctx: &Context, attachment: &Attachment, node: Option<&LeanNode>) -> NodeNow {
    let Some(node) = node else { return NodeNow::Gone };
    let fixed = &attachment.spec.fixed;
    let here = |i: &crate::api::PluginInstance| {
        i.spec.node_uid == node.uid() && plugin::counts(i, &fixed.driver_name)
    };
    // Only asked of another Node than the recorded one: whether it is another machine.
    let node_id = (node.uid() != fixed.node_uid).then(|| {
        let instances = ctx.instances.by_index(super::mapping::BY_AGENT, &attachment.spec.node_name);
        instances.iter().filter(|i| here(i)).find_map(|i| {
            let status = i.status.as_ref()?;
            (status.node && !status.node_id.is_empty()).then(|| status.node_id.clone())
        })
    });
    let node_id = node_id.flatten();
    NodeNow::There {
        uid: node.uid().to_owned(),
        out_of_service: node.is_out_of_service(),
        boot_id: node.boot_id().to_owned(),
        node_id,
    }
}

fn users(claims: &[ClaimSeen], attachment: &AttachmentSeen) -> Vec<ClaimSeen> {
    claims.iter().filter(|c| c.uses() == Some(&attachment.uid)).cloned().collect()
}

/// The same by a quorum LIST. A namespace may have very many claims, so no others are kept.
async fn live_users(api: &Api<VolumeClaim>, attachment: &AttachmentSeen) -> Result<Vec<ClaimSeen>, ApiError> {
    let mut found = BTreeMap::new();
    look_through(api, |page: Vec<VolumeClaim>| {
        for claim in page.iter().map(ClaimSeen::of) {
            // It may have been shown before, as it was then.
            found.remove(&claim.uid);
            if claim.uses() == Some(&attachment.uid) {
                found.insert(claim.uid.clone(), claim);
            }
        }
        ControlFlow::Continue(())
    })
    .await?;
    Ok(found.into_values().collect())
}

/// What live reads say of an Attachment's node.
struct Look {
    node: NodeNow,
    silent: bool,
    heard_now: bool,
}

async fn look(ctx: &Context, attachment: &AttachmentSeen, object: &Attachment) -> Result<Look, ApiError> {
    let node = get_live(&ctx.node_api(), &attachment.node).await?;
    let lease = agent_lease_name(&attachment.node);
    let silent = ctx.leases.confirm_expired(&ctx.lease_api, &lease, Some(&attachment.node_uid)).await?;
    Ok(Look {
        silent: silent.is_some(),
        heard_now: node.as_ref().is_some_and(|n| ctx.leases.expired_on_node_for(&lease, n.uid()).is_none()),
        node: node_now(ctx, object, node.as_ref()),
    })
}

/// Looks once more, after `spec.lost` was written: the node of this lost Attachment is still out of the game.
pub(crate) async fn is_still_out(
    ctx: &Context,
    attachment: &AttachmentSeen,
    object: &Attachment,
) -> Result<bool, ApiError> {
    let Look { node, silent, heard_now } = look(ctx, attachment, object).await?;
    let machine = machine(object);
    let seen = loss::Seen { attachment, machine: &machine, node: &node, silent, heard_now, claims: &[] };
    Ok(loss::is_still_out(&seen))
}

/// Looks again, live, and writes `spec.lost` if that still says so (rule R1, R4).
async fn declare(
    ctx: &Context,
    seen: &Observed,
    attachment: &AttachmentSeen,
    object: &Attachment,
    cause: Cause,
) -> Result<Did, ApiError> {
    // What the Node says needs no word of the claims, and a node that is lost may have thousands.
    let claims = match cause {
        Cause::ForceDetach => live_users(&ctx.claim_api(&attachment.namespace), attachment).await?,
        _ => Vec::new(),
    };
    // Last, because the agent may come back at any moment.
    let Look { node, silent, heard_now } = look(ctx, attachment, object).await?;
    let verdict = loss::judge(&loss::Seen {
        attachment,
        machine: &machine(object),
        node: &node,
        silent,
        heard_now,
        claims: &claims,
    });
    let Verdict::Lost(cause) = verdict else { return Ok(Did::Nothing) };
    let lost = Lost {
        node_uid: attachment.node_uid.clone(),
        reason: cause.as_str().to_owned(),
        since: Time(Timestamp::now()),
    };
    // The resourceVersion of what was judged guards it: a step of the node since then makes this a conflict.
    let fields = json!({ "spec": { "lost": lost } });
    let written = ctx.writer.patch_main(&ctx.attachment_api(), &Target::of(object), fields).await?;
    tracing::warn!(
        attachment = attachment.name,
        node = attachment.node,
        cause = cause.as_str(),
        "node is lost"
    );
    ctx.attachments.apply(written);
    let words = story::lost(cause.as_str(), &attachment.node, attachment.attach);
    for claim in seen.claims.iter().filter(|c| ClaimSeen::of(c).uses() == Some(&attachment.uid)) {
        ctx.tell(claim, Reason::NodeLost, "Detach", words.clone());
    }
    Ok(Did::Step)
}

/// What a lost Attachment needs of the leader: its living claims end, and a call that nobody can make is left out.
async fn after_loss(
    ctx: &Context,
    seen: &Observed,
    attachment: &AttachmentSeen,
    object: &Attachment,
) -> Result<Did, ApiError> {
    let Some(lost) = &object.spec.lost else { return Ok(Did::Nothing) };
    for (claim, claim_object) in seen.claims_seen.iter().zip(&seen.claims) {
        let uses = claim.uses() == Some(&attachment.uid);
        if uses && !claim.deleted && !is_final(claim.state) {
            let message = story::ended(&lost.reason, &attachment.node);
            let desired = Desired { type_: READY, status: false, reason: "NodeLost", message };
            let state = json!({ "state": ClaimState::Lost, "targetPath": null, "bootID": null });
            let silent = story::of_loss(&lost.reason, &attachment.node, attachment.attach);
            return write(ctx, claim_object, &[desired, silent], &[], state).await;
        }
    }
    abandon(ctx, seen, attachment, object).await
}

/// Writes ControllerDetached without a call where nobody could ever make it.
async fn abandon(
    ctx: &Context,
    seen: &Observed,
    attachment: &AttachmentSeen,
    object: &Attachment,
) -> Result<Did, ApiError> {
    let Some(controller) = &attachment.controller else { return Ok(Did::Nothing) };
    let dead = seen.controllers.iter().any(|c| c.name == controller.instance && c.dead);
    let places =
        seen.volume.as_ref().and_then(|v| v.status.as_ref()).map(|s| s.accessible_topology.as_slice());
    let bound = seen.plugin.as_ref().is_some_and(|p| p.spec.balancing == Balancing::PerTopology);
    let heirs = !bound
        || seen.controllers.iter().any(|c| {
            c.name != controller.instance && !c.dead && reaches(places.unwrap_or_default(), &c.topology)
        });
    let node = ctx.nodes.get("", &attachment.node);
    if !loss::is_abandoned(attachment, &node_now(ctx, object, node.as_deref()), dead, heirs) {
        return Ok(Did::Nothing);
    }
    let live = get_live(&ctx.node_api(), &attachment.node).await?;
    // Not one that has only left its node: it may come back and detach.
    let dead = ctx.is_cut_off(seen, controller).await?;
    if !loss::is_abandoned(attachment, &node_now(ctx, object, live.as_ref()), dead, heirs) {
        return Ok(Did::Nothing);
    }
    let message = story::abandoned(&controller.instance, &attachment.node);
    tracing::warn!(attachment = attachment.name, "{message}");
    let desired = Desired { type_: READY, status: false, reason: "Abandoned", message };
    let mut all = object.status.as_ref().map(|s| s.conditions.clone()).unwrap_or_default();
    conditions::set(&mut all, &desired, object.metadata.generation, Timestamp::now());
    let fields = json!({ "state": AttachmentState::ControllerDetached, "conditions": all });
    let written = ctx.writer.patch_status(&ctx.attachment_api(), &Target::of(object), fields).await?;
    ctx.attachments.apply(written);
    Ok(Did::Step)
}

/// Says on every claim whose node is not heard of what that means and which ways out there are; takes it back when the
/// node is heard again. One write per claim and change.
pub(crate) async fn tell(ctx: &Context, seen: &Observed) -> Result<(), ApiError> {
    for (claim, object) in seen.claims_seen.iter().zip(&seen.claims) {
        let held = seen.attachments_seen.iter().zip(&seen.attachments);
        let mut of_claim = held.filter(|(a, _)| claim.uses() == Some(&a.uid));
        let wanted = match of_claim.next() {
            Some((attachment, on)) => match &on.spec.lost {
                Some(lost) => Some(story::of_loss(&lost.reason, &attachment.node, attachment.attach)),
                None => silence(ctx, seen, (claim, object), (attachment, on)).await?,
            },
            None => None,
        };
        if let Some(desired) = wanted {
            write(ctx, object, &[desired], &[], json!({})).await?;
        } else if waits_for_an_end(object) && is_over(ctx, claim) {
            write(ctx, object, &[], &[story::SILENT], json!({})).await?;
        }
    }
    Ok(())
}

/// What a claim is to say of the silence of its node. It names ways out that are wrong while the node lives, and an API
/// server that is behind makes every node look silent: so what a claim does not say yet is said only after a look.
async fn silence(
    ctx: &Context,
    seen: &Observed,
    (claim, object): (&ClaimSeen, &VolumeClaim),
    (attachment, on): (&AttachmentSeen, &Attachment),
) -> Result<Option<Desired>, ApiError> {
    let by_caches = || story::of(&verdict(ctx, seen, attachment, on), claim, &attachment.node);
    let wanted = by_caches();
    let said = object
        .status
        .iter()
        .flat_map(|s| &s.conditions)
        .any(|c| c.type_ == story::SILENT && c.status == "True");
    if said || !wanted.as_ref().is_some_and(|desired| desired.status) {
        return Ok(wanted);
    }
    let lease = agent_lease_name(&attachment.node);
    ctx.leases.confirm_expired(&ctx.lease_api, &lease, Some(&attachment.node_uid)).await?;
    Ok(by_caches())
}

/// The claim says that its node is not heard of, and may be told of the end of that: it has not ended itself.
pub(crate) fn waits_for_an_end(claim: &VolumeClaim) -> bool {
    claim
        .status
        .as_ref()
        .is_some_and(|s| !is_final(s.state) && s.conditions.iter().any(|c| c.type_ == story::SILENT))
}

fn is_final(state: ClaimState) -> bool {
    matches!(state, ClaimState::NodeDetached | ClaimState::Lost)
}

/// The silence of the claim's node has ended: its agent was heard, or the claim is not bound to it any more. A leader
/// that has just started does not know, and leaves what its predecessor said.
fn is_over(ctx: &Context, claim: &ClaimSeen) -> bool {
    let Some(bound) = claim.assignment.as_ref().filter(|_| claim.uses().is_some()) else { return true };
    let lease = agent_lease_name(&bound.node_name);
    let now = ctx.nodes.get("", &bound.node_name);
    ctx.leases.is_heard(&lease, &bound.node_uid) || now.is_some_and(|n| ctx.leases.is_heard(&lease, n.uid()))
}

async fn write(
    ctx: &Context,
    claim: &VolumeClaim,
    set: &[Desired],
    remove: &[&str],
    mut fields: serde_json::Value,
) -> Result<Did, ApiError> {
    let before = claim.status.as_ref().map(|s| s.conditions.clone()).unwrap_or_default();
    let mut all = before.clone();
    all.retain(|c| !remove.contains(&c.type_.as_str()));
    for desired in set {
        conditions::set(&mut all, desired, claim.metadata.generation, Timestamp::now());
    }
    if all == before && fields.as_object().is_none_or(serde_json::Map::is_empty) {
        return Ok(Did::Nothing);
    }
    fields["conditions"] = json!(all);
    patch_status(ctx, claim, fields).await?;
    Ok(Did::Step)
}

/// How silent an agent is, in the steps at which somebody has to look.
pub(crate) fn degree(silent: Option<Duration>, longest_call: Duration) -> u8 {
    match silent {
        None => 0,
        Some(silent) if silent <= longest_call => 1,
        Some(_) => 2,
    }
}

#[cfg(test)]
#[path = "losses_tests.rs"]
mod tests;
