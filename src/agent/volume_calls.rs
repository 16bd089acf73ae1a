//! The worker for Volumes' own calls: CreateVolume, ValidateVolumeCapabilities, DeleteVolume.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Api;

use super::arguments;
use super::budgets::{Budget, Direction, LATER, Parked, Service};
use super::context::Agent;
use super::failure::Failure;
use super::proof::{self, Earlier};
use super::quantity;
use super::registry::Serving;
use super::retry::Step;
use super::status::{failed, not_ready, went};
use super::upkeep::instance_name;
use crate::api::volume::{Segments, VolumeOperation, VolumeStatus};
use crate::api::{Plugin, Volume, VolumeState};
use crate::csi::{CallError, CreatedVolume, Meaning, Origin, Rpc, Secrets, Validation};
use crate::k8s::events::Reason;
use crate::k8s::{ApiError, Next};

/// Pause while no call may be started.
const PAUSE: Duration = Duration::from_millis(500);

/// Works on one Volume.
pub(super) async fn work(agent: Arc<Agent>, uid: String) -> Next {
    let Some(volume) = agent.volumes.by_uid(&uid) else { return Next::Done };
    let Some(rpc) = due(&agent, &volume) else { return Next::Done };
    if rpc == Rpc::DeleteVolume && !volume.spec.deletes_storage() {
        return give_up(&agent, &volume).await;
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
    conclude(&agent, &volume, &before, &after).await
}

/// The order to delete was given, and its owner wants the storage to stay after all. No call of it is running: this is
/// the only place that makes one.
async fn give_up(agent: &Agent, volume: &Arc<Volume>) -> Next {
    let before = volume.status.clone().unwrap_or_default();
    let mut after = before.clone();
    after.state = VolumeState::Deleted;
    let message = "spec.deletionPolicy is Retain: DeleteVolume is not called any more. What was called before may have \
                   its effect yet";
    let desired = not_ready("Retained", message.into());
    went(&mut after, &desired, volume.metadata.generation, Timestamp::now());
    conclude(agent, volume, &before, &after).await
}

/// Writes what a call came to.
async fn conclude(agent: &Agent, volume: &Arc<Volume>, before: &VolumeStatus, after: &VolumeStatus) -> Next {
    match agent.write_status(&api(agent, volume), &agent.volumes, &**volume, before, after).await {
        Ok(()) => {
            agent.retries.clear(volume.metadata.uid.as_deref().unwrap_or_default());
            Next::Done
        }
        // A call that succeeded is repeated, with the same arguments and so the same result.
        Err(ApiError::Conflict(_)) => Next::Again,
        Err(error) => {
            tracing::warn!(volume = volume.metadata.name, "{error}");
            Next::Retry
        }
    }
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

/// UID of the Plugin that has the Volume's name for it now. Taken before the call, so that an answer is never ascribed to
/// a Plugin that came after it.
async fn plugin_uid(agent: &Agent, volume: &Volume) -> Option<String> {
    let name = &volume.spec.plugin_name;
    if let Some(plugin) = agent.plugins.get("", name) {
        return plugin.metadata.uid.clone();
    }
    agent.get_live::<Plugin>(name).await.ok().flatten()?.metadata.uid
}

type Failed = (Failure, Option<CallError>);

async fn call(
    agent: &Agent,
    volume: &Volume,
    rpc: Rpc,
    driver: &str,
    status: &mut VolumeStatus,
) -> Result<(), Failed> {
    let local = |failure| (failure, None);
    let serving = agent.serving(rpc, driver).map_err(local)?;
    let namespace = volume.metadata.namespace.as_deref().unwrap_or_default();
    let secret = volume.spec.secrets.as_ref().and_then(|s| s.controller.as_deref());
    let (secrets, note) = match rpc {
        Rpc::DeleteVolume => agent.secrets_for_undo(rpc, namespace, secret).await.map_err(local)?,
        _ => (agent.secrets(rpc, namespace, secret).await.map_err(local)?, None),
    };
    let desired = match rpc {
        Rpc::CreateVolume => {
            status.plugin_uid = plugin_uid(agent, volume).await;
            let created = create(agent, volume, driver, &serving, secrets).await?;
            take_in(status, created);
            not_ready("Created", "the driver has made it; its VolumeHandle comes next".into())
        }
        Rpc::ValidateVolumeCapabilities => {
            status.plugin_uid = plugin_uid(agent, volume).await;
            validate(agent, volume, driver, &serving, secrets).await?;
            status.state = VolumeState::Created;
            status.volume_handle.clone_from(&volume.spec.volume_handle);
            status.volume_context.clone_from(&volume.spec.volume_context);
            not_ready(
                "Validated",
                "the driver confirms what is asked of it; its VolumeHandle comes next".into(),
            )
        }
        _ => {
            delete(agent, volume, driver, &serving, secrets, note.as_deref()).await?;
            status.state = VolumeState::Deleted;
            not_ready("Deleted", note.map_or("the driver has deleted it".into(), |n| format!("deleted; {n}")))
        }
    };
    went(status, &desired, volume.metadata.generation, Timestamp::now());
    Ok(())
}

async fn create(
    agent: &Agent,
    volume: &Volume,
    driver: &str,
    serving: &Serving,
    secrets: Secrets,
) -> Result<CreatedVolume, Failed> {
    const RPC: Rpc = Rpc::CreateVolume;
    let fingerprint = &serving.fingerprint;
    let args = arguments::create_volume(volume, secrets, fingerprint.controller_modes, fingerprint.topology)
        .map_err(|error| (Failure::arguments(RPC, &error), None))?;
    let called = agent.call(driver, RPC, serving.plugin.create_volume(args)).await;
    called.map_err(|error| (Failure::of_call(&error), Some(error)))
}

async fn validate(
    agent: &Agent,
    volume: &Volume,
    driver: &str,
    serving: &Serving,
    secrets: Secrets,
) -> Result<(), Failed> {
    const RPC: Rpc = Rpc::ValidateVolumeCapabilities;
    let args = arguments::validate(volume, secrets, serving.fingerprint.controller_modes)
        .map_err(|error| (Failure::arguments(RPC, &error), None))?;
    let called = agent.call(driver, RPC, serving.plugin.validate_volume_capabilities(args)).await;
    match called.map_err(|error| (Failure::of_call(&error), Some(error)))? {
        Validation::Confirmed { unchecked } => {
            if !unchecked.is_empty() {
                tracing::info!(
                    volume = volume.metadata.name,
                    ?unchecked,
                    "the driver confirms without these"
                );
            }
            Ok(())
        }
        Validation::Refused { message } => {
            let failure = Failure::arguments(RPC, &message);
            Err((Failure { reason: "NotConfirmed", code: "NotConfirmed".into(), ..failure }, None))
        }
    }
}

async fn delete(
    agent: &Agent,
    volume: &Volume,
    driver: &str,
    serving: &Serving,
    secrets: Secrets,
    note: Option<&str>,
) -> Result<(), Failed> {
    const RPC: Rpc = Rpc::DeleteVolume;
    let args =
        arguments::delete_volume(volume, secrets).map_err(|error| (Failure::arguments(RPC, &error), None))?;
    match agent.call(driver, RPC, serving.plugin.delete_volume(args)).await {
        Ok(()) => Ok(()),
        Err(error) => {
            let uid = volume.status.as_ref().and_then(|s| s.plugin_uid.as_deref());
            let plugin = &volume.spec.plugin_name;
            let earlier = Earlier { plugin, uid, done: "made", undone: "deleted" };
            let Err(mut failure) = proof::is_gone(agent, &error, earlier).await else { return Ok(()) };
            if error.meaning() == Meaning::AlreadyGone {
                failure.message.push_str("; spec.deletionPolicy Retain gives it up");
            }
            if let Some(note) = note {
                failure.message = format!("{} ({note})", failure.message);
            }
            Err((failure, Some(error)))
        }
    }
}

fn take_in(status: &mut VolumeStatus, created: CreatedVolume) {
    status.state = VolumeState::Created;
    status.volume_handle = Some(created.volume_id);
    status.capacity = created.capacity_bytes.map(quantity::human);
    status.capacity_bytes = Some(created.capacity_bytes.unwrap_or(0));
    status.volume_context = created.volume_context.into_map();
    status.accessible_topology = created.topology.into_iter().map(|segments| Segments { segments }).collect();
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
