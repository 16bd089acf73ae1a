//! What is said on a VolumeSnapshotContent: the Snapshot's words, in those of csi-snapshotter.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::volume_snapshots::{ContentError, ContentStatus, VolumeSnapshotContent};
use crate::api::conditions::{READY, Reason, find};
use crate::api::{Snapshot, SnapshotState};

const NANOSECONDS: i64 = 1_000_000_000;

/// What the content says by now of its Snapshot. Handle, moment and size stay as they were first said.
pub(super) fn of(content: &VolumeSnapshotContent, snapshot: &Snapshot, now: &Time) -> ContentStatus {
    let mut status = content.said();
    let said = snapshot.status.clone().unwrap_or_default();
    // Before it is known to be this Snapshot's the driver's answer counts for nothing.
    if let Some(handle) = snapshot.handle().filter(|_| snapshot.state() >= SnapshotState::Created) {
        status.snapshot_handle.get_or_insert_with(|| handle.to_owned());
        // The snapshot-controller takes a content without one for one that is not taken yet.
        let taken = said.creation_time.as_ref().unwrap_or(now).0.as_second();
        status.creation_time.get_or_insert(taken.saturating_mul(NANOSECONDS));
        status.restore_size = status.restore_size.or(said.restore_size_bytes.filter(|bytes| *bytes > 0));
    }
    let is_ready = snapshot.state() == SnapshotState::Ready && snapshot.handle().is_some();
    // What was ready once is not called otherwise because it is looked at anew.
    status.ready_to_use = Some(is_ready || content.is_ready());
    status.error = goes_wrong(snapshot).map(|words| error(content, &words, now));
    status
}

/// What the content says while something goes wrong before there is a Snapshot of it, or at its end.
pub(super) fn failing(content: &VolumeSnapshotContent, words: &str, now: &Time) -> ContentStatus {
    let mut status = content.said();
    status.ready_to_use.get_or_insert(false);
    status.error = Some(error(content, words, now));
    status
}

/// What the content says when its storage is gone.
pub(super) fn deleted(content: &VolumeSnapshotContent) -> ContentStatus {
    ContentStatus {
        snapshot_handle: None,
        creation_time: None,
        restore_size: None,
        ready_to_use: None,
        error: None,
        ..content.said()
    }
}

/// The same words keep the time at which they were first said.
fn error(content: &VolumeSnapshotContent, words: &str, now: &Time) -> ContentError {
    let said = content.status.as_ref().and_then(|status| status.error.clone());
    let said = said.filter(|said| said.message.as_deref() == Some(words));
    said.unwrap_or_else(|| ContentError { message: Some(words.to_owned()), time: Some(now.clone()) })
}

/// What somebody has to know: the driver's words, or what the Snapshot waits for that does not come by itself.
pub(super) fn goes_wrong(snapshot: &Snapshot) -> Option<String> {
    let status = snapshot.status.as_ref()?;
    if let Some(error) = &status.last_error {
        return Some(format!("{}: {}: {}", error.rpc, error.code, error.message));
    }
    let ready = find(&status.conditions, READY).filter(|condition| condition.status != "True")?;
    let comes = [Reason::Creating, Reason::NotReadyToUse, Reason::Deleted, Reason::Retained];
    let comes = comes.iter().any(|reason| reason.as_str() == ready.reason);
    (!comes && !ready.message.is_empty()).then(|| ready.message.clone())
}

#[cfg(test)]
#[path = "content_status_tests.rs"]
mod tests;
