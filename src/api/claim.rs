//! `VolumeClaim`: one consumer's use of one Volume on one node.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::capability::{AccessMode, AttachmentMode};
use super::conditions::{CallFailure, Condition};
use super::uid::AttachmentUid;

/// One consumer's use of one Volume on one node. Create it to have the volume attached, staged and
/// mounted; delete it to have all of that undone.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "moor.dev",
    version = "v1alpha1",
    kind = "VolumeClaim",
    plural = "volumeclaims",
    shortname = "vc",
    category = "moor",
    namespaced,
    status = "VolumeClaimStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "One consumer's use of one Volume on one node.",
    selectable = ".spec.assignment.nodeName",
    selectable = ".spec.volumeName",
    selectable = ".spec.nodeName",
    selectable = ".spec.pod.uid",
    printcolumn = r#"{"name":"Volume","type":"string","jsonPath":".spec.volumeName"}"#,
    printcolumn = r#"{"name":"State","type":"string","jsonPath":".status.state"}"#,
    printcolumn = r#"{"name":"Node","type":"string","jsonPath":".spec.assignment.nodeName"}"#,
    printcolumn = r#"{"name":"Since","type":"date","jsonPath":".status.conditions[?(@.type==\"Ready\")].lastTransitionTime"}"#,
    printcolumn = r#"{"name":"Why","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Waits For","type":"string","jsonPath":".status.waitingFor.holder"}"#,
    printcolumn = r#"{"name":"Leaving","type":"date","jsonPath":".metadata.deletionTimestamp"}"#,
    printcolumn = r#"{"name":"Silent","type":"date","jsonPath":".status.conditions[?(@.type==\"NodeSilent\")].lastTransitionTime"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Mode","type":"string","jsonPath":".spec.accessMode","priority":1}"#,
    printcolumn = r#"{"name":"RO","type":"boolean","jsonPath":".spec.readOnly","priority":1}"#,
    printcolumn = r#"{"name":"Attempts","type":"integer","jsonPath":".status.attempts","priority":1}"#,
    printcolumn = r#"{"name":"Next Try","type":"string","jsonPath":".status.nextRetry","priority":1}"#,
    printcolumn = r#"{"name":"Target","type":"string","jsonPath":".status.targetPath","priority":1}"#,
    validation = Rule::new("self.spec.volumeName == oldSelf.spec.volumeName").message("spec.volumeName is immutable: delete this claim and create one for the other Volume").field_path(".spec.volumeName"),
    validation = Rule::new("has(self.spec.nodeName) == has(oldSelf.spec.nodeName) && (!has(self.spec.nodeName) || self.spec.nodeName == oldSelf.spec.nodeName)").message("spec.nodeName is immutable: to move the volume, delete this claim and create one for the other node").field_path(".spec.nodeName"),
    validation = Rule::new("has(self.spec.nodeSelector) == has(oldSelf.spec.nodeSelector) && (!has(self.spec.nodeSelector) || self.spec.nodeSelector == oldSelf.spec.nodeSelector)").message("spec.nodeSelector is immutable: to move the volume, delete this claim and create one for other nodes").field_path(".spec.nodeSelector"),
    validation = Rule::new("!has(self.spec.nodeName) || !has(self.spec.nodeSelector)").message("spec.nodeName and spec.nodeSelector both say where the volume is mounted: give one of the two").field_path(".spec.nodeSelector"),
    validation = Rule::new("self.spec.readOnly == oldSelf.spec.readOnly && self.spec.accessMode == oldSelf.spec.accessMode && self.spec.attachmentMode == oldSelf.spec.attachmentMode").message("spec.readOnly, spec.accessMode and spec.attachmentMode are immutable: delete this claim and create another").field_path(".spec"),
    validation = Rule::new("has(self.spec.mountOptions) == has(oldSelf.spec.mountOptions) && (!has(self.spec.mountOptions) || self.spec.mountOptions == oldSelf.spec.mountOptions)").message("spec.mountOptions is immutable: delete this claim and create another").field_path(".spec.mountOptions"),
    validation = Rule::new("!(self.spec.attachmentMode == 'BlockDevice' && has(self.spec.mountOptions))").message("spec.mountOptions cannot be used with attachmentMode BlockDevice, nothing is mounted: remove mountOptions or use FileSystem").field_path(".spec.mountOptions"),
    validation = Rule::new("has(self.spec.pod) || !(self.spec.accessMode in ['SingleNodeReader', 'MultiNodeReader']) || self.spec.readOnly").message("this accessMode only reads: set spec.readOnly to true or choose a writer mode").field_path(".spec.readOnly"),
    validation = Rule::new("has(self.spec.pod) == has(oldSelf.spec.pod) && (!has(self.spec.pod) || self.spec.pod == oldSelf.spec.pod)").message("spec.pod is immutable: it says for which Pod a node's agent has made this claim").field_path(".spec.pod"),
    validation = Rule::new("!has(self.spec.pod) || has(self.spec.nodeName)").message("a claim of a Pod needs spec.nodeName: such claims are made by the agent of the Pod's node").field_path(".spec.nodeName"),
    validation = Rule::new("!has(self.spec.pod) || has(self.spec.pod.persistentVolume) != has(self.spec.pod.inlineVolume)").message("spec.pod names either persistentVolume or inlineVolume: such claims are made by the agent of the Pod's node").field_path(".spec.pod"),
    validation = Rule::new("oldSelf.hasValue() || !has(self.spec.assignment)").optional_old_self(true).message("spec.assignment is written by the moor controller: remove it").field_path(".spec.assignment"),
    validation = Rule::new("!has(oldSelf.spec.assignment) || (has(self.spec.assignment) && (self.spec.assignment == oldSelf.spec.assignment || (has(oldSelf.status) && has(oldSelf.status.yielded) && oldSelf.status.yielded == oldSelf.spec.assignment.attachmentUID)))").message("spec.assignment is written by the moor controller, and changes only after the node gave the Attachment back (status.yielded): leave it as it is, or delete this claim").field_path(".spec.assignment")
)]
#[serde(rename_all = "camelCase")]
pub struct VolumeClaimSpec {
    /// Name of the Volume, in the claim's namespace. May be created after the claim.
    #[schemars(schema_with = "super::schema::object_name")]
    pub volume_name: String,
    /// Node on which the volume is to be mounted. Empty: moor picks one that can reach the volume, has room and takes new Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::object_name")]
    pub node_name: Option<String>,
    /// Labels that the node has to have which moor picks, all of them. They count when the claim is granted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "super::schema::labels")]
    pub node_selector: BTreeMap<String, String>,
    /// Mount without the right to write.
    #[serde(default)]
    pub read_only: bool,
    /// Who else may use the volume meanwhile. The Volume must list it.
    #[serde(default)]
    pub access_mode: AccessMode,
    /// A mounted file system or a raw block device. The Volume must list it.
    #[serde(default)]
    pub attachment_mode: AttachmentMode,
    /// Flags for this claim's own mount (NodePublishVolume). How the volume is staged is up to its Volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount_options: Option<ClaimMountOptions>,
    /// Written by a node's agent: the Pod for which kubelet asks for the volume. Such a claim is granted after the controller
    /// has seen that the Pod is there and uses the volume, is made while kubelet waits for it, and goes when kubelet says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Box<PodUse>>,
    /// Set on a deleted claim to undo it by force: an order to a live agent to unmount even while busy,
    /// and a hand-over to the controller where the agent is gone. End whatever uses the volume on the node first: after
    /// that only the driver keeps it from writing beside the next one, if it can.
    #[serde(default)]
    pub force_detach: bool,
    /// Written by the moor controller: the grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignment: Option<Assignment>,
}

/// A Pod's use of a volume, as kubelet asks for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodUse {
    /// Namespace of the Pod.
    #[schemars(schema_with = "super::schema::object_name")]
    pub namespace: String,
    /// Name of the Pod.
    #[schemars(schema_with = "super::schema::object_name")]
    pub name: String,
    /// UID of the Pod.
    #[schemars(length(min = 1, max = 63))]
    pub uid: String,
    /// Name of the PersistentVolume that the Pod's claim is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::object_name")]
    pub persistent_volume: Option<String>,
    /// Name of the volume in the Pod, where the Pod itself names the Volume: in spec.volumes[].csi, with the driver moor.dev.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::object_name")]
    pub inline_volume: Option<String>,
    /// The group that the driver is to give the volume to, where kubelet leaves that to the driver (CSI VOLUME_MOUNT_GROUP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub volume_mount_group: Option<String>,
}

/// By what a Pod uses a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodVolume<'a> {
    /// By a PersistentVolumeClaim that is bound to the PersistentVolume of this name.
    Persistent(&'a str),
    /// By a volume of this name in the Pod, which names the Volume.
    Inline(&'a str),
}

impl PodUse {
    /// By what the Pod uses the volume. The API server keeps nothing that says neither, or both.
    #[must_use]
    pub fn volume(&self) -> PodVolume<'_> {
        match &self.inline_volume {
            Some(name) => PodVolume::Inline(name),
            None => PodVolume::Persistent(self.persistent_volume.as_deref().unwrap_or_default()),
        }
    }

    /// The PersistentVolume, where the Pod uses the volume by one.
    #[must_use]
    pub fn by_persistent_volume(&self) -> Option<&str> {
        match self.volume() {
            PodVolume::Persistent(name) => Some(name),
            PodVolume::Inline(_) => None,
        }
    }
}

impl<'a> PodVolume<'a> {
    /// The name by which kubelet has the volume among the Pod's.
    #[must_use]
    pub fn name(self) -> &'a str {
        match self {
            Self::Persistent(name) | Self::Inline(name) => name,
        }
    }
}

impl std::fmt::Display for PodVolume<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Persistent(name) => write!(f, "PersistentVolume {name}"),
            Self::Inline(name) => write!(f, "spec.volumes[{name}].csi"),
        }
    }
}

/// Mount options that belong to one claim. Debug never shows the flags.
#[derive(Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimMountOptions {
    /// Flags for the claim's mount, for example nodev.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::schema::mount_flags")]
    pub mount_flags: Vec<String>,
}

impl std::fmt::Debug for ClaimMountOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ClaimMountOptions([{} redacted])", self.mount_flags.len())
    }
}

/// The grant: which Attachment the claim uses, by name and UID.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Assignment {
    /// Name of the Attachment.
    #[schemars(length(max = 63))]
    pub attachment: String,
    /// UID of the Attachment; another object of the same name is not this grant.
    #[serde(rename = "attachmentUID")]
    #[schemars(length(max = 63))]
    pub attachment_uid: AttachmentUid,
    /// Name of the VolumeHandle of that Attachment. An earlier version of moor did not write it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub handle_name: String,
    /// Node whose agent acts on the claim.
    #[schemars(length(max = 253))]
    pub node_name: String,
    /// UID of that Node when the claim was granted.
    #[serde(rename = "nodeUID")]
    #[schemars(length(max = 63))]
    pub node_uid: String,
}

/// Where a claim is in its life (Nomad's words).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum ClaimState {
    /// Not granted yet; the Ready condition says what it waits for.
    #[default]
    Pending,
    /// Granted: being attached, staged and mounted, or, once it is deleted, being undone.
    Taken,
    /// Mounted at status.targetPath.
    Ready,
    /// Unmounted from its node. Final.
    NodeDetached,
    /// Its node was lost. Final.
    Lost,
}

impl ClaimState {
    /// Whether no other state comes after this one.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::NodeDetached | Self::Lost)
    }

    /// What a deleted claim shows when its undo has failed or has to be waited for: it has the volume and is not to be
    /// used. An undo that goes well is spared the write.
    #[must_use]
    pub fn while_leaving(self) -> Self {
        if self == Self::Ready { Self::Taken } else { self }
    }
}

/// What a waiting claim waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitingFor {
    /// Who is in the way: the holder of the volume or, further back in a line, the claim before this one. A claim as
    /// namespace/name, or another object as Kind/name.
    pub holder: String,
    /// Node on which it is held; absent if this names a claim that waits itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// State of the holder, told to the first in line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Since when it holds the volume: since it is Ready, else since it was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

/// What moor says about a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeClaimStatus {
    /// Where the claim is in its life.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "self == oldSelf || !(oldSelf in ['NodeDetached', 'Lost'])",
        "message": "status.state NodeDetached and Lost are final" }]))]
    pub state: ClaimState,
    /// Path on the node at which the volume can be used. Only meaningful while the claim is Ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_path: Option<String>,
    /// Boot of the node in which the mount was made; after a reboot the claim is not Ready.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "bootID")]
    pub boot_id: Option<String>,
    /// UID of the Attachment that the node gave back without having used it for this claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub yielded: Option<AttachmentUid>,
    /// Who holds what this claim needs, or stands before it in line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<Box<WaitingFor>>,
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
    /// Ready: the volume is mounted at targetPath.
    #[serde(default, deserialize_with = "super::sparse::exact", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::schema::conditions")]
    pub conditions: Vec<Condition>,
}
