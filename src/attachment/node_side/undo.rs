//! Undo: what the record says was done for claims and Attachments that are going.
//!
//! What is gone was deleted, or the API server has forgotten it: etcd was restored from a backup while the mounts are
//! in use (rule R7, trap B2 and N15). Only the first is undone.

use super::step::{LiveAttachment, NodeStep, Seen};
use crate::api::{AttachmentState, AttachmentUid, ClaimState, ClaimUid};
use crate::attachment::observed::AttachmentSeen;
use crate::attachment::record::{Done, Lapse, Record};
use crate::claim::ClaimSeen;

/// What became of an object that a live GET did not find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The API server's revision has to be read first.
    Unknown,
    /// It was deleted.
    Deleted,
    /// The API server has gone back behind it.
    Forgotten,
}

/// The next step of undoing, if there is one.
pub(super) fn undo(seen: &Seen) -> Option<NodeStep> {
    let allowed = |record: &Record, step: &NodeStep| !is_call(step) || !is_under_another(seen, record);
    // Before all looks: kubelet's order waits for nothing that the API server has to say of other targets and records.
    let mut released =
        seen.records.iter().filter_map(|r| undo_released(seen, r).filter(|step| allowed(r, step)));
    if let Some(step) = released.next() {
        return Some(step);
    }
    let mut steps = seen.records.iter().filter_map(|r| undo_record(seen, r).filter(|step| allowed(r, step)));
    if let Some(step) = steps.next() {
        return Some(step);
    }
    for attachment in seen.attachments.iter().filter_map(|a| seen.attachment(&a.uid)) {
        if seen.record(&attachment.uid).is_some() {
            continue;
        }
        if seen.unreadable.contains(&attachment.uid) {
            let presume = NodeStep::Presume { attachment: attachment.uid.clone() };
            // While it cannot be written nothing else of the volume is safe: not to make, and not to hand on.
            return Some(if seen.backs_off(&attachment.uid) { NodeStep::Idle } else { presume });
        }
        if let Some(step) = leave_unused(seen, attachment) {
            return Some(step);
        }
    }
    // A deleted claim with nothing on this node, whose Attachment stays: only its own state is left to write.
    seen.claims
        .iter()
        .find(|c| {
            c.deleted
                && !matches!(c.state, ClaimState::NodeDetached | ClaimState::Lost)
                && c.uses().is_some_and(|uid| has_left(seen, c, uid))
        })
        .map(|c| NodeStep::ReportClaimDetached { claim: c.uid.clone() })
}

/// Whether a claim has nothing on this node any more, and nothing else will say so: others stay, or the Attachment lingers
/// with nothing of it here.
fn has_left(seen: &Seen, claim: &ClaimSeen, attachment: &AttachmentUid) -> bool {
    let record = seen.record(attachment);
    let others_stay = || seen.wanted_on(attachment) && record.is_none_or(|r| !r.has_of(&claim.uid));
    let lingers = || {
        let is_open = seen.attachment(attachment).is_some_and(AttachmentSeen::may_linger);
        is_open && record.is_none_or(|r| !r.has_traces())
    };
    others_stay() || lingers()
}

/// Whether a step asks the driver to undo something.
fn is_call(step: &NodeStep) -> bool {
    matches!(step, NodeStep::Unpublish { .. } | NodeStep::Unstage { .. })
}

/// Whether the volume is mounted on this node for another Attachment, which has more right to it. A driver that goes
/// by the volume id would take that mount away, or the device from under it. It happens where a record was away while
/// the volume was granted anew.
fn is_under_another(seen: &Seen, record: &Record) -> bool {
    let is_mounted = |other: &Record| {
        let is_published = other.targets.values().any(|target| target.published == Done::Yes);
        other.boot_id == seen.boot_id && (other.staged == Done::Yes || is_published)
    };
    let mut others = seen.records.iter().filter(|other| other.attachment_uid != record.attachment_uid);
    // One for whose Attachment nobody has looked yet is undone under no other.
    let uid = &record.attachment_uid;
    let is_known = seen.attachment(uid).is_some() || seen.live(uid).is_some();
    let right = if is_known { right_of(seen, record) } else { Right::Nothing };
    others.any(|other| is_mounted(other) && right_of(seen, other) > right)
}

/// What a record's mounts are there for; the order keeps two records from waiting for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Right {
    /// Its Attachment is gone or lost.
    Nothing,
    /// The API server does not account for it; it may be in use.
    Forgotten,
    /// An Attachment, or nobody has looked for it yet.
    Attachment,
}

fn right_of(seen: &Seen, record: &Record) -> Right {
    let uid = &record.attachment_uid;
    let is_over =
        seen.live(uid) == Some(&LiveAttachment::Gone) || seen.attachment(uid).is_some_and(|a| a.lost);
    match (is_over, record.forgotten) {
        (false, _) => Right::Attachment,
        (true, Some(_)) => Right::Forgotten,
        (true, None) => Right::Nothing,
    }
}

/// Takes off the first target that kubelet has released. kubelet's word is enough for its own paths, also while the API
/// server is away.
fn undo_released(seen: &Seen, record: &Record) -> Option<NodeStep> {
    let mut released =
        record.targets.keys().filter(|claim| seen.released.contains(claim) && !seen.backs_off(claim));
    let claim = released.next()?.clone();
    Some(NodeStep::Unpublish { claim, attachment: record.attachment_uid.clone() })
}

fn undo_record(seen: &Seen, record: &Record) -> Option<NodeStep> {
    let uid = &record.attachment_uid;
    let gone = seen.live(uid) == Some(&LiveAttachment::Gone);
    if seen.attachment(uid).is_none() && !gone {
        return Some(read_attachment(record));
    }
    if let Some(step) = account(seen, record, gone) {
        return Some(step);
    }
    // An order is about a record that is reported; another one is undone when its claims go.
    let ordered = record.forgotten.is_some() && seen.orders.contains(uid);
    let targets = record.targets.keys().filter(|claim| !seen.backs_off(claim));
    let step = targets.into_iter().find_map(|claim| undo_target(seen, record, claim, gone, ordered));
    if step.is_some() || !record.targets.is_empty() {
        return step.or_else(|| find_users_of_targets(seen, record));
    }
    leave(seen, record, ordered)
}

/// Looks for users of the targets of claims that have left, one by one, while other claims stay on the Attachment.
fn find_users_of_targets(seen: &Seen, record: &Record) -> Option<NodeStep> {
    let attachment = &record.attachment_uid;
    let mut left = record.left.keys().filter(|uid| **uid != **attachment && !seen.backs_off(uid));
    let claim = left.next()?.as_str().into();
    Some(NodeStep::FindUsersOfTarget { claim, attachment: attachment.clone() })
}

fn read_attachment(record: &Record) -> NodeStep {
    NodeStep::ReadAttachment {
        attachment: record.attachment_uid.clone(),
        name: record.attachment_name.clone(),
    }
}

/// Finds out whether the API server accounts for the record as a whole, and writes down the answer.
fn account(seen: &Seen, record: &Record, gone: bool) -> Option<NodeStep> {
    let attachment = record.attachment_uid.clone();
    if !gone {
        let uses =
            |claim: &ClaimUid| seen.claims.iter().any(|c| &c.uid == claim && c.uses() == Some(&attachment));
        let whole = record.forgotten.is_some() && record.targets.keys().all(uses);
        return whole.then_some(NodeStep::Recall { attachment });
    }
    if record.forgotten.is_some() || !record.has_traces() {
        return None;
    }
    match fate(seen, &attachment, record.revision) {
        Fate::Unknown => Some(NodeStep::ReadRevision { attachment }),
        Fate::Forgotten => Some(NodeStep::MarkForgotten { attachment, why: Lapse::WentBack }),
        Fate::Deleted => {
            // The lock was taken away under a claim. Its mount stays, and nobody else may have the volume meanwhile.
            let in_use = |c: &ClaimSeen| seen.wants(c, &attachment) && seen.is_mounted(record, &c.uid);
            let removed = seen.claims.iter().any(in_use);
            removed.then_some(NodeStep::MarkForgotten { attachment, why: Lapse::LockRemoved })
        }
    }
}

fn undo_target(
    seen: &Seen,
    record: &Record,
    claim_uid: &ClaimUid,
    gone: bool,
    ordered: bool,
) -> Option<NodeStep> {
    let uid = &record.attachment_uid;
    let unpublish = || NodeStep::Unpublish { claim: claim_uid.clone(), attachment: uid.clone() };
    // One that kubelet has released has had its turn, and waits for another record.
    if ordered || seen.released.contains(claim_uid) {
        return Some(unpublish());
    }
    // A target that is not there when its Attachment closes never will be: without this the claim
    // would wait for the target and the Attachment for the claim.
    let unfinished = (gone || seen.is_closed(uid)) && !seen.is_mounted(record, claim_uid);
    // A lost node's part is over (rule R4): who comes back cleans up, whatever its claims still say.
    let lost = seen.attachment(uid).is_some_and(|a| a.lost);
    match seen.claims.iter().find(|c| &c.uid == claim_uid) {
        Some(claim) if claim.deleted || claim.state == ClaimState::Lost || lost => return Some(unpublish()),
        Some(claim) if claim.uses() == Some(uid) => {
            return (unfinished && !record.is_kept()).then(unpublish);
        }
        // It no longer says that it uses this Attachment; or not yet again, in a restored etcd.
        Some(_) => {}
        None if seen.gone_claims.contains(claim_uid) => {}
        None => return Some(NodeStep::ReadClaim { claim: claim_uid.clone() }),
    }
    if lost {
        return Some(unpublish());
    }
    if record.is_kept() {
        return None;
    }
    let known = record.targets.get(claim_uid).map_or(0, |t| t.revision);
    match fate(seen, claim_uid, known) {
        Fate::Unknown => Some(NodeStep::ReadRevision { attachment: uid.clone() }),
        Fate::Deleted => Some(unpublish()),
        Fate::Forgotten => Some(NodeStep::MarkForgotten { attachment: uid.clone(), why: Lapse::WentBack }),
    }
}

/// Why an object is gone that was there at the revision `known`: it was deleted, or the API server has gone back
/// behind it.
fn fate(seen: &Seen, uid: &str, known: u64) -> Fate {
    if seen.doubted.iter().any(|d| d == uid) {
        return Fate::Forgotten;
    }
    match seen.revision {
        _ if known == 0 => Fate::Deleted,
        None => Fate::Unknown,
        Some(revision) if revision < known => Fate::Forgotten,
        Some(_) => Fate::Deleted,
    }
}

/// The last target of a record is gone: unstage unless somebody still wants the Attachment.
fn leave(seen: &Seen, record: &Record, ordered: bool) -> Option<NodeStep> {
    let uid = &record.attachment_uid;
    if seen.wanted_on(uid) && seen.attachment(uid).is_some_and(|a| !a.deleted) {
        return find_users_of_targets(seen, record);
    }
    if !record.left.is_empty() {
        // The driver is not asked to give up what is in use, and nobody is told that it is unmounted.
        return (!seen.backs_off(uid)).then(|| NodeStep::FindUsers { attachment: uid.clone() });
    }
    if record.staged != Done::No {
        let free = ordered || !record.is_kept();
        return (free && !seen.backs_off(uid)).then(|| NodeStep::Unstage { attachment: uid.clone() });
    }
    match seen.attachment(uid) {
        // Nobody has closed it: whoever comes back to this node joins it. What was said could not be taken back.
        Some(a) if a.may_linger() => None,
        Some(a) if a.state < AttachmentState::NodeDetached && is_awaited(a) => {
            may_hand_on(seen, a).then(|| NodeStep::ReportDetached { attachment: uid.clone() })
        }
        // Kept until the Attachment is gone: it is what a later look at the paths goes by.
        Some(_) => None,
        None => Some(NodeStep::Forget { attachment: uid.clone() }),
    }
}

/// Whether somebody waits for this node to write NodeDetached. Of a lost node that is cut off nobody does (rule R4);
/// where no call cuts it off, the leader that finds it back waits for it.
fn is_awaited(attachment: &AttachmentSeen) -> bool {
    !attachment.lost || attachment.is_lost_unfenced()
}

/// Whether the volume may be detached from this node. A driver detaches it whichever Attachment it was attached for,
/// so no other record of the handle may have traces, nor a file speak of it that nobody can read (rule R7). What has
/// a record of its own was made when none did: a file that was torn later speaks of something else.
fn may_hand_on(seen: &Seen, attachment: &AttachmentSeen) -> bool {
    let uid = &attachment.uid;
    let has_others = seen.records.iter().any(|record| record.attachment_uid != *uid && record.has_traces());
    let is_unknown = seen.record(uid).is_none() && seen.unreadable_here.iter().any(|file| file != uid);
    !attachment.attach || !(has_others || is_unknown)
}

impl Seen {
    /// Whether the Attachment closes, has nothing left here, and waits for what is left of another one.
    #[must_use]
    pub fn is_held_up(&self, attachment: &AttachmentUid) -> bool {
        let closes = |a: &AttachmentSeen| a.deleted && a.state == AttachmentState::Attached && is_awaited(a);
        let is_clean = !self.record(attachment).is_some_and(Record::has_traces);
        is_clean && self.attachment(attachment).is_some_and(|a| closes(a) && !may_hand_on(self, a))
    }
}

/// A closing Attachment of which this node never had anything. Also one that was made under another UID of this Node
/// (ADR 6): somebody has deleted that Node, and as long as nothing proves that its machine is another one than this, the
/// leader waits for this agent and for nobody else, so that without its answer the volume would never be free.
fn leave_unused(seen: &Seen, attachment: &AttachmentSeen) -> Option<NodeStep> {
    let mine = match attachment.state {
        AttachmentState::Attached => true,
        // Nothing was attached, so nobody else will ever say that it is done.
        AttachmentState::Taken => !attachment.attach,
        AttachmentState::NodeDetached | AttachmentState::ControllerDetached => false,
    };
    let due = mine && is_awaited(attachment) && may_hand_on(seen, attachment);
    (attachment.deleted && due && seen.record(&attachment.uid).is_none())
        .then(|| NodeStep::ReportDetached { attachment: attachment.uid.clone() })
}

#[cfg(test)]
#[path = "undo_tests.rs"]
mod tests;
