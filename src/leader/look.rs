//! Live reads that the leader's plan asks for, and their answers.

use std::collections::BTreeMap;

use crate::api::caller::ControllerRef;
use crate::api::volume::VolumeAssignment;
use crate::api::{AttachmentUid, ClaimUid};
use crate::attachment::loss::NodeFacts;
use crate::attachment::{AttachmentSeen, HandleSeen};
use crate::claim::{ClaimSeen, Entitled};
use crate::volume::CallerNow;
use crate::volume::persistent_volume::{CsiSource, Naming};

/// One live read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Look {
    /// GET the Node of this Attachment and the Lease of its agent. The Lease last: an agent may come back at any moment.
    Node {
        /// UID of the Attachment.
        attachment: AttachmentUid,
    },
    /// LIST, by quorum, the claims that use this Attachment.
    Users {
        /// UID of the Attachment.
        attachment: AttachmentUid,
    },
    /// GET the Attachment of this name.
    Attachment {
        /// Its name.
        name: String,
    },
    /// LIST the Attachments of the VolumeHandle by quorum.
    Locks,
    /// GET this claim.
    Claim {
        /// `namespace/name`.
        key: String,
        /// The UID that it has to have.
        uid: ClaimUid,
    },
    /// Whether this controller instance can still be making a call (rule R2).
    Caller(ControllerRef),
    /// GET the Volume that the VolumeHandle names.
    Owner,
    /// GET the Volume, for what it is assigned now.
    Assigned,
    /// Look for Snapshots and Volumes that are being made of a Volume, which may be gone: by LISTs, and of Volumes by their watch if it
    /// has come to the Volume's deletion.
    Copies {
        /// UID of the Volume.
        of: String,
    },
    /// LIST the other Snapshots that stand for what the Volume is to be made of.
    Holders {
        /// UID of the Snapshot that it names.
        of: String,
        /// The snapshot as the driver knows it.
        id: String,
    },
    /// LIST the PersistentVolumes for one that stands for this volume.
    PersistentVolumes(CsiSource),
    /// GET the Nodes and Leases of all who reported a mount from a node that is gone or off.
    EndedReports,
    /// GET the Pod of this claim, and its PersistentVolume with the PersistentVolumeClaim that it is bound to.
    Pod {
        /// UID of the claim.
        claim: ClaimUid,
    },
    /// GET the VolumeHandle of this name.
    Handle {
        /// Its name.
        name: String,
    },
}

/// The answers so far. They are forgotten with the scene that they were asked for.
#[derive(Clone, Debug, Default)]
pub struct Looked {
    /// Answers to [`Look::Node`], by UID of the Attachment.
    pub nodes: BTreeMap<AttachmentUid, NodeFacts>,
    /// Answers to [`Look::Users`], by UID of the Attachment.
    pub users: BTreeMap<AttachmentUid, Vec<ClaimSeen>>,
    /// Answers to [`Look::Attachment`]: the UID that the name has now, by name.
    pub attachments: BTreeMap<String, Option<AttachmentUid>>,
    /// Answer to [`Look::Locks`].
    pub locks: Option<Vec<AttachmentSeen>>,
    /// Answers to [`Look::Claim`], by UID; nothing if the claim is gone.
    pub claims: BTreeMap<ClaimUid, Option<ClaimSeen>>,
    /// Answers to [`Look::Caller`].
    pub callers: BTreeMap<ControllerRef, CallerNow>,
    /// Answer to [`Look::Owner`]: whether the Volume exists that the VolumeHandle names.
    pub owner_exists: Option<bool>,
    /// Answer to [`Look::Assigned`].
    pub assigned: Option<Option<VolumeAssignment>>,
    /// Answer to [`Look::Copies`]: one of them, in words.
    pub copied_by: Option<Option<String>>,
    /// Answer to [`Look::Holders`]: one of them, in words.
    pub shared_with: Option<Option<String>>,
    /// Answer to [`Look::PersistentVolumes`].
    pub named_by: Option<Option<Naming>>,
    /// Answer to [`Look::EndedReports`]: whether all reports have ended.
    pub reports_have_ended: Option<bool>,
    /// Answers to [`Look::Pod`], by UID of the claim.
    pub pods: BTreeMap<ClaimUid, Entitled>,
    /// Answers to [`Look::Handle`], by name; nothing if it is gone.
    pub handles: BTreeMap<String, Option<HandleSeen>>,
}

impl Looked {
    /// Takes it that a look for anything that is in the way finds nothing; false for any other look. False for the users of an
    /// Attachment too: that there are none is a claim's end, behind which no other look is asked for.
    pub fn suppose_nothing(&mut self, look: &Look) -> bool {
        match look {
            Look::Locks => self.locks = Some(Vec::new()),
            Look::Attachment { name } => drop(self.attachments.insert(name.clone(), None)),
            Look::Copies { .. } => self.copied_by = Some(None),
            Look::Holders { .. } => self.shared_with = Some(None),
            Look::PersistentVolumes(_) => self.named_by = Some(None),
            Look::Node { .. }
            | Look::Users { .. }
            | Look::Claim { .. }
            | Look::Caller(_)
            | Look::Owner
            | Look::Assigned
            | Look::EndedReports
            | Look::Pod { .. }
            | Look::Handle { .. } => return false,
        }
        true
    }
}
