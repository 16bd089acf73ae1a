//! The worker for Volumes' own calls: takes the turn, looks live, has the call made, and writes what it came to.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Api;

use super::answers::{Answer, call, prepare, rpc_of, says_not_made, unusable};
use crate::agent::caches::Watched as _;
use crate::agent::calls::budgets::{Budget, Direction, LATER, Service};
use crate::agent::calls::failure::{Failure, Pace};
use crate::agent::calls::retry::Step;
use crate::agent::calls::status::{failed, waits, went};
use crate::agent::context::Agent;
use crate::agent::queues::Parked;
use crate::api::conditions::{Desired, Reason};
use crate::api::names::instance_name;
use crate::api::volume::VolumeStatus;
use crate::api::{Volume, VolumeHandle, VolumeState, lock};
use crate::csi::{CallError, Meaning, Rpc};
use crate::k8s::events::EventReason;
use crate::k8s::{ApiError, Next, read};
use crate::volume::calls::{self, AgentStep, Standing, VolumeCall};

/// Pause while no call may be started.
const PAUSE: Duration = Duration::from_millis(500);

/// Works on one Volume.
pub(crate) async fn work(agent: Arc<Agent>, uid: String) -> Next {
    let Some(volume) = agent.caches.volumes.by_uid(&uid) else { return Next::Done };
    let call = match calls::plan(&volume, &agent.node_name) {
        AgentStep::Idle => return Next::Done,
        AgentStep::GiveUp(call) => return give_up(&agent, &volume, rpc_of(call)).await,
        AgentStep::Call(call) => call,
    };
    if let Some(left) = agent.retries.wait(&step(&volume, rpc_of(call))) {
        return Next::After(left);
    }
    let driver = driver(&agent, &volume);
    let direction = match call {
        VolumeCall::Create | VolumeCall::Validate => Direction::Make,
        VolumeCall::Delete | VolumeCall::DeleteRejected => Direction::Undo,
    };
    let limit = agent.controller_concurrency(&driver);
    let budget = Budget { driver: driver.clone(), service: Service::Volume, direction };
    let turn = agent.budgets.turn(&budget, limit, Parked::Volume(uid)).await;
    let Ok(_turn) = turn else { return Next::After(LATER) };
    if !agent.may_call_controller(&driver) {
        return Next::After(PAUSE);
    }
    let pass = Pass { agent: &agent, call, driver: &driver };
    match pass.attempt(&volume).await {
        Ok(next) => next,
        Err(error) => again(&volume, &error),
    }
}

fn step(volume: &Volume, rpc: Rpc) -> Step<'_> {
    let meta = &volume.metadata;
    Step { uid: meta.uid.as_deref().unwrap_or_default(), rpc, generation: meta.generation.unwrap_or(0) }
}

/// One call of one Volume.
struct Pass<'a> {
    agent: &'a Agent,
    call: VolumeCall,
    driver: &'a str,
}

impl Pass<'_> {
    /// Everything that takes its time comes before the live reads, and the call right after them.
    async fn attempt(&self, volume: &Arc<Volume>) -> Result<Next, ApiError> {
        let prepared = match prepare(self.agent, volume, self.call, self.driver).await {
            Ok(prepared) => prepared,
            Err(failure) => return self.failed(volume, &failure, |_| {}).await,
        };
        let volume = match self.look(volume).await? {
            (Standing::Valid, Some(live)) => live,
            (Standing::Valid | Standing::Gone, _) => return Ok(Next::Done),
            // One that is another agent's now is not for this one's cache, and what the watch brings wakes.
            (Standing::Changed, live) => {
                let ours = live.is_some_and(|live| live.is_watched_by(&self.agent.node_name));
                return Ok(if ours { Next::Again } else { Next::Done });
            }
            (Standing::NotClosed, _) => {
                let what = "the Volume does not hold its VolumeHandle closed, so the storage may be somebody's; \
                            spec.deletionPolicy Retain gives it up";
                let failure = Failure::local(Reason::HandleNotClosed, Rpc::DeleteVolume, what.into());
                return self.failed(volume, &failure, |_| {}).await;
            }
            (Standing::Own, live) => {
                let rejected =
                    live.as_ref().and_then(|v| v.status.as_ref()).and_then(|s| s.rejected.as_ref());
                let reason = rejected.map(|r| r.reason.as_str()).unwrap_or_default();
                let what = format!(
                    "{reason}; it is what this Volume has its VolumeHandle for, so it is not deleted, and CreateVolume is \
                     called again for what the status said before it was lost"
                );
                let failure = Failure::local(Reason::Unusable, Rpc::CreateVolume, what);
                return self.failed(live.as_ref().unwrap_or(volume), &failure, |s| s.rejected = None).await;
            }
            (Standing::Locked, _) => {
                let what = "CreateVolume answered with a volume that has a VolumeHandle, so it is somebody's and is \
                            not deleted; delete this Volume with spec.deletionPolicy Retain";
                let failure = Failure::local(Reason::HandleInUse, Rpc::DeleteVolume, what.into());
                return self.failed(volume, &failure, |_| {}).await;
            }
        };
        let known = volume.status.as_ref().is_some_and(|s| s.may_exist);
        let Some(volume) = self.begin(volume).await? else { return Ok(Next::Again) };
        if !self.agent.may_call_controller(self.driver) {
            return Ok(Next::After(PAUSE));
        }
        match call(self.agent, &volume, self.call, self.driver, prepared).await {
            Ok(answer) => self.done(&volume, answer).await,
            Err((failure, error)) => self.not_done(&volume, &failure, error.as_ref(), known).await,
        }
    }

    /// The live reads of [`calls::standing`].
    async fn look(&self, volume: &Volume) -> Result<(Standing, Option<Arc<Volume>>), ApiError> {
        let id = calls::id_to_delete(self.call, volume);
        let computed = id.map(|id| lock::handle_name(self.driver, id));
        let name = match self.call {
            VolumeCall::Create | VolumeCall::Validate => None,
            // The name of the driver may be another one since.
            VolumeCall::Delete => volume.status.as_ref().and_then(|s| s.handle_name.clone()).or(computed),
            VolumeCall::DeleteRejected => computed,
        };
        let lock = match name {
            Some(name) => self.agent.get_live::<VolumeHandle>(&name).await?,
            None => None,
        };
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        let live = read::get_live(&api(self.agent, volume), name).await?;
        let standing = calls::standing(self.call, volume, live.as_ref(), lock.as_ref());
        match &live {
            Some(live) if standing != Standing::Gone => {
                self.agent.take_in(&self.agent.caches.volumes, live.clone());
            }
            _ => {
                let uid = volume.metadata.uid.as_deref().unwrap_or_default();
                self.agent.caches.volumes.remove_confirmed(uid);
            }
        }
        Ok((standing, live.map(Arc::new)))
    }

    /// Writes that there may be a volume from now on: a crash must not hide that. Nothing if the Volume has changed.
    async fn begin(&self, volume: Arc<Volume>) -> Result<Option<Arc<Volume>>, ApiError> {
        let before = volume.status.clone().unwrap_or_default();
        if self.call != VolumeCall::Create || before.may_exist {
            return Ok(Some(volume));
        }
        let mut after = VolumeStatus { may_exist: true, ..before.clone() };
        if before.last_error.is_none() {
            let message = format!("CreateVolume is called on node {}", self.agent.node_name);
            let desired = Desired::new(Reason::Creating, message);
            waits(&mut after, &desired, volume.metadata.generation, Timestamp::now());
        }
        write(self.agent, &volume, &before, &after).await?;
        let written = self.agent.caches.volumes.by_uid(volume.metadata.uid.as_deref().unwrap_or_default());
        let standing = calls::standing(self.call, &volume, written.as_deref(), None);
        Ok(written.filter(|_| standing == Standing::Valid))
    }

    /// Writes what a call that succeeded has come to.
    async fn done(&self, volume: &Arc<Volume>, answer: Answer) -> Result<Next, ApiError> {
        let deleted = volume.metadata.deletion_timestamp.is_some();
        let id = answer.id().map(str::to_owned);
        if let (Answer::DeletedAgain, false) = (&answer, deleted) {
            let reason = volume.status.as_ref().and_then(|s| s.rejected.as_ref()).map(|r| r.reason.as_str());
            let failure = Failure::of_call(&unusable(reason.unwrap_or_default()));
            return self.failed(volume, &failure, |status| status.rejected = None).await;
        }
        let before = volume.status.clone().unwrap_or_default();
        let mut after = before.clone();
        let rejects = matches!(answer, Answer::Unusable(..));
        let desired = answer.take_in(volume, &mut after);
        went(&mut after, &desired, volume.metadata.generation, Timestamp::now());
        match (write(self.agent, volume, &before, &after).await, id) {
            (Ok(()), _) if rejects => Ok(Next::Again),
            (Ok(()), _) => {
                self.agent.retries.clear(volume.metadata.uid.as_deref().unwrap_or_default());
                Ok(Next::Done)
            }
            // What no object can hold nobody can use.
            (Err(ApiError::Invalid { message, .. }), Some(id)) if !rejects => {
                Box::pin(self.done(volume, Answer::unstorable(id, after.plugin_uid, &message))).await
            }
            (Err(ApiError::Invalid { message, .. }), _) => {
                self.failed(volume, &Failure::unstorable(rpc_of(self.call), &message), |_| {}).await
            }
            (Err(error), _) => Err(error),
        }
    }

    /// Writes that a call has failed, at the driver or before it. `known` is whether a call had been made before this
    /// one.
    async fn not_done(
        &self,
        volume: &Arc<Volume>,
        failure: &Failure,
        error: Option<&CallError>,
        known: bool,
    ) -> Result<Next, ApiError> {
        let creates = self.call == VolumeCall::Create;
        let not_made = creates && error.is_some_and(|error| says_not_made(error, known));
        let may_exist = match error.map(CallError::meaning) {
            _ if not_made => false,
            None | Some(Meaning::NeverSent) => known,
            Some(_) => creates || known,
        };
        if not_made && volume.metadata.deletion_timestamp.is_some() {
            return self.done(volume, Answer::NotMade).await;
        }
        self.failed(volume, failure, |status| status.may_exist = may_exist).await
    }

    /// Counts a failure and writes it where people look, with what else it changes.
    async fn failed(
        &self,
        volume: &Arc<Volume>,
        failure: &Failure,
        also: impl Fn(&mut VolumeStatus),
    ) -> Result<Next, ApiError> {
        let agent = self.agent;
        let earlier = volume.status.as_ref().and_then(|s| s.attempts);
        let mut failure = failure.clone();
        if volume.metadata.deletion_timestamp.is_some() && failure.rpc == Rpc::CreateVolume {
            // Who waits for this call wants its outcome, and can change nothing that would make it a better one.
            failure.pace = Pace::Usual;
            failure.message.push_str(
                "; it is repeated to find out whether there is a volume to delete: spec.deletionPolicy Retain gives it up",
            );
        }
        let failure = &failure;
        let attempt = agent.retries.failed(&step(volume, failure.rpc), failure, earlier, self.driver);
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        tracing::warn!(volume = name, attempt = attempt.number, next = ?attempt.next, "{failure}");
        let place = format!("on node {}", agent.node_name);
        let change = |status: &mut VolumeStatus, generation, now| {
            failed(status, failure, attempt, &place, generation, now);
            also(status);
        };
        // Also onto a Volume that was deleted meanwhile: whether there may be a volume is what the call has shown, and
        // nothing will show it again once a later call may have been one that repeats it.
        let still = |fresh: &Volume| {
            fresh.spec.assignment == volume.spec.assignment && state_of(fresh) == state_of(volume)
        };
        match agent.write_outcome(&api(agent, volume), &agent.caches.volumes, volume, change, still).await {
            Ok(()) => {}
            Err(ApiError::Conflict(_)) => return Ok(Next::Again),
            Err(error) => {
                tracing::warn!(volume = name, %failure, "the failure cannot be written: {error}");
                return Ok(Next::Retry);
            }
        }
        if attempt.number == 1 {
            agent.tell(volume, EventReason::CallFailed, failure.rpc.name(), failure.to_string());
        }
        Ok(Next::After(attempt.next))
    }
}

/// No call of it is running: this worker is the only one that makes them. The write is guarded by the version that was
/// planned on, so a Volume that is another agent's by now is not given up here.
async fn give_up(agent: &Agent, volume: &Arc<Volume>, rpc: Rpc) -> Next {
    let before = volume.status.clone().unwrap_or_default();
    let mut after = before.clone();
    after.state = VolumeState::Deleted;
    let left = before.rejected.as_ref().map(|r| r.volume_handle.as_str());
    tracing::info!(volume = volume.metadata.name, left, "given up: the storage stays");
    let message = format!(
        "spec.deletionPolicy is Retain: {rpc} is not called any more. What was called before may have its effect yet"
    );
    let desired = Desired::new(Reason::Retained, message);
    went(&mut after, &desired, volume.metadata.generation, Timestamp::now());
    match write(agent, volume, &before, &after).await {
        Ok(()) => {
            agent.retries.clear(volume.metadata.uid.as_deref().unwrap_or_default());
            Next::Done
        }
        Err(error) => again(volume, &error),
    }
}

async fn write(
    agent: &Agent,
    volume: &Volume,
    before: &VolumeStatus,
    after: &VolumeStatus,
) -> Result<(), ApiError> {
    agent.write_status(&api(agent, volume), &agent.caches.volumes, volume, before, after).await
}

fn again(volume: &Volume, error: &ApiError) -> Next {
    // A call that succeeded is repeated, with the same arguments and so the same result.
    if matches!(error, ApiError::Conflict(_)) {
        return Next::Again;
    }
    tracing::warn!(volume = volume.metadata.name, "{error}");
    Next::Retry
}

fn api(agent: &Agent, volume: &Volume) -> Api<Volume> {
    agent.api_in(volume.metadata.namespace.as_deref().unwrap_or_default())
}

fn state_of(volume: &Volume) -> VolumeState {
    volume.status.as_ref().map(|s| s.state).unwrap_or_default()
}

/// The driver behind the assigned instance. Its name is a hash of the driver's, so this also works when the Plugin is
/// gone (rule R9).
fn driver(agent: &Agent, volume: &Volume) -> String {
    let assigned = volume.spec.assignment.as_ref().and_then(|a| a.controller.as_ref());
    let instance = assigned.map(|c| c.instance.as_str()).unwrap_or_default();
    let plugin = agent.caches.plugins.get("", &volume.spec.plugin_name).map(|p| p.driver_name().to_owned());
    driver_of(instance, &agent.node_name, agent.registry.drivers().into_iter().chain(plugin))
}

/// The one of the known drivers that the assigned instance is of. If it is none of them, its Plugin was made anew for
/// another driver, and that one is asked for nothing: no driver has the name of an instance, so the call fails and
/// says so.
fn driver_of(instance: &str, node: &str, known: impl Iterator<Item = String>) -> String {
    let mut known = known.filter(|driver| instance_name(node, driver) == instance);
    known.next().unwrap_or_else(|| instance.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It would delete what has the same id there, and is somebody else's.
    #[test]
    fn another_driver_than_the_assigned_instance_has_is_not_asked() {
        let known = || ["d1", "d2"].map(str::to_owned).into_iter();
        let assigned = instance_name("node-1", "d1");
        assert_eq!(driver_of(&assigned, "node-1", known()), "d1");
        assert_eq!(driver_of(&assigned, "node-1", known().skip(1)), assigned);
    }
}
