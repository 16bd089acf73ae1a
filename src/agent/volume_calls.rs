//! The worker for Volumes' own calls: which is due, and what is written of it.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Api;

use super::budgets::{Budget, Direction, LATER, Parked, Service};
use super::context::Agent;
use super::failure::Failure;
use super::retry::Step;
use super::status::{failed, not_ready, went};
use super::volume_answers::call;
use crate::api::names::instance_name;
use crate::api::volume::{VolumeOperation, VolumeStatus};
use crate::api::{Volume, VolumeState};
use crate::csi::{CallError, Origin, Rpc};
use crate::k8s::events::Reason;
use crate::k8s::{ApiError, Next};

/// Pause while no call may be started.
const PAUSE: Duration = Duration::from_millis(500);

/// Works on one Volume.
pub(super) async fn work(agent: Arc<Agent>, uid: String) -> Next {
    let Some(volume) = agent.volumes.by_uid(&uid) else { return Next::Done };
    let Some(rpc) = due(&agent, &volume) else { return Next::Done };
    if is_given_up(&volume, rpc) {
        return give_up(&agent, &volume, rpc).await;
    }
    let step = Step { uid: &uid, rpc, generation: volume.metadata.generation.unwrap_or(0) };
    if let Some(left) = agent.retries.wait(&step) {
        return Next::After(left);
    }
    let driver = driver(&agent, &volume);
    let direction = if rpc == Rpc::DeleteVolume { Direction::Undo } else { Direction::Make };
    let limit = agent.controller_concurrency(&driver);
    let budget = Budget { driver: driver.clone(), service: Service::Volume, direction };
    let turn = agent.budgets.turn(&budget, limit, Parked::Volume(uid.clone())).await;
    let Ok(_turn) = turn else { return Next::After(LATER) };
    if !agent.may_call_controller(&driver) {
        return Next::After(PAUSE);
    }

    let before = volume.status.clone().unwrap_or_default();
    let mut after = before.clone();
    match call(&agent, &volume, rpc, &driver, &mut after).await {
        Ok(()) => {}
        // Deleted before it was made: the driver's clear answer means that there is nothing to delete.
        Err((_, Some(error))) if rpc == Rpc::CreateVolume && was_not_made(&volume, &error) => {
            after.state = VolumeState::Deleted;
            let desired = not_ready("Deleted", "it was deleted before the driver made it".into());
            went(&mut after, &desired, volume.metadata.generation, Timestamp::now());
        }
        Err((failure, _)) => return record_failure(&agent, &volume, &step, &failure, &driver).await,
    }
    match write(&agent, &volume, &before, &after).await {
        Ok(()) => Next::Done,
        Err(ApiError::Invalid { message, .. }) => {
            let failure = Failure::unstorable(rpc, &message);
            record_failure(&agent, &volume, &step, &failure, &driver).await
        }
        Err(error) => again(&volume, &error),
    }
}

/// The Volume is deleted and its owner wants the storage to stay, if there is any. Without an answer from the driver this
/// is the way out.
fn is_given_up(volume: &Volume, rpc: Rpc) -> bool {
    let undoes = rpc == Rpc::DeleteVolume
        || (rpc == Rpc::CreateVolume && volume.metadata.deletion_timestamp.is_some());
    undoes && !volume.spec.deletes_storage()
}

/// No call of it is running: this is the only place that makes one.
async fn give_up(agent: &Agent, volume: &Arc<Volume>, rpc: Rpc) -> Next {
    let before = volume.status.clone().unwrap_or_default();
    let mut after = before.clone();
    after.state = VolumeState::Deleted;
    let message = format!(
        "spec.deletionPolicy is Retain: {rpc} is not called any more. What was called before may have its effect yet"
    );
    let desired = not_ready("Retained", message);
    went(&mut after, &desired, volume.metadata.generation, Timestamp::now());
    match write(agent, volume, &before, &after).await {
        Ok(()) => Next::Done,
        Err(error) => again(volume, &error),
    }
}

async fn write(
    agent: &Agent,
    volume: &Arc<Volume>,
    before: &VolumeStatus,
    after: &VolumeStatus,
) -> Result<(), ApiError> {
    agent.write_status(&api(agent, volume), &agent.volumes, &**volume, before, after).await?;
    agent.retries.clear(volume.metadata.uid.as_deref().unwrap_or_default());
    Ok(())
}

fn again(volume: &Volume, error: &ApiError) -> Next {
    // A call that succeeded is repeated, with the same arguments and so the same result.
    if matches!(error, ApiError::Conflict(_)) {
        return Next::Again;
    }
    tracing::warn!(volume = volume.metadata.name, "{error}");
    Next::Retry
}

/// Counts a failure and writes it where people look.
async fn record_failure(
    agent: &Agent,
    volume: &Arc<Volume>,
    step: &Step<'_>,
    failure: &Failure,
    driver: &str,
) -> Next {
    let earlier = volume.status.as_ref().and_then(|s| s.attempts);
    let attempt = agent.retries.failed(step, failure, earlier, driver);
    let mut failure = failure.clone();
    if volume.metadata.deletion_timestamp.is_some() && step.rpc == Rpc::CreateVolume {
        failure.message.push_str(
            "; it is repeated to find out whether there is a volume to delete: spec.deletionPolicy Retain gives it up",
        );
    }
    let failure = &failure;
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    tracing::warn!(volume = name, attempt = attempt.number, next = ?attempt.next, "{failure}");
    let place = format!("on node {}", agent.node_name);
    let change = |status: &mut VolumeStatus, generation, now| {
        failed(status, failure, attempt, &place, generation, now);
    };
    let still = |fresh: &Volume| {
        fresh.metadata.generation == volume.metadata.generation && state_of(fresh) == state_of(volume)
    };
    match agent.write_outcome(&api(agent, volume), &agent.volumes, volume, change, still).await {
        Ok(()) => {}
        Err(ApiError::Conflict(_)) => return Next::Again,
        Err(error) => {
            tracing::warn!(volume = name, %failure, "the failure cannot be written: {error}");
            return Next::Retry;
        }
    }
    if attempt.number == 1 {
        agent.tell(volume, Reason::CallFailed, step.rpc.name(), failure.to_string());
    }
    Next::After(attempt.next)
}

fn api(agent: &Agent, volume: &Volume) -> Api<Volume> {
    agent.api_in(volume.metadata.namespace.as_deref().unwrap_or_default())
}

fn state_of(volume: &Volume) -> VolumeState {
    volume.status.as_ref().map(|s| s.state).unwrap_or_default()
}

/// The call that the leader has assigned to the instance on this node, while it is not done.
fn due(agent: &Agent, volume: &Volume) -> Option<Rpc> {
    let assignment = volume.spec.assignment.as_ref()?;
    assignment.controller.as_ref().filter(|c| c.agent == agent.node_name)?;
    due_call(assignment.operation, state_of(volume), volume.metadata.deletion_timestamp.is_some())
}

fn due_call(operation: VolumeOperation, state: VolumeState, deleted: bool) -> Option<Rpc> {
    match (operation, state) {
        // Also for a deleted Volume: a call may have been made, so it is repeated until its outcome is known.
        (VolumeOperation::Create, VolumeState::Pending) => Some(Rpc::CreateVolume),
        (VolumeOperation::Validate, VolumeState::Pending) if !deleted => {
            Some(Rpc::ValidateVolumeCapabilities)
        }
        (VolumeOperation::Delete, VolumeState::Created | VolumeState::Ready) => Some(Rpc::DeleteVolume),
        _ => None,
    }
}

/// The driver behind the assigned instance. Its name is a hash of the driver's, so this also works when the Plugin is
/// gone (design R9).
fn driver(agent: &Agent, volume: &Volume) -> String {
    let assigned = volume.spec.assignment.as_ref().and_then(|a| a.controller.as_ref());
    let instance = assigned.map(|c| c.instance.as_str()).unwrap_or_default();
    let mut answering = agent.registry.drivers().into_iter();
    answering.find(|driver| instance_name(&agent.node_name, driver) == instance).unwrap_or_else(|| {
        let plugin = agent.plugins.get("", &volume.spec.plugin_name);
        plugin.map_or_else(|| volume.spec.plugin_name.clone(), |p| p.driver_name().to_owned())
    })
}

/// A deleted Volume of which the driver itself says that the call failed for good. What was never sent says nothing
/// about an earlier call, unless these arguments can never be sent.
fn was_not_made(volume: &Volume, error: &CallError) -> bool {
    let settled = error.origin == Origin::Argument
        || (error.origin == Origin::Driver && error.meaning().is_settled_failure());
    volume.metadata.deletion_timestamp.is_some() && settled
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

    use super::*;

    #[test]
    fn each_operation_is_due_until_its_state_is_reached() {
        use VolumeOperation::{Create, Delete, Validate};
        use VolumeState::{Created, Deleted, Pending, Ready};
        for (operation, state, deleted, expected) in [
            (Create, Pending, false, Some(Rpc::CreateVolume)),
            (Create, Pending, true, Some(Rpc::CreateVolume)),
            (Create, Created, false, None),
            (Create, Ready, true, None),
            (Validate, Pending, false, Some(Rpc::ValidateVolumeCapabilities)),
            (Validate, Pending, true, None),
            (Delete, Ready, true, Some(Rpc::DeleteVolume)),
            (Delete, Created, true, Some(Rpc::DeleteVolume)),
            (Delete, Deleted, true, None),
            (Delete, Pending, true, None),
        ] {
            assert_eq!(due_call(operation, state, deleted), expected, "{operation:?} {state:?} {deleted}");
        }
    }

    #[test]
    fn retain_gives_up_what_only_its_driver_could_answer() {
        use crate::api::volume::DeletionPolicy;
        let mut volume = Volume::default();
        volume.spec.capacity = Some(Quantity("1Gi".into()));
        for policy in [None, Some(DeletionPolicy::Delete), Some(DeletionPolicy::Retain)] {
            volume.spec.deletion_policy = policy;
            let retained = volume.spec.deletion_policy == Some(DeletionPolicy::Retain);
            volume.metadata.deletion_timestamp = None;
            assert!(!is_given_up(&volume, Rpc::CreateVolume));
            volume.metadata.deletion_timestamp =
                Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH));
            assert_eq!(is_given_up(&volume, Rpc::CreateVolume), retained);
            assert_eq!(is_given_up(&volume, Rpc::DeleteVolume), retained);
            assert!(!is_given_up(&volume, Rpc::ValidateVolumeCapabilities));
        }
    }

    #[test]
    fn a_deleted_volume_is_given_up_only_on_a_clear_answer() {
        let mut volume = Volume::default();
        let of = |code, origin| CallError { rpc: Rpc::CreateVolume, code, message: String::new(), origin };
        let clear = of(tonic::Code::OutOfRange, Origin::Driver);
        assert!(!was_not_made(&volume, &clear));
        volume.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH));
        assert!(was_not_made(&volume, &clear));
        for open in [
            of(tonic::Code::DeadlineExceeded, Origin::Deadline),
            of(tonic::Code::Unavailable, Origin::Dial),
            of(tonic::Code::Aborted, Origin::Driver),
        ] {
            assert!(!was_not_made(&volume, &open));
        }
    }
}
