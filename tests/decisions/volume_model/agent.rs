//! The agents: `agent/volume/worker.rs` in a few lines, around the same decisions.

use moor::api::VolumeState;
use moor::volume::calls::{self, AgentStep, Standing, VolumeCall};

use super::state::{Answer, Call, Config, Harm, State, Vol, lock, node, object};

/// An agent looks at what it believes of a Volume and does what that leads to.
pub fn act(config: &Config, state: &mut State, agent: u8, v: u8) {
    let Some(cached) = state.cached(agent, v) else { return };
    match calls::plan(&object(v, &cached), node(agent)) {
        // Nothing is made of anything here.
        AgentStep::Idle | AgentStep::NeverBegun => {}
        AgentStep::GiveUp(call) => {
            let lock = state.handle.map(lock);
            if !calls::may_give_up(call, &object(v, &cached), lock.as_ref()) {
                return;
            }
            // Its owner has left the storage, whatever he says since.
            if write(state, agent, v, cached, Vol { state: VolumeState::Deleted, ..cached }) {
                state.kept |= v == 0;
            }
        }
        AgentStep::Call(call) if config.blind == Some(call) => start(state, agent, v, call, cached),
        AgentStep::Call(call) => look(state, agent, v, call, cached),
    }
}

/// The live reads, and the call right after them.
fn look(state: &mut State, agent: u8, v: u8, call: VolumeCall, cached: Vol) {
    let found = state.volumes[usize::from(v)];
    let live = found.map(|vol| object(v, &vol));
    let lock = state.handle.map(lock);
    match calls::standing(call, &object(v, &cached), live.as_ref(), lock.as_ref()) {
        Standing::Valid => {
            let mut live = found.expect("a call that stands is a living Volume's");
            let known = call == VolumeCall::Create
                && calls::may_have_been_created(&object(v, &live), state.remembers[usize::from(agent)]);
            if call == VolumeCall::Create && calls::is_noted_before(&object(v, &live)) {
                let begun = Vol { may_exist: Some(true), ..live };
                write(state, agent, v, live, begun);
                live = begun;
            }
            if call == VolumeCall::Modify {
                let begun = Vol { open: asked(&live), has: 0, ..live };
                write(state, agent, v, live, begun);
                live = begun;
            }
            start(state, agent, v, call, live);
            state.calls.last_mut().expect("it was started").known = known;
        }
        // It goes on with what it has read.
        Standing::Gone | Standing::Changed if v == 0 => state.caches[usize::from(agent)] = None,
        Standing::Own => {
            let live = found.expect("a lock of its own is a living Volume's");
            write(state, agent, v, live, Vol { rejected: false, may_delete: false, ..live });
        }
        // What a volume is made of is in `snapshot_model`.
        Standing::Gone
        | Standing::Changed
        | Standing::NotClosed
        | Standing::NotClosedForIt
        | Standing::NotHolder
        | Standing::Locked
        | Standing::SourceEnds => {}
    }
}

fn start(state: &mut State, by: u8, v: u8, call: VolumeCall, seen: Vol) {
    let running = state.calls.iter().filter(|c| c.answer.is_none()).map(|c| c.call);
    let changes = |call| call != VolumeCall::Validate;
    let alone = |call| matches!(call, VolumeCall::Expand | VolumeCall::Modify | VolumeCall::Revalidate);
    if running.filter(|call| changes(*call)).any(|c| changes(call) && (alone(c) || alone(call))) {
        state.harmed(Harm::CalledBeside);
    }
    if call == VolumeCall::Modify {
        if ![0, asked(&seen)].contains(&state.unsettled) {
            state.harmed(Harm::AskedBeforeOutcome);
        }
        state.unsettled = asked(&seen);
    }
    state.remembers[usize::from(by)] |= call == VolumeCall::Create;
    state.calls.push(Call { by, v, call, seen, known: seen.may_exist == Some(true), answer: None });
}

/// The mutable parameters that a call is made with.
fn asked(vol: &Vol) -> u8 {
    if vol.open == 0 { vol.wants } else { vol.open }
}

/// The driver ends a call; `done` is whether it has had its effect.
pub fn ends(state: &mut State, at: usize, answer: Answer, done: bool) {
    state.calls[at].answer = Some(answer);
    let Call { v, call, seen, .. } = state.calls[at];
    if call == VolumeCall::Modify && answer != Answer::Unknown {
        state.unsettled = 0;
    }
    if !done {
        return;
    }
    match call {
        VolumeCall::Create => {
            if state.volumes[usize::from(v)].is_none() {
                state.harmed(Harm::MadeForNobody);
            }
            state.stored = true;
        }
        VolumeCall::Validate | VolumeCall::Expand => {}
        VolumeCall::Revalidate => state.confirmed |= seen.edit.map_or(0, |(number, _)| 1 << number),
        VolumeCall::Modify => state.attributes = asked(&seen),
        VolumeCall::Delete => {
            match state.handle {
                Some(handle) if handle.owner != v => state.harmed(Harm::DeletedAnothers),
                Some(handle) if handle.closing => {}
                _ => state.harmed(Harm::DeletedWithoutLock),
            }
            state.stored = false;
        }
        VolumeCall::DeleteRejected => {
            if state.handle.is_some() || state.volumes[1].is_some() {
                state.harmed(Harm::DeletedAnothers);
            }
            state.stored = false;
        }
    }
}

/// The agent writes down what an answer says.
pub fn conclude(state: &mut State, at: usize) {
    let Call { by, v, call, seen, known, answer } = state.calls.remove(at);
    let Some(answer) = answer else { return };
    let new = match (call, answer) {
        (_, Answer::Unknown) => return,
        (VolumeCall::Create, Answer::Ok) => {
            // With the size and the parameters of the first call, whatever is asked for since.
            Vol { state: VolumeState::Created, may_exist: None, grown: false, has: 0, ..seen }
        }
        (VolumeCall::Expand, Answer::Ok) => Vol { grown: true, ..seen },
        (VolumeCall::Modify, Answer::Ok) => Vol { has: asked(&seen), open: 0, ..seen },
        (VolumeCall::Modify, Answer::Full) => Vol { open: 0, ..seen },
        (VolumeCall::Revalidate, Answer::Ok | Answer::Full) => {
            Vol { said: seen.edit.map(|(number, _)| (number, answer == Answer::Ok)), ..seen }
        }
        (VolumeCall::Create, Answer::Wrong) => Vol { rejected: true, may_exist: None, ..seen },
        (VolumeCall::Create, Answer::Full) if known => return,
        (VolumeCall::Create, Answer::Full) if seen.deleted => {
            Vol { state: VolumeState::Deleted, may_exist: None, ..seen }
        }
        (VolumeCall::Create, Answer::Full) => Vol { may_exist: Some(false), ..seen },
        (VolumeCall::Validate, Answer::Ok) => Vol { state: VolumeState::Created, ..seen },
        (VolumeCall::Delete, Answer::Ok) => Vol { state: VolumeState::Deleted, ..seen },
        (VolumeCall::DeleteRejected, Answer::Ok) if seen.deleted => {
            Vol { state: VolumeState::Deleted, rejected: false, may_delete: false, ..seen }
        }
        (VolumeCall::DeleteRejected, Answer::Ok) => {
            Vol { rejected: false, may_delete: false, may_exist: Some(false), ..seen }
        }
        (
            VolumeCall::Validate
            | VolumeCall::Revalidate
            | VolumeCall::Delete
            | VolumeCall::DeleteRejected
            | VolumeCall::Expand
            | VolumeCall::Modify,
            _,
        ) => return,
    };
    if write(state, by, v, seen, new) {
        state.remembers[usize::from(by)] = false;
    }
}

/// The process of an agent ends, and the one that comes next looks for what was its to create.
pub fn restarts(config: &Config, state: &mut State, agent: u8) {
    state.calls.retain(|call| call.by != agent);
    state.caches[usize::from(agent)] = None;
    let found = state.volumes[0].is_some_and(|vol| calls::creates(&object(0, &vol), node(agent)));
    state.remembers[usize::from(agent)] = found && !config.forgets;
}

/// The answer to an own write, or to the read after a conflict, is in the cache before the watch brings it.
fn write(state: &mut State, agent: u8, v: u8, seen: Vol, new: Vol) -> bool {
    let is_written = state.write(v, seen, new);
    if v == 0 && state.caches[usize::from(agent)].is_some() {
        state.caches[usize::from(agent)] = Some(state.volumes[0]);
    }
    is_written
}
