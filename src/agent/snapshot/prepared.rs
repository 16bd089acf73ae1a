//! What a Snapshot's call needs beside the Snapshot.

use crate::agent::calls::attempt::{Due, Means};
use crate::agent::calls::failure::Failure;
use crate::agent::context::Agent;
use crate::api::secrets::SecretName;
use crate::api::{Plugin, Snapshot};
use crate::csi::Rpc;
use crate::snapshot::calls::SnapshotCall;

/// CSI's name of a call.
pub(super) fn rpc_of(call: SnapshotCall, snapshot: &Snapshot) -> Rpc {
    match (call, snapshot.is_group()) {
        (SnapshotCall::Create, false) => Rpc::CreateSnapshot,
        (SnapshotCall::List, false) => Rpc::ListSnapshots,
        (SnapshotCall::Delete, false) => Rpc::DeleteSnapshot,
        (SnapshotCall::Create, true) => Rpc::CreateVolumeGroupSnapshot,
        (SnapshotCall::List, true) => Rpc::GetVolumeGroupSnapshot,
        (SnapshotCall::Delete, true) => Rpc::DeleteVolumeGroupSnapshot,
    }
}

/// What a call needs beside the Snapshot. Gathered before the live reads, because it may take its time.
pub(super) struct Prepared {
    pub(super) means: Means,
    /// The Plugin before the call, so that an answer is never ascribed to one that came after it.
    pub(super) plugin_uid: Option<String>,
}

/// Gathers it.
pub(super) async fn prepare(due: &Due<'_>, snapshot: &Snapshot) -> Result<Prepared, Failure> {
    let namespace = snapshot.metadata.namespace.as_deref().unwrap_or_default();
    let secret = match &snapshot.spec.volume_snapshot_content {
        Some(of) if matches!(due.rpc, Rpc::ListSnapshots | Rpc::GetVolumeGroupSnapshot) => {
            of.list_secret.as_deref().map(SecretName::OfUser)
        }
        Some(_) | None => snapshot.secret(),
    };
    let means = due.means(namespace, secret).await?;
    let plugin_uid = if due.rpc.is_inverse() { None } else { plugin_uid(due.agent, snapshot).await };
    Ok(Prepared { means, plugin_uid })
}

/// UID of the Plugin that has the Snapshot's name for it now.
async fn plugin_uid(agent: &Agent, snapshot: &Snapshot) -> Option<String> {
    let name = snapshot.plugin_name()?;
    if let Some(plugin) = agent.caches.plugins.get(name) {
        return plugin.metadata.uid.clone();
    }
    agent.get_live::<Plugin>(name).await.ok().flatten()?.metadata.uid
}
