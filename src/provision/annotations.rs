//! The annotations by which Kubernetes' own controllers and a provisioner speak to each other.

use std::collections::BTreeMap;

/// On a PersistentVolumeClaim: who is to provision it. kube-controller-manager writes it once it has found no PersistentVolume
/// that fits.
const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// Its earlier name.
const BETA_STORAGE_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// On a PersistentVolumeClaim: the StorageClass, before `spec.storageClassName`.
const BETA_STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// On a PersistentVolumeClaim: the node that the scheduler has chosen for its first consumer. Taken off, the scheduler chooses
/// again.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// On a PersistentVolume: who made it, and so who deletes its storage.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";

/// On a PersistentVolume: name and namespace of the Secret of DeleteVolume, which is needed when the StorageClass may be gone.
pub(super) const DELETION_SECRET: [&str; 2] = [
    "volume.kubernetes.io/provisioner-deletion-secret-name",
    "volume.kubernetes.io/provisioner-deletion-secret-namespace",
];

/// On a PersistentVolume: name and namespace of the Secret of ControllerModifyVolume.
pub(super) const MODIFY_SECRET: [&str; 2] = [
    "volume.kubernetes.io/controller-modify-secret-name",
    "volume.kubernetes.io/controller-modify-secret-namespace",
];

/// Annotations as objects have them.
pub(super) type Annotations = BTreeMap<String, String>;

/// An annotation that is there and says something.
pub(super) fn annotation<'a>(annotations: Option<&'a Annotations>, key: &str) -> Option<&'a str> {
    annotations?.get(key).map(String::as_str).filter(|value| !value.is_empty())
}

/// Who is to provision the PersistentVolumeClaim with these annotations.
#[must_use]
pub fn provisioner(annotations: Option<&Annotations>) -> Option<&str> {
    annotation(annotations, STORAGE_PROVISIONER).or_else(|| annotation(annotations, BETA_STORAGE_PROVISIONER))
}

/// The node that the scheduler has chosen.
#[must_use]
pub fn selected_node(annotations: Option<&Annotations>) -> Option<&str> {
    annotation(annotations, SELECTED_NODE)
}

/// The Secret of DeleteVolume that a PersistentVolume names, as namespace/name.
#[must_use]
pub fn deletion_secret(annotations: Option<&Annotations>) -> Option<String> {
    secret(annotations, DELETION_SECRET)
}

/// The Secret of ControllerModifyVolume that a PersistentVolume names, as namespace/name.
#[must_use]
pub fn modify_secret(annotations: Option<&Annotations>) -> Option<String> {
    secret(annotations, MODIFY_SECRET)
}

fn secret(annotations: Option<&Annotations>, keys: [&str; 2]) -> Option<String> {
    let [name, namespace] = keys.map(|key| annotation(annotations, key));
    Some(format!("{}/{}", namespace?, name?))
}

/// The StorageClass of a PersistentVolumeClaim. The annotation counts before the field, as it does in Kubernetes.
pub(super) fn class_name<'a>(annotations: Option<&'a Annotations>, field: Option<&'a str>) -> &'a str {
    annotation(annotations, BETA_STORAGE_CLASS).or(field).unwrap_or_default()
}

/// Those of the annotations that decide when a PersistentVolumeClaim is looked at.
pub(super) fn decisive(key: &str) -> bool {
    [STORAGE_PROVISIONER, BETA_STORAGE_PROVISIONER, BETA_STORAGE_CLASS, SELECTED_NODE].contains(&key)
}
