//! The worker for Snapshots' calls: takes the turn, looks live, has the call made, and writes what it came to.
//!
//! A snapshot is taken in the flight of its volume's controller calls: no other one runs beside it (rule R2).

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::answers::{Answer, deleted};
use super::call::call;
use super::prepared::{prepare, rpc_of};
use crate::agent::calls::attempt::{Counted, Due, NotDone, Word};
use crate::agent::calls::budgets::LATER;
use crate::agent::calls::failure::{Failure, Pace};
use crate::agent::calls::flights::Flight;
use crate::agent::calls::not_made::says_not_made;
use crate::agent::calls::retained::{UNDELETED, not_ended, retained};
use crate::agent::calls::retry::Step;
use crate::agent::calls::status::{waits, went};
use crate::agent::context::Agent;
use crate::agent::queues::Parked;
use crate::api::conditions::{Desired, Reason};
use crate::api::snapshot::{SnapshotStatus, SnapshotVolume};
use crate::api::{Snapshot, SnapshotState, Volume, VolumeHandle};
use crate::csi::proto::csi::v1 as wire;
use crate::csi::{CallError, Meaning};
use crate::k8s::{ApiError, Next, read};
use crate::snapshot::SnapshotWaiting;
use crate::snapshot::calls::{self, AgentStep, SnapshotCall, SourceNow, Standing};

/// The shortest and the longest time between two questions whether a snapshot is ready to use.
const ASK: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// Works on one Snapshot.
pub(crate) async fn work(agent: Arc<Agent>, uid: String) -> Next {
    let Some(snapshot) = agent.caches.snapshots.by_uid(&uid) else { return Next::Done };
    let name = snapshot.metadata.name.clone().unwrap_or_default();
    let left = |error| NotDone::Api(error).next(&name);
    let call = match calls::plan(&snapshot, &agent.node_name) {
        AgentStep::Idle => return Next::Done,
        AgentStep::NeverBegun => return never_begun(&agent, &snapshot).await.unwrap_or_else(left),
        AgentStep::GiveUp(call) => return give_up(&agent, &snapshot, call).await.unwrap_or_else(left),
        AgentStep::Call(call) => call,
    };
    let Some(assignment) = &snapshot.spec.assignment else { return Next::Done };
    let given = assignment.controller.tenure;
    if agent.enter(&assignment.driver_name, given).is_none() {
        // It was relieved of this, and who has it now will be named in the order.
        return Next::Done;
    }
    let due = Due {
        agent: &agent,
        rpc: rpc_of(call, &snapshot),
        driver: &assignment.driver_name,
        key: Parked::Snapshot(uid),
        word: Word::Term(agent.renewal.term()),
        given: Some(given),
    };
    let pass = Pass { call, due };
    pass.attempt(&snapshot).await.unwrap_or_else(|not_done| not_done.next(&name))
}

/// One call of one Snapshot.
struct Pass<'a> {
    call: SnapshotCall,
    due: Due<'a>,
}

impl Pass<'_> {
    /// Everything that takes its time comes before the live reads, and the call right after them.
    async fn attempt(&self, snapshot: &Arc<Snapshot>) -> Result<Next, NotDone> {
        let agent = self.due.agent;
        agent.is_due(&Step::of(&**snapshot, self.due.rpc))?;
        let _flights = self.take_off(snapshot)?;
        let _turn = self.due.turn().await?;
        let prepared = match prepare(&self.due, snapshot).await {
            Ok(prepared) => prepared,
            Err(failure) => return self.failed(snapshot, &failure, |_| {}).await,
        };
        let live = match self.look(snapshot).await? {
            (Standing::Valid, Some(live), _) => live,
            (Standing::Valid | Standing::Gone, ..) => return Ok(Next::Done),
            // One that is another agent's now is not for this one's cache, and what the watch brings wakes.
            (Standing::Changed, live, _) => {
                let ours = live.is_some_and(|live| agent.caches.snapshots.selects(&live));
                return Ok(if ours { Next::Again } else { Next::Done });
            }
            // Whoever it is will be named in the order, which the watch brings.
            (Standing::NotHolder, ..) => return Ok(Next::After(LATER)),
            (Standing::NotHeld, live, _) => {
                let what = "no VolumeHandle holds the volume for a Volume that the snapshot is to be of, so the volume may be \
                            somebody's; delete this Snapshot, with spec.deletionPolicy Retain if a snapshot may have been taken";
                let failure = Failure::local(Reason::SourceNotHeld, self.due.rpc, what.into());
                return self.failed(live.as_ref().unwrap_or(snapshot), &failure, |_| {}).await;
            }
            // For good, so that whoever deletes the Volume does not wait.
            (Standing::SourceEnds, live, gone) => {
                let live = live.as_ref().unwrap_or(snapshot);
                let mut after = live.status.clone().unwrap_or_default();
                after.source_gone = true;
                let why = SnapshotWaiting::VolumeEnds(gone.unwrap_or_default());
                let desired = Desired { reason: why.reason(), message: why.message() };
                waits(&mut after, &desired, live.metadata.generation, Timestamp::now());
                write(agent, live, &after).await?;
                return Ok(Next::Again);
            }
        };
        let known = live.may_exist();
        let Some(begun) = self.begin(live).await? else { return Ok(Next::Again) };
        self.due.may_call()?;
        match call(&self.due, &begun, self.call, prepared).await {
            Ok(answer) => self.done(&begun, answer).await,
            Err((failure, error)) => self.not_done(&begun, &failure, error.as_ref(), known).await,
        }
    }

    /// Keeps other calls from the volumes of which a snapshot is taken, until the flights end.
    fn take_off(&self, snapshot: &Snapshot) -> Result<Vec<Flight<'_>>, NotDone> {
        let agent = self.due.agent;
        let mut flights = Vec::new();
        for (_, of) in self.taken_of(snapshot) {
            if agent.unended.is_running(&Parked::Handle(of.handle_name.clone())) {
                return Err(NotDone::Unended);
            }
            flights.push(agent.flights.begin(&of.handle_name, &self.due.key)?);
        }
        Ok(flights)
    }

    /// The volumes of which this call takes a snapshot, each with the name of its Volume.
    fn taken_of<'s>(&self, snapshot: &'s Snapshot) -> Vec<(&'s str, &'s SnapshotVolume)> {
        let creates = self.call == SnapshotCall::Create;
        let all = snapshot.taken_of().into_iter().filter(|_| creates);
        all.filter_map(|(name, of)| Some((name, of?))).collect()
    }

    /// The live reads of [`calls::standing`], and the first Volume that is deleted or gone. The Snapshot last: that it is still to
    /// be taken is what a deletion ends.
    async fn look(
        &self,
        snapshot: &Snapshot,
    ) -> Result<(Standing, Option<Arc<Snapshot>>, Option<String>), ApiError> {
        let agent = self.due.agent;
        let namespace = snapshot.metadata.namespace.as_deref().unwrap_or_default();
        let (mut read, mut gone) = (Vec::new(), None);
        for (name, of) in self.taken_of(snapshot) {
            let volume: Option<Volume> = read::get_live(&agent.writer.api(namespace), name).await?;
            let lock = agent.get_live::<VolumeHandle>(&of.handle_name).await?;
            let is_there = |volume: &Volume| {
                volume.metadata.uid.as_ref() == Some(&of.uid) && volume.metadata.deletion_timestamp.is_none()
            };
            if !volume.as_ref().is_some_and(is_there) {
                gone.get_or_insert_with(|| name.to_owned());
            }
            read.push((volume, lock));
        }
        let name = snapshot.metadata.name.as_deref().unwrap_or_default();
        let live = read::get_live(&agent.writer.api(namespace), name).await?;
        let sources: Vec<_> = read
            .iter()
            .map(|(volume, lock)| SourceNow { volume: volume.as_ref(), lock: lock.as_ref() })
            .collect();
        let standing = calls::standing(self.call, snapshot, live.as_ref(), &sources);
        match &live {
            Some(live) if standing != Standing::Gone => {
                agent.caches.snapshots.apply(live.clone());
            }
            _ => {
                agent.caches.snapshots.remove_confirmed(snapshot.metadata.uid.as_deref().unwrap_or_default());
            }
        }
        Ok((standing, live.map(Arc::new), gone))
    }

    /// Writes that there may be a snapshot from now on: a crash must not hide that. Nothing if the Snapshot has changed.
    async fn begin(&self, snapshot: Arc<Snapshot>) -> Result<Option<Arc<Snapshot>>, ApiError> {
        let is_new = self.call == SnapshotCall::Create
            && snapshot.state() == SnapshotState::Pending
            && !snapshot.may_exist();
        if !is_new {
            return Ok(Some(snapshot));
        }
        let agent = self.due.agent;
        let mut after = snapshot.status.clone().unwrap_or_default();
        after.may_exist = true;
        if after.last_error.is_none() {
            let message = format!("{} is called on node {}", self.due.rpc, agent.node_name);
            let desired = Desired::new(Reason::Creating, message);
            waits(&mut after, &desired, snapshot.metadata.generation, Timestamp::now());
        }
        write(agent, &snapshot, &after).await?;
        let written = agent.caches.snapshots.by_uid(snapshot.metadata.uid.as_deref().unwrap_or_default());
        Ok(written.filter(|written| calls::is_same(&snapshot, written)))
    }

    /// Writes what a call that succeeded has come to.
    async fn done(&self, snapshot: &Arc<Snapshot>, answer: Answer) -> Result<Next, NotDone> {
        let agent = self.due.agent;
        let change = |status: &mut SnapshotStatus, generation, now| {
            let desired = answer.clone().take_in(snapshot, status);
            went(status, &desired, generation, now);
        };
        let still = |fresh: &Snapshot| calls::is_same(snapshot, fresh);
        match agent.write_outcome(&agent.caches.snapshots, snapshot, change, still).await {
            Ok(()) => {}
            Err(ApiError::Invalid { message, .. }) => {
                return self.failed(snapshot, &Failure::unstorable(self.due.rpc, &message), |_| {}).await;
            }
            Err(error) => return Err(error.into()),
        }
        agent.retries.clear(snapshot.metadata.uid.as_deref().unwrap_or_default());
        Ok(match answer {
            Answer::There(wire::Snapshot { ready_to_use: false, .. }, _)
            | Answer::Group(wire::VolumeGroupSnapshot { ready_to_use: false, .. }, _) => {
                Next::After(until_asked(snapshot))
            }
            Answer::There(..)
            | Answer::Group(..)
            | Answer::Unasked(_)
            | Answer::Deleted(_)
            | Answer::NotMade => Next::Done,
        })
    }

    /// Writes that a call has failed, at the driver or before it. `known` is whether a call had been made before this
    /// one.
    async fn not_done(
        &self,
        snapshot: &Arc<Snapshot>,
        failure: &Failure,
        error: Option<&CallError>,
        known: bool,
    ) -> Result<Next, NotDone> {
        if self.call != SnapshotCall::Create || snapshot.state() != SnapshotState::Pending {
            return self.failed(snapshot, failure, |_| {}).await;
        }
        let not_made = error.is_some_and(|error| says_not_made(error, known));
        if not_made && snapshot.metadata.deletion_timestamp.is_some() {
            return self.done(snapshot, Answer::NotMade).await;
        }
        let may_exist = match error.map(CallError::meaning) {
            _ if not_made => false,
            None | Some(Meaning::NeverSent) => known,
            Some(_) => true,
        };
        self.failed(snapshot, failure, |status| status.may_exist = may_exist).await
    }

    /// Counts a failure and writes it where people look, with what else it changes.
    async fn failed(
        &self,
        snapshot: &Arc<Snapshot>,
        failure: &Failure,
        also: impl Fn(&mut SnapshotStatus),
    ) -> Result<Next, NotDone> {
        let agent = self.due.agent;
        let mut failure = failure.clone();
        if snapshot.metadata.deletion_timestamp.is_some() && self.call == SnapshotCall::Create {
            // Who waits for this call wants its outcome, and can change nothing that would make it a better one.
            failure.pace = Pace::Usual;
            failure.message.push_str(
                "; it is repeated to find out whether there is a snapshot to delete: spec.deletionPolicy Retain gives it up",
            );
        }
        let failure = &failure;
        let objects = std::slice::from_ref(snapshot);
        let attempt = agent.count(&Step::of(&**snapshot, failure.rpc), failure, self.due.driver, objects);
        let counted = Counted { failure, attempt, node: &agent.node_name };
        // Also onto a Snapshot that was deleted meanwhile: whether there may be one is what the call has shown.
        let still = |fresh: &Snapshot| {
            fresh.spec.assignment == snapshot.spec.assignment && fresh.state() == snapshot.state()
        };
        let written = agent.write_failure(&agent.caches.snapshots, snapshot, counted, also, still).await;
        if let Err(error) = written {
            if !matches!(error, ApiError::Conflict(_)) {
                tracing::warn!(%failure, "the failure cannot be written");
            }
            return Err(error.into());
        }
        Ok(Next::After(attempt.next))
    }
}

/// A driver that works on a snapshot for long is asked less and less often, by how old the Snapshot is.
fn until_asked(snapshot: &Snapshot) -> Duration {
    let (shortest, longest) = ASK;
    let created = snapshot.metadata.creation_timestamp.as_ref().map(|time| time.0);
    // Where this clock is behind the API server's nobody knows how old it is.
    let age = created.and_then(|created| Duration::try_from(Timestamp::now().duration_since(created)).ok());
    age.map_or(longest / 10, |age| (age / 4).clamp(shortest, longest))
}

/// Nothing was ever called. The write is guarded by the version that was planned on: whoever calls says so in it before.
async fn never_begun(agent: &Agent, snapshot: &Snapshot) -> Result<Next, ApiError> {
    let mut after = snapshot.status.clone().unwrap_or_default();
    let desired = deleted(&mut after, "it was deleted before a snapshot was begun".into());
    went(&mut after, &desired, snapshot.metadata.generation, Timestamp::now());
    write(agent, snapshot, &after).await?;
    agent.retries.clear(snapshot.metadata.uid.as_deref().unwrap_or_default());
    Ok(Next::Done)
}

/// Nothing that deletes it may be running. The write is guarded by the version that was planned on, so a Snapshot that is another
/// agent's by now is not given up here.
async fn give_up(agent: &Agent, snapshot: &Snapshot, call: SnapshotCall) -> Result<Next, ApiError> {
    let rpc = rpc_of(call, snapshot);
    let mut after = snapshot.status.clone().unwrap_or_default();
    let driver = snapshot.spec.assignment.as_ref().map(|a| a.driver_name.as_str()).unwrap_or_default();
    let about = Parked::Snapshot(snapshot.metadata.uid.clone().unwrap_or_default());
    if agent.may_be_deleting(rpc, driver, &about) {
        waits(&mut after, &not_ended(rpc), snapshot.metadata.generation, Timestamp::now());
        write(agent, snapshot, &after).await?;
        return Ok(Next::After(UNDELETED));
    }
    after.state = SnapshotState::Deleted;
    tracing::info!(snapshot = snapshot.metadata.name, "given up: what the driver has stays");
    went(&mut after, &retained(rpc), snapshot.metadata.generation, Timestamp::now());
    write(agent, snapshot, &after).await?;
    agent.retries.clear(snapshot.metadata.uid.as_deref().unwrap_or_default());
    Ok(Next::Done)
}

async fn write(agent: &Agent, snapshot: &Snapshot, after: &SnapshotStatus) -> Result<(), ApiError> {
    agent.writer.update_status(&agent.caches.snapshots, snapshot, after).await.map(drop)
}
