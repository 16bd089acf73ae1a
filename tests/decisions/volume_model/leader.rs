//! The leader: one step at a time, as [`moor::leader::plan`] says, on its view of Volumes and with its live looks.

use moor::api::volume::{DeletionPolicy, VolumeAssignment, VolumeOperation};
use moor::leader::{LeaderStep, Look, Looked};
use moor::volume::CallerNow;
use moor::volume::Grows;

use super::super::observed::Observed;
use super::state::{Handle, Harm, State, Vol, agent_of, handle_seen, kind_of, object, reference};

/// The step that is due for a Volume, as the leader sees it, with the looks that it asks for.
pub fn plan(state: &State, v: u8) -> Option<(Vol, LeaderStep)> {
    let vol = state.old.unwrap_or(state.volumes)[usize::from(v)]?;
    // One that owns the VolumeHandle is found by that, any other by the id, which only a status or spec names.
    let volume = object(v, &vol);
    let names = volume.status.as_ref().is_some_and(|s| s.volume_handle.is_some())
        || volume.spec.volume_handle.is_some();
    let observed = Observed {
        volume: Some(volume),
        instances: state.instances(),
        grows: Some(Grows::ByController),
        modifies: Some(true),
        handle: state.handle.filter(|h| names || h.owner == v).map(handle_seen),
        ..Observed::default()
    };
    let mut looked = Looked::default();
    loop {
        match observed.plan(&looked).step {
            LeaderStep::Rest => return None,
            LeaderStep::Look(look) => answer(state, v, look, &mut looked),
            step => return Some((vol, step)),
        }
    }
}

fn answer(state: &State, v: u8, look: Look, looked: &mut Looked) {
    match look {
        Look::Locks => looked.locks = Some(Vec::new()),
        Look::Attachment { name } => drop(looked.attachments.insert(name, None)),
        Look::Caller(controller) => {
            let dead = state.is_dead(agent_of(&controller));
            let now = if dead { CallerNow::CutOff } else { CallerNow::MayCall };
            looked.callers.insert(controller, now);
        }
        Look::Assigned => {
            let live = state.volumes[usize::from(v)].map(|vol| object(v, &vol));
            looked.assigned = Some(live.and_then(|volume| volume.spec.assignment));
        }
        Look::Owner => {
            let owner = state.handle.map(|h| usize::from(h.owner));
            looked.owner_exists = Some(owner.is_some_and(|owner| state.volumes[owner].is_some()));
        }
        // Nothing is made of it here: `snapshot_model` has that.
        Look::Copies { .. } => looked.copied_by = Some(None),
        // The storage has one owner here: no PersistentVolume names it.
        Look::Holders { .. } => looked.shared_with = Some(None),
        Look::PersistentVolumes(_) => looked.named_by = Some(None),
        Look::Handle { name } => {
            looked.handles.insert(name, state.handle.map(handle_seen));
        }
        Look::Node { .. }
        | Look::Users { .. }
        | Look::Claim { .. }
        | Look::Pod { .. }
        | Look::EndedReports => unreachable!("{look:?}: there are no Attachments and no claims"),
    }
}

/// A write about a Volume that goes, on its way since its leader has looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Late {
    v: u8,
    seen: Vol,
    write: Write,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Write {
    Close(Option<DeletionPolicy>),
    Order(u8),
    RemoveHandle,
}

/// The write that is due for a Volume, if it is one that may come late.
pub fn late(state: &State, v: u8) -> Option<Late> {
    let (seen, step) = plan(state, v)?;
    let write = match step {
        LeaderStep::BeginClosing { last } => Write::Close(last),
        LeaderStep::AssignVolume(to) if to.operation == VolumeOperation::Delete => {
            Write::Order(agent_of(to.controller.as_ref()?))
        }
        LeaderStep::RemoveHandle => Write::RemoveHandle,
        _ => return None,
    };
    Some(Late { v, seen, write })
}

/// It comes.
pub fn comes(state: &mut State, Late { v, seen, write }: Late) {
    let step = match write {
        Write::Close(last) => LeaderStep::BeginClosing { last },
        Write::Order(agent) => {
            let to = object(v, &seen).assignment(VolumeOperation::Delete, Some(reference(agent)));
            LeaderStep::AssignVolume(to)
        }
        Write::RemoveHandle => LeaderStep::RemoveHandle,
    };
    // It is another leader's than the one whose watch may be behind.
    let old = state.old;
    act(state, v, seen, step);
    state.old = old;
}

/// Does it.
pub fn act(state: &mut State, v: u8, seen: Vol, step: LeaderStep) {
    match step {
        LeaderStep::AssignVolume(to) => assign(state, v, seen, &to),
        LeaderStep::CreateHandle { epoch: _, closing, closed_for: last, controller } => {
            let controller = controller.as_ref().map_or(0, agent_of);
            refuse_late(state);
            state.handle.get_or_insert(Handle { owner: v, closing, last, controller });
        }
        LeaderStep::AllowDeletion(may_delete) => write(state, v, seen, Vol { may_delete, ..seen }),
        LeaderStep::ReportReady => {
            write(state, v, seen, Vol { state: moor::api::VolumeState::Ready, ..seen });
        }
        LeaderStep::RestoreStatus { state_too: true } => {
            write(state, v, seen, Vol { state: moor::api::VolumeState::Created, ..seen });
        }
        LeaderStep::BeginClosing { last } => {
            assert_eq!(
                last.is_some(),
                seen.deleted,
                "only a Volume that is deleted lets its VolumeHandle go"
            );
            change(state, |h| (h.closing, h.last) = (true, last));
        }
        LeaderStep::FinishClosing { first_controller, .. } => change(state, |h| {
            h.closing = false;
            h.controller = first_controller.as_ref().map_or(h.controller, agent_of);
        }),
        LeaderStep::TakeOver => {
            let controller = seen.assigned.map_or(0, |(_, agent)| agent);
            refuse_late(state);
            state.handle = Some(Handle { owner: v, closing: false, last: None, controller });
        }
        LeaderStep::MoveHandle(to) => change(state, |h| h.controller = agent_of(&to)),
        LeaderStep::RemoveHandle => {
            refuse_late(state);
            state.handle = None;
        }
        LeaderStep::FreeVolume => {
            if state.volumes[usize::from(v)] == Some(seen) {
                state.kept |= v == 0 && seen.retain;
                state.volumes[usize::from(v)] = None;
                state.old = None;
            }
        }
        other => unreachable!("{other:?}: there are no Attachments, no claims and no PersistentVolumes"),
    }
}

fn assign(state: &mut State, v: u8, seen: Vol, to: &VolumeAssignment) {
    let agent = to.controller.as_ref().map_or(0, agent_of);
    // With the first assignment the spec is granted as it is (`controller/volumes.rs`).
    let first = seen.assigned.is_none().then_some(seen.used);
    let granted = to.granted.as_ref().map(kind_of).or(first);
    let edit = to.edit.as_ref().map(|edit| (u8::try_from(edit.number).expect("a few"), kind_of(&edit.asked)));
    let (assigned, created_before) = (Some((to.operation, agent)), to.created_before);
    let new = Vol { held: true, assigned, created_before, granted, edit, ..seen };
    let is_confirmed =
        edit.is_some_and(|(number, asked)| granted == Some(asked) && state.confirmed & (1 << number) != 0);
    if state.write(v, seen, new) && seen.granted.is_some() && granted != seen.granted && !is_confirmed {
        state.harmed(Harm::GrantedUnasked);
    }
    state.old = None;
}

/// The leader's view of the VolumeHandle is never old here, so its guard always holds.
fn change(state: &mut State, how: impl FnOnce(&mut Handle)) {
    refuse_late(state);
    if let Some(handle) = &mut state.handle {
        how(handle);
    }
}

/// The VolumeHandle changes, and by its version what is on its way to it is refused.
fn refuse_late(state: &mut State) {
    state.late = state.late.filter(|late| matches!(late.write, Write::Order(_)));
}

/// A conflict, as the answer to an own write, brings the leader up to date.
fn write(state: &mut State, v: u8, seen: Vol, new: Vol) {
    state.write(v, seen, new);
    state.old = None;
}
