//! CreateSnapshot, DeleteSnapshot, ListSnapshots and GetSnapshot.
//!
//! A snapshot is a copy of the volume's data file. It is made under the volume's lock and its own, and depends on the volume
//! no more when it is there.

use std::collections::BTreeMap;

use super::copy::{self, Cut};
use super::driver::{Call, check_id};
use super::error::Error;
use super::ids::SnapshotId;
use super::room;
use super::snapshot_record::{SnapshotRecord, Time, find, load};
use super::state::{
    LockedSnapshot, SnapshotDir, make_dir, remove_file, remove_tree, sync_parent, write_json,
};
use crate::csi::proto::csi::v1 as wire;
use crate::csi::proto::csi::v1::list_snapshots_response::Entry;
use crate::csi::sizes;

/// The parameter by which a test has a snapshot be ready only some seconds after it was created. All others are kept with
/// the snapshot, and do nothing.
const READY_AFTER: &str = "readyAfterSeconds";
/// Most such seconds.
const LONGEST: u16 = 600;

/// The snapshot as answers describe it.
pub(super) fn describe(snapshot: &SnapshotDir, record: &SnapshotRecord) -> wire::Snapshot {
    wire::Snapshot {
        size_bytes: record.size_bytes,
        snapshot_id: snapshot.id.as_str().to_owned(),
        source_volume_id: record.source_volume_id.clone(),
        creation_time: Some(record.created.timestamp()),
        ready_to_use: record.is_ready(),
        group_snapshot_id: snapshot.id.group().map(|group| group.as_str().to_owned()).unwrap_or_default(),
    }
}

/// CreateSnapshot.
pub(super) fn create(
    call: &Call<'_>,
    request: &wire::CreateSnapshotRequest,
) -> Result<wire::CreateSnapshotResponse, Error> {
    sizes::name("name", &request.name)?;
    check_id("source_volume_id", &request.source_volume_id)?;
    let delay = ready_after(&request.parameters)?;
    let snapshot = call.state().lock_snapshot(SnapshotId::of_name(&request.name))?;
    if let Some(found) = load(&snapshot)? {
        if found.source_volume_id != request.source_volume_id || found.parameters != request.parameters {
            return Err(Error::Different(format!(
                "a snapshot named {:?} exists, of volume {:?} or with other parameters",
                request.name, found.source_volume_id
            )));
        }
        return Ok(wire::CreateSnapshotResponse { snapshot: Some(describe(&snapshot, &found)) });
    }
    // Without snapshot.json there is no snapshot: what is there was being made or deleted when the driver was killed.
    remove_tree(&snapshot.path)?;
    match make(call, request, &snapshot, delay) {
        Ok(record) => Ok(wire::CreateSnapshotResponse { snapshot: Some(describe(&snapshot, &record)) }),
        Err(error) => {
            // The caller may take the error for final, and then nobody deletes what was begun.
            remove_file(&snapshot.record())?;
            remove_tree(&snapshot.path)?;
            snapshot.unlock_for_good()?;
            Err(error)
        }
    }
}

/// Makes a snapshot that does not exist.
fn make(
    call: &Call<'_>,
    request: &wire::CreateSnapshotRequest,
    snapshot: &LockedSnapshot,
    delay: u16,
) -> Result<SnapshotRecord, Error> {
    let (source, size_bytes) = copy::open_volume(call, &request.source_volume_id)?;
    room::check(call, size_bytes)?;
    make_dir(&snapshot.path)?;
    copy::cut(&[Cut { source: &source, lock: &snapshot.lock, to: snapshot.data() }])?;
    sync_parent(&snapshot.data())?;
    let created = Time::now();
    call.step("copied")?;
    let record = SnapshotRecord {
        name: request.name.clone(),
        source_volume_id: request.source_volume_id.clone(),
        size_bytes,
        parameters: request.parameters.clone(),
        created,
        ready: created.after(delay),
    };
    write_json(&snapshot.record(), &record)?;
    Ok(record)
}

/// How many seconds after its creation a snapshot is to be ready.
pub(super) fn ready_after(parameters: &BTreeMap<String, String>) -> Result<u16, Error> {
    let Some(text) = parameters.get(READY_AFTER) else { return Ok(0) };
    text.parse().ok().filter(|seconds| *seconds <= LONGEST).ok_or_else(|| {
        Error::invalid("parameters", format!("{READY_AFTER:?} is a whole number from 0 to {LONGEST}"))
    })
}

/// DeleteSnapshot. What was made from the snapshot has a copy of its own.
pub(super) fn delete(
    call: &Call<'_>,
    request: &wire::DeleteSnapshotRequest,
) -> Result<wire::DeleteSnapshotResponse, Error> {
    let done = Ok(wire::DeleteSnapshotResponse {});
    check_id("snapshot_id", &request.snapshot_id)?;
    let Some(id) = SnapshotId::parse(&request.snapshot_id) else { return done };
    if let Some(group) = id.group() {
        // What is left of a member that does not exist is the group's to clear away.
        return match load(&call.state().snapshot(id))? {
            Some(_) => {
                Err(Error::invalid("snapshot_id", format!("it is deleted with its group {group:?} only")))
            }
            None => done,
        };
    }
    let snapshot = call.state().lock_snapshot(id)?;
    if snapshot.record().exists() {
        remove_file(&snapshot.record())?;
        sync_parent(&snapshot.record())?;
        call.step("forgotten")?;
    }
    remove_tree(&snapshot.path)?;
    snapshot.unlock_for_good()?;
    done
}

/// ListSnapshots. A page's token is the last id on it, so snapshots may come and go between pages.
pub(super) fn list(
    call: &Call<'_>,
    request: &wire::ListSnapshotsRequest,
) -> Result<wire::ListSnapshotsResponse, Error> {
    let most = usize::try_from(request.max_entries)
        .map_err(|_| Error::invalid("max_entries", "must not be negative"))?;
    sizes::text("source_volume_id", &request.source_volume_id)?;
    sizes::text("snapshot_id", &request.snapshot_id)?;
    let after = match request.starting_token.as_str() {
        "" => None,
        token => Some(SnapshotId::parse(token).ok_or(Error::Token)?),
    };
    let all = match request.snapshot_id.as_str() {
        "" => call.state().snapshots()?,
        one => SnapshotId::parse(one).map(|id| call.state().snapshot(id)).into_iter().collect(),
    };
    let source = request.source_volume_id.as_str();
    let mut page = wire::ListSnapshotsResponse::default();
    for snapshot in all.into_iter().filter(|snapshot| Some(&snapshot.id) > after.as_ref()) {
        let Some(record) = load(&snapshot)? else { continue };
        if !source.is_empty() && record.source_volume_id != source {
            continue;
        }
        if most != 0 && page.entries.len() == most {
            let last = page.entries.last().and_then(|entry| entry.snapshot.as_ref());
            page.next_token = last.map(|snapshot| snapshot.snapshot_id.clone()).unwrap_or_default();
            break;
        }
        page.entries.push(Entry { snapshot: Some(describe(&snapshot, &record)) });
    }
    Ok(page)
}

/// GetSnapshot.
pub(super) fn get(
    call: &Call<'_>,
    request: &wire::GetSnapshotRequest,
) -> Result<wire::GetSnapshotResponse, Error> {
    let id = &request.snapshot_id;
    check_id("snapshot_id", id)?;
    let id = SnapshotId::parse(id).ok_or_else(|| Error::NoSnapshot(id.clone()))?;
    let snapshot = call.state().snapshot(id);
    let record = find(&snapshot)?;
    Ok(wire::GetSnapshotResponse { snapshot: Some(describe(&snapshot, &record)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_may_be_ready_later() {
        let ask = |text: &str| ready_after(&BTreeMap::from([(READY_AFTER.to_owned(), text.to_owned())]));
        assert_eq!(ready_after(&BTreeMap::from([("other".to_owned(), "x".to_owned())])).unwrap(), 0);
        assert_eq!((ask("0").unwrap(), ask("600").unwrap()), (0, 600));
        for bad in ["", "601", "-1", "1.5", "soon", "70000"] {
            assert!(matches!(ask(bad), Err(Error::Invalid { .. })), "{bad}");
        }
    }
}
