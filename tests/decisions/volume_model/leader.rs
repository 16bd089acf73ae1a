//! The leader: one step at a time, with the live looks and guards of `controller/volumes.rs` and `handles.rs`.

use moor::api::plugin::Balancing;
use moor::api::volume::VolumeAssignment;
use moor::volume::{self, VolumeStep};

use super::state::{Handle, State, Vol, agent_of, handle_seen, object};

/// The step that is due for a Volume, as the leader sees it.
pub fn plan(state: &State, v: u8) -> Option<(Vol, VolumeStep)> {
    let vol = state.old.unwrap_or(state.volumes)[usize::from(v)]?;
    let instances = state.instances();
    // One that owns the VolumeHandle is found by that, any other by the id, which only a status or spec names.
    let volume = object(v, &vol);
    let names = volume.status.as_ref().is_some_and(|s| s.volume_handle.is_some())
        || volume.spec.volume_handle.is_some();
    let handle = state.handle.filter(|h| names || h.owner == v).map(handle_seen);
    let seen = volume::Seen {
        volume: &volume,
        held: vol.held,
        plugin: Some(Balancing::SingleActive),
        older_plugin: None,
        not_allowed: None,
        names_controllers: false,
        same_driver: true,
        controllers: &instances,
        any_healthy: true,
        can_create: true,
        attaches: true,
        handle: handle.as_ref(),
        in_use_by: None,
        wanted_mode: None,
    };
    match volume::plan(&seen) {
        VolumeStep::Idle | VolumeStep::Wait(_) => None,
        step => Some((vol, step)),
    }
}

/// Does it.
pub fn act(state: &mut State, v: u8, seen: Vol, step: VolumeStep) {
    match step {
        VolumeStep::Idle | VolumeStep::Wait(_) => {}
        VolumeStep::Assign(to) => assign(state, v, seen, &to),
        VolumeStep::AssignDelete(controller) => {
            let operation = moor::api::volume::VolumeOperation::Delete;
            assign(state, v, seen, &VolumeAssignment { operation, controller });
        }
        VolumeStep::MakeHandle => {
            let controller = seen.assigned.map_or(0, |(_, agent)| agent);
            state.handle.get_or_insert(Handle { owner: v, closing: false, controller });
        }
        VolumeStep::ContestHandle => contest(state, v, seen),
        // The storage has one owner here: no PersistentVolume names it.
        VolumeStep::JudgeRejected => write(state, v, seen, Vol { may_delete: true, ..seen }),
        VolumeStep::JudgeAnew => write(state, v, seen, Vol { may_delete: false, ..seen }),
        VolumeStep::ReportReady => {
            write(state, v, seen, Vol { state: moor::api::VolumeState::Ready, ..seen });
        }
        VolumeStep::RestoreStatus => {
            write(state, v, seen, Vol { state: moor::api::VolumeState::Created, ..seen });
        }
        VolumeStep::BeginClosing => change(state, |h| h.closing = true),
        VolumeStep::FinishClosing { first_controller, .. } => change(state, |h| {
            h.closing = false;
            h.controller = first_controller.as_ref().map_or(h.controller, agent_of);
        }),
        VolumeStep::RemoveHandle => state.handle = None,
        VolumeStep::FreeVolume => {
            if state.handle.is_none_or(|h| h.owner != v) && state.volumes[usize::from(v)] == Some(seen) {
                state.kept |= v == 0 && seen.retain;
                state.volumes[usize::from(v)] = None;
                state.old = None;
            }
        }
        VolumeStep::MoveHandle(to) => {
            if state.handle.is_some_and(|h| state.is_dead(h.controller)) {
                change(state, |h| h.controller = agent_of(&to));
            }
        }
    }
}

fn assign(state: &mut State, v: u8, seen: Vol, to: &VolumeAssignment) {
    let agent = to.controller.as_ref().map_or(0, agent_of);
    if let Some((operation, from)) = seen.assigned
        && operation == to.operation
        && from != agent
        && !state.is_dead(from)
    {
        return;
    }
    write(state, v, seen, Vol { held: true, assigned: Some((to.operation, agent)), ..seen });
}

fn contest(state: &mut State, v: u8, seen: Vol) {
    let Some(handle) = state.handle else { return };
    if state.volumes[usize::from(handle.owner)].is_some() {
        return;
    }
    if state.is_dead(handle.controller) {
        let living = [0, 1].into_iter().find(|agent| !state.away[usize::from(*agent)]);
        change(state, |h| h.controller = living.unwrap_or(h.controller));
    } else if handle.closing {
        let controller = seen.assigned.map_or(0, |(_, agent)| agent);
        state.handle = Some(Handle { owner: v, closing: false, controller });
    } else {
        change(state, |h| h.closing = true);
    }
}

/// The leader's view of the VolumeHandle is never old here, so its guard always holds.
fn change(state: &mut State, how: impl FnOnce(&mut Handle)) {
    if let Some(handle) = &mut state.handle {
        how(handle);
    }
}

/// A conflict, as the answer to an own write, brings the leader up to date.
fn write(state: &mut State, v: u8, seen: Vol, new: Vol) {
    state.write(v, seen, new);
    state.old = None;
}
