//! A node goes away: its agent is silent, or its machine is off.

use moor::api::AccessMode::{MultiNodeSingleWriter, SingleNodeWriter};

use super::config::{Budget, Config};
use super::report::check;
use super::state::Kind;
use super::{L1, N2, NONE, bounds};

/// A node goes away, with its machine or without, and comes back: as it was, as another machine of its name, or
/// registered anew after somebody deleted its Node, tainted it, or forced the claim there. Calls that were running go
/// on. B6, B7, B8, N13.
#[test]
fn a_node_goes_away_and_comes_back() {
    let mut config = Config::new(SingleNodeWriter, [1, 0]);
    (config.stage, config.leaves, config.kept) = (false, Some(1), &[1]);
    config.budget =
        bounds(Budget { away: 1, word: 1, ..NONE }, Budget { away: 2, word: 2, crash: 1, ..NONE });
    check("a node goes away and comes back", config);
}

/// The same with two claims on the node: one that is deleted by force does not take the other's volume. N7.
#[test]
fn a_node_with_two_claims_goes_away() {
    let mut config = Config::new(SingleNodeWriter, [1, 1]);
    (config.stage, config.leaves, config.kept) = (false, Some(1), &[1]);
    config.budget = bounds(Budget { away: 1, word: 1, ..NONE }, Budget { away: 1, word: 2, late: 1, ..NONE });
    check("a node with two claims goes away", config);
}

/// Nothing fences the node: only the word that its machine is off ends its part. B6.
#[test]
fn a_node_goes_away_and_nothing_fences_it() {
    let mut config = Config::new(SingleNodeWriter, [1, 0]);
    (config.attach, config.leaves) = (false, Some(1));
    config.budget =
        bounds(Budget { away: 1, word: 1, ..NONE }, Budget { away: 2, word: 2, crash: 1, ..NONE });
    check("a node goes away, nothing fences it", config);
}

/// Finding a node lost and writing it are two steps. Where nothing fences the node and its machine starts in between,
/// its agent has read an Attachment that was not lost: another look, after the write, finds it. B7, R4.
#[test]
fn a_leader_pauses_before_it_declares_a_loss() {
    let mut config = Config::new(SingleNodeWriter, [1, 0]);
    (config.attach, config.stage, config.leaves) = (false, false, Some(1));
    config.kept = &[0, 1];
    config.habits.slow_loss = true;
    config.budget = bounds(Budget { away: 2, word: 1, ..NONE }, Budget { away: 2, word: 2, ..NONE });
    check("a leader pauses before it declares a loss", config);
}

/// A leader's watch of Nodes is behind: it misses that one was deleted or marked, or that one is back. On that word it
/// looks, and the look is live. B7, R4.
#[test]
fn a_leader_whose_watch_of_nodes_is_behind() {
    let mut config = Config::new(SingleNodeWriter, [1, 0]);
    (config.stage, config.leaves, config.kept) = (false, Some(1), &[0, 1]);
    config.lagging = &[(L1, Kind::Nodes)];
    config.budget = bounds(
        Budget { away: 2, word: 1, lag: 1, ..NONE },
        Budget { away: 2, word: 2, lag: 1, crash: 1, ..NONE },
    );
    check("a watch of Nodes is behind", config);
}

/// The same where nothing fences the node.
#[test]
fn a_leader_whose_watch_of_nodes_is_behind_and_nothing_fences() {
    let mut config = Config::new(SingleNodeWriter, [1, 0]);
    (config.attach, config.stage, config.leaves) = (false, false, Some(1));
    config.kept = &[0, 1];
    config.lagging = &[(L1, Kind::Nodes)];
    config.habits.slow_loss = true;
    config.budget = bounds(
        Budget { away: 2, word: 1, lag: 1, ..NONE },
        Budget { away: 2, word: 2, lag: 1, crash: 1, ..NONE },
    );
    check("a watch of Nodes is behind, nothing fences", config);
}

/// The Lease of an agent wakes before its watches do: what it has in its caches was given to others meanwhile. N13.
#[test]
fn a_node_comes_back_before_its_watches() {
    let mut config = Config::new(SingleNodeWriter, [1, 0]);
    (config.stage, config.leaves, config.kept) = (false, Some(1), &[1]);
    config.lagging = &[(N2, Kind::Claims), (N2, Kind::Attachments)];
    config.budget = bounds(
        Budget { away: 1, word: 1, lag: 1, ..NONE },
        Budget { away: 1, word: 1, lag: 2, late: 1, ..NONE },
    );
    check("a node comes back before its watches", config);
}

/// The writer's node is lost: the next one waits until it is cut off. N13.
#[test]
fn the_writer_is_on_a_node_that_goes_away() {
    let mut config = Config::new(MultiNodeSingleWriter, [1, 0]);
    (config.attach, config.stage, config.leaves) = (true, false, Some(1));
    config.kept = &[0, 1];
    config.budget = bounds(Budget { away: 1, word: 1, ..NONE }, Budget { away: 1, word: 1, late: 1, ..NONE });
    check("the writer's node goes away", config);
}

/// Somebody deletes the Node of a machine that lives and is heard, and when it is registered anew deletes that one too, or
/// taints it: what was made under the first UID stays with the agent, which is heard under another. B6, B7, R4.
#[test]
fn the_node_of_a_machine_that_lives_is_deleted_and_tainted() {
    let mut config = Config::new(SingleNodeWriter, [1, 0]);
    (config.stage, config.leaves, config.kept) = (false, Some(1), &[1]);
    config.budget =
        bounds(Budget { wrong: 2, ..NONE }, Budget { wrong: 2, away: 1, word: 1, crash: 1, ..NONE });
    check("the Node of a machine that lives is deleted and tainted", config);
}

/// The same where nothing fences the node, and after it was lost: a leader that pauses finds it back, under another UID.
#[test]
fn the_node_of_a_machine_that_is_back_is_deleted_and_tainted() {
    let mut config = Config::new(SingleNodeWriter, [1, 0]);
    (config.attach, config.stage, config.leaves) = (false, false, Some(1));
    config.kept = &[0, 1];
    config.habits.slow_loss = true;
    config.budget =
        bounds(Budget { away: 1, word: 1, wrong: 2, ..NONE }, Budget { away: 2, word: 2, wrong: 2, ..NONE });
    check("the Node of a machine that is back is deleted and tainted", config);
}
