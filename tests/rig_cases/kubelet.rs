//! Pods' volumes, as kubelet asks for them: what it is served, what it is answered, and what is left.

mod away;
mod crashes;
mod ends;
mod forged;
mod kills;
mod larger;
mod left;
mod plain;
mod tokens;
mod troubles;
mod waits;
mod wishes;

use crate::cases;
use crate::rig::Case;

/// The node of the Pods. Another one attaches.
const NODE: &str = "node-2";

/// The cases of this module.
pub const CASES: &[Case] = cases![
    plain::a_pod_gets_its_volume_and_leaves_nothing,
    plain::two_pods_on_one_node_share_what_is_staged,
    plain::a_kubelet_that_starts_anew_costs_nothing,
    plain::the_link_outlives_the_agent,
    plain::kubelet_is_asked_anew_when_the_driver_says_something_else_of_the_node,
    plain::kubelet_is_told_of_the_process_that_the_plugin_names,
    plain::a_refused_registration_is_told,
    plain::a_driver_that_begins_late_is_registered,
    plain::wrong_requests_make_no_claim,
    plain::how_full_a_volume_is,
    plain::a_driver_is_asked_how_full_a_volume_is_once_at_a_time,
    waits::staging_ends_with_the_last_pod,
    waits::a_claim_that_is_deleted_ends_the_call,
    waits::a_volume_that_is_being_deleted_ends_the_call,
    waits::a_call_ends_with_its_pod,
    waits::a_pod_is_told_who_has_its_volume,
    waits::what_the_driver_says_reaches_the_pod,
    waits::giving_up_ends_the_call_that_waits,
    waits::a_stage_beyond_the_deadline_is_repeated_as_it_was,
    waits::no_last_word_while_there_is_a_claim,
    wishes::group_and_selinux_context_reach_both_calls,
    wishes::a_pod_that_only_reads_cannot_write,
    wishes::a_raw_device_for_two_pods,
    wishes::a_raw_device_that_a_pod_only_reads,
    larger::whoever_dies_in_the_call_it_is_made_again,
    larger::a_volume_grows_for_the_pods_that_have_it,
    larger::nothing_is_enlarged_beside_another_call,
    larger::what_the_driver_says_of_a_larger_volume_reaches_kubelet,
    larger::a_driver_that_cannot_is_not_asked,
    tokens::new_tokens_reach_the_driver_and_nothing_else,
    ends::what_pods_have_is_served_until_they_end,
    ends::what_pods_have_of_a_plugin_that_is_gone_is_served_until_they_end,
    ends::nothing_is_left_at_kubelets_when_moor_is_uninstalled,
    ends::a_csi_driver_object_that_is_deleted_is_made_again,
    away::a_pod_leaves_while_the_api_server_is_away,
    away::many_pods_leave_at_once,
    troubles::giving_up_waits_for_the_claim_that_is_being_made,
    troubles::calls_that_no_agent_answers_are_made_again,
    troubles::an_agent_is_replaced_while_many_pods_start,
    troubles::after_a_reboot_a_volume_is_published_when_kubelet_asks,
    troubles::a_lost_node_that_is_back_gives_up_what_its_pods_had,
    troubles::a_lost_node_that_is_back_gives_up_what_a_pod_goes_on_using,
    troubles::a_secret_that_went_with_the_agent_is_named,
    troubles::a_secret_that_went_with_the_agent_is_read_where_it_may_be,
    troubles::a_secret_that_is_put_right_is_used,
    troubles::a_volume_whose_driver_hangs_holds_up_no_other,
    troubles::a_target_in_use_is_not_given_up,
    left::a_mount_in_no_record_is_unmounted_by_its_driver,
    left::what_kubelet_has_forgotten_is_swept,
    left::what_the_agent_has_forgotten_is_swept,
    forged::an_agent_makes_claims_of_pods_on_its_own_node_alone,
    crashes::every_crash_point_of_a_pod,
    kills::kubelet_dies_at_every_step,
    kills::the_driver_dies_at_every_step,
    kills::the_api_server_goes_away_at_every_step,
];
