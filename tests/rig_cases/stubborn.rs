//! Undo against resistance: mounts in use, drivers that lie, Plugins and Secrets that are gone before they are needed.

mod busy;
mod conflicts;
mod lies;
mod plugins;
mod secrets;
mod shared;
mod split;

use crate::cases;
use crate::rig::{Case, Entry, Rig, volume, volume_claim};

const NODE: &str = "node-2";

impl Rig {
    /// A volume that is mounted on [`NODE`]. Claim and Volume have one name. Returns where.
    async fn in_use(&self, name: &str) -> String {
        self.make_volume(&volume(name)).await;
        self.make_claim(&volume_claim(name, name, NODE)).await;
        self.until_ready(name).await
    }

    /// The calls about a volume that began after `since`, in their order.
    fn calls_since(&self, since: usize, key: &str) -> Vec<Entry> {
        self.journal.since(since, |entry| entry.call().is_some_and(|call| call.key == key))
    }

    /// Whether anybody has written this state into the status of an object of a kind.
    fn was_written(&self, kind: &str, name: &str, state: &str) -> bool {
        let wrote = |e: &Entry| {
            e.write().is_some_and(|w| w.kind == kind && w.name == name && w.state() == Some(state))
        };
        !self.journal.since(0, |entry| entry.is_taken() && wrote(entry)).is_empty()
    }

    async fn remove_volume(&self, name: &str) {
        self.delete_volume(name).await;
        self.until_volume_gone(name).await;
        self.assert_nothing_left().await;
    }
}

/// Without immediate repetitions.
fn course(calls: &[Entry]) -> Vec<&'static str> {
    let mut names: Vec<_> = calls.iter().filter_map(|e| e.call().map(|c| c.rpc.name())).collect();
    names.dedup();
    names
}

/// The calls that take a volume from a node, in CSI's order.
const UNDO: [&str; 3] = ["NodeUnpublishVolume", "NodeUnstageVolume", "ControllerUnpublishVolume"];

/// The cases of this module.
pub const CASES: &[Case] = cases![
    busy::a_busy_mount_is_taken_by_force_on_order,
    busy::force_does_not_wait_for_a_driver_and_the_hand_over_does,
    lies::published_without_a_mount,
    lies::read_only_and_writable,
    lies::unpublished_and_still_mounted,
    lies::unstaged_and_still_mounted,
    plugins::a_plugin_that_was_made_anew_proves_nothing,
    plugins::a_plugin_that_was_made_anew_has_deleted_nothing,
    plugins::the_younger_of_two_plugins_says_so_and_has_the_driver_next,
    plugins::everything_ends_without_its_plugin,
    plugins::a_plugin_in_use_waits_and_goes_when_it_is_not,
    plugins::two_processes_of_a_driver_share_a_node,
    shared::one_of_two_claims_leaves_after_a_crash_of_the_agent,
    shared::a_claim_that_comes_while_the_last_one_leaves_is_not_staged_again,
    shared::one_writer_follows_another_and_the_volume_goes,
    secrets::undo_goes_on_without_its_secrets,
    split::a_controller_that_comes_later_attaches_for_the_next_claim,
    split::a_volume_waits_for_a_controller_that_the_driver_says_it_has,
    split::storage_is_deleted_by_a_controller_that_comes_later,
    split::calls_move_when_a_controller_has_left_its_node,
    conflicts::a_failed_attach_is_written_onto_a_newer_attachment,
    conflicts::a_failed_create_is_written_onto_a_newer_volume,
];
