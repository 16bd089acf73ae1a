//! Which steps a state allows, and what has to hold.

use std::sync::Mutex;

use moor::api::volume::DeletionPolicy;
use moor::api::{SnapshotState, VolumeState};
use stateright::{Model, Property};

use super::state::{Answer, COPIED, Call, Config, KEPT, ORIGIN, Objects, Prepared, State, Write};
use super::{agent, leader};
use crate::hashing::{HashMap, HashSet};

/// Longest run without trouble that is taken for one that comes to rest.
const MAX_STEPS: usize = 200;
/// The property that nothing is deleted under what is made of it.
pub const HARMLESS: &str = "nothing is deleted under what is made of it";

/// One step of anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    DeleteOrigin,
    DeleteKept,
    DeleteCopied,
    /// The copy goes, as `volume_model` has it.
    CopiedGoes,
    /// A leader looks, decides and writes at once.
    Leads(u8, Write),
    /// A leader looks and decides, and writes later.
    Decides(u8, Write),
    Writes(u8),
    Looks(Call),
    Proceeds,
    Dies,
    Ends(usize, Answer, bool),
    Concludes(usize),
    FallsBehind,
    CatchesUp,
    GrowsOld,
    LooksAgain,
}

/// A configuration under check.
#[derive(Debug)]
pub struct System {
    config: Config,
    /// States from which a run without trouble is known to end well.
    calm: Mutex<HashSet<State>>,
    /// What leaders decide on what they see and find: the same objects come again and again.
    decided: Mutex<HashMap<(Objects, Objects), Vec<Write>>>,
}

impl System {
    pub fn new(config: Config) -> Self {
        Self { config, calm: Mutex::default(), decided: Mutex::default() }
    }
}

impl System {
    fn decisions(&self, seen: &Objects, now: &Objects) -> Vec<Write> {
        if let Some(known) = self.decided.lock().unwrap().get(&(*seen, *now)) {
            return known.clone();
        }
        let decided = leader::decisions(&self.config, seen, now);
        self.decided.lock().unwrap().insert((*seen, *now), decided.clone());
        decided
    }
}

/// What goes on of itself.
fn usual(system: &System, s: &State, actions: &mut Vec<Action>) {
    for (at, flying) in s.calls.iter().enumerate() {
        actions.push(match flying.answer {
            None => Action::Ends(at, Answer::Ok, true),
            Some(_) => Action::Concludes(at),
        });
    }
    match s.prepared {
        Some(_) => actions.push(Action::Proceeds),
        None => actions.extend(agent::looks(&system.config, s).into_iter().map(Action::Looks)),
    }
    for (number, decided) in (0..).zip(&s.decided) {
        if decided.is_some() {
            actions.push(Action::Writes(number));
        }
    }
    let all = system.decisions(&s.now, &s.now).into_iter();
    actions.extend(all.map(|write| Action::Leads(0, write)));
    if let Some(old) = &s.old {
        let all = system.decisions(old, &s.now).into_iter();
        actions.extend(all.map(|write| Action::Leads(1, write)));
    }
    if s.now.copied.is_some_and(|copied| copied.deleted && copied.state == VolumeState::Created) {
        actions.push(Action::CopiedGoes);
    }
}

fn trouble(system: &System, s: &State, actions: &mut Vec<Action>) {
    let budget = &s.budget;
    for (at, _) in s.calls.iter().enumerate().filter(|(_, flying)| flying.answer.is_none()) {
        if budget.fail > 0 {
            actions.push(Action::Ends(at, Answer::Failed, false));
        }
        if budget.lost > 0 {
            actions.extend([true, false].map(|done| Action::Ends(at, Answer::Unknown, done)));
        }
    }
    if budget.crash > 0 && s.prepared.is_some() {
        actions.push(Action::Dies);
    }
    if budget.lag > 0 && s.behind.is_none() {
        actions.push(Action::FallsBehind);
    }
    if budget.old_leader > 0 && s.old.is_none() {
        actions.push(Action::GrowsOld);
    }
    if budget.slow_leader > 0 {
        for (number, view) in (0..).zip([Some(&s.now), s.old.as_ref()]) {
            let Some(view) = view.filter(|_| s.decided[usize::from(number)].is_none()) else { continue };
            let all = system.decisions(view, &s.now).into_iter();
            actions.extend(all.map(|write| Action::Decides(number, write)));
        }
    }
}

fn users(origin_goes: bool, s: &State, actions: &mut Vec<Action>) {
    if origin_goes && s.now.origin.is_some_and(|origin| !origin.deleted) {
        actions.push(Action::DeleteOrigin);
    }
    if s.now.kept.is_some_and(|kept| !kept.deleted) {
        actions.push(Action::DeleteKept);
    }
    if s.now.copied.is_some_and(|copied| !copied.deleted) {
        actions.push(Action::DeleteCopied);
    }
}

fn step(config: &Config, s: &mut State, action: Action) {
    match action {
        Action::DeleteOrigin => {
            if let Some(origin) = &mut s.now.origin {
                origin.deleted = true;
            }
        }
        Action::DeleteKept => match &mut s.now.kept {
            Some(kept) if kept.held => kept.deleted = true,
            slot => *slot = None,
        },
        Action::DeleteCopied => match &mut s.now.copied {
            Some(copied) if copied.held => copied.deleted = true,
            slot => *slot = None,
        },
        Action::CopiedGoes => (s.now.copied, s.stored[COPIED]) = (None, false),
        Action::Leads(number, write) => {
            let seen = if number == 0 { s.now } else { s.old.unwrap_or(s.now) };
            leader::write(s, write, &seen);
        }
        Action::Decides(number, write) => {
            s.budget.slow_leader -= 1;
            let seen = if number == 0 { s.now } else { s.old.unwrap_or(s.now) };
            s.decided[usize::from(number)] = Some((write, seen));
        }
        Action::Writes(number) => {
            if let Some((write, seen)) = s.decided[usize::from(number)].take() {
                leader::write(s, write, &seen);
            }
        }
        Action::Looks(call) => agent::look(config, s, call),
        Action::Proceeds => agent::proceed(s),
        Action::Dies => {
            s.budget.crash -= 1;
            s.prepared = None;
        }
        Action::Ends(at, answer, done) => {
            match answer {
                Answer::Ok => {}
                Answer::Failed => s.budget.fail -= 1,
                Answer::Unknown => s.budget.lost -= 1,
            }
            s.end(at, answer, done);
        }
        Action::Concludes(at) => agent::conclude(s, at),
        Action::FallsBehind => {
            s.budget.lag -= 1;
            s.behind = Some(s.now);
        }
        Action::CatchesUp => s.behind = None,
        Action::GrowsOld => {
            s.budget.old_leader -= 1;
            s.old = Some(s.now);
        }
        Action::LooksAgain => s.old = None,
    }
}

/// Why a run without trouble, in which everything is deleted in the end, ends badly; nothing if it ends well.
pub fn calm(system: &System, from: &State) -> Option<String> {
    let config = &system.config;
    let mut state = from.clone();
    let (mut passed, mut deleted) = (Vec::new(), false);
    for _ in 0..MAX_STEPS {
        if system.calm.lock().unwrap().contains(&state) {
            system.calm.lock().unwrap().extend(passed);
            return None;
        }
        passed.push(state.clone());
        (state.behind, state.old) = (None, None);
        let mut actions = Vec::new();
        usual(system, &state, &mut actions);
        let before = state.clone();
        let changes = |action: &Action| {
            let mut next = before.clone();
            step(config, &mut next, *action);
            (next != before).then_some(next)
        };
        if let Some(next) = actions.iter().find_map(changes) {
            state = next;
            continue;
        }
        if let Some(problem) = disagreement(config, &state) {
            return Some(format!("{problem}: {state:#?}"));
        }
        if !deleted {
            deleted = true;
            let mut actions = Vec::new();
            users(true, &state, &mut actions);
            for action in actions {
                step(config, &mut state, action);
            }
            continue;
        }
        let problem = left(config, &state)?;
        return Some(format!("{problem}: {state:#?}"));
    }
    Some(format!("it comes to no rest: {state:#?}"))
}

/// How what the driver has differs from what the objects say, when nothing goes on any more.
fn disagreement(config: &Config, state: &State) -> Option<&'static str> {
    let now = &state.now;
    let is_made = |state| matches!(state, VolumeState::Created | VolumeState::Ready);
    let is_taken = |state| matches!(state, SnapshotState::Created | SnapshotState::Ready);
    let origin = now.origin.is_some_and(|origin| is_made(origin.state));
    let kept = now.kept.is_some_and(|kept| is_taken(kept.state));
    let copied = now.copied.is_some_and(|copied| is_made(copied.state));
    let stays = |policy, is_there: bool| policy == DeletionPolicy::Retain && !is_there;
    let all = [
        (ORIGIN, origin, stays(config.volume, now.origin.is_some())),
        (KEPT, kept, stays(config.snapshot, now.kept.is_some())),
        (COPIED, copied, false),
    ];
    all.into_iter().find_map(|(at, said, stays)| match (state.stored[at], said) {
        (true, false) if !stays => Some("the driver has something that no object knows"),
        (false, true) => Some("an object says to be there what the driver does not have"),
        (true | false, _) => None,
    })
}

/// What is left when everything was deleted.
fn left(config: &Config, state: &State) -> Option<&'static str> {
    let now = &state.now;
    if now.origin.is_some() || now.kept.is_some() || now.copied.is_some() || now.lock.is_some() {
        return Some("an object is left");
    }
    let stays = |policy| policy == DeletionPolicy::Retain;
    let leaked = (state.stored[ORIGIN] && !stays(config.volume))
        || (state.stored[KEPT] && !stays(config.snapshot))
        || state.stored[COPIED];
    leaked.then_some("the driver has something that nobody knows")
}

impl Model for System {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::first(&self.config)]
    }

    fn actions(&self, s: &State, actions: &mut Vec<Action>) {
        if s.harm.is_some() {
            return;
        }
        usual(self, s, actions);
        trouble(self, s, actions);
        users(self.config.origin_goes, s, actions);
        if s.behind.is_some() {
            actions.push(Action::CatchesUp);
        }
        if s.old.is_some() {
            actions.push(Action::LooksAgain);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = last.clone();
        step(&self.config, &mut next, action);
        (next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(HARMLESS, |_, s: &State| s.harm.is_none()),
            Property::always(
                "once trouble ends, everything goes and nothing is left",
                |model: &Self, s: &State| s.harm.is_some() || calm(model, s).is_none(),
            ),
            Property::sometimes("the snapshot is ready", |_, s: &State| {
                s.now.kept.is_some_and(|kept| kept.state == SnapshotState::Ready)
            }),
            Property::sometimes(
                "a volume is made of the snapshot, where one is to be",
                |model: &Self, s: &State| {
                    !model.config.copies
                        || s.now.copied.is_some_and(|copied| copied.state == VolumeState::Created)
                },
            ),
            Property::sometimes(
                "the snapshot outlives its volume, where that goes",
                |model: &Self, s: &State| {
                    let is_ready = s.now.kept.is_some_and(|kept| kept.state == SnapshotState::Ready);
                    !model.config.origin_goes || (is_ready && s.now.origin.is_none())
                },
            ),
            Property::sometimes("a call is under way while its source is deleted", |_, s: &State| {
                let of =
                    |call| s.flies(call) || matches!(s.prepared, Some(Prepared::Begins(it, _)) if it == call);
                s.now.origin.is_some_and(|origin| origin.deleted) && of(Call::Take)
                    || s.now.kept.is_some_and(|kept| kept.deleted) && of(Call::Make)
            }),
        ]
    }
}
