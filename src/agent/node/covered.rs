//! Records of earlier versions, which mounted read-only over the targets of read-only claims (ADR 8), or left the flags of
//! mounts to their drivers.

use std::collections::HashMap;
use std::sync::Arc;

use super::make::flags;
use super::pass::Pass;
use crate::agent::host::error::HostError;
use crate::agent::host::mount_flags::{self, Wanted};
use crate::agent::host::old_read_only::{self, Places};
use crate::agent::host::paths::HostPath;
use crate::agent::records::store::Stored;
use crate::api::{Attachment, AttachmentUid, ClaimUid, VolumeClaim};
use crate::attachment::record::Done;

impl Pass {
    /// Puts a record right before anything is decided on it: the neighbours of a covered target cannot write, whatever
    /// becomes of it. If that does not succeed, the claim is not Ready, and its next step says why.
    pub(super) async fn leave_covers(&self, stored: &mut Stored) {
        if !stored.record.targets.values().any(|target| target.covered) {
            return;
        }
        match self.uncover(stored, false).await {
            Ok(()) => {
                let put = self.agent.records.put(stored.clone()).await;
                put.unwrap_or_else(|error| tracing::warn!("{error}; the covers are looked for again"));
            }
            Err(error) => {
                tracing::warn!("{error}");
                let covered = stored.record.targets.values_mut().filter(|target| target.covered);
                for target in covered.filter(|target| target.published == Done::Yes) {
                    target.published = Done::Maybe;
                }
            }
        }
    }

    /// Takes the covers of an Attachment off, and out of the record. Who stores it decides when.
    pub(super) async fn uncover(&self, stored: &mut Stored, force: bool) -> Result<(), HostError> {
        let mut places =
            Places { all: vec![HostPath::recorded(&stored.record.staging_path)], ..Places::default() };
        for (claim, target) in &stored.record.targets {
            let path = HostPath::recorded(&target.path);
            places.all.push(path.clone());
            if target.covered {
                places.readers.push(path);
            } else if self.writes(claim, &stored.record.attachment_uid) {
                places.writers.push(path);
            }
        }
        old_read_only::lift(&self.agent.node_mounts, places, force).await?;
        stored.record.targets.values_mut().for_each(|target| target.covered = false);
        Ok(())
    }

    /// Sets the flags of those of the `mounted` claims for which nobody has looked yet. Where that does not succeed, the
    /// claim is not Ready, and its next step says why.
    pub(super) async fn see_flags(
        &self,
        stored: &mut Stored,
        mounted: &[ClaimUid],
        claims: &HashMap<ClaimUid, Arc<VolumeClaim>>,
        attachments: &HashMap<AttachmentUid, Arc<Attachment>>,
    ) {
        let Some(attachment) = attachments.get(&stored.record.attachment_uid) else { return };
        let before = stored.flags_seen.len();
        for uid in mounted {
            let claim = claims.get(uid).filter(|claim| claim.metadata.deletion_timestamp.is_none());
            let wanted = claim.and_then(|claim| flags(attachment, claim)).filter(|wanted| !wanted.is_empty());
            let Some(wanted) = wanted.filter(|_| !stored.flags_seen.contains(uid)) else { continue };
            let Some(target) = stored.record.targets.get_mut(uid) else { continue };
            let path = HostPath::recorded(&target.path);
            match mount_flags::ensure(&self.agent.node_mounts, &path, wanted).await {
                Ok(()) => stored.saw_flags(uid, wanted),
                Err(error) => {
                    tracing::warn!("{error}");
                    target.published = Done::Maybe;
                }
            }
        }
        if stored.flags_seen.len() > before {
            self.agent.records.put_or_defer(stored.clone()).await;
        }
    }

    /// Whether a claim is one that may write to its mount, as far as it is known.
    fn writes(&self, claim: &ClaimUid, attachment: &AttachmentUid) -> bool {
        let claim = self.agent.caches.claims.by_uid(claim);
        let both = claim.zip(self.agent.caches.attachments.by_uid(attachment));
        both.and_then(|(claim, attachment)| flags(&attachment, &claim)).is_some_and(|f| !f.is_read_only())
    }
}

impl Stored {
    /// Records that a claim's mount was seen with the flags that it is to have.
    pub(super) fn saw_flags(&mut self, claim: &ClaimUid, wanted: Wanted) {
        if !wanted.is_empty() {
            self.flags_seen.insert(claim.clone());
        }
    }
}
