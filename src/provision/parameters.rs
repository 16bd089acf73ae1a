//! What a StorageClass's parameters say to the provisioner, and what is left for the driver.

use std::collections::BTreeMap;

use super::annotations::Annotations;
use crate::api::names;
use crate::api::secrets::{SecretFor, SecretRefs};
use crate::api::template;

/// Keys that are the provisioner's own begin with this.
pub(super) const PREFIX: &str = "csi.storage.k8s.io/";
const FS_TYPE: &str = "csi.storage.k8s.io/fstype";
/// The key that file system types had before, in any case.
const OLD_FS_TYPE: &str = "fstype";

/// Most parameters that a driver is given: a Volume and a PluginInstance have room for no more.
const MAX_KEYS: usize = 64;
/// Most bytes of the parameters that one call takes along: more than CSI's limit is never sent.
const MAX_BYTES: usize = 4096;

/// Why these are more parameters than a driver can be given, if they are.
pub(super) fn too_many(parameters: &BTreeMap<String, String>) -> Option<String> {
    let bytes: usize = parameters.iter().map(|(key, value)| key.len() + value.len()).sum();
    if parameters.len() > MAX_KEYS {
        return Some(format!("it has {} parameters, and a driver can be given {MAX_KEYS}", parameters.len()));
    }
    (bytes > MAX_BYTES)
        .then(|| format!("its parameters have {bytes} bytes, and a driver can be given {MAX_BYTES}"))
}

/// For which claim parameters are resolved.
#[derive(Clone, Copy, Debug)]
pub struct For<'a> {
    /// Namespace of the PersistentVolumeClaim.
    pub namespace: &'a str,
    /// Its name.
    pub claim: &'a str,
    /// Its annotations.
    pub annotations: Option<&'a Annotations>,
    /// Name of the PersistentVolume.
    pub volume: &'a str,
}

/// Parameters that were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// The file system.
    pub fs_type: Option<String>,
    /// What the driver gets.
    pub driver: BTreeMap<String, String>,
    /// The Secrets.
    pub secrets: ClassSecrets,
}

/// Secrets by the calls that they are for, each as namespace/name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassSecrets {
    /// CreateVolume and DeleteVolume.
    pub provisioner: Option<String>,
    /// ControllerPublishVolume.
    pub controller_publish: Option<String>,
    /// NodeStageVolume.
    pub node_stage: Option<String>,
    /// NodePublishVolume.
    pub node_publish: Option<String>,
    /// ControllerExpandVolume.
    pub controller_expand: Option<String>,
    /// NodeExpandVolume.
    pub node_expand: Option<String>,
    /// ControllerModifyVolume.
    pub controller_modify: Option<String>,
}

impl ClassSecrets {
    /// With those of the Plugin for calls for which the class names none.
    #[must_use]
    pub fn or(self, plugin: &SecretRefs) -> Self {
        let or = |named: Option<String>, call| named.or_else(|| plugin.of(call).map(str::to_owned));
        Self {
            provisioner: or(self.provisioner, SecretFor::Controller),
            controller_publish: or(self.controller_publish, SecretFor::ControllerPublish),
            node_stage: or(self.node_stage, SecretFor::NodeStage),
            node_publish: or(self.node_publish, SecretFor::NodePublish),
            controller_expand: or(self.controller_expand, SecretFor::ControllerExpand),
            node_expand: or(self.node_expand, SecretFor::NodeExpand),
            controller_modify: or(self.controller_modify, SecretFor::ControllerModify),
        }
    }
}

/// Why parameters cannot be followed. What is in them is not repeated, but for the names of keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// A key of the provisioner's own that means nothing.
    #[error(
        "parameters: {key} is not known, and keys that begin with csi.storage.k8s.io/ are not for the driver; remove it"
    )]
    Unknown {
        /// The key.
        key: String,
    },
    /// The file system is given more than once.
    #[error(
        "parameters: the file system type is given both as fstype and as csi.storage.k8s.io/fstype; keep one"
    )]
    TwoFsTypes,
    /// One half of a Secret's name.
    #[error("parameters: {given} is given without {missing}; a Secret needs both, or neither")]
    HalfSecret {
        /// The key that is there.
        given: String,
        /// The key that is not.
        missing: String,
    },
    /// A Secret is given by an old key and by its successor.
    #[error("parameters: {old} and {new} are one thing; keep the second")]
    TwoSecrets {
        /// The old key.
        old: String,
        /// Its successor.
        new: String,
    },
    /// A template has something that stands for nothing.
    #[error("parameters: {key} has {token}, which stands for nothing there; {known} may be used")]
    Token {
        /// The key.
        key: String,
        /// What it has.
        token: String,
        /// What it might have.
        known: &'static str,
    },
    /// What a template comes to is no name.
    #[error("parameters: {key} comes to {value:?}, which is not the name of a {what}")]
    NotAName {
        /// The key.
        key: String,
        /// What it comes to.
        value: String,
        /// Secret or namespace.
        what: &'static str,
    },
}

/// One kind of Secret: its keys, and which words its name may have.
struct Kind {
    name: &'static str,
    old: Option<&'static str>,
    /// Annotations are the user's words, and deletion comes after the claim with its annotations is gone.
    annotations: bool,
}

const DEFAULT: Kind = Kind { name: "", old: None, annotations: true };
const PROVISIONER: Kind =
    Kind { name: "provisioner-", old: Some("csiProvisionerSecret"), annotations: false };
const CONTROLLER_PUBLISH: Kind =
    Kind { name: "controller-publish-", old: Some("csiControllerPublishSecret"), annotations: true };
const NODE_STAGE: Kind = Kind { name: "node-stage-", old: Some("csiNodeStageSecret"), annotations: true };
const NODE_PUBLISH: Kind =
    Kind { name: "node-publish-", old: Some("csiNodePublishSecret"), annotations: true };
const CONTROLLER_EXPAND: Kind = Kind { name: "controller-expand-", old: None, annotations: true };
const NODE_EXPAND: Kind = Kind { name: "node-expand-", old: None, annotations: true };
const CONTROLLER_MODIFY: Kind = Kind { name: "controller-modify-", old: None, annotations: true };

const KINDS: [&Kind; 8] = [
    &DEFAULT,
    &PROVISIONER,
    &CONTROLLER_PUBLISH,
    &NODE_STAGE,
    &NODE_PUBLISH,
    &CONTROLLER_EXPAND,
    &NODE_EXPAND,
    &CONTROLLER_MODIFY,
];

const IN_NAMESPACE: &str = "${pv.name} and ${pvc.namespace}";
const IN_NAME: &str = "${pv.name}, ${pvc.namespace} and ${pvc.name}";
const IN_ANNOTATED_NAME: &str = "${pv.name}, ${pvc.namespace}, ${pvc.name} and ${pvc.annotations['KEY']} of an annotation that the claim has";

/// Name and namespace of a Secret as the class gives them, each with its key.
struct Template<'a> {
    name: (String, &'a str),
    namespace: (String, &'a str),
}

/// Reads the parameters of a StorageClass for one claim.
pub fn resolve(parameters: &Annotations, of: For<'_>) -> Result<Resolved, ParameterError> {
    let known = |key: &str| {
        key == FS_TYPE || KINDS.iter().any(|kind| key == kind.key("name") || key == kind.key("namespace"))
    };
    if let Some(key) = parameters.keys().find(|key| key.starts_with(PREFIX) && !known(key)) {
        return Err(ParameterError::Unknown { key: key.clone() });
    }
    if fs_types(parameters).nth(1).is_some() {
        return Err(ParameterError::TwoFsTypes);
    }
    let secret = |kind: &Kind| -> Result<Option<String>, ParameterError> {
        let own = kind.template(parameters)?;
        let template = if own.is_none() { DEFAULT.template(parameters)? } else { own };
        template.map(|template| template.resolve(kind, of)).transpose()
    };
    Ok(Resolved {
        fs_type: fs_type(parameters),
        driver: for_driver(parameters),
        secrets: ClassSecrets {
            provisioner: secret(&PROVISIONER)?,
            controller_publish: secret(&CONTROLLER_PUBLISH)?,
            node_stage: secret(&NODE_STAGE)?,
            node_publish: secret(&NODE_PUBLISH)?,
            controller_expand: secret(&CONTROLLER_EXPAND)?,
            node_expand: secret(&NODE_EXPAND)?,
            controller_modify: secret(&CONTROLLER_MODIFY)?,
        },
    })
}

/// The file system that parameters name; of several, of which no volume is made, the first.
pub(super) fn fs_type(parameters: &Annotations) -> Option<String> {
    fs_types(parameters).next().filter(|name| !name.is_empty()).cloned()
}

fn fs_types(parameters: &Annotations) -> impl Iterator<Item = &String> {
    let is_one = |key: &String| key == FS_TYPE || key.eq_ignore_ascii_case(OLD_FS_TYPE);
    parameters.iter().filter(move |(key, _)| is_one(key)).map(|(_, value)| value)
}

/// What the driver gets of parameters.
pub(super) fn for_driver(parameters: &Annotations) -> BTreeMap<String, String> {
    let is_own = |(key, _): &(&String, &String)| !key.starts_with(PREFIX);
    parameters.iter().filter(is_own).map(|(key, value)| (key.clone(), value.clone())).collect()
}

impl Kind {
    fn key(&self, half: &str) -> String {
        format!("{PREFIX}{}secret-{half}", self.name)
    }

    fn old_key(&self, half: &str) -> Option<String> {
        self.old.map(|old| format!("{old}{half}"))
    }

    fn template<'a>(&self, parameters: &'a Annotations) -> Result<Option<Template<'a>>, ParameterError> {
        let name = self.half(parameters, "name", "Name")?;
        let namespace = self.half(parameters, "namespace", "Namespace")?;
        match (name, namespace) {
            (None, None) => Ok(None),
            (Some(name), Some(namespace)) => Ok(Some(Template { name, namespace })),
            (Some((given, _)), None) => {
                Err(ParameterError::HalfSecret { given, missing: self.key("namespace") })
            }
            (None, Some((given, _))) => Err(ParameterError::HalfSecret { given, missing: self.key("name") }),
        }
    }

    fn half<'a>(
        &self,
        parameters: &'a Annotations,
        half: &str,
        old_half: &str,
    ) -> Result<Option<(String, &'a str)>, ParameterError> {
        let value = |key: String| parameters.get(&key).map(|value| (key, value.as_str()));
        let (new, old) = (value(self.key(half)), self.old_key(old_half).and_then(value));
        match (new, old) {
            (Some((new, _)), Some((old, _))) => Err(ParameterError::TwoSecrets { old, new }),
            (new, old) => Ok(new.or(old)),
        }
    }
}

impl Template<'_> {
    fn resolve(&self, kind: &Kind, of: For<'_>) -> Result<String, ParameterError> {
        let in_namespace = |word: &str| match word {
            "pv.name" => Some(of.volume),
            "pvc.namespace" => Some(of.namespace),
            _ => None,
        };
        let in_name = |word: &str| match word {
            "pvc.name" => Some(of.claim),
            word => in_namespace(word).or_else(|| {
                let key = word.strip_prefix("pvc.annotations['")?.strip_suffix("']")?;
                of.annotations.filter(|_| kind.annotations)?.get(key).map(String::as_str)
            }),
        };
        let known = if kind.annotations { IN_ANNOTATED_NAME } else { IN_NAME };
        let namespace = expand(&self.namespace, IN_NAMESPACE, in_namespace)?;
        let name = expand(&self.name, known, in_name)?;
        named((&self.namespace.0, namespace), (&self.name.0, name))
    }
}

/// A Secret by what its templates come to, each with its key, as namespace/name.
pub(super) fn named(
    (namespace_key, namespace): (&str, String),
    (key, name): (&str, String),
) -> Result<String, ParameterError> {
    let not_a_name =
        |key: &str, value: String, what| Err(ParameterError::NotAName { key: key.to_owned(), value, what });
    if !names::is_namespace_name(&namespace) {
        return not_a_name(namespace_key, namespace, "namespace");
    }
    if !names::is_object_name(&name) {
        return not_a_name(key, name, "Secret");
    }
    Ok(format!("{namespace}/{name}"))
}

/// What a template comes to, or what in it stands for nothing.
pub(super) fn expand<'a>(
    (key, template): &(String, &str),
    known: &'static str,
    word: impl Fn(&str) -> Option<&'a str>,
) -> Result<String, ParameterError> {
    template::expand(template, word).map_err(|token| ParameterError::Token { key: key.clone(), token, known })
}

#[cfg(test)]
#[path = "parameters_tests.rs"]
mod tests;
