//! How nodes follow a volume that has grown: which size is owed to them, and what the Volume says of it.
//!
//! What is owed is `status.expansion` for as long as it says that NodeExpandVolume has to follow. It follows once on each node
//! on which a claim that may write has the volume; where none has, on the first that gets it. Then the leader takes the word
//! away, and the volume has the size. kubelet sees to Pods that use it by a PersistentVolumeClaim, and says so there.

use crate::api::conditions::{Desired, Reason, first_few};
use crate::api::names::handle_of_import;
use crate::api::volume::Expansion;
use crate::api::{Volume, VolumeState, quantity};
use crate::attachment::AttachmentSeen;
use crate::claim::ClaimSeen;

use super::growth;

/// Names of nodes in one message.
const NAMED: usize = 3;

/// The size in bytes that a volume is to have on its nodes, if NodeExpandVolume has to follow.
#[must_use]
pub fn owed(volume: &Volume) -> Option<i64> {
    let is_used = volume.state() == VolumeState::Ready && volume.metadata.deletion_timestamp.is_none();
    let expansion = volume.status.as_ref()?.expansion.filter(|e| is_used && e.node_expansion_required)?;
    // What the storage has stays. What is left to nodes alone may be lowered until one of them has done it.
    Some(expansion.capacity_bytes.min(growth::asked(volume)).max(growth::made(volume)))
}

/// Whether nodes still have to follow where the volume is used, to a size of so many bytes.
#[must_use]
pub fn is_behind(attachment: &AttachmentSeen, claims: &[ClaimSeen], bytes: i64) -> bool {
    let is_used = || claims.iter().any(|claim| claim.grows_on(attachment));
    !attachment.is_leaving() && attachment.growth.reached < bytes && is_used()
}

/// Whether all nodes have followed that have to, so that none owes anything any more: one has, and so the file system, and
/// nobody who uses the volume is behind. What kubelet has done for Pods is not said here, so while they use it they may be.
#[must_use]
pub fn have_followed(attachments: &[AttachmentSeen], claims: &[ClaimSeen], bytes: i64) -> bool {
    let may_be_behind = |one: &AttachmentSeen| {
        let has_it = |claim: &ClaimSeen| !claim.deleted && claim.uses() == Some(&one.uid);
        let is_kubelets = || claims.iter().any(|claim| claim.grown_by_kubelet && has_it(claim));
        let is_late = !one.is_leaving() && one.growth.reached < bytes;
        is_behind(one, claims, bytes) || (is_late && is_kubelets())
    };
    attachments.iter().any(|one| one.growth.reached >= bytes) && !attachments.iter().any(may_be_behind)
}

/// Whether Pods use the volume by a PersistentVolumeClaim: by that one kubelet has it grow on nodes, and there it says so.
#[must_use]
pub fn is_for_persistent(volume: &Volume) -> bool {
    let spec = &volume.spec;
    let is_import = || volume.metadata.name.as_deref().is_some_and(|name| handle_of_import(name).is_some());
    spec.persistent_volume.is_some() || spec.persistent_volume_claim.is_some() || is_import()
}

/// What a Volume says when its storage has the size that was asked for, or needs none because nodes alone make it larger.
#[must_use]
pub fn grown(volume: &Volume, expansion: Expansion) -> Desired {
    let size = quantity::human(expansion.capacity_bytes);
    if !expansion.node_expansion_required {
        return Desired::new(
            Reason::Expanded,
            format!("the volume has {size}; nothing is left to do on nodes"),
        );
    }
    unused(volume, &size)
}

/// What a Volume says whose nodes have to follow, while no claim has it that they would follow for.
fn unused(volume: &Volume, size: &str) -> Desired {
    if is_for_persistent(volume) {
        let words = format!(
            "the volume has {size}; kubelet has NodeExpandVolume called where a Pod uses it by its PersistentVolumeClaim"
        );
        return Desired::new(Reason::Expanded, words);
    }
    let words = format!(
        "the volume is to have {size} where it is used, by NodeExpandVolume: that is called for the next claim that mounts it \
         and may write"
    );
    Desired::new(Reason::NodesToFollow, words)
}

/// What a Volume says when all nodes have followed.
#[must_use]
pub fn followed(bytes: i64) -> Desired {
    let words = format!("the volume has {}, also where it is used", quantity::human(bytes));
    Desired::new(Reason::Expanded, words)
}

/// An Attachment, and what there is to say of how the volume grows on its node.
#[derive(Clone, Debug)]
pub struct OnNode<'a> {
    /// The Attachment.
    pub attachment: &'a AttachmentSeen,
    /// The driver's words about the last NodeExpandVolume, if it failed.
    pub failure: Option<String>,
    /// The driver says that it grows volumes only while nobody uses them.
    pub only_unused: bool,
}

/// What the Volume says of the nodes that have to follow; None: nothing, since no size is owed to them, or a larger one is
/// asked for that the storage does not have yet.
#[must_use]
pub fn condition(volume: &Volume, claims: &[ClaimSeen], nodes: &[OnNode<'_>]) -> Option<Desired> {
    let bytes = owed(volume).filter(|_| growth::wanted(volume).is_none())?;
    let size = quantity::human(bytes);
    let mut behind: Vec<&OnNode<'_>> =
        nodes.iter().filter(|one| is_behind(one.attachment, claims, bytes)).collect();
    behind.sort_by(|a, b| a.attachment.node.cmp(&b.attachment.node));
    if let Some((node, words)) =
        behind.iter().find_map(|one| Some((&one.attachment.node, one.failure.as_ref()?)))
    {
        let words = format!(
            "on {node}, where claims use the volume as large as it was: {words}; it is tried again, and when the volume is \
             mounted there the next time"
        );
        return Some(Desired::new(Reason::NodeExpandFailed, words));
    }
    if behind.is_empty() {
        return Some(unused(volume, &size));
    }
    let named = first_few(behind.iter().map(|one| one.attachment.node.as_str()), NAMED);
    let when = if behind.iter().any(|one| one.only_unused) {
        "; the driver does that only while nobody uses the volume, so it is called when all claims of the node have been \
         deleted and the next one mounts it"
    } else {
        ""
    };
    let words = format!("the volume is to have {size} on {named} too, by NodeExpandVolume{when}");
    Some(Desired::new(Reason::NodesToFollow, words))
}

#[cfg(test)]
#[path = "on_nodes_tests.rs"]
mod tests;
