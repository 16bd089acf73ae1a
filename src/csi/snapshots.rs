//! The Controller service's calls about snapshots.

use super::channel::Plugin;
use super::error::CallError;
use super::proto::csi::v1 as wire;
use super::redact::Scrub;
use super::rpc::Rpc;
use super::sizes;

impl Plugin {
    /// CreateSnapshot (needs `CREATE_DELETE_SNAPSHOT`). The same name has to come with the same arguments, always. An answer
    /// that is not ready to use is asked for again by the same call.
    ///
    /// Fails with `Origin::Reply`, outcome unknown, if the answer names no snapshot, or one of another volume.
    pub async fn create_snapshot(
        &self,
        request: wire::CreateSnapshotRequest,
    ) -> Result<wire::Snapshot, CallError> {
        sizes::id("source_volume_id", &request.source_volume_id)
            .and_then(|()| sizes::name("name", &request.name))
            .and_then(|()| sizes::map("parameters", &request.parameters))
            .and_then(|()| sizes::map("secrets", &request.secrets))
            .map_err(|error| CallError::argument(Rpc::CreateSnapshot, &error))?;
        let scrub = Scrub::of_flags(&request.secrets, []);
        let answer = self.call(&[&request.source_volume_id, &request.name], &scrub, &request).await?;
        let snapshot = taken(answer.snapshot).map_err(|what| CallError::reply(Rpc::CreateSnapshot, what))?;
        let of = &snapshot.source_volume_id;
        if !of.is_empty() && *of != request.source_volume_id {
            let what = format!("source_volume_id is {of}, which is another volume than was asked for");
            return Err(CallError::reply(Rpc::CreateSnapshot, what));
        }
        Ok(snapshot)
    }

    /// DeleteSnapshot (needs `CREATE_DELETE_SNAPSHOT`). A snapshot that the driver does not know is success.
    pub async fn delete_snapshot(&self, request: wire::DeleteSnapshotRequest) -> Result<(), CallError> {
        sizes::id("snapshot_id", &request.snapshot_id)
            .and_then(|()| sizes::map("secrets", &request.secrets))
            .map_err(|error| CallError::argument(Rpc::DeleteSnapshot, &error))?;
        let scrub = Scrub::of_flags(&request.secrets, []);
        self.call(&[&request.snapshot_id], &scrub, &request).await.map(drop)
    }

    /// ListSnapshots for this one id (needs `LIST_SNAPSHOTS`). None: the driver does not have it.
    ///
    /// Fails with `Origin::Reply` if the answer has another snapshot.
    pub async fn find_snapshot(
        &self,
        request: wire::ListSnapshotsRequest,
    ) -> Result<Option<wire::Snapshot>, CallError> {
        sizes::id("snapshot_id", &request.snapshot_id)
            .and_then(|()| sizes::map("secrets", &request.secrets))
            .map_err(|error| CallError::argument(Rpc::ListSnapshots, &error))?;
        let scrub = Scrub::of_flags(&request.secrets, []);
        let answer = self.call(&[&request.snapshot_id], &scrub, &request).await?;
        let Some(entry) = answer.entries.into_iter().next() else { return Ok(None) };
        let found = taken(entry.snapshot).map_err(|what| CallError::reply(Rpc::ListSnapshots, what))?;
        if found.snapshot_id != request.snapshot_id {
            let what = "it lists another snapshot than the one that was asked for";
            return Err(CallError::reply(Rpc::ListSnapshots, what));
        }
        Ok(Some(found))
    }
}

fn taken(snapshot: Option<wire::Snapshot>) -> Result<wire::Snapshot, String> {
    let snapshot = snapshot.ok_or("snapshot is absent")?;
    sizes::id("snapshot_id", &snapshot.snapshot_id).map_err(|error| error.to_string())?;
    if snapshot.size_bytes < 0 {
        return Err(format!("size_bytes is {}", snapshot.size_bytes));
    }
    Ok(snapshot)
}
