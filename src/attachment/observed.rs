//! What decisions about Attachments look at.

use crate::api::caller::ControllerRef;
use crate::api::handle::Writer;
use crate::api::volume::DeletionPolicy;
use crate::api::{
    AccessMode, Attachment, AttachmentMode, AttachmentState, AttachmentUid, ClaimUid, FINALIZER,
    VolumeHandle, has_finalizer,
};

/// With what a volume is staged beyond what its Volume says: what kubelet gives for a Pod. Debug never shows the flags.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct StagedAs {
    /// Mount flags.
    pub flags: Vec<String>,
    /// The group that the driver gives the volume to.
    pub group: Option<String>,
}

impl std::fmt::Debug for StagedAs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let flags = format!("[{} redacted]", self.flags.len());
        f.debug_struct("StagedAs").field("flags", &flags).field("group", &self.group).finish()
    }
}

/// How large a volume is to be on a node, and is there, in bytes; 0 where nothing was asked for or done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeGrowth {
    /// The size that the leader has asked for.
    pub asked: i64,
    /// The size for which NodeExpandVolume was made last.
    pub reached: i64,
}

impl NodeGrowth {
    /// Whether NodeExpandVolume is due.
    #[must_use]
    pub fn is_due(self) -> bool {
        self.asked > self.reached
    }
}

/// An Attachment as a decision sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AttachmentSeen {
    /// Name of the Attachment, which is the lock.
    pub name: String,
    /// UID of the Attachment.
    pub uid: AttachmentUid,
    /// Whether the Attachment has a deletionTimestamp: then it is closing.
    pub deleted: bool,
    /// Whether moor has taken its finalizer off: the lock is there for as long as somebody else holds it.
    pub let_go: bool,
    /// Namespace of the Volume.
    pub namespace: String,
    /// UID of the Volume it was made for.
    pub volume_uid: String,
    /// Name of the VolumeHandle.
    pub handle_name: String,
    /// Node on which the volume is used.
    pub node: String,
    /// UID of that Node at creation.
    pub node_uid: String,
    /// The node as the driver knows it.
    pub node_id: String,
    /// Mode of every claim on it.
    pub mode: AccessMode,
    /// File system or block.
    pub attachment_mode: AttachmentMode,
    /// Epoch of the VolumeHandle at creation.
    pub epoch: i64,
    /// Who attaches.
    pub controller: Option<ControllerRef>,
    /// ControllerPublishVolume is needed.
    pub attach: bool,
    /// NodeStageVolume is needed.
    pub stage: bool,
    /// Whether the volume is attached without the right to write, so that no claim that writes may use the
    /// Attachment.
    pub read_only: bool,
    /// Only one claim at a time may have a target.
    pub exclusive: bool,
    /// When nobody uses it any more it is left attached for a while.
    pub lingers: bool,
    /// The driver takes SINGLE_NODE_MULTI_WRITER.
    pub multi_writer: bool,
    /// With what the volume is staged.
    pub staged_as: StagedAs,
    /// State of the Attachment.
    pub state: AttachmentState,
    /// Whether the node was declared lost, so that its part of the undo is skipped.
    pub lost: bool,
    /// How large the volume is to be on the node.
    pub growth: NodeGrowth,
}

impl AttachmentSeen {
    /// Reduces an Attachment.
    #[must_use]
    pub fn of(attachment: &Attachment) -> Self {
        let (meta, spec) = (&attachment.metadata, &attachment.spec);
        Self {
            name: meta.name.clone().unwrap_or_default(),
            uid: AttachmentUid::of(&attachment.metadata),
            deleted: meta.deletion_timestamp.is_some(),
            let_go: meta.deletion_timestamp.is_some() && !has_finalizer(meta, FINALIZER),
            namespace: spec.volume.namespace.clone(),
            volume_uid: spec.volume.uid.clone(),
            handle_name: spec.fixed.handle_name.clone(),
            node: spec.node_name.clone(),
            node_uid: spec.fixed.node_uid.clone(),
            node_id: spec.fixed.node_id.clone(),
            mode: spec.access_mode,
            attachment_mode: spec.fixed.attachment_mode,
            epoch: spec.fixed.epoch,
            controller: spec.controller.clone(),
            attach: spec.fixed.attach,
            stage: spec.fixed.stage,
            read_only: spec.fixed.read_only,
            exclusive: spec.fixed.exclusive,
            lingers: spec.fixed.lingers,
            multi_writer: spec.fixed.single_node_multi_writer,
            staged_as: StagedAs {
                flags: spec.fixed.mount_options.mount_flags.clone(),
                group: spec.fixed.volume_mount_group.clone(),
            },
            state: attachment.status.as_ref().map_or_else(Default::default, |s| s.state),
            lost: spec.lost.is_some(),
            growth: NodeGrowth {
                asked: spec.node_capacity_bytes.unwrap_or_default(),
                reached: attachment.status.as_ref().and_then(|s| s.node_capacity_bytes).unwrap_or_default(),
            },
        }
    }

    /// Whether the node may use the volume: it is attached, or nothing has to be attached.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        !self.deleted
            && !self.lost
            && (self.state == AttachmentState::Attached
                || (!self.attach && self.state == AttachmentState::Taken))
    }

    /// Whether the Attachment may stay as it is while nobody uses it (ADR 27): it was made for that, it is attached, which is
    /// what whoever comes back is spared, and nobody closes it.
    #[must_use]
    pub fn may_linger(&self) -> bool {
        self.lingers && self.attach && self.is_usable()
    }

    /// Whether nothing new is made on the Attachment: it is closing, its node is lost, or its node has undone its part.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.deleted || self.lost || self.state >= AttachmentState::NodeDetached
    }

    /// Whether everything is undone, so that the lock may go.
    #[must_use]
    pub fn is_undone(&self) -> bool {
        match self.state {
            AttachmentState::ControllerDetached => true,
            AttachmentState::NodeDetached => !self.attach,
            AttachmentState::Taken | AttachmentState::Attached => false,
        }
    }

    /// Whether the node was declared lost, has not said that it is done, and no call cuts it off: then the lock may
    /// go only while it is certain that the node is not at work (rule R4).
    #[must_use]
    pub fn is_lost_unfenced(&self) -> bool {
        self.lost && !self.attach && self.state < AttachmentState::NodeDetached
    }
}

/// A VolumeHandle as a decision sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HandleSeen {
    /// Name of the VolumeHandle, which is made of driver and handle.
    pub name: String,
    /// Its UID: one that is made anew may be like it in all else.
    pub uid: String,
    /// The volume as the driver knows it.
    pub volume_handle: String,
    /// `namespace/name` of the Volume that owns it.
    pub owner: String,
    /// UID of the Volume that owns it.
    pub volume_uid: String,
    /// Mode in which it is used.
    pub mode: AccessMode,
    /// Current epoch.
    pub epoch: i64,
    /// No new use.
    pub closing: bool,
    /// Closed for the last time, as its Volume is deleted: what becomes of the storage. Nobody opens it for that one again
    /// (docs/adr/0068-a-volumehandle-says-for-what-it-was-closed.md).
    pub closed_for: Option<DeletionPolicy>,
    /// Whether moor has taken its finalizer off: with the last closing, of one that was open until then
    /// (docs/adr/0052-the-last-closing-lets-the-finalizer-go.md).
    pub let_go: bool,
    /// Instance of all its controller calls.
    pub controller: Option<ControllerRef>,
    /// The only claim that may write, where the mode has one writer for all nodes.
    pub writer: Option<Writer>,
}

impl HandleSeen {
    /// Reduces a VolumeHandle.
    #[must_use]
    pub fn of(handle: &VolumeHandle) -> Self {
        let spec = &handle.spec;
        Self {
            name: handle.metadata.name.clone().unwrap_or_default(),
            uid: handle.metadata.uid.clone().unwrap_or_default(),
            volume_handle: spec.volume_handle.clone(),
            owner: format!("{}/{}", spec.volume.namespace, spec.volume.name),
            volume_uid: spec.volume.uid.clone(),
            mode: spec.mode,
            epoch: spec.epoch,
            closing: spec.closing,
            closed_for: spec.closed_for.filter(|_| spec.closing),
            let_go: !has_finalizer(&handle.metadata, FINALIZER),
            controller: spec.controller.clone(),
            writer: spec.writer.as_deref().cloned(),
        }
    }

    /// Whether this claim holds the writer's lock on this Attachment.
    #[must_use]
    pub fn names_writer(&self, claim: &ClaimUid, attachment: &AttachmentUid) -> bool {
        let named = self.writer.as_ref().map(|w| &w.holder);
        named.is_some_and(|h| h.claim_uid == *claim && h.attachment_uid == *attachment)
    }
}

/// What a live read of the VolumeHandle says about an Attachment's right to act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// The first call may be made.
    Valid,
    /// The calls of this handle belong to another controller instance now; the leader will say so on the
    /// Attachment too (rule R2).
    NotMine,
    /// Being closed at the next epoch, or gone: no new call, but one may have run, so the inverse is due.
    MayHaveRun,
    /// The handle was not open for this Attachment at any time since it exists: no call has ever run.
    NeverRan,
}

/// Whether the controller calls of the VolumeHandle belong to the instance that the Attachment names, in that tenure. Without a
/// VolumeHandle no other instance can have got them.
#[must_use]
pub fn is_mine(attachment: &AttachmentSeen, handle: Option<&HandleSeen>) -> bool {
    !attachment.attach || handle.is_none_or(|handle| handle.controller == attachment.controller)
}

/// Compares an Attachment with its VolumeHandle as just read from the API server.
///
/// Why `NeverRan` is certain: whoever opened it at a later epoch listed the Attachments by quorum before and
/// waited for all it saw (rule R3). An Attachment that was not seen was created later, so its agent's
/// read, which comes after its creation, already found the raised epoch.
///
/// A VolumeHandle that is gone proves nothing: one that somebody removed by hand may have been open for the Attachment.
/// The inverse then detaches nobody else. Without a VolumeHandle nobody's first call is allowed; whoever makes it anew
/// lists the Attachments by quorum first and, while one is there, starts it closed at an epoch that no Attachment has,
/// so nothing is attached beside this one before it is gone. A VolumeHandle that went in order went after a live read
/// had found no Attachment under which anything can be attached: this one was created later or never valid, nothing is
/// attached, and the inverse finds nothing.
#[must_use]
pub fn standing(attachment: &AttachmentSeen, handle: Option<&HandleSeen>) -> Standing {
    let Some(handle) = handle else { return Standing::MayHaveRun };
    let mine = is_mine(attachment, Some(handle));
    if handle.closing && handle.epoch == attachment.epoch + 1 {
        return if mine { Standing::MayHaveRun } else { Standing::NotMine };
    }
    let open = !handle.closing
        && handle.epoch == attachment.epoch
        && handle.volume_uid == attachment.volume_uid
        && handle.mode == attachment.mode;
    match (open, mine) {
        (true, true) => Standing::Valid,
        (true, false) => Standing::NotMine,
        (false, _) => Standing::NeverRan,
    }
}
