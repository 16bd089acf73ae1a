//! One attempt of a CSI call, the same for every RPC and every worker.
//!
//! In this order: the wait after a failure, a turn at the driver, the agent's Lease, the process, the secrets; then the worker
//! looks live, the Lease is asked once more, and the call is made (docs/adr/0012). What it came to is written, or the failure
//! counted and written.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::budgets::{Budget, Busy, Direction, LATER, Service, Turn};
use super::failure::Failure;
use super::retry::{Attempt, Step};
use super::status::{Progress as _, failed};
use super::tenures::Entered;
use super::write::Called;
use crate::agent::context::Agent;
use crate::agent::drivers::endpoint::Serving;
use crate::agent::host::error::HostError;
use crate::agent::queues::Parked;
use crate::agent::records::store::RecordError;
use crate::api::Attachment;
use crate::api::secrets::SecretName;
use crate::csi::{CallError, Plugin, Process, Rpc, Secrets};
use crate::heartbeat::Term;
use crate::k8s::events::EventReason;
use crate::k8s::{ApiError, Cache, Next};
use crate::metrics::RetryLabels;

/// Pause while no call may be started.
const PAUSE: Duration = Duration::from_millis(500);
/// Node calls at a time, per driver and direction.
pub(crate) const NODE_CALLS: usize = 32;

/// Why a step was not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotDone {
    /// The driver, a path or a Secret: recorded in the status and tried again later.
    #[error("{0}")]
    Failed(Box<Failure>),
    /// The step has failed and is not due for so long.
    #[error("is tried again in {} s", .0.as_secs())]
    BackingOff(Duration),
    /// No call may be started now.
    #[error("no call may be started now")]
    NotNow,
    /// A call about the same volume may be running that the process of the agent before this one has made.
    #[error("a call of the agent before may be running in the driver, and none is made beside it")]
    Unended,
    /// As many calls of the driver are running as may.
    #[error("waits for a turn at the driver")]
    Busy,
    /// The API server.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The node's own records.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// This machine: mounts cannot be looked at, directories not be made or removed.
    #[error(transparent)]
    Host(#[from] HostError),
}

impl From<Busy> for NotDone {
    fn from(_: Busy) -> Self {
        Self::Busy
    }
}

impl From<Failure> for NotDone {
    fn from(failure: Failure) -> Self {
        Self::Failed(Box::new(failure))
    }
}

impl NotDone {
    /// When the pass over `key` is made again. A failure that can be written to an object is written before this is asked.
    pub fn next(self, key: &str) -> Next {
        match self {
            Self::BackingOff(left) => Next::After(left),
            Self::NotNow | Self::Unended => Next::After(PAUSE),
            Self::Busy => Next::After(LATER),
            Self::Api(error) => {
                error.log(key, "the pass has not ended");
                error.next()
            }
            Self::Failed(_) | Self::Record(_) | Self::Host(_) => {
                tracing::warn!(key, "{self}");
                Next::Retry
            }
        }
    }
}

impl Failure {
    /// When the pass over `key` is made again whose step has failed so, by whether that could be written.
    pub fn next(&self, key: &str, written: Result<(), ApiError>) -> Next {
        match written {
            // What else there is to do for the key may go on, with fresh reads and behind whoever waits.
            Ok(()) => Next::Again,
            Err(error) => {
                error.log(key, &format!("its failure cannot be written ({self})"));
                error.next()
            }
        }
    }
}

/// A CSI call that is due.
pub(crate) struct Due<'a> {
    pub agent: &'a Agent,
    pub rpc: Rpc,
    pub driver: &'a str,
    /// The pass that makes it, to be woken when it could not have its turn.
    pub key: Parked,
    /// What it is made on.
    pub word: Word,
    /// The tenure in which the instance was given a controller call; None of another one.
    pub given: Option<i64>,
}

/// On whose word a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// The API server's: the term of the Lease in which everything was read live that the call goes by; None if that was
    /// in none.
    Term(Option<Term>),
    /// kubelet's, that the Pod is done with its target. Of a volume that is staged NodeUnpublishVolume takes a bind mount
    /// off and nothing else, so that it is right wherever the volume is by now (the exception of rule R2).
    Kubelet,
}

/// The process that a call goes to, and what it takes along.
pub(crate) struct Means {
    pub serving: Serving,
    pub secrets: Secrets,
    /// For people: what an undo goes without.
    pub note: Option<String>,
}

impl<'a> Due<'a> {
    /// A turn at the driver, if a call may be started at all. A controller call is counted from here on, before the live looks
    /// that it goes by: who says that none is running that was given like this has waited for it.
    pub async fn turn(&self) -> Result<(Turn<'a>, Option<Entered<'a>>), NotDone> {
        if self.agent.unended.is_running(&self.key) {
            return Err(NotDone::Unended);
        }
        let (service, limit) = match self.key {
            Parked::Node(_) => (Service::Node, NODE_CALLS),
            Parked::Handle(_) => (Service::Attach, self.agent.controller_concurrency(self.driver)),
            Parked::Volume(_) | Parked::Snapshot(_) => {
                (Service::Volume, self.agent.controller_concurrency(self.driver))
            }
        };
        let direction = if self.rpc.is_inverse() { Direction::Undo } else { Direction::Make };
        let budget = Budget { driver: self.driver.to_owned(), service, direction };
        let turn = self.agent.budgets.turn(&budget, limit, self.key.clone()).await;
        let turn = turn?;
        let entered = match self.given {
            Some(tenure) => Some(self.agent.enter(self.driver, tenure).ok_or(NotDone::NotNow)?),
            None => None,
        };
        self.may_call()?;
        Ok((turn, entered))
    }

    /// Whether it may be started now, by the agent's Lease, and by what was read in the same term of it; or by kubelet's
    /// word, which is good for one call alone (rule R2).
    pub fn may_call(&self) -> Result<(), NotDone> {
        let may = match self.word {
            Word::Term(term) => {
                let is_of_now = term == self.agent.renewal.term();
                is_of_now && self.agent.may_call_driver(self.driver, self.rpc.service())
            }
            Word::Kubelet => self.rpc == Rpc::NodeUnpublishVolume && !self.agent.is_stopping(),
        };
        if may { Ok(()) } else { Err(NotDone::NotNow) }
    }

    /// The process and the secrets, which may take their time. An undo goes without a Secret that is gone (rule R12).
    pub async fn means(&self, namespace: &str, secret: Option<SecretName<'_>>) -> Result<Means, Failure> {
        let serving = self.agent.serving(self.rpc, self.driver)?;
        let (secrets, note) = self.agent.secrets(self.rpc, namespace, secret).await?;
        if self.given.is_some() {
            self.agent.tenures.mean(self.driver, serving.plugin.process()).await;
        }
        Ok(Means { serving, secrets, note })
    }

    /// Awaits a call of the Controller service, to this process.
    pub async fn call_controller<T>(
        &self,
        plugin: &Plugin,
        call: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let made = self.agent.tenures.call(self.driver, plugin.process(), &self.key);
        let result = self.call(plugin.process(), call).await;
        made.ended(&result);
        result
    }

    /// Awaits the call itself, to this process.
    pub async fn call<T>(
        &self,
        process: Option<&Arc<Process>>,
        call: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let _begun = self.agent.unended.begin(&self.key, process.and_then(|process| process.name()));
        self.agent.call(self.driver, self.rpc, call).await
    }
}

/// A failed attempt that has been counted.
#[derive(Clone, Copy)]
pub(crate) struct Counted<'a> {
    pub failure: &'a Failure,
    pub attempt: Attempt,
    /// The node that the call was about.
    pub node: &'a str,
}

impl Agent {
    /// Whether a step has waited for long enough since it failed.
    pub fn is_due(&self, step: &Step<'_>) -> Result<(), NotDone> {
        self.retries.wait(step).map_or(Ok(()), |left| Err(NotDone::BackingOff(left)))
    }

    /// Counts a failure. The count goes on after a restart, of this call and of no other, from the `objects` that show it.
    pub fn count<K: Called>(
        &self,
        step: &Step<'_>,
        failure: &Failure,
        driver: &str,
        objects: &[Arc<K>],
    ) -> Attempt {
        let shown = objects.iter().filter_map(|object| object.status()?.attempts_of(step.rpc)).max();
        let attempt = self.retries.failed(step, failure, shown, driver);
        let labels = RetryLabels { driver_name: driver.to_owned(), method_name: failure.rpc.path() };
        self.metrics.csi_retries.get_or_create(&labels).inc();
        tracing::warn!(object = step.uid, attempt = attempt.number, next = ?attempt.next, "{failure}");
        attempt
    }

    /// Writes a failure where people look, with what `also` changes, as long as `still` holds.
    /// The first of a row is an Event too.
    pub async fn write_failure<K: Called>(
        &self,
        cache: &Cache<K>,
        object: &Arc<K>,
        counted: Counted<'_>,
        also: impl Fn(&mut K::Status),
        still: impl Fn(&K) -> bool,
    ) -> Result<(), ApiError> {
        let Counted { failure, attempt, node } = counted;
        let place = format!("on node {node}");
        let change = |status: &mut K::Status, generation, now: Timestamp| {
            failed(status, failure, attempt, &place, generation, now);
            also(status);
        };
        self.write_outcome(cache, object, change, still).await?;
        if attempt.number == 1 {
            self.recorder.tell(object, EventReason::CallFailed, failure.rpc.name(), failure.to_string());
        }
        Ok(())
    }

    /// Writes a failure onto an Attachment, as long as that is where it was.
    pub async fn write_failure_on_attachment(
        &self,
        attachment: &Arc<Attachment>,
        counted: Counted<'_>,
    ) -> Result<(), ApiError> {
        let state = |a: &Attachment| a.status.as_ref().map(|s| s.state).unwrap_or_default();
        let place = |a: &Attachment| (a.metadata.generation, state(a));
        let still = |fresh: &Attachment| place(fresh) == place(attachment);
        self.write_failure(&self.caches.attachments, attachment, counted, |_| {}, still).await
    }
}
