//! moor: a CSI orchestrator for Kubernetes.
//!
//! Two roles share this crate: the [`controller`] decides and never speaks CSI, the [`agent`] on every node
//! acts. They meet only in the API server. `ARCHITECTURE.md` is the map.
//!
//! ```text
//! api  <-  claim, attachment, volume, snapshot, plugin, provision  <-  leader  <-  controller  ->  heartbeat, k8s
//!                                                                  <-  agent  ->  csi, heartbeat, k8s
//! ```
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod admin;
pub mod agent;
pub mod api;
pub mod attachment;
pub mod claim;
pub mod cli;
pub mod controller;
pub mod csi;
mod disk;
pub mod heartbeat;
pub mod k8s;
pub mod kubectl;
pub mod leader;
pub mod loop_driver;
pub mod metrics;
mod mount_table;
pub mod plugin;
mod process_metrics;
pub mod provision;
pub mod shutdown;
pub mod snapshot;
mod socket;
pub mod telemetry;
pub mod trace;
pub mod volume;

#[cfg(test)]
extern crate self as moor;
#[cfg(test)]
#[path = "../tests/fixtures.rs"]
mod fixtures;
