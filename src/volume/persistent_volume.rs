//! A PersistentVolume without its weight, and which volume of a driver it stands for.
//!
//! One with an in-tree source is served by that source's CSI driver through migration. Where its volume has the same
//! name in both, that name is compared as `k8s.io/csi-translation-lib` translates it (1.34); where it has not, whatever
//! could be the same counts as perhaps the same.

use k8s_openapi::{api::core::v1::PersistentVolume, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::Resource;
use serde::{Deserialize, Deserializer};

/// What moor reads of a PersistentVolume.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Resource)]
#[resource(inherit = "PersistentVolume")]
pub struct LeanPersistentVolume {
    /// The PersistentVolume's name and UID, and nothing else.
    #[serde(deserialize_with = "name_and_uid")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    csi: Option<CsiSource>,
    aws_elastic_block_store: Option<Source>,
    gce_persistent_disk: Option<Source>,
    azure_disk: Option<Source>,
    azure_file: Option<Source>,
    cinder: Option<Source>,
    vsphere_volume: Option<Source>,
    portworx_volume: Option<Source>,
}

/// The name of the volume, in whichever of these fields the kind of source has it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
struct Source {
    #[serde(
        default,
        alias = "volumeID",
        alias = "pdName",
        alias = "diskURI",
        alias = "shareName",
        alias = "volumePath"
    )]
    id: String,
}

/// The part of a PersistentVolume's CSI source that says which volume of which driver it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CsiSource {
    /// The driver.
    #[serde(default)]
    pub driver: String,
    /// What the driver calls the volume.
    #[serde(default)]
    pub volume_handle: String,
}

/// How a PersistentVolume names a volume of a driver, which it stands for and Kubernetes' own CSI stack then has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Naming {
    /// Name of the PersistentVolume.
    pub name: String,
    /// The field of its spec that says so.
    pub field: &'static str,
    /// Whether the PersistentVolume certainly names the volume. Otherwise it names one in another way than the driver
    /// does, which may be the same.
    pub certain: bool,
}

/// How an in-tree source compares with a handle of its CSI driver.
type Compare = fn(&Source, &str) -> Option<bool>;

impl CsiSource {
    /// The volume that a driver of another name knows by the same id.
    #[must_use]
    pub fn as_driver(&self, name: &str) -> Self {
        Self { driver: name.to_owned(), volume_handle: self.volume_handle.clone() }
    }
}

impl LeanPersistentVolume {
    /// The PersistentVolume's CSI source, if it has one.
    #[must_use]
    pub fn csi(&self) -> Option<&CsiSource> {
        self.spec.csi.as_ref()
    }

    /// Whether this PersistentVolume stands for this volume.
    #[must_use]
    pub fn names(&self, volume: &CsiSource) -> Option<Naming> {
        let name = self.metadata.name.clone().unwrap_or_default();
        if let Some(csi) = &self.spec.csi {
            return (csi == volume).then_some(Naming { name, field: "csi", certain: true });
        }
        let (field, successor, source, compare) = self.in_tree()?;
        if successor != volume.driver {
            return None;
        }
        let certain = compare(source, &volume.volume_handle)?;
        Some(Naming { name, field, certain })
    }

    /// The in-tree source of this PersistentVolume, with the CSI driver that serves it.
    fn in_tree(&self) -> Option<(&'static str, &'static str, &Source, Compare)> {
        let spec = &self.spec;
        let all: [(_, _, _, Compare); 7] = [
            ("awsElasticBlockStore", "ebs.csi.aws.com", &spec.aws_elastic_block_store, last_part),
            ("gcePersistentDisk", "pd.csi.storage.gke.io", &spec.gce_persistent_disk, disk_name),
            ("azureDisk", "disk.csi.azure.com", &spec.azure_disk, whole),
            ("azureFile", "file.csi.azure.com", &spec.azure_file, share),
            ("cinder", "cinder.csi.openstack.org", &spec.cinder, whole),
            ("vsphereVolume", "csi.vsphere.vmware.com", &spec.vsphere_volume, path),
            ("portworxVolume", "pxd.portworx.com", &spec.portworx_volume, name_or_number),
        ];
        all.into_iter().find_map(|(field, driver, source, compare)| {
            source.as_ref().map(|source| (field, driver, source, compare))
        })
    }
}

fn name_and_uid<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    struct Both {
        name: Option<String>,
        uid: Option<String>,
    }
    let Both { name, uid } = Both::deserialize(deserializer)?;
    Ok(ObjectMeta { name, uid, ..ObjectMeta::default() })
}

fn last(id: &str) -> &str {
    id.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}

/// Azure Disk and Cinder: the two are one text. Azure's resource names are compared without case.
fn whole(source: &Source, handle: &str) -> Option<bool> {
    source.id.trim_matches('/').eq_ignore_ascii_case(handle.trim_matches('/')).then_some(true)
}

/// EBS: `aws://ZONE/vol-1` and `vol-1` are one volume.
fn last_part(source: &Source, handle: &str) -> Option<bool> {
    last(&source.id).eq_ignore_ascii_case(last(handle)).then_some(true)
}

/// Persistent Disk: a handle says project and zone, the source only the disk. Another project may have a disk of that
/// name too.
fn disk_name(source: &Source, handle: &str) -> Option<bool> {
    last(&source.id).eq_ignore_ascii_case(last(handle)).then_some(false)
}

/// Azure File: a handle is `GROUP#ACCOUNT#SHARE#…`, or any text, and then the share is in the volume's context.
fn share(source: &Source, handle: &str) -> Option<bool> {
    let mut parts = handle.split('#').peekable();
    let free = handle.split('#').count() < 3;
    (free || parts.any(|part| last(part).eq_ignore_ascii_case(&source.id))).then_some(false)
}

/// vSphere: the source has the disk's path. A handle may be one too; where it is the id of a disk, that disk can have any
/// path.
fn path(source: &Source, handle: &str) -> Option<bool> {
    if handle.eq_ignore_ascii_case(&source.id) {
        return Some(true);
    }
    let is_path = handle.to_ascii_lowercase().ends_with(".vmdk");
    (!is_path).then_some(false)
}

/// Portworx: a volume has a name and a number, and either may be in both places.
fn name_or_number(source: &Source, handle: &str) -> Option<bool> {
    if source.id.eq_ignore_ascii_case(handle) {
        return Some(true);
    }
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    (is_number(&source.id) != is_number(handle)).then_some(false)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const DISK: &str = "/subscriptions/1-2/resourceGroups/mc_group/providers/Microsoft.Compute/disks/pvc-3-4";

    fn of(spec: &serde_json::Value) -> LeanPersistentVolume {
        let metadata = json!({ "name": "pv", "uid": "u", "annotations": { "a": "b" } });
        let object =
            json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec });
        serde_json::from_value(object).unwrap()
    }

    fn volume(driver: &str, handle: &str) -> CsiSource {
        CsiSource { driver: driver.into(), volume_handle: handle.into() }
    }

    /// Whether a PersistentVolume with this source stands for the handle of a driver.
    fn names(field: &str, source: serde_json::Value, driver: &str, handle: &str) -> Option<bool> {
        let mut spec = json!({ "capacity": { "storage": "1Gi" }, "storageClassName": "s" });
        spec[field] = source;
        let naming = of(&spec).names(&volume(driver, handle))?;
        assert_eq!((naming.name.as_str(), naming.field), ("pv", field));
        Some(naming.certain)
    }

    #[test]
    fn of_a_csi_source_driver_and_handle_have_to_be_the_same_text() {
        let csi = |driver, handle| {
            let source = json!({ "driver": "d", "volumeHandle": "Vol-1", "volumeAttributes": { "x": "y" } });
            names("csi", source, driver, handle)
        };
        assert_eq!(csi("d", "Vol-1"), Some(true));
        assert_eq!((csi("d", "vol-1"), csi("e", "Vol-1")), (None, None));
    }

    #[test]
    fn only_its_name_and_uid_are_kept_of_its_metadata() {
        let read = of(&json!({ "nfs": { "server": "s", "path": "/" } }));
        let kept = ObjectMeta { name: Some("pv".into()), uid: Some("u".into()), ..ObjectMeta::default() };
        assert_eq!(read.metadata, kept);
        assert_eq!(read.names(&volume("d", "h")), None);
    }

    #[test]
    fn an_in_tree_source_stands_for_the_volume_of_its_csi_driver() {
        let ebs = |id: &str, handle| {
            names(
                "awsElasticBlockStore",
                json!({ "volumeID": id, "fsType": "ext4" }),
                "ebs.csi.aws.com",
                handle,
            )
        };
        assert_eq!(ebs("vol-1", "vol-1"), Some(true));
        assert_eq!(ebs("aws://eu-1a/vol-1", "vol-1"), Some(true));
        assert_eq!(ebs("aws://eu-1a/vol-1/", "vol-1"), Some(true));
        assert_eq!(ebs("aws://eu-1a/vol-1", "vol-12"), None);
        let disk = |id: &str, handle: &str| {
            names("azureDisk", json!({ "diskName": "d", "diskURI": id }), "disk.csi.azure.com", handle)
        };
        assert_eq!(disk(DISK, DISK), Some(true));
        assert_eq!(disk(DISK, &DISK.to_lowercase()), Some(true), "Azure does not know case");
        assert_eq!(disk(DISK, &DISK.replace("pvc-3-4", "pvc-3-5")), None);
        let cinder =
            |handle| names("cinder", json!({ "volumeID": "0a-1b" }), "cinder.csi.openstack.org", handle);
        assert_eq!((cinder("0a-1b"), cinder("0a-1c")), (Some(true), None));
        let other = names("cinder", json!({ "volumeID": "0a-1b" }), "ebs.csi.aws.com", "0a-1b");
        assert_eq!(other, None, "the volume of another driver");
    }

    #[test]
    fn what_the_driver_names_in_another_way_is_perhaps_the_same() {
        let gce = |handle| {
            names("gcePersistentDisk", json!({ "pdName": "disk-1" }), "pd.csi.storage.gke.io", handle)
        };
        assert_eq!(gce("projects/p/zones/z/disks/disk-1"), Some(false));
        assert_eq!(gce("projects/p/zones/z/disks/disk-12"), None);
        let file = |handle| {
            let source = json!({ "shareName": "share", "secretName": "s", "secretNamespace": "n" });
            names("azureFile", source, "file.csi.azure.com", handle)
        };
        assert_eq!(file("group#account#share#pv#n"), Some(false));
        assert_eq!(file("group#account#Share#"), Some(false));
        assert_eq!(file("group#account#other#"), None);
        assert_eq!(file("anything"), Some(false), "the share is elsewhere");
        let vsphere = |handle| {
            let source = json!({ "volumePath": "[store] kubevols/a.vmdk" });
            names("vsphereVolume", source, "csi.vsphere.vmware.com", handle)
        };
        assert_eq!(vsphere("[store] kubevols/a.vmdk"), Some(true));
        assert_eq!(vsphere("[store] kubevols/b.vmdk"), None);
        assert_eq!(vsphere("6a3f0c1e-0000"), Some(false));
        let portworx =
            |handle| names("portworxVolume", json!({ "volumeID": "data" }), "pxd.portworx.com", handle);
        assert_eq!((portworx("data"), portworx("other")), (Some(true), None));
        assert_eq!(portworx("1234567"), Some(false), "that of a name or another's");
    }
}
