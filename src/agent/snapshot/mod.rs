//! Snapshots' calls: CreateSnapshot, ListSnapshots for one that is registered, DeleteSnapshot; and those of groups.

mod answers;
mod call;
mod groups;
mod prepared;
mod single;
pub(super) mod worker;
