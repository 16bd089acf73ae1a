//! What the leader's plan looks at.

use std::collections::BTreeMap;

use super::look::{Look, Looked};
use crate::api::Volume;
use crate::api::plugin::Balancing;
use crate::attachment::loss::NodeFacts;
use crate::attachment::{AttachmentSeen, HandleSeen};
use crate::claim::{ClaimSeen, ForgottenSeen, NodeSeen, VolumeSeen, admission};
use crate::plugin::allow::NotAllowed;
use crate::volume::InstanceSeen;

/// One Volume with all that hangs on it, as the caches have it, and what was read live since.
#[derive(Clone, Debug)]
pub struct Scene<'a> {
    /// Name of the Volume.
    pub name: &'a str,
    /// The Volume, if there is one.
    pub volume: Option<&'a Volume>,
    /// The Volume as admission sees it.
    pub volume_seen: Option<&'a VolumeSeen>,
    /// How the Plugin spreads volumes over its instances; None if there is no such Plugin.
    pub plugin: Option<Balancing>,
    /// Name of an older Plugin that has the same driver, and so has it instead.
    pub older_plugin: Option<&'a str>,
    /// The driver's name: that of the VolumeHandle, for as long as there is one, else the Plugin's.
    pub driver: &'a str,
    /// The driver of the instance that the Volume's own calls are assigned to, if that instance is known.
    pub driver_of_caller: Option<&'a str>,
    /// Instances that could make controller calls, and those that are named and are gone.
    pub controllers: &'a [InstanceSeen],
    /// The Plugin says on which nodes these are: the driver has a Controller service, even if there is no instance of it.
    pub names_controllers: bool,
    /// Some instance of the Plugin is healthy, of whatever role.
    pub any_healthy: bool,
    /// A healthy controller instance lists CREATE_DELETE_VOLUME.
    pub can_create: bool,
    /// A controller instance has said that its driver attaches: PUBLISH_UNPUBLISH_VOLUME.
    pub attaches: bool,
    /// The VolumeHandle, by the handle that status or spec names, if there is one.
    pub handle: Option<&'a HandleSeen>,
    /// Every claim that names the Volume.
    pub claims: &'a [ClaimSeen],
    /// Attachments made for a Volume of this name.
    pub attachments: &'a [AttachmentSeen],
    /// What is known of the nodes of `attachments`, by the Attachment's UID.
    pub nodes_of: &'a BTreeMap<String, NodeFacts>,
    /// Attachments of the VolumeHandle, whoever they were made for: these lock it.
    pub locks: &'a [AttachmentSeen],
    /// Nodes that a claim could be placed on.
    pub nodes: &'a [NodeSeen],
    /// Mounts of the volume that nodes report and no Attachment stands for.
    pub forgotten: &'a [ForgottenSeen],
    /// Whether a mount of the volume was reported from a node that is gone or off, as far as the caches know.
    pub ended_reports: bool,
    /// What the Volume asks for and its namespace may not.
    pub volume_not_allowed: Option<&'a NotAllowed>,
    /// UIDs of claims that ask for what their namespace may not, and have not been granted before.
    pub claims_not_allowed: &'a [(String, NotAllowed)],
    /// etcd may have been restored (rule R7): what is not in the caches may have been.
    pub cautious: bool,
    /// What was read live after all of this was seen.
    pub looked: &'a Looked,
}

impl<'a> Scene<'a> {
    /// What admission looks at.
    #[must_use]
    pub fn admission(&self) -> admission::Seen<'a> {
        admission::Seen {
            volume_name: self.name,
            volume: self.volume_seen,
            handle: self.handle,
            claims: self.claims,
            attachments: self.locks,
            nodes: self.nodes,
            forgotten: self.forgotten,
            not_allowed: self.claims_not_allowed,
        }
    }

    /// The VolumeHandle, if this very Volume owns it.
    pub(super) fn own_handle(&self) -> Option<&'a HandleSeen> {
        let uid = self.volume?.metadata.uid.as_ref()?;
        self.handle.filter(|handle| handle.volume_uid == *uid)
    }

    /// Whether live reads show that the nodes which reported mounts and seem gone or off are so: before anything is
    /// granted or deleted that such a report spoke of (rules R1, R4).
    pub(super) fn reports_have_ended(&self) -> Result<bool, Look> {
        match self.looked.reports_have_ended {
            _ if !self.ended_reports => Ok(true),
            Some(ended) => Ok(ended),
            None => Err(Look::EndedReports),
        }
    }
}
