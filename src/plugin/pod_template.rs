//! The Pods of a Plugin's workloads: the template as it is written, and what moor puts into it. Pure.
//!
//! What the template says itself stands, unless the driver could then not be reached.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::{
    Affinity, Container, EmptyDirVolumeSource, EnvVar, EnvVarSource, HostPathVolumeSource,
    ObjectFieldSelector, PodAffinityTerm, PodSpec, PodTemplateSpec, SecurityContext, Toleration, Volume,
    VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;
use thiserror::Error;

use crate::api::workload::{CONTROLLER, NODE, PLUGIN, SERVICE, SOCKET_FILE, SOCKET_VOLUME};

/// Where a driver finds the directory of its socket.
const SOCKETS: &str = "/csi";
/// The volume with kubelet's directory.
const KUBELET_VOLUME: &str = "moor-kubelet";
/// The volume with the node's devices.
const DEV_VOLUME: &str = "moor-dev";
/// The node's devices.
const DEV: &str = "/dev";

/// Directories of a node, as moor's agents are told them.
#[derive(Clone, Debug)]
pub struct Directories {
    /// kubelet's.
    pub kubelet: PathBuf,
    /// The one in which agents look for sockets.
    pub plugins: PathBuf,
}

impl Directories {
    /// kubelet's directory and that of plugins, which is by default below it.
    #[must_use]
    pub fn new(kubelet: PathBuf, plugins: Option<PathBuf>) -> Self {
        let plugins = plugins.unwrap_or_else(|| kubelet.join("plugins"));
        Self { kubelet, plugins }
    }

    /// The socket that a Plugin names, unless agents do not look there.
    #[must_use]
    pub fn named_socket(&self, named: &str) -> Option<PathBuf> {
        below(&self.plugins, Path::new(named)).map(|_| self.plugins.join(named))
    }

    /// The socket of the Pods that moor runs for a Plugin's `spec.node`. Of a folder of its own: a driver of the same name may
    /// have been run by somebody else before.
    #[must_use]
    pub fn node_socket(&self, plugin: &str) -> PathBuf {
        node_sockets(&self.plugins, plugin).join(SOCKET_FILE)
    }
}

/// What a path that a Plugin names is below the directory of plugins, to which it is relative unless it is absolute. Agents look
/// nowhere else for a socket.
pub(super) fn below<'a>(plugins: &Path, named: &'a Path) -> Option<&'a Path> {
    let below = named.strip_prefix(plugins).unwrap_or(named);
    let stays = !below.is_absolute() && !below.components().any(|part| part == Component::ParentDir);
    stays.then_some(below)
}

/// The folder of the sockets of a Plugin's `spec.node`.
fn node_sockets(plugins: &Path, plugin: &str) -> PathBuf {
    plugins.join(format!("moor.{plugin}"))
}

/// Why no Pods can be made of a template.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TemplateError {
    /// It is not what Kubernetes takes for a template of Pods.
    #[error("{field}: {why}")]
    Unreadable {
        /// The field, from `spec` of the Plugin on.
        field: String,
        /// What is wrong with it.
        why: String,
    },
    /// A field that Pods do not have.
    #[error("{0}: Pods have no such field; correct its name, or take it out")]
    Unknown(String),
    /// There is no driver.
    #[error("{0}.spec.containers: is empty; its first entry is the driver")]
    NoContainer(&'static str),
    /// A node that is chosen past the scheduler.
    #[error(
        "{field}: {node} is chosen past the scheduler, which keeps two of them from one node; take it out, and select the node by \
         nodeSelector kubernetes.io/hostname"
    )]
    Placed {
        /// The field.
        field: String,
        /// The node.
        node: String,
    },
    /// A name or place that moor needs.
    #[error("{field}: {what} is where moor puts {of}; take it out, or give it another name or place")]
    Taken {
        /// The field.
        field: String,
        /// The name or path.
        what: String,
        /// What moor has there.
        of: &'static str,
    },
}

/// What Pods are made for.
#[derive(Clone, Copy, Debug)]
pub(super) enum For<'a> {
    /// The Controller service.
    Controller,
    /// The Node service.
    Node {
        /// Directories of the node.
        directories: &'a Directories,
        /// Whether the driver has the node's devices.
        dev: bool,
    },
}

impl For<'_> {
    /// The field of the Plugin in which the template is.
    fn field(self) -> &'static str {
        match self {
            Self::Controller => "spec.controller.template",
            Self::Node { .. } => "spec.node.template",
        }
    }

    /// The value of the label that tells the two kinds of Pods apart.
    pub(super) fn service(self) -> &'static str {
        match self {
            Self::Controller => CONTROLLER,
            Self::Node { .. } => NODE,
        }
    }
}

/// The labels by which a workload finds its Pods.
pub(super) fn labels(plugin: &str, of: For<'_>) -> BTreeMap<String, String> {
    [(PLUGIN, plugin), (SERVICE, of.service())].map(|(key, value)| (key.into(), value.into())).into()
}

/// The Pods of a template, with all that a driver needs.
pub(super) fn pods(template: &Value, plugin: &str, of: For<'_>) -> Result<PodTemplateSpec, TemplateError> {
    let field = of.field();
    let mut pods = read(template, field)?;
    let labels = labels(plugin, of);
    pods.metadata.get_or_insert_default().labels.get_or_insert_default().extend(labels.clone());
    let spec = pods.spec.get_or_insert_default();
    if spec.containers.is_empty() {
        return Err(TemplateError::NoContainer(field));
    }
    reserve(spec, field)?;
    let sockets = match of {
        For::Controller => {
            Volume { empty_dir: Some(EmptyDirVolumeSource::default()), ..named(SOCKET_VOLUME) }
        }
        For::Node { directories, .. } => {
            let folder = node_sockets(&directories.plugins, plugin);
            on_host(SOCKET_VOLUME, &folder, "DirectoryOrCreate")
        }
    };
    spec.volumes.get_or_insert_default().push(sockets);
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        connect(container);
    }
    spec.node_selector.get_or_insert_with(|| [("kubernetes.io/os".into(), "linux".into())].into());
    match of {
        For::Controller => {
            spec.priority_class_name.get_or_insert_with(|| "system-cluster-critical".into());
            keep_apart(spec.affinity.get_or_insert_default(), labels);
        }
        For::Node { directories, dev } => {
            spec.priority_class_name.get_or_insert_with(|| "system-node-critical".into());
            // Volumes are unmounted on nodes that take no other Pods any more.
            let all = Toleration { operator: Some("Exists".into()), ..Toleration::default() };
            spec.tolerations.get_or_insert_with(|| vec![all]);
            show_node(spec, directories, dev);
        }
    }
    Ok(pods)
}

/// Reads a template. What Kubernetes' types have no place for would be lost without a word: it is refused.
fn read(template: &Value, field: &str) -> Result<PodTemplateSpec, TemplateError> {
    let unreadable = |error: serde_path_to_error::Error<serde_json::Error>| {
        let at = format!("{field}.{}", error.path());
        TemplateError::Unreadable { field: at, why: error.into_inner().to_string() }
    };
    let read: PodTemplateSpec = serde_path_to_error::deserialize(template).map_err(unreadable)?;
    let known = serde_json::to_value(&read)
        .map_err(|error| TemplateError::Unreadable { field: field.to_owned(), why: error.to_string() })?;
    match lost(template, &known) {
        Some(path) => Err(TemplateError::Unknown(format!("{field}{path}"))),
        None => Ok(read),
    }
}

/// The first field of `written` that `known` does not have.
fn lost(written: &Value, known: &Value) -> Option<String> {
    match (written, known) {
        (Value::Object(written), Value::Object(known)) => {
            let said = written.iter().filter(|(_, value)| !value.is_null());
            said.into_iter().find_map(|(key, value)| match known.get(key) {
                Some(known) => Some(format!(".{key}{}", lost(value, known)?)),
                None => Some(format!(".{key}")),
            })
        }
        (Value::Array(written), Value::Array(known)) => {
            let each = written.iter().zip(known).enumerate();
            each.into_iter().find_map(|(n, (written, known))| Some(format!("[{n}]{}", lost(written, known)?)))
        }
        _ => None,
    }
}

/// Refuses what would keep the driver's socket from being where it is looked for.
fn reserve(spec: &PodSpec, field: &str) -> Result<(), TemplateError> {
    let taken =
        |field: String, what: &str, of| Err(TemplateError::Taken { field, what: what.to_owned(), of });
    if let Some(node) = &spec.node_name {
        return Err(TemplateError::Placed { field: format!("{field}.spec.nodeName"), node: node.clone() });
    }
    for (n, volume) in spec.volumes.iter().flatten().enumerate() {
        let of = match volume.name.as_str() {
            SOCKET_VOLUME => "the driver's socket",
            KUBELET_VOLUME => "kubelet's directory",
            DEV_VOLUME => "the node's devices",
            _ => continue,
        };
        return taken(format!("{field}.spec.volumes[{n}].name"), &volume.name, of);
    }
    for (n, container) in spec.containers.iter().enumerate() {
        for (m, mount) in container.volume_mounts.iter().flatten().enumerate() {
            if mount.mount_path.trim_end_matches('/') == SOCKETS {
                let field = format!("{field}.spec.containers[{n}].volumeMounts[{m}].mountPath");
                return taken(field, &mount.mount_path, "the driver's socket");
            }
        }
    }
    Ok(())
}

/// Tells a container where the driver's socket is, and on which node it runs. Before what it is told already, so that this may
/// refer to it.
fn connect(container: &mut Container) {
    let endpoint = EnvVar {
        name: "CSI_ENDPOINT".into(),
        value: Some(format!("unix://{SOCKETS}/{SOCKET_FILE}")),
        ..EnvVar::default()
    };
    let field = ObjectFieldSelector { field_path: "spec.nodeName".into(), ..ObjectFieldSelector::default() };
    let node = EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() };
    let node = EnvVar { name: "NODE_NAME".into(), value_from: Some(node), ..EnvVar::default() };
    let env = container.env.get_or_insert_default();
    let said = |name: &str| env.iter().any(|variable| variable.name == name);
    let new: Vec<EnvVar> = [endpoint, node].into_iter().filter(|variable| !said(&variable.name)).collect();
    env.splice(0..0, new);
    mount(container, SOCKET_VOLUME, Path::new(SOCKETS), None);
}

/// Shows the driver what it mounts into, and from.
fn show_node(spec: &mut PodSpec, directories: &Directories, dev: bool) {
    let Some(driver) = spec.containers.first_mut() else { return };
    let privileged = driver.security_context.get_or_insert_with(SecurityContext::default);
    // Kubernetes lets nobody else mount for others to see.
    privileged.privileged.get_or_insert(true);
    let kubelet = [(KUBELET_VOLUME, directories.kubelet.as_path(), "Directory", Some("Bidirectional"))];
    let dev = dev.then_some((DEV_VOLUME, Path::new(DEV), "Directory", Some("HostToContainer")));
    for (name, path, kind, propagation) in kubelet.into_iter().chain(dev) {
        if mount(driver, name, path, propagation) {
            spec.volumes.get_or_insert_default().push(on_host(name, path, kind));
        }
    }
}

/// Mounts a volume, unless something is mounted there. Returns whether it did.
fn mount(container: &mut Container, name: &str, path: &Path, propagation: Option<&str>) -> bool {
    let mounts = container.volume_mounts.get_or_insert_default();
    let is_free = mounts.iter().all(|mount| Path::new(&mount.mount_path) != path);
    if is_free {
        mounts.push(VolumeMount {
            name: name.into(),
            mount_path: path.display().to_string(),
            mount_propagation: propagation.map(str::to_owned),
            ..VolumeMount::default()
        });
    }
    is_free
}

fn named(name: &str) -> Volume {
    Volume { name: name.into(), ..Volume::default() }
}

fn on_host(name: &str, path: &Path, kind: &str) -> Volume {
    let source = HostPathVolumeSource { path: path.display().to_string(), type_: Some(kind.into()) };
    Volume { host_path: Some(source), ..named(name) }
}

/// On different nodes, beside what the template says: the driver on a node is one to whom calls are given, and of two processes
/// one would not know what the other is at.
fn keep_apart(affinity: &mut Affinity, labels: BTreeMap<String, String>) {
    let term = PodAffinityTerm {
        label_selector: Some(LabelSelector { match_labels: Some(labels), ..LabelSelector::default() }),
        topology_key: "kubernetes.io/hostname".into(),
        ..PodAffinityTerm::default()
    };
    let apart = affinity.pod_anti_affinity.get_or_insert_default();
    apart.required_during_scheduling_ignored_during_execution.get_or_insert_default().push(term);
}

#[cfg(test)]
#[path = "pod_template_tests.rs"]
mod tests;
