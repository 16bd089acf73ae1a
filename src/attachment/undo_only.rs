//! What the agent of the controller instance does about an Attachment that was made only to be closed (rule R11).
//!
//! The storage said that the volume is attached to a node where moor has no Attachment. The leader wrote an entry into
//! the VolumeHandle's spec.undoing, made this Attachment with the entry's token and deleted it; the node has said that
//! nothing of the handle is left there. The one call that is left, ControllerUnpublishVolume, must never hit a node
//! that uses the volume:
//!
//! - Who attaches reads the VolumeHandle after its Attachment was made and before its call, and waits while an entry
//!   names its node. So an Attachment that is made after the entry does not get past `Taken` before the entry is done,
//!   and its node uses nothing before `Attached`.
//! - An Attachment that got past `Taken` was there before the entry, so the LIST that is made here after reading the
//!   entry shows it; then no call is made, and none was ever made, because what the LIST shows was true all along.
//! - An entry is done only after its Attachment is `ControllerDetached`, that is after the driver's definite answer,
//!   and its Attachment is freed only after the entry is done. A token is never used again, so an Attachment that a
//!   leader with an old cache makes once more finds no entry and makes no call.

use super::controller_side::{ControllerStep, HandleRead};
use super::observed::{AttachmentSeen, is_mine};
use crate::api::AttachmentState;

/// Plans the next step. `handle` must come from a live GET made after `attachment` was seen, `locks` from a quorum LIST
/// of the handle's Attachments made after that (rule R1).
#[must_use]
pub fn plan(
    attachment: &AttachmentSeen,
    instance: &str,
    handle: &HandleRead<'_>,
    locks: Option<&[AttachmentSeen]>,
) -> ControllerStep {
    let named = attachment.controller.as_ref().is_some_and(|c| c.instance == instance);
    let due = match attachment.state {
        AttachmentState::NodeDetached => true,
        AttachmentState::Taken | AttachmentState::Attached => attachment.lost,
        AttachmentState::ControllerDetached => false,
    };
    if !named || !due || !attachment.attach || !attachment.deleted {
        return ControllerStep::Idle;
    }
    let HandleRead::Read(handle) = handle else { return ControllerStep::ReadHandle };
    if !is_mine(attachment, *handle) {
        return ControllerStep::Idle;
    }
    let allowed = handle.is_some_and(|h| {
        h.fences
            .iter()
            .any(|f| Some(&f.token) == attachment.undo_only.as_ref() && f.node_id == attachment.node_id)
    });
    if !allowed {
        return ControllerStep::ReportDetached;
    }
    let Some(locks) = locks else { return ControllerStep::ListLocks };
    if locks.iter().any(|lock| may_use(lock, attachment)) {
        return ControllerStep::ReportDetached;
    }
    ControllerStep::Unpublish
}

/// The other Attachment's node may use the volume where `undo` would detach it, or its own undo is due there.
fn may_use(other: &AttachmentSeen, undo: &AttachmentSeen) -> bool {
    let may = match other.state {
        // Not attached as far as anybody was told: attached anew when the entry is done.
        AttachmentState::Taken => !other.attach,
        AttachmentState::Attached | AttachmentState::NodeDetached => true,
        AttachmentState::ControllerDetached => false,
    };
    may && other.uid != undo.uid && !other.is_undo_only() && other.is_on(&undo.node, &undo.node_id)
}
