//! The calls for Volumes whose controller instance is on this node: CreateVolume, ValidateVolumeCapabilities,
//! ControllerExpandVolume, ControllerModifyVolume, DeleteVolume.

pub(super) mod answers;
mod begin;
mod caller;
mod expand;
mod given_up;
mod modify;
mod validate;
pub(super) mod worker;
