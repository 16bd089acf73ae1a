//! `Volume`: storage that moor creates or that exists already.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use super::assignment::{CreatedWith, VolumeAssignment, VolumeOperation};
use super::attachment::VolumeRef;
use super::caller::ControllerRef;
use super::capability::{MountOptions, VolumeUse};
pub use super::change::{Expansion, ExpansionFailure, Modification};
use super::conditions::{CallFailure, Condition};
pub use super::edit::{Edit, EditAnswer, GrantedUse};
use super::export::{Export, Exported};
use super::health::VolumeFinding;
use super::provision::Provision;
use super::secrets::{SecretFor, SecretName, SecretRefs, chosen};
pub use super::source::{AssignedSource, VolumeSource};
pub use super::topology::{Binding, MAX_PLACES, Segments, TopologyRequest};

/// A volume of a CSI driver: one to be created (`capacity`) or one that exists (`volumeHandle`).
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "moor.dev",
    version = "v1alpha1",
    kind = "Volume",
    plural = "volumes",
    shortname = "vol",
    category = "moor",
    namespaced,
    status = "VolumeStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "A volume of a CSI driver: one to be created (capacity) or one that exists (volumeHandle).",
    selectable = ".spec.assignment.controller.agent",
    selectable = ".spec.assignment.source.uid",
    selectable = ".spec.assignment.source.snapshotHandle",
    printcolumn = r#"{"name":"Plugin","type":"string","jsonPath":".spec.pluginName"}"#,
    printcolumn = r#"{"name":"State","type":"string","jsonPath":".status.state"}"#,
    printcolumn = r#"{"name":"Capacity","type":"string","jsonPath":".status.capacity"}"#,
    printcolumn = r#"{"name":"Handle","type":"string","jsonPath":".status.volumeHandle"}"#,
    printcolumn = r#"{"name":"Why","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Schedulable","type":"string","jsonPath":".status.conditions[?(@.type==\"Schedulable\")].status","priority":1}"#,
    printcolumn = r#"{"name":"Drifted","type":"string","jsonPath":".status.conditions[?(@.type==\"Drifted\")].status","priority":1}"#,
    printcolumn = r#"{"name":"Healthy","type":"string","jsonPath":".status.conditions[?(@.type==\"Healthy\")].status","priority":1}"#,
    printcolumn = r#"{"name":"Expanded","type":"string","jsonPath":".status.conditions[?(@.type==\"Expanded\")].reason","priority":1}"#,
    printcolumn = r#"{"name":"PVC","type":"string","jsonPath":".spec.persistentVolume.claim.name","priority":1}"#,
    printcolumn = r#"{"name":"Exported As","type":"string","jsonPath":".status.export.persistentVolumeClaim","priority":1}"#,
    printcolumn = r#"{"name":"Message","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].message","priority":1}"#,
    validation = Rule::new("has(self.spec.volumeHandle) || has(self.spec.capacity)").message("set exactly one of spec.capacity (to create a volume) and spec.volumeHandle (to register one that exists)").field_path(".spec"),
    validation = Rule::new("oldSelf.hasValue() || !(has(self.spec.volumeHandle) && has(self.spec.capacity))").optional_old_self(true).message("set exactly one of spec.capacity (to create a volume) and spec.volumeHandle (to register one that exists)").field_path(".spec"),
    validation = Rule::new("!has(self.spec.volumeHandle) || (!has(self.spec.parameters) && !has(self.spec.topology) && !has(self.spec.capacityLimit) && !has(self.spec.createName) && !has(self.spec.source) && !has(self.spec.persistentVolume))").message("spec.parameters, spec.topology, spec.capacityLimit, spec.createName, spec.source and spec.persistentVolume are for creating a volume: remove them or remove spec.volumeHandle").field_path(".spec"),
    validation = Rule::new("!has(self.spec.volumeContext) || has(self.spec.volumeHandle)").message("spec.volumeContext is for registering an existing volume; a created one gets it from its driver").field_path(".spec.volumeContext"),
    validation = Rule::new("!has(self.spec.capacityLimit) || !has(self.spec.capacity) || !isQuantity(string(self.spec.capacity)) || !isQuantity(string(self.spec.capacityLimit)) || quantity(string(self.spec.capacity)).compareTo(quantity(string(self.spec.capacityLimit))) <= 0").message("spec.capacityLimit must not be below spec.capacity").field_path(".spec.capacityLimit"),
    validation = Rule::new("!has(self.spec.mountOptions) || self.spec.capabilities.exists(c, c.attachmentMode == 'FileSystem')").message("spec.mountOptions needs a capability with attachmentMode FileSystem: add one or remove mountOptions").field_path(".spec.mountOptions"),
    validation = Rule::new("!has(self.spec.persistentVolumeClaim) || !has(self.spec.persistentVolume)").message("spec.persistentVolumeClaim: this Volume was made for a PersistentVolumeClaim, and has no other: remove it").field_path(".spec.persistentVolumeClaim"),
    validation = Rule::new("!has(self.spec.persistentVolumeClaim) || self.spec.capabilities.exists(c, c.accessMode in ['SingleNodeWriter', 'SingleNodeSingleWriter', 'MultiNodeReader', 'MultiNodeMultiWriter'])").message("spec.persistentVolumeClaim needs a capability with an accessMode that Pods have (SingleNodeWriter, SingleNodeSingleWriter, MultiNodeReader or MultiNodeMultiWriter): create the Volume with one, or remove persistentVolumeClaim").field_path(".spec.persistentVolumeClaim"),
    validation = Rule::new("self.spec.pluginName == oldSelf.spec.pluginName").message("spec.pluginName is immutable: create another Volume").field_path(".spec.pluginName"),
    validation = Rule::new("has(self.spec.volumeHandle) == has(oldSelf.spec.volumeHandle) && (!has(self.spec.volumeHandle) || self.spec.volumeHandle == oldSelf.spec.volumeHandle)").message("spec.volumeHandle is immutable: create another Volume").field_path(".spec.volumeHandle"),
    validation = Rule::new("has(self.spec.capacityLimit) == has(oldSelf.spec.capacityLimit) && (!has(self.spec.capacityLimit) || string(self.spec.capacityLimit) == string(oldSelf.spec.capacityLimit))").message("spec.capacityLimit is immutable").field_path(".spec.capacityLimit"),
    validation = Rule::new("has(self.spec.capacity) || !has(oldSelf.spec.capacity)").message("spec.capacity cannot be taken away").field_path(".spec.capacity"),
    validation = Rule::new("!has(self.spec.capacity) || (has(oldSelf.spec.capacity) && string(self.spec.capacity) == string(oldSelf.spec.capacity)) || (has(self.status) && has(self.status.state) && self.status.state == 'Ready')").message("spec.capacity cannot be changed before the Volume is Ready: until then CreateVolume is repeated with identical arguments").field_path(".spec.capacity"),
    validation = Rule::new("!has(self.spec.capacity) || (has(oldSelf.spec.capacity) && string(self.spec.capacity) == string(oldSelf.spec.capacity)) || !has(self.status) || !has(self.status.capacityBytes) || !isQuantity(string(self.spec.capacity)) || quantity(string(self.spec.capacity)).asApproximateFloat() >= double(self.status.capacityBytes)").message("spec.capacity cannot be below status.capacityBytes, the size that the volume has: a volume only grows").field_path(".spec.capacity"),
    validation = Rule::new("has(self.spec.parameters) == has(oldSelf.spec.parameters) && (!has(self.spec.parameters) || self.spec.parameters == oldSelf.spec.parameters)").message("spec.parameters is immutable: CreateVolume is repeated with identical arguments").field_path(".spec.parameters"),
    validation = Rule::new("(has(self.spec.mutableParameters) == has(oldSelf.spec.mutableParameters) && (!has(self.spec.mutableParameters) || self.spec.mutableParameters == oldSelf.spec.mutableParameters)) || (has(self.status) && has(self.status.state) && self.status.state == 'Ready')").message("spec.mutableParameters cannot be changed before the Volume is Ready: until then CreateVolume is repeated with identical arguments").field_path(".spec.mutableParameters"),
    validation = Rule::new("has(self.spec.createName) == has(oldSelf.spec.createName) && (!has(self.spec.createName) || self.spec.createName == oldSelf.spec.createName)").message("spec.createName is immutable: CreateVolume is repeated with identical arguments").field_path(".spec.createName"),
    validation = Rule::new("!has(self.spec.source) || has(self.spec.source.volumeName) || has(self.spec.source.snapshotName)").message("set spec.source.volumeName (a copy of a Volume) or spec.source.snapshotName (what a Snapshot has kept; of a Snapshot of several Volumes both)").field_path(".spec.source"),
    validation = Rule::new("has(self.spec.source) == has(oldSelf.spec.source) && (!has(self.spec.source) || self.spec.source == oldSelf.spec.source)").message("spec.source is immutable: create another Volume").field_path(".spec.source"),
    validation = Rule::new("has(self.spec.persistentVolume) == has(oldSelf.spec.persistentVolume) && (!has(self.spec.persistentVolume) || self.spec.persistentVolume == oldSelf.spec.persistentVolume)").message("spec.persistentVolume is immutable: it says what was asked for").field_path(".spec.persistentVolume"),
    validation = Rule::new("has(self.spec.volumeContext) == has(oldSelf.spec.volumeContext) && (!has(self.spec.volumeContext) || self.spec.volumeContext == oldSelf.spec.volumeContext)").message("spec.volumeContext is immutable").field_path(".spec.volumeContext"),
    validation = Rule::new("!has(self.spec.binding) || self.spec.binding == 'Immediate' || has(self.spec.assignment) || !(has(self.spec.volumeHandle) || has(self.spec.persistentVolumeClaim))").message("spec.binding WaitForFirstClaim is for a volume that is made for a VolumeClaim: leave it out, or remove spec.volumeHandle and spec.persistentVolumeClaim, which can be added when the volume is made").field_path(".spec.binding"),
    validation = Rule::new("(has(self.spec.binding) && self.spec.binding == 'WaitForFirstClaim') == (has(oldSelf.spec.binding) && oldSelf.spec.binding == 'WaitForFirstClaim')").message("spec.binding is immutable: create another Volume").field_path(".spec.binding"),
    validation = Rule::new("has(self.spec.topology) == has(oldSelf.spec.topology) && (!has(self.spec.topology) || self.spec.topology == oldSelf.spec.topology)").message("spec.topology is immutable").field_path(".spec.topology"),
    validation = Rule::new("self.spec.capabilities == oldSelf.spec.capabilities || (has(oldSelf.spec.assignment) && has(oldSelf.spec.assignment.granted) && has(self.status) && has(self.status.state) && self.status.state == 'Ready')").message("spec.capabilities cannot be changed before the Volume is Ready and spec.assignment.granted is there: until then the driver is asked with identical arguments").field_path(".spec.capabilities"),
    validation = Rule::new("(has(self.spec.mountOptions) && has(self.spec.mountOptions.fsType) ? self.spec.mountOptions.fsType : '') == (has(oldSelf.spec.mountOptions) && has(oldSelf.spec.mountOptions.fsType) ? oldSelf.spec.mountOptions.fsType : '')").message("spec.mountOptions.fsType is immutable: it says how the volume was formatted").field_path(".spec.mountOptions.fsType"),
    validation = Rule::new("(has(self.spec.mountOptions) && has(self.spec.mountOptions.mountFlags) ? self.spec.mountOptions.mountFlags : []) == (has(oldSelf.spec.mountOptions) && has(oldSelf.spec.mountOptions.mountFlags) ? oldSelf.spec.mountOptions.mountFlags : []) || (has(oldSelf.spec.assignment) && has(oldSelf.spec.assignment.granted) && has(self.status) && has(self.status.state) && self.status.state == 'Ready')").message("spec.mountOptions.mountFlags cannot be changed before the Volume is Ready and spec.assignment.granted is there: until then the driver is asked with identical arguments").field_path(".spec.mountOptions.mountFlags"),
    validation = Rule::new("(has(self.spec.readOnly) && self.spec.readOnly) == (has(oldSelf.spec.readOnly) && oldSelf.spec.readOnly)").message("spec.readOnly is immutable: create another Volume").field_path(".spec.readOnly"),
    validation = Rule::new("!has(oldSelf.spec.assignment) || !has(self.spec.secrets) || !(has(self.spec.secrets.default) || has(self.spec.secrets.controller) || has(self.spec.secrets.controllerPublish) || has(self.spec.secrets.controllerExpand) || has(self.spec.secrets.controllerModify) || has(self.spec.secrets.snapshot) || has(self.spec.secrets.nodeStage) || has(self.spec.secrets.nodePublish) || has(self.spec.secrets.nodeExpand)) || (has(oldSelf.spec.secrets) && (has(oldSelf.spec.secrets.default) || has(oldSelf.spec.secrets.controller) || has(oldSelf.spec.secrets.controllerPublish) || has(oldSelf.spec.secrets.controllerExpand) || has(oldSelf.spec.secrets.controllerModify) || has(oldSelf.spec.secrets.snapshot) || has(oldSelf.spec.secrets.nodeStage) || has(oldSelf.spec.secrets.nodePublish) || has(oldSelf.spec.secrets.nodeExpand)))").message("spec.secrets cannot be added to a Volume that has been granted without: create another Volume with them").field_path(".spec.secrets"),
    validation = Rule::new("oldSelf.hasValue() || !has(self.spec.assignment)").optional_old_self(true).message("spec.assignment is written by the moor controller: remove it").field_path(".spec.assignment"),
    validation = Rule::new("!has(oldSelf.spec.assignment) || has(self.spec.assignment)").message("spec.assignment is the controller's and cannot be taken away: keep it when replacing the object, or use kubectl apply").field_path(".spec.assignment")
)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSpec {
    /// Name of the Plugin. May be created after the Volume.
    #[schemars(schema_with = "super::schema::object_name")]
    pub plugin_name: String,
    /// Register: the id of a volume that exists, as the driver knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::volume_handle")]
    pub volume_handle: Option<String>,
    /// Create: at least this size. Raised once the Volume is Ready, the volume is made larger. Until that is done it may be
    /// lowered again, not below the size that the volume has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::quantity")]
    pub capacity: Option<Quantity>,
    /// Create: at most this size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::quantity")]
    pub capacity_limit: Option<Quantity>,
    /// Create: the driver's own parameters. At most 4 KiB in all.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "super::schema::string_map")]
    pub parameters: BTreeMap<String, String>,
    /// The parameters that may be changed later (CSI mutable_parameters), as a VolumeAttributesClass has them. Changed once the
    /// Volume is Ready, the driver is asked for what they say then. What is taken out of them stays as it is in the storage. At
    /// most 4 KiB in all.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "super::schema::string_map")]
    pub mutable_parameters: BTreeMap<String, String>,
    /// Create: the name that CreateVolume is called with, by which a driver recognises a call that is repeated. Absent: one
    /// that no other Volume has. Written by the moor controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub create_name: Option<String>,
    /// Create: what the volume is made from, in this namespace. Absent: it is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Box<VolumeSource>>,
    /// Register: the volume's context as its driver gave it at creation.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "super::schema::string_map")]
    pub volume_context: BTreeMap<String, String>,
    /// The uses that claims may ask for. They may be changed once the Volume is Ready: what is added counts when the driver has
    /// confirmed it, and what is taken away no claim is granted any more.
    #[serde(default = "default_capabilities")]
    #[schemars(length(min = 1, max = 14))]
    pub capabilities: Vec<VolumeUse>,
    /// How the volume is staged; claims share it. mountFlags may be changed once the Volume is Ready, and count when it is
    /// staged next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount_options: Option<Box<MountOptions>>,
    /// Attach the volume without the right to write, where the driver can do that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// Secrets in this namespace for the driver's calls. For calls for which none is named those of the Plugin are taken. They may
    /// be changed, and not be added once the Volume is granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<Box<SecretRefs>>,
    /// Create: when the volume is made. With WaitForFirstClaim it is made where the first claim is that names it: on the node of
    /// that claim, or one that it could be placed on. It stays with that place.
    #[serde(default, skip_serializing_if = "Binding::is_immediate")]
    pub binding: Binding,
    /// Create: where the volume must or should be reachable from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<Box<TopologyRequest>>,
    /// What happens to the storage when this object is deleted.
    /// Unset: Delete for a created volume, Retain for a registered one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = super::schema::own_description)]
    pub deletion_policy: Option<DeletionPolicy>,
    /// Pods use the volume by a PersistentVolumeClaim of this name, which is made in this namespace once the Volume is Ready.
    /// Taken away, it goes when no Pod uses it any more, and the storage stays. Claims go on beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<Export>,
    /// Written by the moor controller: the PersistentVolume that is made of the volume, and for whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume: Option<Box<Provision>>,
    /// Written by the moor controller: the PersistentVolume at whose end the storage is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub reclaimed_for: Option<String>,
    /// Written by the moor controller: who makes this volume's own calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignment: Option<VolumeAssignment>,
}

fn default_capabilities() -> Vec<VolumeUse> {
    vec![VolumeUse::default()]
}

/// What happens to the storage when its Volume is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// DeleteVolume is called.
    Delete,
    /// The storage stays.
    Retain,
}

impl DeletionPolicy {
    /// By whether the storage goes.
    #[must_use]
    pub fn of(deletes: bool) -> Self {
        if deletes { Self::Delete } else { Self::Retain }
    }
}

/// Where a Volume is in its life.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum VolumeState {
    /// Not known to the driver yet, or not validated.
    #[default]
    Pending,
    /// The driver has it; its VolumeHandle is being made.
    Created,
    /// Claims are granted.
    Ready,
    /// The driver no longer has it, or is not asked to delete it any more.
    Deleted,
}

/// What moor says about a Volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeStatus {
    /// Where it is in its life.
    #[serde(default)]
    pub state: VolumeState,
    /// The volume id, as the driver knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub volume_handle: Option<String>,
    /// Of one that is being created: whether CreateVolume has been called, and no answer has said since that nothing was made.
    /// Absent: nobody has said it, so there may be a volume as soon as the call is assigned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub may_exist: Option<bool>,
    /// What the volume was to be made of was deleted, or gone, before CreateVolume was called, and it never is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub source_gone: bool,
    /// What CreateVolume made and nobody can use. It is deleted before anything else is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected: Option<Box<Rejected>>,
    /// The size of the storage, as a quantity. Where it is used it may have to follow: see the condition Expanded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<String>,
    /// The size of the storage in bytes: what the driver says, else what was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<i64>,
    /// How it was last made larger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expansion: Option<Expansion>,
    /// The size that could not be had last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expansion_failure: Option<Box<ExpansionFailure>>,
    /// The mutable parameters that the driver has taken last. Empty where it was asked for none, and while it is not known what
    /// it has: when it is being asked for others, or has refused others, which it may have followed in part.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "super::schema::string_map")]
    pub mutable_parameters: BTreeMap<String, String>,
    /// The mutable parameters that the driver is asked for, or has refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modification: Option<Box<Modification>>,
    /// What the driver has said of the last edit of capabilities and mount flags; absent where it was not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edit: Option<Box<EditAnswer>>,
    /// Context from its creation, opaque, handed to the driver unchanged.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "super::schema::string_map")]
    pub volume_context: BTreeMap<String, String>,
    /// Where it can be reached from; empty means everywhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accessible_topology: Vec<Segments>,
    /// Name of the PersistentVolume that was made of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub persistent_volume: Option<String>,
    /// What was made for spec.persistentVolumeClaim, or is being made or taken away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub export: Option<Box<Exported>>,
    /// UID of the Plugin with which it was made or validated: of another one NOT_FOUND does not mean deleted.
    #[serde(rename = "pluginUID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub plugin_uid: Option<String>,
    /// Name of its VolumeHandle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handle_name: Option<String>,
    /// What the driver last refused, while it has not succeeded since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<Box<CallFailure>>,
    /// How often the current step has failed in a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<i64>,
    /// When the current step is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_retry: Option<Time>,
    /// What is wrong with the volume, on the nodes that use it and by its driver's word. It is told, and nothing is done about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub health: Vec<VolumeFinding>,
    /// The generation of spec that this status answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready: claims are granted. Expanded: the volume has the size that spec.capacity asks for, also where VolumeClaims use it;
    /// absent if it never grew.
    /// Exported: Pods can use it by spec.persistentVolumeClaim; absent without that.
    /// Modified: the driver has taken spec.mutableParameters; absent if they never changed.
    /// Applied: claims get the volume as spec.capabilities and spec.mountOptions say; absent if they never changed.
    /// Healthy: nothing is wrong with the volume any more as far as anybody has looked; absent while nothing has been.
    #[serde(default, deserialize_with = "super::sparse::exact", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// A volume that CreateVolume made and nobody can use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rejected {
    /// Its id as the driver gave it.
    #[schemars(length(min = 1, max = 65536))]
    pub volume_handle: String,
    /// What is wrong with it.
    #[schemars(length(max = 1024))]
    pub reason: String,
    /// Written by the moor controller: no PersistentVolume stands for it, so DeleteVolume may be called.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_delete: bool,
}

impl Volume {
    /// Where its first claim is, if it is made there.
    #[must_use]
    pub fn place(&self) -> Option<&Segments> {
        self.spec.assignment.as_ref()?.place.as_ref()
    }

    /// Whether its place is that of its first claim, which is not chosen yet.
    #[must_use]
    pub fn is_to_be_placed(&self) -> bool {
        let is_late = !self.spec.binding.is_immediate() && self.spec.volume_handle.is_none();
        is_late && self.spec.assignment.is_none()
    }

    /// The reference by which objects name this Volume.
    #[must_use]
    pub fn reference(&self) -> VolumeRef {
        let meta = &self.metadata;
        VolumeRef {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
        }
    }

    /// The Secret of a call about it.
    #[must_use]
    pub fn secret(&self, call: SecretFor) -> Option<SecretName<'_>> {
        chosen(
            self.spec.secrets.as_deref(),
            self.spec.assignment.as_ref().map(|assignment| &*assignment.secrets),
            call,
        )
    }

    /// Where the Volume's status says that it is.
    #[must_use]
    pub fn state(&self) -> VolumeState {
        self.status.as_ref().map(|status| status.state).unwrap_or_default()
    }

    /// The controller instance that the Volume's own calls are assigned to.
    #[must_use]
    pub fn caller(&self) -> Option<&ControllerRef> {
        self.spec.assignment.as_ref()?.controller.as_ref()
    }

    /// Whether nothing was begun before what it was to be made of was deleted, and nothing will be.
    #[must_use]
    pub fn source_is_gone(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.source_gone)
    }

    /// What CreateVolume made and nobody can use, if there is something.
    #[must_use]
    pub fn rejected(&self) -> Option<&Rejected> {
        self.status.as_ref()?.rejected.as_deref()
    }
}

impl VolumeSpec {
    /// Whether DeleteVolume is called when the Volume is deleted.
    #[must_use]
    pub fn deletes_storage(&self) -> bool {
        match self.deletion_policy {
            Some(policy) => policy == DeletionPolicy::Delete,
            None => self.volume_handle.is_none(),
        }
    }
}
