//! The CSI client: everything that moor says to a driver, and all that it understands of the answers.
//!
//! A `Plugin` is one connected plugin process. Its methods are CSI's calls, one each; they check arguments against
//! CSI's size limits, end at their deadline, check the answer, and return either a typed result or a `CallError` whose
//! `Meaning` says what the caller may do next. No retry, no state, no decision lives here.
//!
//! | service | call | method |
//! |---|---|---|
//! | Identity | GetPluginInfo | `Plugin::get_plugin_info` |
//! | | GetPluginCapabilities | `Plugin::get_plugin_capabilities` |
//! | | Probe | `Plugin::probe` |
//! | Controller | ControllerGetCapabilities | `Plugin::controller_get_capabilities` |
//! | | CreateVolume, DeleteVolume | `Plugin::create_volume`, `Plugin::delete_volume` |
//! | | ControllerExpandVolume | `Plugin::controller_expand_volume` |
//! | | ControllerModifyVolume | `Plugin::controller_modify_volume` |
//! | | ControllerPublishVolume | `Plugin::controller_publish_volume` |
//! | | ControllerUnpublishVolume | `Plugin::controller_unpublish_volume` |
//! | | ValidateVolumeCapabilities | `Plugin::validate_volume_capabilities` |
//! | | ListVolumes | `Plugin::list_volumes` |
//! | | ControllerGetVolume | `Plugin::controller_get_volume` |
//! | | CreateSnapshot, DeleteSnapshot | `Plugin::create_snapshot`, `Plugin::delete_snapshot` |
//! | | ListSnapshots | `Plugin::find_snapshot`, `Plugin::list_snapshots` |
//! | | GetCapacity | `Plugin::get_capacity` |
//! | GroupController | GroupControllerGetCapabilities | `Plugin::group_controller_get_capabilities` |
//! | | CreateVolumeGroupSnapshot, DeleteVolumeGroupSnapshot | `Plugin::create_group_snapshot`, `Plugin::delete_group_snapshot` |
//! | | GetVolumeGroupSnapshot | `Plugin::get_group_snapshot` |
//! | Node | NodeGetCapabilities, NodeGetInfo | `Plugin::node_get_capabilities`, `Plugin::node_get_info` |
//! | | NodeStageVolume, NodeUnstageVolume | `Plugin::node_stage_volume`, `Plugin::node_unstage_volume` |
//! | | NodePublishVolume, NodeUnpublishVolume | `Plugin::node_publish_volume`, `Plugin::node_unpublish_volume` |
//! | | NodeGetVolumeStats, NodeExpandVolume | `Plugin::node_get_volume_stats`, `Plugin::node_expand_volume` |
//!
//! Nothing that is secret leaves: not by `Debug` (`redact`), not in a trace, not in an error message.

pub(crate) mod capability;
mod channel;
mod controller;
mod deadlines;
mod dial;
mod error;
mod groups;
mod identity;
mod inventory;
mod listing;
mod meaning;
mod node;
mod pages;
mod process;
pub mod proto;
pub(crate) mod redact;
mod rpc;
mod secrets;
pub(crate) mod sizes;
mod snapshots;

#[cfg(test)]
mod long_message_tests;
#[cfg(test)]
mod print_tests;
#[cfg(test)]
mod secrets_tests;
#[cfg(test)]
mod server_tests;
#[cfg(test)]
mod wiped_tests;

pub(crate) use channel::Plugin;
pub(crate) use deadlines::{CallArgs, Deadlines};
pub(crate) use dial::{Dial, Ended};
pub(crate) use error::{CallError, Origin};
pub(crate) use inventory::Validation;
pub use meaning::{Meaning, meaning};
pub(crate) use node::TOKENS;
pub(crate) use pages::{Listed, Listing};
pub(crate) use process::Process;
pub use rpc::{Rpc, Service};
pub(crate) use secrets::FollowUp;
pub use secrets::Secrets;
