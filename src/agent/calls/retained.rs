//! The end of the calls of an object whose owner leaves what the driver has (spec.deletionPolicy Retain).

use std::time::Duration;

use crate::agent::context::Agent;
use crate::agent::queues::Parked;
use crate::api::conditions::{Desired, Reason};
use crate::csi::Rpc;

/// Time between looks whether a call that deletes has ended.
pub(crate) const UNDELETED: Duration = Duration::from_secs(5);

impl Agent {
    /// Whether the driver may be deleting what the object stands for. Given up meanwhile, that would be somebody else's under whom it
    /// goes. Only the worker of the object makes calls of it, so nothing else begins.
    pub(crate) fn may_be_deleting(&self, rpc: Rpc, driver: &str, about: &Parked) -> bool {
        rpc.is_inverse() && self.tenures.may_be_at(driver, about)
    }
}

/// What is said when the calls have ended.
pub(crate) fn retained(rpc: Rpc) -> Desired {
    let message = format!(
        "spec.deletionPolicy is Retain: {rpc} is not called any more. What was called before may have its effect"
    );
    Desired::new(Reason::Retained, message)
}

/// What is said while one may be running.
pub(crate) fn not_ended(rpc: Rpc) -> Desired {
    let message = format!(
        "spec.deletionPolicy is Retain: {rpc} is not called any more, but was before, and the driver may be at it yet: its end is \
         waited for, until the driver's process has ended or no call can take so long (--longest-call of the agent)"
    );
    Desired::new(Reason::Retained, message)
}
