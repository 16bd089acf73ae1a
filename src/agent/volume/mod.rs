//! The calls for Volumes whose controller instance is on this node: CreateVolume, ValidateVolumeCapabilities, DeleteVolume.
// A variant that is new has to be decided about wherever one is.
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

pub(super) mod answers;
pub(super) mod worker;
