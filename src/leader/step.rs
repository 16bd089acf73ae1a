//! The steps that the leader's plan can name.

use super::look::Look;
use crate::api::caller::ControllerRef;
use crate::api::handle::Writer;
use crate::api::volume::{DeletionPolicy, VolumeAssignment};
use crate::api::{AccessMode, AttachmentUid, ClaimUid};
use crate::attachment::loss::Cause;
use crate::volume::VolumeWaiting;

/// One step: a live read, or at most one write. Objects are named by UID.
#[derive(Clone, Debug, PartialEq)]
pub enum LeaderStep {
    /// Nothing is to be done until something changes.
    Rest,
    /// Read this live and plan again with the answer.
    Look(Look),

    /// Write spec.lost on an Attachment: its node is out of the game (rule R4).
    DeclareLost {
        /// UID of the Attachment.
        attachment: AttachmentUid,
        /// The reason for which the node counts as lost.
        cause: Cause,
    },
    /// Write state Lost on a claim that nobody has deleted and whose node was lost.
    EndClaim {
        /// UID of the claim.
        claim: ClaimUid,
        /// UID of its Attachment.
        attachment: AttachmentUid,
    },
    /// Write ControllerDetached without a call: nobody could ever make it (trap N8).
    Abandon {
        /// UID of the Attachment.
        attachment: AttachmentUid,
    },
    /// Delete an Attachment: its deletionTimestamp is what closes it.
    Close {
        /// UID of the Attachment.
        attachment: AttachmentUid,
    },
    /// Take the last finalizer off an Attachment: the lock is free.
    FreeAttachment {
        /// UID of the Attachment.
        attachment: AttachmentUid,
    },
    /// Write the VolumeHandle's controller instance on an Attachment that still names a dead one (rule R2).
    MoveAttachment {
        /// UID of the Attachment.
        attachment: AttachmentUid,
    },
    /// Write on an Attachment how large the volume is to be on its node.
    AskNode {
        /// UID of the Attachment.
        attachment: AttachmentUid,
        /// The size in bytes.
        bytes: i64,
    },

    /// Take our finalizer off a claim.
    FreeClaim {
        /// UID of the claim.
        claim: ClaimUid,
    },
    /// Delete a Pod's claim that has ended, whose Pod is gone before it was mounted, or that was refused a while ago.
    DeleteClaim {
        /// UID of the claim.
        claim: ClaimUid,
    },
    /// Write on a claim that its Pod may not have the volume.
    RefuseClaim {
        /// UID of the claim.
        claim: ClaimUid,
        /// Why not.
        why: String,
    },
    /// Delete the Volume, and leave its storage: it was made of another PersistentVolume than the claim names, which describes
    /// the volume otherwise, and nobody uses it.
    RenewVolume {
        /// UID of the claim.
        claim: ClaimUid,
    },
    /// Create the Volume of the PersistentVolume that a claim names.
    ImportVolume {
        /// UID of the claim.
        claim: ClaimUid,
    },
    /// Create an Attachment: the compare-and-swap that grants.
    CreateAttachment {
        /// UID of the claim that it is made for.
        claim: ClaimUid,
        /// Name of the Attachment.
        name: String,
        /// Its node.
        node: String,
    },
    /// Write finalizer and assignment on a claim.
    AssignClaim {
        /// UID of the claim.
        claim: ClaimUid,
        /// UID of the Attachment that it joins.
        attachment: AttachmentUid,
    },
    /// Name a claim as the writer in the VolumeHandle.
    NameWriter {
        /// UID of the claim.
        claim: ClaimUid,
        /// Name of its Attachment.
        attachment: String,
        /// UID of its Attachment.
        attachment_uid: AttachmentUid,
    },
    /// Write into the VolumeHandle that a writer is done.
    RetireWriter(Writer),

    /// Write finalizer and assignment on the Volume.
    AssignVolume(VolumeAssignment),
    /// Write whether what CreateVolume made and nobody can use may be deleted.
    AllowDeletion(bool),
    /// Write that the Volume is Ready, after the same on the VolumeHandle.
    ReportReady,
    /// Write that the Volume has the size that is asked for, which the nodes see to if a size is named.
    ReportExpanded(Option<i64>),
    /// Write that nodes have followed to this size in bytes, and that none has to any more.
    ReportFollowed(i64),
    /// Write that the driver has the mutable parameters that are asked for.
    ReportModified,
    /// Write into the Volume's status what its VolumeHandle says, and that the storage was made if that was lost too.
    RestoreStatus {
        /// Whether the state was lost too.
        state_too: bool,
    },
    /// Say that the storage stays because a PersistentVolume names it.
    TellStorageLeft(VolumeWaiting),
    /// Take our finalizer off the Volume.
    FreeVolume,

    /// Create the VolumeHandle.
    CreateHandle {
        /// Epoch of the VolumeHandle: later than that of every Attachment that is left.
        epoch: i64,
        /// Whether the VolumeHandle is made closed, because Attachments of an earlier one are left or its Volume is deleted.
        closing: bool,
        /// What becomes of the storage, if its Volume is deleted.
        closed_for: Option<DeletionPolicy>,
        /// The controller instance that has to detach those Attachments.
        controller: Option<ControllerRef>,
    },
    /// Write closing on the VolumeHandle, and epoch + 1 if it was open: no new use from here on (rule R3).
    BeginClosing {
        /// If it stays closed, as its Volume is deleted: what becomes of the storage.
        last: Option<DeletionPolicy>,
    },
    /// Open the VolumeHandle again.
    FinishClosing {
        /// Mode in which it is used from now on.
        mode: AccessMode,
        /// The instance of all its controller calls, if it had none.
        first_controller: Option<ControllerRef>,
    },
    /// Write this Volume into the VolumeHandle in place of one that is gone, and open it.
    TakeOver,
    /// Write another controller instance on the VolumeHandle: the old one is dead (rule R2).
    MoveHandle(ControllerRef),
    /// Delete the VolumeHandle, then take its finalizer off.
    RemoveHandle,
}

/// What is due about the Volume.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Due {
    /// Nothing, or something that a live read has ruled out for now.
    Nothing,
    /// This step.
    Step(LeaderStep),
    /// A wait for something that others do, which the Volume's condition names.
    Wait(VolumeWaiting),
}

impl Due {
    pub(super) fn step(&self) -> Option<LeaderStep> {
        match self {
            Self::Step(step) => Some(step.clone()),
            Self::Nothing | Self::Wait(_) => None,
        }
    }

    pub(super) fn waits(self) -> Option<VolumeWaiting> {
        match self {
            Self::Wait(why) => Some(why),
            Self::Nothing | Self::Step(_) => None,
        }
    }
}
