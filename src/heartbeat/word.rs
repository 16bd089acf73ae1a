//! What an agent has to say with each renewal of its Lease.

use k8s_openapi::api::coordination::v1::Lease;

use super::{Forgotten, Leftovers, Sockets};
use crate::k8s::ApiError;

/// What the Lease asks of the agent whose it is.
pub trait Word {
    /// Whether the agent makes progress; if not, what has stalled (trap B27).
    ///
    /// # Errors
    /// What has stalled, in words. The Lease is not renewed then.
    fn progress(&self) -> Result<(), String>;
    /// Finds out which volumes were taken from the node while its agent was silent. Called when a renewal has
    /// succeeded after a silence (rule R4).
    fn catch_up(&self) -> impl Future<Output = Result<(), ApiError>> + Send;
    /// What the next renewal says. Where the agent has not caught up yet, any volume may be a leftover.
    fn said(&self, caught_up: bool) -> Said;
    /// Returns when leftovers or forgotten mounts have changed since they were asked for.
    fn changed(&self) -> impl Future<Output = ()> + Send;
}

/// What a renewal says of the node.
#[derive(Clone, Debug)]
pub struct Said {
    /// What the node still has mounted of volumes that were taken from it.
    pub leftovers: Leftovers,
    /// What is mounted on the node and the API server does not account for.
    pub forgotten: Forgotten,
    /// The sockets of drivers; None before the agent has looked for them: what an earlier one has said stands.
    pub sockets: Option<Sockets>,
}

impl Said {
    /// Writes all of it into a Lease.
    pub fn say_in(&self, lease: &mut Lease) {
        self.leftovers.say_in(lease);
        self.forgotten.say_in(lease);
        if let Some(sockets) = &self.sockets {
            sockets.say_in(lease);
        }
    }
}
