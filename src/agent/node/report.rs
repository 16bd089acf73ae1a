//! What the node's worker writes into claims and Attachments.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::forgotten::{beside_unreadable, ways_out};

use super::pass::Pass;
use super::view::{View, attachment_of};
use crate::agent::calls::attempt::{Counted, NODE_CALLS, NotDone};
use crate::agent::calls::status::{waits, went};
use crate::agent::host::directories;
use crate::agent::host::paths::HostPath;
use crate::api::claim::VolumeClaimStatus;
use crate::api::conditions::{CallFailure, Desired, READY, Reason, find, patience_left, story};
use crate::api::{
    Attachment, AttachmentState, AttachmentStatus, AttachmentUid, ClaimState, ClaimUid, VolumeClaim,
};
use crate::attachment::node_side::NodeStep;
use crate::claim::ClaimSeen;
use crate::k8s::{ApiError, Next};

impl Pass {
    pub(super) async fn report_ready(
        &self,
        claim: &ClaimUid,
        uid: &AttachmentUid,
        view: &View,
    ) -> Result<(), NotDone> {
        let Some(claim) = view.claims.get(claim) else { return Ok(()) };
        let target = view.stored.get(uid).and_then(|s| s.record.targets.get(&ClaimUid::of(&claim.metadata)));
        let Some(path) = target.map(|t| t.path.clone()) else { return Ok(()) };
        // Where is in status.targetPath.
        let message = format!("mounted on node {}", self.agent.node_name);
        let desired = Desired::new(Reason::Published, message);
        self.report(claim, desired, |status| {
            status.state = ClaimState::Ready;
            status.target_path = Some(path);
            status.boot_id = Some(self.agent.boot_id.clone());
            status.waiting_for = None;
            status.yielded = None;
        })
        .await
    }

    /// The claim was Ready, and its mount is of an earlier boot or gone (rule R8).
    pub(super) async fn report_not_ready(&self, claim: &ClaimUid, view: &View) -> Result<(), NotDone> {
        let Some(claim) = view.claims.get(claim) else { return Ok(()) };
        let uid = ClaimUid::of(&claim.metadata);
        if let Some(mut stored) = view.stored.values().find(|s| s.record.targets.contains_key(&uid)).cloned()
        {
            if let Some(target) = stored.record.targets.get(&uid) {
                let closed =
                    directories::close_parent(&self.agent.paths, &HostPath::recorded(&target.path)).await;
                closed.unwrap_or_else(|error| tracing::warn!("{error}"));
            }
            // What took this mount may have taken the staging too. The other targets are looked at one by one.
            stored.doubt(&uid);
            let attachment = stored.record.attachment_uid.clone();
            self.agent.records.put_or_defer(stored).await;
            self.remove_bare(&uid, &attachment, view).await;
        }
        let desired =
            Desired::new(Reason::Remounting, "the mount is gone, by a reboot or by hand; it is made again");
        self.report(claim, desired, |status| {
            status.state = ClaimState::Taken;
            status.target_path = None;
            status.boot_id = None;
        })
        .await
    }

    /// The claim cannot use its Attachment, and has nothing on it here.
    pub(super) async fn give_back(
        &self,
        claim: &ClaimUid,
        uid: &AttachmentUid,
        view: &View,
    ) -> Result<(), NotDone> {
        let Some(claim) = view.claims.get(claim) else { return Ok(()) };
        let name = claim.spec.assignment.as_ref().map(|a| a.attachment.clone()).unwrap_or_default();
        let desired = Desired::new(
            Reason::Yielded,
            format!(
                "Attachment {name} cannot be used any more, or not by this claim; another one is granted"
            ),
        );
        self.report(claim, desired, |status| {
            status.state = ClaimState::Pending;
            status.yielded = Some(uid.to_owned());
            status.target_path = None;
            status.boot_id = None;
        })
        .await
    }

    pub(super) async fn report_claim_detached(&self, claim: &ClaimUid, view: &View) -> Result<(), NotDone> {
        let Some(claim) = view.claims.get(claim) else { return Ok(()) };
        let message = format!("unmounted from node {}", self.agent.node_name);
        let desired = Desired::new(Reason::NodeDetached, message);
        self.report(claim, desired, |status| {
            status.state = ClaimState::NodeDetached;
            status.target_path = None;
        })
        .await
    }

    /// Writes that a step of a claim went well, with what `change` makes of its status.
    async fn report(
        &self,
        claim: &Arc<VolumeClaim>,
        desired: Desired,
        change: impl FnOnce(&mut VolumeClaimStatus),
    ) -> Result<(), NotDone> {
        let written = self.write_claim(claim, |status, generation, now| {
            change(status);
            went(status, &desired, generation, now);
        });
        Ok(written.await?)
    }

    pub(super) async fn report_detached(&self, uid: &AttachmentUid, view: &View) -> Result<(), NotDone> {
        let Some(attachment) = view.attachments.get(uid) else { return Ok(()) };
        let desired =
            Desired::new(Reason::NodeDetached, format!("unmounted from node {}", self.agent.node_name));
        let mut after = attachment.status.clone().unwrap_or_default();
        after.state = AttachmentState::NodeDetached;
        went(&mut after, &desired, attachment.metadata.generation, Timestamp::now());
        self.agent.writer.update_status(&self.agent.caches.attachments, &**attachment, &after).await?;
        Ok(())
    }

    pub(super) async fn report_failure(
        &self,
        claim: &Arc<VolumeClaim>,
        counted: Counted<'_>,
    ) -> Result<(), ApiError> {
        let leaves = claim.metadata.deletion_timestamp.is_some();
        let also = |status: &mut VolumeClaimStatus| {
            // Of a claim that leaves, the state goes on when the undo is done.
            if leaves {
                status.state = status.state.while_leaving();
            } else if status.state <= ClaimState::Ready {
                status.state = ClaimState::Taken;
            }
            status.waiting_for = None;
        };
        // Deletion raises the generation.
        let still = |fresh: &VolumeClaim| fresh.metadata.generation == claim.metadata.generation;
        self.agent.write_failure(&self.agent.caches.claims, claim, counted, also, still).await
    }

    /// Nothing to do now. Says on claims that have waited for long what they wait for, and when to look again.
    pub(super) async fn rest(&self, view: &View, backing_off: Option<Duration>) -> Next {
        let mut next = backing_off;
        let waits = |c: &&ClaimSeen| {
            if c.deleted {
                c.uses().is_some_and(|uid| view.seen.is_held_up(uid))
            } else {
                c.state < ClaimState::Ready
            }
        };
        for seen in view.seen.claims.iter().filter(waits) {
            let (Some(uid), Some(claim)) = (seen.uses(), view.claims.get(&seen.uid)) else { continue };
            if shows_own_failure(claim) {
                // It says more.
                continue;
            }
            if let Some(left) = left(claim, view.attachments.get(uid)) {
                next = Some(next.map_or(left, |n| n.min(left)));
                continue;
            }
            let other = if seen.deleted { held_up(view, uid) } else { waits_for(view, uid) };
            let wait = self.traces(view, uid).unwrap_or(other);
            self.report_waiting(claim, wait).await;
        }
        next.map_or(Next::Done, Next::After)
    }

    /// The step's call waits for others: says so on the claims that have waited for long.
    pub(super) async fn report_queued(&self, step: &NodeStep, view: &View, not_done: &NotDone) {
        let (driver, node) = (view.driver(step), &self.agent.node_name);
        let message = match not_done {
            NotDone::Busy => format!(
                "waits for its turn: {NODE_CALLS} calls of driver {driver} are running on node {node}, as many as may"
            ),
            NotDone::Unended => format!(
                "a call that moor's agent on node {node} had begun before it was started anew may be running in driver {driver}: none \
                 is made beside it before the driver's process has ended, or {} s have passed",
                self.agent.registry.deadlines().longest().as_secs()
            ),
            NotDone::Failed(_)
            | NotDone::BackingOff(_)
            | NotDone::NotNow
            | NotDone::Api(_)
            | NotDone::Record(_)
            | NotDone::Host(_) => return,
        };
        for claim in view.waiting_for(step) {
            if left(&claim, attachment_of(step).and_then(|uid| view.attachments.get(uid))).is_none() {
                self.report_waiting(&claim, Wait::new(Reason::Queued, message.clone())).await;
            }
        }
    }

    /// A mount of another Attachment that is not undone by itself, and so is in the way (rule R7).
    fn traces(&self, view: &View, uid: &AttachmentUid) -> Option<Wait> {
        let mut others = view.seen.records.iter().filter(|r| r.attachment_uid != *uid && r.has_traces());
        let Some(record) = others.find(|r| r.forgotten.is_some()) else {
            let file = view.seen.unreadable_here.iter().find(|other| *other != uid)?;
            let fixed = &view.attachments.get(uid)?.spec.fixed;
            let all = self.agent.records.unreadable();
            let named = all.iter().any(|u| &u.attachment_uid == file && u.handle_name == fixed.handle_name);
            let message = beside_unreadable(self.agent.driver_here(&fixed.driver_name), file, named);
            return Some(Wait::new(Reason::Forgotten, message));
        };
        let (node, ways_out) = (&self.agent.node_name, ways_out(record, &self.agent.node_name));
        let message = format!(
            "an earlier mount of the volume on node {node} is not accounted for by the API server; {ways_out}"
        );
        Some(Wait::new(Reason::Forgotten, message))
    }

    /// Writes what a claim waits for, if that is news. A failure of this write is not worth a retry.
    pub(super) async fn report_waiting(&self, claim: &Arc<VolumeClaim>, wait: Wait) {
        // A claim may have been written since the pass began: its newest version is in the cache.
        let claim =
            self.agent.caches.claims.by_uid(&ClaimUid::of(&claim.metadata)).unwrap_or_else(|| claim.clone());
        let shown = find(claim.status.iter().flat_map(|s| &s.conditions), READY);
        if shown.is_some_and(|c| c.reason == wait.reason.as_str() && c.message == wait.message) {
            return;
        }
        let leaves = claim.metadata.deletion_timestamp.is_some();
        let written =
            self.write_claim(&claim, |status, generation, now| wait.write(status, leaves, generation, now));
        if let Err(error) = written.await {
            tracing::debug!(claim = claim.metadata.uid, "what it waits for was not written: {error}");
        }
    }

    async fn write_claim(
        &self,
        claim: &Arc<VolumeClaim>,
        change: impl FnOnce(&mut VolumeClaimStatus, Option<i64>, Timestamp),
    ) -> Result<(), ApiError> {
        let mut after = claim.status.clone().unwrap_or_default();
        change(&mut after, claim.metadata.generation, Timestamp::now());
        self.agent.writer.update_status(&self.agent.caches.claims, &**claim, &after).await.map(drop)
    }
}

/// For how long it is not written yet what a claim waits for. Its wait on this node began with the last of what made it wait:
/// the claim, its Attachment, the deletion of one, the loss of its mount.
pub(super) fn left(claim: &VolumeClaim, attachment: Option<&Arc<Attachment>>) -> Option<Duration> {
    let metas = [Some(&claim.metadata), attachment.map(|a| &a.metadata)].into_iter().flatten();
    let times = metas.flat_map(|meta| [meta.creation_timestamp.as_ref(), meta.deletion_timestamp.as_ref()]);
    let ready = find(claim.status.iter().flat_map(|s| &s.conditions), READY);
    let since = times.chain([ready.map(|c| &c.last_transition_time)]).flatten().map(|time| time.0).max()?;
    patience_left(since, Timestamp::now())
}

/// The claim's own call failed last, not the one of its Attachment that it only waits for.
pub(super) fn shows_own_failure(claim: &VolumeClaim) -> bool {
    let Some(status) = &claim.status else { return false };
    let own = |e: &CallFailure| !is_of_controller(e);
    status.last_error.as_deref().is_some_and(own) && status.observed_generation == claim.metadata.generation
}

fn is_of_controller(failure: &CallFailure) -> bool {
    failure.rpc.starts_with("Controller")
}

/// What a claim waits for.
pub(super) struct Wait {
    reason: Reason,
    message: String,
    /// The Attachment whose failure is in the way.
    attaching: Option<AttachmentStatus>,
}

impl Wait {
    pub(super) fn new(reason: Reason, message: String) -> Self {
        Self { reason, message, attaching: None }
    }

    fn write(self, status: &mut VolumeClaimStatus, leaves: bool, generation: Option<i64>, now: Timestamp) {
        // Of a claim that leaves, the state goes on when the undo is done.
        status.state = if leaves { status.state.while_leaving() } else { ClaimState::Taken };
        status.waiting_for = None;
        if let Some(attaching) = self.attaching {
            status.last_error = attaching.last_error;
            status.attempts = attaching.attempts;
            status.next_retry = attaching.next_retry;
        } else if status.last_error.as_deref().is_some_and(is_of_controller) {
            // Attached since.
            (status.last_error, status.attempts, status.next_retry) = (None, None, None);
        }
        waits(status, &Desired { reason: self.reason, message: self.message }, generation, now);
    }
}

/// What a deleted claim waits for of which nothing is left here.
fn held_up(view: &View, uid: &AttachmentUid) -> Wait {
    let name = view.attachments.get(uid).and_then(|a| a.metadata.name.as_deref()).unwrap_or_default();
    let message = format!(
        "waits until an earlier use of the volume on this node is undone, before the volume is detached (Attachment {name})"
    );
    Wait::new(Reason::Unstaging, message)
}

/// What a claim with nothing to do waits for.
fn waits_for(view: &View, uid: &AttachmentUid) -> Wait {
    let Some(attachment) = view.attachments.get(uid) else {
        return Wait::new(Reason::Attaching, "waits for its Attachment".into());
    };
    let status = attachment.status.clone().unwrap_or_default();
    let name = attachment.metadata.name.as_deref().unwrap_or_default();
    if status.state == AttachmentState::Taken && attachment.spec.fixed.attach {
        let by = attachment.spec.controller.as_ref().map(|c| c.agent.clone()).unwrap_or_default();
        let why = story(status.last_error.as_deref(), status.attempts, status.next_retry.as_ref());
        let message = format!(
            "waits until the agent of node {by} has attached the volume (Attachment {name}){}",
            why.map(|why| format!(": {why}")).unwrap_or_default()
        );
        return Wait { reason: Reason::Attaching, message, attaching: Some(status) };
    }
    Wait::new(
        Reason::Staging,
        format!("waits until an earlier use of the volume on this node is undone (Attachment {name})"),
    )
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
