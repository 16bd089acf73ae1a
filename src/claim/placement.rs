//! Which node a claim is granted on, and why none is.

use std::collections::BTreeMap;
use std::convert::Infallible;

use super::observed::{ClaimSeen, NodeSeen, Seen};
use super::reason::Waiting;
use super::without_lock::is_granted_on;
use crate::attachment::AttachmentSeen;

/// What is said of a node that a claim names and no instance is on.
const NOT_FOUND: &str = "no node plugin of the driver was found there; start it there, or use the volume on a node that `kubectl \
                         get plugininstances` shows";
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
        let unusable = |why: String| Waiting::NodeNotUsable { node: name.clone(), why };
        let Some(node) = seen.nodes.iter().find(|n| &n.name == name) else {
            return Err(unusable(NOT_FOUND.to_owned()));
        };
        let has_room = node.has_room || seen.attachments.iter().any(|a| &a.node == name);
        return match lack(node, None::<(_, Infallible)>).or_else(|| (!has_room).then_some(Lack::Room)) {
            Some(lack) => Err(unusable(lack.of_named(node))),
            None => Ok(name.clone()),
        };
    }
    let sent = Some((claim, ()));
    let able = |n: &&NodeSeen| lack(n, sent).is_none();
    // One that leaves, or is used as the other of file system and block, would only have to be waited for.
    let joinable = |a: &&AttachmentSeen| !a.is_leaving() && a.attachment_mode == claim.attachment_mode;
    // Who may only be where the volume is goes there, also while no others come: else it would wait for it elsewhere, and
    // others behind it.
    let joins = |n: &&NodeSeen| {
        let stays = || lack(&NodeSeen { retires: false, ..(**n).clone() }, sent).is_none();
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

/// What keeps a claim off a node, whoever has the volume; the first of several. In their order they are told. `S` is there of a
/// claim that is sent to the node, and cannot be of one that names it, so that nothing has to be said of what that never lacks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Lack<S> {
    Labels(S),
    Health,
    Way,
    Pods(S),
    Cleanliness,
    OwnId,
    Room,
}

/// What the node lacks for a claim that names it, or for this one that is `sent` there. Nobody is sent to a node that takes no new
/// Pods, or that is not selected.
fn lack<S: Copy>(node: &NodeSeen, sent: Option<(&ClaimSeen, S)>) -> Option<Lack<S>> {
    let other = |claim: &ClaimSeen| {
        claim.node_selector.iter().any(|(key, value)| node.labels.get(key) != Some(value))
    };
    let lacks = [
        sent.filter(|(claim, _)| other(claim)).map(|(_, sent)| Lack::Labels(sent)),
        (!node.healthy).then_some(Lack::Health),
        (!node.reachable).then_some(Lack::Way),
        sent.filter(|_| node.retires).map(|(_, sent)| Lack::Pods(sent)),
        node.unclean.then_some(Lack::Cleanliness),
        node.twin.is_some().then_some(Lack::OwnId),
    ];
    lacks.into_iter().flatten().next()
}

impl Lack<Infallible> {
    /// In the words of a claim that names the node.
    fn of_named(self, node: &NodeSeen) -> String {
        match self {
            Self::Health => "the driver's node plugin is not healthy there, or the node is out of service; `kubectl get \
                             plugininstances -o wide` says why, and the claim proceeds when it is well"
                .to_owned(),
            Self::Way => "the volume cannot be reached from there; use it on a node whose PluginInstance has in status.topology what \
                          the Volume has in status.accessibleTopology"
                .to_owned(),
            Self::Cleanliness => UNCLEAN.to_owned(),
            Self::OwnId => format!(
                "the driver knows this node and node {} by one node id, and could not tell which of them a volume is \
                 attached to; start it with an id of its own on each, or delete the Node of a machine that is gone",
                node.twin.as_deref().unwrap_or_default()
            ),
            Self::Room => "the driver's limit of volumes per node is reached; the claim proceeds when another volume has left the \
                           node"
                .to_owned(),
        }
    }
}

/// Why none of the nodes can take a claim, with how many for each reason.
fn no_node(nodes: &[NodeSeen], claim: &ClaimSeen) -> String {
    if nodes.is_empty() {
        return "no node has shown a node plugin of the driver; see `kubectl get plugininstances`".to_owned();
    }
    let mut lacking: BTreeMap<Lack<()>, usize> = BTreeMap::new();
    for node in nodes {
        // One that lacks nothing else is full, or it would be taken.
        *lacking.entry(lack(node, Some((claim, ()))).unwrap_or(Lack::Room)).or_default() += 1;
    }
    let told = lacking.into_iter().map(|(lack, nodes)| {
        let what = match lack {
            Lack::Labels(()) => "without the labels of spec.nodeSelector",
            Lack::Health => "without a healthy node plugin, or out of service",
            Lack::Way => "from which the volume cannot be reached",
            Lack::Pods(()) => "cordoned, or with a kubelet that is not Ready",
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
