//! Two nodes that a driver knows by one id.
//!
//! For the driver they are one node: attaching to the second changes nothing, and detaching from one takes the volume from
//! the other while it is mounted there. The leader grants nothing on such nodes, but it may have learnt of the second too
//! late, so whoever calls the driver looks at the other Attachments of the volume first.
//!
//! Only modes for several nodes can come to this: in the others one Attachment is the lock of the whole volume. Between
//! the look and the call no other Attachment gets attached, because one agent makes all calls of a VolumeHandle, one by
//! one.

use std::sync::Arc;

use super::controller_side::ControllerStep;
use super::observed::AttachmentSeen;
use crate::api::{Attachment, AttachmentState};

/// Whether the other Attachments of the volume have to be read before this call.
#[must_use]
pub fn matters(attachment: &AttachmentSeen, step: ControllerStep) -> bool {
    let calls = matches!(step, ControllerStep::Publish | ControllerStep::Unpublish);
    calls && attachment.mode.is_multi_node()
}

/// The Attachment for another node because of which the call is not made. `locks` comes from a quorum LIST of the volume's
/// Attachments.
#[must_use]
pub fn in_the_way<'a>(
    attachment: &AttachmentSeen,
    step: ControllerStep,
    locks: &'a [AttachmentSeen],
) -> Option<&'a AttachmentSeen> {
    let twin = |other: &&AttachmentSeen| {
        other.uid != attachment.uid && other.node != attachment.node && other.node_id == attachment.node_id
    };
    let attached = |other: &&AttachmentSeen| match (step, other.state) {
        (_, AttachmentState::Attached) => step == ControllerStep::Publish || !other.lost,
        // Its node is done with it, so whoever detaches first takes nothing from it.
        (ControllerStep::Publish, AttachmentState::NodeDetached) => true,
        // Nothing is mounted there, and its own call is repeated.
        (_, AttachmentState::Taken | AttachmentState::NodeDetached | AttachmentState::ControllerDetached) => {
            false
        }
    };
    locks.iter().filter(twin).find(attached)
}

/// Another node on which the volume is attached under the id that this node has now. The driver there may call it by
/// another id since: what was attached is detached by the recorded one. `locks` are the volume's Attachments.
#[must_use]
pub fn attached_as<'a>(node: &str, node_id: &str, locks: &'a [Arc<Attachment>]) -> Option<&'a str> {
    let taken = |lock: &&Arc<Attachment>| {
        let spec = &lock.spec;
        spec.access_mode.is_multi_node() && spec.node_name != node && spec.fixed.node_id == node_id
    };
    let other = locks.iter().filter(|_| !node_id.is_empty()).find(taken)?;
    Some(&other.spec.node_name)
}

#[cfg(test)]
mod tests {
    use super::super::controller_side::{HandleRead, plan};
    use super::*;
    use crate::api::AccessMode;
    use crate::api::attachment::{AttachmentSpec, Fixed};
    use crate::fixtures;
    use AttachmentState::{Attached, ControllerDetached, NodeDetached, Taken};
    use ControllerStep::{Idle, Publish, Unpublish};

    fn on(node: &str, id: &str, state: AttachmentState) -> AttachmentSeen {
        let (mode, node_id) = (AccessMode::MultiNodeMultiWriter, id.into());
        AttachmentSeen {
            node: node.into(),
            node_id,
            mode,
            state,
            ..fixtures::attachment(&format!("on {node}"))
        }
    }

    #[test]
    fn the_others_are_looked_at_where_there_can_be_others() {
        let mut seen = on("a", "1", Taken);
        assert!(matters(&seen, Publish) && matters(&seen, Unpublish) && !matters(&seen, Idle));
        seen.mode = AccessMode::SingleNodeWriter;
        assert!(!matters(&seen, Publish));
    }

    #[test]
    fn nothing_is_called_under_a_twin_that_uses_the_volume() {
        let blocks = |step, id: &str, state| {
            in_the_way(&on("a", "1", Taken), step, &[on("b", id, state)]).map(|other| other.node.clone())
        };
        for (step, state, blocked) in [
            (Publish, Attached, true),
            (Publish, NodeDetached, true),
            (Publish, Taken, false),
            (Publish, ControllerDetached, false),
            (Unpublish, Attached, true),
            (Unpublish, NodeDetached, false),
            (Unpublish, Taken, false),
            (Unpublish, ControllerDetached, false),
        ] {
            assert_eq!(blocks(step, "1", state), blocked.then(|| "b".to_owned()), "{step:?} {state:?}");
            assert_eq!(blocks(step, "2", state), None, "another id");
        }
    }

    /// Whatever two twins have come to, one of them can go on.
    #[test]
    fn two_twins_never_wait_for_each_other() {
        let handle = fixtures::handle();
        let due = |seen: &AttachmentSeen| {
            let at = fixtures::controller().instance.clone();
            Some(plan(seen, &at, &HandleRead::Read(Some(&handle)))).filter(|step| matters(seen, *step))
        };
        let states = [Taken, Attached, NodeDetached, ControllerDetached];
        let all = states.map(|state| [false, true].map(|deleted| (state, deleted))).concat();
        for (one, other) in all.iter().flat_map(|one| all.iter().map(move |other| (*one, *other))) {
            let seen = |node, (state, deleted)| AttachmentSeen { deleted, ..on(node, "1", state) };
            let (x, y) = (seen("a", one), seen("b", other));
            let (Some(a), Some(b)) = (due(&x), due(&y)) else { continue };
            let stuck = in_the_way(&x, a, std::slice::from_ref(&y)).is_some()
                && in_the_way(&y, b, std::slice::from_ref(&x)).is_some();
            assert!(!stuck, "{one:?} {other:?}");
        }
    }

    /// A node id is one node's for as long as something is attached by it, whatever its driver says since.
    #[test]
    fn a_node_that_has_the_id_by_which_another_is_attached_is_its_twin() {
        let lock = |node: &str, id: &str, access_mode| {
            let fixed = Fixed { node_id: id.into(), ..Fixed::default() };
            let spec =
                AttachmentSpec { node_name: node.into(), access_mode, fixed, ..AttachmentSpec::default() };
            Arc::new(Attachment::new(node, spec))
        };
        let several = AccessMode::MultiNodeMultiWriter;
        let locks = [lock("a", "1", several), lock("b", "2", several)];
        assert_eq!(attached_as("c", "1", &locks), Some("a"));
        assert_eq!(attached_as("b", "2", &locks), None, "itself");
        assert_eq!(attached_as("c", "3", &locks), None);
        assert_eq!(attached_as("c", "", &[lock("a", "", several)]), None, "not known yet");
        // There the Attachment keeps every other node off anyway, and says who holds it.
        assert_eq!(attached_as("c", "1", &[lock("a", "1", AccessMode::SingleNodeWriter)]), None);
    }

    #[test]
    fn a_twin_that_is_lost_is_to_be_cut_off_anyway() {
        let mut lost = on("b", "1", Attached);
        lost.lost = true;
        assert!(in_the_way(&on("a", "1", NodeDetached), Unpublish, &[lost]).is_none());
    }
}
