//! Every case that runs on the rig, in one binary: real moor processes on a real API server, with a fake driver.
//!
//! The binary has a `main` of its own: it starts itself again in namespaces, where it runs moor's processes. A case is
//! named `module::case`; an argument picks the cases whose name contains it, and `module::` those of this module.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "../rig/mod.rs"]
mod rig;

mod active;
mod allow;
mod answers;
mod attachment_calls;
mod attachment_ends;
mod backup;
mod bad_input;
mod behind;
mod bounds;
mod campaign;
mod capacity;
mod consumers;
mod copies;
mod crash_sweep;
mod dead_folder;
mod deregistration;
mod devices_in_use;
mod drift;
mod driver_pods;
mod edited;
mod events;
mod exported;
mod fault_matrix;
mod first_claim;
mod flow_control;
mod forgotten;
mod grown;
mod inline;
mod kubectl;
mod kubelet;
mod leases_apart;
mod leaving;
mod left_behind;
mod linger;
mod modify;
mod node_loss;
mod operations;
mod orphans;
mod pod_claims;
mod provision;
mod read_only;
mod relief;
mod replaced;
mod resize;
mod restored;
mod rogue;
mod rolled;
mod sanity;
mod secrets;
mod snapshots;
mod state_disk;
mod stubborn;
mod targets;
mod visibility;
mod volume_calls;
mod volume_group_snapshots;
mod volume_health;
mod volume_snapshots;
mod weak_api_server;
mod workloads;
mod writes;
mod wrong_answers;

use std::process::ExitCode;

fn main() -> ExitCode {
    rig::main(&[
        active::CASES,
        allow::CASES,
        answers::CASES,
        attachment_calls::CASES,
        attachment_ends::CASES,
        backup::CASES,
        bad_input::CASES,
        bounds::CASES,
        behind::CASES,
        campaign::CASES,
        capacity::CASES,
        consumers::CASES,
        copies::CASES,
        crash_sweep::CASES,
        dead_folder::CASES,
        deregistration::CASES,
        devices_in_use::CASES,
        drift::CASES,
        driver_pods::CASES,
        edited::CASES,
        events::CASES,
        exported::CASES,
        fault_matrix::CASES,
        first_claim::CASES,
        flow_control::CASES,
        forgotten::CASES,
        grown::CASES,
        inline::CASES,
        kubectl::CASES,
        kubectl::doctor::CASES,
        kubectl::trace::CASES,
        kubelet::CASES,
        leaving::CASES,
        left_behind::CASES,
        leases_apart::CASES,
        linger::CASES,
        modify::CASES,
        node_loss::CASES,
        operations::CASES,
        orphans::CASES,
        pod_claims::CASES,
        provision::CASES,
        read_only::CASES,
        relief::CASES,
        replaced::CASES,
        rogue::CASES,
        rolled::CASES,
        sanity::CASES,
        secrets::CASES,
        snapshots::CASES,
        state_disk::CASES,
        stubborn::CASES,
        targets::CASES,
        visibility::CASES,
        volume_calls::CASES,
        volume_group_snapshots::CASES,
        volume_health::CASES,
        volume_snapshots::CASES,
        weak_api_server::CASES,
        workloads::CASES,
        writes::CASES,
        wrong_answers::CASES,
        // Last: what follows the objects here does not know that they went back.
        resize::CASES,
        restored::CASES,
    ])
}
