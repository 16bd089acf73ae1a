//! What the leader's decision about a Snapshot looks at, and the steps that it can come to.

use super::reason::SnapshotWaiting;
use crate::api::attachment::ControllerRef;
use crate::api::snapshot::SnapshotAssignment;
use crate::api::{Snapshot, SnapshotState, Volume, VolumeHandle};
use crate::plugin::allow::NotAllowed;
use crate::volume::{CallerNow, Places, PluginSeen};

/// Everything the decision looks at.
#[derive(Clone, Debug)]
pub struct Seen<'a> {
    /// The Snapshot.
    pub snapshot: &'a Snapshot,
    /// Whether the Snapshot carries our finalizer.
    pub held: bool,
    /// Name of the Plugin; empty while it is not known.
    pub plugin_name: &'a str,
    /// The Plugin and its instances.
    pub plugin: PluginSeen<'a>,
    /// The driver, as the Plugin names it.
    pub driver: &'a str,
    /// Whether the driver takes snapshots: `CREATE_DELETE_SNAPSHOT`; None while no instance of it has said so.
    pub takes: Option<bool>,
    /// What the Snapshot asks for and its namespace may not. It counts only for what has not been granted yet.
    pub not_allowed: Option<NotAllowed>,
    /// The Volume that it names.
    pub volume: Option<&'a Volume>,
    /// The VolumeHandle of that Volume.
    pub lock: Option<&'a VolumeHandle>,
    /// A Volume that is being made of it, in words, as far as the caches know.
    pub made_from: Option<String>,
}

/// A live read that the plan asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Look {
    /// Whether this controller instance can still be making a call (rule R2).
    Caller(ControllerRef),
    /// LIST the Volumes that are being made of it.
    MadeFrom,
    /// LIST the other Snapshots whose assignment names the snapshot of this id.
    Holders(String),
}

/// The answers so far.
#[derive(Clone, Debug, Default)]
pub struct Looked {
    /// Answers to [`Look::Caller`].
    pub callers: Vec<(ControllerRef, CallerNow)>,
    /// Answer to [`Look::MadeFrom`]: one of them, in words.
    pub made_from: Option<Option<String>>,
    /// Answer to [`Look::Holders`].
    pub holders: Option<Vec<Holder>>,
}

/// Another Snapshot that stands for a snapshot of the driver.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// In words: its name, where this Snapshot's users may know that.
    pub words: String,
    /// It is deleted, and what it stands for is to go with it.
    pub ends: bool,
    /// Its DeleteSnapshot is ordered.
    pub ordered: bool,
    /// Somebody with the right to do so has named the snapshot.
    pub registered: bool,
}

/// One step. Every variant is at most one side effect.
#[derive(Clone, Debug, PartialEq)]
pub enum SnapshotStep {
    /// Nothing to do until something changes.
    Idle,
    /// Write the condition and wait.
    Wait(SnapshotWaiting),
    /// Read this live, and plan again.
    Look(Look),
    /// Write finalizer and assignment in one patch.
    Assign(SnapshotAssignment),
    /// Write into the status what the assignment says of what there is: the status was lost.
    Restore(SnapshotState),
    /// Take the finalizer off.
    Free,
}

/// A step, or what has to be read live before it is known.
pub(super) type Planned = Result<SnapshotStep, Look>;

/// Where the volume is, and so where its snapshot is.
pub(super) fn places<'a>(seen: &Seen<'a>) -> Places<'a> {
    let assignment = seen.snapshot.spec.assignment.as_ref();
    let status = seen.volume.and_then(|volume| volume.status.as_ref());
    let required = assignment.map(|assignment| &*assignment.accessible_topology);
    let required = required.or_else(|| Some(&*status?.accessible_topology)).unwrap_or_default();
    Places { required, preferred: &[] }
}

/// What snapshots are spread over instances by: the UID.
pub(super) fn key<'a>(seen: &Seen<'a>) -> &'a str {
    seen.snapshot.metadata.uid.as_deref().unwrap_or_default()
}

/// The same, with the id by which its driver knows it.
pub(super) fn confirmed(assignment: &SnapshotAssignment, id: &str) -> SnapshotAssignment {
    SnapshotAssignment { snapshot_handle: Some(id.to_owned()), ..assignment.clone() }
}

/// What the status has to say of a snapshot that is known to be there, and does not: somebody has lost it. A snapshot whose volume
/// is gone is ready, as its volume was kept until it was.
pub(super) fn lost(
    seen: &Seen<'_>,
    assignment: &SnapshotAssignment,
    is_there: bool,
) -> Option<SnapshotState> {
    let is_lost = is_there && seen.snapshot.state() == SnapshotState::Pending;
    let is_known = is_lost && assignment.snapshot_handle.is_some();
    let state =
        if lock_of(seen, assignment).is_some() { SnapshotState::Created } else { SnapshotState::Ready };
    is_known.then_some(state)
}

/// The VolumeHandle of the volume that the snapshot is of, if it is still the same Volume's.
pub(super) fn lock_of<'a>(seen: &Seen<'a>, assignment: &SnapshotAssignment) -> Option<&'a VolumeHandle> {
    let of = assignment.volume.as_ref()?;
    seen.lock.filter(|lock| lock.spec.volume.uid == of.uid)
}
