//! Which agents are alive, as the leader has seen it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::ResourceExt;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::lease::{BOOT_ID, DURATION, NODE_UID};
use crate::api::claim::Assignment;
use crate::api::names::agent_lease_name;
use crate::api::{Attachment, PluginInstance};
use crate::k8s::ApiError;
use crate::k8s::lease::Leases;

/// Most Nodes that are remembered under one name though no object speaks of them: a node names its UID itself, and may
/// name another one each time.
const REMEMBERED: usize = 4;

/// Records when each agent's Lease was seen to change, on the leader's own clock. A leader that has just
/// started has seen nothing expire yet.
///
/// Agents are told apart by their name and the UID of their Node: under the name of a node that was
/// replaced, the new machine's renewals say nothing about the old one (rules R4, R9).
#[derive(Debug, Default)]
pub struct LeaseObserver {
    seen: Mutex<HashMap<String, Agents>>,
}

/// What was seen under the name of one Lease.
#[derive(Debug, Default)]
struct Agents {
    /// By UID of the Node.
    nodes: HashMap<String, Seen>,
    /// How many silences have ended under this name.
    silences: u64,
}

/// An agent on one machine. Under the name of a node that was replaced, the agent of the new machine renews the same
/// Lease.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentOnNode {
    /// Name of the agent's Lease.
    pub lease: String,
    /// UID of the Node on which it runs; empty where its Lease names none.
    pub node_uid: String,
}

impl AgentOnNode {
    /// The agent beside an instance.
    #[must_use]
    pub fn of_instance(instance: &PluginInstance) -> Self {
        let spec = &instance.spec;
        Self { lease: agent_lease_name(&spec.agent), node_uid: spec.node_uid.clone() }
    }

    /// The agent on the node that an Attachment was made for.
    #[must_use]
    pub fn of_attachment(attachment: &Attachment) -> Self {
        let spec = &attachment.spec;
        Self { lease: agent_lease_name(&spec.node_name), node_uid: spec.fixed.node_uid.clone() }
    }

    /// The agent on the node that a claim was assigned to.
    #[must_use]
    pub fn of_assignment(assignment: &Assignment) -> Self {
        Self { lease: agent_lease_name(&assignment.node_name), node_uid: assignment.node_uid.clone() }
    }

    /// The agent on a node.
    #[must_use]
    pub fn on(node: &str, node_uid: String) -> Self {
        Self { lease: agent_lease_name(node), node_uid }
    }

    /// The agent that a Lease names.
    #[must_use]
    pub fn of_lease(lease: &Lease) -> Self {
        let node_uid = lease.annotations().get(NODE_UID).cloned().unwrap_or_default();
        Self { lease: lease.name_any(), node_uid }
    }
}

/// An agent whose Lease is fresh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeardAgent {
    /// UID of the Node on which it runs.
    pub node_uid: String,
    /// Boot id of that Node; empty if its Lease names none.
    pub boot_id: String,
}

#[derive(Debug)]
struct Seen {
    /// The Lease as it was seen last; None while none was.
    spec: Option<LeaseSpec>,
    /// The boot that the Lease names.
    boot_id: String,
    at: Instant,
    /// Whether the Lease was seen to change, and not only to be there.
    renewed: bool,
}

impl LeaseObserver {
    /// Takes in a Lease of an agent. Fits [`crate::k8s::Cache::on_change`]. That a Lease is gone is no
    /// renewal, so it changes nothing: it expires from its last change on.
    pub fn changed(&self, _before: Option<&Arc<Lease>>, after: Option<&Arc<Lease>>) {
        if let Some(lease) = after {
            self.observe(lease);
        }
    }

    /// Takes in a Lease of an agent. One that is older than the last, of a watch that lags, counts as a renewal: it lets a
    /// silence be seen later, never sooner. Versions are not compared, because a restored etcd begins with lower ones.
    pub fn observe(&self, lease: &Lease) {
        let AgentOnNode { lease: name, node_uid } = AgentOnNode::of_lease(lease);
        let boot_id = lease.annotations().get(BOOT_ID).cloned().unwrap_or_default();
        let now = Instant::now();
        let mut seen = self.seen.lock();
        let agents = seen.entry(name).or_default();
        let before = agents.nodes.get(&node_uid);
        if before.is_some_and(|before| before.spec == lease.spec) {
            return;
        }
        let was_silent = |seen: Option<&Seen>| seen.is_some_and(|seen| seen.expired(now).is_some());
        if was_silent(before) || was_silent(agents.last()) {
            agents.silences += 1;
        }
        let renewed = before.is_some_and(|before| before.spec.is_some());
        agents.nodes.insert(node_uid, Seen { renewed, spec: lease.spec.clone(), boot_id, at: now });
    }

    /// For how long the Lease of this name (see [`agent_lease_name`]) has been expired, whoever held it; None while it is
    /// fresh, or not yet watched for long enough. A Lease never seen expires from the first question on. A stalled watch
    /// looks like an expired Lease: [`LeaseObserver::refresh`] comes before anything is taken from the agent.
    #[must_use]
    pub fn expired_for(&self, lease: &str) -> Option<Duration> {
        self.expired(lease, None)
    }

    /// As [`LeaseObserver::expired_for`], for the agent on one machine: what another one under the same name renews does
    /// not count (rule R4).
    #[must_use]
    pub fn silent_for(&self, agent: &AgentOnNode) -> Option<Duration> {
        self.expired(&agent.lease, Some(&agent.node_uid))
    }

    /// The agents under the name of this one whose Leases are fresh, without itself, in the order of their UIDs. One that
    /// was not yet seen to renew its Lease is among them: a leader that has just started does not know that it is silent.
    #[must_use]
    pub fn heard_beside(&self, agent: &AgentOnNode) -> Vec<HeardAgent> {
        let now = Instant::now();
        let all = self.seen.lock();
        let agents = all.get(&agent.lease).into_iter().flat_map(|agents| &agents.nodes);
        let fresh = agents.filter(|(uid, seen)| {
            **uid != agent.node_uid && seen.spec.is_some() && seen.expired(now).is_none()
        });
        let mut heard: Vec<HeardAgent> = fresh
            .map(|(uid, seen)| HeardAgent { node_uid: uid.clone(), boot_id: seen.boot_id.clone() })
            .collect();
        heard.sort_by(|a, b| a.node_uid.cmp(&b.node_uid));
        heard
    }

    /// Whether this agent was seen to renew its Lease, and the Lease is still fresh. A leader that has just started knows
    /// this of nobody, as little as that somebody is silent.
    #[must_use]
    pub fn is_heard(&self, agent: &AgentOnNode) -> bool {
        let all = self.seen.lock();
        let seen = all.get(&agent.lease).and_then(|agents| agents.nodes.get(&agent.node_uid));
        seen.is_some_and(|seen| seen.renewed && seen.expired(Instant::now()).is_none())
    }

    /// How many silences were seen to end under this name. Whoever asks now and then learns of one that has begun and
    /// ended in between only by this.
    #[must_use]
    pub fn silences(&self, lease: &str) -> u64 {
        self.seen.lock().get(lease).map_or(0, |agents| agents.silences)
    }

    /// Takes in the Lease of this name as it is now (rule R1).
    pub async fn refresh(&self, leases: &impl Leases, lease: &str) -> Result<(), ApiError> {
        if let Some(live) = leases.get(lease).await? {
            self.observe(&live);
        }
        Ok(())
    }

    /// Forgets the Nodes under this name, except those that are `known`, the one that was seen last, and the last few that
    /// are heard yet: the machine of one may be that of a Node which is about to be lost. A forgotten agent that is asked
    /// about once more counts as silent only from then on, so nothing is concluded too early.
    pub fn keep(&self, lease: &str, known: impl Fn(&str) -> bool) {
        let now = Instant::now();
        if let Some(agents) = self.seen.lock().get_mut(lease) {
            let last = agents.last().map(|last| last.at);
            let fresh = agents.nodes.iter().filter(|(uid, seen)| !known(uid) && seen.expired(now).is_none());
            let mut fresh: Vec<Instant> = fresh.map(|(_, seen)| seen.at).collect();
            fresh.sort_unstable();
            let kept = fresh.into_iter().rev().take(REMEMBERED).next_back().or(last);
            agents.nodes.retain(|uid, seen| known(uid) || Some(seen.at) >= kept);
        }
    }

    /// Forgets a Lease that was removed for good.
    pub fn forget(&self, lease: &str) {
        self.seen.lock().remove(lease);
    }

    fn expired(&self, lease: &str, node_uid: Option<&str>) -> Option<Duration> {
        let now = Instant::now();
        let mut seen = self.seen.lock();
        let agents = seen.entry(lease.to_owned()).or_default();
        let last = match node_uid {
            Some(uid) => agents.nodes.get(uid),
            None => agents.last(),
        };
        let Some(last) = last else {
            let unseen = Seen { spec: None, boot_id: String::new(), at: now, renewed: false };
            agents.nodes.insert(node_uid.unwrap_or_default().to_owned(), unseen);
            return None;
        };
        last.expired(now)
    }
}

impl Agents {
    /// The agent that was seen last under this name.
    fn last(&self) -> Option<&Seen> {
        self.nodes.values().max_by_key(|seen| seen.at)
    }
}

impl Seen {
    fn expired(&self, now: Instant) -> Option<Duration> {
        let seconds = self.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
        let duration = seconds.and_then(|s| u64::try_from(s).ok()).map_or(DURATION, Duration::from_secs);
        // No agent asks for longer, and one that does must not be heard for ever.
        now.duration_since(self.at).checked_sub(duration.min(DURATION))
    }
}

#[cfg(test)]
#[path = "observer_tests.rs"]
mod tests;
