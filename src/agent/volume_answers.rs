//! The calls of a Volume itself, and what their answers say: CreateVolume, ValidateVolumeCapabilities, DeleteVolume.

use jiff::Timestamp;

use super::arguments::{self, ArgumentError};
use super::context::Agent;
use super::failure::Failure;
use super::proof::{self, Earlier};
use super::quantity;
use super::registry::Serving;
use super::status::{not_ready, went};
use crate::api::volume::{Segments, VolumeStatus};
use crate::api::{Plugin, Volume, VolumeState};
use crate::csi::proto::csi::v1::CapacityRange;
use crate::csi::{CallError, CreatedVolume, DeleteVolume, Meaning, Origin, Rpc, Secrets, Validation};

/// A failed call, and the driver's own answer if there was one.
pub(super) type Failed = (Failure, Option<CallError>);

/// Makes the call, and puts what it came to into the status.
pub(super) async fn call(
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
        .map_err(|error| (Failure::arguments(RPC, &error), never_sent(&error)))?;
    let asked = args.capacity_range;
    let called = agent.call(driver, RPC, serving.plugin.create_volume(args)).await;
    let created = called.map_err(|error| (Failure::of_call(&error), Some(error)))?;
    match wrong_size(asked.as_ref(), created.capacity_bytes) {
        None => Ok(created),
        Some(what) => Err(take_back(agent, volume, driver, serving, created, what).await),
    }
}

/// A size that cannot be read never could, so no call was ever made with it. What the driver offers may have changed.
fn never_sent(error: &ArgumentError) -> Option<CallError> {
    matches!(error, ArgumentError::Size(_)).then(|| CallError {
        rpc: Rpc::CreateVolume,
        code: tonic::Code::InvalidArgument,
        message: error.to_string(),
        origin: Origin::Argument,
    })
}

/// What is wrong with the size of a volume that was made. A driver that does not say is believed.
fn wrong_size(asked: Option<&CapacityRange>, made: Option<i64>) -> Option<String> {
    let (asked, made) = (asked?, made?);
    let limit = Some(asked.limit_bytes).filter(|limit| *limit > 0);
    if made < asked.required_bytes {
        return Some(format!("the driver made {made} bytes, and spec.capacity is {}", asked.required_bytes));
    }
    let limit = limit.filter(|limit| made > *limit)?;
    Some(format!("the driver made {made} bytes, and spec.capacityLimit is {limit}"))
}

/// A volume that is not what was asked for is deleted again (reference csi.md 1.1), as a driver that can do no better
/// should have refused.
async fn take_back(
    agent: &Agent,
    volume: &Volume,
    driver: &str,
    serving: &Serving,
    created: CreatedVolume,
    what: String,
) -> Failed {
    const RPC: Rpc = Rpc::DeleteVolume;
    let namespace = volume.metadata.namespace.as_deref().unwrap_or_default();
    let secret = volume.spec.secrets.as_ref().and_then(|s| s.controller.as_deref());
    let secrets = match agent.secrets_for_undo(RPC, namespace, secret).await {
        Ok((secrets, _)) => secrets,
        Err(failure) => return (failure, None),
    };
    let args = DeleteVolume { volume_id: created.volume_id, secrets };
    if let Err(error) = agent.call(driver, RPC, serving.plugin.delete_volume(args)).await {
        return (Failure::of_call(&error), None);
    }
    let refused = CallError {
        rpc: Rpc::CreateVolume,
        code: tonic::Code::OutOfRange,
        message: format!("{what}; it was deleted again"),
        origin: Origin::Driver,
    };
    (Failure::of_call(&refused), Some(refused))
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
    // A place without segments is every place.
    let places = Some(created.topology).filter(|all| all.iter().all(|segments| !segments.is_empty()));
    let places = places.unwrap_or_default().into_iter();
    status.accessible_topology = places.map(|segments| Segments { segments }).collect();
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_volume_is_as_large_as_was_asked() {
        let asked = |required_bytes, limit_bytes| CapacityRange { required_bytes, limit_bytes };
        for (required, limit, made, is_right) in [
            (10, 0, Some(10), true),
            (10, 0, Some(1_000), true),
            (10, 20, Some(20), true),
            (10, 20, None, true),
            (10, 0, Some(9), false),
            (10, 20, Some(21), false),
            (0, 20, Some(21), false),
        ] {
            let wrong = wrong_size(Some(&asked(required, limit)), made);
            assert_eq!(wrong.is_none(), is_right, "{required} {limit} {made:?} {wrong:?}");
        }
        assert_eq!(wrong_size(None, Some(1)), None);
    }

    #[test]
    fn a_place_without_segments_is_every_place() {
        let zone = BTreeMap::from([("zone".to_owned(), "a".to_owned())]);
        for (topology, places) in [
            (vec![], 0),
            (vec![zone.clone()], 1),
            (vec![zone, BTreeMap::new()], 0),
            (vec![BTreeMap::new()], 0),
        ] {
            let mut status = VolumeStatus::default();
            let volume_context = BTreeMap::new().into();
            let created = CreatedVolume {
                volume_id: "id".into(),
                capacity_bytes: None,
                volume_context,
                source: None,
                topology,
            };
            take_in(&mut status, created);
            assert_eq!(status.accessible_topology.len(), places);
        }
    }
}
