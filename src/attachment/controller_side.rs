//! What the agent of an Attachment's controller instance does next.
//!
//! It owns an Attachment that is `Taken` (also while it closes), one that is closing and `NodeDetached`, and one that is lost.
//! One that is `NodeDetached` and open is the leader's to close; everything between belongs to the node.

use super::observed::{AttachmentSeen, HandleSeen, Standing, is_mine, standing};
use crate::api::AttachmentState;

/// One step. Every variant is at most one side effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ControllerStep {
    /// Nothing to do until something changes.
    Idle,
    /// GET the VolumeHandle and decide again.
    ReadHandle,
    /// ControllerPublishVolume, then write Attached.
    Publish,
    /// ControllerUnpublishVolume, then end the Attachment if it is closed, or write ControllerDetached.
    Unpublish,
    /// The same without a call: none has ever run.
    ReportDetached,
}

/// The VolumeHandle, if it was read since the decision was last taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandleRead<'a> {
    /// Not read yet.
    Unread,
    /// Read; `None` means it does not exist.
    Read(Option<&'a HandleSeen>),
}

/// Plans the next controller-side step for an Attachment that names `instance`.
///
/// `handle` must come from a live GET made after `attachment` was seen (rule R1).
#[must_use]
pub fn plan(attachment: &AttachmentSeen, instance: &str, handle: &HandleRead<'_>) -> ControllerStep {
    if attachment.controller.as_ref().is_none_or(|c| c.instance != instance) || !attachment.attach {
        return ControllerStep::Idle;
    }
    let due = match attachment.state {
        // The node is done, or will never be: the inverse is due whatever the epoch is, because that cannot
        // move on before this Attachment is gone.
        AttachmentState::Taken | AttachmentState::Attached | AttachmentState::NodeDetached
            if attachment.lost =>
        {
            true
        }
        // The leader closes it at once, if it has not yet: a closed one ends with what is written after the call, any other
        // takes two writes more.
        AttachmentState::NodeDetached if !attachment.deleted => return ControllerStep::Idle,
        AttachmentState::NodeDetached => true,
        AttachmentState::Taken => false,
        AttachmentState::Attached | AttachmentState::ControllerDetached => return ControllerStep::Idle,
    };
    let HandleRead::Read(handle) = handle else { return ControllerStep::ReadHandle };
    if due {
        // Not by an instance that was given up and has come back: its successor may be calling already.
        return if is_mine(attachment, *handle) { ControllerStep::Unpublish } else { ControllerStep::Idle };
    }
    match standing(attachment, *handle) {
        Standing::Valid if attachment.deleted => ControllerStep::Unpublish,
        Standing::Valid => ControllerStep::Publish,
        Standing::NotMine => ControllerStep::Idle,
        Standing::MayHaveRun => ControllerStep::Unpublish,
        Standing::NeverRan => ControllerStep::ReportDetached,
    }
}

/// Whether nothing is left to say of an Attachment that is undone: it may end at once (docs/adr/0064). One that is open is the leader's
/// to close, and of a lost one the leader ends the claims first.
#[must_use]
pub fn ends_undone(attachment: &AttachmentSeen) -> bool {
    attachment.deleted && !attachment.lost
}

/// Whether what the Attachment's status shows is for the agent of its controller instance to write (rule R6). The node's
/// agent then tells of its own calls elsewhere: two writers would each take the other's failure away.
#[must_use]
pub fn writes_status(attachment: &AttachmentSeen) -> bool {
    attachment.attach && (attachment.lost || attachment.state != AttachmentState::Attached)
}

/// Whether the leader has to name another controller instance on this Attachment: a controller call of it is due or
/// being made, and the calls of its VolumeHandle have moved to that instance (rule R2).
#[must_use]
pub fn is_misplaced(attachment: &AttachmentSeen, handle: &HandleSeen) -> bool {
    let due = match attachment.state {
        AttachmentState::Taken | AttachmentState::NodeDetached => true,
        AttachmentState::Attached => attachment.lost,
        AttachmentState::ControllerDetached => false,
    };
    due && attachment.attach && handle.controller.is_some() && !is_mine(attachment, Some(handle))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::caller::ControllerRef;
    use crate::fixtures;

    fn at(instance: &str) -> ControllerRef {
        ControllerRef::new(instance, instance, 0)
    }

    #[test]
    fn a_lost_attachment_follows_its_handle_although_it_is_attached() {
        let mut attachment = AttachmentSeen { controller: Some(at("dead")), ..fixtures::attachment("u") };
        let mut handle = HandleSeen { controller: Some(at("heir")), ..fixtures::handle() };
        assert!(!is_misplaced(&attachment, &handle), "nothing is due while the node uses it");
        attachment.lost = true;
        assert!(is_misplaced(&attachment, &handle));
        handle.controller = Some(at("dead"));
        assert!(!is_misplaced(&attachment, &handle));
        attachment.state = AttachmentState::ControllerDetached;
        handle.controller = Some(at("heir"));
        assert!(!is_misplaced(&attachment, &handle));
    }

    #[test]
    fn a_status_has_one_writer_at_a_time() {
        let mut attachment = AttachmentSeen { attach: true, ..fixtures::attachment("u") };
        for (state, writes) in [
            (AttachmentState::Taken, true),
            (AttachmentState::Attached, false),
            (AttachmentState::NodeDetached, true),
            (AttachmentState::ControllerDetached, true),
        ] {
            attachment.state = state;
            assert_eq!(writes_status(&attachment), writes, "{state:?}");
            assert!(writes_status(&AttachmentSeen { lost: true, ..attachment.clone() }), "{state:?}, lost");
            let node_alone = AttachmentSeen { attach: false, lost: true, ..attachment.clone() };
            assert!(!writes_status(&node_alone), "{state:?}: no controller call is made of it");
        }
    }

    /// N9: it may have been removed by hand, under an Attachment whose call has run.
    #[test]
    fn a_volume_handle_that_is_gone_does_not_say_that_no_call_has_run() {
        let (controller, state) = (Some(at("i")), AttachmentState::Taken);
        let mut attachment = AttachmentSeen { controller, state, ..fixtures::attachment("u") };
        let gone = HandleRead::Read(None);
        assert_eq!(plan(&attachment, "i", &gone), ControllerStep::Unpublish);
        attachment.deleted = true;
        assert_eq!(plan(&attachment, "i", &gone), ControllerStep::Unpublish);
        attachment.state = AttachmentState::Attached;
        assert_eq!(plan(&attachment, "i", &gone), ControllerStep::Idle, "its node may use it");
    }
}
