//! The node's own records: what this node knows of its mounts, the files that keep it, and the disk under them.

pub(super) mod files;
mod known;
pub(super) mod state_disk;
pub(super) mod store;
pub(super) mod stored;
