//! The worker for Attachments whose controller instance is on this node: attaches and detaches.
//!
//! A pass works on one VolumeHandle, and is the only one that does: one call per handle.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::audit;
use crate::agent::caches::{BY_HANDLE, Watched as _};
use crate::agent::calls::arguments;
use crate::agent::calls::budgets::{Budget, Busy, Direction, LATER, Service, Turn};
use crate::agent::calls::failure::Failure;
use crate::agent::calls::not_found::{self, Earlier};
use crate::agent::calls::retry::Step;
use crate::agent::calls::status::{failed, went};
use crate::agent::context::Agent;
use crate::agent::queues::Parked;
use crate::api::attachment::Fixed;
use crate::api::conditions::{Desired, Reason};
use crate::api::names::instance_name;
use crate::api::{Attachment, AttachmentState, AttachmentStatus, VolumeHandle};
use crate::attachment::controller_side::{self, ControllerStep, HandleRead};
use crate::attachment::{AttachmentSeen, HandleSeen, same_node_id};
use crate::csi::{CallError, Context, Rpc};
use crate::k8s::events::EventReason;
use crate::k8s::{ApiError, Next};

/// Pause while no call may be started.
const PAUSE: Duration = Duration::from_millis(500);

/// The outcome of a step.
enum Outcome {
    /// Nothing to do until something changes.
    Idle,
    /// Nothing to do for this long.
    Waits(Duration),
    /// Done and written; there may be more.
    Went,
}

/// Why a step was not done.
enum Trouble {
    Failed(Rpc, Box<Failure>),
    NotNow,
    Busy,
    Api(ApiError),
}

impl From<ApiError> for Trouble {
    fn from(error: ApiError) -> Self {
        Self::Api(error)
    }
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
            Ok(Outcome::Waits(left)) => next = Some(next.map_or(left, |n| n.min(left))),
            Err(Trouble::NotNow) => return Next::After(PAUSE),
            Err(Trouble::Busy) => return Next::After(LATER),
            Ok(Outcome::Went) | Err(Trouble::Api(ApiError::Conflict(_))) => return Next::Again,
            Err(Trouble::Api(error)) => {
                tracing::warn!(handle, "{error}");
                return Next::Retry;
            }
            Err(Trouble::Failed(rpc, failure)) => {
                return match record_failure(agent, &attachment, rpc, &failure).await {
                    Ok(()) | Err(ApiError::Conflict(_)) => Next::Again,
                    Err(error) => {
                        tracing::warn!(handle, %failure, "the failure cannot be written: {error}");
                        Next::Retry
                    }
                };
            }
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

async fn step(agent: &Agent, attachment: &Arc<Attachment>) -> Result<Outcome, Trouble> {
    let seen = AttachmentSeen::of(attachment);
    let instance = instance_name(&agent.node_name, &attachment.spec.fixed.driver_name);
    let mut planned = controller_side::plan(&seen, &instance, &HandleRead::Unread);
    if planned == ControllerStep::ReadHandle {
        // Before the read, not after it: a step that waits costs no read.
        if let Some(left) = waits(agent, attachment, expected(&seen)) {
            return Ok(Outcome::Waits(left));
        }
        let found = agent.get_live::<VolumeHandle>(&seen.handle_name).await?.map(|h| HandleSeen::of(&h));
        planned = controller_side::plan(&seen, &instance, &HandleRead::Read(found.as_ref()));
    }
    if same_node_id::matters(&seen, planned) {
        let rpc = match planned {
            ControllerStep::Publish => Rpc::ControllerPublishVolume,
            _ => Rpc::ControllerUnpublishVolume,
        };
        if let Some(left) = waits(agent, attachment, rpc) {
            return Ok(Outcome::Waits(left));
        }
        let locks = audit::live_locks(agent, &seen.handle_name).await?;
        if let Some(other) = same_node_id::in_the_way(&seen, planned, &locks) {
            return Err(Trouble::Failed(rpc, Box::new(Failure::same_node_id(rpc, &seen, other))));
        }
    }
    tracing::debug!(attachment = seen.name, step = ?planned, "next step");
    match planned {
        ControllerStep::Idle | ControllerStep::ReadHandle => Ok(Outcome::Idle),
        ControllerStep::Publish => publish(agent, attachment).await,
        ControllerStep::Unpublish => unpublish(agent, attachment).await,
        ControllerStep::ReportDetached => {
            detached(agent, attachment, "no call has ever been made".into()).await?;
            Ok(Outcome::Went)
        }
    }
}

/// The call that a read of the VolumeHandle would most likely lead to.
fn expected(seen: &AttachmentSeen) -> Rpc {
    if seen.deleted { Rpc::ControllerUnpublishVolume } else { Rpc::ControllerPublishVolume }
}

fn waits(agent: &Agent, attachment: &Attachment, rpc: Rpc) -> Option<Duration> {
    agent.retries.wait(&retry_step(attachment, rpc))
}

fn retry_step(attachment: &Attachment, rpc: Rpc) -> Step<'_> {
    let meta = &attachment.metadata;
    Step { uid: meta.uid.as_deref().unwrap_or_default(), rpc, generation: meta.generation.unwrap_or(0) }
}

async fn publish(agent: &Agent, attachment: &Arc<Attachment>) -> Result<Outcome, Trouble> {
    const RPC: Rpc = Rpc::ControllerPublishVolume;
    if let Some(left) = waits(agent, attachment, RPC) {
        return Ok(Outcome::Waits(left));
    }
    let fixed = &attachment.spec.fixed;
    let _turn = turn(agent, attachment, Direction::Make).await?;
    let fail = |failure| Trouble::Failed(RPC, Box::new(failure));
    let serving = agent.serving(RPC, &fixed.driver_name).map_err(fail)?;
    let namespace = &attachment.spec.volume.namespace;
    let secret = fixed.secrets.controller_publish.as_deref();
    let secrets = agent.secrets(RPC, namespace, secret).await.map_err(fail)?;
    if let Some(moved_on) = look(agent, attachment).await? {
        return Ok(moved_on);
    }
    let args = arguments::controller_publish(attachment, secrets);
    let call = serving.plugin.controller_publish_volume(args);
    let called = agent.call(&fixed.driver_name, RPC, call).await;
    let context = called.map_err(|error| fail(Failure::of_attach(&error)))?;
    match attached(agent, attachment, context).await {
        Ok(()) => Ok(Outcome::Went),
        Err(ApiError::Invalid { message, .. }) => Err(fail(Failure::unstorable(RPC, &message))),
        Err(error) => Err(error.into()),
    }
}

async fn unpublish(agent: &Agent, attachment: &Arc<Attachment>) -> Result<Outcome, Trouble> {
    const RPC: Rpc = Rpc::ControllerUnpublishVolume;
    if let Some(left) = waits(agent, attachment, RPC) {
        return Ok(Outcome::Waits(left));
    }
    let fixed = &attachment.spec.fixed;
    let _turn = turn(agent, attachment, Direction::Undo).await?;
    let fail = |failure| Trouble::Failed(RPC, Box::new(failure));
    let serving = agent.serving(RPC, &fixed.driver_name).map_err(fail)?;
    let namespace = &attachment.spec.volume.namespace;
    let secret = fixed.secrets.controller_publish.as_deref();
    let (secrets, note) = agent.secrets_for_undo(RPC, namespace, secret).await.map_err(fail)?;
    if let Some(moved_on) = look(agent, attachment).await? {
        return Ok(moved_on);
    }
    let args = arguments::controller_unpublish(attachment, secrets);
    let call = serving.plugin.controller_unpublish_volume(args);
    let called = agent.call(&fixed.driver_name, RPC, call).await;
    if let Err(error) = called {
        let mut failure = already_gone(agent, attachment, &error).await.err();
        if let (Some(failure), Some(note)) = (&mut failure, &note) {
            failure.message = format!("{} ({note})", failure.message);
        }
        if let Some(failure) = failure {
            return Err(fail(failure));
        }
    }
    let message = format!("detached from node {}", attachment.spec.node_name);
    detached(agent, attachment, note.map_or(message.clone(), |note| format!("{message}; {note}"))).await?;
    Ok(Outcome::Went)
}

/// The last look before a call, after all that takes time (docs/adr/0012): what it comes to if the Attachment is not as it
/// was when the call was planned. The VolumeHandle alone does not say that it is still there: a watch may be behind by any
/// time, and who made the Attachment free meanwhile, by hand or because this agent was given up, has left no trace in it.
async fn look(agent: &Agent, attachment: &Attachment) -> Result<Option<Outcome>, Trouble> {
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
        let may_call = agent.may_call_controller(&attachment.spec.fixed.driver_name);
        return if may_call { Ok(None) } else { Err(Trouble::NotNow) };
    }
    // One that is another agent's now is not for this one's cache, and what the watch brings wakes.
    let moved_on = if live.is_watched_by(&agent.node_name) { Outcome::Went } else { Outcome::Idle };
    agent.take_in(&agent.caches.attachments, live);
    Ok(Some(moved_on))
}

async fn already_gone(agent: &Agent, attachment: &Attachment, error: &CallError) -> Result<(), Failure> {
    let fixed = &attachment.spec.fixed;
    let uid = Some(fixed.plugin_uid.as_str());
    let earlier = Earlier { plugin: &fixed.plugin_name, uid, done: "attached", undone: "detached" };
    not_found::is_gone(agent, error, earlier).await
}

async fn turn<'a>(
    agent: &'a Agent,
    attachment: &Attachment,
    direction: Direction,
) -> Result<Turn<'a>, Trouble> {
    let fixed = &attachment.spec.fixed;
    let budget = Budget { driver: fixed.driver_name.clone(), service: Service::Attach, direction };
    let limit = agent.controller_concurrency(&fixed.driver_name);
    let turn = agent.budgets.turn(&budget, limit, Parked::Handle(fixed.handle_name.clone())).await;
    let turn = turn.map_err(|Busy| Trouble::Busy)?;
    if agent.may_call_controller(&fixed.driver_name) { Ok(turn) } else { Err(Trouble::NotNow) }
}

async fn attached(agent: &Agent, attachment: &Arc<Attachment>, context: Context) -> Result<(), ApiError> {
    let context = context.into_map();
    let desired = Desired::new(Reason::Attached, format!("attached to node {}", attachment.spec.node_name));
    let closing = attachment.metadata.deletion_timestamp.is_some();
    // Closed meanwhile: that is for the next plan, which has the inverse called.
    let still = |fresh: &Attachment| fresh.metadata.deletion_timestamp.is_some() == closing;
    conclude(agent, attachment, AttachmentState::Attached, &desired, &context, still).await
}

async fn detached(agent: &Agent, attachment: &Arc<Attachment>, message: String) -> Result<(), ApiError> {
    let desired = Desired::new(Reason::Detached, message);
    let context = attachment.status.as_ref().map(|s| s.publish_context.clone()).unwrap_or_default();
    conclude(agent, attachment, AttachmentState::ControllerDetached, &desired, &context, |_| true).await
}

fn state_of(attachment: &Attachment) -> AttachmentState {
    attachment.status.as_ref().map(|s| s.state).unwrap_or_default()
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
    let (from, by) = (state_of(attachment), attachment.spec.controller.clone());
    let still = |fresh: &Attachment| state_of(fresh) == from && fresh.spec.controller == by && still(fresh);
    let change = |status: &mut AttachmentStatus, generation, now| {
        status.state = state;
        status.publish_context.clone_from(context);
        went(status, desired, generation, now);
    };
    agent.write_outcome(&agent.api(), &agent.caches.attachments, attachment, change, still).await?;
    // A step that was done: the next one has its own count.
    agent.retries.clear(attachment.metadata.uid.as_deref().unwrap_or_default());
    let Fixed { driver_name, handle_name, .. } = &attachment.spec.fixed;
    if agent.audits.differed(driver_name, handle_name) {
        // It may be as the driver lists it now, and somebody may wait to read that.
        agent.queues.audits.add(driver_name.clone());
    }
    Ok(())
}

/// Counts a failure and writes it where people look.
async fn record_failure(
    agent: &Agent,
    attachment: &Arc<Attachment>,
    rpc: Rpc,
    failure: &Failure,
) -> Result<(), ApiError> {
    let before = attachment.status.as_ref();
    let driver = &attachment.spec.fixed.driver_name;
    let same = |s: &&AttachmentStatus| s.last_error.as_ref().is_some_and(|e| e.rpc == rpc.name());
    let earlier = before.filter(same).and_then(|s| s.attempts);
    let attempt = agent.retries.failed(&retry_step(attachment, rpc), failure, earlier, driver);
    let name = attachment.metadata.name.as_deref().unwrap_or_default();
    tracing::warn!(attachment = name, attempt = attempt.number, next = ?attempt.next, "{failure}");
    let place = format!("on node {}", attachment.spec.node_name);
    let change = |status: &mut AttachmentStatus, generation, now| {
        failed(status, failure, attempt, &place, generation, now);
    };
    let still = |fresh: &Attachment| {
        fresh.metadata.generation == attachment.metadata.generation && state_of(fresh) == state_of(attachment)
    };
    agent.write_outcome(&agent.api(), &agent.caches.attachments, attachment, change, still).await?;
    if attempt.number == 1 {
        agent.tell(attachment, EventReason::CallFailed, rpc.name(), failure.to_string());
    }
    Ok(())
}
