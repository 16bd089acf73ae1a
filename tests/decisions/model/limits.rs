//! What does not hold, and without which assumption it would not.

use moor::api::AccessMode::SingleNodeWriter;

use super::config::{Budget, Config, Removed};
use super::report::check;
use super::state::Kind;
use super::{L1, NONE, OLD_CACHES};

/// OPEN: an Attachment that is removed by hand while the storage is attached for it. Its node has nothing and gives the
/// grant back; of the attach only the storage knows. The driver refuses a second one, and the audit of the storage
/// finds the first. N9.
#[test]
#[should_panic(expected = "never attached on two nodes in a single-node mode")]
fn open_an_attached_attachment_removed_by_force() {
    let mut config = Config::new(SingleNodeWriter, [0, 1]);
    (config.stage, config.removed) = (false, Some(Removed::Attachment));
    (config.kept, config.sick) = (&[0, 1], Some(0));
    config.budget = Budget { force: 1, ..NONE };
    check("an Attachment removed by force while it is attached", config);
}

/// OPEN: an Attachment that is removed by hand under a claim that is deleted. That it is gone is what frees such a claim
/// when all went in order, and nothing tells the two apart: the mount is undone by its record alone. N9, N14.
#[test]
#[should_panic(expected = "a claim is gone only when its target is")]
fn open_an_attachment_removed_by_force_under_a_deleted_claim() {
    let mut config = Config::new(SingleNodeWriter, [0, 1]);
    (config.attach, config.stage, config.removed) = (false, false, Some(Removed::Attachment));
    config.budget = Budget { force: 1, ..NONE };
    check("an Attachment removed by force under a deleted claim", config);
}

/// OPEN: finding an instance dead and naming its successor are two objects and two steps. A leader that pauses between
/// them names the successor of an instance that has come back and is calling. B3, R2.
#[test]
#[should_panic(expected = "does not hold")]
fn open_a_leader_pauses_before_it_names_a_successor() {
    let mut config = Config::new(SingleNodeWriter, [0, 0]);
    config.stage = false;
    config.habits.slow_move = true;
    config.budget = Budget { kill: 1, revive: 1, ..NONE };
    check("a leader pauses before it names a successor", config);
}

/// OPEN: the successor of a dead instance undoes an attach that the storage is still making. R2 wants the same
/// call repeated before any inverse; the decision cannot know that the Attachment has moved.
#[test]
#[should_panic(expected = "does not hold")]
fn open_the_storage_goes_on_after_the_plugin_died() {
    let mut config = Config::new(SingleNodeWriter, [0, 0]);
    config.backend = true;
    config.budget = Budget { kill: 1, ..NONE };
    check("the storage goes on", config);
}

/// ASSUMED of leaders: both looks at a node that seems lost are live. A watch that has not seen a deleted Node come back
/// takes its next silence for a loss, and another node gets the volume. R4.
#[test]
#[should_panic(expected = "does not hold: never mounted on two nodes in a single-node mode")]
fn assumed_a_leader_looks_before_it_declares_a_loss() {
    let mut config = Config::new(SingleNodeWriter, [1, 0]);
    (config.attach, config.stage, config.leaves) = (false, false, Some(1));
    config.kept = &[0, 1];
    config.lagging = &[(L1, Kind::Nodes)];
    config.habits.blind_loss = true;
    config.budget = Budget { away: 2, word: 1, lag: 1, ..NONE };
    check("a leader that does not look", config);
}

/// ASSUMED of drivers: while a call for a volume runs, another one is answered ABORTED or waits. B19.
#[test]
#[should_panic(expected = "does not hold")]
fn assumed_a_driver_finishes_one_call_before_the_next() {
    let mut config = Config::new(SingleNodeWriter, [0, 0]);
    config.serial = false;
    config.budget = Budget { late: 1, ..NONE };
    check("a driver that overtakes itself", config);
}

/// ASSUMED of the agent: a pass ends with a write to the API. Live reads that outlive the agent's own
/// write stage a volume that has been detached meanwhile.
#[test]
#[should_panic(expected = "does not hold")]
fn assumed_a_pass_ends_with_a_write() {
    let mut config = Config::new(SingleNodeWriter, [0, 0]);
    config.habits.keeps_reads = true;
    config.lagging = OLD_CACHES;
    config.budget = Budget { lag: 1, ..NONE };
    check("live reads that outlive a write", config);
}
