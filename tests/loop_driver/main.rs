//! The loop driver on real loop devices and mounts, over its socket. Needs root and leaves nothing behind.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bench;
mod condition;
mod fencing;
mod groups;
mod larger;
mod modify;
mod order;
mod recovery;
mod snapshots;
mod use_of_volumes;
mod volume;
