//! The snapshots of the storage behind the fake driver.

use moor::csi::proto::csi::v1 as wire;
use tonic::Status;

use super::backend::Backend;
use super::groups;

/// A snapshot. Arguments are kept as they were sent: CSI wants a repeated call to be the same one.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// None where it was there before moor.
    pub taken: Option<Vec<u8>>,
    /// Key of its volume.
    pub of: String,
    /// Key of the group of which it is a member.
    pub group: Option<String>,
}

/// The key of a snapshot's id.
pub(super) fn key_of(id: &str) -> String {
    id.strip_prefix("snap-").unwrap_or(id).to_owned()
}

impl Backend {
    /// Puts a snapshot there that moor has not taken, to be registered. Returns its id.
    pub fn add_snapshot(&mut self, key: &str, of: &str) -> String {
        self.snapshots.insert(key.to_owned(), Kept { of: of.to_owned(), ..Kept::default() });
        format!("snap-{key}")
    }

    pub(super) fn take(&mut self, key: &str, of: &str, arguments: &[u8]) -> Result<wire::Snapshot, Status> {
        if let Some(before) = self.snapshots.get(key) {
            if before.taken.as_deref() != Some(arguments) {
                return Err(self.forbidden(of, format!("CreateSnapshot of {key} again with other arguments")));
            }
        } else {
            self.known(of)?;
            let kept = Kept { taken: Some(arguments.to_vec()), of: of.to_owned(), group: None };
            self.snapshots.insert(key.to_owned(), kept);
        }
        Ok(self.told(key))
    }

    /// What the driver says of a snapshot that is there.
    pub(super) fn told(&self, key: &str) -> wire::Snapshot {
        let Kept { of, group, .. } = self.snapshots.get(key).cloned().unwrap_or_default();
        let size = self.volumes.get(&of).map_or(0, |volume| volume.grown);
        wire::Snapshot {
            size_bytes: size,
            snapshot_id: format!("snap-{key}"),
            source_volume_id: self.answers_of.get(key).cloned().unwrap_or_else(|| self.id(&of)),
            ready_to_use: !self.is_unready(key),
            group_snapshot_id: group.map(|group| groups::id(&group)).unwrap_or_default(),
            ..wire::Snapshot::default()
        }
    }

    /// A member is ready when its group is.
    fn is_unready(&self, key: &str) -> bool {
        let group = self.snapshots.get(key).and_then(|kept| kept.group.as_ref());
        self.unready.contains(key) || group.is_some_and(|group| self.unready.contains(group))
    }

    pub(super) fn drop_snapshot(&mut self, key: &str) -> Result<(), Status> {
        if self.pinned.contains(key) {
            return Err(Status::failed_precondition("a volume depends on it"));
        }
        if self.snapshots.get(key).is_some_and(|kept| kept.group.is_some()) {
            return Err(self.forbidden(key, format!("DeleteSnapshot of {key}, which goes with its group")));
        }
        self.snapshots.remove(key);
        Ok(())
    }

    /// A volume is to be made of a snapshot.
    pub(super) fn restore(&mut self, key: &str) -> Result<(), Status> {
        if !self.snapshots.contains_key(key) {
            return Err(Status::not_found(format!("there is no snapshot {key}")));
        }
        if self.is_unready(key) {
            return Err(self.forbidden(key, format!("CreateVolume of {key}, which is not ready")));
        }
        Ok(())
    }

    /// The snapshots that are not ready of a volume that is to be deleted.
    pub(super) fn being_taken(&self, of: &str) -> Option<String> {
        let mut all = self.snapshots.iter().filter(|(key, kept)| kept.of == of && self.is_unready(key));
        all.next().map(|(key, _)| key.clone())
    }
}
