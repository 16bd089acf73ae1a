//! Mounts of volumes that were taken from this node while it was silent (rule R4, trap B8).
//!
//! The node undoes them by its records. Until it has, those volumes must not be attached to it again: what a mount of
//! that time still has to write would go into a volume that others have used since. The agent's Lease says which they
//! are.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::admin::Check;
use crate::agent::context::Agent;
use crate::api::{Attachment, AttachmentUid};
use crate::heartbeat::{Leftovers, Said, Word};
use crate::k8s::{ApiError, read};

/// The fields of an Attachment that this asks for. An Attachment with values that a newer controller has written and
/// this version does not know must not make the LIST of all fail.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = "Attachment")]
struct LeanAttachment {
    metadata: ObjectMeta,
    spec: LeanSpec,
}

#[derive(Clone, Debug, Deserialize)]
struct LeanSpec {
    lost: Option<IgnoredAny>,
}

/// Gives the Lease what the agent has to say: progress, leftovers, forgotten mounts and sockets.
pub(super) struct LeaseWord {
    pub agent: Arc<Agent>,
    pub progress: Check,
}

impl Word for LeaseWord {
    fn progress(&self) -> Result<(), String> {
        (self.progress)()
    }

    async fn catch_up(&self) -> Result<(), ApiError> {
        self.agent.find_lost().await
    }

    fn said(&self, caught_up: bool) -> Said {
        let leftovers = self.agent.leftovers(caught_up);
        self.agent.lost.said.lock().clone_from(&leftovers);
        let (forgotten, sockets) = (self.agent.forgotten_handles(), self.agent.registry.sockets());
        Said { leftovers, forgotten, sockets }
    }

    async fn changed(&self) {
        self.agent.lost.changed().await;
    }
}

impl Agent {
    /// Finds out by a live LIST which Attachments with mounts here are gone or lost. Neither is ever taken back.
    async fn find_lost(&self) -> Result<(), ApiError> {
        let mounted = self.records.of_traces(|record| Some(record.attachment_uid.clone()));
        if mounted.is_empty() {
            return Ok(());
        }
        let live = self.list_here().await?;
        let stands = |uid: &AttachmentUid| {
            live.iter().any(|a| a.metadata.uid.as_deref() == Some(uid.as_str()) && a.spec.lost.is_none())
        };
        let taken: BTreeSet<AttachmentUid> = mounted.into_iter().filter(|uid| !stands(uid)).collect();
        if !taken.is_empty() {
            tracing::warn!(attachments = ?taken, "taken from this node while it was silent; undoing what is left");
        }
        *self.lost.found.lock() = taken;
        Ok(())
    }

    /// UIDs of the Attachments on this node, as etcd has them now.
    pub(super) async fn attachments_here(&self) -> Result<BTreeSet<String>, ApiError> {
        Ok(self.list_here().await?.into_iter().filter_map(|attachment| attachment.metadata.uid).collect())
    }

    async fn list_here(&self) -> Result<Vec<LeanAttachment>, ApiError> {
        let here = format!("spec.nodeName={}", self.node_name);
        read::list_live(&self.api::<LeanAttachment>(), Some(&here)).await
    }

    /// The VolumeHandles with mounts on this node whose Attachment is gone or lost. What the API server has forgotten
    /// is another matter (rule R7).
    fn leftovers(&self, caught_up: bool) -> Leftovers {
        if !caught_up && self.records.any_with_traces(|_| true) {
            return Leftovers::Any;
        }
        let found = self.lost.found.lock();
        let synced = self.caches.attachments.is_synced();
        let gone = |uid: &AttachmentUid| {
            let cached = || self.caches.attachments.by_uid(uid);
            found.contains(uid) || (synced && cached().is_none_or(|a| a.spec.lost.is_some()))
        };
        // The caches are asked without the records' lock.
        let mounted = self.records.of_traces(|record| {
            let uid = record.forgotten.is_none().then(|| record.attachment_uid.clone())?;
            Some((uid, record.handle_name.clone()))
        });
        Leftovers::Of(mounted.into_iter().filter(|(uid, _)| gone(uid)).map(|(_, handle)| handle).collect())
    }

    /// Has the Lease renewed if it names more than there is, after something was undone.
    pub fn review_leftovers(&self) {
        let said = self.lost.said.lock().clone();
        if said != Leftovers::none() && said != Leftovers::Any && self.leftovers(true) != said {
            self.lost.tell();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_attachment_of_another_version_is_read() {
        let read = |spec| {
            serde_json::from_value::<LeanAttachment>(json!({ "metadata": { "uid": "u" }, "spec": spec }))
        };
        assert!(read(json!({ "accessMode": "Unheard" })).unwrap().spec.lost.is_none());
        assert!(read(json!({ "lost": { "reason": "Unheard" } })).unwrap().spec.lost.is_some());
    }
}
