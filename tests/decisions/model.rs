//! The claim protocol, checked by machine: the real decisions in a small world where everything that can
//! interleave does. Two or three claims on one volume, two nodes, two controller instances, a leader and old ones.
//!
//! Every test is one configuration, explored to its end. Its bounds are its budget; `MOOR_MODEL=deep` takes
//! larger ones (some minutes when optimised). Leaders keep nothing between writes, so a leader's crash
//! between any two writes is in every run. B.. and N.. are entries of docs/known-traps.md.
//!
//! What bounds a run: how often each kind of trouble may happen ([`config::Budget`]), which watches may fall
//! behind (each once, for as long as it likes), which claims their users never delete (`kept`), how many steps leaders
//! with old caches make (`old_steps`, else any number), epochs. Each configuration combines a few dimensions; all of
//! them together would not end. A live look and the write that it allows are two steps for the writer's lock, for
//! the end of a closing, and where a habit says so; elsewhere one.
//!
//! A node goes away as its agent's Lease expires: it starts no call and writes nothing until it is back, and calls that
//! were running go on. What a lost Attachment has mounted reaches the storage as long as it is attached, or, without
//! ControllerPublish, as long as the machine is on. So only a machine that is off is deleted or tainted there, or,
//! by mistake (`Budget::wrong`), one that is heard. The watches of its agent may wake later than its Lease.
//!
//! A reply comes once, late, or never: gRPC and HTTP match it to its call, and a write that was sent twice is refused by
//! its resourceVersion. What the model leaves out: CreateVolume and DeleteVolume and a watch of Volumes that is behind
//! (those are in `volume_model.rs`; here Volumes are registered), a lost node that has the only instance.

#![allow(
    clippy::print_stdout,
    clippy::trivially_copy_pass_by_ref,
    reason = "a test; objects are passed like objects, small as they are here"
)]

pub mod actions;
pub mod api;
pub mod arbitrary;
mod away;
mod by_hand;
pub mod calm;
pub mod config;
pub mod controller;
pub mod driver;
mod grows;
pub mod harm;
pub mod leader;
mod limits;
mod lingers;
mod modes;
pub mod node;
pub mod pods;
pub mod relief;
pub mod report;
pub mod scene;
pub mod seen;
pub mod state;
pub mod steps;
pub mod system;
pub mod uids;
pub mod volumes;

use config::{Budget, Config};
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
