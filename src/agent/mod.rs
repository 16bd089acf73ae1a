//! The agent: the hands of the leader on one node.
//!
//! It finds the CSI drivers of its node, makes the calls that objects assign to it, and writes every step into their
//! status.
//!
//! | | |
//! |---|---|
//! | `registry`, `folders`, `instance`, `fingerprint`, `processes`, `upkeep` | drivers: sockets, health, PluginInstances |
//! | `controller_calls`, `volume_calls`, `proof` | ControllerPublish, CreateVolume and their inverses |
//! | `audit` | what the driver lists as attached, compared with the Attachments |
//! | `node` | stage, publish and their inverses |
//! | `records`, `mounts`, `mount_table`, `mount_flags`, `mount_namespace`, `directories`, `paths`, `targets` | what is on this node |
//! | `records`, `record_files`, `state_disk` | what this node knows of its mounts, and the disk that keeps it |
//! | `imprint`, `mount_table`, `users` | who still uses what was unmounted |
//! | `wakes`, `retry`, `budgets`, `context` | what starts a pass, when a failed one is repeated, calls at a time, what all share |

mod args;
mod arguments;
mod audit;
mod budgets;
mod context;
mod controller_calls;
mod cover;
mod directories;
mod doubts;
mod failure;
mod fingerprint;
mod folders;
mod forgotten;
mod front;
mod host;
mod imprint;
mod instance;
mod leftovers;
mod mount_flags;
mod mount_namespace;
mod mount_table;
mod mounts;
mod node;
mod outcome;
mod paths;
mod presence;
mod processes;
mod proof;
mod quantity;
mod recent;
mod record_files;
mod records;
mod registry;
mod retry;
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
pub use mounts::is_writable_device;
pub use paths::HostPath;
pub use role::{Error, run};
