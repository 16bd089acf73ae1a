//! Which steps a state allows, and what has to hold.

use std::sync::Mutex;

use moor::api::VolumeState;
use moor::volume::calls::VolumeCall;
use stateright::{Model, Property};

use super::state::{AGENTS, Answer, Config, Harm, State, Vol};
use super::{NONE, agent, leader};
use crate::hashing::HashSet;

/// Longest run without trouble that is taken for one that comes to rest.
const MAX_STEPS: usize = 200;

/// One step of anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Delete,
    Retain(bool),
    Raise,
    Modify(u8),
    Edit(u8),
    LoseStatus,
    Register,
    Leader(u8),
    Agent(u8, u8),
    Ends(usize, Answer, bool),
    Conclude(usize),
    GoAway(u8),
    ComeBack(u8),
    FallBehind(u8),
    CatchUp(u8),
    Restart(u8),
    LeaderFallsBehind,
    LeaderCatchesUp,
    LeaderIsSlow(u8),
    LeaderWrites,
}

/// A configuration under check.
#[derive(Debug)]
pub struct System {
    pub config: Config,
    /// States from which a run without trouble is known to end well.
    calm: Mutex<HashSet<State>>,
}

impl System {
    pub fn new(config: Config) -> Self {
        Self { config, calm: Mutex::default() }
    }
}

fn agents() -> impl Iterator<Item = u8> {
    (0..).zip(0..AGENTS).map(|(agent, _)| agent)
}

/// What goes on of itself.
fn usual(s: &State, actions: &mut Vec<Action>) {
    for (at, call) in s.calls.iter().enumerate() {
        match call.answer {
            None => actions.push(Action::Ends(at, Answer::Ok, true)),
            Some(_) if !s.away[usize::from(call.by)] => actions.push(Action::Conclude(at)),
            Some(_) => {}
        }
    }
    for v in [0, 1] {
        if leader::plan(s, v).is_some() {
            actions.push(Action::Leader(v));
        }
        for agent in agents().filter(|agent| !s.away[usize::from(*agent)]) {
            if !s.calls.iter().any(|c| (c.by, c.v) == (agent, v)) {
                actions.push(Action::Agent(agent, v));
            }
        }
    }
}

fn trouble(s: &State, actions: &mut Vec<Action>) {
    let budget = &s.budget;
    for (at, call) in s.calls.iter().enumerate().filter(|(_, c)| c.answer.is_none()) {
        let creates = call.call == VolumeCall::Create;
        let is_refused = matches!(call.call, VolumeCall::Modify | VolumeCall::Revalidate);
        if (creates || is_refused) && budget.fail > 0 {
            actions.push(Action::Ends(at, Answer::Full, false));
        }
        if creates && budget.wrong > 0 {
            actions.push(Action::Ends(at, Answer::Wrong, true));
        }
        if budget.lost > 0 {
            actions.extend([true, false].map(|done| Action::Ends(at, Answer::Unknown, done)));
        }
    }
    for agent in agents() {
        if budget.away > 0 && !s.away[usize::from(agent)] {
            actions.push(Action::GoAway(agent));
        }
        if budget.lag > 0 && s.caches[usize::from(agent)].is_none() {
            actions.push(Action::FallBehind(agent));
        }
        // A call that runs on without its agent is one that is answered when nobody hears it.
        let is_calling = s.calls.iter().any(|call| call.by == agent && call.answer.is_none());
        if budget.restart > 0 && !is_calling && !s.away[usize::from(agent)] {
            actions.push(Action::Restart(agent));
        }
    }
    let locks = s.handle.is_some_and(|h| h.owner == 0);
    if budget.wiped > 0 && locks && s.volumes[0].is_some_and(|vol| vol.state != VolumeState::Pending) {
        actions.push(Action::LoseStatus);
    }
    if budget.old_leader > 0 && s.old.is_none() {
        actions.push(Action::LeaderFallsBehind);
    }
    if budget.slow_leader > 0 && s.late.is_none() {
        actions
            .extend([0, 1].into_iter().filter(|v| leader::late(s, *v).is_some()).map(Action::LeaderIsSlow));
    }
}

fn users(s: &State, actions: &mut Vec<Action>) {
    if let Some(vol) = s.volumes[0] {
        if !vol.deleted {
            actions.push(Action::Delete);
        }
        if s.budget.retain > 0 {
            actions.push(Action::Retain(!vol.retain));
        }
        if s.budget.grow > 0 && vol.state == VolumeState::Ready && !vol.deleted {
            actions.push(Action::Raise);
        }
        if may_modify(s, &vol) {
            actions.extend([1, 2].into_iter().filter(|kind| *kind != vol.wants).map(Action::Modify));
        }
        if s.budget.edit > 0 && vol.state == VolumeState::Ready && !vol.deleted && vol.granted.is_some() {
            actions.extend([0, 1, 2].into_iter().filter(|kind| *kind != vol.used).map(Action::Edit));
        }
    } else if !s.registered && s.stored {
        actions.push(Action::Register);
    }
}

fn may_modify(s: &State, vol: &Vol) -> bool {
    s.budget.modify > 0 && vol.state == VolumeState::Ready && !vol.deleted
}

fn step(config: &Config, s: &mut State, action: Action) {
    match action {
        Action::Delete => match &mut s.volumes[0] {
            Some(vol) if vol.held => vol.deleted = true,
            slot => *slot = None,
        },
        Action::Retain(retain) => {
            s.budget.retain -= 1;
            if let Some(vol) = &mut s.volumes[0] {
                vol.retain = retain;
            }
        }
        Action::Raise => {
            s.budget.grow -= 1;
            if let Some(vol) = &mut s.volumes[0] {
                vol.asked = true;
            }
        }
        Action::Modify(kind) => {
            s.budget.modify -= 1;
            if let Some(vol) = &mut s.volumes[0] {
                vol.wants = kind;
            }
        }
        Action::Edit(kind) => {
            s.budget.edit -= 1;
            if let Some(vol) = &mut s.volumes[0] {
                vol.used = kind;
            }
        }
        Action::LoseStatus => {
            s.budget.wiped -= 1;
            if let Some(vol) = &mut s.volumes[0] {
                let (rejected, may_delete, may_exist) = (false, false, None);
                let lost = Vol { grown: false, said: None, ..*vol };
                *vol = Vol { state: VolumeState::Pending, rejected, may_delete, may_exist, ..lost };
            }
        }
        Action::Register => {
            s.registered = true;
            s.volumes[1] = Some(Vol::new(1));
        }
        Action::Leader(v) => {
            if let Some((seen, step)) = leader::plan(s, v) {
                leader::act(s, v, seen, step);
            }
        }
        Action::Agent(agent, v) => agent::act(config, s, agent, v),
        Action::Ends(at, answer, done) => {
            match answer {
                Answer::Ok => {}
                Answer::Full => s.budget.fail -= 1,
                Answer::Wrong => s.budget.wrong -= 1,
                Answer::Unknown => s.budget.lost -= 1,
            }
            agent::ends(s, at, answer, done);
        }
        Action::Conclude(at) => agent::conclude(s, at),
        Action::GoAway(agent) => {
            s.budget.away -= 1;
            s.away[usize::from(agent)] = true;
        }
        Action::ComeBack(agent) => s.away[usize::from(agent)] = false,
        Action::FallBehind(agent) => {
            s.budget.lag -= 1;
            s.caches[usize::from(agent)] = Some(s.volumes[0]);
        }
        Action::CatchUp(agent) => s.caches[usize::from(agent)] = None,
        Action::Restart(agent) => {
            s.budget.restart -= 1;
            agent::restarts(config, s, agent);
        }
        Action::LeaderFallsBehind => {
            s.budget.old_leader -= 1;
            s.old = Some(s.volumes);
        }
        Action::LeaderCatchesUp => s.old = None,
        Action::LeaderIsSlow(v) => {
            s.budget.slow_leader -= 1;
            s.late = leader::late(s, v);
        }
        Action::LeaderWrites => {
            if let Some(late) = s.late.take() {
                leader::comes(s, late);
            }
        }
    }
}

/// Why a run without trouble ends badly; nothing if it ends well.
pub fn calm(system: &System, from: &State) -> Option<String> {
    let mut s = State {
        budget: NONE,
        away: [false; AGENTS],
        caches: [None; AGENTS],
        old: None,
        late: None,
        ..from.clone()
    };
    let mut passed = Vec::new();
    // One that harms is a step of the model's too, and has its own name there.
    while s.harm.is_none() && !system.calm.lock().expect("no check panics").contains(&s) {
        if passed.len() > MAX_STEPS {
            return Some(format!("it goes in circles: {s:?}"));
        }
        let mut all = Vec::new();
        usual(&s, &mut all);
        let next = all.into_iter().find_map(|action| {
            let mut new = s.clone();
            step(&system.config, &mut new, action);
            (new != s).then_some(new)
        });
        let Some(new) = next else {
            if let Some(why) = bad_rest(&s) {
                return Some(why);
            }
            passed.push(s);
            break;
        };
        passed.push(std::mem::replace(&mut s, new));
    }
    system.calm.lock().expect("no check panics").extend(passed);
    None
}

fn bad_rest(s: &State) -> Option<String> {
    let bad = match s.volumes[0] {
        Some(vol) if vol.deleted => "a deleted Volume stays",
        Some(vol) if vol.state != VolumeState::Ready => "a Volume does not come up",
        Some(vol) if vol.asked != vol.grown => "a Volume does not get the room that is asked for",
        Some(vol) if vol.wants != 0 && (vol.has, vol.open, s.attributes) != (vol.wants, 0, vol.wants) => {
            "a Volume is not as it is asked to be"
        }
        Some(vol) if vol.granted != Some(vol.used) => "an edit never counts",
        Some(_) if !s.stored => "a Ready Volume without storage",
        None if s.stored && !s.kept && s.volumes[1].is_none() => "storage that nobody knows is left",
        None if s.handle.is_some_and(|h| h.owner == 0) => "a VolumeHandle of nobody is left",
        _ if s.volumes[1].is_some_and(|vol| vol.state != VolumeState::Ready) => {
            "the next Volume does not come up"
        }
        _ if s.volumes[1].is_some() && !s.stored => "the next Volume has lost its storage",
        _ if !s.calls.is_empty() => "a call never ends",
        _ => return None,
    };
    Some(format!("{bad}: {s:?}"))
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
        usual(s, actions);
        users(s, actions);
        trouble(s, actions);
        for agent in agents() {
            if s.away[usize::from(agent)] {
                actions.push(Action::ComeBack(agent));
            }
            if s.caches[usize::from(agent)].is_some() {
                actions.push(Action::CatchUp(agent));
            }
        }
        if s.old.is_some() {
            actions.push(Action::LeaderCatchesUp);
        }
        if s.late.is_some() {
            actions.push(Action::LeaderWrites);
        }
    }

    fn next_state(&self, old: &State, action: Action) -> Option<State> {
        let mut new = old.clone();
        step(&self.config, &mut new, action);
        new.calls.sort_by_key(|c| (c.by, c.v));
        (new != *old).then_some(new)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("storage is deleted only behind its own closed lock", |_, s: &State| {
                s.harm != Some(Harm::DeletedWithoutLock)
            }),
            Property::always("never is another Volume's storage deleted", |_, s: &State| {
                s.harm != Some(Harm::DeletedAnothers)
            }),
            Property::always("no volume is made for a Volume that is gone", |_, s: &State| {
                s.harm != Some(Harm::MadeForNobody)
            }),
            Property::always("no edit counts that the driver has not confirmed", |_, s: &State| {
                s.harm != Some(Harm::GrantedUnasked)
            }),
            Property::always("nothing is called beside a growth or a modification", |_, s: &State| {
                s.harm != Some(Harm::CalledBeside)
            }),
            Property::always("nothing else is asked for before an outcome is known", |_, s: &State| {
                s.harm != Some(Harm::AskedBeforeOutcome)
            }),
            Property::always("once trouble ends, every run ends well", |model: &Self, s: &State| {
                s.harm.is_some() || calm(model, s).is_none()
            }),
            Property::sometimes("the Volume is Ready", |_, s: &State| {
                s.volumes[0].is_some_and(|vol| vol.state == VolumeState::Ready)
            }),
            Property::sometimes("everything is gone again", |_, s: &State| {
                s.volumes == [None; 2] && !s.stored && s.handle.is_none()
            }),
        ]
    }
}
