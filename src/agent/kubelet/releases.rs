//! Deletes the claims of Pods that kubelet has unpublished, after it was answered.

use std::sync::Arc;

use crate::agent::context::Agent;
use crate::api::VolumeClaim;
use crate::k8s::Next;

/// Deletes the claim of this name. While the API server is away it is tried again; an agent that starts anew in between
/// finds by the Pod's directory that nobody needs the claim ([`super::sweep`]).
pub(crate) async fn work(agent: Arc<Agent>, name: String) -> Next {
    let is_named =
        |claim: &Arc<VolumeClaim>| claim.spec.pod.is_some() && claim.metadata.name.as_deref() == Some(&name);
    let claim = agent.caches.claims.all().into_iter().find(is_named);
    if let Some(claim) = claim.filter(|claim| claim.metadata.deletion_timestamp.is_none())
        && let Err(error) = agent.writer.delete_in(&agent.caches.claims, &*claim).await
    {
        tracing::warn!("{error}");
        return error.next();
    }
    // By now the claim itself says it. A call that waits for the next claim of this name is looked at again.
    if let Some(released) = agent.asked.deleted(&name).filter(|released| !released.handle.is_empty()) {
        agent.queues.nodes.add(released.handle);
    }
    Next::Done
}
