//! What can go wrong, and the one place where that becomes a gRPC code.

use std::io;
use std::path::{Path, PathBuf};

use tonic::{Code, Status};

use crate::csi::sizes::SizeError;

/// Every failure of the driver. Messages reach the orchestrator and its users, so none carries a secret, a context or a
/// mount flag.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A field that CSI requires is empty.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A field is longer than CSI allows, or not of the form that CSI asks for.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// A field's value is not one that the call can ever succeed with.
    #[error("{field}: {reason}")]
    Invalid {
        /// The field, as the protocol names it.
        field: &'static str,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
    /// No volume has this id.
    #[error("there is no volume {0:?}")]
    NoVolume(String),
    /// No snapshot has this id.
    #[error("there is no snapshot {0:?}")]
    NoSnapshot(String),
    /// No group of snapshots has this id.
    #[error("there is no group of snapshots {0:?}")]
    NoGroup(String),
    /// The volume is not at this path of the node.
    #[error("volume {volume:?} is neither staged nor published at {}", path.display())]
    NotThere {
        /// The volume's id.
        volume: String,
        /// The path.
        path: PathBuf,
    },
    /// No node has registered under this id.
    #[error("there is no node {0:?}")]
    NoNode(String),
    /// The same name, node or target is already in use with other arguments.
    #[error("{0}")]
    Different(String),
    /// No size within the asked range can be made.
    #[error("capacity_range: {0}")]
    OutOfRange(String),
    /// A single-node volume is attached to another node, or its writer is.
    #[error("volume {volume:?} is attached to node {node:?}: {reason}")]
    AttachedElsewhere {
        /// The volume's id.
        volume: String,
        /// The node that has it.
        node: String,
        /// Why both cannot have it.
        reason: &'static str,
    },
    /// The call came before one that it depends on, or after one that ended what it works on.
    #[error("out of order: {0}")]
    OutOfOrder(String),
    /// Something that the driver needs of its machine is missing.
    #[error("missing on this machine: {0}")]
    Lacking(String),
    /// The volume's data is not something that may be mounted or formatted.
    #[error("volume {volume:?} is left as it is: {reason}")]
    Unfit {
        /// The volume's id.
        volume: String,
        /// What was found.
        reason: String,
    },
    /// There is no room for the volume where it has to be.
    #[error("{0}")]
    Exhausted(String),
    /// Another call for the same volume is running, in this process or on another node.
    #[error("another operation is pending for {0:?}")]
    Pending(String),
    /// A page token that this driver never gave out.
    #[error("starting_token is not from this driver: list again without one")]
    Token,
    /// An RPC that is not advertised.
    #[error("{0} is not implemented by this driver")]
    Unimplemented(&'static str),
    /// Something still uses the mount or the device.
    #[error("{what} is still in use: {reason}")]
    Busy {
        /// The mount point or the device.
        what: String,
        /// How that shows.
        reason: &'static str,
    },
    /// Something that is not this volume sits at a path of the call.
    #[error("{} holds something else: {reason}", path.display())]
    Occupied {
        /// The path.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// A program did not succeed.
    #[error("{program} failed ({status}): {stderr}")]
    Program {
        /// The program's name.
        program: &'static str,
        /// Its exit status, in words.
        status: String,
        /// What it wrote, if that may be shown.
        stderr: String,
    },
    /// A file operation did not succeed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file of the state directory does not say what it should.
    #[error("{} is damaged: {source}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Why it cannot be read.
        source: serde_json::Error,
    },
    /// A fault that a test asked for.
    #[error("fault asked for by a test")]
    Fault(Code),
    /// The driver is ending.
    #[error("the driver is shutting down")]
    Ending,
    /// A flag of the command line cannot be used.
    #[error("--{flag}: {reason}")]
    Argument {
        /// The flag.
        flag: &'static str,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// The gRPC server ended by itself.
    #[error("the gRPC server failed: {0}")]
    Serve(#[from] tonic::transport::Error),
    /// A call ended without an answer, which is a defect of the driver.
    #[error("the call ended without an answer")]
    Vanished,
}

impl Error {
    /// The gRPC code that CSI assigns to this failure.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Missing(_) | Self::Size(_) | Self::Invalid { .. } => Code::InvalidArgument,
            Self::NoVolume(_)
            | Self::NoSnapshot(_)
            | Self::NoGroup(_)
            | Self::NoNode(_)
            | Self::NotThere { .. } => Code::NotFound,
            Self::Different(_) => Code::AlreadyExists,
            Self::OutOfRange(_) => Code::OutOfRange,
            Self::AttachedElsewhere { .. } | Self::OutOfOrder(_) | Self::Lacking(_) | Self::Unfit { .. } => {
                Code::FailedPrecondition
            }
            Self::Exhausted(_) => Code::ResourceExhausted,
            Self::Pending(_) | Self::Token => Code::Aborted,
            Self::Unimplemented(_) => Code::Unimplemented,
            Self::Ending => Code::Unavailable,
            Self::Fault(code) => *code,
            Self::Busy { .. }
            | Self::Occupied { .. }
            | Self::Program { .. }
            | Self::Io { .. }
            | Self::Damaged { .. }
            | Self::Argument { .. }
            | Self::Serve(_)
            | Self::Vanished => Code::Internal,
        }
    }

    /// Makes an error of the system's, for `map_err`, with what was tried and on what.
    pub(super) fn io<E: Into<io::Error>>(action: &'static str, path: &Path) -> impl FnOnce(E) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source: source.into() }
    }

    /// The error of a mount point that holds what is not the volume's.
    pub(super) fn occupied(path: &Path) -> Self {
        let reason = "something that is not this volume is mounted there".to_owned();
        Self::Occupied { path: path.to_owned(), reason }
    }

    pub(super) fn invalid(field: &'static str, reason: impl Into<String>) -> Self {
        Self::Invalid { field, reason: reason.into() }
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        // The details stay empty, because CSI gives meaning to the code and the message only.
        Self::new(error.code(), error.to_string())
    }
}
