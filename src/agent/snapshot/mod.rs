//! Snapshots' calls: CreateSnapshot, ListSnapshots for one that is registered, DeleteSnapshot.

mod answers;
pub(super) mod worker;
