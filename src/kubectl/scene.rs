//! What pages are made of: the objects as they were listed, and a moment.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

use super::words::age;
use crate::api::names::{agent_lease_name, agent_of_lease};
use crate::api::{Attachment, Plugin, PluginInstance, Snapshot, Volume, VolumeClaim, VolumeHandle};
use crate::heartbeat::Leftovers;

/// Which namespaces are looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    All,
    In(String),
}

impl Scope {
    /// The namespace, if it is one.
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::All => None,
            Self::In(namespace) => Some(namespace),
        }
    }

    /// What is said behind a number of things, where not all namespaces were looked at.
    pub fn of(&self) -> String {
        self.namespace().map(|namespace| format!(" of namespace {namespace}")).unwrap_or_default()
    }

    /// Where something was looked for.
    pub fn place(&self) -> String {
        match self {
            Self::All => "any namespace".into(),
            Self::In(namespace) => format!("namespace {namespace}"),
        }
    }
}

/// Everything that was listed.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub now: Timestamp,
    pub plugins: Vec<Plugin>,
    pub instances: Vec<PluginInstance>,
    pub volumes: Vec<Volume>,
    pub snapshots: Vec<Snapshot>,
    pub claims: Vec<VolumeClaim>,
    pub attachments: Vec<Attachment>,
    pub handles: Vec<VolumeHandle>,
    /// The agents by their Leases; None where these may not be read.
    pub agents: Option<Vec<Agent>>,
    /// What could not be seen, and why.
    pub unseen: Vec<String>,
    /// Kinds, by their plurals, of which not everything could be seen.
    pub hidden: BTreeSet<String>,
}

/// What the Lease of an agent says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Agent {
    /// Name of the Lease.
    pub lease: String,
    /// When it was last renewed.
    pub renewed: Option<Timestamp>,
    /// For how many seconds that lasts.
    pub lasts: i64,
    /// The node has, or may have, mounts of volumes that were taken from it while it was silent.
    pub leftovers: bool,
}

impl Agent {
    /// Reads it from a Lease; None of one that is no agent's.
    pub fn of(lease: &Lease) -> Option<Self> {
        let name = lease.metadata.name.as_deref()?;
        if !name.starts_with(crate::api::names::AGENTS) {
            return None;
        }
        let spec = lease.spec.as_ref();
        Some(Self {
            lease: name.to_owned(),
            renewed: spec.and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0),
            lasts: spec.and_then(|spec| spec.lease_duration_seconds).map_or(0, i64::from),
            leftovers: Leftovers::said_in(lease) != Leftovers::none(),
        })
    }

    /// The node, as far as the name of the Lease says it.
    pub fn node(&self) -> &str {
        agent_of_lease(&self.lease).unwrap_or(&self.lease)
    }

    /// When its last word was, if that is over. It goes by the clock of whoever looks; what moor does goes by the
    /// leader's, which sees the renewals.
    pub fn silent_since(&self, now: Timestamp) -> Option<Timestamp> {
        let renewed = self.renewed?;
        (now.duration_since(renewed).as_secs() > self.lasts).then_some(renewed)
    }
}

impl Scene {
    /// What is known of the agent on a node.
    pub fn agent(&self, node: &str) -> Option<&Agent> {
        let lease = agent_lease_name(node);
        self.agents.as_ref()?.iter().find(|agent| agent.lease == lease)
    }

    /// Whether all objects of a kind were seen: what is not there might be one of the others.
    pub fn sees<K: Resource<DynamicType = ()>>(&self) -> bool {
        !self.hidden.contains(K::plural(&()).as_ref())
    }

    /// What is said of an object that was not found.
    pub fn missing<K: Resource<DynamicType = ()>>(&self) -> &'static str {
        if self.sees::<K>() { "which is not there now" } else { "which is not seen" }
    }

    /// Whether the agent on a node is silent, as far as that is known: of one that has no Lease nobody can say.
    pub fn is_silent(&self, node: &str) -> Option<bool> {
        let agent = self.agent(node)?;
        Some(agent.renewed.is_none() || agent.silent_since(self.now).is_some())
    }

    /// The agent on a node in words.
    pub fn heard(&self, node: &str) -> String {
        if self.agents.is_none() {
            return "not known whether its agent is heard".into();
        }
        let Some(agent) = self.agent(node) else { return "no agent has a Lease for it".into() };
        match (agent.renewed, agent.silent_since(self.now)) {
            (None, _) => "its agent has said nothing yet".into(),
            (Some(_), Some(silent)) => {
                format!("its agent is silent, last heard {} ago", age(self.now, silent))
            }
            (Some(renewed), None) => format!("its agent was heard {} ago", age(self.now, renewed)),
        }
    }

    /// The instance of this name.
    pub fn instance(&self, name: &str) -> Option<&PluginInstance> {
        self.instances.iter().find(|instance| instance.metadata.name.as_deref() == Some(name))
    }

    /// The Plugin of this name.
    pub fn plugin(&self, name: &str) -> Option<&Plugin> {
        self.plugins.iter().find(|plugin| plugin.metadata.name.as_deref() == Some(name))
    }

    /// The Volume that a claim names.
    pub fn volume_of(&self, claim: &VolumeClaim) -> Option<&Volume> {
        self.volumes
            .iter()
            .find(|v| is_named(&v.metadata, claim.metadata.namespace.as_deref(), &claim.spec.volume_name))
    }

    /// The claims that name a Volume.
    pub fn claims_of(&self, volume: &Volume) -> impl Iterator<Item = &VolumeClaim> {
        let (namespace, name) = (volume.metadata.namespace.as_deref(), volume.metadata.name.as_deref());
        let of = move |claim: &&VolumeClaim| {
            claim.metadata.namespace.as_deref() == namespace && Some(claim.spec.volume_name.as_str()) == name
        };
        self.claims.iter().filter(of)
    }

    /// The Attachments that were made for a Volume.
    pub fn attachments_of(&self, volume: &Volume) -> impl Iterator<Item = &Attachment> {
        let uid = volume.metadata.uid.as_deref().unwrap_or_default();
        self.attachments.iter().filter(move |attachment| attachment.spec.volume.uid == uid)
    }

    /// The Attachment that a claim was granted.
    pub fn attachment_of(&self, claim: &VolumeClaim) -> Option<&Attachment> {
        let uid = &claim.spec.assignment.as_ref()?.attachment_uid;
        self.attachments.iter().find(|attachment| attachment.metadata.uid.as_deref() == Some(uid.as_str()))
    }

    /// The VolumeHandle of this name.
    pub fn handle(&self, name: &str) -> Option<&VolumeHandle> {
        self.handles.iter().find(|handle| handle.metadata.name.as_deref() == Some(name))
    }
}

/// Whether an object has this name in this namespace.
pub(super) fn is_named(meta: &ObjectMeta, namespace: Option<&str>, name: &str) -> bool {
    meta.namespace.as_deref() == namespace && meta.name.as_deref() == Some(name)
}

/// The node that a claim has, or asks for.
pub(super) fn node_of(claim: &VolumeClaim) -> Option<&str> {
    let granted = claim.spec.assignment.as_ref().map(|assignment| assignment.node_name.as_str());
    granted.or(claim.spec.node_name.as_deref())
}
