//! A node in wrong hands: its agent's token is good for its own node, and what it says is believed as far as it can be
//! checked.

mod instances;
mod leaving;
mod node_ids;
mod storage;

use crate::cases;
use crate::rig::Case;

/// The cases of this module.
pub const CASES: &[Case] = cases![
    instances::a_node_cannot_take_the_name_of_another,
    instances::the_longest_names_of_nodes_are_told_apart,
    instances::an_instance_of_another_driver_counts_nowhere,
    instances::controller_calls_are_made_where_the_plugin_says,
    instances::labels_say_where_controller_calls_are_made,
    node_ids::nodes_that_a_driver_cannot_tell_apart_get_no_claims,
    node_ids::nothing_is_detached_under_a_mount_of_the_same_node_id,
    leaving::a_report_holds_up_what_it_names_until_its_node_is_off,
    leaving::the_lease_of_a_node_that_is_gone_goes_with_the_last_object_that_names_it,
    storage::what_a_persistent_volume_names_is_neither_taken_nor_deleted,
    storage::what_a_persistent_volume_names_by_now_is_left,
    storage::what_is_of_no_use_to_moor_is_left_to_a_persistent_volume,
];
