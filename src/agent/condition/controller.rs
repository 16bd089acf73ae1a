//! Asks a driver's Controller service how the volumes are whose calls are made here: by one listing where it lists them, else one
//! after the other, a second apart.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::sleep;
use tonic::Code;

use super::node::said;
use crate::agent::attach::audit::is_own;
use crate::agent::calls::attempt::NotDone;
use crate::agent::calls::failure::Failure;
use crate::agent::context::Agent;
use crate::api::VolumeHandle;
use crate::api::conditions::whole_second;
use crate::attachment::health::{self, DriverSeen, Look, MountSeen};
use crate::csi::{CallError, Origin, Rpc, Service};
use crate::k8s::{ApiError, read};

/// Volumes per page of a listing.
const PAGE: u32 = 500;
/// Pause between two questions: of a thousand volumes at most sixty are asked about in a minute.
const PAUSE: Duration = Duration::from_secs(1);

/// Asks about each volume once.
pub(super) async fn round(agent: Arc<Agent>, driver: String) {
    if let Err(trouble) = ask(&agent, &driver).await {
        tracing::debug!(driver, "the driver was not asked how its volumes are: {trouble}");
    }
}

async fn ask(agent: &Agent, driver: &str) -> Result<(), NotDone> {
    let serving = agent.serving(Rpc::ControllerGetVolume, driver)?;
    let capabilities = &serving.fingerprint.capabilities;
    let may_ask = || agent.may_call_driver(driver, Service::Controller);
    if !capabilities.controller_has("VOLUME_CONDITION") || !may_ask() {
        return Ok(());
    }
    if capabilities.controller_has("LIST_VOLUMES") {
        let handles = own_handles(agent, driver).await?;
        if handles.is_empty() {
            return Ok(());
        }
        let ids: HashSet<&str> = handles.iter().map(|handle| handle.spec.volume_handle.as_str()).collect();
        let call = serving.plugin.list_volumes(PAGE, |volume| ids.contains(&*volume.volume_id).then_some(()));
        let listed = agent.call(driver, Rpc::ListVolumes, call).await;
        let mut listed = listed.map_err(|error| Failure::of_call(&error))?;
        for handle in &handles {
            // Not listed says nothing: it may have come or moved while the list was made (CSI ListVolumes).
            let listed = listed.remove(&handle.spec.volume_handle);
            if let Some(condition) = listed.and_then(|listed| listed.condition) {
                report(agent, handle, said(Some(condition))).await?;
            }
        }
    } else if capabilities.controller_has("GET_VOLUME") {
        for handle in own_handles(agent, driver).await? {
            if !may_ask() {
                break;
            }
            // Whoever attaches it, or makes another call for it, comes at once.
            let name = handle.metadata.name.as_deref().unwrap_or_default();
            let Some(spare) = agent.flights.spare(name) else { continue };
            let call = serving.plugin.controller_get_volume(&handle.spec.volume_handle);
            let answer = tokio::select! {
                answer = agent.call(driver, Rpc::ControllerGetVolume, call) => answer,
                () = spare.wanted() => continue,
            };
            drop(spare);
            match answer {
                Ok(condition) => report(agent, &handle, said(condition)).await?,
                Err(error) if is_unknown(&error) => {
                    let words = "the driver does not know the volume any more (NOT_FOUND)".to_owned();
                    report(agent, &handle, DriverSeen::Abnormal(words)).await?;
                }
                Err(error) if error.is_transport() => return Err(Failure::of_call(&error).into()),
                Err(error) => tracing::debug!(handle = handle.spec.volume_handle, "{error}"),
            }
            sleep(PAUSE).await;
        }
    }
    Ok(())
}

fn is_unknown(error: &CallError) -> bool {
    error.origin == Origin::Driver && error.code == Code::NotFound
}

/// The VolumeHandles whose calls the driver's instance here makes.
async fn own_handles(agent: &Agent, driver: &str) -> Result<Vec<VolumeHandle>, ApiError> {
    let fields = format!("spec.controller.agent={}", agent.node_name);
    let mut handles = read::list_live(&agent.api::<VolumeHandle>(), Some(&fields)).await?;
    handles.retain(|handle| handle.spec.driver_name == driver && is_own(agent, handle));
    Ok(handles)
}

/// Writes what is wrong on the VolumeHandle, if that has changed. Somebody else's write in between is no trouble: the next round
/// comes.
async fn report(agent: &Agent, handle: &VolumeHandle, driver: DriverSeen) -> Result<(), ApiError> {
    let mut after = handle.status.clone().unwrap_or_default();
    let reported = after.health.clone().unwrap_or_default();
    let mount = MountSeen::There { read_only: false };
    let found =
        health::found(&Look { mount, driver, bytes: None, inodes: None, is_written: false }, &reported);
    let now = health::report(&found, &reported, &whole_second(Timestamp::now()), false);
    if after.health.as_deref().unwrap_or_default() == now {
        return Ok(());
    }
    after.health = Some(now);
    match agent.writer.merge_status(&agent.api(), handle, &after).await {
        Ok(_) => {
            tracing::info!(handle = handle.metadata.name, findings = ?found, "how the driver says that the volume is has changed");
            Ok(())
        }
        Err(ApiError::Conflict(_)) => Ok(()),
        Err(error) => Err(error),
    }
}
