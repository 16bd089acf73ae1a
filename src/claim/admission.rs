//! Admission: which waiting claim is granted next, and what every other one waits for.
//!
//! Creating or joining the Attachment is what grants; this module only proposes. Two leaders that both
//! propose meet at the Attachment's name, and the node's agent refuses what still slips through, so a
//! stale view here costs time and never safety.

pub use super::observed::Seen;
use super::observed::{ClaimSeen, ForgottenSeen, Mount, NodeSeen, VolumeSeen};
use super::placement::choose_node;
use super::reason::{Holder, Waiting};
use super::without_lock::{is_granted_on, keeps_off, uses_without_lock};
use super::writer::wait_for_writer;
use crate::api::{AccessMode, AttachmentUid, ClaimUid, lock};
use crate::attachment::{AttachmentSeen, HandleSeen};

/// Number of claims at the front of a line that are told who holds the volume. The others are told whom they stand
/// behind, which stays true when the volume changes hands: otherwise each hand-over would cost a write for every
/// claim in line.
pub const FRONT: usize = 4;

/// The next step towards a grant, for the claim whose turn it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Grant {
    /// Create the Attachment with this name on this node.
    Create {
        /// Name of the lock.
        attachment: String,
        /// Node for it.
        node: String,
    },
    /// Write the assignment to this Attachment.
    Join {
        /// Name of the Attachment.
        attachment: String,
        /// Its UID.
        uid: AttachmentUid,
    },
    /// Name the claim on this Attachment as the writer in the VolumeHandle first.
    NameWriter {
        /// Name of the Attachment.
        attachment: String,
        /// Its UID.
        uid: AttachmentUid,
    },
    /// Change the volume's mode first (rule R3).
    SwitchMode {
        /// The mode it needs.
        mode: AccessMode,
    },
}

/// What admission says about one claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The claim is granted by this step.
    Grant(Grant),
    /// The claim waits for this.
    Wait(Waiting),
}

/// Judges every claim that wants a grant, oldest first. At most one is granted in a pass: its write
/// changes what the next one sees.
#[must_use]
pub fn admit(seen: &Seen<'_>) -> Vec<(ClaimUid, Verdict)> {
    let mut verdicts = Vec::new();
    let unlocked = uses_without_lock(seen);
    let mut ahead: Option<&ClaimSeen> = None;
    let mut granted = false;
    // How many claims wait for the volume so far, and the last of them.
    let (mut waiting, mut last): (usize, Option<&ClaimSeen>) = (0, None);
    for claim in line(seen) {
        let verdict = match last.filter(|_| ahead.is_some() && waiting >= FRONT) {
            Some(before) => Verdict::Wait(far_back(seen, claim, &unlocked, before)),
            None => match judge(seen, claim, &unlocked) {
                Ok(grant) => match ahead {
                    Some(older) => Verdict::Wait(Waiting::InLine { behind: older.key() }),
                    // Not a wait: the next pass grants it or knows whom it waits for.
                    None if granted => continue,
                    None => {
                        granted = true;
                        Verdict::Grant(grant)
                    }
                },
                Err(waiting) => {
                    if waiting.holds_the_line() && ahead.is_none() {
                        ahead = Some(claim);
                    }
                    Verdict::Wait(waiting)
                }
            },
        };
        if matches!(&verdict, Verdict::Wait(why) if why.is_for_the_volume()) {
            (waiting, last) = (waiting + 1, Some(claim));
        }
        verdicts.push((claim.uid.clone(), verdict));
    }
    verdicts
}

/// What a claim far back in line waits for: what is wrong with itself, or the claim before it. It cannot be granted, and
/// who holds the volume is not looked up for it.
fn far_back(seen: &Seen<'_>, claim: &ClaimSeen, unlocked: &[&ClaimSeen], before: &ClaimSeen) -> Waiting {
    let placed = usable_volume(seen, claim).and_then(|_| choose_node(seen, claim, unlocked));
    placed.err().unwrap_or_else(|| Waiting::InLine { behind: before.key() })
}

/// The mode in which the volume is to be opened: that of the first claim in line that could be placed.
#[must_use]
pub fn wanted_mode(seen: &Seen<'_>) -> Option<AccessMode> {
    let unlocked = uses_without_lock(seen);
    let placeable = |c: &&ClaimSeen| {
        usable_volume(seen, c).is_ok_and(|(volume, _)| prepared(volume).is_ok())
            && choose_node(seen, c, &unlocked).is_ok()
    };
    line(seen).into_iter().find(placeable).map(|c| c.mode)
}

/// The node of the first claim in line that could be placed, for a volume that is made there. Whose claim counts is what `may`
/// says.
#[must_use]
pub fn first_node<'a>(seen: &Seen<'a>, may: impl Fn(&ClaimSeen) -> bool) -> Option<&'a NodeSeen> {
    let waits = |claim: &ClaimSeen| usable_volume(seen, claim).is_err_and(|why| is_to_be_placed(seen, &why));
    let mut line = line(seen).into_iter().filter(|claim| waits(claim) && may(claim));
    let name = line.find_map(|claim| choose_node(seen, claim, &[]).ok())?;
    seen.nodes.iter().find(|node| node.name == name)
}

/// Whether a claim waits for a volume that is made where its first claim is.
fn is_to_be_placed(seen: &Seen<'_>, why: &Waiting) -> bool {
    matches!(why, Waiting::VolumeNotReady { .. }) && seen.volume.is_some_and(|volume| volume.is_to_be_placed)
}

/// The claims that want a grant, oldest first.
fn line<'a>(seen: &Seen<'a>) -> Vec<&'a ClaimSeen> {
    let mut line: Vec<&ClaimSeen> = seen.claims.iter().filter(|c| c.wants_grant()).collect();
    line.sort_by(|a, b| (a.created, &a.name, &a.uid).cmp(&(b.created, &b.name, &b.uid)));
    line
}

fn judge(seen: &Seen<'_>, claim: &ClaimSeen, unlocked: &[&ClaimSeen]) -> Result<Grant, Waiting> {
    let (volume, handle) = usable_volume(seen, claim).or_else(|why| {
        // Made where this claim is, or one behind it: who has no node is told so.
        let is_placed = is_to_be_placed(seen, &why);
        if is_placed { choose_node(seen, claim, unlocked).and(Err(why)) } else { Err(why) }
    })?;
    // Before the mode: a claim that could never be placed must not switch the volume to its mode.
    let node = choose_node(seen, claim, unlocked)?;
    let name = lock::attachment_name(
        lock::DriverVolume { driver: &volume.driver, handle: &volume.handle },
        claim.mode,
        &node,
    );
    // On its own node too: an Attachment that is made beside such a mount could only be detached under it. One that is there
    // is joined beside its own.
    let is_there = |uid: &AttachmentUid| seen.attachments.iter().any(|a| a.uid == *uid && a.name == name);
    let is_joined =
        |f: &&ForgottenSeen| f.node == node && matches!(&f.mount, Mount::Reported(uid) if is_there(uid));
    let in_the_way = seen.forgotten.iter().filter(|f| !is_joined(f));
    if let Some(mount) = in_the_way.min_by_key(|f| &f.mount) {
        return Err(Waiting::Forgotten(mount.clone()));
    }
    if handle.closing {
        let before = |a: &&AttachmentSeen| a.epoch < handle.epoch && !a.attach && handle.controller.is_none();
        let holding = seen.attachments.iter().find(before);
        return Err(
            holding.map_or(Waiting::ModeChanging, |a| Waiting::NotAttached(holder_of(seen, a, claim)))
        );
    }
    if handle.mode != claim.mode {
        if let Some(holding) = seen.attachments.first() {
            return Err(Waiting::Held(holder_of(seen, holding, claim)));
        }
        keeps_off(unlocked.first())?;
        return prepared(volume).map(|()| Grant::SwitchMode { mode: claim.mode });
    }
    let Some(existing) = seen.attachments.iter().find(|a| a.name == name) else {
        let on_node = seen.attachments.iter().find(|a| a.node == node || !claim.mode.is_multi_node());
        if let Some(other) = on_node {
            return Err(Waiting::Held(holder_of(seen, other, claim)));
        }
        let beside = |c: &ClaimSeen| c.mode.is_multi_node() && claim.mode.is_multi_node();
        keeps_off(unlocked.iter().find(|c| is_granted_on(c, &node) || !beside(c)))?;
        wait_for_writer(claim, handle, seen.claims, seen.attachments)?;
        one_writing_node(seen, volume, claim, &node)?;
        prepared(volume)?;
        return Ok(Grant::Create { attachment: name, node });
    };
    wait_for_writer(claim, handle, seen.claims, seen.attachments)?;
    one_writing_node(seen, volume, claim, &node)?;
    join(seen, volume, handle, claim, existing, &node)
}

fn usable_volume<'a>(
    seen: &Seen<'a>,
    claim: &ClaimSeen,
) -> Result<(&'a VolumeSeen, &'a HandleSeen), Waiting> {
    let name = || seen.volume_name.to_owned();
    // Before what can be mended: it stays so, whatever becomes of the Volume.
    if let Some(why) = claim.not_entitled.clone() {
        return Err(Waiting::NotEntitled { why });
    }
    let Some(volume) = seen.volume else { return Err(Waiting::VolumeNotFound { volume: name() }) };
    if volume.deleted {
        return Err(Waiting::VolumeDeleted { volume: name() });
    }
    let listed = |u: &crate::api::capability::VolumeUse| {
        u.access_mode == claim.mode && u.attachment_mode == claim.attachment_mode
    };
    if !volume.uses.iter().any(listed) {
        let show = |m: AccessMode, a| format!("{m}/{a}");
        let all: Vec<_> = volume.uses.iter().map(|u| show(u.access_mode, u.attachment_mode)).collect();
        return Err(Waiting::UseNotListed {
            asked: show(claim.mode, claim.attachment_mode),
            listed: all.join(", "),
        });
    }
    if let Some((_, lack)) = seen.not_allowed.iter().find(|(uid, _)| *uid == claim.uid) {
        return Err(Waiting::NotAllowed(lack.clone()));
    }
    match seen.handle {
        Some(handle) if volume.ready && handle.volume_uid == volume.uid => Ok((volume, handle)),
        _ => Err(Waiting::VolumeNotReady { volume: name() }),
    }
}

/// Fails unless a new Attachment can be made, which needs everything that it copies to be known. An existing one can
/// be joined without that.
fn prepared(volume: &VolumeSeen) -> Result<(), Waiting> {
    volume.unprepared.clone().map_or(Ok(()), |why| Err(Waiting::PluginNotReady { why }))
}

/// Whether the driver takes a second target of the volume on a node: in every mode where its Plugin says so, else in
/// those that its capability SINGLE_NODE_MULTI_WRITER covers. SINGLE_NODE_READER_ONLY is not one of them (CSI
/// NodePublishVolume).
#[must_use]
pub fn shares_node(mode: AccessMode, multi_writer: bool, tolerates_second_target: bool) -> bool {
    let covered = matches!(mode, AccessMode::SingleNodeWriter | AccessMode::SingleNodeMultiWriter);
    tolerates_second_target || (multi_writer && covered)
}

/// Whether only one claim at a time may have a target on an Attachment of this mode: the mode says so, or the driver
/// takes no second target on a node (CSI NodePublishVolume).
#[must_use]
pub fn is_exclusive(mode: AccessMode, shares_node: bool) -> bool {
    mode.is_single_claim() || !(mode.is_multi_node() || shares_node)
}

/// Joins the claim to the existing Attachment that has the name it needs, or says why it has to wait.
fn join(
    seen: &Seen<'_>,
    volume: &VolumeSeen,
    handle: &HandleSeen,
    claim: &ClaimSeen,
    existing: &AttachmentSeen,
    node: &str,
) -> Result<Grant, Waiting> {
    // A Node that was registered anew is another one: what was granted under the old UID ends first (rule R9).
    let same_node = seen.nodes.iter().any(|n| n.name == node && n.uid == existing.node_uid);
    let agrees = existing.node == node
        && same_node
        && existing.mode == claim.mode
        && existing.attachment_mode == claim.attachment_mode
        && existing.epoch == handle.epoch
        && existing.volume_uid == volume.uid;
    let users: Vec<&ClaimSeen> = seen.claims.iter().filter(|c| c.uses() == Some(&existing.uid)).collect();
    // Where nobody writes kubelet says so only of Pods that say it themselves.
    let only_reads = claim.read_only || claim.mode.is_reader_only();
    let may_write = only_reads || volume.read_only || !existing.read_only;
    // What its node gave back stays given back: an assignment to it would change nothing.
    let refused = claim.yielded.as_ref() == Some(&existing.uid);
    if existing.is_leaving() || !agrees || !may_write || refused {
        return Err(Waiting::Held(holder_of(seen, existing, claim)));
    }
    // kubelet has a volume staged once for all Pods of a node, in the way of the first. What nobody uses is made anew.
    // So is what was staged before the flags of the Volume were edited.
    let differs = if claim.of_pod {
        claim.staged_as != existing.staged_as
    } else {
        volume.mount_flags != existing.staged_as.flags
    };
    if users.is_empty() && differs {
        return Err(Waiting::Held(holder_of(seen, existing, claim)));
    }
    // Where the Plugin says nothing Pods share their node, and nobody else shares it with them.
    let mixed =
        volume.tolerates_second_target.is_none() && users.iter().any(|user| user.of_pod != claim.of_pod);
    let shares = shares_node(claim.mode, existing.multi_writer, !mixed);
    if !users.is_empty() && (existing.exclusive || is_exclusive(claim.mode, shares)) {
        let holder = holder_of(seen, existing, claim);
        let by_mode = claim.mode.is_single_claim();
        return Err(if by_mode { Waiting::Held(holder) } else { Waiting::OneTarget(holder) });
    }
    let (attachment, uid) = (existing.name.clone(), existing.uid.clone());
    if claim.needs_writer_lock() && !handle.names_writer(&claim.uid, &uid) {
        return Ok(Grant::NameWriter { attachment, uid });
    }
    Ok(Grant::Join { attachment, uid })
}

/// Whether the Attachment of the claim is made without the right to write: where no claim in this mode ever writes,
/// and where CSI lets one node write (MULTI_NODE_SINGLE_WRITER), for those who only read.
#[must_use]
pub fn attaches_read_only(claim: &ClaimSeen) -> bool {
    claim.mode.is_reader_only() || (claim.mode == AccessMode::MultiNodeSingleWriter && claim.read_only)
}

/// Keeps a writer in mode MultiNodeSingleWriter off a second node that may write. Where the writer has gone and
/// readers stayed, theirs still may. A driver that is never asked to attach read-only cannot tell, and takes it.
fn one_writing_node(
    seen: &Seen<'_>,
    volume: &VolumeSeen,
    claim: &ClaimSeen,
    node: &str,
) -> Result<(), Waiting> {
    let elsewhere = seen.attachments.iter().find(|a| a.node != node && !a.read_only);
    match elsewhere.filter(|_| claim.needs_writer_lock() && volume.attaches_read_only) {
        Some(writable) => Err(Waiting::Held(holder_of(seen, writable, claim))),
        None => Ok(()),
    }
}

/// Names who is in the way: a claim on the Attachment where one is known, leaving ones included.
fn holder_of(seen: &Seen<'_>, attachment: &AttachmentSeen, asking: &ClaimSeen) -> Holder {
    let mut on_it: Vec<&ClaimSeen> =
        seen.claims.iter().filter(|c| c.uid != asking.uid && c.uses() == Some(&attachment.uid)).collect();
    on_it.sort_by_key(|c| (c.deleted, c.created, c.name.clone()));
    match on_it.first() {
        Some(claim) => Holder::of(claim, &attachment.node),
        None => Holder {
            pod: None,
            who: format!("Attachment/{}", attachment.name),
            node: attachment.node.clone(),
            state: if attachment.is_leaving() { "leaving".into() } else { format!("{:?}", attachment.state) },
            silence: None,
        },
    }
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
