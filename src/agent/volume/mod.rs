//! The calls for Volumes whose controller instance is on this node: CreateVolume, ValidateVolumeCapabilities, DeleteVolume.

pub(super) mod answers;
pub(super) mod worker;
