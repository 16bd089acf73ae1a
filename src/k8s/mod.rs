//! What both roles need of the Kubernetes API: caches, work queues, writes, leases, events.
//!
//! Reads that decide something are live ([`read`]); reads that only start work come from a [`cache`];
//! every write goes through [`write`], those of what is cached through [`update`] (rules R1, R6).

pub(crate) mod backoff;
pub(crate) mod cache;
pub mod client;
mod demand;
pub(crate) mod error;
pub(crate) mod events;
pub(crate) mod exec;
mod index;
pub mod lease;
mod list;
pub(crate) mod node;
pub(crate) mod pod;
pub(crate) mod queue;
pub(crate) mod read;
pub(crate) mod secrets;
mod store;
mod turns;
pub(crate) mod unreadable;
pub(crate) mod update;
pub(crate) mod watch;
mod watches;
pub(crate) mod write;

pub(crate) use cache::Cache;
pub(crate) use demand::Demand;
pub(crate) use error::ApiError;
pub use events::EventReason;
pub(crate) use index::Index;
pub(crate) use queue::{Next, Queue};
pub(crate) use store::Named;
pub(crate) use update::Written;
pub(crate) use watches::Watches;
pub(crate) use write::{Created, Writer};

#[cfg(test)]
pub(crate) mod scripted_tests;
