//! The state directory: where everything is that outlives the process, and how it is written.
//!
//! ```text
//! volumes/<id>/volume.json        the volume exists if and only if this does
//! volumes/<id>/data               its content, a sparse file
//! volumes/<id>/dev.*              hard links to data, one per loop device: the name says whose the device is
//! volumes/<id>/attachments.json   on which nodes it is
//! volumes/<id>/formatting         a mkfs has begun and may not have ended
//! volumes/<id>/grow               the content has become larger, and its file system may not have
//! snapshots/<id>/snapshot.json    the snapshot exists if and only if this does
//! snapshots/<id>/data             its content, which nobody writes to
//! groups/<id>/group.json          the group of snapshots exists if and only if this does
//! groups/<id>/<snapshot>/         a member of it, in which is what a snapshot has; it exists if its group does too
//! nodes/<node>/node.json          the node's registration
//! nodes/<node>/volumes/<id>.json  what the node has staged and published
//! locks/  faults/  calls.jsonl
//! ```

use std::fs::{self, DirBuilder};
use std::io;
use std::ops::Deref;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use data_encoding::HEXLOWER;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::error::Error;
use super::ids::{GroupId, SnapshotId, VolumeId};
use super::lock::Lock;
use crate::disk;

/// How long a call waits for another one on the same volume before it answers ABORTED.
const PATIENCE: Duration = Duration::from_secs(2);

/// The content of `node.json`: a node that runs, or has run, the Node service.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeRecord {
    pub(super) node_id: String,
    /// How many volumes the node takes; 0 is no limit.
    pub(super) max_volumes: i64,
}

/// A node id as part of a file name: itself where it can be, else its hash.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeKey(String);

impl NodeKey {
    const HASHED: &str = "sha256-";
    /// A file name has 255 bytes, and a device's link holds its token as well.
    const PLAIN_MAX: usize = 160;

    pub(super) fn of(node_id: &str) -> Self {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_plain = node_id.len() <= Self::PLAIN_MAX
            && !node_id.starts_with('.')
            && !node_id.starts_with(Self::HASHED)
            && node_id.bytes().all(plain);
        if is_plain {
            return Self(node_id.to_owned());
        }
        Self(format!("{}{}", Self::HASHED, HEXLOWER.encode(&Sha256::digest(node_id.as_bytes()))))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The directory that `--state-dir` names, and the paths below it.
#[derive(Debug, Clone)]
pub(super) struct StateDir(PathBuf);

impl StateDir {
    /// The state directory at `root`, in which what is missing is made. Only root may look inside, since it holds other
    /// people's data.
    pub(super) fn open(root: &Path) -> Result<Self, Error> {
        let state = Self(root.to_owned());
        for folder in ["volumes", "snapshots", "groups", "nodes", "locks"] {
            make_dir(&root.join(folder))?;
        }
        Ok(state)
    }

    pub(super) fn root(&self) -> &Path {
        &self.0
    }

    pub(super) fn node_dir(&self, node: &NodeKey) -> PathBuf {
        self.0.join("nodes").join(node.as_str())
    }

    pub(super) fn node_file(&self, node: &NodeKey) -> PathBuf {
        self.node_dir(node).join("node.json")
    }

    pub(super) fn volume(&self, id: VolumeId) -> VolumeDir {
        VolumeDir { path: self.0.join("volumes").join(id.as_str()), id }
    }

    /// Takes the lock of a volume, which need not exist.
    pub(super) fn lock_volume(&self, id: VolumeId) -> Result<LockedVolume, Error> {
        let lock = self.lock(id.as_str())?;
        Ok(Locked { dir: self.volume(id), lock })
    }

    pub(super) fn snapshot(&self, id: SnapshotId) -> SnapshotDir {
        let folder = id.group().map_or_else(|| self.0.join("snapshots"), |group| self.group(group).path);
        SnapshotDir { path: folder.join(id.as_str()), id }
    }

    /// Takes the lock of a snapshot, which need not exist.
    pub(super) fn lock_snapshot(&self, id: SnapshotId) -> Result<LockedSnapshot, Error> {
        let lock = self.lock(id.as_str())?;
        Ok(Locked { dir: self.snapshot(id), lock })
    }

    pub(super) fn group(&self, id: GroupId) -> GroupDir {
        GroupDir { path: self.0.join("groups").join(id.as_str()), id }
    }

    /// Takes the lock of a group of snapshots, which need not exist.
    pub(super) fn lock_group(&self, id: GroupId) -> Result<Locked<GroupDir>, Error> {
        let lock = self.lock(id.as_str())?;
        Ok(Locked { dir: self.group(id), lock })
    }

    /// Takes the lock that guards what is counted per node.
    pub(super) fn lock_node(&self, node: &NodeKey) -> Result<Lock, Error> {
        self.lock(&format!("node-{}", node.as_str()))
    }

    fn lock(&self, name: &str) -> Result<Lock, Error> {
        let path = self.0.join("locks").join(name);
        let taken = Lock::take(&path, PATIENCE).map_err(Error::io("lock", &path))?;
        taken.ok_or_else(|| Error::Pending(name.to_owned()))
    }

    /// All volumes in the order of their ids, those half made or half deleted included.
    pub(super) fn volumes(&self) -> Result<Vec<VolumeDir>, Error> {
        let ids = ids(&self.0.join("volumes"), VolumeId::parse)?;
        Ok(ids.into_iter().map(|id| self.volume(id)).collect())
    }

    /// The same of snapshots, be they members of groups or not.
    pub(super) fn snapshots(&self) -> Result<Vec<SnapshotDir>, Error> {
        let alone = ids(&self.0.join("snapshots"), SnapshotId::parse)?;
        let mut all: Vec<_> = alone.into_iter().map(|id| self.snapshot(id)).collect();
        for group in ids(&self.0.join("groups"), GroupId::parse)? {
            all.extend(self.members(&self.group(group))?);
        }
        all.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(all)
    }

    /// The same of the snapshots of one group.
    pub(super) fn members(&self, group: &GroupDir) -> Result<Vec<SnapshotDir>, Error> {
        let mut found = match ids(&group.path, SnapshotId::parse) {
            // It is deleted meanwhile, or was never made.
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Vec::new(),
            found => found?,
        };
        found.retain(|id| id.group().as_ref() == Some(&group.id));
        Ok(found.into_iter().map(|id| self.snapshot(id)).collect())
    }
}

/// What the names in a folder are ids of, in order.
fn ids<I: Ord>(folder: &Path, parse: fn(&str) -> Option<I>) -> Result<Vec<I>, Error> {
    let mut ids: Vec<_> = file_names(folder)?.iter().filter_map(|name| parse(name)).collect();
    ids.sort();
    Ok(ids)
}

/// A volume's directory. Neither the directory nor the volume need exist.
#[derive(Debug)]
pub(super) struct VolumeDir {
    pub(super) id: VolumeId,
    pub(super) path: PathBuf,
}

impl VolumeDir {
    pub(super) fn record(&self) -> PathBuf {
        self.path.join("volume.json")
    }

    pub(super) fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    /// The size of the data file, in bytes.
    pub(super) fn data_bytes(&self) -> Result<u64, Error> {
        let data = self.data();
        Ok(fs::metadata(&data).map_err(Error::io("look at", &data))?.len())
    }

    pub(super) fn attachments(&self) -> PathBuf {
        self.path.join("attachments.json")
    }

    pub(super) fn grow(&self) -> PathBuf {
        self.path.join("grow")
    }

    pub(super) fn formatting(&self) -> PathBuf {
        self.path.join("formatting")
    }
}

/// A snapshot's directory. Neither the directory nor the snapshot need exist.
#[derive(Debug)]
pub(super) struct SnapshotDir {
    pub(super) id: SnapshotId,
    pub(super) path: PathBuf,
}

impl SnapshotDir {
    pub(super) fn record(&self) -> PathBuf {
        self.path.join("snapshot.json")
    }

    /// The record of the group that it is a member of.
    pub(super) fn group_record(&self) -> Option<PathBuf> {
        self.id.group().and(self.path.parent()).map(|group| group.join(GroupDir::RECORD))
    }

    pub(super) fn data(&self) -> PathBuf {
        self.path.join("data")
    }
}

/// The directory of a group of snapshots. Neither the directory nor the group need exist.
#[derive(Debug)]
pub(super) struct GroupDir {
    pub(super) id: GroupId,
    pub(super) path: PathBuf,
}

impl GroupDir {
    const RECORD: &str = "group.json";

    pub(super) fn record(&self) -> PathBuf {
        self.path.join(Self::RECORD)
    }
}

/// What one call has for itself, over all processes and nodes that share the state directory.
#[derive(Debug)]
pub(super) struct Locked<D> {
    dir: D,
    /// The lock, which programs that work on it inherit.
    pub(super) lock: Lock,
}

pub(super) type LockedVolume = Locked<VolumeDir>;
pub(super) type LockedSnapshot = Locked<SnapshotDir>;

impl<D> Deref for Locked<D> {
    type Target = D;

    fn deref(&self) -> &D {
        &self.dir
    }
}

impl<D> Locked<D> {
    /// Ends the lock of what exists no more, and removes its file.
    pub(super) fn unlock_for_good(self) -> Result<(), Error> {
        let path = self.lock.path().to_owned();
        self.lock.remove().map_err(Error::io("remove", &path))
    }
}

/// The names in a directory that are text, as all names are that this driver gives.
pub(super) fn file_names(dir: &Path) -> Result<Vec<String>, Error> {
    let entries = fs::read_dir(dir).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let entries = entries.map_err(Error::io("list", dir))?;
    Ok(entries.into_iter().filter_map(|entry| entry.file_name().into_string().ok()).collect())
}

/// Makes a directory and its parents, for root alone; one that is there is fine.
pub(super) fn make_dir(path: &Path) -> Result<(), Error> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(Error::io("make", path))
}

/// What a JSON file says, or `None` if there is none.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, Error> {
    match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|source| Error::Damaged { path: path.to_owned(), source }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read", path)(error)),
    }
}

/// Writes a JSON file so that a crash leaves the old content or the new one, and that an answer given afterwards holds.
/// The caller has the lock that guards the file.
pub(super) fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), Error> {
    let bytes = serde_json::to_vec_pretty(value)
        .map_err(|source| Error::Damaged { path: path.to_owned(), source })?;
    disk::replace(path, &bytes).map_err(Error::io("replace", path))
}

/// Makes what was created, renamed or removed at `path` outlive a power cut.
pub(super) fn sync_parent(path: &Path) -> Result<(), Error> {
    let Some(parent) = path.parent() else { return Ok(()) };
    disk::sync(parent).map_err(Error::io("sync", parent))
}

/// Removes a file; one that is gone is fine.
pub(super) fn remove_file(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Removes a directory with all that is in it; one that is gone is fine.
pub(super) fn remove_tree(path: &Path) -> Result<(), Error> {
    if !path.exists() {
        return Ok(());
    }
    fs::remove_dir_all(path).map_err(Error::io("remove", path))?;
    sync_parent(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_keys_are_file_names_and_differ() {
        assert_eq!(NodeKey::of("node-1.example").as_str(), "node-1.example");
        let long = "n".repeat(256);
        let odd = ["..", ".", "a/b", "a b", long.as_str(), "sha256-abc"];
        for (at, id) in odd.iter().enumerate() {
            let key = NodeKey::of(id);
            assert!(key.as_str().starts_with("sha256-") && key.as_str().len() < 100, "{id}");
            assert!(odd[..at].iter().all(|other| NodeKey::of(other) != key));
        }
    }

    #[test]
    fn json_is_replaced_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.json");
        assert_eq!(read_json::<Vec<i32>>(&path).unwrap(), None);
        fs::write(path.with_extension("new"), "torn").unwrap();
        write_json(&path, &[1, 2]).unwrap();
        assert_eq!(read_json::<Vec<i32>>(&path).unwrap(), Some(vec![1, 2]));
        fs::write(&path, "[1,").unwrap();
        assert!(matches!(read_json::<Vec<i32>>(&path), Err(Error::Damaged { .. })));
    }
}
