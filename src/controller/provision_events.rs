//! Which passes over PersistentVolumeClaims and PersistentVolumes an event asks for.

use std::sync::Arc;

use k8s_openapi::api::storage::v1::StorageClass;

use super::caches::BY_PLUGIN;
use super::key::Key;
use super::known::Known;
use super::{capacities, contents, exports, imports};
use crate::api::instance::Service;
use crate::api::{Plugin, PluginInstance, Volume};
use crate::k8s::Named;
use crate::provision::{WatchedClaim, WatchedPersistentVolume};

/// A claim begins to wait for its provisioner, to ask for more or for another class, changes, is bound or goes.
pub(crate) fn claim_changed(known: &Known, claim: &WatchedClaim) {
    let (named, grows, modifies) = (claim.named(), claim.grows(), claim.modifies());
    if claim.is_copied() {
        known.queue.add(Key::Copied(named.clone()));
    }
    if let Some(name) = claim.copies() {
        let is_source = |other: &WatchedClaim| {
            other.is_copied()
                && other.metadata.namespace == claim.metadata.namespace
                && other.metadata.name.as_deref() == Some(name)
        };
        for source in known.pvcs.all().iter().filter(|other| is_source(other)) {
            known.queue.add(Key::Copied(source.named()));
        }
    }
    if modifies {
        known.queue.add(Key::Modify(named.clone()));
    }
    if grows {
        known.queue.add(Key::Resize(named));
    } else if !modifies {
        known.queue.add(Key::Provision(named));
    }
}

/// Nobody claims a PersistentVolume any more, or somebody deletes it, or it is gone.
pub(crate) fn persistent_volume_changed(known: &Known, volume: &WatchedPersistentVolume) {
    let name = volume.metadata.name.clone().unwrap_or_default();
    exports::persistent_volume_changed(known, &name);
    known.queue.add(Key::PersistentVolume(name));
}

/// A PersistentVolume is gone, or in use again. The Volume that was made of it may be there for nobody.
pub(crate) fn persistent_volume_left(known: &Known, volume: &WatchedPersistentVolume) {
    let Some(name) = imports::name_for(known, volume.driver(), volume.volume_handle()) else { return };
    if known.volumes.get_in(Named { namespace: &known.namespace, name: &name }).is_some() {
        known.queue.add(Key::Import(name));
    }
}

/// Whoever asked for a Volume looks at it again, and who waits for its end.
pub(crate) fn volume_changed(known: &Known, volume: &Volume) {
    let is_own = volume.metadata.namespace.as_deref() == Some(&known.namespace);
    if let Some(provision) = volume.spec.persistent_volume.as_ref().filter(|_| is_own) {
        known.queue.add(Key::Provision(provision.claim.clone()));
        if let Some(copy) = &provision.copy_of {
            known.queue.add(Key::Copied(copy.claim.clone()));
        }
    }
    look_at_left(known, volume);
    let uid = volume.metadata.uid.as_deref().unwrap_or_default();
    for key in known.provisioning.waiting_for(uid) {
        known.queue.add(key);
    }
}

/// Claims wait for their StorageClass, or for it to be changed, and the scheduler is told of the room for it.
pub(crate) fn class_changed(known: &Known, class: &StorageClass) {
    let name = class.metadata.name.as_deref().unwrap_or_default();
    add_claims(known, |claim| claim.class_name() == name);
    let is_its = |plugin: &&Arc<Plugin>| plugin.kubelet_name() == Some(class.provisioner.as_str());
    for plugin in known.plugins.all().iter().filter(is_its) {
        capacities::changed(known, plugin.metadata.name.as_deref().unwrap_or_default());
    }
}

/// With its Plugin a Volume goes that was made of a PersistentVolume and with which nothing was begun.
fn look_at_left(known: &Known, volume: &Volume) {
    if let Some(name) = volume.metadata.name.as_ref().filter(|_| imports::is_left(known, volume)) {
        known.queue.add(Key::Import(name.clone()));
    }
}

/// A Plugin begins to serve a driver's name, or does so otherwise, or ends.
pub(crate) fn plugin_changed(known: &Known, plugin: &Plugin) {
    for volume in known.volumes.by_index(BY_PLUGIN, plugin.metadata.name.as_deref().unwrap_or_default()) {
        look_at_left(known, &volume);
    }
    if let Some(name) = plugin.kubelet_name() {
        name_changed(known, name);
    }
}

/// A name begins to be served, or ends, or is served otherwise.
pub(crate) fn name_changed(known: &Known, name: &str) {
    exports::name_changed(known, name);
    contents::name_changed(known, name);
    add_claims(known, |claim| claim.provisioner() == Some(name) || claim.grows() || claim.modifies());
    for volume in known.pvs.all().iter().filter(|volume| volume.driver() == name) {
        persistent_volume_changed(known, volume);
    }
}

/// A driver comes to a node, or says otherwise where that is.
pub(crate) fn instance_changed(
    known: &Known,
    before: Option<&PluginInstance>,
    after: Option<&PluginInstance>,
) {
    let place = |instance: &PluginInstance| {
        let status = instance.status.clone().unwrap_or_default();
        let healthy = (status.is_healthy_for(Service::Node), status.is_healthy_for_any());
        (status.node, healthy, status.topology, status.capabilities)
    };
    if before.map(place) == after.map(place) {
        return;
    }
    let plugin = after.or(before).and_then(|instance| known.plugins.get(&instance.spec.plugin_name));
    if let Some(name) = plugin.as_ref().and_then(|plugin| plugin.kubelet_name()) {
        add_claims(known, |claim| claim.provisioner() == Some(name));
    }
}

/// A Node has gone, and may be the one that the scheduler has chosen for a claim.
pub(crate) fn node_gone(known: &Known, name: &str) {
    add_claims(known, |claim| claim.selected_node() == Some(name));
}

fn add_claims(known: &Known, which: impl Fn(&WatchedClaim) -> bool) {
    for claim in known.pvcs.all().iter().filter(|claim| which(claim)) {
        claim_changed(known, claim);
    }
}
