//! The Controller service's calls about snapshots.

use std::collections::BTreeSet;

use super::channel::Plugin;
use super::error::CallError;
use super::pages::{Listed, Listing, OVERHEAD, Page, list};
use super::proto::csi::v1 as wire;
use super::proto::csi::v1::list_snapshots_response::Entry;
use super::redact::Scrub;
use super::rpc::Rpc;
use super::secrets::Secrets;
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

    /// ListSnapshots (needs `LIST_SNAPSHOTS`) of all that there are, all pages, of at most `page_size` snapshots each. Keeps those
    /// that `pick` wants. As with [`Self::list_volumes`], absence proves nothing.
    ///
    /// Fails with `Origin::Reply` if the listing does not end, or says more than can be kept.
    pub async fn list_snapshots<M>(
        &self,
        page_size: u32,
        secrets: &Secrets,
        pick: impl Fn(&wire::Snapshot) -> Option<M>,
    ) -> Result<Listing<M>, CallError> {
        sizes::map("secrets", secrets).map_err(|error| CallError::argument(Rpc::ListSnapshots, &error))?;
        let scrub = Scrub::of_flags(secrets, []);
        let page = |token: String| self.page_of_snapshots(page_size, token, (secrets, &scrub));
        let take_in = |listing: &mut Listing<M>, entry: Entry| {
            let snapshot = entry.snapshot.ok_or("an entry without snapshot")?;
            if snapshot.snapshot_id.is_empty() {
                return Err("an entry with an empty snapshot_id");
            }
            let Some(mark) = pick(&snapshot) else { return Ok(0) };
            let (kept, bytes) = (snapshot.snapshot_id.len() + OVERHEAD, snapshot.size_bytes.max(0));
            listing.insert(
                snapshot.snapshot_id,
                Listed { mark, bytes, nodes: BTreeSet::new(), condition: None },
            );
            Ok(kept)
        };
        list(Rpc::ListSnapshots, page, take_in).await
    }

    /// One page, from `starting_token` on (empty: from the start).
    async fn page_of_snapshots(
        &self,
        max_entries: u32,
        starting_token: String,
        (secrets, scrub): (&Secrets, &Scrub),
    ) -> Result<Page<Entry>, CallError> {
        let request = wire::ListSnapshotsRequest {
            max_entries: i32::try_from(max_entries).unwrap_or(i32::MAX),
            starting_token,
            secrets: secrets.clone(),
            ..wire::ListSnapshotsRequest::default()
        };
        let answer = self.call(&[], scrub, &request).await?;
        Ok((answer.entries, answer.next_token))
    }
}

/// A snapshot that an answer names, checked.
pub(super) fn taken(snapshot: Option<wire::Snapshot>) -> Result<wire::Snapshot, String> {
    let snapshot = snapshot.ok_or("snapshot is absent")?;
    sizes::id("snapshot_id", &snapshot.snapshot_id).map_err(|error| error.to_string())?;
    if snapshot.size_bytes < 0 {
        return Err(format!("size_bytes is {}", snapshot.size_bytes));
    }
    Ok(snapshot)
}
