//! The calls for Volumes whose controller instance is on this node: CreateVolume, ValidateVolumeCapabilities,
//! ControllerExpandVolume, ControllerModifyVolume, DeleteVolume.

pub(super) mod answers;
mod expand;
mod modify;
pub(super) mod worker;
