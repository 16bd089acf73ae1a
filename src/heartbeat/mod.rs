//! The heartbeat of agents: moor's own protocol in the Leases of agents, which both roles speak.
//!
//! An agent renews its Lease while it makes progress, and says with it what must not be lost: mounts that were taken from its
//! node, mounts that etcd has forgotten, and that etcd was restored; and beside that which sockets it has found. The leader
//! watches whose Lease is renewed.

pub(crate) mod forgotten;
pub(crate) mod history;
pub(crate) mod lease;
pub(crate) mod leftovers;
pub(crate) mod observer;
pub(crate) mod restored;
pub(crate) mod sockets;
pub(crate) mod word;

pub use forgotten::Forgotten;
pub(crate) use history::History;
pub(crate) use lease::{AgentEnd, AgentLease, Holder, Renewal, Term};
pub(crate) use leftovers::Leftovers;
pub(crate) use observer::{AgentOnNode, HeardAgent, LeaseObserver};
pub use restored::Restored;
pub use sockets::{Answer, Socket, Sockets};
pub(crate) use word::{Said, Word};
