//! What the leader's plan looks at.

use std::collections::BTreeMap;
use std::time::Duration;

use super::look::{Look, Looked};
use crate::api::lock::{DriverVolume, attachment_name};
use crate::api::volume::VolumeAssignment;
use crate::api::{AttachmentUid, ClaimUid, Volume};
use crate::attachment::closing::Unused;
use crate::attachment::loss::NodeFacts;
use crate::attachment::{AttachmentSeen, HandleSeen};
use crate::claim::{ClaimSeen, Entitled, ForgottenSeen, Mount, NodeSeen, Verdict, VolumeSeen, admission};
use crate::plugin::allow::NotAllowed;
use crate::volume::persistent_volume::CsiSource;
use crate::volume::{PluginSeen, SourceSeen};

/// One Volume with all that hangs on it, as the caches have it, and what was read live since.
#[derive(Clone, Debug)]
pub struct Scene<'a> {
    /// Name of the Volume.
    pub name: &'a str,
    /// The Volume, if there is one.
    pub volume: Option<&'a Volume>,
    /// The Volume as admission sees it.
    pub volume_seen: Option<&'a VolumeSeen>,
    /// The Volume's Plugin and its instances.
    pub plugin: PluginSeen<'a>,
    /// The driver's name: that of the VolumeHandle, for as long as there is one, else the Plugin's.
    pub driver: &'a str,
    /// The driver of the instance that the Volume's own calls are assigned to, if it is known ([`driver_of_calls`]).
    ///
    /// [`driver_of_calls`]: crate::volume::driver_of_calls
    pub driver_of_calls: Option<&'a str>,
    /// The VolumeHandle, by the handle that status or spec names, if there is one.
    pub handle: Option<&'a HandleSeen>,
    /// What `spec.source` of the Volume names.
    pub source: SourceSeen<'a>,
    /// What is being made of the Volume, in words, as far as the caches know.
    pub copied_by: Option<&'a str>,
    /// Every claim that names the Volume.
    pub claims: &'a [ClaimSeen],
    /// Attachments made for a Volume of this name.
    pub attachments: &'a [AttachmentSeen],
    /// What is known of the nodes of `attachments` that are silent or declared lost, by the Attachment's UID.
    pub nodes_of: &'a BTreeMap<AttachmentUid, NodeFacts>,
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
    pub claims_not_allowed: &'a [(ClaimUid, NotAllowed)],
    /// What is remembered of the Attachments that nobody uses, by UID.
    pub unused: &'a BTreeMap<AttachmentUid, Unused>,
    /// What live reads found a moment ago about the Pods of claims that need one, by UID of the claim.
    pub pods: &'a BTreeMap<ClaimUid, Entitled>,
    /// For how long Pods that were looked at before are due to be looked at again, by UID of the claim. Of a claim that is
    /// refused, for how long it ought to have been deleted by its agent.
    pub pods_overdue: &'a BTreeMap<ClaimUid, Duration>,
    /// The name by which kubelets know the driver, if moor keeps this Volume for PersistentVolumes of that name.
    pub kept_as: Option<&'a str>,
    /// etcd may have been restored (rule R7): what is not in the caches may have been.
    pub cautious: bool,
    /// What was read live after all of this was seen.
    pub looked: &'a Looked,
}

impl<'a> Scene<'a> {
    /// What admission says of every claim that wants a grant, by UID.
    #[must_use]
    pub fn verdicts(&self) -> Vec<(ClaimUid, Verdict)> {
        admission::admit(&self.admission())
    }

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

    /// Whether the Pod of a claim may have the volume, if somebody has looked.
    pub(super) fn entitled(&self, claim: &ClaimSeen) -> Option<&'a Entitled> {
        self.looked.pods.get(&claim.uid).or_else(|| self.pods.get(&claim.uid))
    }

    /// The VolumeHandle, if this very Volume owns it.
    pub(super) fn own_handle(&self) -> Option<&'a HandleSeen> {
        let uid = self.volume?.metadata.uid.as_ref()?;
        self.handle.filter(|handle| handle.volume_uid == *uid)
    }

    /// The volume that the Volume's driver knows by this id.
    pub(super) fn of_driver(&self, id: &str) -> CsiSource {
        CsiSource { driver: self.driver.to_owned(), volume_handle: id.to_owned() }
    }

    /// The Attachments of the VolumeHandle, by a quorum LIST.
    pub(super) fn live_locks(&self) -> Result<&'a [AttachmentSeen], Look> {
        self.looked.locks.as_deref().ok_or(Look::Locks)
    }

    /// By which Attachment anything is attached under the VolumeHandle, or may be, after it was closed, by a live read.
    ///
    /// For a LIST the API server goes over all Attachments there are. It is spared where all that can have been attached has one name
    /// (docs/adr/0067-what-one-name-or-one-watch-says-is-not-listed.md).
    pub(super) fn locked_by(&self) -> Result<Option<String>, Look> {
        let Some(name) = self.only_lock() else {
            return Ok(self.live_locks()?.first().map(|lock| lock.name.clone()));
        };
        let Some(live) = self.looked.attachments.get(&name) else { return Err(Look::Attachment { name }) };
        let known = || self.locks.first().map(|lock| lock.name.clone());
        Ok(if live.is_some() { Some(name) } else { known() })
    }

    /// The name of every Attachment under which the volume can be attached: that of a single-node mode, if the VolumeHandle was open
    /// in one until its last closing. Before it was opened in that mode nothing was left of an earlier one.
    fn only_lock(&self) -> Option<String> {
        let was_open = |handle: &&HandleSeen| handle.closed_for.is_some() && handle.let_go;
        let handle = self.own_handle().filter(was_open).filter(|handle| !handle.mode.is_multi_node())?;
        let volume = DriverVolume { driver: self.driver, handle: &handle.volume_handle };
        Some(attachment_name(volume, handle.mode, ""))
    }

    /// Whether the VolumeHandle is as it was seen, by a live read. What was looked for since was looked for behind its closing.
    pub(super) fn handle_stands(&self) -> Result<bool, Look> {
        let Some(seen) = self.own_handle() else { return Ok(false) };
        match self.looked.handles.get(&seen.name) {
            None => Err(Look::Handle { name: seen.name.clone() }),
            Some(live) => Ok(live.as_ref() == Some(seen)),
        }
    }

    /// What the Volume is assigned, by a live read.
    pub(super) fn assigned(&self) -> Result<Option<&'a VolumeAssignment>, Look> {
        self.looked.assigned.as_ref().map(Option::as_ref).ok_or(Look::Assigned)
    }

    /// What is being made of the Volume, as of a moment after its deletion was seen. Nothing begins after that.
    pub(super) fn copied_by(&self, uid: &str) -> Result<Option<&'a str>, Look> {
        let copied_by = self.looked.copied_by.as_ref().map(Option::as_deref);
        copied_by.ok_or_else(|| Look::Copies { of: uid.to_owned() })
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

    /// Who uses the volume or may be using it, as a condition names them: a claim, an Attachment or a mount.
    pub(super) fn in_use_by(&self) -> Option<String> {
        let granted = self.claims.iter().find(|claim| claim.uses().is_some());
        // What locks a handle that is another Volume's is that Volume's affair.
        let is_own = self.handle.is_none() || self.own_handle().is_some();
        let locked = self.locks.first().filter(|_| is_own);
        let mounted = self.forgotten.iter().min_by_key(|f| &f.mount).filter(|_| is_own);
        granted
            .map(|claim| {
                let of = claim.pod.as_ref().map(|pod| format!(" of Pod {pod}")).unwrap_or_default();
                format!("claim {}{of}", claim.key())
            })
            .or_else(|| {
                locked.map(|a| format!("Attachment {} on node {}{}", a.name, a.node, self.undetached(a)))
            })
            .or_else(|| {
                mounted.map(|m| match m.mount {
                    Mount::NotSaid => format!("node {}, which has yet to say what it has mounted", m.node),
                    Mount::InLease => format!("a mount on node {} (Lease {})", m.node, m.instance),
                    Mount::Reported(_) | Mount::Unreadable(_) | Mount::Named => {
                        format!("a mount on node {} (PluginInstance {})", m.node, m.instance)
                    }
                })
            })
    }

    /// Says of an Attachment that nobody detaches why not: its agent is not heard, and without the Plugin no PluginInstance
    /// of another one is there to be believed (rules R12, R13).
    fn undetached(&self, attachment: &AttachmentSeen) -> String {
        let silent = attachment.controller.as_ref().filter(|c| self.plugin.is_silent(c));
        let Some((silent, volume)) = silent.zip(self.volume).filter(|_| self.plugin.balancing.is_none())
        else {
            return String::new();
        };
        format!(
            ", which the agent of node {} is to detach, and that agent is not heard; Plugin {} does not exist, and without \
             it no other agent takes over: create it again with the same driver",
            silent.agent, volume.spec.plugin_name
        )
    }
}
