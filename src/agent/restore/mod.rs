//! What a restored etcd needs of a node: the mounts that the API server does not account for are found out (`doubts`),
//! reported and undone on order (`forgotten`), and the Lease waits until all of them are reported (`settling`).

pub(super) mod doubts;
pub(super) mod forgotten;
pub(super) mod settling;
