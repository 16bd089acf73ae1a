//! A record as it is stored: what decisions look at, and what the agent itself needs beside it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::api::ClaimUid;
use crate::attachment::record::{Done, Imprint, Record};

/// A record as it is stored: what decides, and what the agent itself needs beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stored {
    /// What decisions look at.
    #[serde(flatten)]
    pub record: Record,
    /// Device that was mounted on the staging path after NodeStageVolume; nothing if the driver mounts nothing there.
    /// If it is not there any more, the volume is not staged any more either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staging_device: Option<String>,
    /// What was seen on the staging path, by which the copies of it are found that outlive it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staging_imprint: Option<Imprint>,
    /// NodeStageVolume succeeded in this boot and NodeUnstageVolume has not since. A later final error of a repeated
    /// NodeStageVolume then does not mean that there is nothing to unstage.
    #[serde(default)]
    pub staged_once: bool,
    /// UIDs of claims whose mounts were seen with the flags that they are to have. An earlier version did not look.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub flags_seen: BTreeSet<ClaimUid>,
    /// Where else on the node it was mounted before its first claim could be used: by the driver, for itself. Nothing if
    /// nobody has looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_by_driver: Option<Vec<String>>,
    /// The record was made before anything of it was, and no claim was published by it since: nobody but the driver can
    /// have any of it. Not said by an earlier version, nor of a record that stands for one that cannot be read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unused: bool,
}

impl Stored {
    /// Nothing that the record says of another boot is certain: what may have been mounted has to be made or undone
    /// again (rule R8). What was never called stays so.
    pub fn enter_boot(&mut self, boot_id: &str) -> bool {
        if self.record.boot_id == boot_id {
            return false;
        }
        boot_id.clone_into(&mut self.record.boot_id);
        // Nothing is in use any more, whether the API server remembers it or not.
        self.record.forgotten = None;
        self.record.revision = 0;
        self.record.staged = self.record.staged.doubted();
        for target in self.record.targets.values_mut() {
            target.published = target.published.doubted();
            target.revision = 0;
            target.imprint = None;
        }
        self.record.left.clear();
        self.staging_device = None;
        self.staging_imprint = None;
        self.staged_once = false;
        self.kept_by_driver = None;
        self.unused = true;
        true
    }

    /// Whether what is mounted elsewhere on the node can only be the driver's own, because nobody else can have it
    /// yet.
    pub(crate) fn is_driver_alone(&self) -> bool {
        self.unused && self.record.left.is_empty()
    }

    /// UIDs of the Attachment and of the claims.
    pub(crate) fn uids(&self) -> impl Iterator<Item = String> {
        let record = &self.record;
        let claims = record.targets.keys().map(ClaimUid::to_string);
        std::iter::once(record.attachment_uid.to_string()).chain(claims)
    }

    /// UIDs of everything in this record that may wait to be undone: also of claims that are gone and whose mounts
    /// may be in use.
    pub(crate) fn waiting(&self) -> BTreeSet<String> {
        self.uids().chain(self.record.left.keys().cloned()).collect()
    }

    /// Puts a claim's mount in doubt because it is not there any more: stage and publish are repeated before anybody
    /// relies on them.
    pub fn doubt(&mut self, claim: &ClaimUid) {
        // One that was in doubt already, since a reboot, says nothing new of a stage that may have been repeated since.
        if let Some(target) = self.record.targets.get_mut(claim)
            && target.published == Done::Yes
        {
            target.published = Done::Maybe;
            self.record.staged = self.record.staged.doubted();
        }
    }
}
