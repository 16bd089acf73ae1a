//! PersistentVolumeClaims and PersistentVolumes without their weight, as far as they say when one is to be looked at.
//!
//! There can be very many, and almost all of them are bound and need nothing. Whatever is decided is decided on one that was
//! read live, whole.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer};

use super::annotations;
use super::persistent_volume::FINALIZER;
use super::source::CLONING_PROTECTION;
use crate::api::provision::ProvisionedFor;
use crate::api::{has_finalizer, quantity};

/// What moor watches of a PersistentVolumeClaim.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Resource)]
#[resource(inherit = "PersistentVolumeClaim")]
pub struct WatchedClaim {
    /// Names, UID, version, and the annotations that decide.
    #[serde(deserialize_with = "with_decisive_annotations")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    spec: ClaimSpec,
    #[serde(default)]
    status: ClaimStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaimSpec {
    #[serde(default)]
    volume_name: String,
    #[serde(default)]
    storage_class_name: Option<String>,
    #[serde(default)]
    resources: Requests,
    #[serde(default)]
    volume_attributes_class_name: Option<String>,
    data_source: Option<DataSource>,
    data_source_ref: Option<DataSource>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
struct DataSource {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
struct Requests {
    #[serde(default)]
    requests: Sizes,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaimStatus {
    #[serde(default)]
    phase: String,
    #[serde(default)]
    capacity: Sizes,
    #[serde(default)]
    current_volume_attributes_class_name: Option<String>,
    /// What it says of a modification.
    #[serde(default)]
    modify_volume_status: Option<Modification>,
}

/// How the modification of a volume stands.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Modification {
    #[serde(default)]
    status: String,
    #[serde(default)]
    target_volume_attributes_class_name: String,
}

/// The size of a volume among its resources.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
struct Sizes {
    storage: Option<Quantity>,
}

impl Sizes {
    fn bytes(&self) -> Option<i64> {
        quantity::bytes(self.storage.as_ref()?).ok()
    }
}

impl WatchedClaim {
    /// Whether somebody is to provision it.
    #[must_use]
    pub fn awaits(&self) -> bool {
        self.spec.volume_name.is_empty() && self.provisioner().is_some()
    }

    /// Whether it is bound and asks for more than it has.
    #[must_use]
    pub fn grows(&self) -> bool {
        let (asks, has) = (self.spec.resources.requests.bytes(), self.status.capacity.bytes());
        self.status.phase == "Bound" && !self.spec.volume_name.is_empty() && has.is_some() && asks > has
    }

    /// Whether it is bound and names another VolumeAttributesClass than it has, or says that it did.
    #[must_use]
    pub fn modifies(&self) -> bool {
        let (asks, has) =
            (&self.spec.volume_attributes_class_name, &self.status.current_volume_attributes_class_name);
        // An empty name is none.
        let asks = asks.as_deref().filter(|name| !name.is_empty());
        let differs = asks.is_some() && asks != has.as_deref();
        let is_bound = self.status.phase == "Bound" && !self.spec.volume_name.is_empty();
        is_bound && (differs || self.status.modify_volume_status.is_some())
    }

    /// Whether it is kept because its volume is copied.
    #[must_use]
    pub fn is_copied(&self) -> bool {
        has_finalizer(&self.metadata, CLONING_PROTECTION)
    }

    /// The claim of which its volume is to be a copy.
    #[must_use]
    pub fn copies(&self) -> Option<&str> {
        self.source("PersistentVolumeClaim")
    }

    /// The VolumeSnapshot of which its volume is to be made.
    #[must_use]
    pub fn restores(&self) -> Option<&str> {
        self.source("VolumeSnapshot")
    }

    fn source(&self, kind: &str) -> Option<&str> {
        let source = self.spec.data_source_ref.as_ref().or(self.spec.data_source.as_ref())?;
        (source.kind == kind).then_some(source.name.as_str())
    }

    /// Who is to provision it.
    #[must_use]
    pub fn provisioner(&self) -> Option<&str> {
        annotations::provisioner(self.metadata.annotations.as_ref())
    }

    /// The node that the scheduler has chosen.
    #[must_use]
    pub fn selected_node(&self) -> Option<&str> {
        annotations::selected_node(self.metadata.annotations.as_ref())
    }

    /// Name of its StorageClass.
    #[must_use]
    pub fn class_name(&self) -> &str {
        let field = self.spec.storage_class_name.as_deref();
        annotations::class_name(self.metadata.annotations.as_ref(), field)
    }

    /// Its names.
    #[must_use]
    pub fn named(&self) -> ProvisionedFor {
        let meta = &self.metadata;
        ProvisionedFor {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
        }
    }
}

/// What moor watches of a PersistentVolume.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Resource)]
#[resource(inherit = "PersistentVolume")]
pub struct WatchedPersistentVolume {
    /// Name, UID and version.
    #[serde(deserialize_with = "without_annotations")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    spec: VolumeSpec,
    #[serde(default)]
    status: VolumeStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct VolumeSpec {
    csi: Option<Source>,
    #[serde(default)]
    persistent_volume_reclaim_policy: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Source {
    #[serde(default)]
    driver: String,
    #[serde(default)]
    volume_handle: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
struct VolumeStatus {
    #[serde(default)]
    phase: String,
}

impl WatchedPersistentVolume {
    /// Whether nobody claims it any more, or it is being deleted.
    #[must_use]
    pub fn ends(&self) -> bool {
        let unclaimed = matches!(self.status.phase.as_str(), "Released" | "Failed");
        self.spec.csi.is_some() && (unclaimed || self.metadata.deletion_timestamp.is_some())
    }

    /// Whether its storage is to go when it does, and nothing keeps it until then.
    #[must_use]
    pub fn is_unheld(&self) -> bool {
        let held = has_finalizer(&self.metadata, FINALIZER);
        let goes = self.spec.persistent_volume_reclaim_policy == "Delete";
        self.spec.csi.is_some() && goes && !held && self.status.phase == "Bound"
    }

    /// Whether a provisioner may have something to do about it.
    #[must_use]
    pub fn concerns(&self) -> bool {
        self.ends() || self.is_unheld()
    }

    /// Its driver.
    #[must_use]
    pub fn driver(&self) -> &str {
        self.spec.csi.as_ref().map_or("", |source| &source.driver)
    }

    /// What its driver calls the volume.
    #[must_use]
    pub fn volume_handle(&self) -> &str {
        self.spec.csi.as_ref().map_or("", |source| &source.volume_handle)
    }
}

/// As much of metadata as a cache needs.
fn lean(meta: ObjectMeta, annotations: Option<BTreeMap<String, String>>) -> ObjectMeta {
    ObjectMeta {
        name: meta.name,
        namespace: meta.namespace,
        uid: meta.uid,
        resource_version: meta.resource_version,
        deletion_timestamp: meta.deletion_timestamp,
        // That there are any says that a deleted object stays.
        finalizers: meta.finalizers,
        annotations,
        ..ObjectMeta::default()
    }
}

fn with_decisive_annotations<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let mut meta = ObjectMeta::deserialize(deserializer)?;
    let mut kept = meta.annotations.take().unwrap_or_default();
    kept.retain(|key, _| annotations::decisive(key));
    Ok(lean(meta, Some(kept).filter(|kept| !kept.is_empty())))
}

fn without_annotations<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    Ok(lean(ObjectMeta::deserialize(deserializer)?, None))
}

#[cfg(test)]
#[path = "watched_tests.rs"]
mod tests;
