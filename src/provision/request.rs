//! Whether a PersistentVolumeClaim is moor's to provision, and what Volume is made for it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec};
use k8s_openapi::api::storage::v1::{StorageClass, VolumeAttributesClass};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::annotations::{class_name, provisioner, selected_node};
use super::parameters::{For, ParameterError, Resolved, resolve};
use super::topology::{NoPlace, Place, immediate, late};
use crate::api::attachment::SecretRefs;
use crate::api::capability::VolumeUse;
use crate::api::provision::{Provision, ProvisionedFor, ReclaimPolicy, provisioned_name};
use crate::api::quantity::{self, QuantityError};
use crate::api::volume::{DeletionPolicy, TopologyRequest, VolumeSpec};
use crate::api::{AccessMode, AttachmentMode, MountOptions, Volume};

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
    /// It is told for which claim it makes a volume.
    pub extra_create_metadata: bool,
    /// Its volumes are made at their first consumer's and nowhere else.
    pub strict_topology: bool,
}

/// What is done about a claim that has no Volume.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Nothing: it is somebody else's to provision, or nobody's yet.
    NotOurs,
    /// Take the chosen node off the claim: it does not exist, and the scheduler chooses again.
    Unselect,
    /// Something that it needs is not there yet.
    Wait(Waiting),
    /// It cannot be provisioned as it is.
    Refuse(Refusal),
    /// Make this Volume.
    Make(Box<Volume>),
}

/// What a claim waits for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Waiting {
    /// Its StorageClass is not there.
    #[error("StorageClass {0:?} does not exist; the volume is made when it is created again")]
    NoClass(String),
    /// Its VolumeAttributesClass is not there.
    #[error("VolumeAttributesClass {0:?} does not exist; the volume is made when it is created")]
    NoAttributes(String),
    /// There is no place for it.
    #[error(transparent)]
    NoPlace(#[from] NoPlace),
}

/// Why a claim cannot be provisioned as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It selects PersistentVolumes.
    #[error(
        "spec.selector: a volume that is made for a claim has no labels to select it by; create the claim without, or a \
         PersistentVolume that has them"
    )]
    Selector,
    /// It asks for a copy.
    #[error("spec.dataSource: moor makes no volume from a {0}; create the claim without and copy the data")]
    DataSource(String),
    /// It has no access mode, or one that is not known.
    #[error(
        "spec.accessModes: {0:?} is none of ReadWriteOnce, ReadWriteOncePod, ReadOnlyMany and ReadWriteMany"
    )]
    AccessMode(String),
    /// It names no size.
    #[error("spec.resources.requests.storage: {0}")]
    Size(SizeError),
    /// The class says something that cannot be followed.
    #[error("StorageClass {class}: {error}")]
    Parameters {
        /// Name of the class.
        class: String,
        /// What.
        error: ParameterError,
    },
    /// The class has a reclaim policy that no CSI driver can follow.
    #[error("StorageClass {class}: reclaimPolicy {policy} is neither Delete nor Retain")]
    ReclaimPolicy {
        /// Name of the class.
        class: String,
        /// What it says.
        policy: String,
    },
    /// The VolumeAttributesClass is of another driver.
    #[error(
        "VolumeAttributesClass {class} is for the driver {of}, and the claim's StorageClass for {driver}"
    )]
    AttributesOfAnother {
        /// Name of the class.
        class: String,
        /// Its driver.
        of: String,
        /// The claim's.
        driver: String,
    },
    /// The driver takes no parameters of a VolumeAttributesClass.
    #[error("spec.volumeAttributesClassName: the driver has no MODIFY_VOLUME; create the claim without")]
    NoModify,
}

/// What is wrong with a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// There is none.
    #[error("it is not given")]
    Missing,
    /// It is nothing.
    #[error("it must be at least one byte")]
    Zero,
    /// It cannot be read.
    #[error("{0}")]
    Unreadable(String),
}

impl From<QuantityError> for SizeError {
    fn from(error: QuantityError) -> Self {
        Self::Unreadable(error.to_string())
    }
}

/// Why there is no Volume to make.
enum Unmet {
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
        return Request::NotOurs;
    }
    let source = match source(spec) {
        Source::None => None,
        Source::Ours(kind) => Some(kind),
        // A populator makes this volume.
        Source::Others => return Request::NotOurs,
    };
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
        Err(Unmet::Waiting(waiting)) => Request::Wait(waiting),
        Err(Unmet::Refusal(refusal)) => Request::Refuse(refusal),
    }
}

/// What a volume is to be made from.
enum Source {
    /// Nothing.
    None,
    /// Something from which the driver would make it; its kind.
    Ours(String),
    /// Something that another controller fills the volume from.
    Others,
}

fn source(spec: &PersistentVolumeClaimSpec) -> Source {
    let from = spec.data_source_ref.as_ref().map(|from| (from.api_group.as_deref(), &from.kind));
    let from = from.or_else(|| spec.data_source.as_ref().map(|from| (from.api_group.as_deref(), &from.kind)));
    // Also of another namespace, which nobody has granted.
    let elsewhere = spec.data_source_ref.as_ref().and_then(|from| from.namespace.as_deref());
    let of = elsewhere.map(|namespace| format!(" of namespace {namespace}")).unwrap_or_default();
    match from {
        None => Source::None,
        Some((None | Some(""), kind)) if kind == "PersistentVolumeClaim" => {
            Source::Ours(format!("{kind}{of}"))
        }
        Some((Some("snapshot.storage.k8s.io"), kind)) if kind == "VolumeSnapshot" => {
            Source::Ours(format!("{kind}{of}"))
        }
        Some(_) => Source::Others,
    }
}

/// A claim that is moor's, with what it needs.
struct Wanted<'a> {
    spec: &'a PersistentVolumeClaimSpec,
    class: &'a StorageClass,
    class_name: &'a str,
    driver: &'a Served<'a>,
    node: Option<&'a str>,
    source: Option<String>,
}

impl Wanted<'_> {
    fn volume(self, asked: &Asked<'_>) -> Result<Volume, Unmet> {
        let meta = &asked.claim.metadata;
        if self.spec.selector.is_some() {
            return Err(Refusal::Selector.into());
        }
        if let Some(kind) = self.source {
            return Err(Refusal::DataSource(kind).into());
        }
        let claim = ProvisionedFor {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
        };
        let name = provisioned_name(&claim.uid);
        let block = self.spec.volume_mode.as_deref() == Some("Block");
        let capabilities = self.capabilities(block)?;
        let capacity = self.capacity()?;
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
        let topology = self.topology(&claim.uid)?;
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
        };
        let spec = VolumeSpec {
            plugin_name: self.driver.plugin.to_owned(),
            capacity: Some(capacity),
            parameters,
            mutable_parameters,
            create_name: Some(name.clone()),
            capabilities,
            mount_options,
            secrets: Some(refs).filter(|refs| !refs.is_empty()),
            topology,
            // Whoever deletes the Volume by hand leaves the storage. What becomes of it is decided when the
            // PersistentVolume goes.
            deletion_policy: Some(DeletionPolicy::Retain),
            persistent_volume: Some(provision),
            ..VolumeSpec::default()
        };
        let metadata = ObjectMeta {
            name: Some(name),
            namespace: Some(asked.namespace.to_owned()),
            ..ObjectMeta::default()
        };
        Ok(Volume { metadata, spec, status: None })
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

    fn capacity(&self) -> Result<Quantity, Refusal> {
        let requests = self.spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        let asked = requests.and_then(|requests| requests.get("storage"));
        let asked = asked.ok_or(Refusal::Size(SizeError::Missing))?;
        match quantity::bytes(asked).map_err(|error| Refusal::Size(error.into()))? {
            0 => Err(Refusal::Size(SizeError::Zero)),
            bytes => Ok(Quantity(quantity::human(bytes))),
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

    fn topology(&self, uid: &str) -> Result<Option<TopologyRequest>, NoPlace> {
        // What is made without a place stays where it is, so nothing is made before that is known.
        if !self.driver.has_topology.ok_or(NoPlace::Unheard)? {
            return Ok(None);
        }
        let allowed = self.class.allowed_topologies.as_deref().unwrap_or_default();
        let (places, strict) = (self.driver.places, self.driver.strict_topology);
        match self.node {
            Some(node) => late(places, node, allowed, strict),
            None => immediate(places, allowed, uid),
        }
        .map(Some)
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
