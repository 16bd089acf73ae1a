//! What the agent writes into the status of claims, Attachments and Volumes. Pure.
//!
//! A change is made to a copy of the observed status and sent as the difference (RFC 7386), so that only own fields are
//! written and fields of a newer version stay (trap B24).

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;

use super::failure::Failure;
use super::retry::Attempt;
use crate::api::conditions::{self, CallFailure, Condition, Desired};
use crate::api::{AttachmentStatus, SnapshotStatus, VolumeClaimStatus, VolumeStatus};
use crate::csi::Rpc;

/// The statuses that show the progress of a step.
pub trait Progress: Clone + Serialize {
    /// The fields that every such status has.
    fn fields(&mut self) -> Fields<'_>;
    /// How often this call has failed in a row; nothing if another one did.
    fn attempts_of(&self, rpc: Rpc) -> Option<i64>;
}

/// The common fields of a status.
#[derive(Debug)]
#[allow(missing_docs, reason = "they are the fields of the API types")]
pub struct Fields<'a> {
    pub last_error: &'a mut Option<Box<CallFailure>>,
    pub attempts: &'a mut Option<i64>,
    pub next_retry: &'a mut Option<Time>,
    pub observed_generation: &'a mut Option<i64>,
    pub conditions: &'a mut Vec<Condition>,
}

macro_rules! progress {
    ($($status:ty),+) => {$(
        impl Progress for $status {
            fn fields(&mut self) -> Fields<'_> {
                Fields {
                    last_error: &mut self.last_error,
                    attempts: &mut self.attempts,
                    next_retry: &mut self.next_retry,
                    observed_generation: &mut self.observed_generation,
                    conditions: &mut self.conditions,
                }
            }

            fn attempts_of(&self, rpc: Rpc) -> Option<i64> {
                self.attempts.filter(|_| self.last_error.as_ref().is_some_and(|e| e.rpc == rpc.name()))
            }
        }
    )+};
}
progress!(VolumeClaimStatus, AttachmentStatus, VolumeStatus, SnapshotStatus);

/// Writes into a status that a step has succeeded: no failure is left, and the Ready condition says where the object
/// stands.
pub fn went<S: Progress>(status: &mut S, desired: &Desired, generation: Option<i64>, now: Timestamp) {
    let fields = status.fields();
    *fields.last_error = None;
    *fields.attempts = None;
    *fields.next_retry = None;
    waits(status, desired, generation, now);
}

/// Writes into a status that a step has failed and is tried again.
pub fn failed<S: Progress>(
    status: &mut S,
    failure: &Failure,
    attempt: Attempt,
    place: &str,
    generation: Option<i64>,
    now: Timestamp,
) {
    let next = SignedDuration::try_from(attempt.next).unwrap_or_default();
    let fields = status.fields();
    *fields.last_error = Some(failure.shown().into());
    *fields.attempts = Some(i64::from(attempt.number));
    *fields.next_retry = now.checked_add(next).ok().map(conditions::whole_second);
    *fields.observed_generation = generation;
    let desired = Desired { reason: failure.reason, message: message(failure, attempt, place) };
    conditions::set(fields.conditions, &desired, generation, now);
}

/// Writes into a status that a step is due and takes its time.
pub fn waits<S: Progress>(status: &mut S, desired: &Desired, generation: Option<i64>, now: Timestamp) {
    let fields = status.fields();
    *fields.observed_generation = generation;
    conditions::set(fields.conditions, desired, generation, now);
}

fn message(failure: &Failure, attempt: Attempt, place: &str) -> String {
    let Failure { rpc, code, reason, message, .. } = failure;
    let code = if code == reason.as_str() { String::new() } else { format!(": {code}") };
    // Rounded up: "next in 0 s" would say nothing.
    let seconds = attempt.next.as_secs() + u64::from(attempt.next.subsec_nanos() > 0);
    format!("{rpc} {place}{code}: {message}; attempt {}, next in {seconds} s", attempt.number)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::api::conditions::Reason;
    use crate::api::{AttachmentState, ClaimState};
    use crate::k8s::write::difference;
    use serde_json::{Value, json};

    fn now() -> Timestamp {
        Timestamp::from_second(1_700_000_000).unwrap()
    }

    fn failure() -> Failure {
        Failure {
            code: "DeadlineExceeded".into(),
            ..Failure::local(
                Reason::ControllerPublishFailed,
                Rpc::ControllerPublishVolume,
                "no answer".into(),
            )
        }
    }

    #[test]
    fn a_failure_tells_the_story() {
        let mut status = AttachmentStatus::default();
        let attempt = Attempt { number: 3, next: Duration::from_millis(3_200) };
        failed(&mut status, &failure(), attempt, "on node node-1", Some(2), now());
        let condition = &status.conditions[0];
        assert_eq!(condition.reason, Reason::ControllerPublishFailed.as_str());
        assert_eq!(
            condition.message,
            "ControllerPublishVolume on node node-1: DeadlineExceeded: no answer; attempt 3, next in 4 s"
        );
        assert_eq!(status.attempts, Some(3));
        assert_eq!(status.next_retry.unwrap().0.as_second(), 1_700_000_003);
    }

    #[test]
    fn success_removes_the_failure_from_the_object() {
        let mut old = AttachmentStatus::default();
        let attempt = Attempt { number: 1, next: Duration::from_secs(1) };
        failed(&mut old, &failure(), attempt, "on node node-1", Some(1), now());
        let mut new = old.clone();
        new.state = AttachmentState::Attached;
        new.publish_context = BTreeMap::from([("k".into(), "v".into())]);
        went(&mut new, &Desired::new(Reason::Attached, "attached"), Some(1), now());
        let patch = difference(&old, &new).unwrap();
        for gone in ["lastError", "attempts", "nextRetry"] {
            assert_eq!(patch[gone], Value::Null, "{gone}");
            assert!(patch.as_object().unwrap().contains_key(gone), "{gone}");
        }
        assert_eq!(patch["state"], "Attached");
        assert_eq!(patch["publishContext"], json!({ "k": "v" }));
        assert!(!patch.as_object().unwrap().contains_key("observedGeneration"));
    }

    #[test]
    fn equal_statuses_are_not_written() {
        let status = VolumeClaimStatus { state: ClaimState::Ready, ..VolumeClaimStatus::default() };
        assert_eq!(difference(&status, &status), None);
    }
}
