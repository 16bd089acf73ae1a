//! The queues of the agent's workers, and the keys in them.

use std::sync::Arc;

use crate::k8s::Queue;

/// The queues of the agent's work.
#[derive(Default)]
pub(crate) struct Queues {
    /// Staging and publishing, by VolumeHandle: one worker for all that this node has of one, which is the mutex of
    /// rule R5.
    pub nodes: Arc<Queue<String>>,
    /// Attaching and detaching, by VolumeHandle: one call per handle.
    pub handles: Arc<Queue<String>>,
    /// Volumes' own calls, by UID.
    pub volumes: Arc<Queue<String>>,
    /// Snapshots' calls, by UID.
    pub snapshots: Arc<Queue<String>>,
    /// PluginInstances, by driver name.
    pub instances: Arc<Queue<String>>,
    /// What kubelet is served, by driver name.
    pub kubelet: Arc<Queue<String>>,
    /// Claims that kubelet has unpublished, by name: they are deleted.
    pub releases: Arc<Queue<String>>,
    /// Questions after a driver's room, by driver name.
    pub capacities: Arc<Queue<String>>,
    /// Audits of what a driver lists as attached, by driver name.
    pub audits: Arc<Queue<String>>,
}

impl Queues {
    /// Puts a parked key back into its queue, because there may be a turn for it now.
    pub fn wake(&self, parked: Parked) {
        match parked {
            Parked::Node(handle) => self.nodes.add(handle),
            Parked::Handle(handle) => self.handles.add(handle),
            Parked::Volume(uid) => self.volumes.add(uid),
            Parked::Snapshot(uid) => self.snapshots.add(uid),
        }
    }
}

/// The key of a pass, to be put into its queue again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Parked {
    /// The node's calls of a VolumeHandle.
    Node(String),
    /// Controller calls of a VolumeHandle.
    Handle(String),
    /// A Volume's own calls.
    Volume(String),
    /// A Snapshot's calls.
    Snapshot(String),
}
