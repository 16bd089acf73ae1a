//! Which Volumes a change of a PluginInstance or of a Plugin concerns. A rollout changes thousands of instances, and a
//! cluster has ten times as many Volumes: a pass over each for every change would let claims wait behind them. So these
//! passes come behind all that a user waits for.

use super::caches::{BY_CONTROLLER, BY_NODE, BY_PLUGIN, nobody};
use super::key::Key;
use super::known::Known;
use super::snapshot_events;
use crate::api::PluginInstance;
use crate::api::attachment::VolumeRef;
use crate::api::caller::ControllerRef;
use crate::k8s::Named;
use crate::plugin::change::Change;

/// Asks for passes over the Volumes that this change of an instance concerns.
pub(crate) fn wake(known: &Known, instance: &PluginInstance, change: Change) {
    if change.is_nothing() {
        return;
    }
    let spec = &instance.spec;
    sweep(known, known.unsettled.of(&spec.plugin_name));
    snapshot_events::wake_unsettled(known, &spec.plugin_name);
    if change.place {
        sweep(known, known.room.waiting());
    }
    if change.node || change.place {
        let attachments = known.attachments.by_index(BY_NODE, &spec.node_name);
        sweep(known, known.room.waiting_for(&spec.node_name));
        sweep(known, attachments.iter().map(|attachment| Key::of_owner(&attachment.spec.volume)));
    }
    if change.controller || change.place {
        wake_called_by(known, instance.metadata.name.as_deref().unwrap_or_default());
    }
    // Of a driver without Controller service nobody calls for any volume: its nodes come and go without such a pass.
    let can_call = change.controller && instance.status.as_ref().is_some_and(|status| status.controller);
    if change.attaches || can_call {
        wake_called_by(known, &nobody(&spec.driver_name));
    }
}

/// Asks for passes over the Volumes of a Plugin whose calls may be made by others, now that another instance is active than
/// before.
pub(crate) fn wake_for_active(known: &Known, plugin: &str, before: Option<&ControllerRef>) {
    sweep(known, known.unsettled.of(plugin));
    snapshot_events::wake_unsettled(known, plugin);
    if let Some(before) = before {
        wake_called_by(known, &before.instance);
    }
    // Those whose calls nobody makes yet.
    if let Some(plugin) = known.plugins.get(plugin) {
        wake_called_by(known, &nobody(plugin.driver_name()));
    }
}

/// Asks for passes over the Volumes whose calls this instance makes.
fn wake_called_by(known: &Known, instance: &str) {
    let volumes = known.volumes.by_index(BY_CONTROLLER, instance);
    let handles = known.handles.by_index(BY_CONTROLLER, instance);
    let attachments = known.attachments.by_index(BY_CONTROLLER, instance);
    sweep(known, volumes.iter().map(|volume| Key::of(volume)));
    sweep(known, handles.iter().map(|handle| Key::of_owner(&handle.spec.volume)));
    sweep(known, attachments.iter().map(|attachment| Key::of_owner(&attachment.spec.volume)));
}

/// Asks for passes over a Plugin's Volumes, also over those that were removed by hand while something was attached for
/// them.
pub(crate) fn wake_all_of(known: &Known, plugin: &str) {
    let volumes = known.volumes.by_index(BY_PLUGIN, plugin);
    let attachments = known.attachments.by_index(BY_PLUGIN, plugin);
    let owners = attachments.iter().map(|attachment| &attachment.spec.volume);
    let is_gone = |owner: &&VolumeRef| {
        known.volumes.get_in(Named { namespace: &owner.namespace, name: &owner.name }).is_none()
    };
    sweep(known, volumes.iter().map(|volume| Key::of(volume)));
    sweep(known, owners.filter(is_gone).map(Key::of_owner));
    snapshot_events::wake_unsettled(known, plugin);
}

pub(crate) fn sweep(known: &Known, keys: impl IntoIterator<Item = Key>) {
    keys.into_iter().for_each(|key| known.queue.sweep(key));
}
