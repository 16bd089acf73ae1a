//! A Snapshot that is taken of a Volume, and a Volume that is made of the Snapshot, while each of the three is deleted at any
//! moment: checked by machine, with the real decisions of leader and agent (docs/adr/0040).
//!
//! Two leaders may act, one of them on an old view of everything, and each may be slow between its live looks and its write. The
//! agent's watch may be behind, and it may be slow between its live look at the source and what it writes, and between that and
//! the call; it dies there too. An answer may be lost, with the call's effect or without, and a call may fail for certain.
//!
//! Who makes calls, and how that moves, is in `volume_model.rs`: here one agent makes all. Nobody uses the volumes.

#![allow(
    clippy::print_stdout,
    clippy::trivially_copy_pass_by_ref,
    reason = "a test; objects are passed like objects"
)]

mod agent;
mod leader;
mod objects;
mod state;
mod system;

use moor::api::volume::DeletionPolicy;
use state::{Budget, Config};
use stateright::{Checker, Expectation, HasDiscoveries, Model};
use system::System;

const NONE: Budget = Budget { lag: 0, old_leader: 0, slow_leader: 0, lost: 0, fail: 0, crash: 0 };

/// Explores every reachable state within the budget, and panics with the way to where something breaks.
fn check(title: &str, config: Config) {
    let checker = System::new(config).checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    println!("{title}: {} states, depth {}", checker.unique_state_count(), checker.max_depth());
    let found = checker.discoveries();
    for property in checker.model().properties() {
        match (found.get(property.name), property.expectation) {
            (Some(path), Expectation::Always | Expectation::Eventually) => {
                for (at, action) in path.clone().into_actions().iter().enumerate() {
                    println!("{at:3} {action:?}");
                }
                println!("{:#?}", path.last_state());
                println!("{:?}", system::calm(checker.model(), path.last_state()));
                panic!("{title}: does not hold: {}", property.name);
            }
            (None, Expectation::Sometimes) => panic!("{title}: never happens: {}", property.name),
            _ => {}
        }
    }
}

fn deletes(usual: Budget, deep: Budget) -> Config {
    let is_deep = std::env::var("MOOR_MODEL").is_ok_and(|v| v == "deep");
    let budget = if is_deep { deep } else { usual };
    let (volume, snapshot) = (DeletionPolicy::Delete, DeletionPolicy::Delete);
    Config { budget, volume, snapshot, bold: false, origin_goes: true, copies: true, group: false }
}

/// A leader lists what is made of the source, and has it deleted later; another one assigns meanwhile.
#[test]
fn two_leaders_are_slow_about_a_volume() {
    let usual = Budget { old_leader: 1, slow_leader: 2, ..NONE };
    let config = deletes(usual, Budget { lost: 1, ..usual });
    check("two slow leaders, a volume", Config { copies: false, ..config });
}

/// As above, of the Snapshot.
#[test]
fn two_leaders_are_slow_about_a_snapshot() {
    let usual = Budget { old_leader: 1, slow_leader: 1, ..NONE };
    let config = deletes(usual, Budget { slow_leader: 2, ..usual });
    check("two slow leaders, a snapshot", Config { origin_goes: false, ..config });
}

/// All at once.
#[test]
fn two_leaders_are_slow_about_both() {
    let usual = Budget { slow_leader: 1, ..NONE };
    check("two slow leaders", deletes(usual, Budget { old_leader: 1, ..usual }));
}

/// The agent has seen the source before it was deleted, and writes and calls afterwards.
#[test]
fn an_agent_is_slow_and_dies() {
    let usual = Budget { lag: 1, crash: 1, ..NONE };
    check("a slow agent", deletes(usual, Budget { slow_leader: 1, ..usual }));
}

/// Outcomes are unknown, and calls fail.
#[test]
fn answers_are_lost() {
    let usual = Budget { lost: 1, fail: 1, crash: 1, ..NONE };
    check("lost answers", deletes(usual, Budget { old_leader: 1, ..usual }));
}

/// Of several volumes at one moment: what is made of a member, and what is deleted with all of them.
#[test]
fn a_group_is_deleted_and_restored_by_slow_leaders() {
    let usual = Budget { old_leader: 1, slow_leader: 1, ..NONE };
    let config = deletes(usual, Budget { slow_leader: 2, ..usual });
    check("two slow leaders, a group", Config { origin_goes: false, group: true, ..config });
}

/// The same with its Volume, outcomes that are unknown, and calls that fail.
#[test]
fn the_answers_about_a_group_are_lost() {
    let usual = Budget { lost: 1, fail: 1, ..NONE };
    let config = deletes(usual, Budget { crash: 1, ..usual });
    check("lost answers, a group", Config { group: true, ..config });
}

/// What the volume and the snapshot have at the driver stays, and their lock goes all the same.
#[test]
fn the_storage_stays() {
    let usual = Budget { old_leader: 1, lost: 1, crash: 1, ..NONE };
    let kept = |config: Config| Config {
        volume: DeletionPolicy::Retain,
        snapshot: DeletionPolicy::Retain,
        ..config
    };
    check("kept", kept(deletes(usual, Budget { slow_leader: 1, lag: 1, ..usual })));
}

/// An agent that does not look at the source right before its first call takes a snapshot of what is being deleted, or makes a
/// volume of it: so the model can see that.
#[test]
fn the_look_at_the_source_is_needed() {
    let budget = Budget { old_leader: 1, slow_leader: 1, ..NONE };
    let config = Config { bold: true, ..deletes(budget, budget) };
    let checker = System::new(config).checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let found = checker.discoveries();
    assert!(found.contains_key(system::HARMLESS), "{:?}", found.keys());
}
