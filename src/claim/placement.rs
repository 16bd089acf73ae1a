//! Which node a claim is granted on, and why none is.

use std::collections::BTreeMap;

use super::observed::{ClaimSeen, NodeSeen, Seen};
use super::reason::Waiting;
use super::without_lock::is_granted_on;
use crate::attachment::AttachmentSeen;

/// Why a node waits that was lost and is back.
const UNCLEAN: &str = "the node was silent and is back; the volume is granted there again when its agent has undone \
                       what may still be mounted from before (the condition Undone of the driver's PluginInstance there \
                       says if something is in the way)";

/// The node the user named, else the one where the volume is, else the least loaded that can take it. Nobody is sent to a node
/// that takes no new Pods; who names one has it.
pub(super) fn choose_node(
    seen: &Seen<'_>,
    claim: &ClaimSeen,
    unlocked: &[&ClaimSeen],
) -> Result<String, Waiting> {
    if let Some(name) = &claim.node {
        let missing = |why: &str| Waiting::NodeNotUsable { node: name.clone(), why: why.into() };
        let already = seen.attachments.iter().any(|a| &a.node == name);
        return match seen.nodes.iter().find(|n| &n.name == name) {
            None => Err(missing("no instance of the plugin has been seen there")),
            Some(node) if !node.healthy => Err(missing("the plugin is not healthy there")),
            Some(node) if !node.reachable => Err(missing("the volume cannot be reached from there")),
            Some(node) if node.unclean => Err(missing(UNCLEAN)),
            Some(NodeSeen { twin: Some(other), .. }) => Err(missing(&format!(
                "the driver knows this node and node {other} by one node id, and could not tell which of them a volume is \
                 attached to; start it with an id of its own on each, or delete the Node of a machine that is gone"
            ))),
            Some(node) if !node.has_room && !already => {
                Err(missing("the driver's limit of volumes per node is reached"))
            }
            Some(node) => Ok(node.name.clone()),
        };
    }
    let able = |n: &&NodeSeen| lack(n, claim).is_none();
    // One that leaves, or is used as the other of file system and block, would only have to be waited for.
    let joinable = |a: &&AttachmentSeen| !a.is_leaving() && a.attachment_mode == claim.attachment_mode;
    // Who may only be where the volume is goes there, also while no others come: else it would wait for it elsewhere, and
    // others behind it.
    let joins = |n: &&NodeSeen| {
        let stays = || lack(&NodeSeen { retires: false, ..(**n).clone() }, claim).is_none();
        able(n) || !claim.mode.is_multi_node() && stays()
    };
    let holding = seen
        .attachments
        .iter()
        .filter(joinable)
        .find_map(|a| seen.nodes.iter().filter(joins).find(|n| n.name == a.node));
    let taken = |n: &NodeSeen| {
        let in_use = || unlocked.iter().any(|c| is_granted_on(c, &n.name));
        seen.attachments.iter().any(|a| a.node == n.name) || in_use()
    };
    holding
        .or_else(|| {
            seen.nodes
                .iter()
                .filter(able)
                .filter(|n| n.has_room)
                .min_by(|a, b| (taken(a), a.load, &a.name).cmp(&(taken(b), b.load, &b.name)))
        })
        .map(|n| n.name.clone())
        .ok_or_else(|| Waiting::NoNode { why: no_node(seen.nodes, claim) })
}

/// What keeps a claim that names no node off this one, whoever has the volume; the first of several. In their order they are
/// told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Lack {
    Labels,
    Health,
    Way,
    Pods,
    Cleanliness,
    OwnId,
    Room,
}

fn lack(node: &NodeSeen, claim: &ClaimSeen) -> Option<Lack> {
    let is_selected = claim.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value));
    let lacks = [
        (!is_selected, Lack::Labels),
        (!node.healthy, Lack::Health),
        (!node.reachable, Lack::Way),
        (node.retires, Lack::Pods),
        (node.unclean, Lack::Cleanliness),
        (node.twin.is_some(), Lack::OwnId),
    ];
    lacks.into_iter().find_map(|(is_lacking, lack)| is_lacking.then_some(lack))
}

/// Why none of the nodes can take a claim, with how many for each reason.
fn no_node(nodes: &[NodeSeen], claim: &ClaimSeen) -> String {
    if nodes.is_empty() {
        return "no node has shown a node plugin of the driver; see `kubectl get plugininstances`".to_owned();
    }
    let mut lacking: BTreeMap<Lack, usize> = BTreeMap::new();
    for node in nodes {
        // One that lacks nothing else is full, or it would be taken.
        *lacking.entry(lack(node, claim).unwrap_or(Lack::Room)).or_default() += 1;
    }
    let told = lacking.into_iter().map(|(lack, nodes)| {
        let what = match lack {
            Lack::Labels => "without the labels of spec.nodeSelector",
            Lack::Health => "without a healthy node plugin, or out of service",
            Lack::Way => "from which the volume cannot be reached",
            Lack::Pods => "cordoned, or with a kubelet that is not Ready",
            Lack::Cleanliness => "not cleared up since its agent was silent",
            Lack::OwnId => "that the driver knows by the id of another",
            Lack::Room => "with as many volumes as the driver takes there",
        };
        format!("{nodes} {what}")
    });
    format!(
        "none of the {} nodes of the driver can take it: {}",
        nodes.len(),
        told.collect::<Vec<_>>().join("; ")
    )
}
