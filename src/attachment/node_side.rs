//! What a node's agent does next about one volume handle on its node.
//!
//! One call at a time: the agent holds a mutex per handle, asks for the next step, does it, and asks
//! again. "Last on node" and exclusivity on a node are decided here and nowhere else (rule R5).

mod growth;
mod step;
mod undo;

pub use step::{LiveAttachment, NodeStep, Seen};

use super::observed::{AttachmentSeen, Standing, standing};
use super::record::{Done, Record};
use crate::api::ClaimState;
use crate::claim::ClaimSeen;

/// Plans the next step: undo before do, so that leaving is never starved by arriving. What has grown comes last: it keeps nobody
/// waiting who has the volume or gets it.
#[must_use]
pub fn plan(seen: &Seen) -> NodeStep {
    undo::undo(seen)
        .or_else(|| give_back(seen))
        .or_else(|| make(seen))
        .or_else(|| growth::grow(seen))
        .unwrap_or(NodeStep::Idle)
}

/// Claims that hold an Attachment which can no longer be used, and have nothing on it here. A Pod's claim gets another one
/// only when kubelet asks for it: kubelet may have released the claim, and an agent that has started anew does not know that.
fn give_back(seen: &Seen) -> Option<NodeStep> {
    let needs_one = |c: &&ClaimSeen| !c.deleted && c.state != ClaimState::Lost && is_asked(seen, c);
    for claim in seen.claims.iter().filter(needs_one) {
        let Some(assignment) = &claim.assignment else { continue };
        let Some(uid) = claim.uses() else { continue };
        if seen.record(uid).is_some_and(|r| r.has_of(&claim.uid)) {
            continue;
        }
        match seen.attachment(uid) {
            Some(a) if a.is_leaving() => {
                return Some(NodeStep::Yield { claim: claim.uid.clone(), attachment: uid.to_owned() });
            }
            Some(_) => {}
            None if seen.live(uid) == Some(&LiveAttachment::Gone) => {
                return Some(NodeStep::Yield { claim: claim.uid.clone(), attachment: uid.to_owned() });
            }
            None => {
                return Some(NodeStep::ReadAttachment {
                    attachment: uid.to_owned(),
                    name: assignment.attachment.clone(),
                });
            }
        }
    }
    None
}

/// Brings claims to Ready.
fn make(seen: &Seen) -> Option<NodeStep> {
    let mut claims: Vec<&ClaimSeen> =
        seen.claims.iter().filter(|c| !c.deleted && !seen.released.contains(&c.uid)).collect();
    claims.sort_by_key(|c| (c.created, c.name.clone()));
    claims.into_iter().find_map(|claim| {
        let uid = claim.uses()?;
        let attachment = seen.attachment(uid)?;
        // Final. On a claim that nobody deleted it was written by hand.
        if matches!(claim.state, ClaimState::Lost | ClaimState::NodeDetached) {
            return None;
        }
        let mounted = seen.record(uid).is_some_and(|r| seen.is_mounted(r, &claim.uid));
        match (claim.state == ClaimState::Ready, mounted) {
            // Whatever became of the Attachment: nobody may go on believing in this mount.
            (true, false) => Some(NodeStep::ReportNotReady { claim: claim.uid.clone() }),
            // Also while it closes: it stays attached for as long as this target is there.
            (false, true) => growth::before_ready(seen, claim, attachment).or_else(|| {
                Some(NodeStep::ReportReady { claim: claim.uid.clone(), attachment: uid.to_owned() })
            }),
            (false, false) if attachment.is_usable() && is_asked(seen, claim) => {
                first_call(seen, claim, attachment)
            }
            (true, true) | (false, false) => None,
        }
    })
}

/// Whether somebody waits for the claim's mount: kubelet for a Pod's, the user for any other.
fn is_asked(seen: &Seen, claim: &ClaimSeen) -> bool {
    !claim.of_pod || (seen.asked.contains(&claim.uid) && !seen.released.contains(&claim.uid))
}

/// The checks that stand before the first call for a claim, then the call.
fn first_call(seen: &Seen, claim: &ClaimSeen, attachment: &AttachmentSeen) -> Option<NodeStep> {
    let uid = &attachment.uid;
    // Another Attachment of the same handle was here: its traces go first (rule R7).
    if seen.records.iter().any(|r| &r.attachment_uid != uid && r.has_traces()) {
        return None;
    }
    // Neither is anything made beside a mount of which only a file speaks that nobody can read.
    if seen.unreadable_here.iter().any(|other| other != uid) {
        return None;
    }
    let record = seen.record(uid);
    // A claim that was given back may be freed at once, so nothing of it may be left here.
    let yields = || {
        let (claim, attachment) = (claim.uid.clone(), uid.clone());
        if record.is_some_and(|r| r.targets.contains_key(&claim)) {
            return (!seen.backs_off(&claim)).then_some(NodeStep::Unpublish { claim, attachment });
        }
        if record.is_some_and(|r| r.has_of(&claim)) {
            return None;
        }
        Some(NodeStep::Yield { claim, attachment })
    };
    let Some(LiveAttachment::Present(live)) = seen.live(uid) else {
        return Some(NodeStep::ReadAttachment { attachment: uid.clone(), name: attachment.name.clone() });
    };
    // That it is usable has been seen: `attachment` is what was read, once it was ([`Seen::attachment`]).
    if live.node_uid != seen.node_uid || live.namespace != claim.namespace {
        return yields();
    }
    // Also one that was unmounted and is in use: who has it writes on.
    let is_other = |of: &str| *of != *claim.uid && *of != **uid;
    let has_others =
        |r: &Record| r.targets.keys().any(|of| is_other(of)) || r.left.keys().any(|of| is_other(of));
    if live.exclusive && record.is_some_and(has_others) {
        return yields();
    }
    let first_of_all = !live.attach && record.is_none();
    let writes = claim.needs_writer_lock();
    if first_of_all || writes {
        let read = seen.live_handle.as_ref().filter(|(claimed, _)| claimed == &claim.uid);
        let Some((_, handle)) = read else {
            return Some(NodeStep::ReadHandle { claim: claim.uid.clone(), attachment: uid.clone() });
        };
        let named = handle.as_ref().is_some_and(|h| h.names_writer(&claim.uid, uid));
        if (first_of_all && standing(live, handle.as_ref()) != Standing::Valid) || (writes && !named) {
            return yields();
        }
    }
    let staged = record.is_some_and(|r| r.staged == Done::Yes && r.boot_id == seen.boot_id);
    if live.stage && !staged {
        return (!seen.backs_off(uid)).then(|| NodeStep::Stage { attachment: uid.clone() });
    }
    (!seen.backs_off(&claim.uid))
        .then(|| NodeStep::Publish { claim: claim.uid.clone(), attachment: uid.clone() })
}
