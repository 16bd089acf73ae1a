//! The node's worker: stages, publishes and undoes what claims on this node ask for, one step at a time.
//!
//! A pass works on one VolumeHandle and is the only one that does (the queue hands out a key once): look, ask
//! [`node_side::plan`] for the next step, do it, look again. Live reads belong to the pass.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::pass::Pass;
use super::view::{View, attachment_of, subject};
use crate::agent::calls::attempt::{Counted, NotDone};
use crate::agent::calls::failure::Failure;
use crate::agent::calls::retry::Step;
use crate::agent::context::Agent;
use crate::api::conditions::Reason;
use crate::api::{Attachment, AttachmentUid, ClaimUid, VolumeClaim, VolumeHandle};
use crate::attachment::node_side::{self, NodeStep};
use crate::attachment::{AttachmentSeen, HandleSeen, controller_side};
use crate::k8s::{ApiError, Next, read};

/// After this time a pass ends, and what is left to do is taken up by the next one. A pass that goes on for as long as
/// there are claims would look like a worker that hangs.
const TURN: Duration = Duration::from_secs(30);

impl NotDone {
    /// What stands in the way of a call is shown like a call that failed.
    fn shown(self, step: &NodeStep, node: &str) -> Self {
        match (self, subject(step)) {
            (Self::Record(error), Some((_, rpc))) => Failure::unrecorded(rpc, node, &error).into(),
            (Self::Host(error), Some((_, rpc))) => {
                Failure::local(Reason::NodePathFailed, rpc, error.to_string()).into()
            }
            (not_done, _) => not_done,
        }
    }
}

/// Works on one VolumeHandle until there is nothing to do.
pub(crate) async fn work(agent: Arc<Agent>, handle: String) -> Next {
    let mut pass = Pass {
        term: agent.renewal.term(),
        agent,
        handle,
        live: HashMap::new(),
        live_claims: HashMap::new(),
        live_handle: None,
        revision: None,
    };
    // Between two looks and their steps nobody else calls the driver for this volume.
    let agent = pass.agent.clone();
    let _lane = agent.asked.lane(&pass.handle).await;
    if let Err(error) = pass.agent.records.catch_up(&pass.handle).await {
        tracing::debug!("{error}");
    }
    let started = Instant::now();
    let mut done_last = None;
    while started.elapsed() < TURN {
        let view = match pass.observe().await {
            Ok(view) => view,
            Err(error) => {
                tracing::warn!(handle = pass.handle, "{error}");
                pass.report_unseen(&error).await;
                return Next::Retry;
            }
        };
        let (step, wait) = pass.choose(&view);
        if step == NodeStep::Idle {
            pass.looked();
            return pass.rest(&view, wait).await;
        }
        if done_last.as_ref() == Some(&step) {
            // Whatever it has done is not seen, and would not be seen a thousand times a second either.
            tracing::warn!(handle = pass.handle, ?step, "is due again right after it was done");
            return Next::Retry;
        }
        tracing::debug!(handle = pass.handle, ?step, "next step");
        // Boxed: a thousand passes that only look, as after a restart, stay small.
        let done = Box::pin(pass.act(&step, &view)).await;
        match done.map_err(|not_done| not_done.shown(&step, &pass.agent.node_name)) {
            Ok(()) => done_last = Some(step),
            // There is nowhere to write it, and no step of its own to wait for.
            Err(NotDone::Failed(failure)) if subject(&step).is_none() => {
                tracing::warn!(handle = pass.handle, ?step, "{failure}");
                return Next::Retry;
            }
            Err(NotDone::Failed(failure)) => {
                pass.looked();
                return failure.next(&pass.handle, pass.record_failure(&step, &view, &failure).await);
            }
            Err(not_done) => {
                if matches!(not_done, NotDone::NotNow | NotDone::Unended | NotDone::Busy) {
                    pass.looked();
                }
                pass.report_queued(&step, &view, &not_done).await;
                return not_done.next(&pass.handle);
            }
        }
    }
    Next::Again
}

impl Pass {
    /// What there is to find out about the handle is found out.
    fn looked(&self) {
        self.agent.settling.looked(&self.handle);
        self.agent.review_leftovers();
    }

    /// The next step that is not backing off, and how long the shortest of those that are still waits.
    fn choose(&self, view: &View) -> (NodeStep, Option<Duration>) {
        let mut seen = view.seen.clone();
        let mut shortest: Option<Duration> = None;
        loop {
            let step = node_side::plan(&seen);
            let Some((uid, rpc)) = subject(&step) else { return (step, shortest) };
            let generation = view.generation(&step);
            match self.agent.retries.wait(&Step { uid: &uid, rpc, generation }) {
                None => return (step, shortest),
                Some(left) => {
                    shortest = Some(shortest.map_or(left, |s| s.min(left)));
                    if let NodeStep::Grow { claim: _, attachment } = step {
                        seen.grows_later.push(attachment);
                    } else {
                        seen.backing_off.push(uid);
                    }
                }
            }
        }
    }

    async fn act(&mut self, step: &NodeStep, view: &View) -> Result<(), NotDone> {
        match step {
            NodeStep::Idle => Ok(()),
            NodeStep::Presume { attachment } => self.presume(attachment, view).await,
            NodeStep::ReadClaim { claim } => self.read_claim(claim, view).await,
            NodeStep::ReadAttachment { attachment, name } => self.read_attachment(attachment, name).await,
            NodeStep::ReadHandle { claim, attachment } => self.read_handle(claim, attachment, view).await,
            NodeStep::ReadRevision { attachment: _ } => self.read_revision().await,
            NodeStep::MarkForgotten { attachment, why } => self.mark_forgotten(attachment, *why, view).await,
            NodeStep::Recall { attachment } => self.recall(attachment, view).await,
            NodeStep::ReportNotReady { claim } => self.report_not_ready(claim, view).await,
            NodeStep::Yield { claim, attachment } => self.give_back(claim, attachment, view).await,
            NodeStep::Stage { attachment } => self.stage(attachment, view).await,
            NodeStep::Publish { claim, attachment } => self.publish(claim, attachment, view).await,
            NodeStep::Grow { claim, attachment } => self.grow(claim, attachment, view).await,
            NodeStep::ReportReady { claim, attachment } => {
                self.report_ready(claim, attachment, view).await?;
                // Read again before the first call of the next claim.
                self.live.clear();
                Ok(())
            }
            NodeStep::Unpublish { claim, attachment } => self.unpublish(claim, attachment, view).await,
            NodeStep::FindUsersOfTarget { claim, attachment } => {
                self.find_users(attachment, Some(claim), view).await
            }
            NodeStep::FindUsers { attachment } => self.find_users(attachment, None, view).await,
            NodeStep::Unstage { attachment } => self.unstage(attachment, view).await,
            NodeStep::ReportClaimDetached { claim } => self.report_claim_detached(claim, view).await,
            NodeStep::ReportDetached { attachment } => self.report_detached(attachment, view).await,
            NodeStep::Forget { attachment } => self.forget(attachment, view).await,
        }
    }

    async fn read_claim(&mut self, claim: &ClaimUid, view: &View) -> Result<(), NotDone> {
        let targets = view.stored.values().find_map(|s| s.record.targets.get(claim));
        let Some(target) = targets else { return Ok(()) };
        let api = self.agent.writer.api::<VolumeClaim>(&target.namespace);
        let found = read::get_live(&api, &target.name).await?;
        let same = found.filter(|c| c.metadata.uid.as_deref() == Some(claim.as_str()));
        if let Some(found) = &same {
            self.agent.caches.claims.apply(found.clone());
        } else {
            self.agent.caches.claims.remove_confirmed(claim);
            self.revision = None;
        }
        self.live_claims.insert(claim.to_owned(), same.map(Arc::new));
        Ok(())
    }

    async fn read_attachment(&mut self, attachment: &AttachmentUid, name: &str) -> Result<(), NotDone> {
        let found = self.agent.get_live::<Attachment>(name).await?;
        // A VolumeHandle that was read earlier says nothing about an Attachment that may be younger (rule R3).
        self.live_handle = None;
        let same = found.filter(|a| a.metadata.uid.as_deref() == Some(attachment.as_str()));
        if let Some(found) = &same {
            self.agent.caches.attachments.apply(found.clone());
        } else {
            self.agent.caches.attachments.remove_confirmed(attachment);
            self.revision = None;
        }
        self.live.insert(attachment.to_owned(), same.map(Arc::new));
        Ok(())
    }

    async fn read_handle(
        &mut self,
        claim: &ClaimUid,
        attachment: &AttachmentUid,
        view: &View,
    ) -> Result<(), NotDone> {
        let Some(attachment) = view.attachments.get(attachment) else { return Ok(()) };
        let found = self.agent.get_live::<VolumeHandle>(&attachment.spec.fixed.handle_name).await?;
        self.live_handle = Some((claim.to_owned(), found.as_ref().map(HandleSeen::of)));
        Ok(())
    }

    /// Counts a failure and writes it where people look: on the claims that wait for the step.
    async fn record_failure(&self, step: &NodeStep, view: &View, failure: &Failure) -> Result<(), ApiError> {
        let Some((uid, rpc)) = subject(step) else { return Ok(()) };
        if let NodeStep::Grow { claim: _, attachment } = step {
            return self.report_not_grown(attachment, view, failure).await;
        }
        let driver = view.driver(step);
        let claims = view.waiting_for(step);
        let generation = view.generation(step);
        let attempt = self.agent.count(&Step { uid: &uid, rpc, generation }, failure, &driver, &claims);
        let counted = Counted { failure, attempt, node: &self.agent.node_name };
        told_all(claims.iter().map(|claim| self.report_failure(claim, counted)).collect()).await?;
        // Where no claim is left to show it, the Attachment does, unless its status is the controller instance's to write
        // (rule R6).
        if claims.is_empty() {
            let undoes = !matches!(step, NodeStep::Stage { .. } | NodeStep::Publish { .. });
            if let Some(stored) = attachment_of(step).and_then(|of| view.stored.get(of)).filter(|_| undoes) {
                self.tell_of_undo(&uid, &stored.record, failure);
            }
            let attachment = attachment_of(step).and_then(|uid| view.attachments.get(uid));
            let is_ours = |a: &&Arc<Attachment>| !controller_side::writes_status(&AttachmentSeen::of(a));
            if let Some(attachment) = attachment.filter(is_ours) {
                self.agent.write_failure_on_attachment(attachment, counted).await?;
            }
        }
        Ok(())
    }
}

/// Tells each of them, also when an earlier one cannot be told: until the step is tried again nobody else tells them. Returns
/// the first error.
async fn told_all<E>(all: Vec<impl Future<Output = Result<(), E>>>) -> Result<(), E> {
    let mut first = Ok(());
    for telling in all {
        first = first.and(telling.await);
    }
    first
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[tokio::test]
    async fn who_cannot_be_told_keeps_no_other_from_being_told() {
        let told = RefCell::new(Vec::new());
        let tell = async |claim: u32| {
            told.borrow_mut().push(claim);
            if claim > 1 { Err(format!("claim {claim} has changed")) } else { Ok(()) }
        };
        let all = [1, 2, 3, 4].map(tell).into();
        assert_eq!(told_all(all).await, Err("claim 2 has changed".to_owned()));
        assert_eq!(told.into_inner(), [1, 2, 3, 4]);
    }
}
