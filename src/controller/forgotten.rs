//! Mounts that agents report and the API server does not account for (rule R7): which volumes must not be granted
//! beside them, and until when.
//!
//! A PluginInstance describes them, and is gone with its Node, its socket or its Plugin while they are in use. So the Lease
//! of the agent names their volumes too, and one of both is enough.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt as _;

use super::caches::{BY_FORGOTTEN, node_of_lease};
use super::context::Context;
use super::instances::Instances;
use super::key::{Key, key_of, key_of_volume};
use crate::api::instance::UNREADABLE;
use crate::api::names::{AGENTS, agent_lease_name};
use crate::api::{PluginInstance, VolumeHandle};
use crate::claim::{ForgottenSeen, Mount};
use crate::heartbeat::Forgotten;
use crate::heartbeat::lease::NODE_UID;
use crate::k8s::read::get_live;
use crate::k8s::{ApiError, Cache, Queue};

/// An agent that reports forgotten mounts, or has yet to say whether it has any.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reporter {
    /// Name of the agent's Node. A very long one cannot be read from the name of its Lease where no such Node is
    /// known; then this is the name of the Lease.
    node: String,
    node_uid: String,
    lease: String,
}

impl Reporter {
    fn of_instance(instance: &PluginInstance) -> Self {
        let spec = &instance.spec;
        let lease = agent_lease_name(&spec.agent);
        Self { node: spec.node_name.clone(), node_uid: spec.node_uid.clone(), lease }
    }

    fn of_lease(ctx: &Context, lease: &Lease) -> Self {
        let name = lease.name_any();
        let node = node_of_lease(&ctx.nodes, lease).unwrap_or_else(|| name.clone());
        Self { node, node_uid: lease.annotations().get(NODE_UID).cloned().unwrap_or_default(), lease: name }
    }

    fn is_silent(&self, ctx: &Context) -> bool {
        ctx.leases.expired_on_node_for(&self.lease, &self.node_uid).is_some()
    }

    /// Whether the agent is silent and its node is gone or off, as far as the caches know: see [`have_ended`]. A
    /// report ends with its node: nothing is mounted on a machine that is off, and nobody else could say so.
    fn has_ended(&self, ctx: &Context) -> bool {
        let node = ctx.nodes.get(&self.node).filter(|node| node.uid() == self.node_uid);
        let in_service = node.is_some_and(|node| !node.is_out_of_service());
        // Of a Node whose name is not known nobody can be asked whether it is gone.
        self.is_silent(ctx) && !in_service && self.node != self.lease
    }
}

/// What the agents report about one VolumeHandle.
#[derive(Default)]
pub(crate) struct Reports {
    /// The nodes on which the volume is mounted, or may be.
    pub(crate) mounts: Vec<ForgottenSeen>,
    /// Agents that report it from a node that is gone or off, as far as the caches know: see [`have_ended`].
    pub(crate) ended: Vec<Reporter>,
    /// The nodes of `mounts` and the agents in `ended`, so that a pass costs no more than there are agents.
    nodes: HashSet<String>,
    over: HashSet<Reporter>,
}

/// Collects what agents report about a VolumeHandle. An agent stages no more than it can report, so what is not
/// reported is not there.
pub(crate) fn reports(ctx: &Context, instances: &Instances, handle_name: &str) -> Reports {
    let mut reports = Reports::default();
    // First: of an agent that is heard meanwhile, what it says is looked at after that.
    let awaited = awaited(ctx, instances);
    for instance in instances.forgetful() {
        let Some(mount) = mount(instance, handle_name) else { continue };
        reports.add(ctx, Reporter::of_instance(instance), instance.name_any(), mount);
    }
    for lease in ctx.lease_cache.by_index(BY_FORGOTTEN, handle_name) {
        reports.add(ctx, Reporter::of_lease(ctx, &lease), lease.name_any(), Mount::InLease);
    }
    for by in awaited {
        let lease = by.lease.clone();
        reports.add(ctx, by, lease, Mount::NotSaid);
    }
    reports
}

/// The agents that have yet to say what they have mounted: see [`super::caution`].
fn awaited(ctx: &Context, instances: &[Arc<PluginInstance>]) -> Vec<Reporter> {
    if !ctx.caution.is_on() {
        return Vec::new();
    }
    let beside = instances.iter().map(|instance| Reporter::of_instance(instance));
    let mut all: Vec<_> = beside.filter(|by| ctx.caution.awaits(&by.lease)).collect();
    // A backup may have the agent's Lease and not its PluginInstance, or one of an earlier Node of that name.
    let leases = ctx.lease_cache.all().into_iter().filter(|lease| {
        let name = lease.name_any();
        name.starts_with(AGENTS) && ctx.caution.awaits(&name)
    });
    all.extend(leases.map(|lease| Reporter::of_lease(ctx, &lease)));
    // After all of them: who has just been heard may have said it.
    if !ctx.caution.is_restored() {
        all.retain(|by| !by.is_silent(ctx));
    }
    all
}

/// Ends caution when every agent was heard, or is not waited for. Asks for a look at all volumes then, and when
/// others than `before` are waited for: a claim says whom it waits for. Returns who that is now.
pub(crate) async fn settle(ctx: &Context, before: &[Reporter]) -> Vec<Reporter> {
    if !ctx.caution.is_on() {
        return Vec::new();
    }
    let (ended, awaited): (Vec<_>, Vec<_>) =
        awaited(ctx, &ctx.instances.all()).into_iter().partition(|by| by.has_ended(ctx));
    let over = awaited.is_empty() && have_ended(ctx, &ended).await.unwrap_or(false);
    if over {
        ctx.caution.end();
    }
    if over || awaited != before {
        ctx.volumes.all().iter().for_each(|volume| ctx.queue.sweep(key_of_volume(volume)));
        // Also those of Volumes that were removed by hand.
        for attachment in ctx.attachments.all() {
            let of = &attachment.spec.volume;
            ctx.queue.sweep(key_of(&of.namespace, &of.name));
        }
    }
    awaited
}

impl Reports {
    /// Adds a report. Of several by one agent the first counts, which says most.
    fn add(&mut self, ctx: &Context, by: Reporter, instance: String, mount: Mount) {
        if self.over.contains(&by) || self.nodes.contains(&by.node) {
            return;
        }
        if by.has_ended(ctx) {
            self.over.insert(by.clone());
            self.ended.push(by);
        } else {
            self.nodes.insert(by.node.clone());
            self.mounts.push(ForgottenSeen { node: by.node, instance, mount });
        }
    }
}

/// Asks for a look at the volumes that Leases name when what is known of the agent or its node is another than `before`.
/// Returns what it is now, by the name of the Lease.
pub(crate) fn listen(ctx: &Context, before: &HashMap<String, bool>) -> HashMap<String, bool> {
    let mut now = HashMap::new();
    for lease in ctx.lease_cache.all() {
        let said = Forgotten::said_in(&lease);
        if said.is_empty() {
            continue;
        }
        let ended = Reporter::of_lease(ctx, &lease).has_ended(ctx);
        if before.get(&lease.name_any()) != Some(&ended) {
            said.names().for_each(|handle| wake(&ctx.queue, &ctx.handles, handle));
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
pub(crate) fn eased(
    queue: &Queue<Key>,
    handles: &Cache<VolumeHandle>,
    before: Option<&Arc<Lease>>,
    after: Option<&Arc<Lease>>,
) {
    let named = |lease: Option<&Arc<Lease>>| lease.map(|l| Forgotten::said_in(l)).unwrap_or_default();
    let (said, says) = (named(before), named(after));
    said.names().filter(|handle| !says.has(handle)).for_each(|handle| wake(queue, handles, handle));
}

fn wake(queue: &Queue<Key>, handles: &Cache<VolumeHandle>, handle: &str) {
    if let Some(handle) = handles.get(handle) {
        queue.sweep(key_of(&handle.spec.volume.namespace, &handle.spec.volume.name));
    }
}

/// Whether the nodes of reports that are not heeded any more are really out of the game, by live reads: before anything
/// is granted or deleted that such a report spoke of (rules R1, R4).
pub(crate) async fn have_ended(ctx: &Context, ended: &[Reporter]) -> Result<bool, ApiError> {
    for by in ended {
        let node = get_live(&ctx.node_api(), &by.node).await?;
        if node.is_some_and(|node| node.uid() == by.node_uid && !node.is_out_of_service()) {
            return Ok(false);
        }
        // Last, because the agent may come back at any moment.
        if ctx.leases.confirm_expired(&ctx.lease_api, &by.lease, Some(&by.node_uid)).await?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}
