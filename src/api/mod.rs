//! The nouns of `moor.dev/v1alpha1`: what users write and what moor answers.
//!
//! Only types, their schema and their conversions live here; no decision and no I/O. Doc comments on
//! fields become the text of `kubectl explain`, so they address the person who writes the YAML.

pub mod allow;
mod assignment;
pub mod attachment;
pub mod attributes;
pub mod caller;
pub mod capability;
pub mod change;
mod change_reasons;
pub mod claim;
mod condition;
pub mod conditions;
pub mod edit;
pub mod export;
pub mod handle;
pub mod health;
pub mod instance;
pub mod kubernetes;
pub mod lock;
pub mod names;
pub mod ordinal;
pub mod plugin;
mod plugin_reasons;
pub mod provision;
pub mod quantity;
pub mod reason;
pub mod schema;
pub mod secrets;
pub mod snapshot;
mod snapshot_assignment;
pub mod source;
pub mod sparse;
mod spec_rules;
pub mod storage;
pub mod template;
pub mod topology;
pub mod turn;
pub mod uid;
pub mod volume;
pub(crate) mod words;
pub mod workload;

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::CustomResourceExt;

pub use attachment::{Attachment, AttachmentSpec, AttachmentState, AttachmentStatus};
pub use capability::{AccessMode, AttachmentMode, MountOptions};
pub use claim::{ClaimState, VolumeClaim, VolumeClaimSpec, VolumeClaimStatus};
pub use handle::{VolumeHandle, VolumeHandleSpec};
pub use instance::{PluginInstance, PluginInstanceSpec, PluginInstanceStatus};
pub use plugin::{Plugin, PluginSpec, PluginStatus};
pub use snapshot::{Snapshot, SnapshotSpec, SnapshotState, SnapshotStatus};
pub use uid::{AttachmentUid, ClaimUid};
pub use volume::{Volume, VolumeSpec, VolumeState, VolumeStatus};

/// API group of every kind.
pub const GROUP: &str = "moor.dev";

/// Our finalizer. It keeps an object until everything it stands for has been undone. The controller takes it off; off a closed
/// Attachment, whoever has detached it.
pub const FINALIZER: &str = "moor.dev/detach";

/// Whether this finalizer keeps an object.
#[must_use]
pub fn has_finalizer(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.finalizers.iter().flatten().any(|name| name == finalizer)
}

/// Every CRD, in the order in which `moor crd` prints them.
#[must_use]
pub fn all_crds() -> Vec<CustomResourceDefinition> {
    [
        Plugin::crd(),
        PluginInstance::crd(),
        Volume::crd(),
        VolumeClaim::crd(),
        Snapshot::crd(),
        VolumeHandle::crd(),
        Attachment::crd(),
    ]
    .map(finished)
    .into()
}

/// Kinds whose objects moor makes, and nobody else changes.
const OWN_KINDS: [&str; 3] = ["Attachment", "PluginInstance", "VolumeHandle"];

/// What the derive cannot say. A status that is absent reads as its defaults, so that the first state of an object's life is
/// visible in kubectl without a write. A spec in which nothing is required may be absent itself.
fn finished(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let is_own = OWN_KINDS.contains(&crd.spec.names.kind.as_str());
    crd.metadata.annotations.get_or_insert_default().insert("helm.sh/resource-policy".into(), "keep".into());
    let roots = crd.spec.versions.iter_mut().filter_map(|v| v.schema.as_mut()?.open_api_v3_schema.as_mut());
    for root in roots {
        spec_rules::join(root);
        let Some(properties) = root.properties.as_mut() else { continue };
        for written_by_moor in written_by_moor(properties, is_own) {
            written_by_moor.x_kubernetes_map_type = Some("atomic".to_owned());
        }
        if let Some(status) = properties.get_mut("status").filter(|status| has_defaults(status)) {
            status.default = Some(JSON(serde_json::json!({})));
            status.nullable = None;
        }
        if let Some(spec) = properties.get_mut("spec").filter(|spec| spec.required.is_none()) {
            spec.default = Some(JSON(serde_json::json!({})));
            root.required = None;
        }
    }
    crd
}

/// What moor alone writes. Of each the API server remembers as a whole who wrote it, not field by field, which takes it a fifth
/// of all its time for a write (ADR 54). A merge patch changes single fields of it as before.
fn written_by_moor(
    properties: &mut BTreeMap<String, JSONSchemaProps>,
    is_own: bool,
) -> impl Iterator<Item = &mut JSONSchemaProps> {
    properties.iter_mut().filter_map(move |(name, schema)| match name.as_str() {
        "status" => Some(schema),
        "spec" if is_own => Some(schema),
        "spec" => schema.properties.as_mut()?.get_mut("assignment"),
        _ => None,
    })
}

fn has_defaults(schema: &JSONSchemaProps) -> bool {
    schema.properties.iter().flatten().any(|(_, p)| p.default.is_some())
}
