//! What a node holds of a volume: its staging path and its targets. It is written before the first thing that it describes is
//! made, and removed after the last is gone; so it tells what may be there, and the mount table and the loop devices tell
//! what is.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::attachments::Attachment;
use super::device::{DeviceName, Inode, LoopDevice, LoopDevices};
use super::driver::Call;
use super::error::Error;
use super::mounts;
use super::state::{LockedVolume, VolumeDir, make_dir, read_json, remove_file, sync_parent, write_json};
use super::usage::Terms;

/// The content of `nodes/<node>/volumes/<id>.json`: a volume that is staged on a node, or may be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Holding {
    pub(super) staging_path: PathBuf,
    /// The token of the attachment for which the volume was staged.
    pub(super) token: String,
    pub(super) terms: Terms,
    /// Digest of the mount flags at stage.
    pub(super) flags: String,
    /// Whether the staged device takes writes.
    pub(super) writable: bool,
    pub(super) targets: BTreeMap<PathBuf, Target>,
}

/// A target at which the volume is published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Target {
    pub(super) readonly: bool,
    /// Digest of the mount flags at publish.
    pub(super) flags: String,
}

impl Holding {
    /// The targets at which something is mounted. A reboot or a crashed namespace takes mounts away and leaves records.
    pub(super) fn live_targets(&self) -> Result<Vec<&Path>, Error> {
        let table = mounts::table()?;
        let is_live = |path: &&Path| table.all().iter().any(|mount| mount.point == **path);
        Ok(self.targets.keys().map(PathBuf::as_path).filter(is_live).collect())
    }

    /// Those of the loop devices that belong to this attachment on this node.
    pub(super) fn own(
        &self,
        call: &Call<'_>,
        volume: &VolumeDir,
        devices: &LoopDevices<'_>,
    ) -> Result<Vec<LoopDevice>, Error> {
        let mut own = devices.list()?;
        own.retain(|device| {
            let name = device.name_for(&volume.id);
            name.is_some_and(|name| name.token == self.token && name.node == call.driver.node.as_str())
        });
        Ok(own)
    }

    /// The link on which this attachment's device is set up.
    pub(super) fn link(&self, call: &Call<'_>, volume: &VolumeDir, writable: bool) -> PathBuf {
        volume.path.join(DeviceName::new(&call.driver.node, &self.token, writable).to_string())
    }
}

/// Sets up a device of the volume on a link of its data file.
pub(super) fn attach(
    devices: &LoopDevices<'_>,
    volume: &VolumeDir,
    link: &Path,
    writable: bool,
) -> Result<LoopDevice, Error> {
    let data = volume.data();
    if link.exists() && Inode::of(link)? != Inode::of(&data)? {
        // The volume has been given a new data file since the link was made.
        remove_file(link)?;
    }
    if !link.exists() {
        fs::hard_link(&data, link).map_err(Error::io("link", link))?;
    }
    devices.attach(link, writable)
}

fn file(call: &Call<'_>, volume: &VolumeDir) -> PathBuf {
    let folder = call.state().node_dir(&call.driver.node).join("volumes");
    folder.join(format!("{}.json", volume.id.as_str()))
}

pub(super) fn load(call: &Call<'_>, volume: &VolumeDir) -> Result<Option<Holding>, Error> {
    read_json(&file(call, volume))
}

/// What this node holds of a volume that is staged or published at a path, and the path. One that cannot be a path of this
/// driver's is none at which the volume is.
pub(super) fn at(call: &Call<'_>, volume: &VolumeDir, path: &str) -> Result<(Holding, PathBuf), Error> {
    let missing = || Error::NotThere { volume: volume.id.as_str().to_owned(), path: path.into() };
    let path = mounts::resolve("volume_path", path).map_err(|_| missing())?;
    let is_here = |held: &Holding| held.staging_path == path || held.targets.contains_key(&path);
    match load(call, volume)?.filter(is_here) {
        Some(held) => Ok((held, path)),
        None => Err(missing()),
    }
}

pub(super) fn save(call: &Call<'_>, volume: &VolumeDir, holding: &Holding) -> Result<(), Error> {
    let path = file(call, volume);
    if let Some(dir) = path.parent() {
        make_dir(dir)?;
    }
    write_json(&path, holding)
}

pub(super) fn forget(call: &Call<'_>, volume: &VolumeDir) -> Result<(), Error> {
    let path = file(call, volume);
    remove_file(&path)?;
    match path.parent() {
        Some(dir) if dir.exists() => sync_parent(&path),
        _ => Ok(()),
    }
}

/// Refuses to detach a volume from under this very node. That is judged by the device, which every namespace sees, because
/// the Node service may run in another namespace than this process.
pub(super) fn check_unstaged(
    call: &Call<'_>,
    volume: &LockedVolume,
    attachment: &Attachment,
) -> Result<(), Error> {
    let Some(held) = load(call, volume)?.filter(|held| held.token == attachment.token) else { return Ok(()) };
    if held.own(call, volume, &LoopDevices::open(volume)?)?.is_empty() {
        return Ok(());
    }
    Err(Error::OutOfOrder(format!(
        "volume {:?} is staged on node {:?}: NodeUnstageVolume comes before ControllerUnpublishVolume",
        volume.id,
        call.node_id()
    )))
}
