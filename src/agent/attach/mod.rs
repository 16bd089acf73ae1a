//! The calls for Attachments whose controller instance is on this node: ControllerPublishVolume and its inverse, and the
//! audit of what the driver lists as attached.
// A variant that is new has to be decided about wherever one is.
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

pub(super) mod audit;
pub(super) mod audits;
pub(super) mod worker;
