//! NodeExpandVolume for claims: a volume that was made larger is to be as large where it is used. kubelet's own call for Pods is
//! in `agent/kubelet/expand.rs`; both have the volume's lane, so neither is made beside the other.

use std::sync::Arc;

use super::pass::Pass;
use super::view::View;
use crate::agent::calls::arguments;
use crate::agent::calls::attempt::{Counted, Means, NotDone};
use crate::agent::calls::failure::Failure;
use crate::agent::calls::retry::Step;
use crate::agent::calls::status::went;
use crate::agent::host::paths::HostPath;
use crate::api::conditions::{Desired, Reason};
use crate::api::secrets::SecretFor;
use crate::api::{Attachment, AttachmentStatus, AttachmentUid, ClaimState, ClaimUid, VolumeClaim, quantity};
use crate::attachment::AttachmentSeen;
use crate::claim::ClaimSeen;
use crate::csi::Rpc;
use crate::csi::capability::NodeCapability;
use crate::csi::proto::csi::v1::CapacityRange;
use crate::k8s::ApiError;

impl Pass {
    /// Makes the call at the target of a claim, and writes that it was made. A driver that has none has nothing to do.
    pub(super) async fn grow(
        &self,
        claim: &ClaimUid,
        uid: &AttachmentUid,
        view: &View,
    ) -> Result<(), NotDone> {
        const RPC: Rpc = Rpc::NodeExpandVolume;
        let (Some(attachment), Some(stored)) = (view.attachments.get(uid), view.stored.get(uid)) else {
            return Ok(());
        };
        let (Some(bytes), Some(target)) =
            (attachment.spec.node_capacity_bytes, stored.record.targets.get(claim))
        else {
            return Ok(());
        };
        let due = self.due(RPC, &attachment.spec.fixed.driver_name);
        let _turn = due.turn().await?;
        let secret = attachment.secret(SecretFor::NodeExpand);
        let Means { serving, secrets, .. } = due.means(&attachment.spec.volume.namespace, secret).await?;
        let has_it = serving.fingerprint.capabilities.node_has(NodeCapability::ExpandVolume.as_str_name());
        if has_it {
            let range = CapacityRange { required_bytes: bytes, limit_bytes: 0 };
            let staging = HostPath::recorded(&stored.record.staging_path);
            let target = HostPath::recorded(&target.path);
            let args = arguments::node_expand(attachment, &staging, &target, Some(range), secrets);
            let call = serving.plugin.node_expand_volume(args);
            let waits = |claim: &&Arc<VolumeClaim>| ClaimSeen::of(claim).state < ClaimState::Ready;
            let waiting: Vec<_> = view.claims.get(claim).filter(waits).cloned().into_iter().collect();
            let process = serving.plugin.process();
            let called = self.call(&due, process, call, &waiting, Reason::Publishing).await?;
            // What the driver says of the size is not asked of it: a file system is smaller than its device.
            called.map_err(|error| Failure::of_call(&error))?;
        }
        self.report_grown(attachment, bytes, has_it).await?;
        self.agent.retries.ended(&Step::of(&**attachment, RPC));
        Ok(())
    }

    async fn report_grown(
        &self,
        attachment: &Arc<Attachment>,
        bytes: i64,
        called: bool,
    ) -> Result<(), ApiError> {
        let (size, node) = (quantity::human(bytes), &self.agent.node_name);
        let message = if called {
            format!("the volume has {size} on node {node}")
        } else {
            format!("the driver has no NodeExpandVolume on node {node}, so nothing is left to do there")
        };
        let desired = Desired::new(Reason::Expanded, message);
        let change = |status: &mut AttachmentStatus, generation, now| {
            status.node_capacity_bytes = Some(bytes);
            went(status, &desired, generation, now);
        };
        let cache = &self.agent.caches.attachments;
        self.agent.write_outcome(cache, attachment, change, may_be_told).await
    }

    /// Counts a failure and writes it on the Attachment, whose claims go on as they are.
    pub(super) async fn report_not_grown(
        &self,
        uid: &AttachmentUid,
        view: &View,
        failure: &Failure,
    ) -> Result<(), ApiError> {
        let Some(attachment) = view.attachments.get(uid) else { return Ok(()) };
        // Also where it was not made: the Attachment is Ready all the same.
        let failure = &Failure { reason: Reason::NodeExpandFailed, ..failure.clone() };
        let step = Step::of(&**attachment, Rpc::NodeExpandVolume);
        let driver = &attachment.spec.fixed.driver_name;
        let attempt = self.agent.count(&step, failure, driver, std::slice::from_ref(attachment));
        let counted = Counted { failure, attempt, node: &self.agent.node_name };
        let cache = &self.agent.caches.attachments;
        let still = |fresh: &Attachment| {
            may_be_told(fresh) && fresh.spec.node_capacity_bytes == attachment.spec.node_capacity_bytes
        };
        self.agent.write_failure(cache, attachment, counted, |_| {}, still).await
    }

    /// Whether the driver here says that it makes volumes larger only while nobody uses them. It is asked where one is to be.
    pub(super) fn grows_only_unused(&self, view: &View) -> bool {
        let due = view.attachments.values().find(|one| AttachmentSeen::of(one).growth.is_due());
        let driver = due.map(|one| &one.spec.fixed.driver_name);
        let serving = driver.and_then(|driver| self.agent.serving(Rpc::NodeExpandVolume, driver).ok());
        serving.is_some_and(|serving| serving.fingerprint.capabilities.grows_only_unused())
    }
}

/// Whether the Attachment's status is this node's to write: nobody undoes it.
fn may_be_told(attachment: &Attachment) -> bool {
    AttachmentSeen::of(attachment).is_usable()
}
