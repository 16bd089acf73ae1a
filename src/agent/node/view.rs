//! What one look at the node has found, by UID, and which of it a step is about.

use std::collections::HashMap;
use std::sync::Arc;

use kube::Resource;

use crate::agent::calls::failure::Failure;
use crate::agent::host::paths::PathError;
use crate::agent::kubelet::asked::Call;
use crate::agent::records::store::Stored;
use crate::api::{Attachment, AttachmentUid, ClaimUid, VolumeClaim};
use crate::attachment::node_side::{NodeStep, Seen};
use crate::csi::Rpc;

/// What the decision sees, and the whole objects behind it, by UID.
pub(super) struct View {
    pub seen: Seen,
    pub claims: HashMap<ClaimUid, Arc<VolumeClaim>>,
    pub attachments: HashMap<AttachmentUid, Arc<Attachment>>,
    pub stored: HashMap<AttachmentUid, Stored>,
    /// kubelet's calls that were in flight at the beginning of the look, and no later ones: a step is done with the call
    /// that it was planned for.
    pub asked: HashMap<ClaimUid, Arc<Call>>,
}

pub(super) fn path_failure(error: &PathError) -> Failure {
    Failure::arguments(Rpc::NodePublishVolume, error)
}

pub(super) fn version<K: Resource>(object: &K) -> u64 {
    object.meta().resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or(0)
}

/// What a call is about and which call it is, for its backoff; nothing for steps that do not fail.
pub(super) fn subject(step: &NodeStep) -> Option<(String, Rpc)> {
    call_of(step)
        .map(|(attachment, claim, rpc)| (claim.map_or(attachment.as_str(), ClaimUid::as_str).to_owned(), rpc))
}

/// UID of the Attachment that a call is about.
pub(super) fn attachment_of(step: &NodeStep) -> Option<&AttachmentUid> {
    call_of(step).map(|(attachment, ..)| attachment)
}

/// The Attachment that a call is about, the claim if it is about one, and the call.
fn call_of(step: &NodeStep) -> Option<(&AttachmentUid, Option<&ClaimUid>, Rpc)> {
    match step {
        NodeStep::Stage { attachment } => Some((attachment, None, Rpc::NodeStageVolume)),
        NodeStep::Unstage { attachment } => Some((attachment, None, Rpc::NodeUnstageVolume)),
        NodeStep::Publish { claim, attachment } => Some((attachment, Some(claim), Rpc::NodePublishVolume)),
        NodeStep::Grow { claim: _, attachment } => Some((attachment, None, Rpc::NodeExpandVolume)),
        // Looking for users has to follow the call.
        NodeStep::Unpublish { claim, attachment } | NodeStep::FindUsersOfTarget { claim, attachment } => {
            Some((attachment, Some(claim), Rpc::NodeUnpublishVolume))
        }
        // The first call that the record is written for, and the one that has to be followed by looking for users.
        NodeStep::Presume { attachment } | NodeStep::FindUsers { attachment } => {
            Some((attachment, None, Rpc::NodeUnpublishVolume))
        }
        NodeStep::Idle
        | NodeStep::ReadClaim { .. }
        | NodeStep::ReadAttachment { .. }
        | NodeStep::ReadHandle { .. }
        | NodeStep::ReadRevision { .. }
        | NodeStep::MarkForgotten { .. }
        | NodeStep::Recall { .. }
        | NodeStep::ReportNotReady { .. }
        | NodeStep::Yield { .. }
        | NodeStep::ReportReady { .. }
        | NodeStep::ReportClaimDetached { .. }
        | NodeStep::ReportDetached { .. }
        | NodeStep::Forget { .. } => None,
    }
}

impl View {
    /// Whether a claim of this name has, or may have, a target here.
    pub fn has_target_of(&self, claim_name: &str) -> bool {
        self.stored.values().any(|s| s.record.targets.values().any(|target| target.name == claim_name))
    }

    /// metadata.generation of the claim or the Attachment that a call is about; 0 for one that is gone.
    pub fn generation(&self, step: &NodeStep) -> i64 {
        let generation = match call_of(step) {
            Some((_, Some(claim), _)) => self.claims.get(claim).and_then(|c| c.metadata.generation),
            Some((attachment, None, _)) => {
                self.attachments.get(attachment).and_then(|a| a.metadata.generation)
            }
            None => None,
        };
        generation.unwrap_or(0)
    }

    pub fn driver(&self, step: &NodeStep) -> String {
        let Some(uid) = attachment_of(step) else { return String::new() };
        let recorded = self.stored.get(uid).map(|s| s.record.driver_name.clone());
        recorded
            .or_else(|| Some(self.attachments.get(uid)?.spec.fixed.driver_name.clone()))
            .unwrap_or_default()
    }

    /// The deleted claims of an Attachment, or the one of them.
    pub fn leaving(&self, attachment: &AttachmentUid, claim: Option<&ClaimUid>) -> Vec<Arc<VolumeClaim>> {
        let step = match claim {
            Some(claim) => {
                NodeStep::FindUsersOfTarget { claim: claim.clone(), attachment: attachment.clone() }
            }
            None => NodeStep::FindUsers { attachment: attachment.clone() },
        };
        self.waiting_for(&step)
    }

    /// The claims that wait for a call, and show its failure.
    pub fn waiting_for(&self, step: &NodeStep) -> Vec<Arc<VolumeClaim>> {
        let wanted = |uid: &AttachmentUid, deleted: bool| {
            let seen = self.seen.claims.iter().filter(|c| c.uses() == Some(uid) && c.deleted == deleted);
            let open = seen.filter(|c| deleted || c.state != crate::api::ClaimState::Ready);
            open.filter_map(|c| self.claims.get(&c.uid).cloned()).collect::<Vec<_>>()
        };
        let Some((attachment, claim, rpc)) = call_of(step) else { return Vec::new() };
        if rpc == Rpc::NodeExpandVolume {
            // Nobody waits for longer than one attempt, and no claim shows that it failed.
            return Vec::new();
        }
        if let Some(claim) = claim {
            return self.claims.get(claim).cloned().into_iter().collect();
        }
        let mut all = Vec::new();
        if !matches!(step, NodeStep::Stage { .. }) {
            all.extend(wanted(attachment, true));
        }
        if matches!(step, NodeStep::Stage { .. } | NodeStep::Presume { .. }) {
            all.extend(wanted(attachment, false));
        }
        all
    }
}
