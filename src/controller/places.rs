//! Observe: the nodes that a Volume's claims could be placed on.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::instances::Instances;
use super::key::Place;
use super::known::Known;
use super::nodes::{in_service, is_heard, is_in_service};
use crate::api::instance::Service;
use crate::api::names::agent_lease_name;
use crate::api::volume::Segments;
use crate::api::{Attachment, PluginInstance, Volume, VolumeState};
use crate::attachment::same_node_id::attached_as;
use crate::claim::observed::{has_room, reaches};
use crate::claim::{ClaimSeen, NodeSeen};
use crate::heartbeat::Leftovers;
use crate::k8s::Named;
use crate::plugin;

/// The nodes that admission asks about: where the volume is and those that waiting claims name. None where a claim waits
/// for whatever node, which are all. A look at each of thousands of nodes is not for every Volume.
pub(super) fn wanted_nodes(claims: &[ClaimSeen], locks: &[Arc<Attachment>]) -> Option<BTreeSet<String>> {
    let waiting = claims.iter().filter(|c| c.wants_grant()).map(|c| c.node.clone());
    waiting.chain(locks.iter().map(|a| Some(a.spec.node_name.clone()))).collect()
}

pub(super) fn nodes(
    known: &Known,
    volume: Option<&Volume>,
    (driver, handle_name): (&str, Option<&str>),
    instances: &Instances,
    wanted: Option<&BTreeSet<String>>,
    locks: &[Arc<Attachment>],
    selected: bool,
) -> Vec<NodeSeen> {
    let accessible = volume.map_or(&[][..], accessible);
    let is_late = volume.is_some_and(Volume::is_to_be_placed);
    let standing = instances.with_ids_of(wanted).filter(|i| is_in_service(known, i)).map(|i| &**i);
    let twins = plugin::twins(standing);
    let all = instances.on_those(wanted);
    let serving = all.filter_map(|i| Some((i, i.status.as_ref().filter(|s| s.node)?)));
    serving
        .map(|(i, status)| {
            let node = i.spec.node_name.as_str();
            let load = known.load(&Place { driver: driver.to_owned(), node: node.to_owned() });
            let object = known.nodes.get(node);
            let twin = twins.get(node).copied().or_else(|| attached_as(node, &status.node_id, locks));
            NodeSeen {
                name: node.to_owned(),
                uid: i.spec.node_uid.clone(),
                healthy: status.is_healthy_for(Service::Node)
                    && is_heard(known, i)
                    && in_service(known, node),
                reachable: reaches(accessible, &status.topology),
                unclean: handle_name.is_some_and(|name| is_unclean(known, i, name)),
                twin: twin.map(str::to_owned),
                has_room: has_room(status.max_volumes, load),
                retires: object.as_ref().is_some_and(|n| n.retires()),
                labels: object
                    .filter(|_| selected)
                    .and_then(|n| n.metadata.labels.clone())
                    .unwrap_or_default(),
                load,
                topology: if is_late { status.topology.clone() } else { Segments::default().segments },
            }
        })
        .collect()
}

/// Where the volume is, or while it is to be made, where it must be.
fn accessible(volume: &Volume) -> &[Segments] {
    let asked = volume.spec.topology.as_ref().filter(|_| volume.state() == VolumeState::Pending);
    match &volume.status {
        Some(status) if !status.accessible_topology.is_empty() => &status.accessible_topology,
        _ => asked.map_or(&[][..], |asked| &asked.required),
    }
}

/// Whether the agent's Lease says that its node has leftovers of this handle.
fn is_unclean(known: &Known, instance: &PluginInstance, handle_name: &str) -> bool {
    let lease = known
        .lease_cache
        .get_in(Named { namespace: &known.namespace, name: &agent_lease_name(&instance.spec.agent) });
    lease.is_some_and(|lease| Leftovers::said_in(&lease).cover(handle_name))
}
