//! Observe: everything that hangs on one Volume, from the caches. Reads only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::allow::{Refused, refused};
use super::caches::{BY_HANDLE, BY_OWNER, BY_VOLUME};
use super::capabilities::{attaches_read_only, capabilities_of, unprepared};
use super::controller_instances::controllers;
use super::forgotten::{Reporter, reports};
use super::instances::Instances;
use super::key::VolumeKey;
use super::known::Known;
use super::linger::Lingering;
use super::made_from::Copies;
use super::nodes::{cached_facts, is_silent};
use super::places::{nodes, wanted_nodes};
use super::pod_looks::{AskedVolume, PodsSeen};
use super::unused;
use crate::api::instance::{Capabilities, PluginInstanceStatus, Service};
use crate::api::names::handle_of_import;
use crate::api::plugin::{Balancing, Roles};
use crate::api::{
    Attachment, AttachmentUid, ClaimUid, Plugin, PluginInstance, Volume, VolumeClaim, VolumeHandle,
    VolumeState, lock,
};
use crate::attachment::loss::NodeFacts;
use crate::attachment::{AttachmentSeen, HandleSeen};
use crate::claim::{ClaimSeen, ForgottenSeen, NodeSeen, VolumeSeen};
use crate::k8s::Named;
use crate::leader::{Looked, Scene};
use crate::plugin::{self, older};
use crate::volume::{Grows, InstanceSeen, PluginSeen, SaidBy, driver_of_calls, handle_of, modifies};

/// One Volume with all that hangs on it.
pub(crate) struct Observed {
    pub(crate) key: VolumeKey,
    pub(crate) volume: Option<Arc<Volume>>,
    pub(crate) volume_seen: Option<VolumeSeen>,
    pub(crate) plugin: Option<Arc<Plugin>>,
    /// Name of an older Plugin that has the same driver, and so has it instead.
    pub(crate) older_plugin: Option<String>,
    /// The driver's name: that of the VolumeHandle, for as long as there is one, else the Plugin's.
    pub(crate) driver: String,
    /// The instances of the Plugin that count for this driver.
    pub(crate) instances: Arc<Instances>,
    /// The instances that serve the Controller service where the Plugin wants it.
    pub(crate) controlling: Vec<Arc<PluginInstance>>,
    /// The controller instances as decisions see them: all that could be chosen, or only those that are named where
    /// they are alive; and those that are named and gone, or not selected any more.
    pub(crate) controllers: Vec<InstanceSeen>,
    pub(crate) handle: Option<Arc<VolumeHandle>>,
    pub(crate) handle_seen: Option<HandleSeen>,
    /// The name that the VolumeHandle has or would have, once that is known.
    pub(crate) handle_name: Option<String>,
    /// What the Volume is made from, and what is being made of it.
    pub(crate) copies: Copies,
    /// Every claim that names the Volume.
    pub(crate) claims: Vec<Arc<VolumeClaim>>,
    pub(crate) claims_seen: Vec<ClaimSeen>,
    /// Attachments made for a Volume of this name.
    pub(crate) attachments: Vec<Arc<Attachment>>,
    pub(crate) attachments_seen: Vec<AttachmentSeen>,
    /// What is known of the nodes of the Attachments that are silent or declared lost, by UID of the Attachment.
    pub(crate) nodes_of: BTreeMap<AttachmentUid, NodeFacts>,
    /// Attachments of the handle, whoever they were made for: these lock it.
    pub(crate) locks_seen: Vec<AttachmentSeen>,
    /// Nodes that a claim could be placed on: all of the driver, or where each claim names its own, those.
    pub(crate) nodes: Vec<NodeSeen>,
    /// Mounts of the handle that nodes report and no Attachment stands for.
    pub(crate) forgotten: Vec<ForgottenSeen>,
    /// The Attachments that nobody uses.
    pub(crate) lingering: Lingering,
    /// Whether etcd may have been restored.
    pub(crate) cautious: bool,
    /// The driver of the instance that makes the Volume's own calls, if it is known.
    pub(crate) driver_of_calls: Option<String>,
    /// What the Volume and its claims ask for and their namespace may not have.
    pub(crate) refused: Refused,
    /// What a claim asks for.
    pub(crate) asked: AskedVolume,
    /// What was found of the Pods of claims that need one.
    pub(crate) pods: PodsSeen,
    /// The name of the driver at kubelets, if moor keeps the Volume for PersistentVolumes of that name.
    pub(crate) kept_as: Option<String>,
    /// Agents that report a mount of the handle from a node that is gone or off, as far as the caches know.
    pub(crate) ended: BTreeSet<Reporter>,
}

impl Observed {
    /// The attributes with which the Volume was made of a PersistentVolume, unless it is on its way out.
    pub(crate) fn imported_with(&self) -> Option<&BTreeMap<String, String>> {
        let volume = self.volume.as_ref().filter(|_| self.kept_as.is_some())?;
        volume.metadata.deletion_timestamp.is_none().then_some(&volume.spec.volume_context)
    }

    /// Whether moor keeps the Volume for PersistentVolumes, in its own namespace.
    pub(crate) fn is_for_persistent(&self, own_namespace: &str) -> bool {
        let is_made = |volume: &Arc<Volume>| volume.spec.persistent_volume.is_some();
        self.key.namespace == own_namespace
            && (handle_of_import(&self.key.name).is_some() || self.volume.as_ref().is_some_and(is_made))
    }

    /// UID of the PersistentVolume by which the Volume is exported.
    pub(crate) fn exported_as(&self) -> Option<&str> {
        let status = self.volume.as_ref()?.status.as_ref()?;
        status.export.as_ref()?.persistent_volume_uid.as_deref()
    }

    /// The claim with this UID.
    pub(crate) fn claim(&self, uid: &ClaimUid) -> Option<&Arc<VolumeClaim>> {
        self.claims.iter().find(|c| c.metadata.uid.as_deref() == Some(&**uid))
    }

    /// The Attachment with this UID, of those that were made for a Volume of this name.
    pub(crate) fn attachment(&self, uid: &AttachmentUid) -> Option<&Arc<Attachment>> {
        self.attachments.iter().find(|a| a.metadata.uid.as_deref() == Some(&**uid))
    }

    /// Each claim, as decisions see it and as it is.
    pub(crate) fn each_claim(&self) -> impl Iterator<Item = (&ClaimSeen, &Arc<VolumeClaim>)> {
        self.claims_seen.iter().zip(&self.claims)
    }

    /// The Attachment that a claim uses, of those that were made for a Volume of this name.
    pub(crate) fn used_by(&self, claim: &ClaimSeen) -> Option<(&AttachmentSeen, &Arc<Attachment>)> {
        let mut all = self.attachments_seen.iter().zip(&self.attachments);
        all.find(|(seen, _)| claim.uses() == Some(&seen.uid))
    }

    /// What the plan looks at.
    pub(crate) fn scene<'a>(&'a self, looked: &'a Looked) -> Scene<'a> {
        let called = self.volume.as_ref().is_some_and(|v| v.caller().is_some());
        Scene {
            name: &self.key.name,
            volume: self.volume.as_deref(),
            volume_seen: self.volume_seen.as_ref(),
            plugin: plugin_seen(
                self.plugin.as_deref(),
                self.older_plugin.as_deref(),
                &self.instances,
                &self.controlling,
                &self.controllers,
                called,
            ),
            driver: &self.driver,
            driver_of_calls: self.driver_of_calls.as_deref(),
            handle: self.handle_seen.as_ref(),
            source: self.copies.source.seen(&self.driver),
            copied_by: self.copies.made_of.as_deref(),
            claims: &self.claims_seen,
            attachments: &self.attachments_seen,
            nodes_of: &self.nodes_of,
            locks: &self.locks_seen,
            nodes: &self.nodes,
            forgotten: &self.forgotten,
            ended_reports: !self.ended.is_empty(),
            volume_not_allowed: self.refused.volume.as_ref(),
            claims_not_allowed: &self.refused.claims,
            unused: &self.lingering.unused,
            pods: &self.pods.known,
            pods_overdue: &self.pods.overdue,
            kept_as: self.kept_as.as_deref(),
            cautious: self.cautious,
            looked,
        }
    }

    /// The instance that serves the Node service on this node.
    pub(crate) fn node_instance(&self, node: &str) -> Option<&Arc<PluginInstance>> {
        let serves = |i: &&Arc<PluginInstance>| i.status.as_ref().is_some_and(|s| s.node);
        self.instances.on(node).find(serves)
    }
}

/// A Plugin and its instances, as decisions see them. `called` is whether the driver has a Controller service that made or took
/// what is decided about.
pub(crate) fn plugin_seen<'a>(
    plugin: Option<&'a Plugin>,
    older: Option<&'a str>,
    instances: &Instances,
    controlling: &[Arc<PluginInstance>],
    controllers: &'a [InstanceSeen],
    called: bool,
) -> PluginSeen<'a> {
    let statuses = || instances.iter().filter_map(|i| i.status.as_ref());
    PluginSeen {
        balancing: plugin.map(Plugin::balancing),
        is_local: plugin.is_some_and(|p| p.spec.balancing == Some(Balancing::PerTopology)),
        active: plugin.and_then(Plugin::active),
        ends: plugin.is_some_and(Plugin::ends),
        older,
        controllers,
        controllers_said: plugin.and_then(|plugin| controllers_said(plugin, instances)),
        any_healthy: statuses().any(PluginInstanceStatus::is_healthy_for_any),
        can_create: controlling.iter().filter_map(|i| i.status.as_ref()).any(|s| {
            s.is_healthy_for(Service::Controller) && s.capabilities.controller_has("CREATE_DELETE_VOLUME")
        }),
        attaches: attaches(controlling),
        grows: Grows::of(statuses(), called),
        modifies: modifies(statuses(), called),
        secrets: plugin.and_then(|p| p.spec.secrets.as_ref()),
    }
}

fn controllers_said(plugin: &Plugin, instances: &Instances) -> Option<SaidBy> {
    let spec = &plugin.spec;
    let mut statuses = instances.iter().filter_map(|i| i.status.as_ref());
    match (&spec.controller_nodes, &spec.controller) {
        (Some(_), _) => return Some(SaidBy::Plugin),
        (None, Some(_)) => return Some(SaidBy::Pods),
        (None, None) => {}
    }
    let says =
        |status: &PluginInstanceStatus| status.capabilities.plugin.iter().any(|c| c == "CONTROLLER_SERVICE");
    (spec.roles != Roles::Node && statuses.any(says)).then_some(SaidBy::Driver)
}

/// Whether a controller instance has said that its driver attaches.
fn attaches(controlling: &[Arc<PluginInstance>]) -> bool {
    controlling.iter().filter_map(|i| capabilities_of(i)).any(Capabilities::attaches)
}

/// Whether the Plugin wants controller calls to be made by the driver beside this instance.
pub(crate) fn is_selected(known: &Known, plugin: &Plugin, instance: &PluginInstance) -> bool {
    // Most Plugins select nothing, and then no Node is looked up.
    if plugin.spec.controller_nodes.is_none() {
        return true;
    }
    let name = &instance.spec.node_name;
    let node = known.nodes.get(name).filter(|node| node.uid() == instance.spec.node_uid);
    plugin::may_control(plugin, name, node.as_ref().and_then(|node| node.metadata.labels.as_ref()))
}

/// The VolumeHandle that says it is this Volume's: it alone is the lock. A status can be lost or edited, and what it says
/// then must neither hide the lock nor point at another's.
fn own_handle(known: &Known, volume_uid: Option<&str>) -> Option<Arc<VolumeHandle>> {
    known.handles.by_index(BY_OWNER, volume_uid?).into_iter().next()
}

/// The Volume as it says itself, with nothing of its Plugin and its instances.
fn volume_seen(volume: &Volume, driver: &str, handle: Option<&str>) -> VolumeSeen {
    VolumeSeen {
        uid: volume.metadata.uid.clone().unwrap_or_default(),
        deleted: volume.metadata.deletion_timestamp.is_some(),
        ready: volume.state() == VolumeState::Ready,
        driver: driver.to_owned(),
        handle: handle.unwrap_or_default().to_owned(),
        uses: volume.uses(),
        mount_flags: volume.mount_flags().to_vec(),
        unprepared: None,
        attaches_read_only: false,
        read_only: volume.spec.read_only,
        is_to_be_placed: volume.is_to_be_placed(),
        tolerates_second_target: None,
    }
}

pub(crate) fn observe(known: &Known, key: &VolumeKey) -> Observed {
    let volume = known.volumes.get_in(Named { namespace: &key.namespace, name: &key.name });
    let mut claims = known.claims.by_index(BY_VOLUME, &key.to_string());
    claims.retain(|claim| !claim.is_let_go());
    let attachments = known.attachments.by_index(BY_VOLUME, &key.to_string());
    // A Volume that was removed by hand: what was made for it says what its undo needs.
    let left = attachments.first().filter(|_| volume.is_none());
    let plugin_name = volume.as_ref().map(|v| v.spec.plugin_name.as_str());
    let plugin_name = plugin_name.or_else(|| left.map(|a| a.spec.fixed.plugin_name.as_str()));
    let plugin = plugin_name.and_then(|name| known.plugins.get(name));
    let recorded = match &volume {
        Some(volume) => own_handle(known, volume.metadata.uid.as_deref()),
        None => own_handle(known, left.map(|a| a.spec.volume.uid.as_str())),
    };
    let id = recorded.as_ref().map(|h| h.spec.volume_handle.clone());
    let id = id.or_else(|| volume.as_deref().and_then(handle_of).map(str::to_owned));
    // Of a Plugin that is gone, or was made anew for another driver, only what was made before knows whose volume it is.
    // No PluginInstance is asked: each of them could say something else.
    let driver = recorded.as_ref().map(|h| h.spec.driver_name.clone());
    let driver = driver.or_else(|| left.map(|a| a.spec.fixed.driver_name.clone()));
    let driver = driver.or_else(|| plugin.as_ref().map(|p| p.driver_name().to_owned())).unwrap_or_default();
    let instances =
        plugin_name.map(|name| known.by_plugin.of(&known.instances, name, &driver)).unwrap_or_default();
    // Not remembered with them: it goes by Nodes and the Plugin too.
    let controls =
        |i: &&Arc<PluginInstance>| plugin.as_ref().is_none_or(|plugin| is_selected(known, plugin, i));
    let controlling: Vec<_> = instances.serving().filter(controls).cloned().collect();
    let handle_name =
        id.as_ref().map(|id| lock::handle_name(lock::DriverVolume { driver: &driver, handle: id }));
    let handle = recorded.or_else(|| handle_name.as_ref().and_then(|n| known.handles.get(n)));
    let locks = handle_name.as_ref().map(|n| known.attachments.by_index(BY_HANDLE, n)).unwrap_or_default();

    let claims_seen: Vec<ClaimSeen> = claims.iter().map(|c| ClaimSeen::of(c)).collect();
    let wanted = wanted_nodes(&claims_seen, &locks);
    let of_attachments = locks.iter().chain(&attachments).filter_map(|a| a.spec.controller.as_ref());
    let of_handle = handle.as_ref().and_then(|h| h.spec.controller.as_ref());
    let of_volume = volume.as_ref().and_then(|v| v.caller());
    let named: Vec<_> = of_volume.into_iter().chain(of_handle).chain(of_attachments).collect();
    let is_assigned = volume.is_none() || of_volume.is_some();
    let volume_seen = volume.as_deref().map(|v| VolumeSeen {
        unprepared: unprepared(&v.spec.plugin_name, plugin.as_deref(), handle.as_deref(), &instances),
        attaches_read_only: attaches_read_only(handle.as_deref(), &instances),
        tolerates_second_target: plugin.as_ref().and_then(|p| p.spec.tolerates_second_target),
        ..volume_seen(v, &driver, id.as_deref())
    });
    let caller = of_volume.and_then(|c| known.instances.get(&c.instance));
    let drivers =
        std::iter::once(driver.as_str()).chain(caller.as_ref().map(|i| i.spec.driver_name.as_str()));
    let driver_of_calls = volume.as_deref().and_then(|v| driver_of_calls(v, drivers)).map(str::to_owned);
    let rejected = volume.as_deref().and_then(|v| rejected_name(v, driver_of_calls.as_deref()?));
    let reported = handle_name.as_ref().or(rejected.as_ref());
    let reported = reported.map(|name| reports(known, &instances, name)).unwrap_or_default();
    let kept_as = kept_as(known, key, plugin.as_deref(), handle_name.as_deref());
    let asked = AskedVolume::of(&key.name, volume.as_deref(), handle_name.as_deref());
    let attachments_seen: Vec<_> = attachments.iter().map(|a| AttachmentSeen::of(a)).collect();
    let storage = (driver.as_str(), handle_name.as_deref());
    let selected = claims_seen.iter().any(|claim| !claim.node_selector.is_empty());
    let nodes = nodes(known, volume.as_deref(), storage, &instances, wanted.as_ref(), &locks, selected);
    Observed {
        copies: Copies::observe(known, key, volume.as_deref(), &instances),
        lingering: unused::observe(known, key, (&attachments_seen, &claims_seen), &nodes),
        pods: known.pods.seen(&claims_seen, &asked),
        asked,
        cautious: known.caution.is_on(),
        driver_of_calls,
        key: key.clone(),
        refused: refused(
            known,
            &key.namespace,
            plugin.as_deref(),
            volume.as_deref(),
            &claims,
            kept_as.is_some(),
        ),
        kept_as,
        nodes,
        controllers: controllers(known, &instances, &controlling, &named, is_assigned),
        forgotten: reported.mounts.into_values().collect(),
        ended: reported.ended,
        driver,
        volume,
        volume_seen,
        older_plugin: plugin.as_ref().and_then(|p| older(p, &known.plugins.all())),
        plugin,
        instances,
        controlling,
        handle_seen: handle.as_deref().map(HandleSeen::of),
        handle,
        handle_name,
        claims_seen,
        claims,
        attachments_seen,
        nodes_of: attachments
            .iter()
            .filter(|a| a.spec.lost.is_some() || is_silent(known, a))
            .map(|a| (AttachmentUid::of(&a.metadata), cached_facts(known, a)))
            .collect(),
        attachments,
        locks_seen: locks.iter().map(|a| AttachmentSeen::of(a)).collect(),
    }
}

/// The name of the driver at kubelets, for a Volume that moor has made of a PersistentVolume: in its own namespace, where
/// nobody else makes one of that name.
fn kept_as(
    known: &Known,
    key: &VolumeKey,
    plugin: Option<&Plugin>,
    handle_name: Option<&str>,
) -> Option<String> {
    let is_import = key.namespace == known.namespace && handle_of_import(&key.name)? == handle_name?;
    plugin?.kubelet_name().filter(|_| is_import).map(str::to_owned)
}

/// The name of a VolumeHandle of what CreateVolume made and nobody can use: by that it would be reported as mounted, and
/// deleted.
fn rejected_name(volume: &Volume, driver: &str) -> Option<String> {
    Some(lock::handle_name(lock::DriverVolume { driver, handle: &volume.rejected()?.volume_handle }))
}
