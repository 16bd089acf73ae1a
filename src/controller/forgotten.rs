//! Mounts that agents report and the API server does not account for (rule R7): which volumes must not be granted
//! beside them, and until when.
//!
//! A PluginInstance describes them, and is gone with its Node, its socket or its Plugin while they are in use. So the Lease
//! of the agent names their volumes too, and one of both is enough.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt as _;

use super::caches::{BY_FORGOTTEN, node_of_lease};
use super::context::Context;
use super::instances::Instances;
use super::key::Key;
use super::known::Known;
use crate::api::PluginInstance;
use crate::api::instance::UNREADABLE;
use crate::api::names::AGENTS;
use crate::claim::{ForgottenSeen, Mount};
use crate::heartbeat::{AgentOnNode, Forgotten};
use crate::k8s::ApiError;
use crate::k8s::read::get_live;

/// An agent that reports forgotten mounts, or has yet to say whether it has any.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Reporter {
    /// Name of the agent's Node. A very long one cannot be read from the name of its Lease where no such Node is
    /// known; then this is the name of the Lease.
    node: String,
    agent: AgentOnNode,
}

impl Reporter {
    fn of_instance(instance: &PluginInstance) -> Self {
        Self { node: instance.spec.node_name.clone(), agent: AgentOnNode::of_instance(instance) }
    }

    fn of_lease(known: &Known, lease: &Lease) -> Self {
        let node = node_of_lease(&known.nodes, lease).unwrap_or_else(|| lease.name_any());
        Self { node, agent: AgentOnNode::of_lease(lease) }
    }

    fn is_silent(&self, known: &Known) -> bool {
        known.leases.silent_for(&self.agent).is_some()
    }

    /// Whether the agent is silent and its node is gone or off, as far as the caches know: see [`have_ended`]. A
    /// report ends with its node: nothing is mounted on a machine that is off, and nobody else could say so.
    fn has_ended(&self, known: &Known) -> bool {
        let node = known.nodes.get(&self.node).filter(|node| node.uid() == self.agent.node_uid);
        let in_service = node.is_some_and(|node| !node.is_out_of_service());
        // Of a Node whose name is not known nobody can be asked whether it is gone.
        self.is_silent(known) && !in_service && self.node != self.agent.lease
    }
}

/// What the agents report about one VolumeHandle.
#[derive(Default)]
pub(crate) struct Reports {
    /// What is mounted, or may be, by the name of its node.
    pub(crate) mounts: BTreeMap<String, ForgottenSeen>,
    /// Agents that report it from a node that is gone or off, as far as the caches know: see [`have_ended`].
    pub(crate) ended: BTreeSet<Reporter>,
}

/// Collects what agents report about a VolumeHandle. An agent stages no more than it can report, so what is not
/// reported is not there.
pub(crate) fn reports(known: &Known, instances: &Instances, handle_name: &str) -> Reports {
    let mut reports = Reports::default();
    // First: of an agent that is heard meanwhile, what it says is looked at after that.
    let awaited = awaited(known, instances);
    for instance in instances.forgetful() {
        let Some(mount) = mount(instance, handle_name) else { continue };
        reports.add(known, Reporter::of_instance(instance), instance.name_any(), mount);
    }
    for lease in known.lease_cache.by_index(BY_FORGOTTEN, handle_name) {
        reports.add(known, Reporter::of_lease(known, &lease), lease.name_any(), Mount::InLease);
    }
    for by in awaited {
        let lease = by.agent.lease.clone();
        reports.add(known, by, lease, Mount::NotSaid);
    }
    reports
}

/// The agents that have yet to say what they have mounted: see [`super::caution`].
fn awaited(known: &Known, instances: &[Arc<PluginInstance>]) -> BTreeSet<Reporter> {
    if !known.caution.is_on() {
        return BTreeSet::new();
    }
    let beside = instances.iter().map(|instance| Reporter::of_instance(instance));
    let mut all: BTreeSet<_> = beside.filter(|by| known.caution.awaits(&by.agent.lease)).collect();
    // A backup may have the agent's Lease and not its PluginInstance, or one of an earlier Node of that name.
    let leases = known.lease_cache.all().into_iter().filter(|lease| {
        let name = lease.name_any();
        name.starts_with(AGENTS) && known.caution.awaits(&name)
    });
    all.extend(leases.map(|lease| Reporter::of_lease(known, &lease)));
    // After all of them: who has just been heard may have said it.
    if !known.caution.is_restored() {
        all.retain(|by| !by.is_silent(known));
    }
    all
}

/// Ends caution when every agent was heard, or is not waited for. Asks for a look at all volumes then, and when
/// others than `before` are waited for: a claim says whom it waits for. Returns who that is now.
pub(crate) async fn settle(ctx: &Context, before: &BTreeSet<Reporter>) -> BTreeSet<Reporter> {
    if !ctx.caution.is_on() {
        return BTreeSet::new();
    }
    let (ended, awaited): (BTreeSet<_>, BTreeSet<_>) =
        awaited(ctx, &ctx.instances.all()).into_iter().partition(|by| by.has_ended(ctx));
    let over = awaited.is_empty() && have_ended(ctx, &ended).await.unwrap_or(false);
    if over {
        ctx.caution.end();
    }
    if over || awaited != *before {
        ctx.volumes.all().iter().for_each(|volume| ctx.queue.sweep(Key::of(volume)));
        // Also those of Volumes that were removed by hand.
        for attachment in ctx.attachments.all() {
            ctx.queue.sweep(Key::of_owner(&attachment.spec.volume));
        }
    }
    awaited
}

impl Reports {
    /// Adds a report. Of several by one agent the first counts, which says most.
    fn add(&mut self, known: &Known, by: Reporter, instance: String, mount: Mount) {
        if self.ended.contains(&by) || self.mounts.contains_key(&by.node) {
            return;
        }
        if by.has_ended(known) {
            self.ended.insert(by);
        } else {
            let node = by.node.clone();
            self.mounts.insert(by.node, ForgottenSeen { node, instance, mount });
        }
    }
}

/// Asks for a look at the volumes that Leases name when what is known of the agent or its node is another than `before`.
/// Returns what it is now, by the name of the Lease.
pub(crate) fn listen(known: &Known, before: &HashMap<String, bool>) -> HashMap<String, bool> {
    let mut now = HashMap::new();
    for lease in known.lease_cache.all() {
        let said = Forgotten::said_in(&lease);
        if said.is_empty() {
            continue;
        }
        let ended = Reporter::of_lease(known, &lease).has_ended(known);
        if before.get(&lease.name_any()) != Some(&ended) {
            said.names().for_each(|handle| wake(known, handle));
        }
        now.insert(lease.name_any(), ended);
    }
    now
}

fn mount(instance: &PluginInstance, handle_name: &str) -> Option<Mount> {
    let status = instance.status.as_ref()?;
    let found = status.forgotten.iter().find(|m| m.handle_name == handle_name);
    let reported = found.map(|m| match m.reason.as_str() {
        UNREADABLE => Mount::Unreadable(m.attachment_uid.as_str().into()),
        _ => Mount::Reported(m.attachment_uid.as_str().into()),
    });
    let named = || status.forgotten_handles.iter().any(|name| name == handle_name);
    reported.or_else(|| named().then_some(Mount::Named))
}

/// Asks for a look at the volumes that a Lease has ceased to name.
pub(crate) fn eased(known: &Known, before: Option<&Arc<Lease>>, after: Option<&Arc<Lease>>) {
    let named = |lease: Option<&Arc<Lease>>| lease.map(|l| Forgotten::said_in(l)).unwrap_or_default();
    let (said, says) = (named(before), named(after));
    said.names().filter(|handle| !says.has(handle)).for_each(|handle| wake(known, handle));
}

fn wake(known: &Known, handle: &str) {
    if let Some(handle) = known.handles.get(handle) {
        known.queue.sweep(Key::of_owner(&handle.spec.volume));
    }
}

/// Whether the nodes of reports that are not heeded any more are really out of the game, by live reads: before anything
/// is granted or deleted that such a report spoke of (rules R1, R4).
pub(crate) async fn have_ended(ctx: &Context, ended: &BTreeSet<Reporter>) -> Result<bool, ApiError> {
    for by in ended {
        let node = get_live(&ctx.node_api(), &by.node).await?;
        if node.is_some_and(|node| node.uid() == by.agent.node_uid && !node.is_out_of_service()) {
            return Ok(false);
        }
        // Last, because the agent may come back at any moment.
        ctx.leases.refresh(&ctx.lease_api, &by.agent.lease).await?;
        if !by.is_silent(ctx) {
            return Ok(false);
        }
    }
    Ok(true)
}
