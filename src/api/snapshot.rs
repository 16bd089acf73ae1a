//! `Snapshot`: what a volume held at one moment, kept by its driver.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::caller::ControllerRef;
use super::conditions::{CallFailure, Condition};
use super::secrets::SecretName;
pub use super::snapshot_assignment::{SnapshotAssignment, SnapshotMember, SnapshotOperation, SnapshotVolume};
use super::volume::DeletionPolicy;

/// What a volume held at one moment: a snapshot to be taken (`volumeName`) or one that exists (`snapshotHandle`).
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "moor.dev",
    version = "v1alpha1",
    kind = "Snapshot",
    plural = "snapshots",
    category = "moor",
    namespaced,
    status = "SnapshotStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "What a volume held at one moment: a snapshot to be taken (volumeName) or one that exists (snapshotHandle).",
    selectable = ".spec.assignment.controller.agent",
    selectable = ".spec.volumeName",
    selectable = ".spec.assignment.volume.uid",
    selectable = ".spec.assignment.snapshotHandle",
    selectable = ".spec.assignment.isGroup",
    printcolumn = r#"{"name":"Volume","type":"string","jsonPath":".spec['volumeName','volumeNames']"}"#,
    printcolumn = r#"{"name":"Plugin","type":"string","jsonPath":".spec.assignment.pluginName"}"#,
    printcolumn = r#"{"name":"State","type":"string","jsonPath":".status.state"}"#,
    printcolumn = r#"{"name":"Restore Size","type":"string","jsonPath":".status.restoreSize"}"#,
    printcolumn = r#"{"name":"Handle","type":"string","jsonPath":".status.snapshotHandle"}"#,
    printcolumn = r#"{"name":"Why","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Taken","type":"date","jsonPath":".status.creationTime"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Message","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].message","priority":1}"#,
    validation = Rule::new("[has(self.spec.volumeName), has(self.spec.volumeNames), has(self.spec.snapshotHandle)].filter(is, is).size() == 1").message("set exactly one of spec.volumeName (to take a snapshot), spec.volumeNames (to take one of each of several Volumes, at one moment) and spec.snapshotHandle (to register one that exists)").field_path(".spec"),
    validation = Rule::new("!has(self.spec.memberHandles) || has(self.spec.snapshotHandle)").message("spec.memberHandles goes with spec.snapshotHandle: they are the members of the group that is registered").field_path(".spec.memberHandles"),
    validation = Rule::new("has(self.spec.snapshotHandle) == has(self.spec.pluginName)").message("spec.pluginName goes with spec.snapshotHandle, and with it alone: a snapshot that is taken is of its Volume's Plugin").field_path(".spec.pluginName"),
    validation = Rule::new("!has(self.spec.snapshotHandle) || (!has(self.spec.parameters) && !has(self.spec.createName))").message("spec.parameters and spec.createName are for taking a snapshot: remove them or remove spec.snapshotHandle").field_path(".spec"),
    validation = Rule::new("has(self.spec.volumeName) == has(oldSelf.spec.volumeName) && (!has(self.spec.volumeName) || self.spec.volumeName == oldSelf.spec.volumeName)").message("spec.volumeName is immutable: create another Snapshot").field_path(".spec.volumeName"),
    validation = Rule::new("has(self.spec.volumeNames) == has(oldSelf.spec.volumeNames) && (!has(self.spec.volumeNames) || self.spec.volumeNames == oldSelf.spec.volumeNames)").message("spec.volumeNames is immutable: create another Snapshot").field_path(".spec.volumeNames"),
    validation = Rule::new("has(self.spec.memberHandles) == has(oldSelf.spec.memberHandles) && (!has(self.spec.memberHandles) || self.spec.memberHandles == oldSelf.spec.memberHandles)").message("spec.memberHandles is immutable: create another Snapshot").field_path(".spec.memberHandles"),
    validation = Rule::new("has(self.spec.snapshotHandle) == has(oldSelf.spec.snapshotHandle) && (!has(self.spec.snapshotHandle) || self.spec.snapshotHandle == oldSelf.spec.snapshotHandle)").message("spec.snapshotHandle is immutable: create another Snapshot").field_path(".spec.snapshotHandle"),
    validation = Rule::new("has(self.spec.pluginName) == has(oldSelf.spec.pluginName) && (!has(self.spec.pluginName) || self.spec.pluginName == oldSelf.spec.pluginName)").message("spec.pluginName is immutable: create another Snapshot").field_path(".spec.pluginName"),
    validation = Rule::new("has(self.spec.parameters) == has(oldSelf.spec.parameters) && (!has(self.spec.parameters) || self.spec.parameters == oldSelf.spec.parameters)").message("spec.parameters is immutable: CreateSnapshot is repeated with identical arguments").field_path(".spec.parameters"),
    validation = Rule::new("has(self.spec.createName) == has(oldSelf.spec.createName) && (!has(self.spec.createName) || self.spec.createName == oldSelf.spec.createName)").message("spec.createName is immutable: CreateSnapshot is repeated with identical arguments").field_path(".spec.createName"),
    validation = Rule::new("has(self.spec.volumeSnapshotContent) == has(oldSelf.spec.volumeSnapshotContent) && (!has(self.spec.volumeSnapshotContent) || self.spec.volumeSnapshotContent == oldSelf.spec.volumeSnapshotContent)").message("spec.volumeSnapshotContent is immutable: it says what was asked for").field_path(".spec.volumeSnapshotContent"),
    validation = Rule::new("!has(oldSelf.spec.assignment) || !has(self.spec.secretName) || has(oldSelf.spec.secretName) || has(self.spec.volumeSnapshotContent)").message("spec.secretName cannot be added to a Snapshot that has been taken up without: create another Snapshot with it").field_path(".spec.secretName"),
    validation = Rule::new("oldSelf.hasValue() || !has(self.spec.assignment)").optional_old_self(true).message("spec.assignment is written by the moor controller: remove it").field_path(".spec.assignment"),
    validation = Rule::new("!has(oldSelf.spec.assignment) || has(self.spec.assignment)").message("spec.assignment is the controller's and cannot be taken away: keep it when replacing the object, or use kubectl apply").field_path(".spec.assignment")
)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotSpec {
    /// Take: name of a Volume of this namespace. It must be Ready, and cannot be deleted before the snapshot is taken; it may be
    /// afterwards, where the driver allows that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::object_name")]
    pub volume_name: Option<String>,
    /// Take: names of Volumes of this namespace, of which one snapshot each is taken, all at one moment (CSI's
    /// CreateVolumeGroupSnapshot). They are of one Plugin. A Volume is made of
    /// one of them with `spec.source.snapshotName` and `spec.source.volumeName`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::schema::group_of_volumes")]
    pub volume_names: Vec<String>,
    /// Register: the id of a snapshot that exists, as the driver knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::snapshot_handle")]
    pub snapshot_handle: Option<String>,
    /// Register: where `snapshotHandle` is a group's, the ids of all its members.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::schema::group_members")]
    pub member_handles: Vec<String>,
    /// Register: name of the Plugin whose driver has the snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::object_name")]
    pub plugin_name: Option<String>,
    /// Take: the driver's own parameters. At most 4 KiB in all.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "super::schema::string_map")]
    pub parameters: BTreeMap<String, String>,
    /// Take: the name that CreateSnapshot is called with, by which a driver recognises a call that is repeated. Absent: one
    /// that no other Snapshot has. Written by the moor controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub create_name: Option<String>,
    /// Secret in this namespace for CreateSnapshot, DeleteSnapshot and ListSnapshots, and for those of groups. Absent: the one that
    /// the Volume has for snapshots, or was created with, or else that of the Plugin. It may be changed, and not be added once the Snapshot is taken up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::secret_name")]
    pub secret_name: Option<String>,
    /// The VolumeSnapshotContent for which this Snapshot was made; for a group the VolumeGroupSnapshotContent. It counts in moor's own namespace. Written by the moor
    /// controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_content: Option<SnapshotOf>,
    /// What happens to what the driver keeps when this object is deleted.
    /// Unset: Delete for a snapshot that was taken, Retain for a registered one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = super::schema::own_description)]
    pub deletion_policy: Option<DeletionPolicy>,
    /// Written by the moor controller: who makes this snapshot's calls, and what of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignment: Option<SnapshotAssignment>,
}

/// The VolumeSnapshotContent, or VolumeGroupSnapshotContent, that a Snapshot was made for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotOf {
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Its UID.
    #[schemars(length(max = 63))]
    pub uid: String,
    /// Secret for ListSnapshots, or GetVolumeGroupSnapshot, as namespace/name, which its class names apart from that of other calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    pub list_secret: Option<String>,
}

/// What the driver says of a member of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberStatus {
    /// The volume that it is of, as its driver knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub volume_handle: Option<String>,
    /// The snapshot, as its driver knows it.
    #[schemars(length(max = 1024))]
    pub snapshot_handle: String,
    /// What a volume made of it needs at least, in bytes. Absent where the driver does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_size_bytes: Option<i64>,
    /// Volumes can be made of it.
    #[serde(default)]
    pub ready_to_use: bool,
}

/// Where a Snapshot is in its life.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum SnapshotState {
    /// Not known to the driver yet.
    #[default]
    Pending,
    /// The driver has it, and still works on it: nothing can be restored yet. Its volume may be written to.
    Created,
    /// Volumes can be made of it.
    Ready,
    /// The driver no longer has it, or is not asked to delete it any more.
    Deleted,
}

/// What moor says about a Snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotStatus {
    /// Where it is in its life.
    #[serde(default)]
    pub state: SnapshotState,
    /// The snapshot id, of a group the group's, as the driver knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub snapshot_handle: Option<String>,
    /// The members of a group, as an agent says that the driver has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub members: Vec<MemberStatus>,
    /// CreateSnapshot has been called, and no answer has said since that nothing was made: there may be a snapshot.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_exist: bool,
    /// The Volume was deleted, or gone, before CreateSnapshot was called, and it never is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub source_gone: bool,
    /// The volume that it was taken of, as the driver knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub source_volume_handle: Option<String>,
    /// The moment that it shows, as the driver says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<Time>,
    /// What a volume made of it needs at least, as a quantity. Absent where the driver does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_size: Option<String>,
    /// The same in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_size_bytes: Option<i64>,
    /// UID of the Plugin with which it was taken or looked at: of another one NOT_FOUND does not mean deleted.
    #[serde(rename = "pluginUID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub plugin_uid: Option<String>,
    /// What the driver last refused, while it has not succeeded since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<Box<CallFailure>>,
    /// How often the current step has failed in a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<i64>,
    /// When the current step is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_retry: Option<Time>,
    /// The generation of spec that this status answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready: volumes can be made of it.
    #[serde(default, deserialize_with = "super::sparse::exact", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::schema::conditions")]
    pub conditions: Vec<Condition>,
}

impl Snapshot {
    /// Where the Snapshot's status says that it is.
    #[must_use]
    pub fn state(&self) -> SnapshotState {
        self.status.as_ref().map(|status| status.state).unwrap_or_default()
    }

    /// Whether it is of several volumes, at one moment.
    #[must_use]
    pub fn is_group(&self) -> bool {
        !self.spec.volume_names.is_empty() || !self.spec.member_handles.is_empty()
    }

    /// The Volumes that it is taken of, by name, each with what is known of it once the Snapshot is taken up.
    pub fn taken_of(&self) -> Vec<(&str, Option<&SnapshotVolume>)> {
        let begun = self.spec.assignment.iter().flat_map(SnapshotAssignment::taken_of);
        let named = begun.filter_map(|of| Some((of.name.as_ref().or(self.spec.volume_name.as_ref())?, of)));
        let begun: Vec<_> = named.map(|(name, of)| (name.as_str(), Some(of))).collect();
        // What a user makes of the order of the names since counts for nothing.
        if begun.is_empty() { self.spec.volumes().map(|name| (name.as_str(), None)).collect() } else { begun }
    }

    /// The controller instance that the Snapshot's calls are assigned to.
    #[must_use]
    pub fn caller(&self) -> Option<&ControllerRef> {
        self.spec.assignment.as_ref().map(|assignment| &assignment.controller)
    }

    /// Whether the driver has yet to be asked for what is registered. It may be with any instance.
    #[must_use]
    pub fn is_looked_for(&self) -> bool {
        let lists = |assignment: &SnapshotAssignment| assignment.operation == SnapshotOperation::List;
        self.spec.assignment.as_ref().is_some_and(lists) && self.state() == SnapshotState::Pending
    }

    /// Whether CreateSnapshot may have been called without an answer that nothing was made.
    #[must_use]
    pub fn may_exist(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.may_exist)
    }

    /// The snapshot as the driver knows it, once it is known to be this Snapshot's.
    #[must_use]
    pub fn handle(&self) -> Option<&str> {
        self.spec.assignment.as_ref()?.snapshot_handle.as_deref()
    }

    /// The ids of all snapshots of the driver that the Snapshot is known to stand for: its own, and those of a group's members.
    pub fn handles(&self) -> impl Iterator<Item = &str> {
        let members = self.spec.assignment.iter().flat_map(|assignment| &assignment.members);
        self.handle().into_iter().chain(members.map(|member| member.snapshot_handle.as_str()))
    }

    /// The snapshot as an agent says that the driver knows it.
    #[must_use]
    pub fn said_handle(&self) -> Option<&str> {
        self.status.as_ref()?.snapshot_handle.as_deref()
    }

    /// Whether nothing was begun before its Volume was deleted, and nothing will be.
    #[must_use]
    pub fn source_is_gone(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.source_gone)
    }

    /// The driver, once that is known.
    #[must_use]
    pub fn driver_name(&self) -> Option<&str> {
        Some(&self.spec.assignment.as_ref()?.driver_name)
    }

    /// The Secret of its calls.
    #[must_use]
    pub fn secret(&self) -> Option<SecretName<'_>> {
        let assignment = self.spec.assignment.as_ref();
        let of_volume = || assignment?.secret_name.as_deref();
        let of_user = self.spec.secret_name.as_deref().or_else(of_volume).map(SecretName::OfUser);
        of_user.or_else(|| assignment?.plugin_secret_name.as_deref().map(SecretName::OfPlugin))
    }

    /// Name of the Plugin, once that is known.
    #[must_use]
    pub fn plugin_name(&self) -> Option<&str> {
        let assigned = self.spec.assignment.as_ref().map(|assignment| assignment.plugin_name.as_str());
        assigned.or(self.spec.plugin_name.as_deref())
    }
}

impl SnapshotSpec {
    /// The Volumes of which a snapshot is to be taken: one, or those of a group.
    pub fn volumes(&self) -> impl Iterator<Item = &String> {
        self.volume_name.iter().chain(&self.volume_names)
    }

    /// Whether DeleteSnapshot is called when the Snapshot is deleted.
    #[must_use]
    pub fn deletes_storage(&self) -> bool {
        match self.deletion_policy {
            Some(policy) => policy == DeletionPolicy::Delete,
            None => self.snapshot_handle.is_none(),
        }
    }
}
