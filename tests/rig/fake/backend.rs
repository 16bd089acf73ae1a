//! The storage behind the fake driver, and the rules by which its callers are judged.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use moor::csi::proto::csi::v1 as wire;
use rustix::mount::{UnmountFlags, unmount};
use tonic::Status;

use super::super::{Can, Options};
use super::groups::Group;
use super::listing::Listing;
use super::snapshots::Kept;

/// How a driver's volumes grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expand {
    /// Not at all.
    Never,
    /// By ControllerExpandVolume alone.
    ByController,
    /// By ControllerExpandVolume, and nodes have to follow.
    AndNodes,
    /// By ControllerExpandVolume, of a volume that is not attached.
    Unused,
    /// By NodeExpandVolume alone.
    OnNodes,
    /// The same, and it says that the volume must not be in use.
    OnNodesUnused,
}

/// A volume. Arguments are kept as they were sent: CSI wants a repeated call to be the same one.
#[derive(Clone, Debug, Default)]
pub struct Stored {
    /// None where it was there before moor.
    pub created: Option<Vec<u8>>,
    /// The largest size in bytes that was asked for when it was there.
    pub grown: i64,
    /// The size in bytes that it was given by NodeExpandVolume, by node.
    pub grown_on: BTreeMap<String, i64>,
    /// The mutable parameters that it has.
    pub modified: BTreeMap<String, String>,
    /// By node id. Without arguments: attached by somebody else than moor.
    pub attached: BTreeMap<String, Vec<u8>>,
    /// By node: path and arguments.
    pub staged: BTreeMap<String, (PathBuf, Vec<u8>)>,
    /// By node and target path.
    pub published: BTreeMap<(String, PathBuf), Vec<u8>>,
}

/// How the driver answers about a volume, where that is not as usual.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// Bytes of its id; 0 is as usual.
    pub id_bytes: usize,
    /// It does not say its id.
    pub hides_id: bool,
    /// It does not confirm what is said of it.
    pub confirms_nothing: bool,
    /// It does not say of what it is a copy.
    pub hides_source: bool,
    /// Its size, instead of what was asked for.
    pub capacity_bytes: Option<i64>,
    /// In its volume context beside what is there as usual.
    pub volume_context: BTreeMap<String, String>,
    /// What is said to be wrong with it where it is published, and by the Controller service.
    pub ill: Option<String>,
    pub ill_at_storage: Option<String>,
    /// How many bytes there are, are used and available, instead of the usual numbers.
    pub usage: Option<[i64; 3]>,
    /// In its publish context beside what is there as usual.
    pub publish_context: BTreeMap<String, String>,
}

/// What a volume is kept on.
#[derive(Clone, Debug)]
pub enum Medium {
    /// A device with ext4 on it, mounted when it is staged.
    FileSystem(PathBuf),
    /// A device that is published as it is.
    Device(PathBuf),
}

#[derive(Debug)]
pub struct Backend {
    directory: PathBuf,
    /// How many volumes a node takes (CSI NodeGetInfo); 0 is no limit.
    pub(super) max_volumes: i64,
    /// It has ControllerPublishVolume.
    pub attach: bool,
    /// Processes without the Controller service say that the driver has it.
    pub says_controller: bool,
    /// Its nodes are in zones.
    pub(super) topology: bool,
    /// It has GetCapacity.
    pub(super) capacity: bool,
    /// Nodes whose process of the driver, an earlier version, does not.
    pub incapable: BTreeSet<String>,
    /// The bytes that are left in each zone.
    pub room: BTreeMap<String, i64>,
    /// What it can do on nodes beside staging.
    pub(super) can: Vec<Can>,
    pub(super) expand: Expand,
    /// Its Controller service says how volumes are.
    pub(super) conditions: bool,
    /// It copies volumes.
    pub(super) clones: bool,
    /// The largest size in bytes to which a volume grows.
    pub most: i64,
    /// It has ControllerModifyVolume.
    pub(super) modify: bool,
    /// Zones that have no room.
    pub full: BTreeSet<String>,
    /// By key.
    pub volumes: BTreeMap<String, Stored>,
    /// It takes snapshots, and lists them.
    pub(super) keeps: bool,
    /// By key.
    pub snapshots: BTreeMap<String, Kept>,
    /// It takes snapshots of several volumes at one moment.
    pub(super) groups_snapshots: bool,
    /// By key.
    pub groups: BTreeMap<String, Group>,
    /// Keys of snapshots, and of groups of them, that are not ready to use.
    pub unready: BTreeSet<String>,
    /// Keys of snapshots, and of groups of them, that cannot be deleted.
    pub pinned: BTreeSet<String>,
    /// Ids of volumes that snapshots are said to be of, by the key of the snapshot, where that is not as usual.
    pub answers_of: BTreeMap<String, String>,
    /// What callers did that CSI forbids: key and words.
    pub violations: Vec<(String, String)>,
    /// Nodes that are down for good: to detach what they have staged is right (rule R4).
    pub lost: BTreeSet<String>,
    /// By key.
    pub answers: BTreeMap<String, Answers>,
    /// Ids of nodes that are not their names, by name; taken when the driver is next asked for them.
    pub node_ids: BTreeMap<String, String>,
    /// Keys of volumes whose read-only mounts can be written to.
    pub writable: BTreeSet<String>,
    /// Keys of volumes that cannot be mounted at their targets, which are made before that is found out.
    pub unmountable: BTreeSet<String>,
    /// Keys of volumes whose targets stay when they are unpublished.
    pub untidy: BTreeSet<String>,
    /// By key: volumes that are no directory of the storage's.
    pub media: BTreeMap<String, Medium>,
    /// How it lists volumes and snapshots.
    pub listing: Listing,
}

/// How a volume is of which this is said to be wrong.
pub(super) fn condition(ill: Option<String>) -> wire::VolumeCondition {
    let abnormal = ill.is_some();
    wire::VolumeCondition { abnormal, message: ill.unwrap_or_else(|| "it is well".to_owned()) }
}

/// A driver of this kind has one parameter that may be changed.
pub(super) fn check(parameters: &BTreeMap<String, String>) -> Result<(), Status> {
    match parameters.keys().find(|key| *key != "tier") {
        Some(key) => Err(Status::invalid_argument(format!("there is no parameter {key}"))),
        None => Ok(()),
    }
}

impl Backend {
    pub(super) fn new(directory: PathBuf, options: &Options) -> Self {
        fs::create_dir_all(&directory).unwrap();
        Self {
            directory,
            max_volumes: options.max_volumes,
            attach: options.attach,
            says_controller: false,
            topology: options.topology,
            capacity: options.capacity,
            incapable: BTreeSet::new(),
            room: BTreeMap::new(),
            can: options.can.clone(),
            expand: options.expand,
            conditions: options.conditions,
            clones: options.clones,
            most: i64::MAX,
            modify: options.modify,
            full: BTreeSet::new(),
            volumes: BTreeMap::new(),
            keeps: options.snapshots,
            snapshots: BTreeMap::new(),
            groups_snapshots: options.groups,
            groups: BTreeMap::new(),
            unready: BTreeSet::new(),
            pinned: BTreeSet::new(),
            answers_of: BTreeMap::new(),
            violations: Vec::new(),
            lost: BTreeSet::new(),
            answers: BTreeMap::new(),
            node_ids: BTreeMap::new(),
            writable: BTreeSet::new(),
            unmountable: BTreeSet::new(),
            untidy: BTreeSet::new(),
            media: BTreeMap::new(),
            listing: Listing::default(),
        }
    }

    /// Puts a volume there that moor has not made, to be registered. Returns its handle.
    pub fn add(&mut self, key: &str) -> String {
        fs::create_dir_all(self.content(key)).unwrap();
        self.volumes.entry(key.to_owned()).or_default();
        format!("vol-{key}")
    }

    /// The id of a volume.
    pub fn id(&self, key: &str) -> String {
        let mut id = format!("vol-{key}");
        let bytes = self.answers.get(key).map_or(0, |answers| answers.id_bytes);
        if bytes > id.len() {
            id.push('/');
            id.push_str(&"x".repeat(bytes - id.len()));
        }
        id
    }

    /// How the Controller service says that a volume is.
    pub(super) fn condition(&self, key: &str) -> Option<wire::VolumeCondition> {
        let ill = self.answers.get(key).and_then(|answers| answers.ill_at_storage.clone());
        self.conditions.then(|| condition(ill))
    }

    /// Where a volume's content is.
    pub fn content(&self, key: &str) -> PathBuf {
        self.directory.join(key)
    }

    /// What of these volumes is attached, staged or published, in words.
    pub fn in_use(&self) -> Vec<String> {
        let mut all = Vec::new();
        for (key, volume) in &self.volumes {
            all.extend(volume.attached.keys().map(|node| format!("{key} attached to {node}")));
            all.extend(volume.staged.keys().map(|node| format!("{key} staged on {node}")));
            all.extend(volume.published.keys().map(|(node, _)| format!("{key} published on {node}")));
        }
        all
    }

    /// A node went down: its mounts are gone.
    pub fn forget_node(&mut self, node: &str) {
        for volume in self.volumes.values_mut() {
            let targets: Vec<_> = volume.published.keys().filter(|(n, _)| n == node).cloned().collect();
            for target in targets {
                volume.published.remove(&target);
                let _ = unmount(&target.1, UnmountFlags::DETACH);
            }
            if let Some((staging, _)) = volume.staged.remove(node) {
                let _ = unmount(&staging, UnmountFlags::DETACH);
            }
        }
    }

    pub(super) fn violation(&mut self, key: &str, what: String) {
        self.violations.push((key.to_owned(), what));
    }

    pub(super) fn forbidden(&mut self, key: &str, what: String) -> Status {
        self.violation(key, what.clone());
        Status::failed_precondition(what)
    }

    pub(super) fn known(&mut self, key: &str) -> Result<&mut Stored, Status> {
        self.volumes.get_mut(key).ok_or_else(|| Status::not_found(format!("there is no volume {key}")))
    }

    /// Makes a volume as large as is asked for. Returns whether nodes have to follow.
    pub(super) fn grow(&mut self, key: &str, asked: i64) -> Result<bool, Status> {
        let (most, unused) = (self.most, self.expand == Expand::Unused);
        let volume = self.known(key)?;
        if unused && !volume.attached.is_empty() {
            return Err(Status::failed_precondition("the volume is attached"));
        }
        if asked > most {
            return Err(Status::out_of_range("the storage is smaller"));
        }
        volume.grown = volume.grown.max(asked);
        Ok(self.expand == Expand::AndNodes)
    }

    /// Has a volume have these parameters, and keep those that are not named.
    pub(super) fn modify(&mut self, key: &str, parameters: &BTreeMap<String, String>) -> Result<(), Status> {
        if parameters.is_empty() {
            return Err(self.forbidden(key, format!("ControllerModifyVolume of {key} without parameters")));
        }
        check(parameters)?;
        self.known(key)?.modified.extend(parameters.clone());
        Ok(())
    }

    pub(super) fn create(&mut self, key: &str, arguments: &[u8]) -> Result<(), Status> {
        let before = self.volumes.get(key).map(|volume| volume.created.clone());
        if before.is_some_and(|before| before.as_deref() != Some(arguments)) {
            return Err(self.forbidden(key, format!("CreateVolume of {key} again with other arguments")));
        }
        self.add(key);
        self.known(key)?.created = Some(arguments.to_vec());
        Ok(())
    }

    pub(super) fn delete(&mut self, key: &str) -> Result<(), Status> {
        let Some(volume) = self.volumes.get(key) else { return Ok(()) };
        if !volume.attached.is_empty() || !volume.staged.is_empty() || !volume.published.is_empty() {
            return Err(self.forbidden(key, format!("DeleteVolume of {key} while it is in use")));
        }
        if let Some(snapshot) = self.being_taken(key) {
            return Err(self.forbidden(key, format!("DeleteVolume of {key} while {snapshot} is taken of it")));
        }
        self.volumes.remove(key);
        fs::remove_dir_all(self.content(key)).map_err(|error| Status::internal(error.to_string()))
    }

    pub(super) fn attach(
        &mut self,
        key: &str,
        node: &str,
        many: bool,
        arguments: &[u8],
    ) -> Result<(), Status> {
        let here = self.volumes.values().filter(|v| v.attached.contains_key(node)).count();
        let full = self.max_volumes > 0 && i64::try_from(here).is_ok_and(|here| here >= self.max_volumes);
        let volume = self.known(key)?;
        if full && !volume.attached.contains_key(node) {
            return Err(
                self.forbidden(key, format!("ControllerPublishVolume of {key} to {node}, which is full"))
            );
        }
        let elsewhere = volume.attached.iter().find(|(other, _)| *other != node && !many);
        if let Some((other, arguments)) = elsewhere.map(|(other, arguments)| (other.clone(), arguments)) {
            // moor cannot know of it.
            if arguments.is_empty() {
                return Err(Status::failed_precondition(format!("{key} is attached to {other}")));
            }
            return Err(self.forbidden(
                key,
                format!("ControllerPublishVolume of {key} to {node} while it is attached to {other}"),
            ));
        }
        let mounted =
            volume.staged.contains_key(node) || volume.published.keys().any(|(other, _)| other == node);
        if mounted && !volume.attached.contains_key(node) {
            return Err(
                self.forbidden(key, format!("ControllerPublishVolume of {key} under old mounts on {node}"))
            );
        }
        let attached = volume.attached.get(node).filter(|before| !before.is_empty());
        if attached.is_some_and(|before| before != arguments) {
            return Err(
                self.forbidden(key, format!("ControllerPublishVolume of {key} again with other arguments"))
            );
        }
        volume.attached.insert(node.to_owned(), arguments.to_vec());
        Ok(())
    }

    pub(super) fn detach(&mut self, key: &str, node: &str) {
        let fenced = self.lost.contains(node);
        let Some(volume) = self.volumes.get_mut(key) else { return };
        volume.attached.remove(node);
        let used = volume.staged.contains_key(node) || volume.published.keys().any(|(n, _)| n == node);
        if used && !fenced {
            self.violation(
                key,
                format!("ControllerUnpublishVolume of {key} from {node} while it is staged there"),
            );
        }
    }
}
