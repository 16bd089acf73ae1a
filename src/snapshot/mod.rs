//! Decisions about Snapshots: taking, registering and deleting them, and what keeps them and their volumes meanwhile.
//!
//! Pure: data in, data out.
//!
//! What is copied and what it is copied from are two objects, and nothing is written to both at once. So each end has a mark
//! that is never taken back, its deletion, and each beginning is looked for after that mark: the leader lists, after it has
//! seen a deletion, what was assigned to be made of the deleted object, and an agent that has not begun reads the source
//! before its first call and begins nothing of one that is being deleted. Whichever comes second finds the first (rule R1). What
//! an agent does not begin it says for good (`status.sourceGone`), so that nobody waits for it.
// A variant that is new has to be decided about wherever one is.
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

mod caller;
pub mod calls;
mod deletion;
pub mod plan;
pub mod reason;
mod secrets;
pub mod seen;

use crate::api::snapshot::SnapshotOperation;
use crate::api::{Snapshot, SnapshotState, Volume, VolumeState};
pub use plan::plan;
pub use reason::SnapshotWaiting;
pub use seen::{Holder, Look, Looked, Seen, SnapshotStep, VolumeSeen};

/// Whether the driver may be taking the snapshot of the volume with this UID, or be working on it: until it is ready the
/// volume stays. One of which nothing was assigned has not begun, and begins nothing of a volume that is being deleted.
#[must_use]
pub fn is_taken_of(snapshot: &Snapshot, volume_uid: &str) -> bool {
    let Some(assignment) = &snapshot.spec.assignment else { return false };
    let is_of = assignment.taken_of().any(|volume| volume.uid == volume_uid);
    is_of && assignment.operation == SnapshotOperation::Create && may_be_calling(snapshot)
}

/// Whether a call of it may be running, or made, as it is its agent's to make in this state.
#[must_use]
pub fn may_be_calling(snapshot: &Snapshot) -> bool {
    let Some(assignment) = &snapshot.spec.assignment else { return false };
    match (assignment.operation, snapshot.state()) {
        (
            SnapshotOperation::Create | SnapshotOperation::List,
            SnapshotState::Pending | SnapshotState::Created,
        ) => !snapshot.source_is_gone(),
        (SnapshotOperation::Delete, SnapshotState::Created | SnapshotState::Ready) => true,
        (
            SnapshotOperation::Create | SnapshotOperation::List,
            SnapshotState::Ready | SnapshotState::Deleted,
        )
        | (SnapshotOperation::Delete, SnapshotState::Pending | SnapshotState::Deleted) => false,
    }
}

/// Whether the driver may be making this Volume of what its assignment names.
#[must_use]
pub fn is_being_made(volume: &Volume) -> bool {
    let is_of = volume.spec.assignment.as_ref().is_some_and(|assignment| assignment.source.is_some());
    is_of && volume.state() == VolumeState::Pending && !volume.source_is_gone()
}
