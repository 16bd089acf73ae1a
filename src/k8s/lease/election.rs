//! Leader election by client-go's protocol.
//!
//! A candidate waits until it has seen the Lease unchanged for its duration. It looks when it is told that the Lease has
//! changed, so that it counts from that moment on and not from its next look; and now and then without that.
//!
//! A leader renews every [`Timing::retry`] and counts itself as leader only for [`Timing::renew_deadline`] after the moment
//! *before* its last successful request was sent: every other candidate saw that renewal later, and waits longer. So
//! [`Leadership::is_leading`] turns false before anybody else can lead, also if this process was frozen. A machine that was
//! suspended is the exception: its monotonic clock stood still, and a leader that wakes on it believes for up to the rest of
//! its deadline that it leads. Writes that are under way then, or begin then, are guarded by resourceVersion and by names
//! (rule R6), so nothing of what another leader did is undone.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use rand::Rng;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until, timeout, timeout_at},
};
use tracing::{error, info, warn};

use super::{Leases, holder, wall_clock};
use crate::k8s::{ApiError, Created, store::version};

/// The protocol's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long others wait after the last renewal they saw. Whole seconds, at least one.
    pub lease: Duration,
    /// How long a leader leads after its last successful renewal; shorter than `lease`.
    pub renew_deadline: Duration,
    /// Time between attempts.
    pub retry: Duration,
}

impl Default for Timing {
    /// client-go's 10 s and 2 s, and 13 s instead of its 15: with the time that a new leader takes, claims are Ready again
    /// within 15 (docs/adr/0066-a-standby-is-told-of-each-renewal.md).
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(13),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

/// Whether this process leads. Cheap to clone; every decision asks it again.
#[derive(Clone, Debug)]
pub struct Leadership {
    until: watch::Receiver<Option<Instant>>,
}

impl Leadership {
    /// Whether this process leads at this moment.
    #[must_use]
    pub fn is_leading(&self) -> bool {
        self.until.borrow().is_some_and(|until| Instant::now() < until)
    }

    /// Waits until this process leads. Returns false if the election ended without that.
    pub async fn acquired(&self) -> bool {
        self.until.clone().wait_for(Option::is_some).await.is_ok()
    }

    /// Waits until this process does not lead (any more).
    pub async fn lost(&self) {
        let mut until = self.until.clone();
        loop {
            let Some(end) = *until.borrow_and_update() else { return };
            if Instant::now() >= end {
                return;
            }
            tokio::select! {
                () = sleep_until(end) => {}
                changed = until.changed() => if changed.is_err() {
                    sleep_until(end).await;
                },
            }
        }
    }
}

/// What a leader tells its successors in the Lease.
pub trait Handover: Send + Sync {
    /// Writes the message into the Lease.
    fn tell(&self, lease: &mut Lease);
    /// Whether this process knows what the last leader has written into the Lease. One that does not must start anew
    /// before it leads.
    fn knows(&self, lease: &Lease) -> bool;
}

/// How an election ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElectionEnd {
    /// By shutdown. The Lease was given up, if it was held and the API server could be reached.
    ShutDown,
    /// The Lease could not be renewed in time, or another took it. The process should end and start
    /// anew: what it has in memory was decided as leader.
    Lost,
    /// The API server has an older Lease than it had shown before, or none: etcd was restored, and the Lease was not
    /// renewed on that. Or the last leader has left word of something that this process does not know. It should end
    /// and start anew.
    StartAnew,
}

/// A process that wants to lead.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The Lease whose holder leads.
    pub lease: String,
    /// The process's name, which must be unique among processes that run at the same time. A Pod's name is: the process
    /// that a restarted container runs takes over its predecessor's Lease at once, which is right, since the kubelet has
    /// seen that one end.
    pub identity: String,
}

/// The part that one candidate has in an election.
pub struct Election<L> {
    leases: L,
    candidate: Candidate,
    timing: Timing,
    handover: Arc<dyn Handover>,
    changed: Arc<Notify>,
    observed: Option<Observed>,
    /// The newest version of the Lease that the API server has shown.
    newest: u64,
    until: watch::Sender<Option<Instant>>,
}

/// What became of an attempt to take or renew the Lease.
enum Attempt {
    /// The Lease is held by this process, counted from before the request was sent.
    Held(Instant),
    /// The Lease is held by another process.
    NotOurs,
    /// See [`ElectionEnd::StartAnew`].
    StartAnew,
}

struct Observed {
    lease: Lease,
    at: Instant,
}

impl<L: Leases> Election<L> {
    /// An election in which this process is the candidate. Whoever sees that the Lease has changed says so by `changed`;
    /// whether it may be taken does not depend on that.
    pub fn new(
        leases: L,
        candidate: Candidate,
        timing: Timing,
        handover: Arc<dyn Handover>,
        changed: Arc<Notify>,
    ) -> (Self, Leadership) {
        let (until, receiver) = watch::channel(None);
        let election =
            Self { leases, candidate, timing, handover, changed, observed: None, newest: 0, until };
        (election, Leadership { until: receiver })
    }

    /// Becomes leader and stays it, until it is lost or `shutdown`. End the work before `shutdown`: it
    /// gives the Lease up, and another leads from the next moment on.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) -> ElectionEnd {
        let mut shutdown = std::pin::pin!(shutdown);
        let ended = tokio::select! {
            () = &mut shutdown => ElectionEnd::ShutDown,
            ended = self.lead() => ended,
        };
        self.until.send_replace(None);
        if ended == ElectionEnd::ShutDown {
            self.release().await;
        }
        ended
    }

    /// Returns when the Lease is lost, or must not be taken.
    async fn lead(&mut self) -> ElectionEnd {
        let Some(mut renewed) = self.acquire().await else { return ElectionEnd::StartAnew };
        info!(lease = self.candidate.lease, identity = self.candidate.identity, "leading");
        loop {
            let deadline = renewed + self.timing.renew_deadline;
            self.until.send_replace(Some(deadline));
            renewed = match self.renew(deadline).await {
                Ok(renewed) => renewed,
                Err(ended) => return ended,
            };
        }
    }

    async fn acquire(&mut self) -> Option<Instant> {
        loop {
            let sent = Instant::now();
            match timeout_at(sent + self.timing.renew_deadline, self.attempt()).await {
                Ok(Ok(Attempt::Held(renewed))) => return Some(renewed),
                Ok(Ok(Attempt::NotOurs)) => {}
                Ok(Ok(Attempt::StartAnew)) => return None,
                Ok(Err(error)) => warn!(lease = self.candidate.lease, "candidate: {error}"),
                Err(_) => warn!(lease = self.candidate.lease, "candidate: no answer"),
            }
            let jitter = rand::rng().random_range(1.0..2.2);
            let pause = self.timing.retry.mul_f64(jitter);
            // Not later than at the moment from which on it may be taken.
            let left = self.expires_in().filter(|left| !left.is_zero());
            let pause = left.map_or(pause, |left| left.min(pause));
            // Whether it was told or the time is over: it looks.
            let _ = timeout(pause, self.changed.notified()).await;
        }
    }

    /// One renewal, tried until it succeeds or the `deadline` has passed.
    async fn renew(&mut self, deadline: Instant) -> Result<Instant, ElectionEnd> {
        loop {
            sleep_until((Instant::now() + self.timing.retry).min(deadline)).await;
            // Half, as client-go's clients: one lost packet must not cost the leadership.
            let bound = Instant::now() + self.timing.renew_deadline / 2;
            match timeout_at(bound.min(deadline), self.attempt()).await {
                Ok(Ok(Attempt::Held(renewed))) => return Ok(renewed),
                Ok(Ok(Attempt::StartAnew)) => return Err(ElectionEnd::StartAnew),
                Ok(Ok(Attempt::NotOurs)) => {
                    let other = self.observed.as_ref().map_or("", |observed| holder(&observed.lease));
                    warn!(lease = self.candidate.lease, other, "another has taken the Lease");
                    return Err(ElectionEnd::Lost);
                }
                Ok(Err(error)) => warn!(lease = self.candidate.lease, "renewal: {error}"),
                Err(_) => warn!(lease = self.candidate.lease, "renewal: no answer"),
            }
            if Instant::now() >= deadline {
                warn!(lease = self.candidate.lease, "not renewed in {:?}", self.timing.renew_deadline);
                return Err(ElectionEnd::Lost);
            }
        }
    }

    /// Takes or renews the Lease.
    async fn attempt(&mut self) -> Result<Attempt, ApiError> {
        if let Some(observed) = self.observed.as_ref().filter(|observed| self.is_ours(&observed.lease)) {
            let mine = observed.lease.clone();
            match self.write(mine).await {
                Ok(renewed) => return Ok(Attempt::Held(renewed)),
                // Our idea of the Lease is old, or its answer was lost: read it and try once more.
                Err(error) => info!(lease = self.candidate.lease, "renewal without reading first: {error}"),
            }
        }
        let Some(lease) = self.leases.get(&self.candidate.lease).await? else { return self.create().await };
        let leading = self.until.borrow().is_some();
        if version(&lease.metadata) < self.newest {
            error!(lease = self.candidate.lease, "older than it was before: etcd was restored");
            return Ok(Attempt::StartAnew);
        }
        self.newest = version(&lease.metadata);
        let changed = self.observed.as_ref().is_none_or(|observed| observed.lease.spec != lease.spec);
        if changed {
            self.observed = Some(Observed { lease: lease.clone(), at: Instant::now() });
        }
        // One that was given up lasts a second: what was done last is seen by then, as a rule.
        if !self.is_ours(&lease) && !self.has_expired() {
            return Ok(Attempt::NotOurs);
        }
        if !leading && !self.handover.knows(&lease) {
            info!(
                lease = self.candidate.lease,
                "the last leader has left word of what is only known from a start on"
            );
            return Ok(Attempt::StartAnew);
        }
        match self.write(lease).await {
            Ok(renewed) => Ok(Attempt::Held(renewed)),
            // Another candidate was faster. Not an error; what it wrote is read in the next round.
            Err(ApiError::Conflict(_) | ApiError::Gone(_)) if !leading => Ok(Attempt::NotOurs),
            Err(error) => Err(error),
        }
    }

    async fn create(&mut self) -> Result<Attempt, ApiError> {
        if self.newest > 0 {
            error!(lease = self.candidate.lease, "gone: it was deleted, or etcd was restored");
            return Ok(Attempt::StartAnew);
        }
        let sent = Instant::now();
        let metadata = ObjectMeta { name: Some(self.candidate.lease.clone()), ..ObjectMeta::default() };
        let mut lease = Lease { metadata, spec: Some(self.spec(None)) };
        self.handover.tell(&mut lease);
        match self.leases.create(&lease).await? {
            Created::New(lease) => {
                self.keep(lease, sent);
                Ok(Attempt::Held(sent))
            }
            Created::Exists => Ok(Attempt::NotOurs),
        }
    }

    fn keep(&mut self, lease: Lease, at: Instant) {
        self.newest = self.newest.max(version(&lease.metadata));
        self.observed = Some(Observed { lease, at });
    }

    async fn write(&mut self, mut lease: Lease) -> Result<Instant, ApiError> {
        let sent = Instant::now();
        lease.spec = Some(self.spec(lease.spec.as_ref()));
        lease.metadata.managed_fields = None;
        self.handover.tell(&mut lease);
        let lease = self.leases.replace(&lease).await?;
        self.keep(lease, sent);
        Ok(sent)
    }

    fn spec(&self, before: Option<&LeaseSpec>) -> LeaseSpec {
        let now = wall_clock();
        let mine =
            before.is_some_and(|spec| spec.holder_identity.as_deref() == Some(&self.candidate.identity));
        let transitions = before.and_then(|spec| spec.lease_transitions);
        LeaseSpec {
            holder_identity: Some(self.candidate.identity.clone()),
            lease_duration_seconds: i32::try_from(self.timing.lease.as_secs()).ok(),
            acquire_time: before
                .filter(|_| mine)
                .and_then(|spec| spec.acquire_time.clone())
                .or_else(|| Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(match transitions {
                None => 0,
                Some(count) if mine => count,
                Some(count) => count.saturating_add(1),
            }),
            ..before.cloned().unwrap_or_default()
        }
    }

    fn is_ours(&self, lease: &Lease) -> bool {
        holder(lease) == self.candidate.identity
    }

    /// How long it is until the observed Lease was not changed for as long as its holder said, on our clock.
    fn expires_in(&self) -> Option<Duration> {
        let observed = self.observed.as_ref()?;
        let seconds = observed.lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
        let duration = seconds.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
        Some(duration.unwrap_or(self.timing.lease).saturating_sub(observed.at.elapsed()))
    }

    fn has_expired(&self) -> bool {
        self.expires_in().is_some_and(|left| left.is_zero())
    }

    /// Gives the Lease up, so that nobody has to wait for it. One attempt: without it, they wait.
    async fn release(&self) {
        if self.observed.as_ref().is_none_or(|observed| !self.is_ours(&observed.lease)) {
            return;
        }
        let deadline = Instant::now() + self.timing.retry;
        match timeout_at(deadline, self.give_up()).await {
            Ok(Ok(())) => info!(lease = self.candidate.lease, "given up"),
            Ok(Err(error)) => warn!(lease = self.candidate.lease, "could not be given up: {error}"),
            Err(_) => warn!(lease = self.candidate.lease, "could not be given up in {:?}", self.timing.retry),
        }
    }

    async fn give_up(&self) -> Result<(), ApiError> {
        // Read first: shutdown may have cut off a renewal whose answer would have told its version.
        let Some(mut lease) =
            self.leases.get(&self.candidate.lease).await?.filter(|lease| self.is_ours(lease))
        else {
            return Ok(());
        };
        lease.metadata.managed_fields = None;
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            spec.renew_time = Some(wall_clock());
        }
        self.leases.replace(&lease).await.map(drop)
    }
}

#[cfg(test)]
#[path = "election_tests.rs"]
mod tests;
