//! What a leader has observed, owned, so that tests and models can build it.

use std::collections::BTreeMap;
use std::time::Duration;

use moor::api::caller::ControllerRef;
use moor::api::plugin::Balancing;
use moor::api::{AttachmentUid, ClaimUid, Volume};
use moor::attachment::closing::Unused;
use moor::attachment::loss::NodeFacts;
use moor::attachment::{AttachmentSeen, HandleSeen};
use moor::claim::{ClaimSeen, Entitled, ForgottenSeen, NodeSeen, VolumeSeen};
use moor::leader::{Looked, Plan, Scene, plan};
use moor::volume::{Grows, InstanceSeen, PluginSeen, SourceSeen, driver_of_calls};

use super::fixtures::DRIVER;

/// A Volume with all that hangs on it. The default is nothing, of a Plugin that exists and whose driver attaches.
#[derive(Clone, Debug)]
pub struct Observed {
    pub volume: Option<Volume>,
    pub volume_seen: Option<VolumeSeen>,
    pub plugin: Option<Balancing>,
    pub active: Option<ControllerRef>,
    pub driver: &'static str,
    pub driver_of_caller: Option<&'static str>,
    pub instances: Vec<InstanceSeen>,
    pub can_create: bool,
    pub attaches: bool,
    pub grows: Option<Grows>,
    pub modifies: Option<bool>,
    pub handle: Option<HandleSeen>,
    pub copied_by: Option<String>,
    pub claims: Vec<ClaimSeen>,
    pub attachments: Vec<AttachmentSeen>,
    pub nodes_of: BTreeMap<AttachmentUid, NodeFacts>,
    pub locks: Vec<AttachmentSeen>,
    pub nodes: Vec<NodeSeen>,
    pub forgotten: Vec<ForgottenSeen>,
    pub ended_reports: bool,
    pub unused: BTreeMap<AttachmentUid, Unused>,
    pub cautious: bool,
    pub pods: BTreeMap<ClaimUid, Entitled>,
    pub pods_overdue: BTreeMap<ClaimUid, Duration>,
    pub kept_as: Option<&'static str>,
}

impl Default for Observed {
    fn default() -> Self {
        Self {
            volume: None,
            volume_seen: None,
            plugin: Some(Balancing::Spread),
            active: None,
            driver: DRIVER,
            driver_of_caller: None,
            instances: Vec::new(),
            can_create: true,
            attaches: true,
            grows: None,
            modifies: None,
            handle: None,
            copied_by: None,
            claims: Vec::new(),
            attachments: Vec::new(),
            nodes_of: BTreeMap::new(),
            locks: Vec::new(),
            nodes: Vec::new(),
            forgotten: Vec::new(),
            ended_reports: false,
            unused: BTreeMap::new(),
            cautious: false,
            pods: BTreeMap::new(),
            pods_overdue: BTreeMap::new(),
            kept_as: None,
        }
    }
}

impl Observed {
    pub fn plan(&self, looked: &Looked) -> Plan {
        let scene = self.scene(looked);
        plan(&scene, &scene.verdicts())
    }

    pub fn scene<'a>(&'a self, looked: &'a Looked) -> Scene<'a> {
        Scene {
            name: "volume",
            volume: self.volume.as_ref(),
            volume_seen: self.volume_seen.as_ref(),
            plugin: PluginSeen {
                balancing: self.plugin,
                is_local: self.plugin == Some(Balancing::PerTopology),
                active: self.active.as_ref(),
                ends: false,
                older: None,
                controllers: &self.instances,
                controllers_said: None,
                any_healthy: true,
                can_create: self.can_create,
                attaches: self.attaches,
                grows: self.grows,
                modifies: self.modifies,
                secrets: None,
            },
            driver: self.driver,
            driver_of_calls: self.volume.as_ref().and_then(|volume| {
                driver_of_calls(volume, std::iter::once(self.driver).chain(self.driver_of_caller))
            }),
            handle: self.handle.as_ref(),
            source: SourceSeen::Nothing,
            copied_by: self.copied_by.as_deref(),
            claims: &self.claims,
            attachments: &self.attachments,
            nodes_of: &self.nodes_of,
            locks: &self.locks,
            nodes: &self.nodes,
            forgotten: &self.forgotten,
            ended_reports: self.ended_reports,
            volume_not_allowed: None,
            claims_not_allowed: &[],
            unused: &self.unused,
            cautious: self.cautious,
            pods: &self.pods,
            pods_overdue: &self.pods_overdue,
            kept_as: self.kept_as,
            looked,
        }
    }
}
