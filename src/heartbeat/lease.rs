//! The Lease of an agent: its sign of life.
//!
//! It is renewed only while the agent makes progress (trap B27), and the agent starts no call
//! when its own renewal is older than half the duration (rule R2). So when the leader has seen
//! the Lease expired for longer than the longest call deadline, no call of this agent is running.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout},
};
use tracing::{error, info, warn};

use super::{History, Leftovers, Said, Word};
use crate::api::names::agent_lease_name;
use crate::k8s::backoff::spread;
use crate::k8s::lease::{Leases, holder, wall_clock};
use crate::k8s::{ApiError, Created};

/// How long the leader waits after the last renewal it saw.
pub const DURATION: Duration = Duration::from_secs(40);
/// Time between renewals.
pub const RENEW: Duration = Duration::from_secs(10);
/// Longest wait for one renewal: two attempts fit into the time that [`Renewal::may_call`] leaves.
const ATTEMPT: Duration = Duration::from_secs(4);
/// Time between a failed renewal and the next.
const RETRY: Duration = Duration::from_secs(2);
/// Shortest time between a renewal and one that only says that something was undone.
const SPACING: Duration = Duration::from_secs(1);

/// Annotation with the UID of the Node on which the agent runs.
pub const NODE_UID: &str = "moor.dev/node-uid";
/// Annotation with the boot id of that Node.
pub const BOOT_ID: &str = "moor.dev/boot-id";

/// What identifies an agent in its Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Unique to this process's Pod: its UID, or the boot id of the node where there is none.
    pub identity: String,
    /// UID of the Node on which it runs.
    pub node_uid: String,
    /// Boot id of that Node.
    pub boot_id: String,
}

/// A time in which an agent has renewed its Lease without a silence. What was read live in one says nothing in the next:
/// between the two, volumes may have been given to others (rule R2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term(u64);

/// The last renewal that succeeded.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// When it was sent.
    sent: Instant,
    term: Term,
}

/// How recently an agent has renewed its own Lease. Cheap to clone; asked before every call.
#[derive(Clone, Debug)]
pub struct Renewal {
    renewed: watch::Receiver<Option<Held>>,
    inherited: watch::Receiver<Option<Instant>>,
}

impl Renewal {
    /// Whether a CSI call may be started (rule R2).
    #[must_use]
    pub fn may_call(&self) -> bool {
        self.term().is_some()
    }

    /// The present term; None while no CSI call may be started: before the first renewal, when the last one was sent half the
    /// Lease's duration ago, after a 401 and after another agent took the Lease.
    #[must_use]
    pub fn term(&self) -> Option<Term> {
        let held = *self.renewed.borrow();
        held.filter(|held| held.sent.elapsed() < DURATION / 2).map(|held| held.term)
    }

    /// Whether a call of the Controller service may be started, where no call takes longer than `longest`.
    ///
    /// An agent that has taken the Lease from another machine under its Node's name waits until no call of that one can
    /// be running any more: it may have been cut off and not ended, and it made its calls by the same instance's name
    /// (rules R2, R9).
    #[must_use]
    pub fn may_call_controller(&self, longest: Duration) -> bool {
        let over = self.inherited.borrow().is_none_or(|since| since.elapsed() > longest + DURATION / 2);
        over && self.may_call()
    }

    /// As of an agent that has renewed its Lease at this time and not since.
    #[cfg(test)]
    pub(crate) fn of(last: Option<Instant>) -> Self {
        Self::in_term(1, last)
    }

    /// The same after as many silences.
    #[cfg(test)]
    pub(crate) fn in_term(term: u64, last: Option<Instant>) -> Self {
        let held = last.map(|sent| Held { sent, term: Term(term) });
        Self { renewed: watch::channel(held).1, inherited: watch::channel(None).1 }
    }

    /// Waits for the first renewal. Returns false if the Lease ended without one.
    #[cfg(test)]
    pub async fn first(&self) -> bool {
        self.renewed.clone().wait_for(Option::is_some).await.is_ok()
    }
}

/// How an agent's Lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentEnd {
    /// By shutdown; released, if the API server could be reached.
    ShutDown,
    /// Another agent has taken it, which it does only with the node's lock in hand. This one must end.
    Displaced,
    /// The API server has an older Lease than this agent wrote: etcd was restored.
    WentBack,
}

/// Lets the agent catch up after every silence that has ended. This runs beside the renewals, so the Lease stays
/// fresh however long it takes.
async fn catch_up(
    word: &impl Word,
    mut asked: watch::Receiver<u64>,
    tell: watch::Sender<u64>,
) -> std::convert::Infallible {
    let mut pause = RETRY;
    loop {
        let silence = *asked.borrow_and_update();
        if silence == *tell.borrow() {
            // The sender lives as long as this runs.
            let _ = asked.changed().await;
            continue;
        }
        match word.catch_up().await {
            Ok(()) => {
                pause = RETRY;
                tell.send_replace(silence);
            }
            Err(error) => {
                warn!("what was taken from this node: {error}");
                sleep(spread(pause, 0.5)).await;
                pause = (pause * 2).min(RENEW);
            }
        }
    }
}

/// What became of a renewal.
enum Renewed {
    Held,
    Displaced,
    WentBack,
}

/// The Lease of this agent. To be taken only with the node's lock in hand (trap B26).
pub struct AgentLease<L> {
    leases: L,
    name: String,
    holder: Holder,
    lease: Option<Lease>,
    history: Arc<History>,
    renewed: watch::Sender<Option<Held>>,
    /// When another machine was last seen to hold this Lease.
    inherited: watch::Sender<Option<Instant>>,
}

impl<L: Leases> AgentLease<L> {
    /// The Lease of `agent`, to be held by `holder`.
    pub fn new(leases: L, agent: &str, holder: Holder, history: Arc<History>) -> (Self, Renewal) {
        let (renewed, receiver) = watch::channel(None);
        let (inherited, inheritance) = watch::channel(None);
        let lease =
            Self { leases, name: agent_lease_name(agent), holder, lease: None, history, renewed, inherited };
        (lease, Renewal { renewed: receiver, inherited: inheritance })
    }

    /// Takes the Lease from whoever had it and renews it while there is progress. End all calls before `shutdown`: then
    /// the Lease is released, which tells the next agent of the node that none is running and that it need not wait.
    pub async fn run(mut self, word: impl Word, shutdown: impl Future<Output = ()>) -> AgentEnd {
        let mut shutdown = std::pin::pin!(shutdown);
        let ended = tokio::select! {
            () = &mut shutdown => AgentEnd::ShutDown,
            ended = self.hold(word) => ended,
        };
        self.renewed.send_replace(None);
        if ended == AgentEnd::ShutDown {
            self.release().await;
        }
        ended
    }

    /// Returns when another agent has taken the Lease, or the API server has forgotten a renewal.
    async fn hold(&mut self, word: impl Word) -> AgentEnd {
        // While the leader may take the Lease for expired it may take volumes from this node, and only while it is
        // fresh no more of them: so what was taken is found out after a renewal. Silences are counted, from 1; which is
        // the last that is to be looked into, and which was.
        let (ask, asked) = watch::channel(0_u64);
        let (tell, known) = watch::channel(0_u64);
        let history = self.history.clone();
        tokio::select! {
            ended = self.keep_renewing(&word, ask, known) => ended,
            never = catch_up(&word, asked, tell) => match never {},
            never = history.keep() => match never {},
        }
    }

    async fn keep_renewing(
        &mut self,
        word: &impl Word,
        ask: watch::Sender<u64>,
        mut known: watch::Receiver<u64>,
    ) -> AgentEnd {
        let mut silences = 0;
        loop {
            if let Err(stalled) = word.progress() {
                warn!(lease = self.name, "not renewed: {stalled}");
                sleep(RETRY).await;
                continue;
            }
            let sent = Instant::now();
            if self.renewed.borrow().is_none_or(|held| held.sent.elapsed() >= DURATION / 2) {
                silences += 1;
            }
            let caught_up = *known.borrow_and_update() == silences;
            let said = word.said(caught_up);
            let pause = match timeout(ATTEMPT, self.renew(&said)).await {
                Ok(Ok(Renewed::Held)) => {
                    self.renewed.send_replace(Some(Held { sent, term: Term(silences) }));
                    ask.send_if_modified(|last| std::mem::replace(last, silences) != silences);
                    spread(RENEW, 0.9).saturating_sub(sent.elapsed())
                }
                Ok(Ok(Renewed::Displaced)) => {
                    warn!(lease = self.name, "another agent has taken the Lease");
                    return AgentEnd::Displaced;
                }
                Ok(Ok(Renewed::WentBack)) => {
                    error!(lease = self.name, "older than what this agent has written: etcd was restored");
                    return AgentEnd::WentBack;
                }
                Ok(Err(error)) => {
                    warn!(lease = self.name, "renewal: {error}");
                    if matches!(error, ApiError::Unauthorized(_)) {
                        self.renewed.send_replace(None);
                    }
                    spread(RETRY, 0.5)
                }
                Err(_) => {
                    warn!(lease = self.name, "renewal: no answer in {ATTEMPT:?}");
                    spread(RETRY, 0.5)
                }
            };
            tokio::select! {
                () = sleep(pause) => {}
                () = async {
                    word.changed().await;
                    sleep_until(sent + SPACING).await;
                } => {}
                // Says at once what it is. The sender lives as long as this runs.
                Ok(()) = known.changed(), if said.leftovers == Leftovers::Any => {}
            }
        }
    }

    /// One renewal.
    async fn renew(&mut self, said: &Said) -> Result<Renewed, ApiError> {
        let held = self.renewed.borrow().is_some();
        // Taken: after anything but success the next attempt reads first.
        let before = match self.lease.take() {
            Some(lease) => Some(lease),
            None => self.leases.get(&self.name).await?,
        };
        let Some(before) = before else {
            let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
            let lease = self.next(Lease { metadata, spec: None }, said);
            if let Created::New(created) = self.leases.create(&lease).await? {
                return Ok(self.keep(created));
            }
            return Box::pin(self.renew(said)).await;
        };
        if self.history.is_behind(&before) {
            return Ok(Renewed::WentBack);
        }
        if held && !holder(&before).is_empty() && holder(&before) != self.holder.identity {
            return Ok(Renewed::Displaced);
        }
        if self.is_of_another_machine(&before) {
            self.inherited.send_replace(Some(Instant::now()));
        }
        let replaced = self.leases.replace(&self.next(before, said)).await?;
        Ok(self.keep(replaced))
    }

    fn keep(&mut self, written: Lease) -> Renewed {
        if self.history.is_behind(&written) {
            return Renewed::WentBack;
        }
        self.history.saw(&written);
        self.lease = Some(written);
        Renewed::Held
    }

    /// Whether the Lease is held, and was not released, by an agent of another Node and another boot than ours. On
    /// our machine the node's lock proves that the last agent has ended, and a reboot ends its calls.
    fn is_of_another_machine(&self, lease: &Lease) -> bool {
        let said = |key| lease.metadata.annotations.as_ref().and_then(|all| all.get(key));
        !holder(lease).is_empty()
            && said(NODE_UID).is_some_and(|uid| *uid != self.holder.node_uid)
            && said(BOOT_ID).is_some_and(|boot| *boot != self.holder.boot_id)
    }

    fn next(&self, mut lease: Lease, said: &Said) -> Lease {
        let Holder { identity, node_uid, boot_id } = &self.holder;
        let now = wall_clock();
        let same = holder(&lease) == identity;
        let before = lease.spec.take().unwrap_or_default();
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(identity.clone()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            acquire_time: before.acquire_time.filter(|_| same).or_else(|| Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(
                before.lease_transitions.map_or(0, |n| n.saturating_add(i32::from(!same))),
            ),
            ..LeaseSpec::default()
        });
        lease.metadata.managed_fields = None;
        let annotations = lease.metadata.annotations.get_or_insert_default();
        annotations.insert(NODE_UID.into(), node_uid.clone());
        annotations.insert(BOOT_ID.into(), boot_id.clone());
        said.say_in(&mut lease);
        self.history.say_in(&mut lease);
        lease
    }

    async fn release(&self) {
        match timeout(ATTEMPT, self.give_up()).await {
            Ok(Ok(())) => info!(lease = self.name, "released"),
            Ok(Err(error)) => warn!(lease = self.name, "could not be released: {error}"),
            Err(_) => warn!(lease = self.name, "could not be released in {ATTEMPT:?}"),
        }
    }

    async fn give_up(&self) -> Result<(), ApiError> {
        // Read first: shutdown may have cut off a renewal whose answer would have told its version.
        let ours = |lease: &Lease| holder(lease) == self.holder.identity;
        let Some(mut lease) = self.leases.get(&self.name).await?.filter(ours) else { return Ok(()) };
        if self.history.is_behind(&lease) {
            // A write would pass for a sign of life from a node that has reported what it has mounted.
            return Ok(());
        }
        lease.metadata.managed_fields = None;
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = Some(String::new());
        }
        self.leases.replace(&lease).await.map(drop)
    }
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
