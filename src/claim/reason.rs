//! Why a claim waits, in words that name what is missing and what to do.

use super::observed::{ClaimSeen, ForgottenSeen, Mount};
use crate::api::conditions::Reason;
use crate::api::instance::UNDO_FORGOTTEN;
use crate::plugin::allow::NotAllowed;

/// The holder of a volume that a claim waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Holder {
    /// A claim as namespace/name, or `Attachment/name` where no claim is known.
    pub who: String,
    /// The Pod that such a claim was made for, as namespace/name.
    pub pod: Option<String>,
    /// Node on which the volume is held.
    pub node: String,
    /// State of the holder; empty where that is not told.
    pub state: String,
    /// That its node is not heard, and what to do about it: who waits may not see the holder.
    pub silence: Option<String>,
}

impl Holder {
    /// A claim that is in another one's way, on this node.
    pub(super) fn of(claim: &ClaimSeen, node: &str) -> Self {
        let (who, pod, state) = (claim.key(), claim.pod.clone(), claim.state_word());
        Self { who, pod, node: node.to_owned(), state, silence: claim.silence.clone() }
    }
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.who)?;
        if let Some(pod) = &self.pod {
            write!(f, ", for Pod {pod},")?;
        }
        write!(f, " on node {}", self.node)?;
        if self.state.is_empty() { Ok(()) } else { write!(f, " ({})", self.state) }
    }
}

/// Why a claim is not granted. Every variant becomes a condition reason.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Waiting {
    /// No such Volume.
    VolumeNotFound {
        /// Name that the claim gives.
        volume: String,
    },
    /// The Volume is not usable yet.
    VolumeNotReady {
        /// Name of the Volume.
        volume: String,
    },
    /// The Volume is being deleted.
    VolumeDeleted {
        /// Name of the Volume.
        volume: String,
    },
    /// The Volume does not list this use.
    UseNotListed {
        /// What the claim asks for.
        asked: String,
        /// What the Volume lists.
        listed: String,
    },
    /// Its namespace may not have what it asks for.
    NotAllowed(NotAllowed),
    /// The Pod that it was made for has no right to the volume.
    NotEntitled {
        /// Why not.
        why: String,
    },
    /// The named node cannot take it.
    NodeNotUsable {
        /// Name of the node.
        node: String,
        /// What is missing there.
        why: String,
    },
    /// No node can take it.
    NoNode {
        /// How many lack what.
        why: String,
    },
    /// What an Attachment needs to know of the driver is not known.
    PluginNotReady {
        /// What is missing, and where to look.
        why: String,
    },
    /// Another claim holds the volume.
    Held(Holder),
    /// Another claim holds the volume on the same node, in a mode that would let this one in too, and the driver does not
    /// say that it takes a second target there (CSI NodePublishVolume).
    OneTarget(Holder),
    /// An older claim is before it in line.
    InLine {
        /// The first in line, or for one far back the one right before it.
        behind: String,
    },
    /// The volume changes its mode, or gets its first controller instance.
    ModeChanging,
    /// This holder uses the volume since before its driver had a Controller service.
    NotAttached(Holder),
    /// A node has a mount of the volume for which the API server has no Attachment.
    Forgotten(ForgottenSeen),
}

impl ForgottenSeen {
    fn message(&self) -> String {
        let Self { node, instance, mount } = self;
        let order = |uid: &str| {
            format!("`kubectl annotate --overwrite plugininstance {instance} {UNDO_FORGOTTEN}={uid}`")
        };
        match mount {
            Mount::NotSaid => format!(
                "nobody led for a while, in which etcd may have been restored; the agent of node {node} has yet to say \
                 what it has mounted: see to it that it runs. One that is silent is waited for until its Lease has \
                 expired, or, if an agent says that etcd was restored, until it is heard; if the machine is off, delete \
                 Node {node} or taint it node.kubernetes.io/out-of-service"
            ),
            Mount::InLease => format!(
                "the volume may be in use on node {node}, by a mount that the API server does not account for, says Lease \
                 {instance} of its agent, and the PluginInstance that described it is gone; it is granted when the node is \
                 off and its Node deleted or marked out-of-service, or after a reboot of that node, unless its record of \
                 the mount cannot be read. When Node and Plugin are there again, so is a PluginInstance that says more"
            ),
            Mount::Named => format!(
                "node {node} has more mounts that the API server has forgotten than PluginInstance {instance} can \
                 describe, and one of them is of this volume (status.forgottenHandles); have those that are described \
                 undone, or reboot the node, which does not end those whose records cannot be read"
            ),
            Mount::Unreadable(uid) => format!(
                "the volume may be in use on node {node}: its record of Attachment {uid} names the volume and cannot be \
                 read, which no reboot changes (status.forgotten of PluginInstance {instance}); it is granted after a \
                 version of moor that can read the record has undone it, or see to it that nothing of the volume is \
                 mounted there and dismiss the record by {}",
                order(uid)
            ),
            Mount::Reported(uid) => format!(
                "the volume may be in use on node {node}, by a mount that the API server does not account for (etcd was \
                 restored, or an Attachment removed by hand; see status.forgotten of PluginInstance {instance}); it is \
                 granted after a reboot of that node, or after {} has had it undone",
                order(uid)
            ),
        }
    }
}

impl Waiting {
    /// The claim names a node that there is not.
    #[must_use]
    pub fn no_such_node(node: &str) -> Self {
        let why = "there is no Node of this name; the claim proceeds when it is registered, or delete this claim and \
                   create one for another node";
        Self::NodeNotUsable { node: node.to_owned(), why: why.into() }
    }

    /// The condition's reason.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::VolumeNotFound { .. } => Reason::VolumeNotFound,
            Self::VolumeNotReady { .. } => Reason::VolumeNotReady,
            Self::VolumeDeleted { .. } => Reason::VolumeDeleted,
            Self::UseNotListed { .. } => Reason::UseNotListed,
            Self::NotAllowed(_) => Reason::NotAllowed,
            Self::NotEntitled { .. } => Reason::PodNotEntitled,
            Self::NodeNotUsable { .. } => Reason::NodeNotUsable,
            Self::NoNode { .. } => Reason::NoNode,
            Self::PluginNotReady { .. } => Reason::PluginNotReady,
            Self::Held(_) | Self::OneTarget(_) => Reason::Held,
            Self::InLine { .. } => Reason::InLine,
            Self::ModeChanging => Reason::ModeChanging,
            Self::NotAttached(_) => Reason::NotAttached,
            Self::Forgotten(_) => Reason::Forgotten,
        }
    }

    /// The condition's message.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::VolumeNotFound { volume } => format!(
                "Volume {volume} does not exist in this namespace; the claim proceeds when it is created"
            ),
            Self::VolumeNotReady { volume } => {
                format!("Volume {volume} is not Ready; see `kubectl describe volume {volume}`")
            }
            Self::VolumeDeleted { volume } => {
                format!("Volume {volume} is being deleted and takes no new claims; delete this claim")
            }
            Self::UseNotListed { asked, listed } => format!(
                "spec.capabilities of the Volume does not list {asked}, only {listed}; list it there, which counts when the \
                 driver has confirmed it (condition Applied), or delete this claim and create one with a listed use"
            ),
            Self::NotAllowed(lack) => lack.message(),
            Self::NodeNotUsable { node, why } => format!("node {node}: {why}"),
            Self::PluginNotReady { why } | Self::NotEntitled { why } | Self::NoNode { why } => why.clone(),
            Self::Held(holder) => {
                let silence = holder.silence.as_ref().map(|silence| format!(". {silence}"));
                format!(
                    "the volume is held by {holder}; it is granted to this claim when that is gone{}",
                    silence.unwrap_or_default()
                )
            }
            Self::OneTarget(holder) => format!(
                "the volume is held by {holder}, and its driver does not say that it takes a second target of \
                 a volume on a node (for writers by SINGLE_NODE_MULTI_WRITER); it is granted to this claim when that is \
                 gone. If the driver does take one, set spec.toleratesSecondTarget of the Plugin: it counts for \
                 Attachments that are made after that"
            ),
            Self::InLine { behind } => format!("claim {behind} is older and waits for the same volume"),
            Self::ModeChanging => {
                "the volume is being prepared for another access mode, or for the driver's Controller service"
                    .into()
            }
            Self::NotAttached(holder) => format!(
                "{holder} has used the volume without ControllerPublishVolume since before its driver had a Controller \
                 service; delete the claims that do, then it is attached for this one"
            ),
            Self::Forgotten(mount) => mount.message(),
        }
    }

    /// Who is in the way, for status.waitingFor: the holder of the volume, or an older claim, of which no node is told.
    #[must_use]
    pub fn holder(&self) -> Option<Holder> {
        match self {
            Self::Held(holder) | Self::OneTarget(holder) | Self::NotAttached(holder) => Some(holder.clone()),
            Self::InLine { behind } => Some(Holder { who: behind.clone(), ..Holder::default() }),
            Self::VolumeNotFound { .. }
            | Self::VolumeNotReady { .. }
            | Self::VolumeDeleted { .. }
            | Self::UseNotListed { .. }
            | Self::NotAllowed(_)
            | Self::NotEntitled { .. }
            | Self::NodeNotUsable { .. }
            | Self::NoNode { .. }
            | Self::PluginNotReady { .. }
            | Self::ModeChanging
            | Self::Forgotten(_) => None,
        }
    }

    /// The same reason without the holder's state, which changes several times at each hand-over. Only the first in
    /// line is told that.
    #[must_use]
    pub fn without_state(mut self) -> Self {
        if let Self::Held(holder) | Self::OneTarget(holder) | Self::NotAttached(holder) = &mut self {
            holder.state.clear();
        }
        self
    }

    /// Whether a change of any PluginInstance of the Plugin can end this wait.
    #[must_use]
    pub fn is_for_instances(&self) -> bool {
        matches!(
            self,
            Self::Forgotten(_) | Self::ModeChanging | Self::NotAttached(_) | Self::PluginNotReady { .. }
        )
    }

    /// Whether this wait ends when other claims let go of the volume, or are served before.
    #[must_use]
    pub fn is_for_the_volume(&self) -> bool {
        self.holds_the_line() || matches!(self, Self::InLine { .. })
    }

    /// Whether younger claims stand behind this one: it could be granted once somebody else lets go. A claim that
    /// cannot be granted at all does not hold up the line (trap B30).
    #[must_use]
    pub fn holds_the_line(&self) -> bool {
        matches!(
            self,
            Self::Held(_)
                | Self::OneTarget(_)
                | Self::NotAttached(_)
                | Self::ModeChanging
                | Self::Forgotten(_)
        )
    }
}
