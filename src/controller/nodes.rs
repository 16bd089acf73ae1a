//! Observe: what is known of nodes and of the agents on them.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;

use super::caches::BY_AGENT;
use super::known::Known;
use crate::api::{Attachment, PluginInstance};
use crate::attachment::loss::{Heard, Machine, NodeFacts, NodeNow};
use crate::heartbeat::AgentOnNode;
use crate::heartbeat::lease::DURATION;
use crate::k8s::Named;
use crate::k8s::node::LeanNode;
use crate::plugin;

/// What is known of an Attachment's node, with `node` as it was read last.
pub(crate) fn node_facts(known: &Known, attachment: &Attachment, node: Option<&LeanNode>) -> NodeFacts {
    let fixed = &attachment.spec.fixed;
    let others = known.leases.heard_beside(&AgentOnNode::of_attachment(attachment)).into_iter();
    NodeFacts {
        machine: Machine {
            node_uid: fixed.node_uid.clone(),
            node_id: fixed.node_id.clone(),
            boot_id: fixed.boot_id.clone(),
        },
        now: node_now(known, attachment, node),
        silent: is_silent(known, attachment),
        heard: others
            .map(|agent| Heard {
                node_id: node_id(known, attachment, &agent.node_uid),
                boot_id: agent.boot_id,
            })
            .collect(),
    }
}

/// Whether the agent on an Attachment's node is silent.
pub(crate) fn is_silent(known: &Known, attachment: &Attachment) -> bool {
    known.leases.silent_for(&AgentOnNode::of_attachment(attachment)).is_some()
}

/// What is known of an Attachment's node from the caches alone.
pub(crate) fn cached_facts(known: &Known, attachment: &Attachment) -> NodeFacts {
    node_facts(known, attachment, known.nodes.get(&attachment.spec.node_name).as_deref())
}

fn node_now(known: &Known, attachment: &Attachment, node: Option<&LeanNode>) -> NodeNow {
    let Some(node) = node else { return NodeNow::Gone };
    // Only asked of another Node than the recorded one: whether it is another machine.
    let is_another = node.uid() != attachment.spec.fixed.node_uid;
    NodeNow::There {
        uid: node.uid().to_owned(),
        out_of_service: node.is_out_of_service(),
        boot_id: node.boot_id().to_owned(),
        node_id: is_another.then(|| node_id(known, attachment, node.uid())).flatten(),
    }
}

/// The name that the Attachment's driver has for the machine of the Node with this UID.
fn node_id(known: &Known, attachment: &Attachment, node_uid: &str) -> Option<String> {
    let driver = &attachment.spec.fixed.driver_name;
    let instances = known.instances.by_index(BY_AGENT, &attachment.spec.node_name);
    let here = |i: &&Arc<PluginInstance>| i.spec.node_uid == node_uid && plugin::counts(i, driver);
    instances.iter().filter(here).find_map(|i| {
        let status = i.status.as_ref()?;
        (status.node && !status.node_id.is_empty()).then(|| status.node_id.clone())
    })
}

/// Whether the agent of an instance is heard, as far as this process can know.
pub(crate) fn is_heard(known: &Known, instance: &PluginInstance) -> bool {
    known.silent_for(instance).is_none() && !is_stale(known, instance)
}

/// Whether an instance's agent may have been silent for long before this process began to watch its Lease: until
/// the agent is heard, its Lease has to name a recent time. Times of two machines are compared here, where a
/// wrong one only makes a claim wait for the next renewal.
fn is_stale(known: &Known, instance: &PluginInstance) -> bool {
    let agent = AgentOnNode::of_instance(instance);
    if known.leases.is_heard(&agent) {
        return false;
    }
    let lease = known.lease_cache.get_in(Named { namespace: &known.namespace, name: &agent.lease });
    lease.is_none_or(|lease| is_out_of_date(&lease, Timestamp::now()))
}

/// Whether a Lease was last renewed longer ago than it lasts, or in the future, by the times that it names.
fn is_out_of_date(lease: &Lease, now: Timestamp) -> bool {
    let Some(spec) = &lease.spec else { return true };
    let lasts = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let lasts = lasts.map_or(DURATION, Duration::from_secs).min(DURATION);
    spec.renew_time.as_ref().is_none_or(|renewed| now.duration_since(renewed.0).unsigned_abs() > lasts)
}

/// Whether a node is in service: nothing new goes to one that is marked as off.
pub(crate) fn in_service(known: &Known, node: &str) -> bool {
    known.nodes.get(node).is_some_and(|n| !n.is_out_of_service())
}

/// Whether the Node of an instance is there and not marked as off.
pub(crate) fn is_in_service(known: &Known, instance: &PluginInstance) -> bool {
    let node = known.nodes.get(&instance.spec.node_name);
    node.is_some_and(|node| node.uid() == instance.spec.node_uid && !node.is_out_of_service())
}

/// How silent an agent is, in the steps at which somebody has to look.
pub(crate) fn degree(silent: Option<Duration>, longest_call: Duration) -> u8 {
    match silent {
        None => 0,
        Some(silent) if silent <= longest_call => 1,
        Some(_) => 2,
    }
}
