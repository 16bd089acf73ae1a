//! `attachments.json`: on which nodes a volume is, and as what.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::error::Error;
use super::state::{VolumeDir, read_json};
use super::usage::Terms;

/// An attachment: a volume on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Attachment {
    /// A text that is new with each attachment. It is part of the names of the attachment's loop devices, so that what
    /// belongs to an attachment that has ended is known by it.
    pub(super) token: String,
    pub(super) readonly: bool,
    pub(super) terms: Terms,
    /// Digest of the mount flags, which may be secret and are not kept themselves.
    pub(super) flags: String,
}

impl Attachment {
    /// Whether the node may write.
    pub(super) fn is_writable(&self) -> bool {
        !self.readonly && !self.terms.mode.is_reader_only()
    }

    /// Whether this attachment was made by a call like that of `other`.
    pub(super) fn same_arguments(&self, other: &Self) -> bool {
        self.readonly == other.readonly && self.terms == other.terms && self.flags == other.flags
    }
}

/// The attachments of a volume, by node id.
pub(super) type Attachments = BTreeMap<String, Attachment>;

/// A text that nobody can have met before.
pub(super) fn token() -> String {
    format!("{:032x}", rand::random::<u128>())
}

/// The attachments of a volume; none of one that does not exist.
pub(super) fn load(volume: &VolumeDir) -> Result<Attachments, Error> {
    Ok(read_json(&volume.attachments())?.unwrap_or_default())
}
