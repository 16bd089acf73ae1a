//! Makes a Snapshot's call, of one volume or of several.

use super::answers::{Answer, Failed};
use super::prepared::Prepared;
use super::{groups, single};
use crate::agent::calls::attempt::{Due, Means};
use crate::agent::calls::failure::Failure;
use crate::agent::calls::not_found::{self, Earlier};
use crate::api::Snapshot;
use crate::csi::proto::csi::v1 as wire;
use crate::snapshot::calls::SnapshotCall;

/// Makes the call.
pub(super) async fn call(
    due: &Due<'_>,
    snapshot: &Snapshot,
    call: SnapshotCall,
    with: Prepared,
) -> Result<Answer, Failed> {
    match (call, snapshot.is_group()) {
        (SnapshotCall::Create, false) => single::create(due, snapshot, with).await,
        (SnapshotCall::Create, true) => groups::create(due, snapshot, with).await,
        (SnapshotCall::List, false) => single::list(due, snapshot, with).await,
        (SnapshotCall::List, true) => groups::get(due, snapshot, with).await,
        (SnapshotCall::Delete, _) => delete(due, snapshot, with).await.map(Answer::Deleted),
    }
}

/// DeleteSnapshot, or DeleteVolumeGroupSnapshot. Returns what it went without, in words.
async fn delete(due: &Due<'_>, snapshot: &Snapshot, with: Prepared) -> Result<Option<String>, Failed> {
    let Means { serving, secrets, note } = with.means;
    let Some(snapshot_id) = snapshot.handle().map(str::to_owned) else {
        return Err((Failure::arguments(due.rpc, &"the Snapshot has no handle"), None));
    };
    let plugin = &serving.plugin;
    let called = if snapshot.is_group() {
        let request = groups::delete_request(snapshot, snapshot_id, secrets);
        due.call_controller(plugin, plugin.delete_group_snapshot(request)).await
    } else {
        let request = wire::DeleteSnapshotRequest { snapshot_id, secrets };
        due.call_controller(plugin, plugin.delete_snapshot(request)).await
    };
    let Err(error) = called else { return Ok(note) };
    let uid = snapshot.status.as_ref().and_then(|s| s.plugin_uid.as_deref());
    let plugin = snapshot.plugin_name().unwrap_or_default();
    let earlier = Earlier { plugin, uid, done: "taken", undone: "deleted" };
    not_found::unless_gone(due.agent, error, earlier, note.as_deref()).await.map(|()| note)
}
