//! Runs a configuration and says what was covered, or how it fails.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Instant;

use stateright::{Checker, Expectation, HasDiscoveries, Model, Path};

use super::actions::Action;
use super::calm;
use super::config::Config;
use super::harm::Harm;
use super::state::State;
use super::system::System;

/// Explores every reachable state within the budget.
///
/// # Panics
///
/// If an invariant does not hold, after printing the shortest way to where it breaks.
pub fn check(title: &str, config: Config) {
    let started = Instant::now();
    let checker = System::new(config).checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let (system, found) = (checker.model(), checker.discoveries());
    let (states, steps, depth) = (checker.unique_state_count(), checker.state_count(), checker.max_depth());
    let seconds = started.elapsed().as_secs_f32();
    println!(
        "{title}: {states} states, {steps} steps, depth {depth}, {seconds:.1} s; {:?}",
        system.config.budget
    );
    println!("  asked of nodes: {}", variants(&system.nodes.answers()));
    println!("  asked of controllers: {}", variants(&system.controllers.answers()));
    println!("  asked of leaders: {}", variants(&system.leaders.answers().concat()));
    for property in system.properties() {
        match (found.get(property.name), property.expectation) {
            (Some(path), Expectation::Always | Expectation::Eventually) => {
                explain(system, path);
                panic!("{title}: does not hold: {}", broken(path, property.name, system));
            }
            (None, Expectation::Always | Expectation::Eventually) => println!("  holds: {}", property.name),
            (Some(_), Expectation::Sometimes) => println!("  happens: {}", property.name),
            (None, Expectation::Sometimes) => panic!("{title}: never happens: {}", property.name),
        }
    }
}

/// The invariant that is broken at the end of a path, or by the run without trouble that follows; else the property.
fn broken(path: &Path<State, Action>, name: &'static str, system: &System) -> &'static str {
    let at_the_end = path.last_state().harm;
    let harm = at_the_end.or_else(|| calm::run(system, path.last_state()).err()?.2);
    harm.map_or(name, Harm::name)
}

fn explain(system: &System, path: &Path<State, Action>) {
    for (at, action) in path.clone().into_actions().iter().enumerate() {
        let missed = action.missed.map(|m| format!("   [missed by {m:?}]")).unwrap_or_default();
        println!("{at:3} {:?}{missed}", action.what);
    }
    if let Err((then, why, _)) = calm::run(system, path.last_state()) {
        println!("and then, without trouble:");
        for what in then {
            println!("    {what:?}");
        }
        println!("{why}");
    }
}

/// The different kinds of answers, by name.
fn variants<T: Debug>(answers: &[T]) -> String {
    let name = |answer: &T| {
        let all = format!("{answer:?}");
        all.split(['(', ' ', '{']).next().unwrap_or_default().to_owned()
    };
    answers.iter().map(name).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(" ")
}
