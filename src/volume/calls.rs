//! Which of a Volume's own calls its agent makes, and what live reads have to say right before one.
//!
//! A cache may be old by any time: an agent that was cut off is heard again with its first renewal, before its watches
//! are. So a cache only says what is worth a look. Everything that allows a call is read live after the last wait and
//! before the call is sent: the Volume, and for a deletion its VolumeHandle. Nothing else decides, so no watch has to
//! have caught up.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{edit, growth, handle_of, modification};
use crate::api::volume::{AssignedSource, DeletionPolicy, VolumeOperation};
use crate::api::{Volume, VolumeHandle, VolumeState};

/// A call of a Volume itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VolumeCall {
    /// CreateVolume.
    Create,
    /// ValidateVolumeCapabilities.
    Validate,
    /// DeleteVolume.
    Delete,
    /// DeleteVolume of what CreateVolume made and nobody can use.
    DeleteRejected,
    /// ControllerExpandVolume.
    Expand,
    /// ControllerModifyVolume.
    Modify,
    /// ValidateVolumeCapabilities of a volume whose use was edited.
    Revalidate,
}

/// One step. Every variant is at most one side effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AgentStep {
    /// Nothing to do until something changes.
    Idle,
    /// The call, after [`standing`] said that it may be made.
    Call(VolumeCall),
    /// Write `Deleted` without the call: nothing was ever asked of the driver.
    NeverBegun,
    /// Write `Deleted` without the call: the owner of a deleted Volume wants the storage to stay, if there is any.
    /// Without an answer from the driver this is the way out.
    GiveUp(VolumeCall),
}

/// Plans the next step for a Volume whose calls are assigned to an instance of `agent`.
#[must_use]
pub fn plan(volume: &Volume, agent: &str) -> AgentStep {
    let is_by = volume.caller().is_some_and(|caller| caller.agent == agent);
    let Some(assignment) = volume.spec.assignment.as_ref().filter(|_| is_by) else {
        return AgentStep::Idle;
    };
    let deleted = volume.metadata.deletion_timestamp.is_some();
    let call = match (assignment.operation, volume.state()) {
        (VolumeOperation::Create, VolumeState::Pending) if volume.rejected().is_some() => {
            VolumeCall::DeleteRejected
        }
        (VolumeOperation::Create, VolumeState::Pending) if volume.source_is_gone() => {
            return if deleted { AgentStep::NeverBegun } else { AgentStep::Idle };
        }
        // Also for a deleted Volume: a call may have been made, so it is repeated until its outcome is known.
        (VolumeOperation::Create, VolumeState::Pending) => VolumeCall::Create,
        (VolumeOperation::Validate, VolumeState::Pending) if !deleted => VolumeCall::Validate,
        (VolumeOperation::Delete, VolumeState::Created | VolumeState::Ready) => VolumeCall::Delete,
        // Of a deleted Volume whose storage stays: that no call is running lets it go.
        (VolumeOperation::Expand, VolumeState::Created | VolumeState::Ready)
            if deleted && !volume.spec.deletes_storage() =>
        {
            VolumeCall::Expand
        }
        (VolumeOperation::Modify, VolumeState::Created | VolumeState::Ready)
            if deleted && !volume.spec.deletes_storage() =>
        {
            VolumeCall::Modify
        }
        (VolumeOperation::Revalidate, VolumeState::Created | VolumeState::Ready)
            if deleted && !volume.spec.deletes_storage() =>
        {
            VolumeCall::Revalidate
        }
        (VolumeOperation::Expand, VolumeState::Ready) if !deleted && growth::wanted(volume).is_some() => {
            VolumeCall::Expand
        }
        (VolumeOperation::Modify, VolumeState::Ready) if !deleted && modification::due(volume).is_some() => {
            VolumeCall::Modify
        }
        (VolumeOperation::Revalidate, VolumeState::Ready) if !deleted && edit::is_open(volume) => {
            VolumeCall::Revalidate
        }
        (VolumeOperation::Adopt, _)
        | (
            VolumeOperation::Create
            | VolumeOperation::Validate
            | VolumeOperation::Expand
            | VolumeOperation::Modify
            | VolumeOperation::Revalidate,
            VolumeState::Pending | VolumeState::Created | VolumeState::Ready | VolumeState::Deleted,
        )
        | (VolumeOperation::Delete, VolumeState::Pending | VolumeState::Deleted) => return AgentStep::Idle,
    };
    let undoes = match call {
        VolumeCall::Delete => true,
        VolumeCall::Create
        | VolumeCall::DeleteRejected
        | VolumeCall::Expand
        | VolumeCall::Modify
        | VolumeCall::Revalidate => deleted,
        VolumeCall::Validate => false,
    };
    if undoes && !volume.spec.deletes_storage() {
        AgentStep::GiveUp(call)
    } else if call == VolumeCall::DeleteRejected && !volume.rejected().is_some_and(|r| r.may_delete) {
        // The leader looks first whether it is somebody else's.
        AgentStep::Idle
    } else {
        AgentStep::Call(call)
    }
}

/// Whether it is for `agent` to call CreateVolume, or to say that nobody does.
#[must_use]
pub fn creates(volume: &Volume, agent: &str) -> bool {
    match plan(volume, agent) {
        AgentStep::Call(call) | AgentStep::GiveUp(call) => call == VolumeCall::Create,
        AgentStep::Idle | AgentStep::NeverBegun => false,
    }
}

/// What live reads say about a call that was prepared from a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// It may be sent.
    Valid,
    /// The Volume is gone.
    Gone,
    /// The Volume has changed in what decides about the call or goes into it: plan again.
    Changed,
    /// DeleteVolume, and the Volume does not hold the lock on its storage closed: somebody may use it, or it is somebody
    /// else's.
    NotClosed,
    /// DeleteVolume, and the Volume holds the lock on its storage closed, but not for that: the leader has yet to look who uses it,
    /// or the lock goes without the call.
    NotClosedForIt,
    /// DeleteVolume of what nobody can use, and there is a VolumeHandle for it, so somebody does use it.
    Locked,
    /// ControllerExpandVolume, ControllerModifyVolume or a question about an edit, and the VolumeHandle is not this Volume's, or another instance makes
    /// its controller calls.
    NotHolder,
    /// CreateVolume, and what the volume is to be made from was deleted, or is being deleted, before anything was begun: by now
    /// nobody may wait for it.
    SourceEnds,
    /// As `Locked`, and the VolumeHandle is this very Volume's: its status was lost, and a repeated CreateVolume was
    /// answered with what it has, as something that nobody can use. It is asked again.
    Own,
}

/// The UID of what the volume is to be made from, if it has to be looked at right before the call: nothing was begun, and so
/// only what is not being deleted waits for it (`snapshot/mod.rs`).
#[must_use]
pub fn source_to_look_at(call: VolumeCall, volume: &Volume) -> Option<&AssignedSource> {
    let is_begun = volume.may_exist();
    let source = volume.spec.assignment.as_ref()?.source.as_deref();
    source.filter(|_| call == VolumeCall::Create && !is_begun)
}

/// Whether CreateVolume may have been called before for a Volume: by what the object says, or, where that says nothing, by what
/// its agent remembers of this process and found when it began.
#[must_use]
pub fn may_have_been_created(volume: &Volume, remembered: bool) -> bool {
    let given = || volume.spec.assignment.as_ref().is_some_and(|assignment| assignment.created_before);
    volume.noted_to_exist().unwrap_or_else(|| volume.may_exist() && (remembered || given()))
}

/// Whether it has to be in the status before CreateVolume is called that it is: where somebody takes it from there that it was
/// not. That is so when the status has said it, and of what is made of something, which may be deleted before the call.
#[must_use]
pub fn is_noted_before(volume: &Volume) -> bool {
    let said = volume.noted_to_exist();
    let copies = volume.spec.assignment.as_ref().is_some_and(|assignment| assignment.source.is_some());
    said == Some(false) || copies && said.is_none()
}

/// Whether nothing may be made of the live object of that name, which was to have this UID.
#[must_use]
pub fn is_at_its_end(source: &AssignedSource, live: Option<&ObjectMeta>) -> bool {
    live.is_none_or(|meta| meta.uid.as_ref() != Some(&source.uid) || meta.deletion_timestamp.is_some())
}

/// Compares what a call was prepared from with the live Volume of that name, and with the live VolumeHandle of the
/// volume that the call is about.
///
/// For a deletion the VolumeHandle has to be read after the order was seen, and before the Volume. Where it is closed for a deletion no
/// leader opens it for this Volume, nor removes it before the Volume says `Deleted`; the Volume, read later, says that it does not
/// yet.
#[must_use]
pub fn standing(
    call: VolumeCall,
    prepared: &Volume,
    live: Option<&Volume>,
    lock: Option<&VolumeHandle>,
) -> Standing {
    let Some(live) = live.filter(|live| live.metadata.uid == prepared.metadata.uid) else {
        return Standing::Gone;
    };
    if !is_same(prepared, live) {
        return Standing::Changed;
    }
    match call {
        VolumeCall::Create | VolumeCall::Validate => Standing::Valid,
        VolumeCall::Delete => match lock.filter(|lock| is_closed_by(lock, live)) {
            Some(lock) if lock.spec.closed_for == Some(DeletionPolicy::Delete) => Standing::Valid,
            Some(_) => Standing::NotClosedForIt,
            None => Standing::NotClosed,
        },
        VolumeCall::Expand | VolumeCall::Modify | VolumeCall::Revalidate
            if lock.is_some_and(|lock| is_held_by(lock, live)) =>
        {
            Standing::Valid
        }
        VolumeCall::Expand | VolumeCall::Modify | VolumeCall::Revalidate => Standing::NotHolder,
        VolumeCall::DeleteRejected => match lock {
            None => Standing::Valid,
            Some(lock) if Some(&lock.spec.volume.uid) == live.metadata.uid.as_ref() => Standing::Own,
            Some(_) => Standing::Locked,
        },
    }
}

/// Whether a Volume that leaves its storage may be given up. A growth or a modification only when its lock is closed for the last
/// time: before that somebody uses the volume, and whoever reclaims its PersistentVolume then may still say that the storage is to go.
#[must_use]
pub fn may_give_up(call: VolumeCall, volume: &Volume, lock: Option<&VolumeHandle>) -> bool {
    let is_own = |lock: &VolumeHandle| Some(&lock.spec.volume.uid) == volume.metadata.uid.as_ref();
    let is_closed = |lock: &VolumeHandle| lock.spec.closing && lock.spec.closed_for.is_some();
    !is_about_one_in_use(call) || lock.is_none_or(|lock| is_closed(lock) || !is_own(lock))
}

/// Whether the call is about a volume that may be in use, so that the lock on it says who makes it.
#[must_use]
pub fn is_about_one_in_use(call: VolumeCall) -> bool {
    match call {
        VolumeCall::Expand | VolumeCall::Modify | VolumeCall::Revalidate => true,
        VolumeCall::Create | VolumeCall::Validate | VolumeCall::Delete | VolumeCall::DeleteRejected => false,
    }
}

/// Whether the assigned call may be running, as it is its agent's to make in this state.
pub(super) fn may_be_calling(operation: Option<VolumeOperation>, state: VolumeState) -> bool {
    matches!(
        (operation, state),
        (Some(VolumeOperation::Create), VolumeState::Pending)
            | (
                Some(VolumeOperation::Expand | VolumeOperation::Modify | VolumeOperation::Revalidate),
                VolumeState::Created | VolumeState::Ready
            )
            | (
                Some(VolumeOperation::Delete),
                VolumeState::Pending | VolumeState::Created | VolumeState::Ready
            )
    )
}

/// The id that DeleteVolume is called with.
#[must_use]
pub fn id_to_delete(call: VolumeCall, volume: &Volume) -> Option<&str> {
    match call {
        VolumeCall::Create
        | VolumeCall::Validate
        | VolumeCall::Revalidate
        | VolumeCall::Expand
        | VolumeCall::Modify => None,
        VolumeCall::Delete => handle_of(volume),
        VolumeCall::DeleteRejected => volume.rejected().map(|r| r.volume_handle.as_str()),
    }
}

/// Whether two versions of a Volume are the same in what decides about its calls and goes into them.
#[must_use]
pub fn is_same(one: &Volume, other: &Volume) -> bool {
    one.metadata.uid == other.metadata.uid && decisive(one) == decisive(other)
}

/// The parts of a Volume that decide about its calls: the generation, which spec, assignment and deletion raise, and
/// of the status what leads from one call to the next.
fn decisive(volume: &Volume) -> impl PartialEq + '_ {
    let meta = &volume.metadata;
    let id = volume.status.as_ref().and_then(|s| s.volume_handle.as_ref());
    (
        meta.generation,
        meta.deletion_timestamp.is_some(),
        &volume.spec.assignment,
        volume.state(),
        id,
        volume.rejected(),
        volume.source_is_gone(),
    )
}

/// Whether the VolumeHandle is this Volume's, and whoever makes its controller calls is who makes the Volume's.
fn is_held_by(lock: &VolumeHandle, volume: &Volume) -> bool {
    Some(&lock.spec.volume.uid) == volume.metadata.uid.as_ref()
        && Some(lock.spec.volume_handle.as_str()) == handle_of(volume)
        && (lock.spec.controller.is_none() || lock.spec.controller.as_ref() == volume.caller())
}

fn is_closed_by(lock: &VolumeHandle, volume: &Volume) -> bool {
    Some(&lock.spec.volume.uid) == volume.metadata.uid.as_ref()
        && lock.spec.closing
        && Some(lock.spec.volume_handle.as_str()) == id_to_delete(VolumeCall::Delete, volume)
}

#[cfg(test)]
#[path = "calls_tests.rs"]
mod tests;
