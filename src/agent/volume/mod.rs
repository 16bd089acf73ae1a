//! The calls for Volumes whose controller instance is on this node: CreateVolume, ValidateVolumeCapabilities,
//! ControllerExpandVolume, ControllerModifyVolume, DeleteVolume.

pub(super) mod answers;
mod caller;
mod expand;
mod modify;
mod validate;
pub(super) mod worker;
