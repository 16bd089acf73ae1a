//! The moment at which a call of a Volume begins: what is written before it, remembered of it, and said while it takes its time.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::sleep;

use super::given_up::write;
use super::worker::Pass;
use crate::agent::calls::status::waits;
use crate::api::Volume;
use crate::api::conditions::{Desired, Reason};
use crate::api::volume::VolumeStatus;
use crate::k8s::ApiError;
use crate::volume::calls::{self, VolumeCall};
use crate::volume::modification;

/// After this long the Volume says that CreateVolume is under way. Most calls have ended by then, and the write is saved.
const PATIENCE: Duration = Duration::from_secs(2);

impl Pass<'_> {
    /// Whether the same may have been asked of the driver before, without an answer that says that nothing came of it.
    pub(super) fn may_have_been_called(&self, volume: &Volume) -> bool {
        match self.call {
            VolumeCall::Create => self.due.agent.begun.may_have_created(volume),
            VolumeCall::Modify => modification::is_open(volume),
            VolumeCall::Validate
            | VolumeCall::Revalidate
            | VolumeCall::Delete
            | VolumeCall::DeleteRejected
            | VolumeCall::Expand => false,
        }
    }

    /// Writes, where that has to be known before the call, that there may be a volume from now on, or that it may be another one
    /// than the status says: a crash must not hide that. Nothing if the Volume has changed.
    pub(super) async fn begin(&self, volume: Arc<Volume>) -> Result<Option<Arc<Volume>>, ApiError> {
        let mut after = volume.status.clone().unwrap_or_default();
        match self.call {
            VolumeCall::Create if calls::is_noted_before(&volume) => self.creates(&mut after, &volume),
            VolumeCall::Modify => {
                if let Some(asked) = modification::due(&volume) {
                    modification::begins(&mut after, asked);
                }
            }
            VolumeCall::Create
            | VolumeCall::Validate
            | VolumeCall::Revalidate
            | VolumeCall::Delete
            | VolumeCall::DeleteRejected
            | VolumeCall::Expand => {}
        }
        if volume.status.as_ref() == Some(&after) {
            return Ok(Some(volume));
        }
        write(self.due.agent, &volume, &after).await?;
        let written =
            self.due.agent.caches.volumes.by_uid(volume.metadata.uid.as_deref().unwrap_or_default());
        Ok(written.filter(|written| calls::is_same(&volume, written)))
    }

    /// Awaits a call that has begun. Of a CreateVolume that the status does not speak of the agent remembers it, until what comes
    /// of it is written.
    pub(super) async fn begun<T>(&self, volume: &Volume, call: impl Future<Output = T>) -> T {
        if self.call != VolumeCall::Create || volume.noted_to_exist().is_some() {
            return call.await;
        }
        self.due.agent.begun.begins(volume.metadata.uid.as_deref().unwrap_or_default());
        let telling = async {
            sleep(PATIENCE).await;
            let mut after = volume.status.clone().unwrap_or_default();
            self.creates(&mut after, volume);
            if let Err(error) = write(self.due.agent, volume, &after).await {
                tracing::debug!(
                    volume = volume.metadata.name,
                    "it is not said that it is being made: {error}"
                );
            }
        };
        tokio::pin!(call, telling);
        tokio::select! {
            biased;
            done = &mut call => return done,
            () = &mut telling => {}
        }
        call.await
    }

    /// What the call came to is in the status.
    pub(super) fn ended(&self, volume: &Volume) {
        if self.call == VolumeCall::Create {
            self.due.agent.begun.ended(volume.metadata.uid.as_deref().unwrap_or_default());
        }
    }

    fn creates(&self, status: &mut VolumeStatus, volume: &Volume) {
        status.may_exist = Some(true);
        if status.last_error.is_none() {
            let message = format!("CreateVolume is called on node {}", self.due.agent.node_name);
            let desired = Desired::new(Reason::Creating, message);
            waits(status, &desired, volume.metadata.generation, Timestamp::now());
        }
    }
}
