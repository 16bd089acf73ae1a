//! What a node's decision looks at, and the steps that it may say.

use crate::api::{AttachmentUid, ClaimState, ClaimUid};
use crate::attachment::observed::{AttachmentSeen, HandleSeen};
use crate::attachment::record::{Done, Lapse, Record};
use crate::claim::ClaimSeen;

/// One step. Every variant is at most one side effect; `claim` and `attachment` are UIDs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the fields are the UIDs that the doc above names")]
pub enum NodeStep {
    /// Nothing to do until something changes.
    Idle,
    /// Write a record of an Attachment whose own cannot be read or was lost: everything that it could speak of may be
    /// mounted.
    Presume { attachment: AttachmentUid },
    /// GET the claim by name: the record has it and the cache does not.
    ReadClaim { claim: ClaimUid },
    /// GET the Attachment by name: the last look before a first call, or the cache does not have it.
    ReadAttachment { attachment: AttachmentUid, name: String },
    /// GET the VolumeHandle: this node makes the first call of the Attachment, or for a claim that must be the writer.
    ReadHandle { claim: ClaimUid, attachment: AttachmentUid },
    /// LIST: the API server's present revision, to tell what was deleted from what it has forgotten.
    ReadRevision { attachment: AttachmentUid },
    /// Write into the record that the API server does not account for its Attachment or claims (rule R7).
    MarkForgotten { attachment: AttachmentUid, why: Lapse },
    /// Write into the record that the API server accounts for its Attachment and claims again.
    Recall { attachment: AttachmentUid },
    /// Write that a claim is not Ready: its mount was of an earlier boot (rule R8).
    ReportNotReady { claim: ClaimUid },
    /// Write status.yielded: the claim cannot use this Attachment.
    Yield { claim: ClaimUid, attachment: AttachmentUid },
    /// NodeStageVolume.
    Stage { attachment: AttachmentUid },
    /// NodePublishVolume.
    Publish { claim: ClaimUid, attachment: AttachmentUid },
    /// NodeExpandVolume at the target of the claim.
    Grow { claim: ClaimUid, attachment: AttachmentUid },
    /// Write that the claim is Ready.
    ReportReady { claim: ClaimUid, attachment: AttachmentUid },
    /// NodeUnpublishVolume.
    Unpublish { claim: ClaimUid, attachment: AttachmentUid },
    /// Ask the kernel who still uses what a claim had, while others stay on the Attachment.
    FindUsersOfTarget { claim: ClaimUid, attachment: AttachmentUid },
    /// Ask the kernel who still uses what was unmounted of an Attachment that nobody has on this node any more.
    FindUsers { attachment: AttachmentUid },
    /// NodeUnstageVolume.
    Unstage { attachment: AttachmentUid },
    /// Write that the claim is NodeDetached; others stay on the node.
    ReportClaimDetached { claim: ClaimUid },
    /// Write that the Attachment is NodeDetached.
    ReportDetached { attachment: AttachmentUid },
    /// Remove the record: its Attachment is gone and the paths were found unmounted.
    Forget { attachment: AttachmentUid },
}

/// The result of a live GET of an Attachment in this pass.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::large_enum_variant, reason = "there is one per pass, and nearly always Present")]
pub enum LiveAttachment {
    /// 404, or another UID has its name.
    Gone,
    /// As the API server has it now.
    Present(AttachmentSeen),
}

/// Everything that a decision about one VolumeHandle on this node looks at. Live reads belong to the current pass:
/// the agent forgets them when it lets go of the handle's mutex.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seen {
    /// UID of this node's Node object.
    pub node_uid: String,
    /// This boot.
    pub boot_id: String,
    /// Claims assigned to this node on this handle, as the cache has them.
    pub claims: Vec<ClaimSeen>,
    /// Attachments of this handle on this node, as the cache has them.
    pub attachments: Vec<AttachmentSeen>,
    /// This node's records of the handle.
    pub records: Vec<Record>,
    /// UIDs of claims that a live GET just found gone.
    pub gone_claims: Vec<ClaimUid>,
    /// Attachments that were just read, by UID.
    pub live_attachments: Vec<(AttachmentUid, LiveAttachment)>,
    /// The VolumeHandle that was just read, and the claim for which: a read that is older than the claim's
    /// assignment says nothing about it.
    pub live_handle: Option<(ClaimUid, Option<HandleSeen>)>,
    /// UIDs of claims whose published target was verified as mounted with the recorded device.
    pub mounted: Vec<ClaimUid>,
    /// UIDs of Attachments and claims that were known when the API server's history went back, and have not been
    /// seen since.
    pub doubted: Vec<String>,
    /// The API server's revision, read live after what was found gone.
    pub revision: Option<u64>,
    /// UIDs of Attachments whose records somebody ordered to be undone although they are forgotten.
    pub orders: Vec<AttachmentUid>,
    /// UIDs of Attachments whose record cannot be read, or is not there although something of them is mounted: what else
    /// is mounted here is not known.
    pub unreadable: Vec<AttachmentUid>,
    /// UIDs of Attachments, of whichever volume, whose file cannot be read as a record and names this VolumeHandle, or
    /// may be of it because nothing says of which it is.
    pub unreadable_here: Vec<AttachmentUid>,
    /// UIDs of Pods' claims for which kubelet waits at this moment: nothing is made for another one. Its path and its
    /// Secrets come with kubelet's call, and who has not asked is not known to undo it.
    pub asked: Vec<ClaimUid>,
    /// UIDs of Pods' claims that kubelet has unpublished: whatever the API server says of them, they are undone.
    pub released: Vec<ClaimUid>,
    /// UIDs of claims and Attachments whose next call failed and is not due yet. It is left out, so that
    /// it holds up nobody else on the handle.
    pub backing_off: Vec<String>,
    /// UIDs of Attachments whose NodeExpandVolume failed and is not due yet. It holds up no other call about them.
    pub grows_later: Vec<AttachmentUid>,
    /// The driver says that it makes volumes larger only while nobody uses them.
    pub grows_only_unused: bool,
}

impl Seen {
    /// What a live read has found of an Attachment in this pass.
    pub(crate) fn live(&self, uid: &AttachmentUid) -> Option<&LiveAttachment> {
        self.live_attachments.iter().find(|(u, _)| u == uid).map(|(_, l)| l)
    }

    /// The freshest view of an Attachment: live before cache.
    pub(super) fn attachment(&self, uid: &AttachmentUid) -> Option<&AttachmentSeen> {
        match self.live(uid) {
            Some(LiveAttachment::Present(seen)) => Some(seen),
            Some(LiveAttachment::Gone) => None,
            None => self.attachments.iter().find(|a| a.uid == *uid),
        }
    }

    pub(super) fn record(&self, uid: &AttachmentUid) -> Option<&Record> {
        self.records.iter().find(|r| r.attachment_uid == *uid)
    }

    /// Whether a claim still wants its target: it exists, is not deleted or released and has not given it back.
    pub(super) fn wants(&self, claim: &ClaimSeen, attachment: &AttachmentUid) -> bool {
        !claim.deleted
            && !self.released.contains(&claim.uid)
            && claim.state != ClaimState::Lost
            && claim.uses() == Some(attachment)
            && !self.gone_claims.contains(&claim.uid)
    }

    pub(super) fn backs_off(&self, uid: &str) -> bool {
        self.backing_off.iter().any(|u| u == uid)
    }

    /// Whether the Attachment is there and no call that makes something may be made for it any more.
    pub(super) fn is_closed(&self, attachment: &AttachmentUid) -> bool {
        self.attachment(attachment).is_some_and(AttachmentSeen::is_leaving)
    }

    /// Whether the claim's target was published in this boot and is mounted.
    pub(super) fn is_mounted(&self, record: &Record, claim: &ClaimUid) -> bool {
        record.boot_id == self.boot_id
            && record.targets.get(claim).is_some_and(|t| t.published == Done::Yes)
            && self.mounted.iter().any(|m| m == claim)
    }

    pub(super) fn wanted_on(&self, attachment: &AttachmentUid) -> bool {
        self.claims.iter().any(|c| self.wants(c, attachment))
    }
}
