//! The loop driver on real loop devices and mounts, over its socket. Needs root and leaves nothing behind.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "loop_driver/bench.rs"]
mod bench;
#[path = "loop_driver/fencing.rs"]
mod fencing;
#[path = "loop_driver/order.rs"]
mod order;
#[path = "loop_driver/recovery.rs"]
mod recovery;
#[path = "loop_driver/use_of_volumes.rs"]
mod use_of_volumes;
#[path = "loop_driver/volume.rs"]
mod volume;
