//! The end of a Volume whose owner leaves the storage: no call of it is waited for any more.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::answers::rpc_of;
use super::caller;
use crate::agent::calls::retained::{UNDELETED, not_ended, retained};
use crate::agent::calls::status::{waits, went};
use crate::agent::context::Agent;
use crate::agent::queues::Parked;
use crate::api::conditions::{Desired, Reason};
use crate::api::volume::VolumeStatus;
use crate::api::{Volume, VolumeHandle, VolumeState, lock};
use crate::k8s::{ApiError, Next};
use crate::volume::calls::{self, VolumeCall};
use crate::volume::handle_of;

/// Time between looks whether the lock of a deleted Volume is closed as it has to be.
pub(super) const UNLOCKED: Duration = Duration::from_secs(5);

/// Nothing that deletes the storage may be running: this worker is the only one that makes calls of it, and of one that was
/// broken off or was made before this process began the end is waited for. The write is guarded by the version that was planned
/// on, so a Volume that is another agent's by now is not given up here.
pub(super) async fn give_up(agent: &Agent, volume: &Arc<Volume>, call: VolumeCall) -> Result<Next, ApiError> {
    let rpc = rpc_of(call);
    let driver = caller::driver(agent, volume);
    let about = Parked::Volume(volume.metadata.uid.clone().unwrap_or_default());
    if agent.may_be_deleting(rpc, &driver, &about) {
        let mut after = volume.status.clone().unwrap_or_default();
        waits(&mut after, &not_ended(rpc), volume.metadata.generation, Timestamp::now());
        write(agent, volume, &after).await?;
        return Ok(Next::After(UNDELETED));
    }
    let locked = handle_name(volume, &driver).filter(|_| calls::is_about_one_in_use(call));
    let lock = match locked {
        Some(name) => agent.get_live::<VolumeHandle>(&name).await?,
        None => None,
    };
    if !calls::may_give_up(call, volume, lock.as_ref()) {
        // No watch tells of the lock.
        return Ok(Next::After(UNLOCKED));
    }
    let mut after = volume.status.clone().unwrap_or_default();
    after.state = VolumeState::Deleted;
    let left = after.rejected.as_ref().map(|r| r.volume_handle.as_str());
    tracing::info!(volume = volume.metadata.name, left, "given up: the storage stays");
    went(&mut after, &retained(rpc), volume.metadata.generation, Timestamp::now());
    write(agent, volume, &after).await?;
    agent.retries.clear(volume.metadata.uid.as_deref().unwrap_or_default());
    Ok(Next::Done)
}

/// Nothing was ever called. The write is guarded by the version that was planned on.
pub(super) async fn never_begun(agent: &Agent, volume: &Volume) -> Result<Next, ApiError> {
    let mut after = volume.status.clone().unwrap_or_default();
    after.state = VolumeState::Deleted;
    let desired = Desired::new(Reason::Deleted, "it was deleted before CreateVolume was called");
    went(&mut after, &desired, volume.metadata.generation, Timestamp::now());
    write(agent, volume, &after).await?;
    agent.retries.clear(volume.metadata.uid.as_deref().unwrap_or_default());
    Ok(Next::Done)
}

pub(super) async fn write(agent: &Agent, volume: &Volume, after: &VolumeStatus) -> Result<(), ApiError> {
    agent.writer.update_status(&agent.caches.volumes, volume, after).await.map(drop)
}

/// The VolumeHandle of the volume.
pub(super) fn handle_name(volume: &Volume, driver: &str) -> Option<String> {
    let of = |handle| lock::handle_name(lock::DriverVolume { driver, handle });
    handle_of(volume).map(of)
}
