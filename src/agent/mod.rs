//! The agent: the hands of the leader on one node.
//!
//! It finds the CSI drivers of its node, makes the calls that objects assign to it, and writes every step into their
//! status.
//!
//! | | |
//! |---|---|
//! | [`registry`], `folders`, `instance`, `fingerprint`, `processes`, `upkeep` | drivers: sockets, health, PluginInstances |
//! | `controller_calls`, `volume_calls`, `proof` | ControllerPublish, CreateVolume and their inverses |
//! | `audit` | what the driver lists as attached, compared with the Attachments |
//! | `node` | stage, publish and their inverses |
//! | [`records`], [`mounts`], `mount_table`, `mount_flags`, `mount_namespace`, [`directories`], [`paths`] | what is on this node |
//! | [`records`], `record_files`, `state_disk` | what this node knows of its mounts, and the disk that keeps it |
//! | [`mounts`], [`directories`], [`paths`] | what is on this node |
//! | [`records`], [`mounts`], [`directories`], [`paths`] | what is on this node |
//! | `imprint`, `mount_table`, `users` | who still uses what was unmounted |
//! | [`mounts`], [`directories`], [`paths`], `targets` | what is on this node |
//! | `wakes`, `retry`, `budgets`, `context` | what starts a pass, when a failed one is repeated, calls at a time, what all share |

pub mod args;
mod arguments;
mod audit;
mod budgets;
mod context;
mod controller_calls;
mod cover;
pub mod directories;
mod doubts;
pub mod failure;
pub mod fingerprint;
mod folders;
mod forgotten;
mod front;
pub mod host;
mod imprint;
mod instance;
mod leftovers;
mod mount_flags;
mod mount_namespace;
mod mount_table;
pub mod mounts;
mod node;
mod outcome;
pub mod paths;
mod presence;
mod processes;
mod proof;
pub mod quantity;
mod recent;
mod record_files;
pub mod records;
pub mod registry;
pub mod retry;
mod role;
mod settling;
mod state_disk;
mod status;
mod targets;
mod upkeep;
mod users;
mod volume_answers;
mod volume_calls;
mod wakes;

pub use args::AgentArgs;
pub use role::{Error, run};
