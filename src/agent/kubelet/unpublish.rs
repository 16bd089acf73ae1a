//! kubelet's NodeUnpublishVolume and NodeUnstageVolume: answered from the node's records and mounts, also while the API
//! server is away.

use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, sleep, timeout_at};

use super::answer::Unanswered;
use super::driver::Driver;
use super::target::Target;
use crate::agent::calls::attempt::{Due, Word};
use crate::agent::host::mounts;
use crate::agent::host::paths::HostPath;
use crate::agent::queues::Parked;
use crate::agent::records::store::Stored;
use crate::api::claim::PodUse;
use crate::api::{ClaimUid, VolumeClaim};
use crate::attachment::record::Done;
use crate::csi::proto::csi::v1 as wire;
use crate::csi::{CallError, FollowUp, Plugin, Rpc};

/// Pause between looks at the records; the worker's next step may take any time.
const LOOK: Duration = Duration::from_millis(20);
/// Longest pause between two looks.
const LONGEST_LOOK: Duration = Duration::from_millis(500);

impl Driver {
    /// Unmounts what a Pod had. The claim is deleted after the answer: until it is gone the Attachment stays the lock.
    pub async fn unpublish(
        &self,
        request: wire::NodeUnpublishVolumeRequest,
        by: Instant,
    ) -> Result<(), Unanswered> {
        let target = self.target(&request.volume_id, &request.target_path)?;
        let name = target.claim_name(&self.kubelet_name, &request.volume_id);
        let handle = self.handle_name(&request.volume_id);
        let _turn = self.undo_claim(&target, &name, &handle, by).await?;
        self.clear_foreign(&request, &target.path, &handle, by).await?;
        self.agent.queues.releases.add(name);
        Ok(())
    }

    /// Waits until nothing of a claim of this VolumeHandle is on the node. Returns the turn of who ends it.
    pub(super) async fn undo_claim(
        &self,
        target: &Target,
        name: &str,
        handle: &str,
        by: Instant,
    ) -> Result<OwnedMutexGuard<()>, Unanswered> {
        let asked = &self.agent.asked;
        // A call to publish that waits still ends by it, and makes no claim any more.
        asked.release(name, handle);
        let turn = self.turn(name, by).await?;
        self.agent.queues.nodes.add(handle.to_owned());
        let mut pause = LOOK;
        // The worker of the volume looks through its records once more, after whatever it was at. The mark of an earlier call
        // goes with the claim, which was undone then.
        while asked.is_released(name) && !asked.is_undone(name) {
            if Instant::now() + pause > by {
                return Err(Unanswered::Again(self.still_there(target, name)));
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_LOOK);
        }
        Ok(turn)
    }

    /// The turn of a call for the target of a claim.
    pub(super) async fn turn(&self, name: &str, by: Instant) -> Result<OwnedMutexGuard<()>, Unanswered> {
        let turn = timeout_at(by, self.agent.asked.turn(name)).await;
        turn.map_err(|_| Unanswered::Again("another call for this target is running".into()))
    }

    /// Why a target is not unmounted yet: what its claim says, or what the last call came to.
    fn still_there(&self, target: &Target, claim_name: &str) -> String {
        let is_it = |claim: &VolumeClaim| claim.metadata.name.as_deref() == Some(claim_name);
        let claims = self.agent.caches.claims.all();
        let claim = claims.iter().find(|claim| is_it(claim));
        let words = claim.and_then(|claim| Some(claim.status.as_ref()?.last_error.as_ref()?.message.clone()));
        words.unwrap_or_else(|| format!("{} is being unmounted", target.path))
    }

    /// What is mounted and in no record: another CSI client made it, or the records were lost. The driver is asked to
    /// unmount it.
    pub(super) async fn clear_foreign(
        &self,
        request: &wire::NodeUnpublishVolumeRequest,
        path: &HostPath,
        handle: &str,
        by: Instant,
    ) -> Result<(), Unanswered> {
        let cleared = timeout_at(by, self.unmount_foreign(request, path, handle)).await;
        cleared.unwrap_or_else(|_| Err(Unanswered::Again(format!("{path} is being unmounted"))))
    }

    async fn unmount_foreign(
        &self,
        request: &wire::NodeUnpublishVolumeRequest,
        path: &HostPath,
        handle: &str,
    ) -> Result<(), Unanswered> {
        if !is_mounted(path).await? {
            return Ok(());
        }
        let _lane = self.agent.asked.lane(handle).await;
        tracing::warn!(%path, driver = self.name, "kubelet gives up a mount that is in no record; the driver unmounts it");
        // Whether it was staged is not known, and what else it is than a bind mount.
        let undo = FollowUp { request: request.clone(), earlier_flags: Vec::new() };
        self.undo(Rpc::NodeUnpublishVolume, handle, |plugin| async move {
            plugin.node_unpublish_volume(undo).await
        })
        .await?;
        if is_mounted(path).await? {
            return Err(Unanswered::Again(format!(
                "the driver says that {path} is unmounted, and it is not"
            )));
        }
        Ok(())
    }

    /// Answers when nothing is staged at kubelet's path any more. Staging ends when no claim of the node needs it.
    pub async fn unstage(
        &self,
        request: wire::NodeUnstageVolumeRequest,
        by: Instant,
    ) -> Result<(), Unanswered> {
        let path = HostPath::recorded(&request.staging_target_path);
        self.agent.asked.unstage(&self.kubelet_name, &request.volume_id);
        let handle = self.handle_name(&request.volume_id);
        let mut pause = LOOK;
        while let Some(stored) = self.staged_at(&handle, &path) {
            if self.is_for_others(&stored) {
                return Err(Unanswered::Again(format!(
                    "{path} is staged: VolumeClaims that are for no PersistentVolume use the volume on this node"
                )));
            }
            if Instant::now() + pause > by {
                return Err(Unanswered::Again(format!(
                    "{path} is staged: a claim on this node needs it, or its undoing has failed or waits for the API server"
                )));
            }
            self.agent.queues.nodes.add(handle.clone());
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_LOOK);
        }
        let cleared = timeout_at(by, self.unstage_foreign(&request, &path, &handle)).await;
        cleared.map_err(|_| Unanswered::Again(format!("{path} is being unmounted")))?
    }

    /// What is, or may be, staged at a path.
    fn staged_at(&self, handle: &str, path: &HostPath) -> Option<Stored> {
        self.agent.records.of_handle(handle).into_iter().find(|stored| stored.is_staged_at(path))
    }

    /// Whether all targets of what is staged are of claims that kubelet has not staged it for, and that stay. They may be there
    /// for days, and kubelet does nothing else with the volume while it waits for an answer.
    fn is_for_others(&self, stored: &Stored) -> bool {
        let is_other = |uid: &ClaimUid| {
            self.agent.caches.claims.by_uid(uid).is_some_and(|claim| {
                let of_kubelet = claim.spec.pod.as_deref().and_then(PodUse::by_persistent_volume);
                of_kubelet.is_none() && claim.metadata.deletion_timestamp.is_none()
            })
        };
        let targets = &stored.record.targets;
        !targets.is_empty() && targets.keys().all(is_other)
    }

    /// What is staged at kubelet's path and in no record. kubelet removes the path with all that is in it.
    async fn unstage_foreign(
        &self,
        request: &wire::NodeUnstageVolumeRequest,
        path: &HostPath,
        handle: &str,
    ) -> Result<(), Unanswered> {
        if !is_mounted_within(path).await? {
            return Ok(());
        }
        let _lane = self.agent.asked.lane(handle).await;
        // A driver that goes by the volume id would take the device from under it.
        if self.agent.records.of_handle(handle).iter().any(|stored| stored.record.has_traces()) {
            let why = format!(
                "{path} is mounted, is in no record, and the volume is in use on this node by others"
            );
            return Err(Unanswered::Again(why));
        }
        tracing::warn!(%path, driver = self.name, "kubelet gives up a staged volume that is in no record; the driver unstages it");
        let undo = FollowUp { request: request.clone(), earlier_flags: Vec::new() };
        self.undo(
            Rpc::NodeUnstageVolume,
            handle,
            |plugin| async move { plugin.node_unstage_volume(undo).await },
        )
        .await?;
        if is_mounted_within(path).await? {
            return Err(Unanswered::Again(format!("the driver says that {path} is unstaged, and it is not")));
        }
        Ok(())
    }

    /// Has the driver undo what is in no record. The volume may be elsewhere by now, so the Lease has to be fresh (rule R2).
    async fn undo<F>(&self, rpc: Rpc, handle: &str, call: impl FnOnce(Plugin) -> F) -> Result<(), Unanswered>
    where
        F: Future<Output = Result<(), CallError>>,
    {
        let again = |why: String| Unanswered::Again(why);
        let agent = &*self.agent;
        let _beside = agent.asked.beside().await;
        let word = Word::Term(agent.renewal.term());
        let due =
            Due { agent, rpc, driver: &self.name, key: Parked::Node(handle.to_owned()), word, given: None };
        let _turn = due.turn().await.map_err(|error| again(error.to_string()))?;
        let serving = agent.serving(rpc, &self.name).map_err(|failure| again(failure.to_string()))?;
        let process = serving.plugin.process().cloned();
        due.call(process.as_ref(), call(serving.plugin)).await.map_err(|error| again(error.to_string()))
    }
}

impl Stored {
    /// Whether something is, or may be, staged at this path.
    fn is_staged_at(&self, path: &HostPath) -> bool {
        let record = &self.record;
        record.staging_path == path.text() && (record.staged != Done::No || !record.targets.is_empty())
    }
}

pub(super) async fn is_mounted(path: &HostPath) -> Result<bool, Unanswered> {
    let seen = mounts::look(path).await.map_err(|error| Unanswered::Again(error.to_string()))?;
    Ok(seen.is_some())
}

async fn is_mounted_within(path: &HostPath) -> Result<bool, Unanswered> {
    mounts::is_mounted_within(path).await.map_err(|error| Unanswered::Again(error.to_string()))
}
