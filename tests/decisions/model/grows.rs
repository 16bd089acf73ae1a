//! The volume has grown, and NodeExpandVolume follows on the nodes of its claims (ADR 48): beside all that leaves, comes and
//! fails. It is never made where the volume is not mounted, and in the end each node on which it is used has followed.

use moor::api::AccessMode::{MultiNodeMultiWriter, MultiNodeSingleWriter, SingleNodeWriter};

use super::config::{Budget, Config};
use super::report::check;
use super::state::Kind;
use super::{L1, N2, NONE, OLD_AGENTS, OLD_CACHES, bounds};

fn growing(config: Config) -> Config {
    Config { grows: true, ..config }
}

/// Two claims of one node, through crashes, refused calls and calls that outlive their callers.
#[test]
fn two_claims_on_one_node_follow_once() {
    let mut config = growing(Config::new(SingleNodeWriter, [0, 0]));
    config.lagging = OLD_CACHES;
    config.budget = bounds(
        Budget { crash: 1, late: 1, fail: 1, ..NONE },
        Budget { crash: 1, late: 1, fail: 1, lag: 1, ..NONE },
    );
    check("two claims follow on one node", config);
}

/// The agents' watches are behind, also behind their own writes: a claim leaves that the agent still sees.
#[test]
fn agents_whose_watches_are_behind_while_it_grows() {
    let mut config = growing(Config::new(SingleNodeWriter, [0, 0]));
    config.habits.deaf = true;
    config.lagging = OLD_AGENTS;
    config.budget = bounds(Budget { lag: 1, ..NONE }, Budget { lag: 2, late: 1, crash: 1, ..NONE });
    check("agents behind their own writes, growing", config);
}

/// It moves to another node while the first one follows, without staging.
#[test]
fn a_claim_on_another_node_takes_it_over_while_it_grows() {
    let mut config = growing(Config::new(MultiNodeSingleWriter, [0, 1]));
    (config.stage, config.claims[1].read_only) = (false, true);
    config.lagging = &[(L1, Kind::Claims)];
    config.budget = bounds(Budget { late: 1, fail: 1, ..NONE }, Budget { late: 1, crash: 1, lag: 1, ..NONE });
    check("a writer and a reader, growing", config);
}

/// The node goes away while it follows, and comes back as it was or as another: what was lost is not touched. B6, N13.
#[test]
fn a_node_goes_away_while_it_grows() {
    let mut config = growing(Config::new(MultiNodeMultiWriter, [1, 0]));
    (config.stage, config.leaves, config.kept) = (false, Some(1), &[1]);
    config.lagging = &[(N2, Kind::Claims), (N2, Kind::Attachments)];
    config.budget = bounds(Budget { away: 1, word: 1, ..NONE }, Budget { away: 1, word: 1, lag: 1, ..NONE });
    check("a node goes away, growing", config);
}
