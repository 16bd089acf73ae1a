//! `attachments.json`: on which nodes a volume is, and as what.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::driver::Call;
use super::error::Error;
use super::state::{VolumeId, read_json};
use super::usage::Terms;

/// A volume's place on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Attachment {
    /// New with each attachment, and part of its loop devices' names: what belongs to an ended one is known by it.
    pub(super) token: String,
    pub(super) readonly: bool,
    pub(super) terms: Terms,
    /// Digest of the mount flags, which are not kept themselves.
    pub(super) flags: String,
}

impl Attachment {
    /// Whether the node may write.
    pub(super) fn is_writable(&self) -> bool {
        !self.readonly && !self.terms.mode.is_reader_only()
    }

    /// Whether it was made by a call like that of `other`.
    pub(super) fn same_arguments(&self, other: &Self) -> bool {
        self.readonly == other.readonly && self.terms == other.terms && self.flags == other.flags
    }
}

/// By node id.
pub(super) type Attachments = BTreeMap<String, Attachment>;

/// A value that nobody can have met before.
pub(super) fn token() -> String {
    format!("{:032x}", rand::random::<u128>())
}

pub(super) fn load(call: &Call<'_>, id: &VolumeId) -> Result<Attachments, Error> {
    Ok(read_json(&call.state().attachments_file(id))?.unwrap_or_default())
}
