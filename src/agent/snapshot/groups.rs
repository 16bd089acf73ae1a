//! The calls about snapshots of several volumes at one moment.

use super::answers::{Answer, Failed, is_as_before, not_there};
use super::prepared::Prepared;
use crate::agent::calls::attempt::Due;
use crate::agent::calls::failure::Failure;
use crate::api::Snapshot;
use crate::api::conditions::Reason;
use crate::api::names::create_name;
use crate::csi::proto::csi::v1 as wire;
use crate::csi::{Origin, Secrets};
use tonic::Code;

/// CreateVolumeGroupSnapshot.
pub(super) async fn create(due: &Due<'_>, snapshot: &Snapshot, with: Prepared) -> Result<Answer, Failed> {
    let of = snapshot.spec.assignment.iter().flat_map(|assignment| &assignment.volumes);
    let request = wire::CreateVolumeGroupSnapshotRequest {
        name: create_name(snapshot.spec.create_name.as_deref(), snapshot.metadata.uid.as_deref()),
        source_volume_ids: of.map(|of| of.volume_handle.clone()).collect(),
        secrets: with.means.secrets,
        parameters: snapshot.spec.parameters.clone(),
    };
    let plugin = &with.means.serving.plugin;
    let called = due.call_controller(plugin, plugin.create_group_snapshot(request)).await;
    let there = called.map_err(|error| (Failure::of_call(&error), Some(error)))?;
    is_as_before(due, snapshot, &there.group_snapshot_id)?;
    // A group stands for its members too: nothing is made of others, and no others are deleted.
    let known = snapshot.spec.assignment.iter().flat_map(|assignment| &assignment.members);
    if let Some((known, _)) =
        known.zip(&there.snapshots).find(|(k, now)| k.snapshot_handle != now.snapshot_id)
    {
        let what = format!(
            "the driver has answered the same {} with the member {} before and without it now; look at the driver",
            due.rpc, known.snapshot_handle
        );
        return Err((Failure::bad_answer(Reason::AnswerRefused, due.rpc, what), None));
    }
    Ok(Answer::Group(there, with.plugin_uid))
}

/// GetVolumeGroupSnapshot of the group that is registered.
pub(super) async fn get(due: &Due<'_>, snapshot: &Snapshot, with: Prepared) -> Result<Answer, Failed> {
    let id = snapshot.spec.snapshot_handle.clone().unwrap_or_default();
    let request = wire::GetVolumeGroupSnapshotRequest {
        group_snapshot_id: id.clone(),
        snapshot_ids: snapshot.spec.member_handles.clone(),
        secrets: with.means.secrets,
    };
    let plugin = &with.means.serving.plugin;
    match due.call_controller(plugin, plugin.get_group_snapshot(request)).await {
        Ok(there) => Ok(Answer::Group(there, with.plugin_uid)),
        Err(error) if error.origin == Origin::Driver && error.code == Code::NotFound => {
            let what = format!(
                "the driver has no group {id}; delete this Snapshot and create one with the right handle"
            );
            Err(not_there(due, what))
        }
        Err(error) => Err((Failure::of_call(&error), Some(error))),
    }
}

/// What DeleteVolumeGroupSnapshot is called with: the members are those that no other Snapshot stands for.
pub(super) fn delete_request(
    snapshot: &Snapshot,
    group_snapshot_id: String,
    secrets: Secrets,
) -> wire::DeleteVolumeGroupSnapshotRequest {
    let members = snapshot.spec.assignment.iter().flat_map(|assignment| &assignment.members);
    wire::DeleteVolumeGroupSnapshotRequest {
        group_snapshot_id,
        snapshot_ids: members.map(|member| member.snapshot_handle.clone()).collect(),
        secrets,
    }
}
