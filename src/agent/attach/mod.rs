//! The calls for Attachments whose controller instance is on this node: ControllerPublishVolume and its inverse, and the
//! audit of what the driver lists as attached.

pub(super) mod audit;
pub(super) mod audits;
pub(super) mod worker;
