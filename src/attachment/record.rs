//! The node's own record of an Attachment: what undo needs when the API objects are gone (design R7).
//!
//! It is written and fsynced before the first call it speaks of, used only to undo and to recognise what
//! is mounted, and it never grants. `node/records.rs` of the agent stores it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::api::attachment::SecretRefs;

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

/// One claim's target.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
    /// Device behind the target as `major:minor`, once seen; for adoption after a restart (design R8).
    pub device: Option<String>,
}

/// One Attachment on this node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// UID of the Attachment; also the record's file name.
    pub attachment_uid: String,
    /// Name of the Attachment.
    pub attachment_name: String,
    /// Name of the VolumeHandle, by which calls on this node are kept apart.
    pub handle_name: String,
    /// Driver name: another driver at the socket must not answer for this volume (design R9).
    pub driver_name: String,
    /// Name of the Plugin.
    pub plugin_name: String,
    /// Volume id.
    pub volume_handle: String,
    /// Namespace of the Volume and its claims.
    pub namespace: String,
    /// Secrets of the node calls.
    pub secrets: SecretRefs,
    /// Boot in which the record's mounts were made.
    pub boot_id: String,
    /// Staging is part of this Attachment.
    pub stage: bool,
    /// Staging path on the host.
    pub staging_path: String,
    /// How far NodeStageVolume got.
    pub staged: Done,
    /// Targets by claim UID.
    pub targets: BTreeMap<String, TargetRecord>,
}
