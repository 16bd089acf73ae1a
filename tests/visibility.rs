//! What a person sees of a claim in every state, and that one driver's hung calls hold up nobody else: real processes,
//! a real API server, a driver that fails on demand.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod rig;

#[path = "visibility/slowness.rs"]
mod slowness;
#[path = "visibility/stories.rs"]
mod stories;

use std::process::ExitCode;

fn main() -> ExitCode {
    rig::main(cases![
        stories::a_failing_attach_is_on_the_claim,
        stories::a_failing_stage_is_on_the_claim,
        stories::a_hung_unpublish_is_on_the_claim,
        stories::a_failing_detach_is_on_the_deleted_claim,
        stories::a_hung_detach_is_on_the_deleted_claim,
        stories::a_waiting_claim_names_its_holder,
        stories::a_detach_that_goes_well_costs_five_writes,
        slowness::hung_calls_hold_up_no_undo_and_no_other_service,
    ])
}
