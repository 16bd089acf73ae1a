//! Observe: the Attachments of a Volume that nobody uses.

use std::time::Instant;

use super::key::VolumeKey;
use super::known::Known;
use super::linger::Lingering;
use crate::attachment::AttachmentSeen;
use crate::claim::{ClaimSeen, NodeSeen};

/// What is remembered of the Attachments of a Volume that nobody uses. None lingers on a full node while somebody waits for
/// room on one.
pub(crate) fn observe(
    known: &Known,
    volume: &VolumeKey,
    (attachments, claims): (&[AttachmentSeen], &[ClaimSeen]),
    nodes: &[NodeSeen],
) -> Lingering {
    let mut lingering = known.linger.see(volume, attachments, claims, Instant::now());
    let is_full = |node: &str| nodes.iter().any(|n| n.name == node && !n.has_room);
    for attachment in attachments {
        if let Some(unused) = lingering.unused.get_mut(&attachment.uid) {
            unused.lingers &= !(is_full(&attachment.node) && known.room.is_sought(&attachment.node));
        }
    }
    lingering
}
