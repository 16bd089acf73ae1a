//! The Volume that moor makes of a PersistentVolume.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{PersistentVolume, SecretReference};
use kube::api::ObjectMeta;

use crate::api::attributes::{differing, of_driver};
use crate::api::capability::{AccessMode, AttachmentMode, MountOptions, VolumeUse};
use crate::api::secrets::SecretRefs;
use crate::api::volume::{DeletionPolicy, VolumeSpec};
use crate::api::{Volume, names};

/// Where the Volume is to be, and of whom.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// moor's own namespace.
    pub namespace: &'a str,
    /// The Plugin that serves the driver.
    pub plugin: &'a str,
    /// Name of the VolumeHandle of what the PersistentVolume stands for.
    pub handle_name: &'a str,
    /// The Secret of DeleteVolume, as namespace/name.
    pub deletion_secret: Option<&'a str>,
    /// The Secret of ControllerModifyVolume, as namespace/name.
    pub modify_secret: Option<&'a str>,
}

/// The Volume of a PersistentVolume, as it is now: what is changed in the PersistentVolume later, or said otherwise by another
/// one of the same storage, changes nothing here. None if it has no CSI source.
///
/// Its storage stays when it is deleted, unless a PersistentVolume ends whose policy says otherwise, and nothing is asked of
/// the driver: whoever has bound the PersistentVolume has taken it as it is.
#[must_use]
pub fn volume_of(persistent: &PersistentVolume, place: Place<'_>) -> Option<Volume> {
    let spec = persistent.spec.as_ref()?;
    let csi = spec.csi.as_ref()?;
    let is_block = spec.volume_mode.as_deref() == Some("Block");
    let mut fs_type = csi.fs_type.clone().filter(|fs_type| !fs_type.is_empty());
    let mut mount_flags = spec.mount_options.clone().unwrap_or_default();
    if is_block {
        (fs_type, mount_flags) = (None, Vec::new());
    }
    let has_options = fs_type.is_some() || !mount_flags.is_empty();
    let secrets = SecretRefs {
        controller: place.deletion_secret.map(str::to_owned),
        controller_publish: secret(csi.controller_publish_secret_ref.as_ref()),
        controller_expand: secret(csi.controller_expand_secret_ref.as_ref()),
        controller_modify: place.modify_secret.map(str::to_owned),
        node_stage: secret(csi.node_stage_secret_ref.as_ref()),
        node_publish: secret(csi.node_publish_secret_ref.as_ref()),
        ..SecretRefs::default()
    };
    Some(Volume {
        metadata: ObjectMeta {
            name: Some(names::imported_volume(place.handle_name)),
            namespace: Some(place.namespace.to_owned()),
            ..ObjectMeta::default()
        },
        spec: VolumeSpec {
            plugin_name: place.plugin.to_owned(),
            volume_handle: Some(csi.volume_handle.clone()),
            volume_context: csi.volume_attributes.as_ref().map(of_driver).unwrap_or_default(),
            capabilities: uses(spec.access_modes.iter().flatten(), is_block),
            mount_options: has_options.then(|| Box::new(MountOptions { fs_type, mount_flags })),
            read_only: csi.read_only == Some(true),
            secrets: (!secrets.is_empty()).then(|| secrets.into()),
            deletion_policy: Some(DeletionPolicy::Retain),
            ..VolumeSpec::default()
        },
        status: None,
    })
}

/// Whether a Volume that was made of one PersistentVolume would be given to its driver otherwise if it were made of this one, of
/// which `wanted` would be made. What can be changed in a PersistentVolume that is there does not count.
#[must_use]
pub fn is_given_otherwise(imported: &VolumeSpec, wanted: &VolumeSpec) -> bool {
    let fixed = |spec: &VolumeSpec| {
        let SecretRefs { controller_publish, node_stage, node_publish, .. } =
            spec.secrets.as_deref().cloned().unwrap_or_default();
        (spec.read_only, controller_publish, node_stage, node_publish)
    };
    !differing(&imported.volume_context, &wanted.volume_context).is_empty()
        || fixed(imported) != fixed(wanted)
}

/// What kubelet may ask for. Of a mode that this version does not know it asks for nothing.
fn uses<'a>(modes: impl Iterator<Item = &'a String>, is_block: bool) -> Vec<VolumeUse> {
    let attachment_mode = if is_block { AttachmentMode::BlockDevice } else { AttachmentMode::FileSystem };
    let known: BTreeSet<AccessMode> = modes.filter_map(|mode| access_mode(mode)).collect();
    known.into_iter().map(|access_mode| VolumeUse { access_mode, attachment_mode }).collect()
}

/// A PersistentVolume's access mode, as kubelet says it to the driver's socket.
fn access_mode(mode: &str) -> Option<AccessMode> {
    match mode {
        "ReadWriteOnce" => Some(AccessMode::SingleNodeWriter),
        "ReadWriteOncePod" => Some(AccessMode::SingleNodeSingleWriter),
        "ReadOnlyMany" => Some(AccessMode::MultiNodeReader),
        "ReadWriteMany" => Some(AccessMode::MultiNodeMultiWriter),
        _ => None,
    }
}

fn secret(named: Option<&SecretReference>) -> Option<String> {
    let SecretReference { name, namespace } = named?;
    Some(format!("{}/{}", namespace.as_deref()?, name.as_deref()?))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;
    use crate::api::attributes::IDENTITY;

    fn imported(change: impl FnOnce(&mut Value)) -> Volume {
        let mut spec = json!({
            "accessModes": ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteOnce"], "capacity": { "storage": "1Gi" },
            "persistentVolumeReclaimPolicy": "Delete", "mountOptions": ["noatime"],
            "csi": { "driver": "d", "volumeHandle": "vol-1", "fsType": "xfs", "volumeAttributes": { "a": "b", IDENTITY: "1700-d" },
                     "nodeStageSecretRef": { "name": "key", "namespace": "team" } },
        });
        change(&mut spec);
        let object = json!({ "metadata": { "name": "pv" }, "spec": spec });
        let place = Place {
            namespace: "moor",
            plugin: "p",
            handle_name: "h",
            deletion_secret: Some("keys/delete"),
            modify_secret: Some("keys/modify"),
        };
        volume_of(&serde_json::from_value(object).unwrap(), place).unwrap()
    }

    #[test]
    fn it_has_what_the_calls_need_and_leaves_the_storage() {
        let volume = imported(|_| {});
        assert_eq!(volume.metadata.name.as_deref(), Some("pv-h"));
        let spec = volume.spec;
        assert_eq!((spec.volume_handle.as_deref(), spec.plugin_name.as_str()), (Some("vol-1"), "p"));
        assert_eq!(spec.deletion_policy, Some(DeletionPolicy::Retain), "whatever the reclaim policy");
        let options = spec.mount_options.unwrap();
        assert_eq!(
            (options.fs_type.as_deref(), options.mount_flags),
            (Some("xfs"), vec!["noatime".to_owned()])
        );
        assert_eq!(spec.volume_context, BTreeMap::from([("a".to_owned(), "b".to_owned())]));
        let secrets = spec.secrets.unwrap();
        assert_eq!(
            (secrets.node_stage.as_deref(), secrets.controller.as_deref()),
            (Some("team/key"), Some("keys/delete"))
        );
        assert_eq!(secrets.controller_modify.as_deref(), Some("keys/modify"));
        let modes: Vec<_> = spec.capabilities.iter().map(|u| u.access_mode).collect();
        assert_eq!(modes, [AccessMode::SingleNodeWriter, AccessMode::MultiNodeReader]);
        assert!(!spec.read_only);
    }

    #[test]
    fn a_raw_device_has_no_file_system_and_no_flags() {
        let volume = imported(|spec| spec["volumeMode"] = "Block".into());
        assert!(volume.spec.mount_options.is_none());
        assert!(volume.spec.capabilities.iter().all(|u| u.attachment_mode == AttachmentMode::BlockDevice));
    }

    #[test]
    fn one_that_is_only_read_is_attached_so() {
        let volume = imported(|spec| {
            spec["csi"]["readOnly"] = true.into();
            spec["csi"]["nodeStageSecretRef"] = json!({ "name": "key" });
        });
        let staged = volume.spec.secrets.and_then(|secrets| secrets.node_stage);
        assert!(volume.spec.read_only && staged.is_none(), "a Secret of no namespace is none");
    }

    #[test]
    fn one_is_made_anew_for_what_the_driver_is_given_and_not_for_what_may_be_changed() {
        let is_otherwise =
            |change: fn(&mut Value)| is_given_otherwise(&imported(|_| {}).spec, &imported(change).spec);
        assert!(!is_otherwise(|_| {}));
        assert!(is_otherwise(|spec| spec["csi"]["volumeAttributes"] = json!({ "a": "c" })));
        assert!(is_otherwise(|spec| spec["csi"]["readOnly"] = true.into()));
        assert!(is_otherwise(|spec| spec["csi"]["nodeStageSecretRef"]["name"] = "other".into()));
        assert!(!is_otherwise(|spec| spec["csi"]["volumeAttributes"][IDENTITY] = "moor-d".into()));
        assert!(!is_otherwise(|spec| spec["mountOptions"] = json!(["ro"])));
        assert!(!is_otherwise(|spec| spec["accessModes"] = json!(["ReadWriteMany"])));
    }
}
