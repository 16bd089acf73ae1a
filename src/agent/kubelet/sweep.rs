//! Pods' claims that kubelet has forgotten, or whose end this agent has: of each kubelet's own folder of the Pod is gone, and
//! nothing is mounted. kubelet keeps the folder for as long as it has anything of the Pod's volumes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::target::{self, PODS, Target};
use crate::agent::context::Agent;
use crate::agent::host::directories;
use crate::agent::host::error::HostError;
use crate::agent::host::mounts;
use crate::agent::host::paths::HostPath;
use crate::api::{ClaimUid, VolumeClaim};

/// Time between two looks. A claim goes after two that found the same.
const LOOK: Duration = Duration::from_secs(10);

/// Sweeps for as long as the agent runs.
pub(crate) async fn run(agent: Arc<Agent>) {
    let mut before = BTreeSet::new();
    loop {
        sleep(LOOK).await;
        before = sweep(&agent, &before).await;
    }
}

/// One look. Claims that the one before has found abandoned, too, are released. Returns what this one has found.
async fn sweep(agent: &Agent, before: &BTreeSet<ClaimUid>) -> BTreeSet<ClaimUid> {
    let mut found = BTreeSet::new();
    for claim in agent.caches.claims.all() {
        if !is_open(agent, &claim) {
            continue;
        }
        match is_abandoned(agent, &claim).await {
            Ok(true) => {
                found.insert(ClaimUid::of(&claim.metadata));
            }
            Ok(false) => {}
            Err(error) => tracing::warn!("{error}; whether its Pod is gone is looked at again"),
        }
    }
    for uid in found.intersection(before) {
        // Live again: a call may have come while it looked.
        let Some(claim) = agent.caches.claims.by_uid(uid).filter(|claim| is_open(agent, claim)) else {
            continue;
        };
        let name = claim.metadata.name.clone().unwrap_or_default();
        tracing::info!(
            claim = name,
            "its Pod has no folder any more and nothing is mounted; the claim is deleted"
        );
        let handle = claim.spec.assignment.as_ref().map(|assignment| assignment.handle_name.clone());
        agent.asked.release(&name, &handle.unwrap_or_default());
        agent.queues.releases.add(name);
    }
    found
}

/// Whether a claim is a Pod's of this node, and neither kubelet nor anybody else is at ending or making it.
fn is_open(agent: &Agent, claim: &VolumeClaim) -> bool {
    let is_ours = claim.spec.pod.is_some() && claim.spec.node_name.as_deref() == Some(&agent.node_name);
    let uid = ClaimUid::of(&claim.metadata);
    is_ours && claim.metadata.deletion_timestamp.is_none() && agent.asked.call(&uid).is_none()
}

async fn is_abandoned(agent: &Agent, claim: &VolumeClaim) -> Result<bool, HostError> {
    let Some(pod) = &claim.spec.pod else { return Ok(false) };
    let kubelet = agent.paths.kubelet();
    // A claim that says nothing of kubelet's is none of a Pod that could come.
    let Some(target) = Target::of(kubelet.as_path(), pod, claim.spec.attachment_mode) else {
        return Ok(!is_recorded(agent, claim));
    };
    // A kubelet's directory that is not mounted shows no Pod at all.
    let pods = HostPath::recorded(&kubelet.as_path().join(PODS).to_string_lossy());
    let folder = target::folder_of(kubelet.as_path(), &pod.uid);
    let folder = HostPath::recorded(&folder.to_string_lossy());
    if !directories::is_there(&pods).await? || directories::is_there(&folder).await? {
        return Ok(false);
    }
    Ok(mounts::look(&target.path).await?.is_none())
}

/// Whether anything may be on the node for a claim.
fn is_recorded(agent: &Agent, claim: &VolumeClaim) -> bool {
    let uid = ClaimUid::of(&claim.metadata);
    agent.records.any_with_traces(|stored| stored.record.targets.contains_key(&uid))
}
