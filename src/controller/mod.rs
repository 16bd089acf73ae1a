//! The controller role: it decides and never speaks CSI.
//!
//! One queue of Volumes and Plugins. A pass over a Volume settles everything that hangs on it: its
//! VolumeHandle, its Attachments and its claims, oldest first. Only the holder of the Lease decides; two
//! that both believe to be it meet at names and resourceVersions.
// A variant that is new has to be decided about wherever one is.
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

mod act;
mod active;
mod agent_leases;
mod allow;
mod answered;
mod args;
mod attachments;
mod bound;
mod caches;
mod capabilities;
mod capacities;
mod caution;
mod claims;
mod concern;
mod contents;
mod context;
mod controller_instances;
mod copies;
mod corrections;
mod counts;
mod csi_drivers;
mod deregistration;
mod drift;
mod edits;
mod events;
mod expansions;
mod exports;
mod forgotten;
mod gone;
mod handles;
mod health;
mod imports;
mod instances;
mod key;
mod known;
mod linger;
mod looks;
mod losses;
mod machines;
mod made_from;
mod missing;
mod modify;
mod nodes;
#[cfg(test)]
mod objects_tests;
mod observe;
mod orphans;
mod pass;
mod persistent_volumes;
mod places;
mod plugin_deletion;
mod plugins;
mod pod_looks;
mod pods;
mod provision;
mod provision_events;
mod provisioning;
mod reclaim;
mod record;
mod refusals;
mod relief;
mod resize;
mod restarts;
mod restores;
mod role;
mod room;
mod schedulable;
mod served;
mod snapshot_events;
mod snapshots;
mod standby;
mod steps;
mod unreadable;
mod unsettled;
mod unused;
mod volumes;
mod workload_caches;
mod workloads;

pub use args::ControllerArgs;
pub use role::{Error, run};
