//! What admission looks at: claims, the Volume and the nodes, reduced to what decides.

use std::collections::BTreeMap;

use crate::api::capability::VolumeUse;
use crate::api::claim::Assignment;
use crate::api::conditions::{READY, Reason, SILENT, find_as};
use crate::api::volume::Segments;
use crate::api::{
    AccessMode, AttachmentMode, AttachmentUid, ClaimState, ClaimUid, FINALIZER, VolumeClaim, has_finalizer,
};
use crate::attachment::{AttachmentSeen, HandleSeen, StagedAs};
use crate::plugin::allow::NotAllowed;

/// A claim as a decision sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClaimSeen {
    /// Namespace of the claim and of its Volume.
    pub namespace: String,
    /// Name of the claim.
    pub name: String,
    /// UID of the claim.
    pub uid: ClaimUid,
    /// Creation time in seconds since the epoch; the order of the line.
    pub created: i64,
    /// It has a deletionTimestamp.
    pub deleted: bool,
    /// Whether the claim carries our finalizer.
    pub held: bool,
    /// spec.forceDetach.
    pub force: bool,
    /// The node its user named.
    pub node: Option<String>,
    /// Labels that the node has to have which is picked for it.
    pub node_selector: BTreeMap<String, String>,
    /// spec.readOnly.
    pub read_only: bool,
    /// The mode it asks for.
    pub mode: AccessMode,
    /// File system or block.
    pub attachment_mode: AttachmentMode,
    /// Where its status says it is.
    pub state: ClaimState,
    /// The grant, if any.
    pub assignment: Option<Assignment>,
    /// UID of the Attachment its node gave back.
    pub yielded: Option<AttachmentUid>,
    /// Whether it is a Pod's: it has spec.pod.
    pub of_pod: bool,
    /// That Pod, as namespace/name.
    pub pod: Option<String>,
    /// Whether kubelet has the volume grow for it: its Pod uses the volume by a PersistentVolumeClaim, by whose size kubelet
    /// goes. Of a volume that a Pod names itself kubelet knows no size.
    pub grown_by_kubelet: bool,
    /// With what a Pod's volume is to be staged, where nobody has staged it.
    pub staged_as: StagedAs,
    /// Why its Pod may not have the volume, as the claim says.
    pub not_entitled: Option<String>,
    /// What its NodeSilent condition says: its node is not heard, and how the volume comes free all the same.
    pub silence: Option<String>,
}

impl ClaimSeen {
    /// The state of a claim that is in another one's way, in one word.
    pub(super) fn state_word(&self) -> String {
        if self.deleted { "leaving".into() } else { format!("{:?}", self.state) }
    }

    /// Reduces a claim. An object without UID cannot come from an API server and reads as empty.
    #[must_use]
    pub fn of(claim: &VolumeClaim) -> Self {
        let meta = &claim.metadata;
        let status = claim.status.as_ref();
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: ClaimUid::of(&claim.metadata),
            created: meta.creation_timestamp.as_ref().map_or(0, |t| t.0.as_second()),
            deleted: meta.deletion_timestamp.is_some(),
            held: has_finalizer(meta, FINALIZER),
            force: claim.spec.force_detach,
            node: claim.spec.node_name.clone(),
            node_selector: claim.spec.node_selector.clone(),
            read_only: claim.spec.read_only,
            mode: claim.spec.access_mode,
            attachment_mode: claim.spec.attachment_mode,
            state: status.map(|s| s.state).unwrap_or_default(),
            assignment: claim.spec.assignment.clone(),
            yielded: status.and_then(|s| s.yielded.clone()),
            of_pod: claim.spec.pod.is_some(),
            pod: claim.spec.pod.as_ref().map(|pod| format!("{}/{}", pod.namespace, pod.name)),
            grown_by_kubelet: claim.spec.pod.as_ref().is_some_and(|pod| pod.by_persistent_volume().is_some()),
            staged_as: StagedAs {
                flags: claim.spec.mount_options.as_ref().map(|o| o.mount_flags.clone()).unwrap_or_default(),
                group: claim.spec.pod.as_ref().and_then(|pod| pod.volume_mount_group.clone()),
            },
            not_entitled: not_entitled(claim),
            silence: silence(claim),
        }
    }

    /// UID of the Attachment that the claim uses now: assigned and not given back.
    #[must_use]
    pub fn uses(&self) -> Option<&AttachmentUid> {
        let uid = &self.assignment.as_ref()?.attachment_uid;
        (self.yielded.as_ref() != Some(uid)).then_some(uid)
    }

    /// Whether the claim was assigned to this Attachment last, whatever has become of that grant.
    #[must_use]
    pub fn names(&self, attachment: &AttachmentUid) -> bool {
        self.assignment.as_ref().is_some_and(|a| a.attachment_uid == *attachment)
    }

    /// Whether the claim asks to be granted: it is not deleted, has not ended, and has no grant in force.
    ///
    /// Who has ended stays so, and no node makes anything for it: it would hold an Attachment and never use it.
    #[must_use]
    pub fn wants_grant(&self) -> bool {
        !self.deleted && self.uses().is_none() && !self.state.is_final()
    }

    /// Whether anything is still to be done for the claim that only a Pod which is there can want: it is a Pod's, and waits
    /// for its grant or for its mount. Of one that is mounted kubelet says when that is not needed any more.
    #[must_use]
    pub fn needs_pod(&self) -> bool {
        let is_mounted = self.uses().is_some() && self.state == ClaimState::Ready;
        self.of_pod && !self.deleted && !self.state.is_final() && !is_mounted
    }

    /// Whether the claim writes in a mode that has one writer for all nodes, so that the VolumeHandle must name it.
    #[must_use]
    pub fn needs_writer_lock(&self) -> bool {
        self.mode == AccessMode::MultiNodeSingleWriter && !self.read_only
    }

    /// Whether moor has a volume that has grown follow on the claim's node. It does not for who only reads: what follows is a
    /// write to the file system.
    #[must_use]
    pub fn is_grown_for(&self) -> bool {
        let only_reads = self.read_only || self.mode.is_reader_only();
        !self.deleted && !self.state.is_final() && !self.grown_by_kubelet && !only_reads
    }

    /// Whether moor has the volume follow on the node of this Attachment for the claim.
    #[must_use]
    pub fn grows_on(&self, attachment: &AttachmentSeen) -> bool {
        self.uses() == Some(&attachment.uid) && self.is_grown_for() && !attachment.read_only
    }

    /// `namespace/name`, as conditions name it.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// What the controller says of the silence of the claim's node.
fn silence(claim: &VolumeClaim) -> Option<String> {
    let conditions = &claim.status.as_ref()?.conditions;
    let said = find_as(conditions, SILENT, "True")?;
    Some(said.message.clone())
}

/// Why the Pod of a claim may not have the volume, if that was said. While it waits for a grant only the controller writes
/// what a claim says.
#[must_use]
pub fn not_entitled(claim: &VolumeClaim) -> Option<String> {
    let given_back = claim.status.as_ref().and_then(|status| status.yielded.as_ref());
    let is_granted = claim.spec.assignment.as_ref().is_some_and(|a| Some(&a.attachment_uid) != given_back);
    let said = claim.status.iter().flat_map(|status| &status.conditions);
    let mut said = said.filter(|_| claim.spec.pod.is_some() && !is_granted);
    let refused = said.find(|c| c.type_ == READY && c.reason == Reason::PodNotEntitled.as_str())?;
    Some(refused.message.clone())
}

/// The Volume as admission sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VolumeSeen {
    /// UID of the Volume.
    pub uid: String,
    /// It has a deletionTimestamp.
    pub deleted: bool,
    /// status.state is Ready.
    pub ready: bool,
    /// Driver name and handle, once known.
    pub driver: String,
    /// The volume id, once known.
    pub handle: String,
    /// The uses it allows.
    pub uses: Vec<VolumeUse>,
    /// With which flags it is staged, unless for a Pod.
    pub mount_flags: Vec<String>,
    /// Why no Attachment of it can be made now: something that it copies is not known (trap B20).
    pub unprepared: Option<String>,
    /// Its driver attaches read-only where it is asked to: PUBLISH_READONLY.
    pub attaches_read_only: bool,
    /// Whether it is never attached otherwise, whatever its claims do.
    pub read_only: bool,
    /// It is made where its first claim is, and that is not chosen yet.
    pub is_to_be_placed: bool,
    /// What its Plugin says of second targets on a node.
    pub tolerates_second_target: Option<bool>,
}

/// A node that could take the volume.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeSeen {
    /// Name of the Node.
    pub name: String,
    /// UID of the Node under which its instance runs.
    pub uid: String,
    /// Whether the node's agent reports a healthy Node service of the Plugin's driver.
    pub healthy: bool,
    /// The volume can be reached from it.
    pub reachable: bool,
    /// Whether the node has, or may have, mounts of the volume from before it was lost, and has yet to undo them
    /// (rule R4, trap B8).
    pub unclean: bool,
    /// Another node that the driver knows by the same id.
    pub twin: Option<String>,
    /// The driver's limit of volumes is not reached.
    pub has_room: bool,
    /// Whether the node takes no new Pods: it is cordoned, or its kubelet says that it is not Ready, as one does that shuts
    /// down.
    pub retires: bool,
    /// Labels of the Node; empty where no claim asks for any.
    pub labels: BTreeMap<String, String>,
    /// Attachments of this driver on it, for spreading.
    pub load: usize,
    /// Where it is, in the driver's terms; empty where the volume is not to be placed.
    pub topology: BTreeMap<String, String>,
}

/// A mount of the volume on a node for which the API server has no Attachment (rule R7).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ForgottenSeen {
    /// Node on which it is.
    pub node: String,
    /// PluginInstance that reports it, or the Lease of its agent.
    pub instance: String,
    /// What is known of it.
    pub mount: Mount,
}

/// What is known of a mount without an Attachment, and who says so.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mount {
    /// The PluginInstance describes the mount, with the UID of the Attachment that it was made for.
    Reported(AttachmentUid),
    /// There may be a mount: the node's record of the Attachment with this UID cannot be read, so nobody undoes what
    /// it says.
    Unreadable(AttachmentUid),
    /// The PluginInstance names the volume and says no more, because its list was full.
    Named,
    /// The Lease of the node's agent names the volume, and no PluginInstance does.
    InLease,
    /// etcd may have been restored, and the node has yet to say what it has mounted.
    NotSaid,
}

/// Whether the volume is reachable from a node with these segments: `accessible` is empty, or one of its terms is
/// contained in the node's. Keys are compared without case (CSI Topology).
#[must_use]
pub fn reaches(accessible: &[Segments], node: &std::collections::BTreeMap<String, String>) -> bool {
    let has = |key: &str, value: &str| node.iter().any(|(k, v)| k.eq_ignore_ascii_case(key) && v == value);
    accessible.is_empty() || accessible.iter().any(|term| term.segments.iter().all(|(k, v)| has(k, v)))
}

/// Whether a node takes another volume of the driver: CSI NodeGetInfo's limit is not reached, or is 0, which is no
/// limit. `load` counts what is leaving too: it is attached until it is not.
#[must_use]
pub fn has_room(max_volumes: i64, load: usize) -> bool {
    usize::try_from(max_volumes).map_or(true, |limit| limit == 0 || load < limit)
}

/// Everything admission looks at, for one Volume.
#[derive(Clone, Debug)]
pub struct Seen<'a> {
    /// Name that the claims give.
    pub volume_name: &'a str,
    /// The Volume, if there is one.
    pub volume: Option<&'a VolumeSeen>,
    /// Its VolumeHandle, if there is one.
    pub handle: Option<&'a HandleSeen>,
    /// All claims on it.
    pub claims: &'a [ClaimSeen],
    /// All Attachments of its handle.
    pub attachments: &'a [AttachmentSeen],
    /// All nodes that have an instance of the Plugin.
    pub nodes: &'a [NodeSeen],
    /// Mounts of the volume for which there is no Attachment.
    pub forgotten: &'a [ForgottenSeen],
    /// UIDs of claims that ask for what their namespace may not, and have not been granted before.
    pub not_allowed: &'a [(ClaimUid, NotAllowed)],
}
