use std::time::Duration;

use super::*;
use crate::agent::calls::failure::Failure;
use crate::agent::calls::retry::Attempt;
use crate::agent::calls::status::failed as fail;
use crate::api::conditions::Reason;
use crate::csi::Rpc;

fn now() -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap()
}

fn attaching() -> Wait {
    let mut status = AttachmentStatus::default();
    let failure = Failure {
        code: "Internal".into(),
        ..Failure::local(Reason::ControllerPublishFailed, Rpc::ControllerPublishVolume, "no".into())
    };
    let attempt = Attempt { number: 3, next: Duration::from_secs(4) };
    fail(&mut status, &failure, attempt, "on node a", Some(1), now());
    Wait { reason: Reason::Attaching, message: "m".into(), attaching: Some(status) }
}

#[test]
fn a_claim_shows_the_failure_of_its_attachment_until_it_is_attached() {
    let mut status = VolumeClaimStatus::default();
    attaching().write(&mut status, false, Some(1), now());
    assert_eq!((status.attempts, status.state), (Some(3), ClaimState::Taken));
    assert_eq!(status.last_error.as_ref().unwrap().rpc, "ControllerPublishVolume");
    assert_eq!(status.next_retry.as_ref().unwrap().0.as_second(), 1_700_000_004);

    Wait::new(Reason::Staging, "NodeStageVolume is running".into()).write(&mut status, false, Some(1), now());
    assert_eq!((status.last_error, status.attempts, status.next_retry), (None, None, None));
}

#[test]
fn a_failure_of_its_own_stays_while_the_call_runs_again() {
    let mut status = VolumeClaimStatus::default();
    let failure = Failure::local(Reason::NodeStageFailed, Rpc::NodeStageVolume, "no".into());
    fail(&mut status, &failure, Attempt { number: 2, next: Duration::ZERO }, "on node a", Some(1), now());
    Wait::new(Reason::Staging, "NodeStageVolume is running".into()).write(&mut status, false, Some(1), now());
    assert_eq!((status.attempts, status.last_error.unwrap().rpc.as_str()), (Some(2), "NodeStageVolume"));
}

#[test]
fn only_a_failure_of_its_own_silences_what_a_claim_waits_for() {
    let mut claim = VolumeClaim::default();
    claim.metadata.generation = Some(1);
    let mut status = VolumeClaimStatus::default();
    attaching().write(&mut status, false, Some(1), now());
    claim.status = Some(status.clone());
    assert!(!shows_own_failure(&claim), "the next attempt of the Attachment would not be shown");
    let failure = Failure::local(Reason::NodeStageFailed, Rpc::NodeStageVolume, "no".into());
    fail(&mut status, &failure, Attempt { number: 1, next: Duration::ZERO }, "on node a", Some(1), now());
    claim.status = Some(status);
    assert!(shows_own_failure(&claim));
}

#[test]
fn a_claim_that_leaves_says_what_runs_and_is_not_shown_as_ready() {
    let mut status = VolumeClaimStatus { state: ClaimState::Ready, ..VolumeClaimStatus::default() };
    Wait::new(Reason::Unpublishing, "NodeUnpublishVolume is running".into()).write(
        &mut status,
        true,
        Some(2),
        now(),
    );
    assert_eq!(status.state, ClaimState::Taken);
    assert_eq!((&*status.conditions[0].status, &*status.conditions[0].reason), ("False", "Unpublishing"));
}
