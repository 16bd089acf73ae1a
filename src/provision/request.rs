//! Whether a PersistentVolumeClaim is moor's to provision, and what Volume is made for it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec};
use k8s_openapi::api::storage::v1::{StorageClass, VolumeAttributesClass};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::annotations::{class_name, provisioner, selected_node};
use super::parameters::{For, Resolved, resolve};
use super::refusal::{Refusal, SizeError, Waiting};
use super::restore::{NoRestore, Restored, is_at, restored};
use super::source::{Copied, NoCopy, Source, SourceNow, copied, source};
use super::topology::{IsSource, NoPlace, Place, has, immediate, late, names_no_place};
use crate::api::capability::VolumeUse;
use crate::api::provision::{CopyOf, Provision, ProvisionedFor, ReclaimPolicy, provisioned_name};
use crate::api::quantity;
use crate::api::secrets::{SecretRefs, SecretTemplates};
use crate::api::source::VolumeSource;
use crate::api::volume::{DeletionPolicy, TopologyRequest, VolumeSpec};
use crate::api::{AccessMode, AttachmentMode, MountOptions, Volume};
use crate::plugin::secrets::{self, Subject};

/// What the provisioners of Kubernetes' own tree are called, before their names.
const IN_TREE: &str = "kubernetes.io/";

/// Everything the decision looks at.
#[derive(Clone, Debug)]
pub struct Asked<'a> {
    /// The claim, as it is now.
    pub claim: &'a PersistentVolumeClaim,
    /// Its StorageClass, if it is there.
    pub class: Option<&'a StorageClass>,
    /// The VolumeAttributesClass that it names, if that is there.
    pub attributes: Option<&'a VolumeAttributesClass>,
    /// The driver that the claim's provisioner is; None if moor serves none of that name.
    pub driver: Option<Served<'a>>,
    /// The claim of which the volume is to be a copy.
    pub source: SourceNow<'a>,
    /// Whether the node exists that the scheduler has chosen.
    pub node_exists: bool,
    /// moor's own namespace.
    pub namespace: &'a str,
}

/// A driver whose volumes moor serves to Pods.
#[derive(Clone, Debug)]
pub struct Served<'a> {
    /// Name of its Plugin.
    pub plugin: &'a str,
    /// Its name in PersistentVolumes.
    pub name: &'a str,
    /// The nodes that run it.
    pub places: &'a [Place],
    /// It is told where volumes are to be (`VOLUME_ACCESSIBILITY_CONSTRAINTS`); None until it has said what it can.
    pub has_topology: Option<bool>,
    /// It takes a VolumeAttributesClass's parameters (`MODIFY_VOLUME`).
    pub modifies: bool,
    /// It copies volumes (`CLONE_VOLUME`).
    pub clones: bool,
    /// It is told for which claim it makes a volume.
    pub extra_create_metadata: bool,
    /// Its volumes are made at their first consumer's and nowhere else.
    pub strict_topology: bool,
    /// Each place has storage of its own, where alone it finds what a volume is to be a copy of.
    pub is_local: bool,
    /// The file system of volumes whose class names none.
    pub default_fs_type: Option<&'a str>,
    /// The Secrets that its Plugin names, for calls for which the class names none.
    pub secrets: Option<&'a SecretTemplates>,
}

/// What is done about a claim that has no Volume.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Nothing: it is somebody else's to provision, or nobody's yet.
    NotOurs,
    /// Take the chosen node off the claim: it does not exist, and the scheduler chooses again.
    Unselect,
    /// Put the finalizer on the claim that is to be copied, which then stays until it is.
    Protect,
    /// Something that it needs is not there yet.
    Wait(Waiting),
    /// It cannot be provisioned as it is.
    Refuse(Refusal),
    /// Make this Volume.
    Make(Box<Volume>),
}

/// Why there is no Volume to make.
enum Unmet {
    Protect,
    Waiting(Waiting),
    Refusal(Refusal),
}

impl From<Refusal> for Unmet {
    fn from(refusal: Refusal) -> Self {
        Self::Refusal(refusal)
    }
}

impl From<NoPlace> for Unmet {
    fn from(none: NoPlace) -> Self {
        Self::Waiting(Waiting::NoPlace(none))
    }
}

/// Decides about a claim that has no Volume.
#[must_use]
pub fn request(asked: &Asked<'_>) -> Request {
    let (meta, nothing) = (&asked.claim.metadata, PersistentVolumeClaimSpec::default());
    let spec = asked.claim.spec.as_ref().unwrap_or(&nothing);
    let annotations = meta.annotations.as_ref();
    let Some(driver) = asked.driver.as_ref() else { return Request::NotOurs };
    let bound = spec.volume_name.as_ref().is_some_and(|name| !name.is_empty());
    if provisioner(annotations) != Some(driver.name) || bound || meta.deletion_timestamp.is_some() {
        return Request::NotOurs;
    }
    let class_name = class_name(annotations, spec.storage_class_name.as_deref());
    let Some(class) = asked.class else { return Request::Wait(Waiting::NoClass(class_name.to_owned())) };
    if class.provisioner != driver.name {
        // Kubernetes names the CSI driver on claims of classes that were written for the code it had in its own tree.
        if !class.provisioner.starts_with(IN_TREE) {
            return Request::NotOurs;
        }
        let (class, provisioner) = (class_name.to_owned(), class.provisioner.clone());
        return Request::Refuse(Refusal::InTree { class, provisioner, driver: driver.name.to_owned() });
    }
    let source = source(asked.claim);
    if source == Source::Others {
        // A populator makes this volume.
        return Request::NotOurs;
    }
    let is_late = class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer");
    let node = selected_node(annotations).filter(|_| is_late);
    match node {
        None if is_late => return Request::NotOurs,
        Some(_) if !asked.node_exists => return Request::Unselect,
        None | Some(_) => {}
    }
    let wanted = Wanted { spec, class, class_name, driver, node, source };
    match wanted.volume(asked) {
        Ok(volume) => Request::Make(Box::new(volume)),
        Err(Unmet::Protect) => Request::Protect,
        Err(Unmet::Waiting(waiting)) => Request::Wait(waiting),
        Err(Unmet::Refusal(refusal)) => Request::Refuse(refusal),
    }
}

/// A claim that is moor's, with what it needs.
struct Wanted<'a> {
    spec: &'a PersistentVolumeClaimSpec,
    class: &'a StorageClass,
    class_name: &'a str,
    driver: &'a Served<'a>,
    node: Option<&'a str>,
    source: Source<'a>,
}

impl Wanted<'_> {
    fn volume(self, asked: &Asked<'_>) -> Result<Volume, Unmet> {
        let meta = &asked.claim.metadata;
        if self.spec.selector.is_some() {
            return Err(Refusal::Selector.into());
        }
        let claim = ProvisionedFor {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
        };
        let name = provisioned_name(&claim.uid);
        let block = self.spec.volume_mode.as_deref() == Some("Block");
        let capabilities = self.capabilities(block)?;
        let bytes = self.capacity()?;
        let of = For {
            namespace: &claim.namespace,
            claim: &claim.name,
            annotations: meta.annotations.as_ref(),
            volume: &name,
        };
        let class = self.class_name.to_owned();
        let parameters = self.class.parameters.clone().unwrap_or_default();
        let Resolved { fs_type, driver: mut parameters, secrets } =
            resolve(&parameters, of).map_err(|error| Refusal::Parameters { class: class.clone(), error })?;
        let secrets = secrets.or(&self.secrets_of_plugin(of)?);
        if self.driver.extra_create_metadata {
            let told = [("pvc/name", &claim.name), ("pvc/namespace", &claim.namespace), ("pv/name", &name)];
            parameters.extend(told.map(|(key, value)| (format!("csi.storage.k8s.io/{key}"), value.clone())));
        }
        let mutable_parameters = self.attributes(asked.attributes)?;
        let reclaim_policy = match self.class.reclaim_policy.as_deref() {
            None | Some("Delete") => ReclaimPolicy::Delete,
            Some("Retain") => ReclaimPolicy::Retain,
            Some(other) => return Err(Refusal::ReclaimPolicy { class, policy: other.to_owned() }.into()),
        };
        let topology = self.topology(&claim.uid, asked.source)?;
        let source = self.restored(asked, bytes)?;
        // Last, since the claim that it names is kept from here on.
        let copy_of = self.copy_of(asked, bytes)?;
        let fs_type = fs_type.or_else(|| self.driver.default_fs_type.map(str::to_owned));
        let mount_options =
            MountOptions { fs_type, mount_flags: self.class.mount_options.clone().unwrap_or_default() };
        let mount_options = Some(mount_options).filter(|o| !block && *o != MountOptions::default());
        let refs = SecretRefs {
            controller: secrets.provisioner,
            controller_publish: secrets.controller_publish,
            node_stage: secrets.node_stage,
            node_publish: secrets.node_publish,
            // The PersistentVolume names the others, and so `persistentVolume` does.
            ..SecretRefs::default()
        };
        let provision = Provision {
            name: name.clone(),
            claim,
            driver_name: self.driver.name.to_owned(),
            storage_class_name: class,
            reclaim_policy,
            access_modes: self.spec.access_modes.clone().unwrap_or_default(),
            selected_node: self.node.map(str::to_owned),
            in_places: topology.is_some(),
            controller_expand_secret: secrets.controller_expand,
            node_expand_secret: secrets.node_expand,
            controller_modify_secret: secrets.controller_modify,
            volume_attributes_class_name: self.attributes_class().map(str::to_owned),
            copy_of,
        };
        let spec = VolumeSpec {
            plugin_name: self.driver.plugin.to_owned(),
            capacity: Some(Quantity(quantity::human(bytes))),
            parameters,
            mutable_parameters,
            create_name: Some(name.clone()),
            source: source.map(Box::new),
            capabilities,
            mount_options: mount_options.map(Box::new),
            secrets: Some(refs).filter(|refs| !refs.is_empty()).map(Box::new),
            topology: topology.map(Box::new),
            // Whoever deletes the Volume by hand leaves the storage. What becomes of it is decided when the
            // PersistentVolume goes.
            deletion_policy: Some(DeletionPolicy::Retain),
            persistent_volume: Some(provision.into()),
            ..VolumeSpec::default()
        };
        let metadata = ObjectMeta {
            name: Some(name),
            namespace: Some(asked.namespace.to_owned()),
            ..ObjectMeta::default()
        };
        Ok(Volume { metadata, spec, status: None })
    }

    /// The Secrets of the Plugin, as the templates in a StorageClass are resolved.
    fn secrets_of_plugin(&self, of: For<'_>) -> Result<SecretRefs, Refusal> {
        let Some(templates) = self.driver.secrets else { return Ok(SecretRefs::default()) };
        let subject = Subject { namespace: of.namespace, name: of.claim, persistent_volume: of.volume };
        Ok(secrets::resolve(self.driver.plugin, templates, subject)?)
    }

    fn capabilities(&self, block: bool) -> Result<Vec<VolumeUse>, Refusal> {
        let attachment_mode = if block { AttachmentMode::BlockDevice } else { AttachmentMode::FileSystem };
        let of = |mode: &String| {
            let access_mode = match mode.as_str() {
                "ReadWriteOnce" => AccessMode::SingleNodeWriter,
                "ReadWriteOncePod" => AccessMode::SingleNodeSingleWriter,
                "ReadOnlyMany" => AccessMode::MultiNodeReader,
                "ReadWriteMany" => AccessMode::MultiNodeMultiWriter,
                other => return Err(Refusal::AccessMode(other.to_owned())),
            };
            Ok(VolumeUse { access_mode, attachment_mode })
        };
        let modes = self.spec.access_modes.iter().flatten().map(of).collect::<Result<Vec<_>, _>>()?;
        if modes.is_empty() { Err(Refusal::AccessMode(String::new())) } else { Ok(modes) }
    }

    fn copy_of(&self, asked: &Asked<'_>, bytes: i64) -> Result<Option<CopyOf>, Unmet> {
        let name = match self.source {
            Source::None | Source::Others | Source::Snapshot(_) | Source::SnapshotElsewhere(_) => {
                return Ok(None);
            }
            Source::Elsewhere(of) => return Err(Refusal::Copy(NoCopy::Elsewhere(of.to_owned())).into()),
            Source::Claim(_) if !self.driver.clones => return Err(Refusal::Copy(NoCopy::Unsupported).into()),
            Source::Claim(name) => name,
        };
        match copied(asked.claim, name, asked.source, self.driver.name, bytes) {
            Copied::Of(copy) => Ok(Some(copy)),
            Copied::Protect => Err(Unmet::Protect),
            Copied::Waits(why) => Err(Unmet::Waiting(why.into())),
            Copied::Refused(why) => Err(Refusal::Copy(why).into()),
        }
    }

    /// The Snapshot of which the volume is to be made.
    fn restored(&self, asked: &Asked<'_>, bytes: i64) -> Result<Option<VolumeSource>, Unmet> {
        let name = match self.source {
            Source::Snapshot(name) => name,
            Source::SnapshotElsewhere(of) => {
                return Err(Refusal::Restore(NoRestore::Elsewhere(of.to_owned())).into());
            }
            Source::None | Source::Claim(_) | Source::Elsewhere(_) | Source::Others => return Ok(None),
        };
        match restored(asked.claim, name, asked.source.restore, self.driver.name, bytes) {
            Restored::From(kept) => Ok(Some(VolumeSource { snapshot_name: Some(kept), volume_name: None })),
            Restored::Waits(why) => Err(Unmet::Waiting(why.into())),
            Restored::Refused(why) => Err(Refusal::Restore(why).into()),
        }
    }

    /// What is asked for, in bytes.
    fn capacity(&self) -> Result<i64, Refusal> {
        let requests = self.spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        let asked = requests.and_then(|requests| requests.get("storage"));
        let asked = asked.ok_or(Refusal::Size(SizeError::Missing))?;
        match quantity::bytes(asked).map_err(|error| Refusal::Size(error.into()))? {
            0 => Err(Refusal::Size(SizeError::Zero)),
            bytes => Ok(bytes),
        }
    }

    fn attributes_class(&self) -> Option<&str> {
        self.spec.volume_attributes_class_name.as_deref().filter(|name| !name.is_empty())
    }

    fn attributes(&self, found: Option<&VolumeAttributesClass>) -> Result<BTreeMap<String, String>, Unmet> {
        let Some(name) = self.attributes_class() else { return Ok(BTreeMap::new()) };
        let found = found.ok_or_else(|| Unmet::Waiting(Waiting::NoAttributes(name.to_owned())))?;
        if found.driver_name != self.driver.name {
            let (class, of, driver) =
                (name.to_owned(), found.driver_name.clone(), self.driver.name.to_owned());
            return Err(Refusal::AttributesOfAnother { class, of, driver }.into());
        }
        if !self.driver.modifies {
            return Err(Refusal::NoModify.into());
        }
        Ok(found.parameters.clone().unwrap_or_default())
    }

    fn topology(&self, uid: &str, source: SourceNow<'_>) -> Result<Option<TopologyRequest>, NoPlace> {
        // What is made without a place stays where it is, so nothing is made before that is known.
        if !self.driver.has_topology.ok_or(NoPlace::Unheard)? {
            return Ok(None);
        }
        let allowed = self.class.allowed_topologies.as_deref().unwrap_or_default();
        let (places, strict) = (self.driver.places, self.driver.strict_topology);
        if allowed.is_empty() && names_no_place(places) {
            return Ok(None);
        }
        let of = (source.volume, source.restore.kept);
        let is_source = |at: &BTreeMap<String, String>| match of {
            (Some(volume), _) => has(volume, at),
            (None, Some(kept)) => is_at(kept, at),
            (None, None) => false,
        };
        let Some(node) = self.node else { return immediate(places, allowed, uid, is_source).map(Some) };
        // Only a source of which it is known where it is.
        let has_place = places.iter().any(|place| is_source(&place.segments));
        let source = (self.driver.is_local && has_place).then_some(&is_source as IsSource<'_>);
        late(places, node, allowed, strict, source).map(Some)
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
