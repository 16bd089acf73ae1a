//! The calls for Volumes whose controller instance is on this node: CreateVolume, ValidateVolumeCapabilities,
//! ControllerExpandVolume, DeleteVolume.

pub(super) mod answers;
mod expand;
pub(super) mod worker;
