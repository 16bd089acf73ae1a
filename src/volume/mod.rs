//! Decisions about Volumes and their VolumeHandles: creating, registering, deleting, switching modes, and
//! which controller instance makes the calls.
//!
//! Pure: data in, data out.
// A variant that is new has to be decided about wherever one is.
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

pub mod active;
pub mod calls;
mod deletion;
pub mod edit;
pub mod growth;
pub mod health;
pub mod import;
pub mod instance;
pub mod modification;
pub mod on_nodes;
mod orders;
pub mod persistent_volume;
pub mod plan;
pub mod reason;
pub mod schedulable;
mod secrets;
pub mod seen;
mod size;
pub mod source;
mod waits;

use crate::api::Volume;
use crate::api::names::{DriverOn, instance_name};
pub use active::{Spread, balancing, elect};
pub use instance::{CallerNow, Grows, InstanceSeen, Places, PluginSeen, SaidBy, modifies};
pub use plan::plan;
pub use reason::{Left, VolumeWaiting};
pub use seen::{Seen, VolumeStep};
pub use source::{SourceLack, SourceSeen};

/// The volume as the driver knows it, once that is known: what CreateVolume answered, or what was registered.
#[must_use]
pub fn handle_of(volume: &Volume) -> Option<&str> {
    let known = volume.status.as_ref().and_then(|status| status.volume_handle.as_deref());
    known.or(volume.spec.volume_handle.as_deref())
}

/// The driver of the instance that a Volume's own calls are assigned to, if it is among those that are `known`.
///
/// The Plugin may be gone, or made anew for another driver, which knows other volumes by the same handles. A PluginInstance
/// is believed only under the name that is made of its driver.
pub fn driver_of_calls<'a>(volume: &Volume, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known.into_iter().find(|driver| is_of_driver(volume, driver))
}

/// Whether the instance that a Volume's own calls are assigned to is one of this driver: its name is made of the driver's.
#[must_use]
pub fn is_of_driver(volume: &Volume, driver: &str) -> bool {
    volume
        .caller()
        .is_none_or(|caller| instance_name(DriverOn { driver, node: &caller.agent }) == caller.instance)
}
