//! A controller instance is relieved of what it was given, and another takes over; or itself, in a later tenure.

use moor::api::AccessMode::SingleNodeWriter;

use super::actions::What;
use super::config::{Budget, Config, node_ids};
use super::report::check;
use super::state::{Actor, Kind, State};
use super::{C1, L1, NONE, bounds};

/// A leader can relieve an instance at any moment, rightly or not.
pub fn trouble(config: &Config, s: &State, actions: &mut Vec<What>) {
    if config.relief && s.budget.relieve > 0 {
        actions.extend(node_ids().map(What::Relieve));
    }
}

/// What a leader does about an instance that is gone.
pub fn of_the_dead(config: &Config, s: &State) -> Vec<What> {
    let is_due = |i: &u8| {
        let instance = &s.controllers[usize::from(*i)];
        let names = |given: super::state::Given| given.instance == *i && given.tenure >= instance.tenure;
        let is_answered = instance.relieved == instance.tenure;
        !instance.alive
            && is_answered
            && (names(s.handle.controller) || s.atts.iter().any(|a| names(a.controller)))
    };
    node_ids().filter(|i| config.relief && is_due(i)).map(What::Relieve).collect()
}

/// An agent answers when no pass and no call of it is left, whoever made it.
pub fn answers(config: &Config, s: &State, actions: &mut Vec<What>) {
    for i in node_ids() {
        let (me, who) = (&s.controllers[usize::from(i)], Actor::Controller(i));
        let is_busy = me.read.is_some() || s.calls.iter().any(|c| c.by == who);
        let is_heard = !s.machines[usize::from(i)].away;
        if me.relieved < me.tenure && is_heard && (!is_busy || config.habits.hasty_answer) {
            actions.push(What::Answer(i));
        }
    }
}

pub fn act(s: &mut State, what: &What) {
    match what {
        What::Relieve(i) => {
            // Of an instance that is gone it is no trouble.
            s.budget.relieve = s.budget.relieve.saturating_sub(1);
            s.controllers[usize::from(*i)].tenure += 1;
        }
        What::Answer(i) => {
            let me = &mut s.controllers[usize::from(*i)];
            me.relieved = me.tenure;
        }
        _ => unreachable!("{what:?} relieves nobody"),
    }
}

fn config(nodes: [u8; 2]) -> Config {
    let mut config = Config::new(SingleNodeWriter, nodes);
    (config.stage, config.relief) = (false, true);
    config
}

/// A leader pauses between reading the agent's word and naming the successor, and the instance comes back meanwhile: what
/// it was relieved of it stays relieved of. B3, N5, R2.
#[test]
fn an_instance_comes_back_while_its_successor_is_named() {
    let mut config = config([0, 0]);
    config.habits.slow_move = true;
    config.budget = bounds(
        Budget { kill: 1, revive: 1, relieve: 1, ..NONE },
        Budget { kill: 1, revive: 1, relieve: 2, crash: 1, late: 1, ..NONE },
    );
    check("an instance comes back while its successor is named", config);
}

/// One that is well is relieved all the same, while its calls run and outlive their caller. B3, R2.
#[test]
fn an_instance_that_is_at_a_call_is_relieved() {
    let mut config = config([0, 1]);
    config.habits.slow_move = true;
    config.lagging = &[(C1, Kind::Attachments), (L1, Kind::Attachments)];
    config.budget = bounds(
        Budget { relieve: 1, crash: 1, late: 1, ..NONE },
        Budget { relieve: 2, crash: 1, late: 1, lag: 1, ..NONE },
    );
    check("an instance that is at a call is relieved", config);
}

/// ASSUMED of agents: they answer when none of the calls is running any more, the ones of an agent before them included. R2.
#[test]
#[should_panic(expected = "does not hold")]
fn assumed_an_agent_waits_for_its_calls_before_it_answers() {
    let mut config = config([0, 0]);
    config.habits.hasty_answer = true;
    config.budget = Budget { relieve: 1, ..NONE };
    check("an agent that answers while its call runs", config);
}
