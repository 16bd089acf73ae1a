//! What the leader's decision about a Snapshot looks at, and the steps that it can come to.

use super::reason::SnapshotWaiting;
use crate::api::caller::ControllerRef;
use crate::api::snapshot::{SnapshotAssignment, SnapshotMember, SnapshotVolume};
use crate::api::volume::Segments;
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
    /// Whether the driver takes snapshots: `CREATE_DELETE_SNAPSHOT`, for a group `CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT`; None
    /// while no instance of it has said so.
    pub takes: Option<bool>,
    /// Whether the driver says whether it has one that is registered: `LIST_SNAPSHOTS`, for a group as `takes`.
    pub finds: bool,
    /// What the Snapshot asks for and its namespace may not. It counts only for what has not been granted yet.
    pub not_allowed: Option<NotAllowed>,
    /// The Volumes that it names, in that order: one, several for a group, none for one that is registered.
    pub volumes: Vec<VolumeSeen<'a>>,
    /// A Volume that is being made of it, in words, as far as the caches know.
    pub made_from: Option<String>,
}

/// A Volume of which a snapshot is to be taken.
#[derive(Clone, Copy, Debug)]
pub struct VolumeSeen<'a> {
    /// Its name.
    pub name: &'a str,
    /// The Volume, if there is one.
    pub volume: Option<&'a Volume>,
    /// The VolumeHandle of the Volume that the Snapshot was begun of, or else of this one.
    pub lock: Option<&'a VolumeHandle>,
}

/// A live read that the plan asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Look {
    /// Whether this controller instance can still be making a call (rule R2).
    Caller(ControllerRef),
    /// LIST the Volumes that are being made of it.
    MadeFrom,
    /// LIST the other Snapshots whose assignment names one of the snapshots of these ids.
    Holders(Vec<String>),
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
    /// It is a VolumeGroupSnapshotContent's, and this one the VolumeSnapshotContent's of one of its members.
    pub has_it: bool,
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
    Assign(Box<SnapshotAssignment>),
    /// Write into the status what the assignment says of what there is: the status was lost.
    Restore(SnapshotState),
    /// Take the finalizer off.
    Free,
}

/// A step, or what has to be read live before it is known.
pub(super) type Planned = Result<SnapshotStep, Look>;

/// Where the volume is, and so where its snapshot is. Of volumes that are at different places it is not known where all are.
pub(super) fn places<'a>(seen: &Seen<'a>) -> Places<'a> {
    let assignment = seen.snapshot.spec.assignment.as_ref();
    let common = seen.volumes.first().filter(|_| apart(seen).is_none()).and_then(place);
    let required = assignment.map(|assignment| &*assignment.accessible_topology);
    Places { required: required.or(common).unwrap_or_default(), preferred: &[] }
}

fn place<'a>(of: &VolumeSeen<'a>) -> Option<&'a [Segments]> {
    Some(&of.volume?.status.as_ref()?.accessible_topology)
}

/// Two volumes that are at different places, by the names of their Volumes.
pub(super) fn apart<'a>(seen: &Seen<'a>) -> Option<(&'a str, &'a str)> {
    let first = seen.volumes.first()?;
    let other = seen.volumes.iter().find(|other| place(other) != place(first))?;
    Some((first.name, other.name))
}

/// What snapshots are spread over instances by: the UID.
pub(super) fn key<'a>(seen: &Seen<'a>) -> &'a str {
    seen.snapshot.metadata.uid.as_deref().unwrap_or_default()
}

/// The same, with the ids by which its driver knows it and the members of a group.
pub(super) fn confirmed(assignment: &SnapshotAssignment, said: Said) -> SnapshotAssignment {
    SnapshotAssignment { snapshot_handle: Some(said.id), members: said.members, ..assignment.clone() }
}

/// What an agent says that the driver has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) id: String,
    pub(super) members: Vec<SnapshotMember>,
}

impl Said {
    /// None: it says nothing. An error: the members that it says are not one of each volume.
    pub(super) fn of(snapshot: &Snapshot, assignment: &SnapshotAssignment) -> Result<Option<Self>, NotWhole> {
        let Some(id) = snapshot.said_handle() else { return Ok(None) };
        let said = snapshot.status.as_ref().map(|status| &*status.members).unwrap_or_default();
        let member_of = |of: &SnapshotVolume| {
            let mut own = said.iter().filter(|m| m.volume_handle.as_ref() == Some(&of.volume_handle));
            let (Some(member), None) = (own.next(), own.next()) else { return Err(NotWhole) };
            Ok(SnapshotMember {
                volume_handle: member.volume_handle.clone(),
                snapshot_handle: member.snapshot_handle.clone(),
            })
        };
        // The members of one that is registered are those that its owner has named.
        let members = if assignment.volumes.is_empty() {
            assignment.members.clone()
        } else {
            assignment.volumes.iter().map(member_of).collect::<Result<_, _>>()?
        };
        Ok(Some(Self { id: id.to_owned(), members }))
    }

    /// The ids of all.
    pub(super) fn ids(&self) -> Vec<String> {
        let members = self.members.iter().map(|member| &member.snapshot_handle);
        [&self.id].into_iter().chain(members).cloned().collect()
    }
}

/// An agent says that the driver has a group without one member of each volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotWhole;

/// What the status has to say of a snapshot that is known to be there, and does not: somebody has lost it. A snapshot whose volume
/// is gone is ready, as its volume was kept until it was.
pub(super) fn lost(
    seen: &Seen<'_>,
    assignment: &SnapshotAssignment,
    is_there: bool,
) -> Option<SnapshotState> {
    let is_lost = is_there && seen.snapshot.state() == SnapshotState::Pending;
    let is_known = is_lost && assignment.snapshot_handle.is_some();
    let locks = locks_of(seen, assignment);
    let is_worked_on = !locks.is_empty() && locks.iter().all(Option::is_some);
    is_known.then_some(if is_worked_on { SnapshotState::Created } else { SnapshotState::Ready })
}

/// The VolumeHandles of the volumes that the snapshot is of, each if it is still the same Volume's.
pub(super) fn locks_of<'a>(
    seen: &Seen<'a>,
    assignment: &SnapshotAssignment,
) -> Vec<Option<&'a VolumeHandle>> {
    let of = |of: &SnapshotVolume| {
        seen.volumes.iter().filter_map(|seen| seen.lock).find(|lock| lock.spec.volume.uid == of.uid)
    };
    assignment.taken_of().map(of).collect()
}
