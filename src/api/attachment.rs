//! `Attachment`: one volume on one node. Its name is the lock, its spec all that undo needs.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Deserializer, Serialize};

use super::caller::ControllerRef;
use super::capability::{AccessMode, AttachmentMode, MountOptions};
use super::conditions::{CallFailure, Condition};
use super::health::HealthFinding;
use super::secrets::{SecretFor, SecretName, SecretRefs, chosen};
use super::sparse::Sparse;

/// One volume on one node, made by the moor controller. While it exists, its volume is (or may be)
/// attached to its node. Deleting it asks for the undo; it goes when everything is undone.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "moor.dev",
    version = "v1alpha1",
    kind = "Attachment",
    plural = "attachments",
    shortname = "att",
    category = "moor",
    status = "AttachmentStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "One volume on one node. Its name is the lock that grants the volume.",
    selectable = ".spec.nodeName",
    selectable = ".spec.controller.agent",
    selectable = ".spec.fixed.handleName",
    printcolumn = r#"{"name":"Volume","type":"string","jsonPath":".spec.volume.name"}"#,
    printcolumn = r#"{"name":"Node","type":"string","jsonPath":".spec.nodeName"}"#,
    printcolumn = r#"{"name":"State","type":"string","jsonPath":".status.state"}"#,
    printcolumn = r#"{"name":"Attach","type":"boolean","jsonPath":".spec.fixed.attach"}"#,
    printcolumn = r#"{"name":"Attached By","type":"string","jsonPath":".spec.controller.agent"}"#,
    printcolumn = r#"{"name":"Why","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Lost","type":"string","jsonPath":".spec.lost.reason"}"#,
    printcolumn = r#"{"name":"Closing","type":"date","jsonPath":".metadata.deletionTimestamp"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Namespace","type":"string","jsonPath":".spec.volume.namespace","priority":1}"#,
    printcolumn = r#"{"name":"Mode","type":"string","jsonPath":".spec.accessMode","priority":1}"#,
    printcolumn = r#"{"name":"Attempts","type":"integer","jsonPath":".status.attempts","priority":1}"#,
    printcolumn = r#"{"name":"Next Try","type":"string","jsonPath":".status.nextRetry","priority":1}"#,
    printcolumn = r#"{"name":"Handle","type":"string","jsonPath":".spec.volumeHandle","priority":1}"#,
    validation = Rule::new("!has(oldSelf.spec.lost) || (has(self.spec.lost) && self.spec.lost == oldSelf.spec.lost)").message("spec.lost is never withdrawn").field_path(".spec.lost")
)]
#[serde(rename_all = "camelCase")]
pub struct AttachmentSpec {
    /// The Volume it was made for.
    #[schemars(transform = stays)]
    pub volume: VolumeRef,
    /// The volume as its driver knows it.
    #[schemars(length(min = 1, max = 1024), transform = stays)]
    pub volume_handle: String,
    /// Node on which the volume is used.
    #[schemars(schema_with = "super::schema::object_name", transform = stays)]
    pub node_name: String,
    /// How the volume is used; the same for every claim that joins.
    #[schemars(transform = stays)]
    pub access_mode: AccessMode,
    /// Who attaches and detaches. Absent where the driver has no ControllerPublishVolume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<ControllerRef>,
    /// Everything else that the undo needs, fixed at creation.
    #[schemars(transform = stays)]
    pub fixed: Fixed,
    /// Set when the node was declared lost: its part of the undo is skipped. Never withdrawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<Box<Lost>>,
    /// The size in bytes that the volume is to have on the node (NodeExpandVolume). Absent where nothing is to be done there:
    /// the volume never grew, its driver does that without the nodes, or kubelet sees to it for a PersistentVolumeClaim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub node_capacity_bytes: Option<i64>,
}

/// A Volume by name and UID.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeRef {
    /// Its namespace.
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Its UID.
    #[schemars(length(max = 63))]
    pub uid: String,
}

/// What an Attachment needs to be made and undone, copied so that it survives the objects it came from. Each field is required or
/// has a default: that one is taken away is then seen as a change of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Fixed {
    /// Name of the VolumeHandle.
    #[schemars(length(max = 63))]
    pub handle_name: String,
    /// Driver name as GetPluginInfo gives it.
    #[schemars(length(max = 63))]
    pub driver_name: String,
    /// Name of the Plugin.
    #[schemars(length(max = 253))]
    pub plugin_name: String,
    /// UID of the Plugin.
    #[serde(rename = "pluginUID")]
    #[schemars(length(max = 63))]
    pub plugin_uid: String,
    /// Epoch of the VolumeHandle under which this Attachment may act.
    pub epoch: i64,
    /// UID of the Node.
    #[serde(rename = "nodeUID")]
    #[schemars(length(max = 63))]
    pub node_uid: String,
    /// The node as the driver knows it, from NodeGetInfo. At most 256 bytes.
    #[serde(rename = "nodeID")]
    #[schemars(length(max = 256))]
    pub node_id: String,
    /// Boot of the node at creation: by it a node that was registered anew is recognised.
    #[serde(default, rename = "bootID")]
    #[schemars(length(max = 63))]
    pub boot_id: String,
    /// File system or block device.
    #[serde(default)]
    pub attachment_mode: AttachmentMode,
    /// Attach read-only; only where the driver has PUBLISH_READONLY.
    #[serde(default)]
    pub read_only: bool,
    /// How the volume is staged. Of an Attachment that was made for a Pod the flags are those that kubelet gave for it.
    #[serde(default)]
    pub mount_options: Sparse<MountOptions>,
    /// The group that the driver gives the volume to, where kubelet leaves that to the driver (CSI VOLUME_MOUNT_GROUP).
    #[serde(default, deserialize_with = "none_if_empty", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = 128), extend("default" = ""))]
    pub volume_mount_group: Option<String>,
    /// Context from the volume's creation, opaque.
    #[serde(default)]
    #[schemars(schema_with = "super::schema::string_map")]
    pub volume_context: BTreeMap<String, String>,
    /// The Secrets that the Volume names for the calls.
    #[serde(default)]
    pub secrets: Sparse<SecretRefs>,
    /// Those of the Plugin, for calls for which the Volume names none, each as namespace/name.
    #[serde(default)]
    pub plugin_secrets: Sparse<SecretRefs>,
    /// ControllerPublishVolume is needed.
    pub attach: bool,
    /// NodeStageVolume is needed.
    pub stage: bool,
    /// Only one claim at a time may have a target: the mode says so, or the driver takes no second one.
    #[serde(default)]
    pub exclusive: bool,
    /// The driver takes SINGLE_NODE_MULTI_WRITER, so SingleNodeWriter is sent as that.
    #[serde(default)]
    pub single_node_multi_writer: bool,
    /// When no claim uses it any more it stays attached for a while, for a claim that comes back to the node: the node then
    /// does not say NodeDetached before it is closed.
    #[serde(default)]
    pub lingers: bool,
}

/// What an Attachment stands for stays: the undo goes by it.
fn stays(schema: &mut Schema) {
    let message = "what an Attachment stands for is fixed when it is created: delete it to have it undone";
    super::schema::stays(schema, message);
}

fn none_if_empty<'de, D: Deserializer<'de>>(text: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(text)?.filter(|text| !text.is_empty()))
}

impl Attachment {
    /// The Secret of one of its calls.
    #[must_use]
    pub fn secret(&self, call: SecretFor) -> Option<SecretName<'_>> {
        let fixed = &self.spec.fixed;
        chosen(Some(&fixed.secrets), Some(&fixed.plugin_secrets), call)
    }

    /// Whether it is granted: it is not closing, and its node is not lost.
    #[must_use]
    pub fn stands(&self) -> bool {
        self.metadata.deletion_timestamp.is_none() && self.spec.lost.is_none()
    }
}

/// Why a node's part is skipped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Lost {
    /// UID of the Node that was lost.
    #[serde(rename = "nodeUID")]
    #[schemars(length(max = 63))]
    pub node_uid: String,
    /// NodeDeleted, NodeReplaced, OutOfService or ForceDetach.
    #[schemars(length(max = 63))]
    pub reason: String,
    /// Since when.
    pub since: Time,
}

/// Where an Attachment is in its life. It never goes back.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum AttachmentState {
    /// Granted. Being attached, if the driver attaches; else in use by its node.
    #[default]
    Taken,
    /// Attached: the node may use it.
    Attached,
    /// The node has undone its part. Never staged again.
    NodeDetached,
    /// Detached. The controller frees it. Most end with that instead of saying it.
    ControllerDetached,
}

/// How far an Attachment is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttachmentStatus {
    /// Where it is in its life.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "self == oldSelf || {'Taken': 0, 'Attached': 1, 'NodeDetached': 2, 'ControllerDetached': 3}[self] > {'Taken': 0, 'Attached': 1, 'NodeDetached': 2, 'ControllerDetached': 3}[oldSelf]",
        "message": "status.state never goes back" }]))]
    pub state: AttachmentState,
    /// What ControllerPublishVolume answered, for the node's calls.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "super::schema::string_map")]
    pub publish_context: BTreeMap<String, String>,
    /// What the driver last refused, while it has not succeeded since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<Box<CallFailure>>,
    /// How often the current step has failed in a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<i64>,
    /// When the current step is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_retry: Option<Time>,
    /// The size in bytes to which NodeExpandVolume has made the volume larger on its node. Written by the node's own agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_capacity_bytes: Option<i64>,
    /// What is wrong with the volume on its node, by kind. Written by the node's own agent: empty once it is over, and
    /// absent while nothing has been wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8))]
    pub health: Option<Vec<HealthFinding>>,
    /// The generation of spec that this status answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready: attached. Expanded: the volume has the size on its node that spec.nodeCapacityBytes asks for; absent if it never
    /// grew there.
    #[serde(default, deserialize_with = "super::sparse::exact", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::schema::conditions")]
    pub conditions: Vec<Condition>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The schema of the part of an Attachment at this path, as the API server gets it.
    fn schema_of(path: &[&str]) -> Value {
        let crds = crate::api::all_crds();
        let crd = crds.iter().find(|crd| crd.spec.names.kind == "Attachment").unwrap();
        let root = crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref();
        let root = serde_json::to_value(root.unwrap()).unwrap();
        path.iter().fold(root, |schema, field| schema["properties"][field].clone())
    }

    /// Of a field that is absent before or after a write the API server does not ask whether it stays.
    #[test]
    fn every_field_that_stays_is_always_there_and_has_the_rule() {
        let fields = |path: &[&str]| -> Vec<String> {
            schema_of(path)["properties"].as_object().unwrap().keys().cloned().collect()
        };
        let below = |name: &'static str| {
            fields(&["spec", name]).into_iter().map(move |field| vec![name.to_owned(), field])
        };
        let single = ["volumeHandle", "nodeName", "accessMode"].map(|name| vec![name.to_owned()]);
        for path in single.into_iter().chain(below("volume")).chain(below("fixed")) {
            let path: Vec<&str> = std::iter::once("spec").chain(path.iter().map(String::as_str)).collect();
            let (name, above) = path.split_last().unwrap();
            let schema = schema_of(&path);
            let is_required = schema_of(above)["required"].as_array().unwrap().contains(&json!(name));
            assert!(is_required || !schema["default"].is_null(), "{path:?} may be absent");
            assert_ne!(schema["nullable"], json!(true), "{path:?} may be null");
            let rules = schema["x-kubernetes-validations"].as_array().unwrap();
            assert!(rules.iter().any(|rule| rule["rule"] == "self == oldSelf"), "{path:?} may change");
        }
    }

    #[test]
    fn an_empty_group_is_none() {
        let of = |fixed: &Value| serde_json::from_value::<Fixed>(fixed.clone()).unwrap().volume_mount_group;
        let mut fixed = serde_json::to_value(Fixed::default()).unwrap();
        assert_eq!(of(&fixed), None);
        for (group, read) in [(json!(""), None), (Value::Null, None), (json!("7"), Some("7".to_owned()))] {
            fixed["volumeMountGroup"] = group;
            assert_eq!(of(&fixed), read);
        }
    }
}
