//! A snapshot's record: that it exists, and what it is.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::error::Error;
use super::state::{SnapshotDir, read_json};
use crate::csi::proto::Timestamp;

/// The content of `snapshot.json`: a snapshot that exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SnapshotRecord {
    pub(super) name: String,
    pub(super) source_volume_id: String,
    pub(super) size_bytes: i64,
    pub(super) parameters: BTreeMap<String, String>,
    pub(super) created: Time,
    /// From when on volumes are made from it: for tests, later than when it was created.
    pub(super) ready: Time,
}

impl SnapshotRecord {
    pub(super) fn is_ready(&self) -> bool {
        self.ready <= Time::now()
    }
}

/// A time, in milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Time(u64);

impl Time {
    pub(super) fn now() -> Self {
        let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(passed.as_millis()).unwrap_or(u64::MAX))
    }

    /// So many seconds later.
    pub(super) fn after(self, seconds: u16) -> Self {
        Self(self.0.saturating_add(u64::from(seconds) * 1000))
    }

    /// The time as CSI says it.
    pub(super) fn timestamp(self) -> Timestamp {
        let (seconds, nanos) = (self.0 / 1000, self.0 % 1000 * 1_000_000);
        Timestamp {
            seconds: i64::try_from(seconds).unwrap_or(i64::MAX),
            nanos: i32::try_from(nanos).unwrap_or_default(),
        }
    }
}

/// The snapshot's record, or `None` when the snapshot does not exist (any more, or yet). A member of a group comes and goes
/// with all others at once.
pub(super) fn load(snapshot: &SnapshotDir) -> Result<Option<SnapshotRecord>, Error> {
    if snapshot.group_record().is_some_and(|group| !group.exists()) {
        return Ok(None);
    }
    read_json(&snapshot.record())
}

/// The snapshot's record, or NOT_FOUND.
pub(super) fn find(snapshot: &SnapshotDir) -> Result<SnapshotRecord, Error> {
    load(snapshot)?.ok_or_else(|| Error::NoSnapshot(snapshot.id.as_str().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_as_csi_says_them() {
        assert_eq!(
            Time(1_700_000_000_123).timestamp(),
            Timestamp { seconds: 1_700_000_000, nanos: 123_000_000 }
        );
        assert_eq!(Time(5).after(600), Time(600_005));
        assert!(Time::now() < Time::now().after(1));
    }
}
