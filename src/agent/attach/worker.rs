//! The worker for Attachments whose controller instance is on this node: attaches and detaches.
//!
//! A pass works on one VolumeHandle, and is the only one that does: one call per handle.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::audit;
use crate::agent::caches::BY_HANDLE;
use crate::agent::calls::arguments;
use crate::agent::calls::attempt::{Counted, Due, Means, NotDone, Word};
use crate::agent::calls::failure::Failure;
use crate::agent::calls::not_found::{self, Earlier};
use crate::agent::calls::retry::Step;
use crate::agent::calls::status::went;
use crate::agent::context::Agent;
use crate::agent::queues::Parked;
use crate::api::conditions::{Desired, Reason};
use crate::api::names::{DriverOn, instance_name};
use crate::api::secrets::SecretFor;
use crate::api::{Attachment, AttachmentState, AttachmentStatus, FINALIZER, VolumeHandle};
use crate::attachment::controller_side::{self, ControllerStep, HandleRead};
use crate::attachment::{AttachmentSeen, HandleSeen, same_node_id};
use crate::csi::{Rpc, Service};
use crate::k8s::{ApiError, Next};

/// What a step came to that was not refused.
enum Outcome {
    /// Nothing to do until something changes.
    Idle,
    /// Done and written; there may be more.
    Went,
}

/// Works on the Attachments of one VolumeHandle.
pub(crate) async fn work(agent: Arc<Agent>, handle: String) -> Next {
    let next = settle(&agent, &handle).await;
    // No call of the handle is in flight, and none can be started before this returns.
    audit::second_look(&agent, &handle).await;
    next
}

async fn settle(agent: &Arc<Agent>, handle: &str) -> Next {
    let mut next: Option<Duration> = None;
    for attachment in line(agent, handle) {
        match Box::pin(step(agent, &attachment)).await {
            Ok(Outcome::Idle) => {}
            Ok(Outcome::Went) => return Next::Again,
            Err(NotDone::BackingOff(left)) => next = Some(next.map_or(left, |n| n.min(left))),
            Err(NotDone::Failed(failure)) => {
                return failure.next(handle, record_failure(agent, &attachment, &failure).await);
            }
            Err(not_done) => return not_done.next(handle),
        }
    }
    next.map_or(Next::Done, Next::After)
}

/// The handle's Attachments that this agent works on: those that leave first, then by age.
fn line(agent: &Agent, handle: &str) -> Vec<Arc<Attachment>> {
    let mut line = agent.caches.attachments.by_index(BY_HANDLE, handle);
    line.retain(|a| a.spec.controller.as_ref().is_some_and(|c| c.agent == agent.node_name));
    line.sort_by_key(|a| {
        let meta = &a.metadata;
        let leaves = meta.deletion_timestamp.is_some();
        (!leaves, meta.creation_timestamp.as_ref().map(|t| t.0), meta.name.clone())
    });
    line
}

async fn step(agent: &Agent, attachment: &Arc<Attachment>) -> Result<Outcome, NotDone> {
    let term = agent.renewal.term();
    let seen = AttachmentSeen::of(attachment);
    let instance =
        instance_name(DriverOn { driver: &attachment.spec.fixed.driver_name, node: &agent.node_name });
    if controller_side::plan(&seen, &instance, &HandleRead::Unread) == ControllerStep::Idle {
        return Ok(Outcome::Idle);
    }
    let given = attachment.spec.controller.as_ref().map(|controller| controller.tenure).unwrap_or_default();
    if agent.enter(&attachment.spec.fixed.driver_name, given).is_none() {
        // It was relieved of this, and who has it now will be named here.
        return Ok(Outcome::Idle);
    }
    // Before the read, not after it: a step that waits costs no read.
    let expected = expected(&seen);
    agent.is_due(&Step::of(&**attachment, expected))?;
    let handle = agent.get_live::<VolumeHandle>(&seen.handle_name).await?.map(|h| HandleSeen::of(&h));
    let planned = controller_side::plan(&seen, &instance, &HandleRead::Read(handle.as_ref()));
    tracing::debug!(attachment = seen.name, step = ?planned, "next step");
    let rpc = match planned {
        ControllerStep::Idle | ControllerStep::ReadHandle => return Ok(Outcome::Idle),
        ControllerStep::ReportDetached => {
            undone(agent, attachment, "no call has ever been made".into()).await?;
            return Ok(Outcome::Went);
        }
        ControllerStep::Publish => Rpc::ControllerPublishVolume,
        ControllerStep::Unpublish => Rpc::ControllerUnpublishVolume,
    };
    if rpc != expected {
        // What the VolumeHandle has shown to be due has a wait of its own.
        agent.is_due(&Step::of(&**attachment, rpc))?;
    }
    if same_node_id::matters(&seen, planned) {
        let locks = audit::live_locks(agent, &seen.handle_name).await?;
        if let Some(other) = same_node_id::in_the_way(&seen, planned, &locks) {
            return Err(Failure::same_node_id(rpc, &seen, other).into());
        }
    }
    let fixed = &attachment.spec.fixed;
    let key = Parked::Handle(fixed.handle_name.clone());
    let due = Due { agent, rpc, driver: &fixed.driver_name, key, word: Word::Term(term), given: Some(given) };
    let _flight = agent.flights.begin(&fixed.handle_name, &due.key)?;
    let _turn = due.turn().await?;
    let namespace = &attachment.spec.volume.namespace;
    let means = due.means(namespace, attachment.secret(SecretFor::ControllerPublish)).await?;
    if let Some(moved_on) = look(&due, attachment).await? {
        return Ok(moved_on);
    }
    if planned == ControllerStep::Publish {
        publish(&due, attachment, means).await?;
    } else {
        unpublish(&due, attachment, means).await?;
    }
    Ok(Outcome::Went)
}

/// The call that a read of the VolumeHandle would most likely lead to.
fn expected(seen: &AttachmentSeen) -> Rpc {
    if seen.deleted { Rpc::ControllerUnpublishVolume } else { Rpc::ControllerPublishVolume }
}

async fn publish(due: &Due<'_>, attachment: &Arc<Attachment>, means: Means) -> Result<(), NotDone> {
    let args = arguments::controller_publish(attachment, means.secrets);
    let call = means.serving.plugin.controller_publish_volume(args);
    let published =
        due.call_controller(&means.serving.plugin, call).await.map_err(|error| Failure::of_attach(&error))?;
    match attached(due.agent, attachment, &published.publish_context).await {
        Err(ApiError::Invalid { message, .. }) => Err(Failure::unstorable(due.rpc, &message).into()),
        written => Ok(written?),
    }
}

async fn unpublish(due: &Due<'_>, attachment: &Arc<Attachment>, means: Means) -> Result<(), NotDone> {
    let Means { serving, secrets, note } = means;
    let args = arguments::controller_unpublish(attachment, secrets);
    let call = serving.plugin.controller_unpublish_volume(args);
    let fixed = &attachment.spec.fixed;
    let uid = Some(fixed.plugin_uid.as_str());
    let earlier = Earlier { plugin: &fixed.plugin_name, uid, done: "attached", undone: "detached" };
    if let Err(error) = due.call_controller(&serving.plugin, call).await
        && let Err(mut failure) = not_found::is_gone(due.agent, &error, earlier).await
    {
        if let Some(note) = note {
            failure.message = format!("{} ({note})", failure.message);
        }
        return Err(failure.into());
    }
    let message = format!("detached from node {}", attachment.spec.node_name);
    match note {
        None => undone(due.agent, attachment, message).await?,
        // Where people look: the end of an Attachment says nothing.
        Some(note) => detached(due.agent, attachment, format!("{message}; {note}")).await?,
    }
    Ok(())
}

/// The last look before a call, after all that takes time (docs/adr/0012): what it comes to if the Attachment is not as it
/// was when the call was planned. The VolumeHandle alone does not say that it is still there: a watch may be behind by any
/// time, and who made the Attachment free meanwhile, by hand or because this agent was given up, has left no trace in it.
async fn look(due: &Due<'_>, attachment: &Attachment) -> Result<Option<Outcome>, NotDone> {
    let agent = due.agent;
    let (name, uid) = (attachment.metadata.name.as_deref(), attachment.metadata.uid.as_deref());
    let live = agent.get_live::<Attachment>(name.unwrap_or_default()).await?;
    let live = live.filter(|live| live.metadata.uid.as_deref() == uid);
    let Some(live) = live else {
        agent.caches.attachments.remove_confirmed(uid.unwrap_or_default());
        return Ok(Some(Outcome::Went));
    };
    let planned = AttachmentSeen::of(attachment);
    // One that is closed in this moment is attached and detached again, as if the watch had told of it a moment later: the
    // call that reverses it could not be told from one for what was never called.
    if (AttachmentSeen { deleted: planned.deleted, ..AttachmentSeen::of(&live) }) == planned {
        due.may_call()?;
        return Ok(None);
    }
    // One that is another agent's now is not for this one's cache, and what the watch brings wakes.
    let attachments = &agent.caches.attachments;
    let moved_on = if attachments.selects(&live) { Outcome::Went } else { Outcome::Idle };
    attachments.apply(live);
    Ok(Some(moved_on))
}

async fn attached(
    agent: &Agent,
    attachment: &Arc<Attachment>,
    context: &BTreeMap<String, String>,
) -> Result<(), ApiError> {
    let desired = Desired::new(Reason::Attached, format!("attached to node {}", attachment.spec.node_name));
    let closing = attachment.metadata.deletion_timestamp.is_some();
    // Closed meanwhile: that is for the next plan, which has the inverse called.
    let still = |fresh: &Attachment| fresh.metadata.deletion_timestamp.is_some() == closing;
    conclude(agent, attachment, AttachmentState::Attached, &desired, context, still).await
}

/// Ends an Attachment of which nothing is left, or writes that and why; the leader does the rest then.
async fn undone(agent: &Agent, attachment: &Arc<Attachment>, message: String) -> Result<(), ApiError> {
    let attachments = &agent.caches.attachments;
    let newest = || {
        let found = attachments.by_uid(attachment.metadata.uid.as_deref().unwrap_or_default());
        found.filter(|found| is_where_it_was(found, attachment)).unwrap_or_else(|| attachment.clone())
    };
    let closed = newest();
    let is_last = closed.metadata.finalizers.as_deref().is_some_and(|all| all == [FINALIZER]);
    if is_last && controller_side::ends_undone(&AttachmentSeen::of(&closed)) {
        match agent.writer.free(attachments, &closed, FINALIZER).await {
            Ok(_) => {
                tracing::info!(attachment = closed.metadata.name, message, "freed");
                concluded(agent, attachment);
                return Ok(());
            }
            // Whether agents may not do this, or somebody has written to it, or nobody knows what has become of it.
            Err(error) => tracing::debug!(attachment = closed.metadata.name, %error, "not freed"),
        }
    }
    detached(agent, &newest(), message).await
}

async fn detached(agent: &Agent, attachment: &Arc<Attachment>, message: String) -> Result<(), ApiError> {
    let desired = Desired::new(Reason::Detached, message);
    let context = attachment.status.as_ref().map(|s| s.publish_context.clone()).unwrap_or_default();
    conclude(agent, attachment, AttachmentState::ControllerDetached, &desired, &context, |_| true).await
}

fn state_of(attachment: &Attachment) -> AttachmentState {
    attachment.status.as_ref().map(|s| s.state).unwrap_or_default()
}

/// Whether nobody has taken the step meanwhile, or given it to another instance.
fn is_where_it_was(fresh: &Attachment, seen: &Attachment) -> bool {
    state_of(fresh) == state_of(seen) && fresh.spec.controller == seen.spec.controller
}

/// Writes what a call came to, as long as the Attachment is where it was and `still` holds.
async fn conclude(
    agent: &Agent,
    attachment: &Arc<Attachment>,
    state: AttachmentState,
    desired: &Desired,
    context: &BTreeMap<String, String>,
    still: impl Fn(&Attachment) -> bool,
) -> Result<(), ApiError> {
    let still = |fresh: &Attachment| is_where_it_was(fresh, attachment) && still(fresh);
    let change = |status: &mut AttachmentStatus, generation, now| {
        status.state = state;
        status.publish_context.clone_from(context);
        went(status, desired, generation, now);
    };
    agent.write_outcome(&agent.caches.attachments, attachment, change, still).await?;
    concluded(agent, attachment);
    Ok(())
}

fn concluded(agent: &Agent, attachment: &Attachment) {
    // A step that was done: the next one has its own count.
    agent.retries.succeeded(attachment.metadata.uid.as_deref().unwrap_or_default(), Service::Controller);
    let fixed = &attachment.spec.fixed;
    if agent.audits.differed(fixed) {
        // It may be as the driver lists it now, and somebody may wait to read that.
        agent.queues.audits.add(fixed.driver_name.clone());
    }
}

/// Counts a failure and writes it where people look.
async fn record_failure(
    agent: &Agent,
    attachment: &Arc<Attachment>,
    failure: &Failure,
) -> Result<(), ApiError> {
    let (step, driver) = (Step::of(&**attachment, failure.rpc), &attachment.spec.fixed.driver_name);
    let attempt = agent.count(&step, failure, driver, std::slice::from_ref(attachment));
    let counted = Counted { failure, attempt, node: &attachment.spec.node_name };
    agent.write_failure_on_attachment(attachment, counted).await
}
