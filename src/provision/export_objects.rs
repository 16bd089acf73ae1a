//! The PersistentVolumeClaim by which Pods use a Volume of a user, and the PersistentVolume that it is bound to.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, ObjectReference, PersistentVolume, PersistentVolumeClaim,
    PersistentVolumeClaimSpec, PersistentVolumeSpec, SecretReference, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::persistent_volume::node_affinity;
use crate::api::secrets::{SecretFor, SecretName};
use crate::api::{AccessMode, AttachmentMode, Volume, names, quantity};

/// On what is made for a Volume: the Volume's UID.
const VOLUME_UID: &str = "moor.dev/volume-uid";
/// On what is made for a Volume: the Volume as namespace/name, for people.
const VOLUME: &str = "moor.dev/volume";

/// What is made for a Volume, as far as it is not written on the Volume itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    /// The name of the driver at kubelets.
    pub(super) driver: &'a str,
    /// The volume id, as the Volume's VolumeHandle has it: what the lock is on, and no word of a status.
    pub(super) volume_handle: &'a str,
}

/// How Pods use a Volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Use {
    /// In Kubernetes' words. kubelet asks for the first one.
    modes: Vec<String>,
    is_block: bool,
}

/// How Pods use a Volume; Err says why they cannot. A PersistentVolume is either a file system or a device: the first, where
/// the Volume has both. kubelet asks in the first mode whatever a Pod does, so writers come before readers; beside
/// ReadWriteOncePod the API server takes no other mode.
pub(super) fn use_of(volume: &Volume) -> Result<Use, String> {
    let uses = volume.uses();
    let is_block = !uses.iter().any(|one| one.attachment_mode == AttachmentMode::FileSystem);
    let shown = if is_block { AttachmentMode::BlockDevice } else { AttachmentMode::FileSystem };
    let has = |mode| uses.iter().any(|one| one.attachment_mode == shown && one.access_mode == mode);
    let shared = [
        (AccessMode::MultiNodeMultiWriter, "ReadWriteMany"),
        (AccessMode::SingleNodeWriter, "ReadWriteOnce"),
    ];
    let mut modes: Vec<_> = shared.into_iter().filter(|(mode, _)| has(*mode)).map(|(_, word)| word).collect();
    if modes.is_empty() && has(AccessMode::SingleNodeSingleWriter) {
        modes.push("ReadWriteOncePod");
    } else if has(AccessMode::MultiNodeReader) {
        modes.push("ReadOnlyMany");
    }
    if modes.is_empty() {
        return Err(format!(
            "spec.capabilities has no accessMode with attachmentMode {shown} that Pods have (SingleNodeWriter, \
             SingleNodeSingleWriter, MultiNodeReader or MultiNodeMultiWriter): add one"
        ));
    }
    Ok(Use { modes: modes.into_iter().map(str::to_owned).collect(), is_block })
}

/// The Secrets that kubelet and the agents read for Pods: of the Volume's own namespace, or those of the Plugin.
struct Secrets {
    controller_publish: Option<SecretReference>,
    controller_expand: Option<SecretReference>,
    node_stage: Option<SecretReference>,
    node_publish: Option<SecretReference>,
    node_expand: Option<SecretReference>,
}

/// A kubelet reads every Secret that a bound PersistentVolume names, so none of another namespace gets there that a user has
/// named.
pub(super) fn names_foreign_secret(volume: &Volume) -> bool {
    volume.spec.secrets.as_ref().is_some_and(|secrets| secrets.names().any(|name| name.contains('/')))
}

fn secrets_of(volume: &Volume) -> Secrets {
    let own = volume.metadata.namespace.as_deref();
    let reference = |namespace: Option<&str>, name: &str| SecretReference {
        name: Some(name.to_owned()),
        namespace: namespace.map(str::to_owned),
    };
    let named = |call| match volume.secret(call)? {
        SecretName::OfUser(name) => (!name.contains('/')).then(|| reference(own, name)),
        SecretName::OfPlugin(name) => {
            let (namespace, name) = name.split_once('/')?;
            Some(reference(Some(namespace), name))
        }
    };
    // The agents go by the Volume. What else is named here only lets kubelets read it.
    let own_of =
        |call| named(call).filter(|_| volume.spec.secrets.as_ref().is_some_and(|s| s.own(call).is_some()));
    Secrets {
        controller_publish: own_of(SecretFor::ControllerPublish),
        controller_expand: own_of(SecretFor::ControllerExpand),
        node_stage: named(SecretFor::NodeStage),
        node_publish: named(SecretFor::NodePublish),
        node_expand: named(SecretFor::NodeExpand),
    }
}

/// The field of a PersistentVolume that cannot be changed and is not as it would be made now, if there is one: the name under
/// which the driver serves Pods, or a Secret that kubelet reads.
pub(super) fn outdated(
    volume: &Volume,
    driver: Option<&str>,
    persistent: &PersistentVolume,
) -> Option<&'static str> {
    let source = persistent.spec.as_ref()?.csi.as_ref()?;
    let secrets = secrets_of(volume);
    [
        ("spec.csi.driver", driver.is_none_or(|driver| driver == source.driver)),
        ("spec.csi.nodeStageSecretRef", source.node_stage_secret_ref == secrets.node_stage),
        ("spec.csi.nodePublishSecretRef", source.node_publish_secret_ref == secrets.node_publish),
    ]
    .into_iter()
    .find_map(|(field, is_same)| (!is_same).then_some(field))
}

/// The size of a Volume in bytes. Of one that was registered nobody may have said it, and Kubernetes wants to read one.
pub(super) fn size_of(volume: &Volume) -> i64 {
    let made = volume.status.as_ref().and_then(|status| status.capacity_bytes).filter(|bytes| *bytes > 0);
    let asked = || volume.spec.capacity.as_ref().and_then(|asked| quantity::bytes(asked).ok());
    made.or_else(asked).filter(|bytes| *bytes > 0).unwrap_or(1)
}

fn storage(volume: &Volume) -> BTreeMap<String, Quantity> {
    BTreeMap::from([("storage".to_owned(), Quantity(quantity::human(size_of(volume))))])
}

fn uid_of(volume: &Volume) -> &str {
    volume.metadata.uid.as_deref().unwrap_or_default()
}

fn marks(volume: &Volume) -> BTreeMap<String, String> {
    let owner = volume.reference();
    BTreeMap::from([
        (VOLUME_UID.to_owned(), owner.uid),
        (VOLUME.to_owned(), format!("{}/{}", owner.namespace, owner.name)),
    ])
}

/// The PersistentVolume. `claim_uid` is that of its PersistentVolumeClaim, if that is there already.
pub(super) fn persistent_volume(
    volume: &Volume,
    of: Source<'_>,
    claim: &str,
    claim_uid: Option<&str>,
    how: &Use,
) -> PersistentVolume {
    let options = volume.spec.mount_options.as_ref().filter(|_| !how.is_block);
    let status = volume.status.clone().unwrap_or_default();
    let secrets = secrets_of(volume);
    let source = CSIPersistentVolumeSource {
        driver: of.driver.to_owned(),
        volume_handle: of.volume_handle.to_owned(),
        fs_type: options.and_then(|options| options.fs_type.clone()),
        read_only: volume.spec.read_only.then_some(true),
        volume_attributes: Some(status.volume_context).filter(|context| !context.is_empty()),
        controller_publish_secret_ref: secrets.controller_publish,
        controller_expand_secret_ref: secrets.controller_expand,
        node_stage_secret_ref: secrets.node_stage,
        node_publish_secret_ref: secrets.node_publish,
        node_expand_secret_ref: secrets.node_expand,
    };
    let spec = PersistentVolumeSpec {
        access_modes: Some(how.modes.clone()),
        capacity: Some(storage(volume)),
        claim_ref: Some(ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("PersistentVolumeClaim".to_owned()),
            namespace: volume.metadata.namespace.clone(),
            name: Some(claim.to_owned()),
            uid: claim_uid.map(str::to_owned),
            ..ObjectReference::default()
        }),
        csi: Some(source),
        mount_options: (!how.is_block)
            .then(|| volume.mount_flags().to_vec())
            .filter(|flags| !flags.is_empty()),
        node_affinity: node_affinity(&status.accessible_topology),
        persistent_volume_reclaim_policy: Some("Retain".to_owned()),
        volume_mode: Some(volume_mode(how)),
        ..PersistentVolumeSpec::default()
    };
    PersistentVolume {
        metadata: ObjectMeta {
            name: Some(names::export(uid_of(volume))),
            annotations: Some(marks(volume)),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    }
}

/// The PersistentVolumeClaim. It names its PersistentVolume, so that it is bound to no other.
pub(super) fn claim(volume: &Volume, name: &str, how: &Use) -> PersistentVolumeClaim {
    let resources = VolumeResourceRequirements { requests: Some(storage(volume)), ..Default::default() };
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: volume.metadata.namespace.clone(),
            annotations: Some(marks(volume)),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(how.modes.clone()),
            resources: Some(resources),
            // Said, so that no default class is put there.
            storage_class_name: Some(String::new()),
            volume_mode: Some(volume_mode(how)),
            volume_name: Some(names::export(uid_of(volume))),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    }
}

fn volume_mode(how: &Use) -> String {
    if how.is_block { "Block" } else { "Filesystem" }.to_owned()
}

fn is_marked(meta: &ObjectMeta, volume: &Volume) -> bool {
    let mark = meta.annotations.as_ref().and_then(|all| all.get(VOLUME_UID));
    mark.is_some_and(|mark| !mark.is_empty() && mark == uid_of(volume))
}

/// Whether a PersistentVolumeClaim was made for the Volume. Its volumeName cannot be changed, and names the Volume's UID.
pub(super) fn is_claim_of(volume: &Volume, found: &PersistentVolumeClaim) -> bool {
    let named = found.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
    is_marked(&found.metadata, volume) && named == Some(&names::export(uid_of(volume)))
}

/// Whether a PersistentVolume under the Volume's own name for one was made for the Volume: of this storage and for this
/// namespace.
pub(super) fn is_persistent_volume_of(
    volume: &Volume,
    found: &PersistentVolume,
    volume_handle: Option<&str>,
) -> bool {
    let spec = found.spec.as_ref();
    let handle = spec.and_then(|spec| spec.csi.as_ref()).map(|csi| csi.volume_handle.as_str());
    let bound = spec.and_then(|spec| spec.claim_ref.as_ref()).and_then(|claim| claim.namespace.as_ref());
    is_marked(&found.metadata, volume)
        && found.metadata.name.as_deref() == Some(&names::export(uid_of(volume)))
        && handle.is_some()
        && volume_handle.is_none_or(|wanted| handle == Some(wanted))
        && bound.is_some()
        && bound == volume.metadata.namespace.as_ref()
}

/// For whom a PersistentVolumeClaim was made that is another Volume's, in words.
pub(super) fn whose(found: &PersistentVolumeClaim) -> String {
    let owner = found.metadata.annotations.as_ref().and_then(|all| all.get(VOLUME));
    owner.map_or_else(
        || "was not made for this Volume".to_owned(),
        |owner| format!("was made for Volume {owner}"),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// kubelet reads what is named for it, and nothing is named that it does not need.
    #[test]
    fn a_plugins_secrets_are_named_where_kubelet_reads_them() {
        let volume: Volume = serde_json::from_value(json!({
            "metadata": { "name": "data", "namespace": "shop" },
            "spec": {
                "pluginName": "p", "secrets": { "nodePublish": "own", "controllerExpand": "own" },
                "assignment": { "operation": "Create", "secrets": { "default": "keys/all" } },
            },
        }))
        .unwrap();
        let named = |secret: Option<SecretReference>| {
            secret.map(|s| format!("{}/{}", s.namespace.unwrap_or_default(), s.name.unwrap_or_default()))
        };
        let secrets = secrets_of(&volume);
        let (all, own) = (Some("keys/all".to_owned()), Some("shop/own".to_owned()));
        assert_eq!((named(secrets.node_stage), named(secrets.node_publish)), (all.clone(), own.clone()));
        assert_eq!(named(secrets.node_expand), all);
        assert_eq!((named(secrets.controller_publish), named(secrets.controller_expand)), (None, own));
        assert!(!names_foreign_secret(&volume), "a user has named none");
    }
}
