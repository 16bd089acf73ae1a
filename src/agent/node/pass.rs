//! One pass over a VolumeHandle, as its steps share it, and why a step was not done.

use std::collections::HashMap;
use std::sync::Arc;

use crate::agent::calls::failure::Failure;
use crate::agent::context::Agent;
use crate::agent::host::mounts::MountError;
use crate::agent::records::store::RecordError;
use crate::api::{Attachment, VolumeClaim};
use crate::attachment::HandleSeen;
use crate::k8s::ApiError;

/// Node calls at a time, per driver and direction.
pub(super) const CONCURRENCY: usize = 32;

/// One pass over a VolumeHandle.
pub(super) struct Pass {
    pub agent: Arc<Agent>,
    /// Name of the VolumeHandle.
    pub handle: String,
    /// Attachments read live, by UID; None is gone.
    pub live: HashMap<String, Option<Arc<Attachment>>>,
    /// Claims read live, by UID; None is gone.
    pub live_claims: HashMap<String, Option<Arc<VolumeClaim>>>,
    /// The VolumeHandle read live, and the UID of the claim for which.
    pub live_handle: Option<(String, Option<HandleSeen>)>,
    /// The API server's revision, read after everything that was found gone.
    pub revision: Option<u64>,
}

/// Why a step was not done.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    /// The driver, a path or a Secret: recorded in the status and tried again later.
    #[error("{0}")]
    Failed(Box<Failure>),
    /// No call may be started now.
    #[error("no call may be started now")]
    NotNow,
    /// As many calls of the driver are running as may.
    #[error("waits for a turn at the driver")]
    Busy,
    /// The API server.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The node's own records.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The mounts cannot be looked at.
    #[error(transparent)]
    Mounts(#[from] MountError),
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Failed(Box::new(failure))
    }
}
