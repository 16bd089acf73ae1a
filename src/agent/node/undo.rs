//! Unpublishing and unstaging, from the record: the objects may be gone (rule R7).

use std::sync::Arc;

use super::forgotten::way_of_force;
use super::make::in_use;
use super::pass::Pass;
use super::view::View;
use crate::agent::calls::arguments;
use crate::agent::calls::attempt::NotDone;
use crate::agent::calls::failure::Failure;
use crate::agent::host::directories::{self, Left};
use crate::agent::host::error::HostError;
use crate::agent::host::imprint;
use crate::agent::host::mounts;
use crate::agent::host::paths::HostPath;
use crate::agent::records::store::Stored;
use crate::api::conditions::Reason;
use crate::api::instance::FORCE_UNDO;
use crate::api::{Attachment, AttachmentUid, ClaimUid};
use crate::attachment::node_side::{LiveAttachment, NodeStep};
use crate::attachment::record::{Done, Imprint, Record};
use crate::csi::{CallError, Meaning, Plugin, Rpc};
use crate::k8s::events::EventReason;

impl Pass {
    pub(super) async fn unpublish(
        &mut self,
        claim: &ClaimUid,
        uid: &AttachmentUid,
        view: &View,
    ) -> Result<(), NotDone> {
        const RPC: Rpc = Rpc::NodeUnpublishVolume;
        let Some(mut stored) = view.stored.get(uid).cloned() else { return Ok(()) };
        let Some(mut recorded) = stored.record.targets.get(claim).cloned() else { return Ok(()) };
        let target = HostPath::recorded(&recorded.path);
        let driver = stored.record.driver_name.clone();
        // A record that says Yes or Maybe already means that the undo is due, and whoever asked for it (deletion, giving
        // back, Lost) cannot take that back. So nothing is written before the call but what can only be seen before it.
        if recorded.published != Done::No {
            let told = stored.record.clone();
            let _turn = self.due_unpublish(claim, &told, &view.seen).turn().await?;
            let ordered = view.claims.get(claim).filter(|c| c.spec.force_detach);
            let by_order = ordered.is_some() || self.is_forced(&stored.record);
            if recorded.covered {
                self.uncover(&mut stored, by_order).await.map_err(|error| in_use(RPC, &error))?;
            }
            if recorded.imprint.is_none() {
                // Of an earlier version, or of a publish that was cut off. An agent that dies in the call must not have
                // the one after it ask who uses nothing.
                recorded.imprint = seen_or_ordered(by_order, imprint::of_whatever(&target).await)?;
                if recorded.imprint.is_some() {
                    stored.record.targets.insert(claim.to_owned(), recorded.clone());
                    self.agent.records.put_or_defer(stored.clone()).await;
                }
            }
            let plugin = self.agent.serving(RPC, &driver).map(|serving| serving.plugin);
            let call = async || match &plugin {
                Ok(plugin) => self.call_unpublish(plugin, &stored.record, &target, claim, view).await,
                Err(failure) => Ok(Err(failure.clone())),
            };
            if let Err(failure) = call().await? {
                // The order to unmount by force does not wait for the driver; the rest of the undo does.
                if !by_order && !self.is_abandoned(view, &stored).await {
                    return Err(failure.into());
                }
                // Rule R4: with a live agent forceDetach is an order to unmount even while busy.
                if let Some(note) = self.detach(&target, &failure, by_order, &stored.record).await?
                    && let Some(claim) = ordered
                {
                    self.agent.recorder.tell(claim, EventReason::Forced, "Unpublish", note);
                }
                if let Err(failure) = call().await? {
                    self.pass_over(&stored.record, &target, failure).await?;
                }
            }
        }
        self.require_unmounted(RPC, &target, "NodeUnpublishVolume").await?;
        // Where nothing was mounted nobody is looked for, and nothing comes after this.
        if recorded.imprint.is_some() {
            self.remove_unless_held(claim, &target, view).await?;
        } else {
            self.remove_target(claim, &target, view).await?;
        }
        stored.record.targets.remove(claim);
        stored.flags_seen.remove(claim);
        stored.leave(claim, &target, recorded.imprint);
        self.went(claim, &stored.record);
        self.agent.records.put_or_defer(stored).await;
        Ok(())
    }

    pub(super) async fn unstage(&mut self, uid: &AttachmentUid, view: &View) -> Result<(), NotDone> {
        const RPC: Rpc = Rpc::NodeUnstageVolume;
        let Some(mut stored) = view.stored.get(uid).cloned() else { return Ok(()) };
        let staging = HostPath::recorded(&stored.record.staging_path);
        let driver = stored.record.driver_name.clone();
        let _turn = self.due(RPC, &driver).turn().await?;
        let by_order = self.is_forced(&stored.record);
        let plugin = match self.agent.serving(RPC, &driver) {
            Err(failure) if !by_order => return Err(failure.into()),
            found => found.map(|serving| serving.plugin),
        };
        let seen = stored.staging_imprint.is_some();
        // The table has all mounts of the node. Where the driver has mounted nothing here, as was looked at after it had staged,
        // another look is enough.
        let has_none = stored.record.staged == Done::Yes
            && stored.staging_device.is_none()
            && matches!(mounts::look(&staging).await, Ok(None));
        if !seen && !has_none {
            stored.staging_imprint = seen_or_ordered(by_order, imprint::of_mount(&staging).await)?;
        }
        if stored.record.staged == Done::Yes || seen != stored.staging_imprint.is_some() {
            // From here on it may be half undone: a claim that comes back has to be staged again.
            stored.record.staged = Done::Maybe;
            let attachment = view.attachments.get(uid);
            if attachment.is_some_and(|a| a.metadata.deletion_timestamp.is_none() && a.spec.lost.is_none()) {
                self.agent.records.put(stored.clone()).await?;
            } else {
                // No claim comes back to it.
                self.agent.records.put_or_defer(stored.clone()).await;
            }
        }
        let call = async || match &plugin {
            Ok(plugin) => self.call_unstage(plugin, &stored.record, &staging, view).await,
            Err(failure) => Ok(Err(failure.clone())),
        };
        let mut called = call().await?;
        // The order may have come while the driver was asked.
        let by_order = self.is_forced(&stored.record);
        if let Err(failure) = &called
            && (by_order || self.is_abandoned(view, &stored).await)
            && self.detach(&staging, failure, by_order, &stored.record).await?.is_some()
        {
            called = call().await?;
        }
        if let Err(failure) = called {
            self.pass_over(&stored.record, &staging, failure).await?;
        }
        self.require_unmounted(RPC, &staging, "NodeUnstageVolume").await?;
        let imprint = stored.staging_imprint.take();
        // With the directory the kernel ends what others have mounted on it, and who has a file open by that is seen by
        // nobody: then it goes with the record. Only a disk tells of them by itself.
        if imprint.as_ref().is_none_or(Imprint::is_whole_disk) {
            self.clear_staging(&staging).await?;
        }
        stored.record.staged = Done::No;
        stored.staging_device = None;
        stored.leave(uid, &staging, imprint);
        stored.staged_once = false;
        self.went(uid, &stored.record);
        self.agent.records.put_or_defer(stored).await;
        Ok(())
    }

    /// The second look (rule R7, trap B19): a stage call that was given up may have finished since.
    pub(super) async fn forget(&mut self, uid: &AttachmentUid, view: &View) -> Result<(), NotDone> {
        let Some(mut stored) = view.stored.get(uid).cloned() else { return Ok(()) };
        let staging = HostPath::recorded(&stored.record.staging_path);
        if mounts::look(&staging).await?.is_some() {
            tracing::warn!(path = %staging, "found mounted after it had been unstaged; unstaging again");
            stored.record.staged = Done::Maybe;
            // Every process looks before it forgets, whatever its disk says.
            self.agent.records.put_or_defer(stored).await;
            self.agent.lost.tell();
            return Ok(());
        }
        self.clear_staging(&staging).await?;
        let was_unreadable = self.agent.records.remove(uid).await;
        if was_unreadable {
            // A file that names no driver is reported for each.
            for instance in self.agent.caches.instances.all() {
                self.agent.queues.instances.add(instance.spec.driver_name.clone());
            }
            self.agent.lost.tell();
        }
        if stored.record.forgotten.is_some() {
            tracing::info!(
                volume = stored.record.volume_handle,
                "what the API server had forgotten is undone"
            );
            self.agent.lost.tell();
        }
        // It may be there for this record only.
        self.agent.queues.instances.add(stored.record.driver_name.clone());
        self.went(uid, &stored.record);
        Ok(())
    }

    /// Unmounts without the driver, whose device may be gone; although it is in use only `by_order`. Returns what was done,
    /// in words; nothing if nothing is mounted there.
    async fn detach(
        &self,
        path: &HostPath,
        failure: &Failure,
        by_order: bool,
        record: &Record,
    ) -> Result<Option<String>, NotDone> {
        if mounts::look(path).await?.is_none() {
            return Ok(None);
        }
        if let Err(error) = mounts::take_off(path, by_order).await {
            let way = format!("{} orders it", way_of_force(record, &self.agent.node_name));
            return Err(if error.says_busy() {
                Failure::busy(path, &way, failure).into()
            } else {
                error.into()
            });
        }
        let note = format!("{path} was unmounted by force after: {failure}");
        tracing::warn!("{note}");
        Ok(Some(note))
    }

    async fn call_unpublish(
        &self,
        plugin: &Plugin,
        record: &Record,
        target: &HostPath,
        claim: &ClaimUid,
        view: &View,
    ) -> Result<Result<(), Failure>, NotDone> {
        let due = self.due_unpublish(claim, record, &view.seen);
        let hidden = self.flags_to_hide(&record.attachment_uid, Some(claim), view);
        let claim = view.claims.get(claim);
        let args = arguments::node_unpublish(record, target, hidden);
        let waiting: Vec<_> = claim.cloned().into_iter().collect();
        let call = plugin.node_unpublish_volume(args);
        let called = self.call(&due, plugin.process(), call, &waiting, Reason::Unpublishing).await?;
        Ok(self.accept(called, record, target).await)
    }

    async fn call_unstage(
        &self,
        plugin: &Plugin,
        record: &Record,
        staging: &HostPath,
        view: &View,
    ) -> Result<Result<(), Failure>, NotDone> {
        let hidden = self.flags_to_hide(&record.attachment_uid, None, view);
        let args = arguments::node_unstage(record, hidden);
        let due = self.due(Rpc::NodeUnstageVolume, &record.driver_name);
        let step = NodeStep::Unstage { attachment: record.attachment_uid.clone() };
        let call = plugin.node_unstage_volume(args);
        let called =
            self.call(&due, plugin.process(), call, &view.waiting_for(&step), Reason::Unstaging).await?;
        Ok(self.accept(called, record, staging).await)
    }

    /// The mount flags of what an undo undoes, also of what has ended since it was read.
    fn flags_to_hide(&self, uid: &AttachmentUid, claim: Option<&ClaimUid>, view: &View) -> Vec<String> {
        let attachment = view.attachments.get(uid).or_else(|| self.live.get(uid)?.as_ref());
        let claim =
            claim.and_then(|uid| view.claims.get(uid).or_else(|| self.live_claims.get(uid)?.as_ref()));
        arguments::flags_to_hide(attachment.map(Arc::as_ref), claim.map(Arc::as_ref))
    }

    /// After a call that failed or that no plugin was there for: the order that does not wait takes the step as undone
    /// once nothing is mounted there, and says so.
    async fn pass_over(&self, record: &Record, path: &HostPath, failure: Failure) -> Result<(), NotDone> {
        let mounted = mounts::look(path).await?.is_some();
        let note = passed_over(record, path, failure, self.is_forced(record), mounted)?;
        tracing::warn!("{note}");
        if let Some(instance) = self.instance(&record.driver_name) {
            self.agent.recorder.tell(&instance, EventReason::Forced, "Undo", note);
        }
        Ok(())
    }

    /// NOT_FOUND counts as undone only with evidence of our own: it is the recorded driver that says so (rule R9,
    /// trap B21), and nothing is mounted.
    async fn accept(
        &self,
        called: Result<(), CallError>,
        record: &Record,
        path: &HostPath,
    ) -> Result<(), Failure> {
        let Err(error) = called else { return Ok(()) };
        if error.meaning() == Meaning::AlreadyGone
            && mounts::look(path).await.is_ok_and(|seen| seen.is_none())
        {
            tracing::info!(driver = record.driver_name, %path, "{error}; nothing is mounted, so it is undone");
            return Ok(());
        }
        Err(Failure::of_undo(&error))
    }

    async fn require_unmounted(&self, rpc: Rpc, path: &HostPath, call: &str) -> Result<(), NotDone> {
        if mounts::look(path).await?.is_none() {
            return Ok(());
        }
        let message = format!("the driver says that {call} is done, and {path} is still mounted");
        Err(Failure::contradicted(Reason::StillMounted, rpc, message).into())
    }

    /// Whether the volume was taken away from this node (rule R4): its Attachment is lost or gone. The device may be gone too,
    /// so that no call of the driver can succeed while the mount is there. Not where the mount may be in proper use. A target
    /// that kubelet has released comes before all looks, so that nobody may have looked in this pass: then the API server is
    /// asked, and what cannot be found out counts as there.
    async fn is_abandoned(&self, view: &View, stored: &Stored) -> bool {
        let uid = &stored.record.attachment_uid;
        if stored.record.forgotten.is_some() {
            return false;
        }
        if let Some(attachment) = view.attachments.get(uid) {
            return attachment.spec.lost.is_some();
        }
        if let Some(live) = view.seen.live(uid) {
            return *live == LiveAttachment::Gone;
        }
        let found = self.agent.get_live::<Attachment>(&stored.record.attachment_name).await;
        found.is_ok_and(|found| found.is_none_or(|found| AttachmentUid::of(&found.metadata) != *uid))
    }

    async fn clear_staging(&self, staging: &HostPath) -> Result<(), HostError> {
        if directories::remove_staging(&self.agent.paths, staging).await? == Left::Content {
            tracing::warn!(path = %staging, "the staging directory is unmounted and not empty; it is kept");
        }
        Ok(())
    }
}

/// What is said of a step that is taken as undone without the driver's word; the failure where it is not.
fn passed_over(
    record: &Record,
    path: &HostPath,
    failure: Failure,
    forced: bool,
    mounted: bool,
) -> Result<String, Failure> {
    if !forced || mounted {
        return Err(failure);
    }
    Ok(format!(
        "{FORCE_UNDO}: nothing is mounted at {path}, and that counts as undone for volume {}; what the driver itself \
         may have left on this node is not undone: {failure}",
        record.volume_handle
    ))
}

/// The imprint by which copies of a mount would be found. An order that waits for no user does not wait for this
/// either.
fn seen_or_ordered(
    ordered: bool,
    seen: Result<Option<Imprint>, HostError>,
) -> Result<Option<Imprint>, HostError> {
    if let (true, Err(error)) = (ordered, &seen) {
        tracing::warn!("its users cannot be found, and it is undone by force all the same: {error}");
        return Ok(None);
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::records::store::tests::stored;
    use crate::api::names::DriverOn;

    /// A driver that was uninstalled, or that fails for ever, would keep the volume from going for ever.
    #[test]
    fn an_order_passes_over_a_driver_when_nothing_is_mounted() {
        let record = stored("a").record;
        let path = HostPath::recorded("/k/staging/a");
        let at = DriverOn { driver: "driver", node: "node-1" };
        let missing = || Failure::plugin_not_running(Rpc::NodeUnstageVolume, at);
        let said = passed_over(&record, &path, missing(), true, false).unwrap();
        for word in ["/k/staging/a", "vol", "node-1", FORCE_UNDO] {
            assert!(said.contains(word), "{word}: {said}");
        }
        assert_eq!(passed_over(&record, &path, missing(), true, true), Err(missing()), "still mounted");
        assert_eq!(passed_over(&record, &path, missing(), false, false), Err(missing()), "not ordered");
    }

    #[test]
    fn only_an_order_goes_on_without_what_its_users_are_found_by() {
        let hangs = || Err(HostError::Hangs("/k/claims/c/target".into()));
        assert!(matches!(seen_or_ordered(true, hangs()), Ok(None)));
        assert!(matches!(seen_or_ordered(false, hangs()), Err(HostError::Hangs(_))));
    }
}
