//! The steps that a run is made of.

use moor::attachment::controller_side::ControllerStep;

use super::leader::LeaderDoes;
use super::pods::KubeletDoes;
use super::seen::NodeDoes;
use super::state::{Actor, Att, Kind, Uid};

/// How a call ends for a caller that waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    Ok,
    /// A final error; nothing happened.
    Refused,
    /// It had its effect, the reply was lost.
    ReplyLost,
    /// The caller gives up, the call goes on.
    Deadline,
}

/// One step of anything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum What {
    DeleteClaim(u8),
    Kubelet(u8, KubeletDoes),
    RemoveClaimByForce(u8),
    Leader(u8, LeaderDoes),
    /// A write that a leader's looks have allowed.
    Finish(usize),
    Controller(u8, Att, ControllerStep),
    Node(u8, NodeDoes),
    /// The driver is still busy with an older call: ABORTED.
    Aborted(Actor),
    CallEnds(usize, End),
    /// A call without caller ends, with its effect or without.
    LateCall(usize, bool),
    Crash(Actor),
    CatchUp(Actor, Kind),
    /// Nobody has used an Attachment for as long as it lingers.
    LingerEnds(Uid),
    /// Something makes an agent look again at a cache that is behind.
    LookAgain(Actor),
    /// What a node's agent had put off is due again.
    RetryDue(u8),
    /// A controller plugin's process dies; a call in it had its effect or not.
    KillPlugin(u8, bool),
    RevivePlugin(u8),
    /// The leader puts a controller instance into another tenure.
    Relieve(u8),
    /// Its agent says that it calls nothing any more that it was given before.
    Answer(u8),
    /// The node plugin of the sick node is healthy from now on.
    Heal(u8),
    Reboot(u8),
    /// The agent's Lease expires; the machine goes off with it, or runs on.
    GoAway(u8, bool),
    /// The agent is heard again, and whatever was said of its Node is over. Of one that was heard all the time only that.
    ComeBack(u8),
    /// Another machine comes under the name of one that is off: nothing is on its disk.
    ComeAnother(u8),
    DeleteNode(u8),
    Taint(u8),
    ForceDetach,
    MakeAgain,
    DeleteVolume(u8),
    RemoveVolumeByForce(u8),
    MakeVolumeAgain,
    RemoveHandleByForce,
    RemoveAttachmentByForce(Uid),
}

/// A step, and whose watch of what misses the write in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Action {
    pub what: What,
    pub missed: Option<(Actor, Kind)>,
}

/// The actor whose step it is.
pub fn acts(what: &What) -> Option<Actor> {
    match what {
        What::Leader(l, _) => Some(Actor::Leader(*l)),
        What::Controller(i, ..) => Some(Actor::Controller(*i)),
        What::Node(n, _) => Some(Actor::Node(*n)),
        _ => None,
    }
}

/// Steps in which an object may change.
pub fn writes(what: &What) -> bool {
    match what {
        What::DeleteClaim(_)
        | What::Kubelet(_, KubeletDoes::DeleteClaim)
        | What::RemoveClaimByForce(_)
        | What::Leader(..)
        | What::DeleteVolume(_)
        | What::Finish(_)
        | What::ComeBack(_)
        | What::ComeAnother(_)
        | What::DeleteNode(_)
        | What::Taint(_)
        | What::CallEnds(_, End::Ok)
        | What::Controller(_, _, ControllerStep::ReportDetached) => true,
        What::Node(_, step) => matches!(
            step,
            NodeDoes::ReportNotReady(_)
                | NodeDoes::Yield(..)
                | NodeDoes::ReportReady(_)
                | NodeDoes::ReportClaimDetached(_)
                | NodeDoes::ReportDetached(_)
        ),
        _ => false,
    }
}
