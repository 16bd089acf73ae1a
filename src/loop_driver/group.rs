//! CreateVolumeGroupSnapshot, DeleteVolumeGroupSnapshot and GetVolumeGroupSnapshot: snapshots of several volumes, all of one
//! moment.
//!
//! The members are in the group's directory, and exist as long as the group's record does: so they come and go at once. They
//! are listed, and restored from, as any snapshot is.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::copy::{self, Cut};
use super::driver::{Call, check_id};
use super::error::Error;
use super::ids::{GroupId, SnapshotId};
use super::room;
use super::snapshot;
use super::snapshot_record::{self, SnapshotRecord, Time};
use super::state::{
    GroupDir, Locked, make_dir, read_json, remove_file, remove_tree, sync_parent, write_json,
};
use crate::csi::proto::csi::v1 as wire;
use crate::csi::sizes;

/// The content of `group.json`: a group of snapshots that exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GroupRecord {
    name: String,
    source_volume_ids: BTreeSet<String>,
    parameters: BTreeMap<String, String>,
    created: Time,
    ready: Time,
}

fn load(group: &GroupDir) -> Result<Option<GroupRecord>, Error> {
    read_json(&group.record())
}

fn describe(
    call: &Call<'_>,
    group: &GroupDir,
    record: &GroupRecord,
) -> Result<wire::VolumeGroupSnapshot, Error> {
    let mut snapshots = Vec::new();
    for member in call.state().members(group)? {
        let found = snapshot_record::load(&member)?;
        snapshots.extend(found.map(|record| snapshot::describe(&member, &record)));
    }
    Ok(wire::VolumeGroupSnapshot {
        group_snapshot_id: group.id.as_str().to_owned(),
        snapshots,
        creation_time: Some(record.created.timestamp()),
        ready_to_use: record.ready <= Time::now(),
    })
}

/// CreateVolumeGroupSnapshot.
pub(super) fn create(
    call: &Call<'_>,
    request: &wire::CreateVolumeGroupSnapshotRequest,
) -> Result<wire::CreateVolumeGroupSnapshotResponse, Error> {
    const SOURCES: &str = "source_volume_ids";
    sizes::name("name", &request.name)?;
    if request.source_volume_ids.is_empty() {
        return Err(Error::Missing(SOURCES));
    }
    request.source_volume_ids.iter().try_for_each(|id| check_id(SOURCES, id))?;
    let sources: BTreeSet<String> = request.source_volume_ids.iter().cloned().collect();
    if sources.len() != request.source_volume_ids.len() {
        return Err(Error::invalid(SOURCES, "names a volume twice"));
    }
    let delay = snapshot::ready_after(&request.parameters)?;
    let group = call.state().lock_group(GroupId::of_name(&request.name))?;
    let record = match load(&group)? {
        Some(found) if found.source_volume_ids == sources && found.parameters == request.parameters => found,
        Some(_) => {
            return Err(Error::Different(format!(
                "a group named {:?} exists, of other volumes or with other parameters",
                request.name
            )));
        }
        None => {
            // Without group.json there is no group: what is there was being made or deleted when the driver was killed.
            remove_tree(&group.path)?;
            match make(call, request, sources, &group, delay) {
                Ok(record) => record,
                Err(error) => {
                    // The caller may take the error for final, and then nobody deletes what was begun.
                    remove_file(&group.record())?;
                    remove_tree(&group.path)?;
                    group.unlock_for_good()?;
                    return Err(error);
                }
            }
        }
    };
    let group_snapshot = Some(describe(call, &group, &record)?);
    Ok(wire::CreateVolumeGroupSnapshotResponse { group_snapshot })
}

/// Makes a group that does not exist. The volumes are locked in the order of their ids, so that two groups of the same
/// volumes do not wait for each other.
fn make(
    call: &Call<'_>,
    request: &wire::CreateVolumeGroupSnapshotRequest,
    sources: BTreeSet<String>,
    group: &Locked<GroupDir>,
    delay: u16,
) -> Result<GroupRecord, Error> {
    let opened = sources.iter().map(|id| copy::open_volume(call, id)).collect::<Result<Vec<_>, _>>()?;
    let bytes = opened.iter().fold(0_i64, |sum, (_, bytes)| sum.saturating_add(*bytes));
    room::check(call, bytes)?;
    let member = |id| call.state().snapshot(SnapshotId::of_member(&group.id, id));
    let mut cuts = Vec::new();
    for (source, _) in &opened {
        let member = member(&source.id);
        make_dir(&member.path)?;
        cuts.push(Cut { source, lock: &group.lock, to: member.data() });
    }
    copy::cut(&cuts)?;
    let created = Time::now();
    call.step("copied")?;
    let ready = created.after(delay);
    for (source, size_bytes) in &opened {
        let member = member(&source.id);
        let record = SnapshotRecord {
            name: request.name.clone(),
            source_volume_id: source.id.as_str().to_owned(),
            size_bytes: *size_bytes,
            parameters: request.parameters.clone(),
            created,
            ready,
        };
        // With that the data file, which is beside it, is on disk too.
        write_json(&member.record(), &record)?;
        sync_parent(&member.path)?;
    }
    call.step("members")?;
    let parameters = request.parameters.clone();
    let record =
        GroupRecord { name: request.name.clone(), source_volume_ids: sources, parameters, created, ready };
    write_json(&group.record(), &record)?;
    Ok(record)
}

/// DeleteVolumeGroupSnapshot. Who names other members than there are has another group in mind.
pub(super) fn delete(
    call: &Call<'_>,
    request: &wire::DeleteVolumeGroupSnapshotRequest,
) -> Result<wire::DeleteVolumeGroupSnapshotResponse, Error> {
    let done = Ok(wire::DeleteVolumeGroupSnapshotResponse {});
    check_id("group_snapshot_id", &request.group_snapshot_id)?;
    let Some(id) = GroupId::parse(&request.group_snapshot_id) else { return done };
    let group = call.state().lock_group(id)?;
    let members = call.state().members(&group)?;
    if group.record().exists() {
        check_members(&members.iter().map(|member| &member.id).collect(), &request.snapshot_ids)?;
    }
    // Nobody restores from a member meanwhile.
    let held = members.into_iter().map(|member| call.state().lock_snapshot(member.id));
    let held = held.collect::<Result<Vec<_>, _>>()?;
    if group.record().exists() {
        remove_file(&group.record())?;
        sync_parent(&group.record())?;
        call.step("forgotten")?;
    }
    remove_tree(&group.path)?;
    held.into_iter().try_for_each(Locked::unlock_for_good)?;
    group.unlock_for_good()?;
    done
}

/// GetVolumeGroupSnapshot.
pub(super) fn get(
    call: &Call<'_>,
    request: &wire::GetVolumeGroupSnapshotRequest,
) -> Result<wire::GetVolumeGroupSnapshotResponse, Error> {
    let id = &request.group_snapshot_id;
    check_id("group_snapshot_id", id)?;
    let missing = || Error::NoGroup(id.clone());
    let group = call.state().group(GroupId::parse(id).ok_or_else(missing)?);
    let record = load(&group)?.ok_or_else(missing)?;
    let members = call.state().members(&group)?;
    check_members(&members.iter().map(|member| &member.id).collect(), &request.snapshot_ids)?;
    let group_snapshot = Some(describe(call, &group, &record)?);
    Ok(wire::GetVolumeGroupSnapshotResponse { group_snapshot })
}

/// Checks that a call names exactly the members that a group has.
fn check_members(members: &BTreeSet<&SnapshotId>, named: &[String]) -> Result<(), Error> {
    let members: BTreeSet<&str> = members.iter().map(|id| id.as_str()).collect();
    if named.iter().map(String::as_str).collect::<BTreeSet<_>>() == members {
        return Ok(());
    }
    Err(Error::invalid("snapshot_ids", "are not those of the group's members"))
}
