//! Which Volumes a change of a PluginInstance concerns. A rollout changes thousands of them, and a cluster has ten
//! times as many Volumes: a pass over each for every change would let claims wait behind them.

use std::sync::Arc;

use super::caches::{BY_CONTROLLER, BY_NODE, nobody};
use super::context::Context;
use super::key::{Key, key_of};
use super::room::Room;
use super::unsettled::Unsettled;
use crate::api::{Attachment, PluginInstance, Volume, VolumeHandle};
use crate::k8s::{Cache, Queue};
use crate::plugin::change::Change;

/// Finds the Volumes that a PluginInstance concerns, and asks for passes over them, behind all that a user waits for.
pub(crate) struct Concern {
    pub(crate) queue: Arc<Queue<Key>>,
    pub(crate) volumes: Arc<Cache<Volume>>,
    pub(crate) handles: Arc<Cache<VolumeHandle>>,
    pub(crate) attachments: Arc<Cache<Attachment>>,
    pub(crate) room: Arc<Room>,
    pub(crate) unsettled: Arc<Unsettled>,
}

impl Concern {
    pub(crate) fn new(ctx: &Context) -> Self {
        Self {
            queue: Arc::clone(&ctx.queue),
            volumes: Arc::clone(&ctx.volumes),
            handles: Arc::clone(&ctx.handles),
            attachments: Arc::clone(&ctx.attachments),
            room: Arc::clone(&ctx.room),
            unsettled: Arc::clone(&ctx.unsettled),
        }
    }

    /// Asks for passes over the Volumes that this change of an instance concerns.
    pub(crate) fn wake(&self, instance: &PluginInstance, change: Change) {
        if change.is_nothing() {
            return;
        }
        let spec = &instance.spec;
        self.unsettled.of(&spec.plugin_name).into_iter().for_each(|key| self.queue.sweep(key));
        if change.place {
            self.room.waiting().into_iter().for_each(|key| self.queue.sweep(key));
        }
        if change.node || change.place {
            self.room.waiting_for(&spec.node_name).into_iter().for_each(|key| self.queue.sweep(key));
            for attachment in self.attachments.by_index(BY_NODE, &spec.node_name) {
                self.volume_of(&attachment);
            }
        }
        if change.controller || change.place {
            self.called_by(instance.metadata.name.as_deref().unwrap_or_default());
        }
        if change.attaches {
            self.called_by(&nobody(&spec.driver_name));
        }
    }

    /// The Volumes whose calls this instance makes.
    fn called_by(&self, instance: &str) {
        for volume in self.volumes.by_index(BY_CONTROLLER, instance) {
            let meta = &volume.metadata;
            self.key(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
        }
        for handle in self.handles.by_index(BY_CONTROLLER, instance) {
            self.key(&handle.spec.volume.namespace, &handle.spec.volume.name);
        }
        for attachment in self.attachments.by_index(BY_CONTROLLER, instance) {
            self.volume_of(&attachment);
        }
    }

    fn volume_of(&self, attachment: &Attachment) {
        self.key(&attachment.spec.volume.namespace, &attachment.spec.volume.name);
    }

    fn key(&self, namespace: &str, name: &str) {
        self.queue.sweep(key_of(namespace, name));
    }
}
