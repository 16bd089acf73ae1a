//! The calls about a snapshot of one volume.

use super::answers::{Answer, Failed, is_as_before, not_there};
use super::prepared::Prepared;
use crate::agent::calls::attempt::Due;
use crate::agent::calls::failure::Failure;
use crate::api::Snapshot;
use crate::api::names::create_name;
use crate::csi::proto::csi::v1 as wire;

/// CreateSnapshot.
pub(super) async fn create(due: &Due<'_>, snapshot: &Snapshot, with: Prepared) -> Result<Answer, Failed> {
    let Some(of) = snapshot.spec.assignment.as_ref().and_then(|assignment| assignment.volume.as_ref()) else {
        return Err((Failure::arguments(due.rpc, &"spec.assignment names no volume"), None));
    };
    let request = wire::CreateSnapshotRequest {
        source_volume_id: of.volume_handle.clone(),
        name: create_name(snapshot.spec.create_name.as_deref(), snapshot.metadata.uid.as_deref()),
        secrets: with.means.secrets,
        parameters: snapshot.spec.parameters.clone(),
    };
    let plugin = &with.means.serving.plugin;
    let called = due.call_controller(plugin, plugin.create_snapshot(request)).await;
    let there = called.map_err(|error| (Failure::of_call(&error), Some(error)))?;
    is_as_before(due, snapshot, &there.snapshot_id)?;
    Ok(Answer::There(there, with.plugin_uid))
}

/// ListSnapshots for the one that is registered.
pub(super) async fn list(due: &Due<'_>, snapshot: &Snapshot, with: Prepared) -> Result<Answer, Failed> {
    let id = snapshot.spec.snapshot_handle.clone().unwrap_or_default();
    let serving = &with.means.serving;
    if !serving.fingerprint.capabilities.controller_has("LIST_SNAPSHOTS") {
        return Ok(Answer::Unasked(with.plugin_uid));
    }
    let request = wire::ListSnapshotsRequest {
        snapshot_id: id.clone(),
        secrets: with.means.secrets,
        ..wire::ListSnapshotsRequest::default()
    };
    let plugin = &serving.plugin;
    let called = due.call_controller(plugin, plugin.find_snapshot(request)).await;
    let found = called.map_err(|error| (Failure::of_call(&error), Some(error)))?;
    found.map(|there| Answer::There(there, with.plugin_uid)).ok_or_else(|| {
        let what = format!(
            "the driver lists no snapshot {id}; delete this Snapshot and create one with the right handle"
        );
        not_there(due, what)
    })
}
