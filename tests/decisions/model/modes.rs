//! Who may use the volume beside whom: exclusive modes, one writer, many nodes, and the switch between modes.

use moor::api::AccessMode::{
    MultiNodeMultiWriter, MultiNodeSingleWriter, SingleNodeSingleWriter, SingleNodeWriter,
};

use super::config::{Budget, Config, Volumes};
use super::report::check;
use super::state::Kind;
use super::{L1, L2, N1, NONE, OLD_CACHES, OLD_LEADER, bounds};

/// Only one claim at a time may have a target. N2, B23.
#[test]
fn an_exclusive_mode_on_one_node() {
    let mut config = Config::new(SingleNodeSingleWriter, [0, 0]);
    config.lagging = OLD_CACHES;
    config.budget = bounds(Budget { lag: 1, ..NONE }, Budget { lag: 2, crash: 1, ..NONE });
    check("an exclusive mode", config);
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

/// The Volume is deleted while it is closed for another mode, by a leader that does not know the Attachment. B1, N6.
#[test]
fn a_volume_is_deleted_during_a_mode_switch() {
    let mut config = Config::new(SingleNodeWriter, [0, 1]);
    config.claims[1].mode = MultiNodeMultiWriter;
    (config.stage, config.volumes) = (false, Volumes::Again);
    config.lagging = &[(L1, Kind::Attachments)];
    config.budget = bounds(
        Budget { lag: 1, late: 1, old_steps: 2, ..NONE },
        Budget { lag: 1, late: 1, crash: 1, old_steps: 4, ..NONE },
    );
    check("a volume is deleted during a mode switch", config);
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
