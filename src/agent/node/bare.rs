//! Removes bare targets: a target on which nothing is mounted must not stay.
//!
//! The driver makes it (CSI NodePublishVolume), and leaves it when it fails after that. A container runtime is root and
//! goes through closed parents, so a Pod would start on it and write into nothing.

use std::sync::Arc;

use super::pass::Pass;
use super::view::View;
use crate::agent::calls::attempt::NotDone;
use crate::agent::host::directories::{self, Left};
use crate::agent::host::error::HostError;
use crate::agent::host::mounts;
use crate::agent::host::paths::HostPath;
use crate::agent::host::users;
use crate::api::{AttachmentUid, ClaimUid, VolumeClaim};
use crate::k8s::events::EventReason;

impl Pass {
    /// Publishes a claim, and leaves no path behind if that fails.
    pub(super) async fn publish(
        &mut self,
        claim: &ClaimUid,
        uid: &AttachmentUid,
        view: &View,
    ) -> Result<(), NotDone> {
        let published = self.try_publish(claim, uid, view).await;
        if published.is_err() {
            self.remove_bare(claim, uid, view).await;
        }
        published
    }

    /// Makes the folder of the targets, and the target's parent in it. The target itself is the driver's to make.
    pub(super) async fn make_place(
        &self,
        target: &HostPath,
        claim: &Arc<VolumeClaim>,
    ) -> Result<(), HostError> {
        self.agent.targets.make_ready().await?;
        if let Some(note) = self.agent.targets.hidden(target).await {
            self.agent.recorder.tell(claim, EventReason::Orphan, "Publish", note);
        }
        directories::make_parent(&self.agent.paths, target).await
    }

    /// Removes the target of a claim if there is one and nobody has anything mounted on it. A Pod that came in between
    /// has a directory that is no more, and its writes fail.
    pub(super) async fn remove_bare(&self, claim: &ClaimUid, uid: &AttachmentUid, view: &View) {
        let Some(stored) = self.agent.records.get(uid) else { return };
        let Some(recorded) = stored.record.targets.get(claim) else { return };
        let target = HostPath::recorded(&recorded.path);
        // kubelet starts no container before its call is answered, and removes what is its own.
        if !self.agent.paths.owns(&target) {
            return;
        }
        match self.is_bare(&target, claim, &stored.record.driver_name).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                tracing::warn!("{error}; what the driver has left there stays");
                return;
            }
        }
        match directories::remove_target(&self.agent.paths, &target).await {
            Ok(Left::Content) => self.tell_content(claim, &target, view),
            Ok(Left::Nothing) => tracing::info!(path = %target, "removed, as nothing is mounted on it"),
            // That is said where it is found.
            Ok(Left::Empty) => {}
            Err(error) => tracing::warn!("{error}"),
        }
    }

    /// Whether a target is bare: the path is there, and nobody who can be seen has anything mounted on it. The kernel
    /// ends mounts that others have on a directory when it is removed, so where the driver's own mounts cannot be
    /// seen this is not said.
    async fn is_bare(&self, target: &HostPath, claim: &ClaimUid, driver: &str) -> Result<bool, HostError> {
        if mounts::look(target).await?.is_some() || !directories::is_there(target).await? {
            return Ok(false);
        }
        let seen = self.agent.node_mounts.is_named() || self.driver_process(driver).is_some();
        Ok(seen && !users::is_mounted_somewhere(claim, target).await?)
    }

    /// Removes the target of a claim that was unmounted. While somebody else has something mounted on it, it only closes:
    /// with the directory the kernel would end that, and who has a file open by it would be seen by nobody.
    pub(super) async fn remove_unless_held(
        &self,
        claim: &ClaimUid,
        target: &HostPath,
        view: &View,
    ) -> Result<(), HostError> {
        if !self.agent.paths.owns(target) {
            return Ok(());
        }
        let is_held = self.is_held(claim, target).await.unwrap_or_else(|error| {
            tracing::warn!("{error}; {target} stays until it is known who uses what was mounted there");
            true
        });
        if is_held {
            self.close(target).await;
            return Ok(());
        }
        self.remove_target(claim, target, view).await
    }

    async fn is_held(&self, claim: &ClaimUid, target: &HostPath) -> Result<bool, HostError> {
        Ok(directories::is_there(target).await? && users::is_mounted_somewhere(claim, target).await?)
    }

    /// Removes the target of a claim, or closes the way to it.
    pub(super) async fn remove_target(
        &self,
        claim: &ClaimUid,
        target: &HostPath,
        view: &View,
    ) -> Result<(), HostError> {
        let left = directories::remove_target(&self.agent.paths, target).await?;
        if left != Left::Nothing {
            self.close(target).await;
        }
        if left == Left::Content {
            self.tell_content(claim, target, view);
        }
        Ok(())
    }

    /// Publishes an Event that somebody has written into a target on which nothing was mounted.
    pub(super) fn tell_content(&self, claim: &ClaimUid, target: &HostPath, view: &View) {
        let note = format!(
            "{target} is not mounted and not empty: what is in it was written to the node itself and not to the volume"
        );
        tracing::warn!("{note}");
        if let Some(claim) = view.claims.get(claim) {
            self.agent.recorder.tell(claim, EventReason::Orphan, "Unpublish", note);
        }
    }

    async fn close(&self, target: &HostPath) {
        let closed = directories::close_parent(&self.agent.paths, target).await;
        closed.unwrap_or_else(|error| tracing::warn!("{error}"));
    }
}
