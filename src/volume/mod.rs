//! Decisions about Volumes and their VolumeHandles: creating, registering, deleting, switching modes, and
//! which controller instance makes the calls.
//!
//! Pure: data in, data out.

pub mod calls;
pub mod instance;
pub mod plan;
pub mod reason;

pub use instance::InstanceSeen;
pub use plan::{Seen, VolumeStep, heir_without_volume, plan};
pub use reason::VolumeWaiting;
