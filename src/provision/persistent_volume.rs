//! The PersistentVolume of a Volume that was provisioned, as the stock provisioner writes one.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectReference,
    PersistentVolume, PersistentVolumeSpec, SecretReference, VolumeNodeAffinity,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::annotations::{DELETION_SECRET, MODIFY_SECRET, PROVISIONED_BY};
use crate::api::attributes::IDENTITY;
use crate::api::provision::Provision;
use crate::api::quantity;
use crate::api::volume::Segments;
use crate::api::{AttachmentMode, Volume};
use crate::volume::handle_of;

/// Finalizer by which a provisioner keeps a PersistentVolume until its storage is gone. It has the stock one's name, so
/// that either finds what the other has made.
pub const FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";

/// Makes the PersistentVolume; None of a Volume that is not provisioned, or has no storage yet.
#[must_use]
pub fn persistent_volume(volume: &Volume) -> Option<PersistentVolume> {
    let (provision, status) = (volume.spec.persistent_volume.as_ref()?, volume.status.as_ref()?);
    let secrets = volume.spec.secrets.clone().unwrap_or_default();
    let block = is_block(volume);
    let mut attributes = status.volume_context.clone();
    attributes.insert(IDENTITY.to_owned(), identity_of(&provision.driver_name));
    let options = volume.spec.mount_options.as_ref().filter(|_| !block);
    let source = CSIPersistentVolumeSource {
        driver: provision.driver_name.clone(),
        volume_handle: handle_of(volume)?.to_owned(),
        fs_type: options.and_then(|options| options.fs_type.clone()),
        volume_attributes: Some(attributes),
        controller_publish_secret_ref: reference(secrets.controller_publish.as_deref()),
        node_stage_secret_ref: reference(secrets.node_stage.as_deref()),
        node_publish_secret_ref: reference(secrets.node_publish.as_deref()),
        controller_expand_secret_ref: reference(provision.controller_expand_secret.as_deref()),
        node_expand_secret_ref: reference(provision.node_expand_secret.as_deref()),
        ..CSIPersistentVolumeSource::default()
    };
    let spec = PersistentVolumeSpec {
        access_modes: Some(provision.access_modes.clone()),
        capacity: Some(BTreeMap::from([("storage".to_owned(), capacity(volume)?)])),
        claim_ref: Some(claim_ref(provision)),
        csi: Some(source),
        mount_options: (!block).then(|| volume.mount_flags().to_vec()).filter(|flags| !flags.is_empty()),
        node_affinity: node_affinity(&status.accessible_topology),
        persistent_volume_reclaim_policy: Some(provision.reclaim_policy.as_str().to_owned()),
        storage_class_name: Some(provision.storage_class_name.clone()),
        volume_attributes_class_name: provision.volume_attributes_class_name.clone(),
        volume_mode: Some(if block { "Block" } else { "Filesystem" }.to_owned()),
        ..PersistentVolumeSpec::default()
    };
    Some(PersistentVolume {
        metadata: ObjectMeta {
            name: Some(provision.name.clone()),
            annotations: Some(annotations(volume, provision)),
            finalizers: Some(vec![FINALIZER.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    })
}

/// What a PersistentVolume of the name that a Volume's is to have turns out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// The one that is to be made: for the same claim, and with the same storage.
    Own {
        /// Another provisioner of the driver has made it, which should not run beside moor.
        by_another: bool,
    },
    /// Another one. In words, what is different.
    Other(String),
}

/// Compares the PersistentVolume that is there with the one that is to be made.
#[must_use]
pub fn compare(wanted: &PersistentVolume, found: &PersistentVolume) -> Match {
    let storage = |pv: &PersistentVolume| {
        pv.spec.as_ref()?.csi.as_ref().map(|csi| (csi.driver.clone(), csi.volume_handle.clone()))
    };
    let claim = |pv: &PersistentVolume| pv.spec.as_ref()?.claim_ref.as_ref()?.uid.clone();
    if storage(wanted) != storage(found) {
        return Match::Other("it stands for other storage".to_owned());
    }
    if claim(wanted) != claim(found) {
        return Match::Other("its claimRef names another claim".to_owned());
    }
    let identity = |pv: &PersistentVolume| {
        pv.spec.as_ref()?.csi.as_ref()?.volume_attributes.as_ref()?.get(IDENTITY).cloned()
    };
    Match::Own { by_another: identity(wanted) != identity(found) }
}

/// What moor calls itself as the provisioner of a driver's volumes.
fn identity_of(driver: &str) -> String {
    format!("moor-{driver}")
}

/// Whether the Volume is a raw device. A PersistentVolumeClaim asks for one of the two.
fn is_block(volume: &Volume) -> bool {
    volume.spec.capabilities.iter().any(|c| c.attachment_mode == AttachmentMode::BlockDevice)
}

/// What the driver says that it has made, else what was asked for.
fn capacity(volume: &Volume) -> Option<Quantity> {
    let made = volume.status.as_ref()?.capacity_bytes.filter(|bytes| *bytes > 0);
    let asked = || volume.spec.capacity.clone();
    made.map(|bytes| Quantity(quantity::human(bytes))).or_else(asked)
}

fn claim_ref(provision: &Provision) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolumeClaim".to_owned()),
        namespace: Some(provision.claim.namespace.clone()),
        name: Some(provision.claim.name.clone()),
        uid: Some(provision.claim.uid.clone()),
        ..ObjectReference::default()
    }
}

fn annotations(volume: &Volume, provision: &Provision) -> BTreeMap<String, String> {
    let deletion = volume.spec.secrets.as_ref().and_then(|secrets| secrets.controller.as_deref());
    let mut all = BTreeMap::from([(PROVISIONED_BY.to_owned(), provision.driver_name.clone())]);
    let mut put = |[name, namespace]: [&str; 2], secret: Option<&str>| {
        let (its_namespace, its_name) = secret.and_then(|s| s.split_once('/')).unwrap_or_default();
        all.insert(name.to_owned(), its_name.to_owned());
        all.insert(namespace.to_owned(), its_namespace.to_owned());
    };
    // Empty ones say that there is none.
    put(DELETION_SECRET, deletion);
    if let Some(modify) = provision.controller_modify_secret.as_deref() {
        put(MODIFY_SECRET, Some(modify));
    }
    all
}

/// One term for each place from which the volume can be reached.
pub(super) fn node_affinity(places: &[Segments]) -> Option<VolumeNodeAffinity> {
    let term = |place: &Segments| {
        let one = |(key, value): (&String, &String)| NodeSelectorRequirement {
            key: key.clone(),
            operator: "In".to_owned(),
            values: Some(vec![value.clone()]),
        };
        NodeSelectorTerm {
            match_expressions: Some(place.segments.iter().map(one).collect()),
            ..NodeSelectorTerm::default()
        }
    };
    let node_selector_terms: Vec<_> = places.iter().map(term).collect();
    let required = Some(NodeSelector { node_selector_terms }).filter(|_| !places.is_empty());
    required.map(|required| VolumeNodeAffinity { required: Some(required) })
}

fn reference(secret: Option<&str>) -> Option<SecretReference> {
    let (namespace, name) = secret?.split_once('/')?;
    Some(SecretReference { name: Some(name.to_owned()), namespace: Some(namespace.to_owned()) })
}

#[cfg(test)]
#[path = "persistent_volume_tests.rs"]
mod tests;
