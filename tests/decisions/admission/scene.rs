//! A volume with holders, as admission sees it.

use moor::api::capability::VolumeUse;
use moor::api::{AccessMode, AttachmentMode, ClaimState, ClaimUid, lock};
use moor::attachment::{AttachmentSeen, HandleSeen};
use moor::claim::admission::{Seen, Verdict, admit, is_exclusive, shares_node};
use moor::claim::{ClaimSeen, ForgottenSeen, NodeSeen, VolumeSeen};

use super::super::fixtures::{self, DRIVER_VOLUME, grant, node};

pub const HERE: &str = "node-1";
pub const THERE: &str = "node-2";

/// What the driver does with a second target of one volume on one node (CSI NodePublishVolume).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// It knows SINGLE_NODE_WRITER only.
    Plain,
    /// It has the capability SINGLE_NODE_MULTI_WRITER.
    MultiWriter,
    /// Its Plugin says that it takes a second target in any single-node mode.
    Tolerant,
}

impl Driver {
    pub const ALL: [Self; 3] = [Self::Plain, Self::MultiWriter, Self::Tolerant];

    pub fn is_exclusive(self, mode: AccessMode) -> bool {
        is_exclusive(mode, shares_node(mode, self == Self::MultiWriter, self == Self::Tolerant))
    }
}

/// A volume, its claims and its Attachments.
#[derive(Clone, Debug)]
pub struct World {
    pub volume: VolumeSeen,
    pub handle: HandleSeen,
    pub claims: Vec<ClaimSeen>,
    pub attachments: Vec<AttachmentSeen>,
    pub nodes: Vec<NodeSeen>,
    pub forgotten: Vec<ForgottenSeen>,
}

impl World {
    /// Nobody uses the volume, which lists everything and was used in `mode` last.
    pub fn idle(mode: AccessMode) -> Self {
        let uses = AccessMode::ALL.into_iter().flat_map(|access_mode| {
            [AttachmentMode::FileSystem, AttachmentMode::BlockDevice]
                .map(|attachment_mode| VolumeUse { access_mode, attachment_mode })
        });
        Self {
            volume: VolumeSeen { uses: uses.collect(), ..fixtures::volume() },
            handle: HandleSeen { mode, controller: None, ..fixtures::handle() },
            claims: Vec::new(),
            attachments: Vec::new(),
            nodes: vec![node(HERE), node(THERE)],
            forgotten: Vec::new(),
        }
    }

    /// What admission looks at.
    pub fn seen(&self) -> Seen<'_> {
        Seen {
            volume_name: "volume",
            volume: Some(&self.volume),
            handle: Some(&self.handle),
            claims: &self.claims,
            attachments: &self.attachments,
            nodes: &self.nodes,
            forgotten: &self.forgotten,
            not_allowed: &[],
        }
    }

    /// What admission says, by UID of the claim.
    pub fn admit(&self) -> Vec<(ClaimUid, Verdict)> {
        admit(&self.seen())
    }

    /// What admission says of one claim.
    pub fn verdict(&self, uid: &str) -> Verdict {
        self.admit().into_iter().find(|(u, _)| *u == uid).map(|(_, v)| v).unwrap()
    }

    /// The Attachment of the volume on this node, in this use, in use there.
    pub fn attach(
        &mut self,
        uid: &str,
        node: &str,
        mode: AccessMode,
        attachment_mode: AttachmentMode,
        driver: Driver,
    ) {
        self.attachments.push(AttachmentSeen {
            name: lock::attachment_name(DRIVER_VOLUME, mode, node),
            node: node.into(),
            node_uid: node.into(),
            node_id: node.into(),
            mode,
            attachment_mode,
            epoch: self.handle.epoch,
            controller: None,
            exclusive: driver.is_exclusive(mode),
            ..fixtures::attachment(uid)
        });
    }

    /// A claim that waits.
    pub fn ask(
        &mut self,
        uid: &str,
        mode: AccessMode,
        read_only: bool,
        node: Option<&str>,
    ) -> &mut ClaimSeen {
        let created = i64::try_from(self.claims.len()).unwrap();
        let node = node.map(Into::into);
        self.claims.push(ClaimSeen { created, node, read_only, mode, ..fixtures::claim(uid) });
        self.claims.last_mut().unwrap()
    }

    /// A claim that is Ready on this Attachment.
    pub fn hold(&mut self, uid: &str, attachment: &str, read_only: bool) -> &mut ClaimSeen {
        let of = self.attachments.iter().find(|a| a.uid == attachment).unwrap().clone();
        let claim = self.ask(uid, of.mode, read_only, Some(&of.node));
        claim.attachment_mode = of.attachment_mode;
        claim.state = ClaimState::Ready;
        claim.held = true;
        claim.assignment = Some(grant(&of));
        claim
    }
}
