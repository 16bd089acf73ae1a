//! What the status of a deleted claim says while its Attachment is being detached: its node is done with the claim,
//! and a user looks at the claim and not at the Attachment.
//!
//! Only when something is wrong or takes long: what goes well costs no write.

use std::time::Duration;

use super::observed::ClaimSeen;
use crate::api::conditions::{CallFailure, Desired, Reason, story};
use crate::api::{AttachmentState, AttachmentStatus, ClaimState};
use crate::attachment::AttachmentSeen;

/// Whether the claim's status has to say something about the detach.
#[derive(Clone, Debug, PartialEq)]
pub enum Telling {
    /// No: all goes well, or the node's agent writes the status.
    Nothing,
    /// Not yet: it is asked again after this time.
    Later(Duration),
    /// Yes: this condition, with what the Attachment's status says of the driver's last refusal.
    Now(Desired),
}

/// Who detaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller<'a> {
    /// An agent that is heard and whose driver answers, as far as anybody says.
    Works,
    /// An agent that is not heard, or whose driver does not answer.
    Absent,
    /// An agent that is not heard, of a Plugin that is gone: nobody takes over from it, because no PluginInstance of
    /// another agent is there to be believed.
    Orphaned {
        /// Name of the Plugin.
        plugin: &'a str,
    },
}

/// Decides for one deleted claim and the Attachment that it uses. For `left` the claim does not tell yet that the detach takes
/// its time.
#[must_use]
pub fn of(
    claim: &ClaimSeen,
    attachment: &AttachmentSeen,
    status: &AttachmentStatus,
    left: Option<Duration>,
    caller: Caller<'_>,
) -> Telling {
    let done = matches!(claim.state, ClaimState::NodeDetached | ClaimState::Lost);
    // Before that it is the node's agent that acts, and that tells.
    let controllers_turn =
        attachment.lost || matches!(attachment.state, AttachmentState::Taken | AttachmentState::NodeDetached);
    let concerned = claim.deleted && !done && claim.uses() == Some(&attachment.uid);
    if !concerned || !attachment.deleted || !attachment.attach || attachment.is_undone() || !controllers_turn
    {
        return Telling::Nothing;
    }
    // That the volume could not grow there says nothing of that.
    let failed = status.last_error.as_deref().filter(|error| error.rpc.starts_with("Controller"));
    if let Some(left) = left.filter(|_| failed.is_none()) {
        return Telling::Later(left);
    }
    let by = attachment.controller.as_ref().map(|c| c.agent.clone()).unwrap_or_default();
    let (absent, ends) = match caller {
        Caller::Works => ("", String::new()),
        Caller::Absent => (", where the driver does not answer or the agent is not heard", String::new()),
        Caller::Orphaned { plugin } => (
            ", which is not heard,",
            format!(
                "; Plugin {plugin} does not exist, and without it no other agent takes over: create it again with the \
                 same driver, or see to it that this agent runs"
            ),
        ),
    };
    let why = story(failed, status.attempts, status.next_retry.as_ref());
    let message = format!(
        "waits until the agent of node {by}{absent} has detached the volume from node {} (Attachment {}){ends}{}",
        attachment.node,
        attachment.name,
        why.map(|why| format!(": {why}")).unwrap_or_default()
    );
    let detach = |e: &&CallFailure| e.rpc == "ControllerUnpublishVolume";
    let is_refused = failed.as_ref().is_some_and(detach);
    let reason = if is_refused { Reason::ControllerUnpublishFailed } else { Reason::Detaching };
    Telling::Now(Desired { reason, message })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::api::caller::ControllerRef;
    use crate::fixtures;

    const LONG: Option<Duration> = None;

    fn claim() -> ClaimSeen {
        let granted = fixtures::granted("c", &fixtures::attachment("u"));
        ClaimSeen { deleted: true, state: ClaimState::Ready, ..granted }
    }

    fn attachment(state: AttachmentState) -> AttachmentSeen {
        let controller = ControllerRef::new("i", "node-1", 0);
        AttachmentSeen {
            name: "att".into(),
            deleted: true,
            node: "node-2".into(),
            controller: Some(controller),
            state,
            ..fixtures::attachment("u")
        }
    }

    fn refused() -> AttachmentStatus {
        AttachmentStatus {
            last_error: Some(Box::new(CallFailure {
                rpc: "ControllerUnpublishVolume".into(),
                code: "Internal".into(),
                message: "no".into(),
            })),
            attempts: Some(4),
            next_retry: Some(Time("2026-01-02T03:04:05Z".parse().unwrap())),
            ..AttachmentStatus::default()
        }
    }

    #[test]
    fn a_failing_detach_is_told_at_once_with_all_that_is_known() {
        let told = of(
            &claim(),
            &attachment(AttachmentState::NodeDetached),
            &refused(),
            Some(Duration::from_secs(2)),
            Caller::Works,
        );
        let Telling::Now(told) = told else { panic!() };
        assert_eq!(told.reason, Reason::ControllerUnpublishFailed);
        assert_eq!(
            told.message,
            "waits until the agent of node node-1 has detached the volume from node node-2 (Attachment att): \
             ControllerUnpublishVolume: Internal: no; attempt 4, next at 2026-01-02T03:04:05Z"
        );
    }

    #[test]
    fn a_detach_that_goes_well_is_not_told_until_it_lasts() {
        let quiet = AttachmentStatus::default();
        let of = |left| of(&claim(), &attachment(AttachmentState::NodeDetached), &quiet, left, Caller::Works);
        let left = Duration::from_secs(1);
        assert_eq!(of(Some(left)), Telling::Later(left));
        let Telling::Now(told) = of(LONG) else { panic!() };
        assert_eq!(told.reason, Reason::Detaching);
    }

    #[test]
    fn an_agent_that_is_not_heard_is_named() {
        let quiet = AttachmentStatus::default();
        let told = of(&claim(), &attachment(AttachmentState::Taken), &quiet, LONG, Caller::Absent);
        let Telling::Now(told) = told else { panic!() };
        assert!(told.message.contains("node-1, where the driver does not answer"), "{}", told.message);
    }

    #[test]
    fn a_plugin_without_which_nobody_takes_over_is_named() {
        let due = attachment(AttachmentState::NodeDetached);
        let of = |status| of(&claim(), &due, status, LONG, Caller::Orphaned { plugin: "p" });
        for status in [&AttachmentStatus::default(), &refused()] {
            let Telling::Now(told) = of(status) else { panic!() };
            for said in ["node node-1, which is not heard", "Plugin p does not exist", "create it again"] {
                assert!(told.message.contains(said), "{said}: {}", told.message);
            }
        }
    }

    #[test]
    fn nothing_is_told_for_others_or_instead_of_the_node() {
        let due = attachment(AttachmentState::NodeDetached);
        let alive = ClaimSeen { deleted: false, ..claim() };
        let done = ClaimSeen { state: ClaimState::NodeDetached, ..claim() };
        let other = ClaimSeen { assignment: None, ..claim() };
        for claim in [alive, done, other] {
            assert_eq!(of(&claim, &due, &refused(), LONG, Caller::Works), Telling::Nothing, "{claim:?}");
        }
        let nodes_turn = attachment(AttachmentState::Attached);
        let undone = attachment(AttachmentState::ControllerDetached);
        let open = AttachmentSeen { deleted: false, ..due.clone() };
        let unattached = AttachmentSeen { attach: false, ..due };
        for attachment in [nodes_turn, undone, open, unattached] {
            assert_eq!(
                of(&claim(), &attachment, &refused(), LONG, Caller::Works),
                Telling::Nothing,
                "{attachment:?}"
            );
        }
    }
}
