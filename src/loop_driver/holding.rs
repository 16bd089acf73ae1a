//! What a node holds of a volume: its staging path and its targets. Written before the first thing that it describes is
//! made, and removed after the last is gone; so it tells what may be there, and the mount table and the loop devices tell
//! what is.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::attachments::Attachment;
use super::device::{DeviceName, Inode, LoopDevice, LoopDevices};
use super::driver::{Call, Driver};
use super::error::Error;
use super::lock::Lock;
use super::mounts;
use super::state::{VolumeId, make_dir, read_json, remove_file, sync_parent, write_json};
use super::usage::Terms;

/// `nodes/<node>/volumes/<id>.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Holding {
    pub(super) staging_path: PathBuf,
    /// Of the attachment that it was staged for.
    pub(super) token: String,
    pub(super) terms: Terms,
    /// Digest of the mount flags at stage.
    pub(super) flags: String,
    /// Whether the staged device takes writes.
    pub(super) writable: bool,
    pub(super) targets: BTreeMap<PathBuf, Target>,
}

/// One published target.
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

    /// Whether a device of this attachment exists on this node.
    pub(super) fn owns(&self, driver: &Driver, id: &VolumeId, device: &LoopDevice) -> bool {
        device.name_for(id).is_some_and(|name| name.token == self.token && name.node == driver.node.as_str())
    }

    /// The link that this attachment's device is set up on.
    pub(super) fn link(&self, driver: &Driver, id: &VolumeId, writable: bool) -> PathBuf {
        let name = DeviceName::new(&driver.node, &self.token, writable);
        driver.state.volume_dir(id).join(name.to_string())
    }

    /// The staged device, or `None` when a reboot or a fence has taken it.
    pub(super) fn device(
        &self,
        call: &Call<'_>,
        id: &VolumeId,
        devices: &LoopDevices<'_>,
    ) -> Result<Option<LoopDevice>, Error> {
        devices.find(&self.link(call.driver, id, self.writable))
    }
}

/// Makes the link that a device is set up on.
pub(super) fn make_link(data: &Path, link: &Path) -> Result<(), Error> {
    if link.exists() && Inode::of(link)? != Inode::of(data)? {
        // The volume has been given a new data file since.
        remove_file(link)?;
    }
    if link.exists() {
        return Ok(());
    }
    fs::hard_link(data, link).map_err(Error::io("link", link))
}

pub(super) fn load(call: &Call<'_>, id: &VolumeId) -> Result<Option<Holding>, Error> {
    read_json(&call.state().holding_file(&call.driver.node, id))
}

pub(super) fn save(call: &Call<'_>, id: &VolumeId, holding: &Holding) -> Result<(), Error> {
    let path = call.state().holding_file(&call.driver.node, id);
    if let Some(dir) = path.parent() {
        make_dir(dir)?;
    }
    write_json(&path, holding)
}

pub(super) fn forget(call: &Call<'_>, id: &VolumeId) -> Result<(), Error> {
    let path = call.state().holding_file(&call.driver.node, id);
    remove_file(&path)?;
    match path.parent() {
        Some(dir) if dir.exists() => sync_parent(&path),
        _ => Ok(()),
    }
}

/// Refuses to detach a volume from under this very node. Judged by the device, which every namespace sees, because the
/// Node service may run in another one than this process.
pub(super) fn check_unstaged(
    call: &Call<'_>,
    lock: &Lock,
    id: &VolumeId,
    attachment: &Attachment,
) -> Result<(), Error> {
    let Some(held) = load(call, id)?.filter(|held| held.token == attachment.token) else { return Ok(()) };
    let devices = LoopDevices::open(lock)?;
    if devices.list()?.iter().any(|device| held.owns(call.driver, id, device)) {
        return Err(Error::OutOfOrder(format!(
            "volume {:?} is staged on node {:?}: NodeUnstageVolume comes before ControllerUnpublishVolume",
            id.as_str(),
            call.driver.node_id
        )));
    }
    Ok(())
}
