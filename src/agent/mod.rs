//! The agent: the hands of the leader on one node.
//!
//! It finds the CSI drivers of its node, makes the calls that objects assign to it, and writes every step into their
//! status.
//!
//! | | |
//! |---|---|
//! | `role`, `args`, `health` | the process: start, watches, workers, Lease, end |
//! | `context`, `caches`, `queues` | the services, caches and queues that all workers share |
//! | `events` | which change starts which worker |
//! | `failed_at` | what failed at which path |
//! | `calls` | what every CSI call goes through, whichever worker makes it |
//! | `attach`, `volume`, `snapshot`, `node` | the workers: controller calls of Attachments, calls of Volumes and of Snapshots, calls on this node |
//! | `capacity` | how much room drivers have |
//! | `condition` | how volumes are |
//! | `orphans` | storage that no object stands for, and objects whose storage is gone |
//! | `drivers` | the processes of drivers: sockets, health, PluginInstances |
//! | `host` | this machine: paths, mounts, and who uses them |
//! | `records` | what this node knows of its mounts, and the disk that keeps it |
//! | `restore` | what a restored etcd needs |
//! | `trace` | the socket at which the last calls are given out |
//! | `leftovers`, `lost_mounts` | what the agent's Lease says of mounts that were taken from this node while it was silent |
// A variant that is new has to be decided about wherever one is.
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

mod args;
mod attach;
mod caches;
mod calls;
mod capacity;
mod condition;
mod context;
mod drivers;
mod events;
mod failed_at;
mod health;
mod host;
mod kubelet;
mod leftovers;
mod lost_mounts;
mod node;
mod orphans;
mod queues;
mod records;
mod restore;
mod role;
mod snapshot;
mod trace;
mod volume;

pub use args::AgentArgs;
pub use host::mounts::is_writable_device;
pub use host::paths::HostPath;
pub use role::{Error, run};
pub use trace::{TraceError, read as read_trace};
