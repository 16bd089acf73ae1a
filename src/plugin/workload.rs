//! The Deployment and the DaemonSet that moor runs for a Plugin. Pure.

use std::path::PathBuf;

use k8s_openapi::api::apps::v1::{
    DaemonSet, DaemonSetSpec, Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::ObjectMeta;
use kube::{Resource, ResourceExt as _};

pub use super::pod_template::{Directories, TemplateError};
use super::pod_template::{For, labels, pods};
use crate::api::Plugin;
use crate::api::workload::PLUGIN_UID;

/// Seconds that a Pod has to run before the next one is replaced: of one whose driver ends again and again that does not come.
const MIN_READY: i32 = 5;

/// Where the workloads of Plugins are.
#[derive(Clone, Debug)]
pub struct Site {
    /// Their namespace: moor's own.
    pub namespace: String,
    /// Directories of the nodes.
    pub directories: Directories,
}

impl Site {
    /// In a namespace, on nodes with these directories. That of plugins is by default below kubelet's.
    #[must_use]
    pub fn new(namespace: String, kubelet: PathBuf, plugins: Option<PathBuf>) -> Self {
        Self { namespace, directories: Directories::new(kubelet, plugins) }
    }
}

/// The name of the Deployment of a Plugin.
#[must_use]
pub fn deployment_name(plugin: &str) -> String {
    format!("plugin-{plugin}-controller")
}

/// The name of the DaemonSet of a Plugin.
#[must_use]
pub fn daemon_set_name(plugin: &str) -> String {
    format!("plugin-{plugin}-node")
}

/// The Deployment of a Plugin's `spec.controller`; None without it.
///
/// # Errors
/// No Pods can be made of its template.
pub fn deployment(plugin: &Plugin, site: &Site) -> Result<Option<Box<Deployment>>, TemplateError> {
    let Some(wanted) = &plugin.spec.controller else { return Ok(None) };
    let name = plugin.name_any();
    // One is ended before the next is started: two of them on one node would not know what the other is at.
    let rolling_update = RollingUpdateDeployment {
        max_surge: Some(IntOrString::Int(0)),
        max_unavailable: Some(IntOrString::Int(1)),
    };
    let strategy =
        DeploymentStrategy { type_: Some("RollingUpdate".into()), rolling_update: Some(rolling_update) };
    let spec = DeploymentSpec {
        strategy: Some(strategy),
        replicas: Some(wanted.replicas),
        min_ready_seconds: Some(MIN_READY),
        selector: selector(&name, For::Controller),
        template: pods(&wanted.template, &name, For::Controller)?,
        ..DeploymentSpec::default()
    };
    let metadata = metadata(plugin, site, deployment_name(&name), For::Controller);
    Ok(Some(Box::new(Deployment { metadata, spec: Some(spec), ..Deployment::default() })))
}

/// The DaemonSet of a Plugin's `spec.node`; None without it.
///
/// # Errors
/// No Pods can be made of its template.
pub fn daemon_set(plugin: &Plugin, site: &Site) -> Result<Option<Box<DaemonSet>>, TemplateError> {
    let Some(wanted) = &plugin.spec.node else { return Ok(None) };
    let name = plugin.name_any();
    let of = For::Node { directories: &site.directories, dev: wanted.mount_dev };
    let spec = DaemonSetSpec {
        selector: selector(&name, of),
        min_ready_seconds: Some(MIN_READY),
        template: pods(&wanted.template, &name, of)?,
        ..DaemonSetSpec::default()
    };
    let metadata = metadata(plugin, site, daemon_set_name(&name), of);
    Ok(Some(Box::new(DaemonSet { metadata, spec: Some(spec), ..DaemonSet::default() })))
}

fn selector(plugin: &str, of: For<'_>) -> LabelSelector {
    LabelSelector { match_labels: Some(labels(plugin, of)), ..LabelSelector::default() }
}

fn metadata(plugin: &Plugin, site: &Site, name: String, of: For<'_>) -> ObjectMeta {
    // No owner: who deletes a Plugin and all that it owns would end its Pods while they are needed.
    let mut labels = labels(&plugin.name_any(), of);
    labels.insert(PLUGIN_UID.to_owned(), plugin.uid().unwrap_or_default());
    ObjectMeta {
        name: Some(name),
        namespace: Some(site.namespace.clone()),
        labels: Some(labels),
        ..ObjectMeta::default()
    }
}

/// Whose an object of a workload's name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// This Plugin's.
    This,
    /// One's that was deleted and had the same name.
    Before,
    /// Not moor's.
    Foreign,
}

/// Whose an object of the name of a Plugin's workload is; without the Plugin, of one of that name.
#[must_use]
pub fn owner_of(found: &impl Resource, plugin: Option<&Plugin>) -> Owner {
    match found.labels().get(PLUGIN_UID) {
        Some(uid) if plugin.and_then(|plugin| plugin.metadata.uid.as_ref()) == Some(uid) => Owner::This,
        Some(_) => Owner::Before,
        None => Owner::Foreign,
    }
}
