//! The conditions of a claim whose node's agent is silent, and of one whose node was lost.

use super::observed::ClaimSeen;
use crate::api::attachment::Lost;
use crate::api::caller::ControllerRef;
use crate::api::conditions::{Desired, Reason, first_few};
use crate::attachment::loss::{Cause, Refusal, Verdict};

/// The NodeSilent condition of a claim on this node, if there is anything to say.
#[must_use]
pub fn of(verdict: &Verdict, claim: &ClaimSeen, node: &str) -> Option<Desired> {
    let says = |reason, message| Some(Desired { reason, message });
    match verdict {
        Verdict::Well | Verdict::Lost(_) => None,
        Verdict::Contradiction(cause) => says(
            Reason::HeardThoughGone,
            format!(
                "{}, but moor's agent there is alive and goes on using the volume; stop the machine, or end \
                 that state of the Node",
                what(*cause, node)
            ),
        ),
        Verdict::Silent { forced: None } => says(Reason::NoHeartbeat, ways_out(claim, node)),
        Verdict::Silent { forced: Some(refusal) } => says(Reason::ForceDetachRefused, refused(refusal, node)),
    }
}

/// The condition for a claim whose node was declared lost.
#[must_use]
pub fn of_loss(why: &Lost, node: &str, attach: bool) -> Desired {
    Desired { reason: Reason::NodeDeclaredLost, message: lost(why, node, attach) }
}

/// What happens to the volume of a lost node.
#[must_use]
pub fn lost(why: &Lost, node: &str, attach: bool) -> String {
    let then = if attach {
        "ControllerUnpublishVolume cuts the node off, then the volume is free"
    } else {
        "its driver cannot cut a node off, so the volume is free at once, or, if the node has come back meanwhile, when \
         that has unmounted it"
    };
    let reason = &why.reason;
    format!(
        "node {node} was declared lost ({reason}): NodeUnpublishVolume and NodeUnstageVolume are skipped there; {then}; \
         should the node come back, it unmounts by its own record before it may use the volume again"
    )
}

/// What became of a claim that nobody had deleted when its node was lost.
#[must_use]
pub fn ended(why: &Lost, node: &str) -> String {
    let reason = &why.reason;
    format!(
        "node {node} was declared lost ({reason}) while it used the volume; this claim has ended: delete it, and create \
         one for another node"
    )
}

/// Why an Attachment went without its ControllerUnpublishVolume.
#[must_use]
pub fn abandoned(caller: &ControllerRef, node: &str) -> String {
    let instance = &caller.instance;
    format!(
        "node {node} is gone, and with it the only instance that could call ControllerUnpublishVolume ({instance}): \
         the call was left out"
    )
}

fn what(cause: Cause, node: &str) -> String {
    match cause {
        Cause::NodeDeleted => format!("Node {node} was deleted"),
        Cause::NodeReplaced => format!("another machine has the name of node {node}"),
        Cause::OutOfService => format!("Node {node} is marked out of service"),
        Cause::ForceDetach => format!("the claims on node {node} are detached by force"),
    }
}

fn ways_out(claim: &ClaimSeen, node: &str) -> String {
    let way_of_claim = if claim.deleted {
        "or, to free the volume of this deleted claim without the node: set spec.forceDetach"
    } else {
        "or delete this claim and set spec.forceDetach on it"
    };
    format!(
        "nothing is heard of moor's agent on node {node}, so the claim keeps the volume: it may still be written to. It \
         goes on by itself when the node is back. If the machine is off for good: kubectl delete node {node}; if it is \
         off for now: kubectl taint node {node} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute; {way_of_claim}"
    )
}

fn refused(refusal: &Refusal, node: &str) -> String {
    match refusal {
        Refusal::OthersStay(claims) => format!(
            "spec.forceDetach waits: {} on node {node} would lose the volume too; delete them with spec.forceDetach as \
             well, or delete or taint the Node if the machine is off",
            first_few(claims.iter().map(String::as_str), 3)
        ),
        Refusal::NothingFences => format!(
            "spec.forceDetach is refused: the driver has no ControllerPublishVolume, so nothing would keep node {node} \
             from writing while another uses the volume; make sure that the machine is off, then kubectl taint node \
             {node} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute, or kubectl delete node {node}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::VolumeClaim;

    /// Lost is told by [`of_loss`], which knows what was declared.
    #[test]
    fn only_what_keeps_a_claim_is_told() {
        let claim = ClaimSeen::of(&VolumeClaim::default());
        let reason = |verdict| of(&verdict, &claim, "node-1").map(|told| told.reason);
        assert_eq!(reason(Verdict::Well), None);
        assert_eq!(reason(Verdict::Lost(Cause::NodeDeleted)), None);
        assert_eq!(reason(Verdict::Silent { forced: None }), Some(Reason::NoHeartbeat));
        let forced = Some(Refusal::NothingFences);
        assert_eq!(reason(Verdict::Silent { forced }), Some(Reason::ForceDetachRefused));
        assert_eq!(reason(Verdict::Contradiction(Cause::NodeDeleted)), Some(Reason::HeardThoughGone));
    }
}
