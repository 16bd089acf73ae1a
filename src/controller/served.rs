//! Which driver a provisioner's name stands for, and what is known of it.

use std::sync::Arc;

use super::caches::BY_PLUGIN;
use super::known::Known;
use super::nodes::is_in_service;
use crate::api::instance::Service;
use crate::api::plugin::Balancing;
use crate::api::{Plugin, PluginInstance};
use crate::plugin::{counts, csi_driver, served_as};
use crate::provision::{Place, Served};

/// A driver whose volumes moor serves to Pods.
pub(crate) struct Driver {
    plugin: Arc<Plugin>,
    places: Vec<Place>,
    has_topology: Option<bool>,
    modifies: bool,
    clones: bool,
}

impl Driver {
    /// As the decision sees it.
    pub(crate) fn seen(&self) -> Served<'_> {
        let kubernetes = &self.plugin.spec.kubernetes;
        Served {
            plugin: self.plugin.metadata.name.as_deref().unwrap_or_default(),
            name: self.plugin.kubelet_name().unwrap_or_default(),
            places: &self.places,
            has_topology: self.has_topology,
            modifies: self.modifies,
            clones: self.clones,
            extra_create_metadata: kubernetes.extra_create_metadata,
            strict_topology: kubernetes.strict_topology,
            is_local: self.plugin.balancing() == Balancing::PerTopology,
            default_fs_type: kubernetes.default_fs_type.as_deref(),
            secrets: self.plugin.spec.secrets.as_ref(),
        }
    }
}

/// The Plugin whose volumes have this driver name in PersistentVolumes. Of several the oldest has it, and none while the
/// CSIDriver object of the name is not moor's: then another installation of the driver provisions.
pub(crate) fn plugin_of(known: &Known, name: &str) -> Option<Arc<Plugin>> {
    known.csi_drivers.get(name).filter(|found| csi_driver::serves(found))?;
    served_as(name, &known.plugins.all()).cloned()
}

/// The driver behind a provisioner's name.
pub(crate) fn driver(known: &Known, name: &str) -> Option<Driver> {
    let plugin = plugin_of(known, name)?;
    let instances = known.instances.by_index(BY_PLUGIN, plugin.metadata.name.as_deref().unwrap_or_default());
    let counted: Vec<_> = instances.into_iter().filter(|i| counts(i, plugin.driver_name())).collect();
    let has = |has: &dyn Fn(&PluginInstance) -> bool| counted.iter().any(|instance| has(instance));
    let is_known = has(&|i| {
        let status = i.status.as_ref();
        status.is_some_and(|status| !status.capabilities.plugin.is_empty() || status.is_healthy_for_any())
    });
    let has_topology = has(&|i| {
        let plugin = i.status.as_ref().map(|status| &status.capabilities.plugin);
        plugin.is_some_and(|all| all.iter().any(|c| c == "VOLUME_ACCESSIBILITY_CONSTRAINTS"))
    });
    let has_topology = is_known.then_some(has_topology);
    let can = |what: &str| {
        has(&|i| i.status.as_ref().is_some_and(|status| status.capabilities.controller_has(what)))
    };
    let (modifies, clones) = (can("MODIFY_VOLUME"), can("CLONE_VOLUME"));
    let places = counted.iter().filter_map(|instance| place(known, instance)).collect();
    Some(Driver { plugin, places, has_topology, modifies, clones })
}

fn place(known: &Known, instance: &PluginInstance) -> Option<Place> {
    let status = instance.status.as_ref().filter(|status| status.node)?;
    Some(Place {
        node: instance.spec.node_name.clone(),
        healthy: status.is_healthy_for(Service::Node) && is_in_service(known, instance),
        segments: status.topology.clone(),
    })
}
