//! How a call fails, and how to tell the driver's own answer from everything else that can go wrong.

use std::error::Error;

use tonic::{Code, Status};

use super::meaning::{Meaning, meaning};
use super::redact::Scrub;
use super::rpc::Rpc;
use super::sizes::SizeError;

/// Beginnings of the messages of errors that tonic makes on this side of the connection without a source: an answer
/// came but could not be read. Tests pin the first two to the tonic in use; the others need a server that breaks gRPC.
const UNREADABLE: [&str; 6] = [
    "Error, decoded message length too large",
    "failed to decode Protobuf message",
    "Missing response message",
    "Unexpected EOF decoding stream",
    "protocol error: received message with",
    "grpc-status header missing",
];

/// Who says that a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// We, before sending: an argument is not what CSI allows.
    Argument,
    /// Nobody listens at the socket, or it is no longer the plugin's. The request was not sent.
    Dial,
    /// The connection broke. The request may have been sent.
    Connection,
    /// We, because the deadline passed.
    Deadline,
    /// We, because the driver's answer cannot be read, lacks what CSI requires or is more than can be used.
    Reply,
    /// The driver: this is its own code.
    Driver,
}

/// A call that did not succeed. Its message is safe to show: nothing that was sent as secret is in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{rpc}: {code:?}: {message}")]
pub struct CallError {
    /// The call that was tried.
    pub rpc: Rpc,
    /// The gRPC code. It is the driver's own only if `origin` says so.
    pub code: Code,
    /// For people: the driver's words, at most 1024 bytes, without control characters and without secrets.
    pub message: String,
    /// Who says so.
    pub origin: Origin,
}

impl CallError {
    /// What the caller knows now, and may do next.
    #[must_use]
    pub fn meaning(&self) -> Meaning {
        match self.origin {
            Origin::Argument => Meaning::Infeasible,
            Origin::Dial => Meaning::NeverSent,
            // The code is then not the driver's, so it says nothing about what the driver did.
            Origin::Connection | Origin::Deadline | Origin::Reply if self.rpc.is_question() => Meaning::Final,
            Origin::Connection | Origin::Deadline | Origin::Reply => Meaning::StillRunning,
            Origin::Driver => meaning(self.rpc, self.code),
        }
    }

    /// Whether the connection failed and not the call: the plugin is restarting or gone. This, and never an answer of
    /// the driver, is a reason to ask another instance.
    #[must_use]
    pub fn is_transport(&self) -> bool {
        matches!(self.origin, Origin::Dial | Origin::Connection)
    }

    /// An argument broke a limit of CSI.
    pub(super) fn argument(rpc: Rpc, error: &SizeError) -> Self {
        Self { rpc, code: Code::InvalidArgument, message: error.to_string(), origin: Origin::Argument }
    }

    /// The answer breaks a rule of CSI.
    pub(super) fn reply(rpc: Rpc, what: impl Into<String>) -> Self {
        let message = format!("the driver's answer breaks CSI: {}", what.into());
        Self { rpc, code: Code::Internal, message, origin: Origin::Reply }
    }

    /// The answer is as CSI wants it, and more than can be used.
    pub(super) fn not_taken(rpc: Rpc, what: impl Into<String>) -> Self {
        let message = format!("the driver's answer is not taken: {}", what.into());
        Self { rpc, code: Code::Internal, message, origin: Origin::Reply }
    }

    /// No answer in time.
    pub(super) fn deadline(rpc: Rpc, after: std::time::Duration) -> Self {
        let message = format!("no answer within {after:?}");
        Self { rpc, code: Code::DeadlineExceeded, message, origin: Origin::Deadline }
    }

    /// From what tonic returned.
    pub(super) fn from_status(rpc: Rpc, status: &Status, scrub: &Scrub) -> Self {
        let origin = origin_of(status);
        let code = if origin == Origin::Deadline { Code::DeadlineExceeded } else { status.code() };
        // tonic's own words for a connection are of its parts; what has happened says the innermost of its errors.
        let broken = (origin == Origin::Connection).then(|| innermost(status)).flatten();
        let message = broken.map(|reason| format!("the connection broke: {reason}"));
        Self { rpc, code, message: scrub.clean(message.as_deref().unwrap_or(status.message())), origin }
    }
}

/// tonic turns everything into a status. One made on this side has the error that it was made from as its source.
fn origin_of(status: &Status) -> Origin {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<tonic::ConnectError>() {
            return Origin::Dial;
        }
        if error.is::<tonic::TimeoutExpired>() {
            return Origin::Deadline;
        }
        source = error.source();
    }
    if status.source().is_some() {
        return Origin::Connection;
    }
    if UNREADABLE.iter().any(|beginning| status.message().starts_with(beginning)) {
        return Origin::Reply;
    }
    Origin::Driver
}

/// What the error says from which all others of a status come.
fn innermost(status: &Status) -> Option<String> {
    std::iter::successors(status.source(), |error| (*error).source()).last().map(ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(rpc: Rpc, code: Code, origin: Origin) -> CallError {
        CallError { rpc, code, message: String::new(), origin }
    }

    #[test]
    fn a_broken_connection_leaves_a_change_running_whatever_its_code() {
        for code in [Code::Internal, Code::Unknown, Code::PermissionDenied, Code::Unavailable] {
            let error = error(Rpc::NodeStageVolume, code, Origin::Connection);
            assert_eq!(error.meaning(), Meaning::StillRunning);
            assert!(error.is_transport());
        }
    }

    #[test]
    fn an_unreadable_answer_leaves_a_change_running() {
        let error = CallError::reply(Rpc::CreateVolume, "volume_id is empty");
        assert_eq!(error.meaning(), Meaning::StillRunning);
        assert!(!error.is_transport());
    }

    #[test]
    fn a_failed_dial_was_never_sent() {
        assert_eq!(
            error(Rpc::NodePublishVolume, Code::Unavailable, Origin::Dial).meaning(),
            Meaning::NeverSent
        );
    }

    #[test]
    fn the_drivers_own_code_is_read_from_the_table() {
        let error = error(Rpc::NodeStageVolume, Code::Internal, Origin::Driver);
        assert_eq!(error.meaning(), Meaning::Final);
    }

    #[test]
    fn an_error_prints_the_call_and_the_code() {
        let error = CallError::argument(Rpc::DeleteVolume, &SizeError("volume_id is empty".to_owned()));
        assert_eq!(error.to_string(), "DeleteVolume: InvalidArgument: volume_id is empty");
        assert_eq!(error.meaning(), Meaning::Infeasible);
    }
}
