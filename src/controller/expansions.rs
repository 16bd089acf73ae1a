//! Tells on a Volume which nodes have to follow after it has grown.

use super::context::Context;
use super::observe::Observed;
use super::volumes;
use crate::api::Attachment;
use crate::api::conditions::{EXPANDED, Reason, find, find_as};
use crate::k8s::ApiError;
use crate::volume::on_nodes::{self, OnNode};

/// Keeps the Volume's condition Expanded as its nodes are, while they have to follow.
pub(crate) async fn report(ctx: &Context, seen: &Observed) -> Result<(), ApiError> {
    let Some(volume) = &seen.volume else { return Ok(()) };
    if on_nodes::owed(volume).is_none() {
        return Ok(());
    }
    let own = seen.attachments_seen.iter().zip(&seen.attachments);
    let own = own.filter(|(one, _)| Some(&one.volume_uid) == volume.metadata.uid.as_ref());
    let nodes: Vec<OnNode<'_>> = own
        .map(|(attachment, whole)| {
            let instance = seen.node_instance(&attachment.node).and_then(|i| i.status.as_ref());
            let only_unused = instance.is_some_and(|status| status.capabilities.grows_only_unused());
            OnNode { attachment, failure: failure(whole), only_unused }
        })
        .collect();
    let Some(desired) = on_nodes::condition(volume, &seen.claims_seen, &nodes) else { return Ok(()) };
    let said = volume.status.as_ref().and_then(|status| find(&status.conditions, EXPANDED));
    if said.is_some_and(|said| said.reason == desired.reason.as_str() && said.message == desired.message) {
        return Ok(());
    }
    volumes::record(ctx, volume, &desired, |_| {}).await.map(drop)
}

/// Why the volume has not grown on the Attachment's node, if NodeExpandVolume failed there. Without the number of the attempt:
/// each would be a write more.
fn failure(attachment: &Attachment) -> Option<String> {
    let status = attachment.status.as_ref()?;
    let said = find_as(&status.conditions, EXPANDED, "False")?;
    let error = status.last_error.as_ref().filter(|_| said.reason == Reason::NodeExpandFailed.as_str())?;
    Some(format!("{}: {}: {}", error.rpc, error.code, error.message))
}
