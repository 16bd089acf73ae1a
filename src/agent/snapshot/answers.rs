//! What the answers to a Snapshot's calls say.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::agent::calls::attempt::Due;
use crate::agent::calls::failure::Failure;
use crate::api::conditions::{Desired, Reason};
use crate::api::snapshot::{MemberStatus, SnapshotStatus};
use crate::api::{Snapshot, SnapshotState, quantity};
use crate::csi::CallError;
use crate::csi::proto::Timestamp as Stamp;
use crate::csi::proto::csi::v1 as wire;

/// A failed call, and the driver's own answer if there was one.
pub(super) type Failed = (Failure, Option<CallError>);

/// The result of a call that did not fail.
#[derive(Clone)]
pub(super) enum Answer {
    /// The driver has it; with the UID of the Plugin.
    There(wire::Snapshot, Option<String>),
    /// The driver has the group; with the UID of the Plugin.
    Group(wire::VolumeGroupSnapshot, Option<String>),
    /// The driver does not list snapshots, so nobody knows whether the one that is registered is there.
    Unasked(Option<String>),
    /// It is gone; with a word about how.
    Deleted(Option<String>),
    /// The Snapshot is deleted, and the driver says clearly that it has made nothing.
    NotMade,
}

impl Answer {
    /// Puts the result into the status, and returns the condition for it.
    pub(super) fn take_in(self, snapshot: &Snapshot, status: &mut SnapshotStatus) -> Desired {
        status.may_exist = false;
        match self {
            Self::There(there, plugin_uid) => {
                status.plugin_uid = plugin_uid;
                take_in(status, there)
            }
            Self::Group(there, plugin_uid) => {
                status.plugin_uid = plugin_uid;
                take_in_group(status, there)
            }
            Self::Unasked(plugin_uid) => {
                status.plugin_uid = plugin_uid;
                status.state = SnapshotState::Ready;
                status.snapshot_handle.clone_from(&snapshot.spec.snapshot_handle);
                let message = "the driver does not list snapshots (no LIST_SNAPSHOTS), so it was not asked whether it has this one";
                Desired::new(Reason::Ready, message)
            }
            Self::Deleted(note) => {
                let message = note.map_or("the driver has deleted it".into(), |n| format!("deleted; {n}"));
                deleted(status, message)
            }
            Self::NotMade => deleted(status, "it was deleted before the driver took it".into()),
        }
    }
}

/// The snapshot is no more, as far as this object is concerned.
pub(super) fn deleted(status: &mut SnapshotStatus, message: String) -> Desired {
    status.state = SnapshotState::Deleted;
    Desired { reason: Reason::Deleted, message }
}

fn take_in(status: &mut SnapshotStatus, there: wire::Snapshot) -> Desired {
    let of = Some(there.source_volume_id).filter(|id| !id.is_empty());
    status.source_volume_handle = of.or_else(|| status.source_volume_handle.take());
    status.creation_time = moment(there.creation_time);
    let size = Some(there.size_bytes).filter(|bytes| *bytes > 0);
    status.restore_size_bytes = size;
    status.restore_size = size.map(quantity::human);
    status.state = if there.ready_to_use { SnapshotState::Ready } else { SnapshotState::Created };
    let id = status.snapshot_handle.insert(there.snapshot_id);
    has(id, there.ready_to_use, "the Volume is")
}

/// The moment that a driver says, in whole seconds.
fn moment(said: Option<Stamp>) -> Option<Time> {
    let taken = said.and_then(|time| Timestamp::new(time.seconds, time.nanos).ok());
    taken.and_then(|taken| Timestamp::from_second(taken.as_second()).ok()).map(Time)
}

/// The condition of what the driver has. `kept`: what is kept until it is ready.
fn has(id: &str, is_ready: bool, kept: &str) -> Desired {
    if is_ready {
        return Desired::new(Reason::Ready, format!("volumes can be made of it; the driver calls it {id}"));
    }
    let message = format!(
        "the driver has it as {id} and still works on it; it is asked again until it is ready to use, and {kept} kept until then: \
         deleting this Snapshot gives it up"
    );
    Desired::new(Reason::NotReadyToUse, message)
}

/// Puts a group into the status, and returns the condition for it.
fn take_in_group(status: &mut SnapshotStatus, there: wire::VolumeGroupSnapshot) -> Desired {
    status.creation_time = moment(there.creation_time);
    status.state = if there.ready_to_use { SnapshotState::Ready } else { SnapshotState::Created };
    status.members = there.snapshots.into_iter().map(member).collect();
    let id = status.snapshot_handle.insert(there.group_snapshot_id);
    has(id, there.ready_to_use, "the Volumes are")
}

fn member(of: wire::Snapshot) -> MemberStatus {
    MemberStatus {
        volume_handle: Some(of.source_volume_id).filter(|id| !id.is_empty()),
        snapshot_handle: of.snapshot_id,
        restore_size_bytes: Some(of.size_bytes).filter(|bytes| *bytes > 0),
        ready_to_use: of.ready_to_use,
    }
}

/// Refuses an answer with another id than the driver has given before.
pub(super) fn is_as_before(due: &Due<'_>, snapshot: &Snapshot, id: &str) -> Result<(), Failed> {
    let known = snapshot.handle().or(snapshot.said_handle());
    let Some(known) = known.filter(|known| *known != id) else { return Ok(()) };
    let what = format!(
        "the driver has answered the same {} with {known} before and with {id} now; look at the driver",
        due.rpc
    );
    Err((Failure::bad_answer(Reason::AnswerRefused, due.rpc, what), None))
}

/// What the driver does not have that is registered. There is nothing to try: an owner has named it wrongly, or it was deleted.
pub(super) fn not_there(due: &Due<'_>, what: String) -> Failed {
    (Failure::bad_answer(Reason::SnapshotNotFound, due.rpc, what), None)
}
