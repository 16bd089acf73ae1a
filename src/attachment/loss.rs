//! When a node counts as lost, and what a person can do until then (rule R4).
//!
//! Time alone never says it: a machine that is silent may still write. So ownership passes from a node's agent to the
//! controller only when the agent's Lease has expired **and** somebody or something else says that the machine is out of
//! the game. `spec.lost` is that word; it is never withdrawn.

use super::observed::AttachmentSeen;
use crate::api::{AccessMode, AttachmentState};
use crate::claim::ClaimSeen;

/// The machine on which an Attachment was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Machine {
    /// UID of the Node.
    pub node_uid: String,
    /// The node as the driver knows it.
    pub node_id: String,
    /// Boot id of the machine at that time; empty if unknown.
    pub boot_id: String,
}

/// The Node that has the name of the Attachment's node now.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NodeNow {
    /// No Node of that name.
    Gone,
    /// There is a Node of that name.
    There {
        /// UID of the Node.
        uid: String,
        /// The Node is marked `node.kubernetes.io/out-of-service`: somebody vouches that the machine is off.
        out_of_service: bool,
        /// Boot that the Node reports; empty if it reports none.
        boot_id: String,
        /// The node as the driver knows it, from the instance that runs there under this UID.
        node_id: Option<String>,
    },
}

/// An agent that is heard under the name of the Attachment's node, from a Node with another UID than the recorded one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Heard {
    /// Boot that the agent's Lease names; empty if it names none.
    pub boot_id: String,
    /// The node as the driver knows it, from the instance that runs beside the agent.
    pub node_id: Option<String>,
}

/// What is known of the node of an Attachment: from the caches, or from live reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeFacts {
    /// The machine on which the Attachment was made.
    pub machine: Machine,
    /// The Node of that name as it is now.
    pub now: NodeNow,
    /// The Lease of the agent on the Node with the recorded UID has expired.
    pub silent: bool,
    /// The agents under other UIDs whose Leases are fresh, whether or not there is still a Node with that UID.
    pub heard: Vec<Heard>,
}

/// Everything the decision looks at, for one Attachment.
#[derive(Clone, Debug)]
pub struct Seen<'a> {
    /// The Attachment.
    pub attachment: &'a AttachmentSeen,
    /// Its node.
    pub node: &'a NodeFacts,
    /// Claims, among them every one that uses the Attachment.
    pub claims: &'a [ClaimSeen],
}

/// The reason for which a node counts as lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The Node object was deleted.
    NodeDeleted,
    /// Another machine has the Node's name.
    NodeReplaced,
    /// The Node has the taint `node.kubernetes.io/out-of-service`.
    OutOfService,
    /// Every claim is deleted with spec.forceDetach.
    ForceDetach,
}

impl Cause {
    /// The word for this cause in `spec.lost.reason`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NodeDeleted => "NodeDeleted",
            Self::NodeReplaced => "NodeReplaced",
            Self::OutOfService => "OutOfService",
            Self::ForceDetach => "ForceDetach",
        }
    }
}

/// Why `spec.forceDetach` does not yet hand the node's part over to the controller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Claims on the same Attachment that are not deleted with forceDetach: they would lose the volume too.
    OthersStay(Vec<String>),
    /// The driver has no ControllerPublishVolume and the mode excludes other nodes: nothing would keep the silent
    /// machine from writing on.
    NothingFences,
}

/// The judgement on the node of an Attachment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The node's agent is heard, or the node's part is done: nothing has to be said.
    Well,
    /// The node's agent is heard, under whichever UID, although the Node is gone or marked out of service. The agent
    /// stays in charge.
    Contradiction(Cause),
    /// The node's agent is silent and the node is not lost: the claims keep the volume. `forced` is why a force
    /// detach has not ended that.
    Silent {
        /// Why forceDetach has not ended the wait; only where it was asked for.
        forced: Option<Refusal>,
    },
    /// The node is lost: `spec.lost` has to be written.
    Lost(Cause),
}

/// Judges the node of one Attachment. Every fact of a `Lost` must come from live reads made after the Attachment was
/// seen (rule R1).
#[must_use]
pub fn judge(seen: &Seen<'_>) -> Verdict {
    if seen.attachment.lost || seen.attachment.state >= AttachmentState::NodeDetached {
        return Verdict::Well;
    }
    match (is_heard(seen.node), by_node(seen)) {
        (true, None) => Verdict::Well,
        (true, Some(cause)) => Verdict::Contradiction(cause),
        (false, Some(cause)) => Verdict::Lost(cause),
        (false, None) => by_order(seen),
    }
}

/// Whether it is still certain, after `spec.lost` was written, that the node of the Attachment is not at work. Every
/// fact must come from live reads made after that was seen.
///
/// The Node has to say so once more: an agent may have come back, mounted and fallen silent again, and whoever
/// started the machine has taken the taint off by then, or the Node is there again.
#[must_use]
pub fn is_still_out(seen: &Seen<'_>) -> bool {
    !is_heard(seen.node) && (by_node(seen).is_some() || !excludes_other_nodes(seen.attachment.mode))
}

/// Whether the agent of the recorded machine is heard, or may be: under its own UID, or under another one by a machine
/// that is not provably another.
///
/// A Node that was deleted is registered anew while its machine runs on, and that one's agent, its mounts and who uses them
/// are then found under the new UID. The recorded boot does not tell it from another machine, because the Attachment may
/// have outlived that boot. Who waits here for another machine after all waits for nothing: its agent has no record of the
/// Attachment, and gives it back in order.
fn is_heard(node: &NodeFacts) -> bool {
    let is_another = |heard: &Heard| {
        compare(&node.machine, &heard.boot_id, heard.node_id.as_deref()) == MachineNow::Another
    };
    !node.silent || !node.heard.iter().all(is_another)
}

/// What the Node object says.
fn by_node(seen: &Seen<'_>) -> Option<Cause> {
    match &seen.node.now {
        NodeNow::Gone => Some(Cause::NodeDeleted),
        NodeNow::There { out_of_service: true, .. } => Some(Cause::OutOfService),
        NodeNow::There { uid, boot_id, node_id, .. } => {
            let machine = &seen.node.machine;
            let replaced = *uid != machine.node_uid
                && compare(machine, boot_id, node_id.as_deref()) == MachineNow::Another;
            replaced.then_some(Cause::NodeReplaced)
        }
    }
}

/// Which machine has the Node's name under another UID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MachineNow {
    /// The one that was recorded: its agent takes over in order.
    RegisteredAnew,
    /// Provably another one.
    Another,
    /// Its driver has not said yet who it is.
    Unknown,
}

/// A machine that was registered anew keeps its boot, or its driver's name for it.
fn compare(machine: &Machine, boot_id: &str, node_id: Option<&str>) -> MachineNow {
    let same_boot = !boot_id.is_empty() && boot_id == machine.boot_id;
    match node_id {
        _ if same_boot => MachineNow::RegisteredAnew,
        Some(id) if id == machine.node_id => MachineNow::RegisteredAnew,
        Some(_) => MachineNow::Another,
        None => MachineNow::Unknown,
    }
}

/// Judges by the orders of the users: all claims that use the Attachment have to be deleted with forceDetach.
fn by_order(seen: &Seen<'_>) -> Verdict {
    let is_forced = |c: &&ClaimSeen| c.deleted && c.force;
    let users = || seen.claims.iter().filter(|c| c.uses() == Some(&seen.attachment.uid));
    if !users().any(|c| is_forced(&c)) {
        return Verdict::Silent { forced: None };
    }
    let others: Vec<String> = users().filter(|c| !is_forced(c)).map(ClaimSeen::key).collect();
    if !others.is_empty() {
        return Verdict::Silent { forced: Some(Refusal::OthersStay(others)) };
    }
    if !seen.attachment.attach && excludes_other_nodes(seen.attachment.mode) {
        return Verdict::Silent { forced: Some(Refusal::NothingFences) };
    }
    Verdict::Lost(Cause::ForceDetach)
}

/// Whether a second node at work would break what the mode promises.
#[must_use]
pub fn excludes_other_nodes(mode: AccessMode) -> bool {
    !matches!(mode, AccessMode::MultiNodeReader | AccessMode::MultiNodeMultiWriter)
}

/// Whether a lost Attachment goes without ControllerUnpublishVolume: its instance is dead, no other could ever make the
/// call, and the Node is gone for good (rule R4, trap N8).
///
/// `heirs` says whether some other instance, healthy or not, could serve the volume.
#[must_use]
pub fn is_abandoned(attachment: &AttachmentSeen, node: &NodeNow, dead: bool, heirs: bool) -> bool {
    let node_is_gone = match node {
        NodeNow::Gone => true,
        NodeNow::There { uid, .. } => *uid != attachment.node_uid,
    };
    attachment.lost
        && attachment.attach
        && attachment.state != AttachmentState::ControllerDetached
        && node_is_gone
        && dead
        && !heirs
}

#[cfg(test)]
#[path = "loss_tests.rs"]
mod tests;
