//! The pure decisions: their tables and properties, and the model that runs all of them against each other.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod admission;
mod attachment_plan;
mod audit;
#[path = "../fixtures.rs"]
mod fixtures;
mod hashing;
mod leader_plan;
mod model;
mod node_plan;
mod observed;
mod placement;
mod properties;
mod snapshot_model;
mod volume_model;
mod volume_plan;
