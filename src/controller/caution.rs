//! Caution after a time without a leader: etcd may have been set back to a backup meanwhile (rule R7, trap N15).
//!
//! A controller keeps nothing on disk, so a new process cannot tell. Agents can, and an agent that has found it out renews
//! its Lease only after it has reported what it has mounted. So nothing is granted beside a node before its agent was
//! heard. One that is silent is waited for as long as its Lease lasts, unless the Lease of any agent says that etcd was
//! restored: then until it is heard, or its node is gone or off. To wait for that after every gap in leadership would let
//! one dead node hold up all grants.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, ResourceExt as _};
use parking_lot::Mutex;

use crate::api::names::AGENTS;
use crate::heartbeat::Restored;
use crate::k8s::ApiError;
use crate::k8s::lease::{Handover, revision};
use crate::k8s::read::list_live;

/// Longest time without a renewal of the leader's Lease that calls for no caution. A leader renews it every two
/// seconds, and a new one takes over within seconds; etcd is not restored in that time.
const GAP: Duration = Duration::from_secs(5);

/// Annotation on the leader's Lease that makes whoever leads next as cautious. It says [`RESTORED`], or which version
/// the Lease had when the caution began.
const CAUTIOUS: &str = "moor.dev/cautious";
const RESTORED: &str = "etcd was restored";

/// Whether the leader is cautious, and what the agents' Leases have said.
#[derive(Debug, Default)]
pub(crate) struct Caution(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    on: Option<On>,
    /// The latest revision at which an agent first said that etcd was restored.
    word: u64,
}

#[derive(Debug)]
struct On {
    /// What calls for caution.
    cause: Cause,
    /// Versions that the agents' Leases had at the start, by name.
    at_start: HashMap<String, u64>,
    /// Names of the Leases that were written or deleted since.
    heard: HashSet<String>,
}

/// What calls for caution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// Nobody led for a while, since this version of the leader's Lease. An agent that says only later that etcd was
    /// restored speaks of this time.
    Gap(u64),
    /// etcd was restored.
    Restored,
}

impl Cause {
    fn said_in(lease: &Lease) -> Option<Self> {
        let said = lease.metadata.annotations.as_ref()?.get(CAUTIOUS)?;
        let since = || said.parse().unwrap_or_else(|_| revision(lease));
        Some(if said == RESTORED { Self::Restored } else { Self::Gap(since()) })
    }
}

impl State {
    fn cause(&self) -> Option<Cause> {
        self.on.as_ref().map(|on| match on.cause {
            Cause::Gap(since) if self.word <= since => on.cause,
            Cause::Gap(_) | Cause::Restored => Cause::Restored,
        })
    }

    /// Takes in an agent's Lease. That the agent is heard and what it says are taken in at once: else it could count
    /// as heard before what it says does.
    fn hear(&mut self, name: &str, lease: Option<&Lease>) {
        if !name.starts_with(AGENTS) {
            return;
        }
        self.word = self.word.max(lease.and_then(Restored::said_in).unwrap_or(0));
        let Some(on) = &mut self.on else { return };
        let before = on.at_start.get(name).copied().unwrap_or(0);
        // A Lease is removed where its node is gone, or by somebody who knows what he does.
        if lease.is_none_or(|lease| revision(lease) > before) {
            on.heard.insert(name.to_owned());
        }
    }
}

/// Hands caution on to the next leader, which finds a Lease that was renewed a moment ago and would not be cautious
/// by itself.
impl Handover for Caution {
    fn tell(&self, lease: &mut Lease) {
        let annotations = lease.metadata.annotations.get_or_insert_default();
        match self.0.lock().cause() {
            Some(Cause::Restored) => annotations.insert(CAUTIOUS.into(), RESTORED.into()),
            Some(Cause::Gap(since)) => annotations.insert(CAUTIOUS.into(), since.to_string()),
            None => annotations.remove(CAUTIOUS),
        };
    }

    fn knows(&self, lease: &Lease) -> bool {
        match Cause::said_in(lease) {
            Some(Cause::Restored) => self.is_restored(),
            Some(Cause::Gap(_)) => self.is_on(),
            None => true,
        }
    }
}

impl Caution {
    /// Finds out whether to be cautious, from the Leases as they are before the leader's is taken.
    pub(crate) async fn begin(&self, leases: &Api<Lease>, leader: &str) -> Result<(), ApiError> {
        let all = list_live(leases, None).await?;
        // Without a Lease nobody has ever led, in a backup neither, so it has no grants.
        let led = all.iter().find(|lease| lease.name_any() == leader);
        if let Some(cause) = led.and_then(|led| cause(led, Timestamp::now())) {
            self.raise(cause, &all);
            tracing::info!("nobody led for a while; grants wait until the agents were heard");
        }
        Ok(())
    }

    fn raise(&self, cause: Cause, leases: &[Lease]) {
        let at_start = leases.iter().map(|lease| (lease.name_any(), revision(lease)));
        let mut state = self.0.lock();
        state.on = Some(On { cause, at_start: at_start.collect(), heard: HashSet::new() });
        for lease in leases {
            state.hear(&lease.name_any(), Some(lease));
        }
    }

    /// Takes in a Lease, or that it was deleted. Fits [`crate::k8s::Cache::on_change`].
    pub(crate) fn changed(&self, before: Option<&Lease>, after: Option<&Lease>) {
        if let Some(lease) = after.or(before) {
            self.0.lock().hear(&lease.name_any(), after);
        }
    }

    /// Whether the agent with this Lease has yet to be heard.
    pub(crate) fn awaits(&self, lease: &str) -> bool {
        self.0.lock().on.as_ref().is_some_and(|on| !on.heard.contains(lease))
    }

    /// Whether the leader is cautious.
    pub(crate) fn is_on(&self) -> bool {
        self.0.lock().on.is_some()
    }

    /// Whether etcd was restored, and not everybody was heard since. To be asked after [`Self::awaits`]: of an agent that
    /// has just been heard its word counts too.
    pub(crate) fn is_restored(&self) -> bool {
        self.0.lock().cause() == Some(Cause::Restored)
    }

    /// Ends caution: every agent was heard, or is not waited for.
    pub(crate) fn end(&self) {
        self.0.lock().on = None;
    }
}

/// The caution that the leader's Lease calls for, as the last leader has left it.
fn cause(led: &Lease, now: Timestamp) -> Option<Cause> {
    let renewed = led.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
    let gap = || renewed.is_none_or(|time| is_gap(time.0, now)).then(|| Cause::Gap(revision(led)));
    Cause::said_in(led).or_else(gap)
}

/// Whether the last renewal is long enough ago to be a gap in leadership. A time in the future is one of a clock that
/// jumped, and counts as a gap.
fn is_gap(renewed: Timestamp, now: Timestamp) -> bool {
    Duration::try_from(now.duration_since(renewed)).map_or(true, |age| age > GAP)
}

#[cfg(test)]
#[path = "caution_tests.rs"]
mod tests;
