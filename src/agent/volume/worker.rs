//! The worker for Volumes' own calls: takes the turn, looks live, has the call made, and writes what it came to.

use std::sync::Arc;

use jiff::Timestamp;

use super::answers::{Answer, call, prepare, rpc_of, unusable};
use super::given_up::{UNLOCKED, give_up, handle_name, never_begun, write};
use super::{caller, modify};
use crate::agent::calls::attempt::{Counted, Due, NotDone, Word};
use crate::agent::calls::budgets::LATER;
use crate::agent::calls::failure::{Failure, Pace};
use crate::agent::calls::not_made::says_not_made;
use crate::agent::calls::retry::Step;
use crate::agent::calls::status::{waits, went};
use crate::agent::context::Agent;
use crate::agent::queues::Parked;
use crate::api::conditions::{self, Desired, Reason};
use crate::api::volume::{EditAnswer, VolumeStatus};
use crate::api::{Snapshot, Volume, VolumeHandle, lock};
use crate::csi::{CallError, Meaning, Rpc};
use crate::k8s::{ApiError, Next, read};
use crate::volume::calls::{self, AgentStep, Standing, VolumeCall};
use crate::volume::{SourceLack, growth};

/// Works on one Volume.
pub(crate) async fn work(agent: Arc<Agent>, uid: String) -> Next {
    let Some(volume) = agent.caches.volumes.by_uid(&uid) else { return Next::Done };
    let call = match calls::plan(&volume, &agent.node_name) {
        AgentStep::Idle => return Next::Done,
        AgentStep::GiveUp(call) => {
            return give_up(&agent, &volume, call).await.unwrap_or_else(|error| {
                NotDone::Api(error).next(volume.metadata.name.as_deref().unwrap_or_default())
            });
        }
        AgentStep::NeverBegun => {
            return never_begun(&agent, &volume).await.unwrap_or_else(|error| {
                NotDone::Api(error).next(volume.metadata.name.as_deref().unwrap_or_default())
            });
        }
        AgentStep::Call(call) => call,
    };
    let driver = caller::driver(&agent, &volume);
    let given = volume.caller().map(|caller| caller.tenure).unwrap_or_default();
    if agent.enter(&driver, given).is_none() {
        // It was relieved of this, and who has it now will be named in the order.
        return Next::Done;
    }
    let due = Due {
        agent: &agent,
        rpc: rpc_of(call),
        driver: &driver,
        key: Parked::Volume(uid),
        word: Word::Term(agent.renewal.term()),
        given: Some(given),
    };
    let pass = Pass { call, due };
    match pass.attempt(&volume).await {
        Ok(next) => next,
        Err(not_done) => not_done.next(volume.metadata.name.as_deref().unwrap_or_default()),
    }
}

/// One call of one Volume.
pub(super) struct Pass<'a> {
    pub(super) call: VolumeCall,
    pub(super) due: Due<'a>,
}

impl Pass<'_> {
    /// Everything that takes its time comes before the live reads, and the call right after them.
    async fn attempt(&self, volume: &Arc<Volume>) -> Result<Next, NotDone> {
        self.due.agent.is_due(&step(volume, self.due.rpc))?;
        let beside_others = calls::is_about_one_in_use(self.call);
        let _flight = match handle_name(volume, self.due.driver).filter(|_| beside_others) {
            Some(handle) if self.due.agent.unended.is_running(&Parked::Handle(handle.clone())) => {
                return Err(NotDone::Unended);
            }
            Some(handle) => Some(self.due.agent.flights.begin(&handle, &self.due.key)?),
            None => None,
        };
        let _turn = self.due.turn().await?;
        let prepared = match prepare(&self.due, volume).await {
            Ok(prepared) => prepared,
            Err(failure) => {
                return self
                    .failed(volume, &failure, |status| self.kept_back(status, volume, &failure))
                    .await;
            }
        };
        let volume = match self.look(volume).await? {
            (Standing::Valid, Some(live)) => live,
            (Standing::Valid | Standing::Gone, _) => return Ok(Next::Done),
            // One that is another agent's now is not for this one's cache, and what the watch brings wakes.
            (Standing::Changed, live) => {
                let ours = live.is_some_and(|live| self.due.agent.caches.volumes.selects(&live));
                return Ok(if ours { Next::Again } else { Next::Done });
            }
            // Whoever it is will be named in the order, which the watch brings.
            (Standing::NotHolder, _) => return Ok(Next::After(LATER)),
            // No watch tells of the lock.
            (Standing::NotClosedForIt, _) => return Ok(Next::After(UNLOCKED)),
            (Standing::NotClosed, _) => {
                let what = "the Volume does not hold its VolumeHandle closed, so the storage may be somebody's; \
                            spec.deletionPolicy Retain gives it up";
                let failure = Failure::local(Reason::HandleNotClosed, Rpc::DeleteVolume, what.into());
                return self.failed(volume, &failure, |_| {}).await;
            }
            // For good, so that whoever deletes the source does not wait.
            (Standing::SourceEnds, live) => {
                let live = live.as_ref().unwrap_or(volume);
                let mut after = live.status.clone().unwrap_or_default();
                after.source_gone = true;
                let desired = Desired::new(Reason::SourceNotUsable, SourceLack::Gone.to_string());
                waits(&mut after, &desired, live.metadata.generation, Timestamp::now());
                write(self.due.agent, live, &after).await?;
                return Ok(Next::Again);
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
        let known = self.may_have_been_called(&volume);
        let Some(volume) = self.begin(volume).await? else { return Ok(Next::Again) };
        self.due.may_call()?;
        match self.begun(&volume, Box::pin(call(&self.due, &volume, self.call, prepared))).await {
            Ok(answer) => self.done(&volume, answer).await,
            Err((failure, error)) => self.not_done(&volume, &failure, error.as_ref(), known).await,
        }
    }

    /// The live reads of [`calls::standing`].
    async fn look(&self, volume: &Volume) -> Result<(Standing, Option<Arc<Volume>>), ApiError> {
        let id = calls::id_to_delete(self.call, volume);
        let computed =
            id.map(|id| lock::handle_name(lock::DriverVolume { driver: self.due.driver, handle: id }));
        let name = match self.call {
            VolumeCall::Create | VolumeCall::Validate => None,
            VolumeCall::Expand | VolumeCall::Modify | VolumeCall::Revalidate => {
                handle_name(volume, self.due.driver)
            }
            // The name of the driver may be another one since.
            VolumeCall::Delete => volume.status.as_ref().and_then(|s| s.handle_name.clone()).or(computed),
            VolumeCall::DeleteRejected => computed,
        };
        let lock = match name {
            Some(name) => self.due.agent.get_live::<VolumeHandle>(&name).await?,
            None => None,
        };
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        let namespace = volume.metadata.namespace.as_deref().unwrap_or_default();
        let live = read::get_live(&self.due.agent.writer.api(namespace), name).await?;
        let mut standing = calls::standing(self.call, volume, live.as_ref(), lock.as_ref());
        if standing == Standing::Valid && self.source_ends(live.as_ref().unwrap_or(volume)).await? {
            standing = Standing::SourceEnds;
        }
        match &live {
            Some(live) if standing != Standing::Gone => {
                self.due.agent.caches.volumes.apply(live.clone());
            }
            _ => {
                let uid = volume.metadata.uid.as_deref().unwrap_or_default();
                self.due.agent.caches.volumes.remove_confirmed(uid);
            }
        }
        Ok((standing, live.map(Arc::new)))
    }

    /// Whether what the volume is to be made from is at its end, by a live read.
    async fn source_ends(&self, volume: &Volume) -> Result<bool, ApiError> {
        let (Some(source), Some(named)) =
            (calls::source_to_look_at(self.call, volume), volume.spec.source.as_ref())
        else {
            return Ok(false);
        };
        let namespace = volume.metadata.namespace.as_deref().unwrap_or_default();
        let writer = &self.due.agent.writer;
        let live = match (&named.snapshot_name, &named.volume_name) {
            (Some(name), _) => {
                read::get_live::<Snapshot>(&writer.api(namespace), name).await?.map(|s| s.metadata)
            }
            (None, Some(name)) => {
                read::get_live::<Volume>(&writer.api(namespace), name).await?.map(|v| v.metadata)
            }
            (None, None) => None,
        };
        Ok(calls::is_at_its_end(source, live.as_ref()))
    }

    /// Writes into the status of what a call would have made, or changed, that it is kept back. What the cache says of an earlier
    /// call may be old, so the status decides onto which this is written.
    fn kept_back(&self, status: &mut VolumeStatus, volume: &Volume, failure: &Failure) {
        match self.call {
            VolumeCall::Modify => modify::kept_back(status, volume, failure),
            VolumeCall::Create => {
                status.may_exist.get_or_insert(self.may_have_been_called(volume));
            }
            VolumeCall::Validate
            | VolumeCall::Revalidate
            | VolumeCall::Delete
            | VolumeCall::DeleteRejected
            | VolumeCall::Expand => {}
        }
    }

    /// Writes what a call that succeeded has come to.
    async fn done(&self, volume: &Arc<Volume>, answer: Answer) -> Result<Next, NotDone> {
        let deleted = volume.metadata.deletion_timestamp.is_some();
        if let (Answer::DeletedAgain, false) = (&answer, deleted) {
            let reason = volume.status.as_ref().and_then(|s| s.rejected.as_ref()).map(|r| r.reason.as_str());
            let failure = Failure::of_call(&unusable(reason.unwrap_or_default()));
            let nothing_left = |status: &mut VolumeStatus| {
                (status.rejected, status.may_exist) = (None, Some(false));
            };
            return self.failed(volume, &failure, nothing_left).await;
        }
        let agent = self.due.agent;
        let change = |status: &mut VolumeStatus, generation, now| {
            if let Some(aside) = answer.aside() {
                conditions::set(&mut status.conditions, aside, generation, now);
            }
            let desired = answer.clone().take_in(volume, status);
            went(status, &desired, generation, now);
        };
        // Somebody else may have written what has nothing to do with the call.
        let still = |fresh: &Volume| calls::is_same(volume, fresh);
        let written = agent.write_outcome(&agent.caches.volumes, volume, change, still).await;
        if written.is_ok() {
            self.ended(volume);
        }
        match (written, answer) {
            (Ok(()), Answer::Unusable(..)) => Ok(Next::Again),
            (Ok(()), Answer::Deleted(_) | Answer::DeletedAgain | Answer::NotMade) => {
                agent.retries.clear(volume.metadata.uid.as_deref().unwrap_or_default());
                Ok(Next::Done)
            }
            (
                Ok(()),
                Answer::Created(..)
                | Answer::Expanded(_)
                | Answer::Modified(_)
                | Answer::Validated(..)
                | Answer::Revalidated(..),
            ) => {
                agent.retries.ended(&step(volume, rpc_of(self.call)));
                Ok(Next::Done)
            }
            // What no object can hold nobody can use.
            (Err(ApiError::Invalid { message, .. }), Answer::Created(created, plugin_uid)) => {
                let unusable = Answer::unstorable(created.volume_id, plugin_uid, &message);
                Box::pin(self.done(volume, unusable)).await
            }
            (Err(ApiError::Invalid { message, .. }), _) => {
                self.failed(volume, &Failure::unstorable(rpc_of(self.call), &message), |_| {}).await
            }
            (Err(error), _) => Err(error.into()),
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
    ) -> Result<Next, NotDone> {
        if self.call == VolumeCall::Modify {
            return self
                .failed(volume, failure, |status| modify::failed(status, volume, failure, known))
                .await;
        }
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
        self.failed(volume, failure, |status| {
            if creates {
                status.may_exist = Some(may_exist);
            }
        })
        .await
    }

    /// Counts a failure and writes it where people look, with what else it changes.
    async fn failed(
        &self,
        volume: &Arc<Volume>,
        failure: &Failure,
        also: impl Fn(&mut VolumeStatus),
    ) -> Result<Next, NotDone> {
        let agent = self.due.agent;
        let mut failure = failure.clone();
        // Claims are granted all the while.
        if failure.rpc == Rpc::ControllerExpandVolume {
            failure.reason = Reason::ExpandVolumeFailed;
        } else if failure.rpc == Rpc::ControllerModifyVolume {
            failure.reason = Reason::ModifyVolumeFailed;
        } else if self.call == VolumeCall::Revalidate {
            failure.reason = Reason::EditNotConfirmed;
        }
        if volume.metadata.deletion_timestamp.is_some() && failure.rpc == Rpc::CreateVolume {
            // Who waits for this call wants its outcome, and can change nothing that would make it a better one.
            failure.pace = Pace::Usual;
            failure.message.push_str(
                "; it is repeated to find out whether there is a volume to delete: spec.deletionPolicy Retain gives it up",
            );
        }
        let failure = &failure;
        let objects = std::slice::from_ref(volume);
        let attempt = agent.count(&step(volume, failure.rpc), failure, self.due.driver, objects);
        let counted = Counted { failure, attempt, node: &agent.node_name };
        // Also onto a Volume that was deleted meanwhile: whether there may be a volume is what the call has shown, and
        // nothing will show it again once a later call may have been one that repeats it.
        let still = |fresh: &Volume| {
            fresh.spec.assignment == volume.spec.assignment
                && fresh.state() == volume.state()
                && (self.call != VolumeCall::Modify || modify::is_asked(volume, fresh))
        };
        let cache = &agent.caches.volumes;
        let also = |status: &mut VolumeStatus| {
            also(status);
            if self.call == VolumeCall::Expand {
                growth::failed(status, volume, failure.shown());
            } else if let (VolumeCall::Revalidate, Some(edit)) = (self.call, volume.edit()) {
                status.edit = Some(EditAnswer { number: edit.number, error: Some(failure.shown()) }.into());
            }
        };
        let written = agent.write_failure(cache, volume, counted, also, still).await;
        if let Err(error) = written {
            if !matches!(error, ApiError::Conflict(_)) {
                tracing::warn!(%failure, "the failure cannot be written");
            }
            return Err(error.into());
        }
        self.ended(volume);
        Ok(Next::After(attempt.next))
    }
}

/// The step by which the failures of this call are counted.
fn step(volume: &Volume, rpc: Rpc) -> Step<'_> {
    match (rpc, volume.edit()) {
        (Rpc::ControllerModifyVolume, _) => modify::step(volume),
        // Its own, as a modification's is, whatever is ordered in between.
        (Rpc::ValidateVolumeCapabilities, Some(edit)) => {
            Step { generation: edit.number, ..Step::of(volume, rpc) }
        }
        (_, _) => Step::of(volume, rpc),
    }
}
