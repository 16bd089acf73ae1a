//! The node's own record of an Attachment: what undo needs when the API objects are gone (rule R7).
//!
//! It is written and fsynced before the first call it speaks of, used only to undo and to recognise what
//! is mounted, and it never grants. `records.rs` of the agent stores it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::api::{AttachmentUid, ClaimUid};

/// How far a call with an undo got, as far as this node knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Done {
    /// Never called, or the driver said for certain that nothing happened.
    #[default]
    No,
    /// Called, and the outcome is not known. The undo is due.
    Maybe,
    /// The driver said OK and the result was seen.
    Yes,
}

impl Done {
    /// What is known after something has put it in doubt: a call that certainly succeeded may not have.
    #[must_use]
    pub fn doubted(self) -> Self {
        if self == Self::Yes { Self::Maybe } else { self }
    }
}

/// A mount as the kernel's tables describe it, by which copies of it are recognised in other mount namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Imprint {
    /// `major:minor` of the file system; of a raw device that of the file system in which its node lies.
    pub device: String,
    /// Which part of the file system.
    pub root: String,
    /// What was mounted, where the kernel does not show the part: NFS shows each as the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The block device, if there is one, with the kernel's count of disks, so that another disk is not taken for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    /// The volume is the device and not a file system on it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub raw: bool,
}

impl Imprint {
    /// Whether the volume is a whole disk: then the disk itself tells whether it is in use.
    #[must_use]
    pub fn is_whole_disk(&self) -> bool {
        self.disk.is_some() && (self.raw || self.root == "/")
    }
}

/// A mount that was unmounted here and is perhaps still in use, in a mount namespace that has kept a copy.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Left {
    /// Where it was mounted.
    pub path: String,
    /// The mount as it was.
    pub imprint: Imprint,
}

/// One claim's target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetRecord {
    /// Namespace of the claim.
    pub namespace: String,
    /// Name of the claim.
    pub name: String,
    /// Path at which it is published, on the host.
    pub path: String,
    /// How far NodePublishVolume got.
    pub published: Done,
    /// A read-only mount of ours lies, or may lie, over the driver's own. An earlier version laid such ones (ADR 8); they
    /// are taken off as soon as they are found.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub covered: bool,
    /// Device behind the target as `major:minor`, once seen; for adoption after a restart (rule R8).
    pub device: Option<String>,
    /// What was seen at the target, by which the copies of it are found that outlive it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imprint: Option<Imprint>,
    /// Revision of the API server that this node knew when it wrote this: at least the claim's resourceVersion. An
    /// API server at an older one has gone back, perhaps behind the claim. 0: not known, or of an earlier boot.
    #[serde(default)]
    pub revision: u64,
}

/// Why a record stands alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Lapse {
    /// The API server's history went back behind it: what is gone there may be in use here (trap B2, N15).
    WentBack,
    /// Its Attachment was removed by hand while a claim that uses it is mounted (trap N9).
    LockRemoved,
}

/// A record that the API server does not account for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Forgotten {
    /// Why.
    pub why: Lapse,
    /// Since when, in seconds since the epoch; for people.
    pub since: i64,
}

/// One Attachment on this node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// UID of the Attachment; also the record's file name.
    pub attachment_uid: AttachmentUid,
    /// Name of the Attachment.
    pub attachment_name: String,
    /// Name of the VolumeHandle, by which calls on this node are kept apart.
    pub handle_name: String,
    /// Driver name: another driver at the socket must not answer for this volume (rule R9).
    pub driver_name: String,
    /// Name of the Plugin.
    pub plugin_name: String,
    /// Volume id.
    pub volume_handle: String,
    /// Namespace of the Volume and its claims.
    pub namespace: String,
    /// Boot in which the record's mounts were made.
    pub boot_id: String,
    /// Staging is part of this Attachment.
    pub stage: bool,
    /// Staging path on the host.
    pub staging_path: String,
    /// How far NodeStageVolume got.
    pub staged: Done,
    /// Targets by claim UID.
    pub targets: BTreeMap<ClaimUid, TargetRecord>,
    /// What was unmounted and may still be in use on this node, by the UID of its claim or, of the staging path, of the
    /// Attachment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub left: BTreeMap<String, Left>,
    /// Revision of the API server that this node knew when it wrote this about the Attachment, as of a target.
    #[serde(default)]
    pub revision: u64,
    /// Set where the API server does not account for the record. It is reported then, and not undone before somebody
    /// orders that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forgotten: Option<Forgotten>,
}

impl Record {
    /// Whether something of this record is, or may be, mounted or in use.
    #[must_use]
    pub fn has_traces(&self) -> bool {
        self.staged != Done::No || !self.targets.is_empty() || !self.left.is_empty()
    }

    /// Whether a claim's target is, or may be, mounted or in use.
    #[must_use]
    pub fn has_of(&self, claim: &ClaimUid) -> bool {
        self.targets.contains_key(claim) || self.left.contains_key(&**claim)
    }

    /// Whether the record is kept: it is forgotten, and so not undone because the API server does not have its
    /// objects.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.forgotten.is_some_and(|f| f.why == Lapse::WentBack)
    }
}
