//! What both roles need of the Kubernetes API: caches, work queues, writes, leases, events.
//!
//! Reads that decide something are live ([`read`]); reads that only start work come from a [`cache`];
//! every write goes through [`write`] (rules R1, R6).

pub mod backoff;
pub mod cache;
pub mod client;
pub mod error;
pub mod events;
pub mod lease;
pub mod node;
pub mod persistent_volume;
pub mod queue;
pub mod read;
pub mod secrets;
mod store;
pub mod unreadable;
pub mod watch;
pub mod write;

pub use cache::Cache;
pub use error::ApiError;
pub use queue::{Next, Queue};
pub use watch::Selector;
pub use write::{Created, Deleted, Target, Writer};

#[cfg(test)]
pub(crate) mod scripted_tests;
