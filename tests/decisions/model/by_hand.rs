//! What is removed by hand, finalizer and all, and what is made again under a name.

use moor::api::AccessMode::{MultiNodeSingleWriter, SingleNodeWriter};

use super::config::{Budget, Config, Removed, Volumes};
use super::report::check;
use super::state::Kind;
use super::{L1, NONE, OLD_AGENTS, OLD_CACHES, bounds};

/// Claims are removed by hand while mounted: the node undoes them by its record. B17, N14.
#[test]
fn claims_removed_by_force() {
    let mut config = Config::new(SingleNodeWriter, [0, 0]);
    config.lagging = OLD_CACHES;
    config.budget =
        bounds(Budget { force: 1, crash: 1, ..NONE }, Budget { force: 2, crash: 1, late: 1, lag: 1, ..NONE });
    check("claims removed by force", config);
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
