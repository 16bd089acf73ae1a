//! A volume with holders, as admission sees it.

use moor::api::capability::VolumeUse;
use moor::api::claim::Assignment;
use moor::api::{AccessMode, AttachmentMode, AttachmentState, ClaimState, lock};
use moor::attachment::{AttachmentSeen, HandleSeen};
use moor::claim::admission::{Seen, Verdict, admit, is_exclusive, shares_node};
use moor::claim::{ClaimSeen, ForgottenSeen, NodeSeen, VolumeSeen};

pub const DRIVER: &str = "driver";
pub const VOLUME_ID: &str = "volume-1";
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
            volume: VolumeSeen {
                uid: "volume".into(),
                deleted: false,
                ready: true,
                driver: DRIVER.into(),
                handle: VOLUME_ID.into(),
                uses: uses.collect(),
                unprepared: None,
                attaches_read_only: false,
            },
            handle: HandleSeen {
                name: "handle".into(),
                volume_handle: "vol-1".into(),
                owner: "ns/volume".into(),
                volume_uid: "volume".into(),
                mode,
                epoch: 1,
                closing: false,
                controller: None,
                writer: None,
            },
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
    pub fn admit(&self) -> Vec<(String, Verdict)> {
        admit(&self.seen())
    }

    /// What admission says of one claim.
    pub fn verdict(&self, uid: &str) -> Verdict {
        self.admit().into_iter().find(|(u, _)| u == uid).map(|(_, v)| v).unwrap()
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
            name: lock::attachment_name(DRIVER, VOLUME_ID, mode, node),
            uid: uid.into(),
            deleted: false,
            namespace: "default".into(),
            volume_uid: "volume".into(),
            handle_name: "handle".into(),
            node: node.into(),
            node_uid: node.into(),
            node_id: node.into(),
            mode,
            attachment_mode,
            epoch: self.handle.epoch,
            controller: None,
            attach: true,
            stage: true,
            read_only: false,
            exclusive: driver.is_exclusive(mode),
            state: AttachmentState::Attached,
            lost: false,
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
        self.claims.push(ClaimSeen {
            namespace: "default".into(),
            name: uid.into(),
            uid: uid.into(),
            created,
            deleted: false,
            held: false,
            force: false,
            node: node.map(Into::into),
            read_only,
            mode,
            attachment_mode: AttachmentMode::FileSystem,
            state: ClaimState::Pending,
            assignment: None,
            yielded: None,
        });
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

pub fn grant(attachment: &AttachmentSeen) -> Assignment {
    Assignment {
        attachment: attachment.name.clone(),
        attachment_uid: attachment.uid.clone(),
        handle_name: "handle".into(),
        node_name: attachment.node.clone(),
        node_uid: attachment.node_uid.clone(),
    }
}

pub fn node(name: &str) -> NodeSeen {
    NodeSeen {
        name: name.into(),
        uid: name.into(),
        healthy: true,
        reachable: true,
        unclean: false,
        twin: None,
        has_room: true,
        load: 0,
    }
}
