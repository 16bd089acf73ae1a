//! `VolumeHandle`: the volume as its driver knows it, one per driver and handle.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::attachment::VolumeRef;
use super::caller::ControllerRef;
use super::capability::AccessMode;
use super::health::HealthFinding;
use super::uid::{AttachmentUid, ClaimUid};
use super::volume::DeletionPolicy;

/// The volume as its driver knows it. Made before a Volume is Ready, removed last; only the moor
/// controller writes it. It decides who is allowed: owner, mode and epoch.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "moor.dev",
    version = "v1alpha1",
    kind = "VolumeHandle",
    plural = "volumehandles",
    shortname = "vh",
    category = "moor",
    status = "VolumeHandleStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "The volume as its driver knows it: who owns it, in which mode it is used, and since which epoch.",
    selectable = ".spec.controller.agent",
    printcolumn = r#"{"name":"Driver","type":"string","jsonPath":".spec.driverName"}"#,
    printcolumn = r#"{"name":"Handle","type":"string","jsonPath":".spec.volumeHandle"}"#,
    printcolumn = r#"{"name":"Namespace","type":"string","jsonPath":".spec.volume.namespace"}"#,
    printcolumn = r#"{"name":"Volume","type":"string","jsonPath":".spec.volume.name"}"#,
    printcolumn = r#"{"name":"Mode","type":"string","jsonPath":".spec.mode"}"#,
    printcolumn = r#"{"name":"Epoch","type":"integer","jsonPath":".spec.epoch"}"#,
    printcolumn = r#"{"name":"Closing","type":"boolean","jsonPath":".spec.closing"}"#,
    printcolumn = r#"{"name":"Controller","type":"string","jsonPath":".spec.controller.agent"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Drift","type":"string","jsonPath":".status.drift.nodes[*].nodeID","priority":1}"#,
    validation = Rule::new("self.spec.driverName == oldSelf.spec.driverName && self.spec.volumeHandle == oldSelf.spec.volumeHandle").message("spec.driverName and spec.volumeHandle are what a VolumeHandle is: they cannot change").field_path(".spec"),
    validation = Rule::new("self.spec.epoch == oldSelf.spec.epoch || (self.spec.epoch == oldSelf.spec.epoch + 1 && self.spec.closing)").message("spec.epoch only rises by one, together with spec.closing").field_path(".spec.epoch"),
    validation = Rule::new("(self.spec.mode == oldSelf.spec.mode && self.spec.volume == oldSelf.spec.volume) || oldSelf.spec.closing").message("mode and owner change only after spec.closing was written").field_path(".spec.mode"),
    validation = Rule::new("!has(oldSelf.spec.writer) || (has(self.spec.writer) ? self.spec.writer == oldSelf.spec.writer || self.spec.writer.grant == oldSelf.spec.writer.grant + 1 : oldSelf.spec.closing)").message("spec.writer changes with the next grant, and removed only after spec.closing was written").field_path(".spec.writer")
)]
#[serde(rename_all = "camelCase")]
pub struct VolumeHandleSpec {
    /// Driver name as GetPluginInfo gives it.
    #[schemars(length(min = 1, max = 63))]
    pub driver_name: String,
    /// The volume id of CreateVolume or of the imported volume.
    #[schemars(length(min = 1, max = 1024))]
    pub volume_handle: String,
    /// The Volume that owns it.
    pub volume: VolumeRef,
    /// The mode in which it is used now; Attachments of other modes are refused.
    pub mode: AccessMode,
    /// Rises whenever who is allowed changes.
    #[schemars(range(min = 1))]
    pub epoch: i64,
    /// No new use: the Attachments of earlier epochs are being waited for.
    #[serde(default)]
    pub closing: bool,
    /// Its Volume is deleted, and this becomes of the storage: only while this says `Delete` is DeleteVolume called, and only
    /// while it says `Retain` does the VolumeHandle go without that call. It is not opened for its Volume again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = super::schema::own_description)]
    pub closed_for: Option<DeletionPolicy>,
    /// The controller instance of all its calls. Absent where the driver has no controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<ControllerRef>,
    /// The only claim that may write, in mode MultiNodeSingleWriter. Its node reads this before the first call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writer: Option<Box<Writer>>,
}

/// The writer's lock: one claim on one Attachment. Replacing it is a guarded write, so no two leaders can name two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Writer {
    /// Who may write.
    #[serde(flatten)]
    pub holder: WriterRef,
    /// Rises by one with every change.
    #[schemars(range(min = 1))]
    pub grant: i64,
    /// The writer has left its node while other claims still use its Attachment, so the next writer need not wait for
    /// it.
    #[serde(default)]
    pub released: bool,
    /// The writer that this one replaced. The claim is assigned only after the controller has looked, later than this
    /// write, and found that writer done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<WriterRef>,
}

/// A claim that writes, on an Attachment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WriterRef {
    /// The claim as namespace/name.
    #[schemars(length(max = 317))]
    pub claim: String,
    /// UID of the claim.
    #[serde(rename = "claimUID")]
    #[schemars(length(max = 63))]
    pub claim_uid: ClaimUid,
    /// Name of the Attachment.
    #[schemars(length(max = 253))]
    pub attachment: String,
    /// UID of the Attachment.
    #[serde(rename = "attachmentUID")]
    #[schemars(length(max = 63))]
    pub attachment_uid: AttachmentUid,
}

/// What moor says about a VolumeHandle.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeHandleStatus {
    /// Where the storage differs from what moor knows. Written by the agent of spec.controller; absent while nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<Drift>,
    /// What the driver's Controller service says is wrong with the volume. Written by the agent of spec.controller: empty once
    /// it is over, and absent while nothing has been wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8))]
    pub health: Option<Vec<HealthFinding>>,
}

/// Where the driver's own listing differs from the Attachments, seen twice and compared with the objects as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Drift {
    /// The differences, by node id; the first ones, if there are more than fit.
    #[schemars(length(max = 32))]
    pub nodes: Vec<DriftedNode>,
}

/// One node on which the storage differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriftedNode {
    /// The node as the driver knows it. At most 256 bytes.
    #[serde(rename = "nodeID")]
    #[schemars(length(min = 1, max = 256))]
    pub node_id: String,
    /// Which way it differs.
    pub kind: DriftKind,
    /// Since when it is reported.
    pub since: Time,
}

/// Which way the storage differs from the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum DriftKind {
    /// The driver lists the volume as attached there, and there is no Attachment.
    Unexpected,
    /// There is an Attachment that is Attached, and the driver does not list it.
    Missing,
}
