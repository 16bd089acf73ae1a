//! The calls for claims on this node: stage, publish and their inverses.
//!
//! `worker` runs the pass (`pass`) over one VolumeHandle: `observe` collects what `attachment/node_side.rs` decides on (`view`),
//! `make`, `undo` and the others do one step, `report` writes what the claims are told.

mod bare;
mod call;
mod covered;
mod forgotten;
mod grow;
mod make;
mod observe;
mod pass;
mod presume;
mod release;
mod report;
#[cfg(test)]
mod tests;
mod undo;
mod view;
pub(super) mod worker;
