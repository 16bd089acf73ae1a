//! An Attachment that nobody uses any more stays attached for a while (ADR 27). When that ends is left open: at any moment,
//! and for an old leader long before.
//!
//! Where nobody waits an Attachment ends eventually, and nobody waits for it to end: a calm run ends the time only when
//! nothing else is left to do, and by then every claim that can be served is, and no Volume is being deleted.

use moor::api::AccessMode::{
    MultiNodeMultiWriter, MultiNodeSingleWriter, SingleNodeSingleWriter, SingleNodeWriter,
};

use super::config::{Budget, Config, Volumes};
use super::report::check;
use super::state::Kind;
use super::{L1, N2, NONE, OLD_AGENTS, OLD_CACHES, OLD_LEADER, bounds};

fn lingering(config: Config) -> Config {
    Config { lingers: true, ..config }
}

/// One after another on one node, through crashes, refused calls and calls that outlive their callers: the second joins, or
/// comes too late. B3, B4, B18, B19.
#[test]
fn a_claim_comes_back_to_its_node() {
    let mut config = lingering(Config::new(SingleNodeWriter, [0, 0]));
    config.lagging = OLD_CACHES;
    config.budget = bounds(
        Budget { crash: 1, late: 1, fail: 1, ..NONE },
        Budget { crash: 1, late: 1, fail: 1, lag: 1, ..NONE },
    );
    check("a claim comes back to its node", config);
}

/// The agents' watches are behind, also behind their own writes: one unstages while a claim that it has not seen has joined.
/// B25, B2.
#[test]
fn agents_whose_watches_are_behind_while_it_lingers() {
    let mut config = lingering(Config::new(SingleNodeWriter, [0, 0]));
    config.habits.deaf = true;
    config.lagging = OLD_AGENTS;
    config.budget = bounds(Budget { lag: 1, ..NONE }, Budget { lag: 2, late: 1, crash: 1, ..NONE });
    check("agents behind their own writes, lingering", config);
}

/// A claim on another node takes the volume over, through crashes and late calls. B1, B16, N3.
#[test]
fn another_node_takes_the_volume_over() {
    let mut config = lingering(Config::new(SingleNodeWriter, [0, 1]));
    config.lagging = OLD_CACHES;
    config.budget =
        bounds(Budget { crash: 1, late: 1, ..NONE }, Budget { crash: 1, late: 1, lag: 1, ..NONE });
    check("another node takes the volume over", config);
}

/// An old leader closes what the new one leaves open, or grants beside it. B1, N1, N2.
#[test]
fn an_old_leader_while_it_lingers() {
    let mut config = lingering(Config::new(SingleNodeWriter, [0, 0, 1]));
    config.lagging = OLD_LEADER;
    config.budget = bounds(Budget { lag: 1, ..NONE }, Budget { lag: 2, ..NONE });
    check("an old leader, lingering", config);
}

/// Claims that exclude each other on one node: who waits for the one before joins what that one leaves attached. N2, B23.
#[test]
fn claims_in_an_exclusive_mode_take_turns() {
    let mut config = lingering(Config::new(SingleNodeSingleWriter, [0, 0]));
    config.lagging = OLD_CACHES;
    config.budget = bounds(Budget { lag: 1, crash: 1, ..NONE }, Budget { lag: 2, crash: 1, ..NONE });
    check("an exclusive mode, lingering", config);
}

/// Two modes: the switch does not wait for the time to end. B1, N6.
#[test]
fn a_mode_switch_ends_it() {
    let mut config = lingering(Config::new(SingleNodeWriter, [0, 1]));
    config.claims[1].mode = MultiNodeMultiWriter;
    config.lagging = &[(L1, Kind::Attachments), (L1, Kind::Handle)];
    config.budget = bounds(Budget { lag: 1, ..NONE }, Budget { lag: 2, late: 1, ..NONE });
    check("a mode switch, lingering", config);
}

/// One writer in the cluster: the next one on another node does not wait for the time to end, and one that was removed by
/// hand is undone. N14.
#[test]
fn the_next_writer_ends_it() {
    let mut config = lingering(Config::new(MultiNodeSingleWriter, [1, 0]));
    config.stage = false;
    config.lagging = &[(L1, Kind::Claims)];
    config.budget =
        bounds(Budget { force: 1, ..NONE }, Budget { force: 1, lag: 1, late: 1, crash: 1, ..NONE });
    check("one writer on many nodes, lingering", config);
}

/// A writer and a reader on one node, whose Attachment stays between them.
#[test]
fn a_reader_and_a_writer_take_turns() {
    let mut config = lingering(Config::new(MultiNodeSingleWriter, [0, 0]));
    (config.stage, config.claims[1].read_only) = (false, true);
    config.lagging = &[(L1, Kind::Claims)];
    config.budget = bounds(NONE, Budget { lag: 1, crash: 1, ..NONE });
    check("a reader and a writer, lingering", config);
}

/// Claims are removed by hand while mounted, and nobody says that they left. B17, N14.
#[test]
fn claims_removed_by_force_and_it_lingers() {
    let mut config = lingering(Config::new(SingleNodeWriter, [0, 0]));
    config.lagging = OLD_AGENTS;
    config.budget =
        bounds(Budget { force: 1, crash: 1, ..NONE }, Budget { force: 2, crash: 1, late: 1, lag: 1, ..NONE });
    check("claims removed by force, lingering", config);
}

/// The Volume is deleted while it lingers, or removed by hand, and made again under its name. B1, B14.
#[test]
fn a_volume_that_is_deleted_does_not_wait() {
    let mut config = lingering(Config::new(SingleNodeWriter, [0, 1]));
    (config.stage, config.volumes) = (false, Volumes::Again);
    config.budget = bounds(Budget { force: 1, ..NONE }, Budget { force: 2, crash: 1, ..NONE });
    check("a volume that is deleted, lingering", config);
}

/// The node goes away while it lingers, comes back as it was or as another, or its Node is deleted or tainted. B6, B7, N13.
#[test]
fn a_node_goes_away_while_it_lingers() {
    let mut config = lingering(Config::new(SingleNodeWriter, [1, 0]));
    (config.stage, config.leaves, config.kept) = (false, Some(1), &[1]);
    config.lagging = &[(N2, Kind::Claims), (N2, Kind::Attachments)];
    config.budget = bounds(Budget { away: 1, word: 1, ..NONE }, Budget { away: 1, word: 1, lag: 1, ..NONE });
    check("a node goes away, lingering", config);
}

/// The node boots again while it lingers, or under the claim that came back. B9, B10, B28.
#[test]
fn a_node_boots_again_while_it_lingers() {
    let mut config = lingering(Config::new(SingleNodeWriter, [0, 0]));
    config.lagging = &[(L1, Kind::Claims)];
    config.budget =
        bounds(Budget { reboot: 1, ..NONE }, Budget { reboot: 1, lag: 1, late: 1, crash: 1, ..NONE });
    check("a node boots again, lingering", config);
}

/// The plugin of the handle's instance dies while it lingers; another takes over the detach. B3, N5.
#[test]
fn another_instance_detaches_what_lingered() {
    let mut config = lingering(Config::new(SingleNodeWriter, [0, 1]));
    config.stage = false;
    config.lagging = OLD_LEADER;
    config.budget = bounds(Budget { kill: 1, ..NONE }, Budget { kill: 1, crash: 1, late: 1, lag: 1, ..NONE });
    check("another instance takes over, lingering", config);
}
