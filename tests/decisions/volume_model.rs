//! A Volume's own calls, checked by machine: CreateVolume, ControllerExpandVolume, ControllerModifyVolume,
//! ValidateVolumeCapabilities of an edit, DeleteVolume and what is deleted again, with the real decisions of leader and agents.
//! Whatever happened: in the end the driver has what the objects say, and nothing else (`bad_rest` in `system.rs`). Snapshots are
//! in `snapshot_model.rs`.
//!
//! One Volume is created, deleted and perhaps kept by its owner; the storage that it leaves is registered again by
//! another one. Two agents may make the calls. An agent is cut off for as long as it likes, and its watch of Volumes
//! falls behind for as long as it likes: it may wake later than the Lease, or be old without any silence. The leader's
//! watch of Volumes may fall behind too. A call outlives its agent's Lease, and the leader waits for its end, as it does
//! by time (rule R2); an answer that comes to an agent that was cut off waits for it. Of a leader's writes about a Volume that
//! goes any may be on its way for long.
//!
//! What a status says can be lost, while the VolumeHandle says it too. An agent's process can end, and what it remembers with it.
//!
//! A live look and the call that it allows are one step: nothing waits between them. Claims, Attachments and modes are in
//! `model.rs`; here nobody uses the volume. Left out: Secrets, a driver that makes one name twice.

#![allow(
    clippy::print_stdout,
    clippy::trivially_copy_pass_by_ref,
    clippy::struct_field_names,
    clippy::option_option,
    reason = "a test; objects are passed like objects, and a cache that is behind may hold none"
)]

pub mod agent;
pub mod leader;
pub mod state;
pub mod system;

use moor::volume::calls::VolumeCall;
use state::{Budget, Config};
use stateright::{Checker, Expectation, HasDiscoveries, Model};
use system::System;

pub const NONE: Budget = Budget {
    away: 0,
    lag: 0,
    restart: 0,
    old_leader: 0,
    slow_leader: 0,
    fail: 0,
    lost: 0,
    wrong: 0,
    retain: 0,
    wiped: 0,
    grow: 0,
    modify: 0,
    edit: 0,
};

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

fn bounds(usual: Budget, deep: Budget) -> Config {
    let is_deep = std::env::var("MOOR_MODEL").is_ok_and(|v| v == "deep");
    Config { budget: if is_deep { deep } else { usual }, blind: None, forgets: false }
}

/// Another agent takes the calls over, the owner keeps the storage and registers it again, and the first one comes back.
#[test]
fn an_agent_comes_back_before_its_watch() {
    let usual = Budget { away: 1, lag: 1, lost: 1, retain: 1, ..NONE };
    check("an agent comes back", bounds(usual, Budget { away: 2, lag: 2, fail: 1, lost: 2, ..usual }));
}

/// Both agents are cut off in turn, and both watches are behind.
#[test]
fn two_agents_come_back_before_their_watches() {
    let usual = Budget { away: 2, lag: 2, retain: 1, ..NONE };
    check("two agents come back", bounds(usual, Budget { lost: 1, old_leader: 1, ..usual }));
}

/// What was made is of no use, and its agent is cut off at any moment.
#[test]
fn what_nobody_can_use_is_deleted_again() {
    let usual = Budget { away: 1, lag: 1, wrong: 1, lost: 1, retain: 1, ..NONE };
    check("of no use", bounds(usual, Budget { away: 2, wrong: 2, fail: 1, ..usual }));
}

/// Outcomes are unknown, and the storage says that it is full.
#[test]
fn a_full_storage_after_an_unknown_outcome() {
    let usual = Budget { fail: 2, lost: 2, away: 1, ..NONE };
    check("a full storage", bounds(usual, Budget { retain: 1, lag: 1, ..usual }));
}

/// Agents' processes end at any moment, with what they remember of their calls, and the calls move as well.
#[test]
fn an_agent_forgets_what_it_has_called() {
    let usual = Budget { restart: 1, fail: 2, lost: 1, away: 1, ..NONE };
    check("an agent forgets", bounds(usual, Budget { restart: 2, retain: 1, lag: 1, wrong: 1, ..usual }));
}

/// The leader's watch of Volumes is behind.
#[test]
fn a_leader_whose_watch_of_volumes_is_behind() {
    let usual = Budget { old_leader: 2, lost: 1, retain: 1, away: 1, ..NONE };
    check("an old leader", bounds(usual, Budget { lag: 1, wrong: 1, ..usual }));
}

/// The owner changes his mind about the storage while the watch of one leader is behind, and a write of another is on its way.
#[test]
fn the_storage_of_a_deleted_volume_is_to_stay_and_to_go_again() {
    let usual = Budget { retain: 2, old_leader: 1, slow_leader: 1, ..NONE };
    check(
        "an owner of two minds",
        bounds(usual, Budget { retain: 3, slow_leader: 2, away: 1, lost: 1, ..usual }),
    );
}

/// Somebody wipes the status, at any moment from the VolumeHandle on.
#[test]
fn a_status_is_lost() {
    let usual = Budget { wiped: 2, away: 1, lag: 1, fail: 1, retain: 1, ..NONE };
    check("a lost status", bounds(usual, Budget { lost: 1, old_leader: 1, ..usual }));
}

/// The same, and the removal of the VolumeHandle is on its way since the call has ended for the first time.
#[test]
fn a_status_is_lost_while_the_volume_handle_goes() {
    let usual = Budget { wiped: 1, slow_leader: 1, ..NONE };
    check("a lost status, a handle that goes", bounds(usual, Budget { retain: 1, away: 1, ..usual }));
}

/// The same, and the CreateVolume that is repeated is answered with what is of no use.
#[test]
fn a_status_is_lost_and_the_repeated_answer_is_of_no_use() {
    let usual = Budget { wiped: 1, wrong: 1, away: 1, retain: 1, ..NONE };
    check("a lost status, an answer of no use", bounds(usual, Budget { lag: 1, wrong: 2, ..usual }));
}

/// The owner wants more room, and the agent that has the order is cut off, or leaves, at any moment.
#[test]
fn a_volume_grows_while_agents_come_and_go() {
    let usual = Budget { grow: 1, away: 1, lag: 1, lost: 1, retain: 1, ..NONE };
    check("a volume grows", bounds(usual, Budget { away: 2, old_leader: 1, ..usual }));
}

/// The owner changes his mind while the agent that has the order is cut off, and answers are lost.
#[test]
fn a_volume_is_modified_while_agents_come_and_go() {
    let usual = Budget { modify: 2, away: 1, lag: 1, lost: 1, ..NONE };
    check("a volume is modified", bounds(usual, Budget { away: 2, fail: 1, old_leader: 1, ..usual }));
}

/// The driver refuses, and the volume is to grow beside that.
#[test]
fn a_volume_is_modified_and_grows() {
    let usual = Budget { modify: 2, grow: 1, fail: 1, lost: 1, retain: 1, ..NONE };
    check("a volume is modified and grows", bounds(usual, Budget { away: 1, lag: 1, ..usual }));
}

/// The owner edits it, and edits it again or takes that back, while answers are lost and agents are cut off.
#[test]
fn a_volume_is_edited_while_agents_come_and_go() {
    let usual = Budget { edit: 2, away: 1, lost: 1, ..NONE };
    check("a volume is edited", bounds(usual, Budget { edit: 3, lag: 1, fail: 1, old_leader: 1, ..usual }));
}

/// The driver refuses an edit, and the volume is to grow and to be otherwise beside that.
#[test]
fn a_volume_is_edited_and_grows_and_is_modified() {
    let usual = Budget { edit: 1, grow: 1, modify: 1, fail: 1, lost: 1, ..NONE };
    check("a volume is edited, grows and is modified", bounds(usual, Budget { away: 1, lag: 1, ..usual }));
}

/// Somebody wipes the status of a volume that has grown and was edited.
#[test]
fn a_status_is_lost_of_a_volume_that_is_not_as_it_was_made() {
    let usual = Budget { wiped: 1, grow: 1, edit: 1, lost: 1, retain: 1, ..NONE };
    check("a lost status of a volume that has grown", bounds(usual, Budget { away: 1, fail: 1, ..usual }));
}

/// ASSUMED of the agent: it writes what it asks for before it does. Whoever comes after it would ask for something else while
/// the driver may be at the first.
#[test]
#[should_panic(expected = "nothing else is asked for before an outcome is known")]
fn assumed_an_agent_writes_before_a_volume_is_modified() {
    let budget = Budget { modify: 2, lost: 1, ..NONE };
    check("an agent that does not write", Config { budget, blind: Some(VolumeCall::Modify), forgets: false });
}

/// ASSUMED of the agent: it looks live before it has a volume grow. On the word of its cache alone it calls beside who has
/// the VolumeHandle by now.
#[test]
#[should_panic(expected = "nothing is called beside a growth or a modification")]
fn assumed_an_agent_looks_before_a_volume_grows() {
    let budget = Budget { grow: 1, away: 1, lag: 1, ..NONE };
    check("an agent that does not look", Config { budget, blind: Some(VolumeCall::Expand), forgets: false });
}

/// ASSUMED of the agent: it looks live before it deletes. On the word of its cache alone it deletes what has become another
/// Volume's.
#[test]
#[should_panic(expected = "storage is deleted only behind its own closed lock")]
fn assumed_an_agent_looks_before_it_deletes() {
    let budget = Budget { away: 1, lag: 1, lost: 1, retain: 1, ..NONE };
    check("an agent that does not look", Config { budget, blind: Some(VolumeCall::Delete), forgets: false });
}

/// ASSUMED of the agent: it looks live before it creates, too. On the word of its cache alone it makes again what was deleted
/// since.
#[test]
#[should_panic(expected = "once trouble ends, every run ends well")]
fn assumed_an_agent_looks_before_it_creates() {
    let budget = Budget { away: 1, lag: 1, ..NONE };
    check("an agent that does not look", Config { budget, blind: Some(VolumeCall::Create), forgets: false });
}

/// ASSUMED of the agent: when it begins it takes it that the process before it has called what was its to create. Else a driver
/// that is full then says that nothing was made.
#[test]
#[should_panic(expected = "once trouble ends, every run ends well")]
fn assumed_an_agent_looks_for_what_was_called_before_it() {
    let budget = Budget { restart: 1, fail: 1, ..NONE };
    check("an agent that does not look", Config { budget, blind: None, forgets: true });
}
