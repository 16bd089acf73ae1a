//! `PluginInstance`: one plugin process at one place, as its agent sees it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::caller::is_first;
use super::conditions::{Condition, READY, Reason, UNDONE, find, find_as};
use super::storage::StorageReport;

/// One plugin process at one place. Written by the agent beside it.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "moor.dev",
    version = "v1alpha1",
    kind = "PluginInstance",
    plural = "plugininstances",
    shortname = "pi",
    category = "moor",
    status = "PluginInstanceStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "One plugin process at one place, as the agent beside it sees it.",
    selectable = ".spec.agent",
    printcolumn = r#"{"name":"Plugin","type":"string","jsonPath":".spec.pluginName"}"#,
    printcolumn = r#"{"name":"Node","type":"string","jsonPath":".spec.nodeName"}"#,
    printcolumn = r#"{"name":"Healthy","type":"boolean","jsonPath":".status.healthy"}"#,
    printcolumn = r#"{"name":"Controller","type":"boolean","jsonPath":".status.controller"}"#,
    printcolumn = r#"{"name":"NodeSvc","type":"boolean","jsonPath":".status.node"}"#,
    printcolumn = r#"{"name":"Node ID","type":"string","jsonPath":".status.nodeID"}"#,
    printcolumn = r#"{"name":"Version","type":"string","jsonPath":".status.version"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Last Error","type":"string","jsonPath":".status.lastError","priority":1}"#,
    validation = Rule::new("self.spec.pluginName == oldSelf.spec.pluginName && self.spec.driverName == oldSelf.spec.driverName && self.spec.nodeName == oldSelf.spec.nodeName && self.spec.nodeUID == oldSelf.spec.nodeUID && self.spec.agent == oldSelf.spec.agent && self.spec.socketPath == oldSelf.spec.socketPath").message("spec says which process this is: it cannot change").field_path(".spec"),
    validation = Rule::new("!has(oldSelf.spec.tenure) || (has(self.spec.tenure) && self.spec.tenure >= oldSelf.spec.tenure)").message("spec.tenure only grows: leave it as it is").field_path(".spec.tenure")
)]
#[serde(rename_all = "camelCase")]
pub struct PluginInstanceSpec {
    /// Name of the Plugin it serves.
    #[schemars(schema_with = "super::schema::object_name")]
    pub plugin_name: String,
    /// Driver name as GetPluginInfo gives it.
    #[schemars(length(max = 63))]
    pub driver_name: String,
    /// Node on which it runs.
    #[schemars(schema_with = "super::schema::object_name")]
    pub node_name: String,
    /// UID of that Node.
    #[serde(rename = "nodeUID")]
    #[schemars(length(max = 63))]
    pub node_uid: String,
    /// Agent that speaks to it and whose Lease vouches for it: its node's name.
    #[schemars(length(max = 253))]
    pub agent: String,
    /// Socket on the node; of two processes that of one of them.
    #[schemars(length(max = 4096))]
    pub socket_path: String,
    /// Which questions after room its driver is asked (CSI GetCapacity), by the name of the CSIStorageCapacity object that
    /// tells the scheduler the answer. Written by the moor controller.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = MAX_CAPACITIES))]
    pub capacity_requests: BTreeMap<String, CapacityRequest>,
    /// The tenure that it is in: a number that grows each time that it is relieved of the volumes whose controller calls it
    /// makes. Those that it was given in an earlier tenure it makes no more. Written by the moor controller.
    #[serde(default, skip_serializing_if = "is_first")]
    #[schemars(range(min = 0))]
    pub tenure: i64,
}

/// A question after the room that there is for volumes of one StorageClass in one place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapacityRequest {
    /// Name of the StorageClass.
    #[schemars(length(max = 253))]
    pub storage_class_name: String,
    /// The file system that the class names, if it names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub fs_type: Option<String>,
    /// The class's parameters for the driver.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "super::schema::string_map")]
    pub parameters: BTreeMap<String, String>,
    /// The place, in the driver's own terms.
    #[schemars(schema_with = "super::schema::string_map")]
    pub segments: BTreeMap<String, String>,
}

/// What the agent last saw.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PluginInstanceStatus {
    /// It answers Probe and its capabilities are known, of two processes both do, and its agent can record mounts. False
    /// stops new assignments and nothing else.
    #[serde(default)]
    pub healthy: bool,
    /// Its process is proven dead: no socket, or nobody accepts on it. Of two processes both are.
    #[serde(default)]
    pub gone: bool,
    /// It serves the CSI Controller service.
    #[serde(default)]
    pub controller: bool,
    /// It serves the CSI Node service.
    #[serde(default)]
    pub node: bool,
    /// The node as the driver knows it (NodeGetInfo).
    #[serde(default, rename = "nodeID", skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub node_id: String,
    /// How many volumes the node takes; 0 means the driver does not say.
    #[serde(default)]
    pub max_volumes: i64,
    /// Where the node is, in the driver's own terms.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "super::schema::string_map")]
    pub topology: BTreeMap<String, String>,
    /// Version as GetPluginInfo gives it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub version: String,
    /// What it can do.
    #[serde(default)]
    pub capabilities: Capabilities,
    /// Where its services are, if a controller process and a node process share them, or if one process can be given
    /// new work for one of them only. Else empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    pub services: Vec<ServiceStatus>,
    /// Boot of the node in which it was seen.
    #[serde(default, rename = "bootID", skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub boot_id: String,
    /// UID of the agent Pod that wrote this; empty outside a Pod.
    #[serde(default, rename = "writerUID", skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub writer_uid: String,
    /// Mounts on the node that the API server does not account for. Their volumes are granted on no other node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub forgotten: Vec<ForgottenMount>,
    /// Names of the VolumeHandles of further such mounts, for which there is no room in forgotten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::schema::handle_names")]
    pub forgotten_handles: Vec<String>,
    /// What the driver has answered to spec.capacityRequests, by the same names. An answer stays until there is another one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = MAX_CAPACITIES))]
    pub capacities: BTreeMap<String, Capacity>,
    /// Of calls that it was given in an earlier tenure than this none is running, and none will be made.
    #[serde(default, skip_serializing_if = "is_first")]
    #[schemars(range(min = 0))]
    pub tenure: i64,
    /// Where the driver's storage and the objects do not have each other. Absent where the driver is not asked to list them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageReport>,
    /// How kubelet is served on the node; absent where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<KubeletStatus>,
    /// Why it is not healthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub last_error: Option<String>,
    /// The generation of spec that this status answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready: healthy. Undone: what is to be undone on the node and has no claim that could say what it waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::schema::conditions")]
    pub conditions: Vec<Condition>,
}

impl PluginInstance {
    /// What it was given in an earlier tenure than this it calls no more. Its agent has no say in tenures that have not begun.
    #[must_use]
    pub fn relieved(&self) -> i64 {
        self.status.as_ref().map_or(0, |status| status.tenure.min(self.spec.tenure))
    }
}

impl PluginInstanceStatus {
    /// Whether new work for one of its services may be given to it.
    #[must_use]
    pub fn is_healthy_for(&self, service: Service) -> bool {
        self.services.iter().find(|s| s.service == service).map_or(self.healthy, |s| s.healthy)
    }

    /// Whether its processes are proven dead, or the agent beside it has said that it ends.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.gone || self.agent_has_ended()
    }

    /// Whether the agent beside it has said that it ends.
    #[must_use]
    pub fn agent_has_ended(&self) -> bool {
        let ready = find(&self.conditions, READY);
        ready.is_some_and(|ready| ready.reason == Reason::AgentShutdown.as_str())
    }

    /// Whether the process of one of its services is proven dead.
    #[must_use]
    pub fn is_gone_for(&self, service: Service) -> bool {
        self.services.iter().find(|s| s.service == service).map_or(self.gone, |s| s.gone)
    }

    /// Whether its node reports nothing as mounted that no object accounts for, and waits to undo nothing.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let waits = find_as(&self.conditions, UNDONE, "False").is_some();
        self.forgotten.is_empty() && self.forgotten_handles.is_empty() && !waits
    }

    /// Whether its driver was asked and has no Controller service, so that no call of it is begun here. One that has it,
    /// where its Plugin does not want it used, goes on with what it was given.
    #[must_use]
    pub fn has_no_controller(&self) -> bool {
        let asked = self.node || self.is_healthy_for(Service::Controller);
        asked && !self.controller && self.capabilities.controller.is_empty()
    }

    /// Whether new work of any kind may be given to it.
    #[must_use]
    pub fn is_healthy_for_any(&self) -> bool {
        self.healthy || self.services.iter().any(|s| s.healthy)
    }
}

/// What a driver says of its room.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Capacity {
    /// How much there is, in bytes; absent as long as the driver has not said it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_capacity: Option<i64>,
    /// The largest volume that can be made, in bytes; absent if the driver does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum_volume_size: Option<i64>,
    /// What it answered last, if that was no size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub last_error: Option<String>,
}

/// How a kubelet is served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeletStatus {
    /// The name by which kubelet knows the driver.
    #[schemars(length(max = 63))]
    pub driver_name: String,
    /// Whether kubelet calls moor for volumes of that name.
    #[serde(default)]
    pub registered: bool,
    /// Why it does not, in its own words; absent as long as it has not decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub message: Option<String>,
}

/// A service for which a driver may have a process of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Service {
    /// The CSI Controller service.
    Controller,
    /// The CSI Node service.
    Node,
}

/// One of two processes that share a driver's services on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceStatus {
    /// What it serves.
    pub service: Service,
    /// Its socket on the node, where it was last seen.
    #[schemars(length(max = 4096))]
    pub socket_path: String,
    /// It answers Probe, and its agent can do its part. False stops new assignments to this service and nothing else.
    pub healthy: bool,
    /// It is proven dead: no socket, or nobody accepts on it.
    #[serde(default)]
    pub gone: bool,
}

/// Annotation on a PluginInstance: UID of the Attachment whose forgotten mounts its agent is to undo.
pub const UNDO_FORGOTTEN: &str = "moor.dev/undo-forgotten";
/// Annotation on a PluginInstance: UID of the Attachment whose mounts its agent is to undo by force, of which no claim is
/// left that could say so: it does not wait for who still uses them.
pub const FORCE_UNDO: &str = "moor.dev/force-undo";
/// Reason of a mount in `status.forgotten` that a node's record may tell of and that cannot be read: no reboot ends it.
pub const UNREADABLE: &str = "Unreadable";
/// Longest `status.forgotten`.
pub const MAX_FORGOTTEN: usize = 256;
/// Longest `status.forgottenHandles`.
pub const MAX_FORGOTTEN_HANDLES: usize = 2048;
/// Most volumes of a driver that an agent stages. As many mounts can be reported as forgotten, so that no report speaks
/// for a volume that it does not name; what is over is for records that cannot be read.
pub const MAX_STAGED: usize = MAX_FORGOTTEN_HANDLES;
/// Most questions after room that one instance is asked.
pub const MAX_CAPACITIES: usize = 1024;
/// Most claims that are named of one mount.
pub const MAX_CLAIMS: usize = 8;

/// A volume that is, or may be, mounted on the node, and for which the API server has no Attachment or no claim:
/// etcd was restored from a backup, or an object was removed by hand. It is not undone by itself. A reboot of the node
/// ends it, unless the reason is Unreadable, or the annotation moor.dev/undo-forgotten with the attachmentUID. If that
/// waits, the condition Undone says for what, and moor.dev/force-undo does not wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForgottenMount {
    /// Name of the VolumeHandle; empty if the node's record cannot be read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub handle_name: String,
    /// The volume as its driver knows it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub volume_handle: String,
    /// UID of the Attachment for which it was mounted.
    #[serde(rename = "attachmentUID")]
    #[schemars(length(max = 63))]
    pub attachment_uid: String,
    /// Claims for which it is mounted, as namespace/name; at most 8 are named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::schema::claim_names")]
    pub claims: Vec<String>,
    /// WentBack, LockRemoved or Unreadable.
    #[schemars(length(max = 63))]
    pub reason: String,
    /// Since when; absent if the node's record cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

/// Capabilities by CSI's own names, for example PUBLISH_UNPUBLISH_VOLUME. Unknown ones are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Capabilities {
    /// From GetPluginCapabilities.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub plugin: Vec<String>,
    /// From ControllerGetCapabilities.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub controller: Vec<String>,
    /// From GroupControllerGetCapabilities.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub group_controller: Vec<String>,
    /// From NodeGetCapabilities.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub node: Vec<String>,
}

impl Capabilities {
    /// The controller service lists this capability.
    #[must_use]
    pub fn controller_has(&self, name: &str) -> bool {
        self.controller.iter().any(|c| c == name)
    }

    /// The group controller service lists this capability.
    #[must_use]
    pub fn group_controller_has(&self, name: &str) -> bool {
        self.group_controller.iter().any(|c| c == name)
    }

    /// The driver attaches: its Controller service lists PUBLISH_UNPUBLISH_VOLUME.
    #[must_use]
    pub fn attaches(&self) -> bool {
        self.controller_has("PUBLISH_UNPUBLISH_VOLUME")
    }

    /// The node service lists this capability.
    #[must_use]
    pub fn node_has(&self, name: &str) -> bool {
        self.node.iter().any(|c| c == name)
    }

    /// Whether the driver says that volumes grow while nobody uses them, and does not say that they do while somebody does. Of a
    /// driver that says neither, as many do, it is found out.
    #[must_use]
    pub fn grows_only_unused(&self) -> bool {
        let says = |word: &str| self.plugin.iter().any(|c| c == word);
        says("VOLUME_EXPANSION_OFFLINE") && !says("VOLUME_EXPANSION_ONLINE")
    }
}
