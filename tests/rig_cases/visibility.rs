//! What a person sees of a claim in every state, and that one driver's hung calls hold up nobody else: real processes,

//! a real API server, a driver that fails on demand.

mod counts;
mod health;
mod room;
mod slowness;
mod sockets;
mod stories;

use crate::cases;
use crate::rig::Case;

/// The cases of this module.
pub const CASES: &[Case] = cases![
    stories::a_failing_attach_is_on_the_claim,
    stories::a_failing_stage_is_on_the_claim,
    stories::a_hung_unpublish_is_on_the_claim,
    stories::a_failing_detach_is_on_the_deleted_claim,
    stories::a_hung_detach_is_on_the_deleted_claim,
    stories::a_waiting_claim_names_its_holder,
    stories::a_detach_that_goes_well_costs_four_writes,
    counts::what_is_counted_is_what_is_there,
    health::each_turn_of_a_drivers_health_is_one_event,
    health::when_all_is_started_again_no_volume_is_written,
    health::a_volume_whose_plugin_has_nobody_healthy_says_so,
    room::a_full_node_takes_the_next_when_one_leaves,
    room::claims_of_one_moment_do_not_overfill_a_node,
    room::what_an_earlier_leader_has_granted_is_counted,
    room::a_node_that_is_back_in_service_takes_who_waited,
    room::who_names_no_node_gets_none_that_is_cordoned,
    room::who_selects_nodes_by_labels_gets_one_that_has_them,
    slowness::hung_calls_hold_up_no_undo_and_no_other_service,
    sockets::what_is_there_instead_of_a_driver_is_told,
];
