//! One pass over a VolumeHandle, as its steps share it.

use std::collections::HashMap;
use std::sync::Arc;

use crate::agent::context::Agent;
use crate::api::{Attachment, AttachmentUid, ClaimUid, VolumeClaim};
use crate::attachment::HandleSeen;
use crate::heartbeat::Term;

/// One pass over a VolumeHandle.
pub(super) struct Pass {
    pub agent: Arc<Agent>,
    /// Name of the VolumeHandle.
    pub handle: String,
    /// The term of the agent's Lease in which the pass began, and in which alone its live reads count.
    pub term: Option<Term>,
    /// Attachments read live, by UID; None is gone.
    pub live: HashMap<AttachmentUid, Option<Arc<Attachment>>>,
    /// Claims read live, by UID; None is gone.
    pub live_claims: HashMap<ClaimUid, Option<Arc<VolumeClaim>>>,
    /// The VolumeHandle read live, and the UID of the claim for which.
    pub live_handle: Option<(ClaimUid, Option<HandleSeen>)>,
    /// The API server's revision, read after everything that was found gone.
    pub revision: Option<u64>,
}
