//! Kubernetes Events: for people, never for decisions.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kube::{
    Client, Resource,
    runtime::events::{Event, EventType, Recorder as KubeRecorder, Reporter},
};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};
use tracing::debug;

use crate::api::conditions::shortened;
use crate::api::words::words;

/// Longest note, in bytes: the API server refuses more.
const NOTE: usize = 1024;
/// A slow API server must not hold up a pass for the sake of an Event.
const DEADLINE: Duration = Duration::from_secs(5);
/// An Event that comes later after one with the same note begins a series of its own, as kube has it.
const SERIES: Duration = Duration::from_secs(6 * 60);

words! {
    /// Why an Event was made. Closed, so that alerts can be written against it.
    pub enum EventReason: EventType {
        EventType::Normal => {
            /// A driver is well, and was not: on a node (PluginInstance), or enough of its processes for everything (Plugin).
            Healthy,
            /// A driver has left a node for good, and its PluginInstance there was deleted (Plugin). If it comes back it is
            /// registered anew.
            Deregistered,
            /// The volume of a PersistentVolumeClaim has the size that the claim asks for, and its file system follows when
            /// a Pod has it on a node.
            FileSystemResizeRequired,
            /// The volume of a PersistentVolumeClaim has the size that the claim asks for.
            VolumeResizeSuccessful,
            /// The driver is asked for what the VolumeAttributesClass of a PersistentVolumeClaim says.
            VolumeModify,
            /// The volume of a PersistentVolumeClaim is as its VolumeAttributesClass says.
            VolumeModifySuccessful,
            /// A PersistentVolumeClaim names no VolumeAttributesClass any more, and the driver is not asked for the one that it
            /// named.
            VolumeModifyCancelled,
            /// Nothing is wrong with a Volume any more.
            VolumeConditionNormal,
            /// The driver lists the storage of a Volume or a Snapshot again, which it did not.
            StorageFound,
        }
        EventType::Warning => {
            /// A CSI call failed for the first time. The object's status says how it goes on.
            CallFailed,
            /// A driver is not well any more: on a node (PluginInstance, also where it is not well in time), or so that a service of
            /// it is nowhere to be had (Plugin). The note says why.
            Unhealthy,
            /// A driver that moor runs was not well, and its Pod was ended so that another one takes its place (Plugin). The note
            /// names it and says what was wrong.
            Restarted,
            /// A Pod waits for its volume. The note says who holds it or what its driver says.
            WaitsForVolume,
            /// A PersistentVolumeClaim cannot be provisioned now. The note says why, in the driver's words where it is the
            /// driver. It is tried again.
            ProvisioningFailed,
            /// The volume of a PersistentVolumeClaim cannot grow now. The note says why, in the driver's words where it is the
            /// driver. It is tried again.
            VolumeResizeFailed,
            /// The volume of a PersistentVolumeClaim cannot be made what its VolumeAttributesClass says now. The note says why, in
            /// the driver's words where it is the driver. It is tried again.
            VolumeModifyFailed,
            /// The storage of a PersistentVolume that nobody claims any more cannot be deleted now. The note says why. It is
            /// tried again.
            VolumeFailedDelete,
            /// The snapshot of a VolumeSnapshotContent cannot be taken now. The note says why, in the driver's words where it is
            /// the driver. It is tried again.
            SnapshotCreationFailed,
            /// The snapshot that a VolumeSnapshotContent names cannot be looked at now, or is not there. The note says why. It is
            /// tried again.
            SnapshotContentCheckandUpdateFailed,
            /// The storage of a VolumeSnapshotContent cannot be deleted now. The note says why. It is tried again.
            SnapshotDeleteError,
            /// The group of a VolumeGroupSnapshotContent cannot be taken now. The note says why, in the driver's words where it is the
            /// driver. It is tried again.
            GroupSnapshotCreationFailed,
            /// The group that a VolumeGroupSnapshotContent names cannot be looked at now, or is not there. The note says why. It is
            /// tried again.
            GroupSnapshotContentCheckandUpdateFailed,
            /// The storage of a VolumeGroupSnapshotContent cannot be deleted now. The note says why. It is tried again.
            GroupSnapshotDeleteError,
            /// A node was declared lost, and its attachments are undone without it.
            NodeLost,
            /// Something was undone by force, as somebody ordered.
            Forced,
            /// Something is on a node that no object accounts for. The note says what, and what became of it.
            Orphan,
            /// The storage says otherwise than the objects about what is attached. See the Volume's condition Drifted.
            Drifted,
            /// A driver lists storage that moor has had made and that no object stands for. See the Plugin's condition Orphans.
            OrphanedStorage,
            /// The driver does not list the storage of a Volume or a Snapshot any more. See the object's condition StorageFound.
            StorageMissing,
            /// Something is wrong with a Volume, on a node or by its driver's word, that was not before. See its status.health.
            VolumeConditionAbnormal,
            /// A Volume went and its storage stays, because a PersistentVolume names it.
            StorageLeft,
            /// The scheduler is told nothing of the room that a Plugin's driver has. The note says why.
            RoomUntold,
            /// An object cannot be read, so the leader does nothing about it. The note names the field.
            InvalidObject,
            /// The API server refuses what has to be written. The note has its words.
            WriteRefused,
        }
    }
}

/// Which of moor's roles reports an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The controller.
    Controller,
    /// The agent of a node.
    Agent,
}

impl Role {
    /// The role's name, as an Event's reportingController.
    fn name(self) -> &'static str {
        match self {
            Self::Controller => "moor.dev/controller",
            Self::Agent => "moor.dev/agent",
        }
    }
}

/// Publishes Events. Needs `create` and `patch` on events.events.k8s.io; repeated ones become a series.
#[derive(Clone)]
pub struct Recorder {
    client: Client,
    reporter: Reporter,
    /// kube's recorders by the note of their Events, and when each was used last. A recorder makes one series of all Events of
    /// a reason about an object, with the note of the first; what is told since would not be told.
    by_note: Arc<Mutex<HashMap<String, (KubeRecorder, Instant)>>>,
}

impl Recorder {
    /// A recorder of the Events of an instance (Pod or node name) of a role.
    #[must_use]
    pub fn new(client: Client, role: Role, instance: &str) -> Self {
        let reporter = Reporter { controller: role.name().into(), instance: Some(instance.into()) };
        Self { client, reporter, by_note: Arc::default() }
    }

    fn of_note(&self, note: &str) -> KubeRecorder {
        let now = Instant::now();
        let mut all = self.by_note.lock();
        all.retain(|_, (_, used)| now.duration_since(*used) < SERIES);
        let of_note = || (KubeRecorder::new(self.client.clone(), self.reporter.clone()), now);
        let (recorder, used) = all.entry(note.to_owned()).or_insert_with(of_note);
        *used = now;
        recorder.clone()
    }

    /// Publishes an Event about `object`. Takes at most 5 s and never fails the caller; an Event that is
    /// lost is logged at debug level.
    pub async fn publish<K>(&self, object: &K, reason: EventReason, action: &'static str, note: &str)
    where
        K: Resource<DynamicType = ()>,
    {
        let note = shortened(note, NOTE);
        let event = Event {
            type_: reason.group(),
            reason: reason.as_str().into(),
            note: Some(note.into()),
            action: action.into(),
            secondary: None,
        };
        match timeout(DEADLINE, self.of_note(note).publish(&event, &object.object_ref(&()))).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => debug!(reason = reason.as_str(), "event lost: {error}"),
            Err(_) => debug!(reason = reason.as_str(), "event lost: no answer in {DEADLINE:?}"),
        }
    }

    /// As [`Self::publish`], without waiting for it.
    pub fn tell<K>(&self, object: &Arc<K>, reason: EventReason, action: &'static str, note: String)
    where
        K: Resource<DynamicType = ()> + Send + Sync + 'static,
    {
        let (me, object) = (self.clone(), object.clone());
        tokio::spawn(async move { me.publish(&*object, reason, action, &note).await });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_note_is_cut_between_characters() {
        let note = "é".repeat(600);
        assert_eq!(shortened(&note, NOTE).len(), 1024);
        let note = format!("x{note}");
        assert_eq!(shortened(&note, NOTE).len(), 1023);
        assert_eq!(shortened("short", NOTE), "short");
    }
}
