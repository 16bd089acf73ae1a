//! The claim protocol, checked by machine: the real decisions in a small world where everything that can
//! interleave does. Two or three claims on one volume, two nodes, two controller instances, a leader and old ones.
//!
//! Every test is one configuration, explored to its end. Its bounds are its budget; `MOOR_MODEL=deep` takes
//! larger ones (some minutes when optimised). Leaders keep nothing between writes, so a leader's crash
//! between any two writes is in every run. B.. and N.. are rows of docs/known-traps.md.
//!
//! What bounds a run: how often each kind of trouble may happen ([`config::Budget`]), which watches may fall
//! behind (each once, for as long as it likes), which claims their users never delete (`kept`), how many steps leaders
//! with old caches make (`old_steps`, else any number), epochs. Each configuration combines a few dimensions; all of
//! them together would not end. A live look and the write that it allows are two steps for the writer's lock, for
//! the end of a closing, and where a habit says so; elsewhere one.
//!
//! A node goes away as its agent's Lease expires: it starts no call and writes nothing until it is back, and calls that
//! were running go on. What a lost Attachment has mounted reaches the storage as long as it is attached, or, without
//! ControllerPublish, as long as the machine is on. So only a machine that is off is deleted or tainted there. The
//! watches of its agent may wake later than its Lease.
//!
//! A reply comes once, late, or never: gRPC and HTTP match it to its call, and a write that was sent twice is refused by
//! its resourceVersion. What the model leaves out: CreateVolume and DeleteVolume and a watch of Volumes that is behind
//! (those are in `volume_model.rs`; here Volumes are registered), a lost node that has the only instance, Pods.

#![allow(
    clippy::print_stdout,
    clippy::trivially_copy_pass_by_ref,
    reason = "a test; objects are passed like objects, small as they are here"
)]

pub mod actions;
pub mod api;
pub mod arbitrary;
pub mod calm;
pub mod config;
pub mod controller;
pub mod driver;
pub mod harm;
pub mod leader;
pub mod node;
pub mod report;
pub mod scene;
pub mod seen;
pub mod state;
pub mod steps;
pub mod system;
pub mod uids;
pub mod volumes;

use config::{Budget, Config, Removed, Volumes};
use moor::api::AccessMode::{MultiNodeMultiWriter, MultiNodeSingleWriter, SingleNodeSingleWriter};
use moor::api::AccessMode::{SingleNodeMultiWriter, SingleNodeWriter};
use report::check;
use state::{Actor, Kind};

const L1: Actor = Actor::Leader(1);
const L2: Actor = Actor::Leader(2);
const C1: Actor = Actor::Controller(0);
const N1: Actor = Actor::Node(0);
const N2: Actor = Actor::Node(1);

const NONE: Budget = Budget::NONE;
const OLD_LEADER: &[(Actor, Kind)] = &[(L1, Kind::Claims), (L1, Kind::Attachments), (L1, Kind::Handle)];
const OLD_AGENTS: &[(Actor, Kind)] = &[(N1, Kind::Claims), (N1, Kind::Attachments), (C1, Kind::Attachments)];
const OLD_CACHES: &[(Actor, Kind)] = &[
    (L1, Kind::Claims),
    (L1, Kind::Attachments),
    (L1, Kind::Handle),
    (N1, Kind::Claims),
    (N1, Kind::Attachments),
    (C1, Kind::Attachments),
];

fn bounds(usual: Budget, deep: Budget) -> Budget {
    if std::env::var("MOOR_MODEL").is_ok_and(|v| v == "deep") { deep } else { usual }
}

/// A claim moves to another node through crashes and calls that outlive them. B3 (one instance), B16, B18, B19, N3.
#[test]
fn two_claims_on_two_nodes() {
    let mut config = Config::new(SingleNodeWriter, [0, 1]);
    config.lagging = OLD_CACHES;
    config.budget =
        bounds(Budget { crash: 1, late: 1, ..NONE }, Budget { crash: 1, late: 1, lag: 1, ..NONE });
    check("two claims, two nodes, a crash and a late call", config);
}

/// An old leader beside the new one, each with caches of its own age. B1, B16, B24, N1, N2, N10.
#[test]
fn an_old_leader_and_two_nodes() {
    let mut config = Config::new(SingleNodeWriter, [0, 1]);
    config.lagging = OLD_LEADER;
    config.budget = bounds(Budget { lag: 1, ..NONE }, Budget { lag: 2, ..NONE });
    check("an old leader, two nodes", config);
}

/// Two caches are old at once: of one leader, or of two. N1, N2: joins are no compare-and-swap.
#[test]
fn two_old_leaders_and_one_node() {
    let mut config = Config::new(SingleNodeWriter, [0, 0]);
    config.lagging = &[(L1, Kind::Claims), (L1, Kind::Attachments), (L2, Kind::Claims)];
    config.budget = bounds(Budget { lag: 1, ..NONE }, Budget { lag: 2, ..NONE });
    check("two old leaders, one node", config);
}

/// Two claims share an Attachment; the last one on the node undoes it. B4, B18, B19, B22 and T-cases of sharing.
#[test]
fn two_claims_join_on_one_node() {
    let mut config = Config::new(SingleNodeWriter, [0, 0]);
    config.lagging = OLD_CACHES;
    config.budget = bounds(
        Budget { crash: 1, late: 1, fail: 1, ..NONE },
        Budget { crash: 1, late: 1, fail: 1, lag: 1, ..NONE },
    );
    check("join and delete on one node", config);
}

/// Only one claim at a time may have a target. N2, B23.
#[test]
fn an_exclusive_mode_on_one_node() {
    let mut config = Config::new(SingleNodeSingleWriter, [0, 0]);
    config.lagging = OLD_CACHES;
    config.budget = bounds(Budget { lag: 1, ..NONE }, Budget { lag: 2, crash: 1, ..NONE });
    check("an exclusive mode", config);
}

/// No stage: the record begins with the publish. B11.
#[test]
fn a_driver_without_stage() {
    let mut config = Config::new(SingleNodeMultiWriter, [0, 0]);
    config.stage = false;
    config.lagging = OLD_AGENTS;
    config.budget =
        bounds(Budget { late: 1, crash: 1, ..NONE }, Budget { late: 2, lag: 1, crash: 1, ..NONE });
    check("no stage", config);
}

/// Agents act on caches that are behind, also behind their own writes. B25, B2 (the API's half).
#[test]
fn agents_whose_watches_are_behind() {
    let mut config = Config::new(SingleNodeWriter, [0, 0]);
    config.habits.deaf = true;
    config.lagging = OLD_AGENTS;
    config.budget = bounds(Budget { lag: 1, ..NONE }, Budget { lag: 2, late: 1, crash: 1, ..NONE });
    check("agents behind their own writes", config);
}

/// Two claims share a node and a third one waits for both on another. B1, B22.
#[test]
fn three_claims_on_two_nodes() {
    let mut config = Config::new(SingleNodeWriter, [0, 0, 1]);
    config.lagging = OLD_LEADER;
    config.budget = bounds(Budget { lag: 1, ..NONE }, Budget { lag: 1, crash: 1, late: 1, ..NONE });
    check("three claims, two nodes", config);
}

/// Three claims that exclude each other on one node: each gives its Attachment to the next or is the last on it.
#[test]
fn three_claims_in_an_exclusive_mode() {
    let mut config = Config::new(SingleNodeSingleWriter, [0, 0, 0]);
    config.lagging = OLD_CACHES;
    config.budget = bounds(Budget { lag: 1, ..NONE }, Budget { lag: 2, crash: 1, ..NONE });
    check("three claims, an exclusive mode", config);
}

/// The one between two of its kind has another mode.
#[test]
fn three_claims_and_two_mode_switches() {
    let mut config = Config::new(SingleNodeWriter, [0, 1, 0]);
    config.claims[1].mode = MultiNodeMultiWriter;
    config.stage = false;
    config.lagging = &[(L1, Kind::Attachments), (L1, Kind::Handle)];
    config.budget = bounds(Budget { lag: 1, ..NONE }, Budget { lag: 1, crash: 1, late: 1, ..NONE });
    check("three claims, two mode switches", config);
}

/// Two writers and a reader beside them.
#[test]
fn two_writers_and_a_reader() {
    let mut config = Config::new(MultiNodeSingleWriter, [0, 1, 1]);
    (config.stage, config.claims[1].read_only) = (false, true);
    config.budget = bounds(NONE, Budget { force: 1, ..NONE });
    check("two writers and a reader", config);
}

/// Two modes: the switch waits for everything older, old leaders cannot bring the old epoch back. B1, N6.
#[test]
fn a_mode_switch() {
    let mut config = Config::new(SingleNodeWriter, [0, 1]);
    config.claims[1].mode = MultiNodeMultiWriter;
    config.lagging = &[(L1, Kind::Attachments), (L1, Kind::Handle)];
    config.budget = bounds(Budget { lag: 1, ..NONE }, Budget { lag: 2, late: 1, ..NONE });
    check("a mode switch", config);
}

/// The instance dies while the volume changes its mode. B3, B1.
#[test]
fn a_mode_switch_under_a_dying_instance() {
    let mut config = Config::new(SingleNodeWriter, [0, 0]);
    config.claims[1].mode = MultiNodeMultiWriter;
    config.stage = false;
    config.max_epoch = 2;
    config.lagging = &[(L1, Kind::Attachments)];
    config.budget = bounds(Budget { kill: 1, lag: 1, ..NONE }, Budget { kill: 1, lag: 1, late: 1, ..NONE });
    check("a mode switch and a dying instance", config);
}

/// ControllerPublish and ControllerUnpublish come late, and the Attachment closes under them. B3, B18, N3.
#[test]
fn late_controller_calls_and_closing_before_attached() {
    let mut config = Config::new(SingleNodeWriter, [0, 0]);
    config.stage = false;
    config.lagging = &[(L1, Kind::Claims), (C1, Kind::Attachments)];
    config.budget = bounds(
        Budget { late: 1, crash: 1, fail: 1, ..NONE },
        Budget { late: 2, crash: 1, lag: 1, fail: 1, ..NONE },
    );
    check("late controller calls, closing before attached", config);
}

/// The plugin of the handle's instance dies; another takes over what is due. B3, N5.
#[test]
fn another_instance_takes_over() {
    let mut config = Config::new(SingleNodeWriter, [0, 1]);
    config.stage = false;
    config.lagging = OLD_LEADER;
    config.budget = bounds(Budget { kill: 1, ..NONE }, Budget { kill: 1, crash: 1, late: 1, lag: 1, ..NONE });
    check("another instance takes over", config);
}

/// No ControllerPublish: the node makes the first call and reads the VolumeHandle. N4, N6.
#[test]
fn a_driver_without_attach() {
    let mut config = Config::new(SingleNodeWriter, [0, 1]);
    config.attach = false;
    config.lagging = OLD_LEADER;
    config.budget = bounds(Budget { lag: 1, ..NONE }, Budget { lag: 1, crash: 1, late: 1, ..NONE });
    check("no attach, two nodes", config);
}

/// The same with a mode switch. B1, N6.
#[test]
fn a_mode_switch_without_attach() {
    let mut config = Config::new(SingleNodeWriter, [0, 1]);
    config.claims[1].mode = MultiNodeMultiWriter;
    (config.attach, config.stage) = (false, false);
    config.lagging = &[(L1, Kind::Attachments), (L1, Kind::Handle)];
    config.budget = bounds(Budget { lag: 1, ..NONE }, Budget { lag: 2, crash: 1, ..NONE });
    check("a mode switch without attach", config);
}

/// Claims are removed by hand while mounted: the node undoes them by its record. B17, N14.
#[test]
fn claims_removed_by_force() {
    let mut config = Config::new(SingleNodeWriter, [0, 0]);
    config.lagging = OLD_CACHES;
    config.budget =
        bounds(Budget { force: 1, crash: 1, ..NONE }, Budget { force: 2, crash: 1, late: 1, lag: 1, ..NONE });
    check("claims removed by force", config);
}

/// A node boots again: Ready is withdrawn, mounts are made again or given back. B9, B10, B28.
#[test]
fn a_node_boots_again() {
    let mut config = Config::new(SingleNodeWriter, [0, 0]);
    config.stage = false;
    config.lagging = &[(L1, Kind::Claims)];
    config.budget =
        bounds(Budget { reboot: 1, lag: 1, ..NONE }, Budget { reboot: 1, lag: 1, late: 1, crash: 1, ..NONE });
    check("a node boots again", config);
}

/// Many nodes at once.
#[test]
fn a_mode_for_many_nodes() {
    let mut config = Config::new(MultiNodeMultiWriter, [0, 1]);
    config.stage = false;
    config.lagging = OLD_LEADER;
    config.budget = bounds(NONE, Budget { crash: 1, late: 1, ..NONE });
    check("many nodes", config);
}

/// One writer in the cluster, though each node's Attachment has a name of its own. The younger claim is granted while
/// the older one's node is not usable; a leader whose caches are behind that grant then names the older one. B1, N2.
#[test]
fn a_second_writer_past_an_old_leader() {
    let mut config = Config::new(MultiNodeSingleWriter, [1, 0]);
    config.sick = Some(1);
    (config.attach, config.stage) = (false, false);
    config.missed_all = Some((L1, Kind::Claims));
    config.lagging = &[(L2, Kind::Claims), (N1, Kind::Claims)];
    config.budget =
        bounds(Budget { old_steps: 3, ..NONE }, Budget { lag: 1, crash: 1, old_steps: 6, ..NONE });
    check("one writer on many nodes, an old leader", config);
}

/// Writers that share a node and its Attachment take turns.
#[test]
fn two_writers_take_turns_on_one_node() {
    let mut config = Config::new(MultiNodeSingleWriter, [0, 0]);
    config.stage = false;
    config.lagging = &[(L1, Kind::Claims)];
    config.budget = bounds(Budget { force: 1, ..NONE }, Budget { force: 1, lag: 1, crash: 1, ..NONE });
    check("two writers on one node", config);
}

/// A reader beside the writer: the writer's end is marked, for its Attachment stays.
#[test]
fn a_reader_beside_a_writer() {
    let mut config = Config::new(MultiNodeSingleWriter, [0, 0]);
    (config.stage, config.claims[1].read_only) = (false, true);
    config.lagging = &[(L1, Kind::Claims)];
    config.budget = bounds(NONE, Budget { lag: 1, crash: 1, ..NONE });
    check("a reader beside a writer", config);
}

/// The same with a call that comes late, and a claim that is removed by hand while it writes. N14.
#[test]
fn a_second_writer_after_one_that_was_removed_by_force() {
    let mut config = Config::new(MultiNodeSingleWriter, [1, 0]);
    config.stage = false;
    config.lagging = &[(L1, Kind::Claims)];
    config.budget =
        bounds(Budget { force: 1, ..NONE }, Budget { force: 1, lag: 1, late: 1, crash: 1, ..NONE });
    check("one writer on many nodes, removed by force", config);
}

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

/// A claim is removed by hand and made again under its name while the first one is still mounted. B2, N14.
#[test]
fn a_claim_is_made_again_under_its_name() {
    let mut config = Config::new(SingleNodeWriter, [0, 1]);
    config.lagging = OLD_AGENTS;
    config.budget = bounds(
        Budget { again: 1, force: 1, lag: 1, ..NONE },
        Budget { again: 1, force: 1, lag: 2, crash: 1, ..NONE },
    );
    check("a claim is made again", config);
}

/// The Volume is deleted while it is used, or removed by hand, and made again under its name. B1, B14.
#[test]
fn a_volume_is_made_again_under_its_name() {
    let mut config = Config::new(SingleNodeWriter, [0, 1]);
    (config.stage, config.volumes) = (false, Volumes::Again);
    config.budget = bounds(Budget { force: 1, ..NONE }, Budget { force: 2, crash: 1, ..NONE });
    check("a volume is made again", config);
}

/// An old leader goes on granting for a Volume that was deleted and made again. B1, N16.
#[test]
fn an_old_leader_and_a_volume_made_again() {
    let mut config = Config::new(SingleNodeWriter, [0, 1]);
    (config.attach, config.stage, config.volumes) = (false, false, Volumes::Again);
    config.kept = &[1];
    config.lagging = &[(L1, Kind::Attachments), (L1, Kind::Handle)];
    config.budget =
        bounds(Budget { lag: 1, old_steps: 2, ..NONE }, Budget { lag: 2, force: 1, old_steps: 4, ..NONE });
    check("an old leader, a volume made again", config);
}

/// A Volume is removed by hand and then the instance dies that is to detach it: another one has to.
#[test]
fn an_instance_dies_after_its_volume_was_removed_by_force() {
    let mut config = Config::new(SingleNodeWriter, [0, 0]);
    (config.stage, config.volumes) = (false, Volumes::Again);
    config.budget =
        bounds(Budget { force: 1, kill: 1, ..NONE }, Budget { force: 1, kill: 1, late: 1, ..NONE });
    check("an instance dies after its volume", config);
}

/// A VolumeHandle whose finalizer is taken off by hand is made anew, closed behind what is left. Until then its absence
/// does not say that no call has run. N9.
#[test]
fn a_volume_handle_is_removed_by_force() {
    let mut config = Config::new(SingleNodeWriter, [0, 1]);
    (config.stage, config.removed) = (false, Some(Removed::Handle));
    config.budget = bounds(Budget { force: 1, ..NONE }, Budget { force: 1, late: 1, crash: 1, ..NONE });
    check("a VolumeHandle removed by force", config);
}

/// An Attachment whose finalizer is taken off by hand: the claim that uses it keeps every other node off until its own
/// node has given the grant back, and goes on where it is mounted. N9, N15.
#[test]
fn an_attachment_is_removed_by_force_under_its_claim() {
    let mut config = Config::new(SingleNodeWriter, [0, 1]);
    (config.attach, config.removed) = (false, Some(Removed::Attachment));
    (config.kept, config.sick) = (&[0, 1], Some(0));
    config.budget = bounds(Budget { force: 1, ..NONE }, Budget { force: 2, late: 1, crash: 1, ..NONE });
    check("an Attachment removed by force under its claim", config);
}

/// The same for writers on many nodes, whose Attachments have names of their own.
#[test]
fn an_attachment_is_removed_by_force_under_a_writer() {
    let mut config = Config::new(MultiNodeSingleWriter, [0, 1]);
    (config.attach, config.stage, config.removed) = (false, false, Some(Removed::Attachment));
    (config.kept, config.sick) = (&[0, 1], Some(0));
    config.budget = bounds(Budget { force: 1, ..NONE }, Budget { force: 2, late: 1, crash: 1, ..NONE });
    check("an Attachment removed by force under a writer", config);
}

/// The same for claims on one node.
#[test]
fn an_attachment_is_removed_by_force_under_two_claims() {
    let mut config = Config::new(SingleNodeWriter, [0, 0]);
    (config.attach, config.removed) = (false, Some(Removed::Attachment));
    config.kept = &[0, 1];
    config.budget = bounds(Budget { force: 1, ..NONE }, Budget { force: 2, late: 1, crash: 1, ..NONE });
    check("an Attachment removed by force under two claims", config);
}

/// Two Volumes name one handle: the second takes it over when the first one is gone, however it went. B14, N16.
#[test]
fn a_second_volume_takes_the_handle_over() {
    let mut config = Config::new(SingleNodeWriter, [0, 1]);
    (config.stage, config.volumes) = (false, Volumes::Beside);
    config.budget = bounds(Budget { force: 1, ..NONE }, Budget { force: 1, late: 1, crash: 1, ..NONE });
    check("a second volume takes over", config);
}

/// An instance that was given up comes back under its old name, with an old cache: it reads the VolumeHandle before
/// any call and finds its successor there. B3.
#[test]
fn an_instance_comes_back_under_its_old_name() {
    let mut config = Config::new(SingleNodeWriter, [0, 0]);
    config.stage = false;
    config.lagging = &[(C1, Kind::Attachments)];
    config.budget = bounds(
        Budget { kill: 1, revive: 1, lag: 1, ..NONE },
        Budget { kill: 2, revive: 1, lag: 2, crash: 1, late: 1, ..NONE },
    );
    check("an instance comes back", config);
}

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
    let mut config = Config::new(SingleNodeWriter, [0, 1]);
    config.habits.keeps_reads = true;
    config.lagging = OLD_AGENTS;
    config.budget = Budget { lag: 1, ..NONE };
    check("live reads that outlive a write", config);
}
