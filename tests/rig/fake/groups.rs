//! Snapshots of several volumes at one moment, in the storage behind the fake driver.
//!
//! A group is known by its key as a snapshot is, and its member that is of a volume by both keys. The members are among the
//! snapshots of the storage, where volumes are made of them.

use std::collections::{BTreeMap, BTreeSet};

use moor::csi::Rpc;
use moor::csi::proto::Timestamp;
use moor::csi::proto::csi::v1 as wire;
use tonic::Status;

use super::backend::Backend;
use super::snapshots::Kept;

/// When each group is said to have been taken, in seconds since 1970.
pub const TAKEN: i64 = 1_750_000_000;

/// A group. Arguments are kept as they were sent: CSI wants a repeated call to be the same one.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// None where it was there before moor.
    pub taken: Option<Vec<u8>>,
    /// Keys of the members.
    pub members: BTreeSet<String>,
}

/// The id of a group.
pub fn id(key: &str) -> String {
    format!("group-{key}")
}

/// The key of a group's member that is of this volume.
pub fn member(group: &str, of: &str) -> String {
    format!("{group}-{of}")
}

/// The key of a group's id.
pub(super) fn key_of(id: &str) -> String {
    id.strip_prefix("group-").unwrap_or(id).to_owned()
}
impl Backend {
    /// Puts a group there that moor has not taken, to be registered. Returns its id, and the ids of its members by the key of the
    /// volume.
    pub fn add_group(&mut self, key: &str, of: &[&str]) -> (String, BTreeMap<String, String>) {
        self.keep_group(key, of.iter().copied(), None);
        let members = of.iter().map(|of| ((*of).to_owned(), format!("snap-{}", member(key, of)))).collect();
        (id(key), members)
    }

    fn keep_group<'a>(&mut self, key: &str, of: impl Iterator<Item = &'a str>, taken: Option<&[u8]>) {
        let taken = taken.map(<[u8]>::to_vec);
        let mut members = BTreeSet::new();
        for of in of {
            let kept = Kept { taken: taken.clone(), of: of.to_owned(), group: Some(key.to_owned()) };
            self.snapshots.insert(member(key, of), kept);
            members.insert(member(key, of));
        }
        self.groups.insert(key.to_owned(), Group { taken, members });
    }

    pub(super) fn take_group(
        &mut self,
        key: &str,
        of: &BTreeSet<String>,
        arguments: &[u8],
    ) -> Result<wire::VolumeGroupSnapshot, Status> {
        match self.groups.get(key) {
            Some(before) if before.taken.as_deref() != Some(arguments) => {
                let what = format!("CreateVolumeGroupSnapshot of {key} again with other arguments");
                return Err(self.forbidden(key, what));
            }
            Some(_) => {}
            None => {
                for of in of {
                    self.known(of)?;
                }
                self.keep_group(key, of.iter().map(String::as_str), Some(arguments));
            }
        }
        self.told_of_group(key)
    }

    /// What the driver says of a group.
    fn told_of_group(&self, key: &str) -> Result<wire::VolumeGroupSnapshot, Status> {
        let missing = || Status::not_found(format!("there is no group {key}"));
        let group = self.groups.get(key).ok_or_else(missing)?;
        let creation_time = Some(Timestamp { seconds: TAKEN, nanos: 0 });
        let told = |member: &String| wire::Snapshot { creation_time, ..self.told(member) };
        Ok(wire::VolumeGroupSnapshot {
            group_snapshot_id: id(key),
            snapshots: group.members.iter().map(told).collect(),
            creation_time,
            ready_to_use: !self.unready.contains(key),
        })
    }

    pub(super) fn find_group(
        &mut self,
        key: &str,
        named: &[String],
    ) -> Result<wire::VolumeGroupSnapshot, Status> {
        self.check_members("GetVolumeGroupSnapshot", key, named)?;
        self.told_of_group(key)
    }

    pub(super) fn drop_group(&mut self, key: &str, named: &[String]) -> Result<(), Status> {
        if self.pinned.contains(key) {
            return Err(Status::failed_precondition("a volume depends on it"));
        }
        self.check_members("DeleteVolumeGroupSnapshot", key, named)?;
        for member in self.groups.remove(key).unwrap_or_default().members {
            self.snapshots.remove(&member);
        }
        Ok(())
    }

    /// Whoever names other members than there are has another group in mind.
    fn check_members(&mut self, call: &str, key: &str, named: &[String]) -> Result<(), Status> {
        let Some(group) = self.groups.get(key) else { return Ok(()) };
        let members: BTreeSet<String> = group.members.iter().map(|key| format!("snap-{key}")).collect();
        if named.iter().cloned().collect::<BTreeSet<_>>() == members && named.len() == members.len() {
            return Ok(());
        }
        Err(self.forbidden(key, format!("{call} of {key} with {named:?} and not {members:?}")))
    }
}
