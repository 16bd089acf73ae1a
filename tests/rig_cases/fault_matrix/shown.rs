//! What a person can read of a failure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use moor::api::conditions::{CallFailure, Condition};
use moor::csi::Rpc;

use super::table::{Cell, reason};
use crate::rig::{Cluster, condition, fake};

/// The common part of the status in which a failure is shown.
#[derive(Clone, Debug)]
pub struct Shown {
    pub error: CallFailure,
    pub attempts: i64,
    next: Option<Time>,
    condition: Option<Condition>,
    /// The status is about this generation, and the object has that one.
    generations: (Option<i64>, Option<i64>),
}

macro_rules! shown {
    ($object:expr) => {{
        let object = $object?;
        let status = object.status.as_ref()?;
        Some(Shown {
            error: *status.last_error.clone()?,
            attempts: status.attempts.unwrap_or_default(),
            next: status.next_retry.clone(),
            condition: condition(&status.conditions).cloned(),
            generations: (status.observed_generation, object.metadata.generation),
        })
    }};
}

/// The failure of a cell's call, where it has to be: on the Volume for its own calls, on the Attachment for attaching
/// and detaching, on the claim for what its node does.
pub fn failure(cluster: &Cluster, cell: Cell) -> Option<Shown> {
    let key = cell.key();
    let found = match cell.rpc {
        Rpc::CreateVolume | Rpc::ValidateVolumeCapabilities | Rpc::DeleteVolume => {
            shown!(cluster.volume(&key))
        }
        Rpc::ControllerPublishVolume | Rpc::ControllerUnpublishVolume => shown!(cluster.attachment_of(&key)),
        _ => shown!(cluster.claim(&key)),
    };
    // Of another generation it is about another step: that of the object as it was before it was closed.
    found.filter(|shown| shown.error.rpc == cell.rpc.name() && shown.generations.0 == shown.generations.1)
}

/// Everything that a failure has to say is said.
pub fn check(shown: &Shown, cell: Cell) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("{what}: {shown:?}"));
    let (rpc, mut code) = (cell.rpc.name(), cell.shown());
    let mut words = if cell.code().is_some() { fake::WORDS } else { "no answer within" };
    // The driver's side of the connection knows the deadline too, and may be the first to end the call.
    if cell.code().is_none() && shown.error.code == "Cancelled" {
        "Cancelled".clone_into(&mut code);
        words = "Timeout expired";
    }
    if shown.error.code != code {
        return wrong("the code is not shown");
    }
    if !shown.error.message.contains(words) {
        return wrong("the driver's words are not shown");
    }
    let Some(condition) = &shown.condition else { return wrong("there is no condition") };
    if condition.status != "False" || condition.reason != reason(cell.rpc) {
        return wrong("the condition is another one");
    }
    let tried = format!("attempt {}", shown.attempts);
    for part in [rpc, &code, words, &tried, "next in"] {
        if !condition.message.contains(part) {
            return wrong(&format!("the condition does not say {part:?}"));
        }
    }
    let Some(next) = &shown.next else { return wrong("it is not said when it is tried again") };
    let seconds = next.0.duration_since(Timestamp::now()).as_secs();
    // Infeasible: not before a minute, of which some seconds have passed. Others: 1 s doubling.
    if (seconds > 40) != cell.is_slow() {
        return wrong(&format!("it is tried again in {seconds} s"));
    }
    Ok(())
}
