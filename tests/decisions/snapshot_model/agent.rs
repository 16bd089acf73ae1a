//! What the agent does on what it believes: its live looks, what it writes before a call, the call, and what it writes after.

use moor::api::snapshot::SnapshotOperation;
use moor::api::{SnapshotState, VolumeState};
use moor::snapshot::calls as of_snapshot;
use moor::snapshot::calls::{SnapshotCall, SourceNow};
use moor::volume::calls as of_volume;
use moor::volume::calls::VolumeCall;

use super::objects::{NODE, copied, kept, lock, origin};
use super::state::{Answer, Call, Config, Flying, Objects, Prepared, State};

/// The looks that the agent may take next.
pub fn looks(config: &Config, state: &State) -> Vec<Call> {
    let seen = state.behind.as_ref().unwrap_or(&state.now);
    let mut calls = Vec::new();
    if let Some(it) = &seen.kept {
        let snapshot = kept(config, it);
        match of_snapshot::plan(&snapshot, NODE) {
            of_snapshot::AgentStep::Idle => {}
            of_snapshot::AgentStep::Call(SnapshotCall::Delete) => calls.push(Call::Drop),
            of_snapshot::AgentStep::GiveUp(_)
                if snapshot.spec.assignment.as_ref().map(|a| a.operation)
                    == Some(SnapshotOperation::Delete) =>
            {
                calls.push(Call::Drop);
            }
            of_snapshot::AgentStep::Call(SnapshotCall::Create | SnapshotCall::List)
            | of_snapshot::AgentStep::NeverBegun
            | of_snapshot::AgentStep::GiveUp(_) => calls.push(Call::Take),
        }
    }
    if let Some(it) = &seen.copied {
        match of_volume::plan(&copied(config, it), NODE) {
            of_volume::AgentStep::Idle => {}
            of_volume::AgentStep::Call(_)
            | of_volume::AgentStep::NeverBegun
            | of_volume::AgentStep::GiveUp(_) => {
                calls.push(Call::Make);
            }
        }
    }
    if seen.origin.is_some_and(|it| it.ordered && it.state == VolumeState::Ready) {
        calls.push(Call::DeleteOrigin);
    }
    calls.retain(|call| !state.calls.iter().any(|flying| flying.call == *call));
    calls
}

/// The agent plans this, and looks live.
pub fn look(config: &Config, state: &mut State, call: Call) {
    let seen = *state.behind.as_ref().unwrap_or(&state.now);
    match call {
        Call::Take | Call::Drop => look_at_snapshot(config, state, &seen),
        Call::Make => look_at_copied(config, state, &seen),
        // As `volume_model` has it: with the lock closed, which it is once that is ordered.
        Call::DeleteOrigin if state.now.origin == seen.origin && state.now.lock == Some(true) => {
            state.prepared = Some(Prepared::Calls(call, false));
        }
        Call::DeleteOrigin => {}
    }
}

fn look_at_snapshot(config: &Config, state: &mut State, seen: &Objects) {
    let Some(it) = seen.kept else { return };
    let prepared = kept(config, &it);
    let step = of_snapshot::plan(&prepared, NODE);
    let call = match step {
        of_snapshot::AgentStep::Idle => return,
        of_snapshot::AgentStep::NeverBegun | of_snapshot::AgentStep::GiveUp(_) => {
            if let Some(now) = state.now.kept.as_mut().filter(|now| **now == it) {
                now.state = SnapshotState::Deleted;
            }
            return;
        }
        of_snapshot::AgentStep::Call(call) => call,
    };
    let live = state.now.kept.map(|it| kept(config, &it));
    let (volume, lock) =
        (state.now.origin.map(|it| origin(config, &it)), state.now.lock.map(|closing| lock(config, closing)));
    let source = SourceNow { volume: volume.as_ref(), lock: lock.as_ref() };
    match of_snapshot::standing(call, &prepared, live.as_ref(), &[source]) {
        of_snapshot::Standing::Valid => {}
        of_snapshot::Standing::SourceEnds if config.bold => {}
        of_snapshot::Standing::SourceEnds => {
            if let Some(now) = &mut state.now.kept {
                now.source_gone = true;
            }
            return;
        }
        of_snapshot::Standing::Gone
        | of_snapshot::Standing::Changed
        | of_snapshot::Standing::NotHeld
        | of_snapshot::Standing::NotHolder => return,
    }
    state.prepared = Some(match call {
        SnapshotCall::Create => Prepared::Begins(Call::Take, state.now),
        SnapshotCall::List | SnapshotCall::Delete => Prepared::Calls(Call::Drop, false),
    });
}

fn look_at_copied(config: &Config, state: &mut State, seen: &Objects) {
    let Some(it) = seen.copied else { return };
    let prepared = copied(config, &it);
    match of_volume::plan(&prepared, NODE) {
        of_volume::AgentStep::Idle => return,
        of_volume::AgentStep::NeverBegun | of_volume::AgentStep::GiveUp(_) => {
            if state.now.copied == Some(it) {
                state.now.copied = None;
            }
            return;
        }
        of_volume::AgentStep::Call(_) => {}
    }
    let live = state.now.copied.map(|it| copied(config, &it));
    if of_volume::standing(VolumeCall::Create, &prepared, live.as_ref(), None) != of_volume::Standing::Valid {
        return;
    }
    let source = live.as_ref().and_then(|live| of_volume::source_to_look_at(VolumeCall::Create, live));
    let found = state.now.kept.map(|it| kept(config, &it).metadata);
    if source.is_some_and(|source| of_volume::is_at_its_end(source, found.as_ref())) && !config.bold {
        if let Some(now) = &mut state.now.copied {
            now.source_gone = true;
        }
        return;
    }
    state.prepared = Some(Prepared::Begins(Call::Make, state.now));
}

/// What was prepared goes on: the write, or the call.
pub fn proceed(state: &mut State) {
    match state.prepared.take() {
        None => {}
        Some(Prepared::Calls(call, known)) => state.start(call, known),
        Some(Prepared::Begins(call, seen)) => {
            let known = match call {
                Call::Take if state.now.kept == seen.kept => begin_kept(state),
                Call::Make if state.now.copied == seen.copied => begin_copied(state),
                // A conflict: it looks again.
                Call::Take | Call::Make | Call::Drop | Call::DeleteOrigin => None,
            };
            state.prepared = known.map(|known| Prepared::Calls(call, known));
        }
    }
}

fn begin_kept(state: &mut State) -> Option<bool> {
    let kept = state.now.kept.as_mut()?;
    let known = kept.may_exist;
    kept.may_exist |= kept.state == SnapshotState::Pending;
    Some(known)
}

fn begin_copied(state: &mut State) -> Option<bool> {
    let copied = state.now.copied.as_mut()?;
    Some(std::mem::replace(&mut copied.may_exist, true))
}

/// The agent writes down what a call came to.
pub fn conclude(state: &mut State, at: usize) {
    let Flying { call, known, answer } = state.calls.remove(at);
    // For certain nothing was made, if nothing was called before.
    let not_made = answer == Some(Answer::Failed) && !known;
    match call {
        Call::Take => {
            let Some(kept) = &mut state.now.kept else { return };
            if answer == Some(Answer::Ok) {
                (kept.state, kept.may_exist) = (SnapshotState::Ready, false);
            } else if not_made {
                kept.may_exist = false;
                if kept.deleted {
                    kept.state = SnapshotState::Deleted;
                }
            }
        }
        Call::Drop => {
            if let Some(kept) = state.now.kept.as_mut().filter(|_| answer == Some(Answer::Ok)) {
                kept.state = SnapshotState::Deleted;
            }
        }
        Call::DeleteOrigin => {
            if let Some(origin) = state.now.origin.as_mut().filter(|_| answer == Some(Answer::Ok)) {
                origin.state = VolumeState::Deleted;
            }
        }
        Call::Make => conclude_copied(state, answer, not_made),
    }
}

fn conclude_copied(state: &mut State, answer: Option<Answer>, not_made: bool) {
    let Some(copied) = &mut state.now.copied else { return };
    if answer == Some(Answer::Ok) {
        (copied.state, copied.may_exist) = (VolumeState::Created, false);
    } else if not_made {
        copied.may_exist = false;
        if copied.deleted {
            state.now.copied = None;
        }
    }
}
