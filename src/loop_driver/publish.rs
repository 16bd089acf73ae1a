//! NodePublishVolume and NodeUnpublishVolume: the volume at a consumer's path.

use std::fs::{self, DirBuilder, File, FileType};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use super::attach;
use super::device::{LoopDevice, LoopDevices};
use super::driver::{Call, require, require_path, require_volume_id};
use super::error::Error;
use super::holding::{self, Holding, Target};
use super::lock::Lock;
use super::mounts;
use super::stage;
use super::state::VolumeId;
use super::usage::{Access, Usage};
use super::volume;
use crate::csi::proto::csi::v1::{
    NodePublishVolumeRequest, NodePublishVolumeResponse, NodeUnpublishVolumeRequest,
    NodeUnpublishVolumeResponse,
};

/// NodePublishVolume.
pub(super) fn publish(
    call: &Call<'_>,
    request: &NodePublishVolumeRequest,
) -> Result<NodePublishVolumeResponse, Error> {
    require("volume_id", &request.volume_id)?;
    let target = require_path("target_path", &request.target_path)?;
    let usage = Usage::require(request.volume_capability.as_ref())?;
    let staging = require_path("staging_target_path", &request.staging_target_path)?;
    let id = require_volume_id(&request.volume_id)?;
    let lock = call.state().lock_volume(&id)?;
    volume::find(call, &id)?.check_context(&request.volume_context)?;
    let attachment = attach::prove(call, &id, &request.publish_context, usage.terms)?;
    let readonly = request.readonly || usage.says_read_only() || !attachment.is_writable();
    let mut held = staged(call, &id, &attachment.token, &staging)?;
    let device = staged_device(call, &lock, &id, &held)?;
    let wanted = Target { readonly, flags: usage.flags_digest() };
    admit(&id, &held, &target, &wanted)?;
    if held.targets.insert(target.clone(), wanted).is_none() {
        holding::save(call, &id, &held)?;
    }
    match held.terms.access {
        Access::Mount(_) => publish_mount(call, &held, &device, &target, readonly)?,
        Access::Block => {
            let device = if readonly && held.writable { reader(call, &lock, &id, &held)? } else { device };
            publish_block(call, &device, &target)?;
        }
    }
    Ok(NodePublishVolumeResponse {})
}

fn not_staged(id: &VolumeId, reason: &str) -> Error {
    Error::OutOfOrder(format!("volume {:?} {reason}: NodeStageVolume comes first", id.as_str()))
}

fn staged(call: &Call<'_>, id: &VolumeId, token: &str, staging: &Path) -> Result<Holding, Error> {
    let held = holding::load(call, id)?.filter(|held| held.token == token);
    let held = held.ok_or_else(|| not_staged(id, "is not staged on this node"))?;
    if held.staging_path != staging {
        return Err(not_staged(id, &format!("is staged at {}, not there", held.staging_path.display())));
    }
    Ok(held)
}

/// The device of a volume whose stage has really been completed.
fn staged_device(call: &Call<'_>, lock: &Lock, id: &VolumeId, held: &Holding) -> Result<LoopDevice, Error> {
    let devices = LoopDevices::open(lock)?;
    let device = held.device(call, id, &devices)?;
    let device = device.ok_or_else(|| not_staged(id, "has lost its loop device"))?;
    if held.terms.access != Access::Block {
        let number = device.number()?;
        if mounts::at(&held.staging_path)?.is_none_or(|mount| mount.device != number) {
            return Err(not_staged(id, "is not mounted at its staging path"));
        }
    }
    Ok(device)
}

/// Decides whether there may be one more target, or this one again.
fn admit(id: &VolumeId, held: &Holding, target: &Path, wanted: &Target) -> Result<(), Error> {
    if let Some(found) = held.targets.get(target) {
        if found == wanted {
            return Ok(());
        }
        return Err(Error::Different(format!(
            "volume {:?} is published at {} {}, or with other mount flags",
            id.as_str(),
            target.display(),
            if found.readonly { "read-only" } else { "for writing" }
        )));
    }
    if held.terms.mode.allows_several_targets() {
        return Ok(());
    }
    match held.live_targets()?.first() {
        None => Ok(()),
        Some(other) => Err(Error::OutOfOrder(format!(
            "volume {:?} is published at {}, and {:?} allows one target",
            id.as_str(),
            other.display(),
            held.terms.mode
        ))),
    }
}

fn publish_mount(
    call: &Call<'_>,
    held: &Holding,
    device: &LoopDevice,
    target: &Path,
    readonly: bool,
) -> Result<(), Error> {
    let number = device.number()?;
    match mounts::at(target)? {
        Some(mount) if mount.device != number => return Err(occupied(target)),
        Some(mount) if mount.has("ro") || !readonly => return Ok(()),
        // Left by a driver that had not got to making it read-only.
        Some(_) => mounts::unmount(target)?,
        None => {}
    }
    let made = DirBuilder::new().mode(0o750).create(target);
    accept_existing(made, target, kind_of(target).is_some_and(|kind| kind.is_dir()))?;
    if readonly {
        mounts::bind_read_only(&held.staging_path, target)?;
    } else {
        mounts::bind(&held.staging_path, target)?;
    }
    call.step("bound")
}

fn publish_block(call: &Call<'_>, device: &LoopDevice, target: &Path) -> Result<(), Error> {
    if mounts::at(target)?.is_some() {
        return if device.is_at(target) { Ok(()) } else { Err(occupied(target)) };
    }
    let made = File::options().write(true).create_new(true).mode(0o600).open(target).map(|_| ());
    accept_existing(made, target, kind_of(target).is_some_and(|kind| kind.is_file()))?;
    mounts::bind(&device.path, target)?;
    call.step("bound")
}

/// Links are not followed: a mount made through one would not be found at the path again.
fn kind_of(target: &Path) -> Option<FileType> {
    fs::symlink_metadata(target).map(|found| found.file_type()).ok()
}

/// A path of the right kind that is already there may be left from an interrupted call.
fn accept_existing(made: io::Result<()>, target: &Path, is_right: bool) -> Result<(), Error> {
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && is_right => Ok(()),
        made => made.map_err(Error::io("make", target)),
    }
}

fn occupied(target: &Path) -> Error {
    Error::Occupied {
        path: target.to_owned(),
        reason: "something that is not this volume is mounted there".to_owned(),
    }
}

/// The device for targets that may not write, beside the staged one. A mount option cannot keep anybody from writing to
/// a device; only the device can.
fn reader(call: &Call<'_>, lock: &Lock, id: &VolumeId, held: &Holding) -> Result<LoopDevice, Error> {
    let link = held.link(call.driver, id, false);
    let devices = LoopDevices::open(lock)?;
    if let Some(device) = devices.find(&link)? {
        return Ok(device);
    }
    holding::make_link(&call.state().data(id), &link)?;
    devices.attach(&link, false)
}

/// NodeUnpublishVolume. A path that this driver has not published is not its to touch.
pub(super) fn unpublish(
    call: &Call<'_>,
    request: &NodeUnpublishVolumeRequest,
) -> Result<NodeUnpublishVolumeResponse, Error> {
    let done = Ok(NodeUnpublishVolumeResponse {});
    let id = require_volume_id(&request.volume_id);
    let target = require_path("target_path", &request.target_path)?;
    let id = match id {
        Err(Error::NoVolume(_)) => return done,
        id => id?,
    };
    let lock = call.state().lock_volume(&id)?;
    let Some(mut held) = holding::load(call, &id)? else { return done };
    if !held.targets.contains_key(&target) {
        return done;
    }
    if mounts::at(&target)?.is_some() && !is_own(call, &lock, &id, &held, &target)? {
        return Err(occupied(&target));
    }
    mounts::unmount(&target)?;
    call.step("unmounted")?;
    remove(&target)?;
    let reads_apart = |held: &Holding| {
        held.terms.access == Access::Block
            && held.writable
            && held.targets.values().any(|target| target.readonly)
    };
    let had_reader = reads_apart(&held);
    held.targets.remove(&target);
    if had_reader && !reads_apart(&held) {
        stage::detach(call, &lock, &id, &held, |writable| !writable)?;
    }
    holding::save(call, &id, &held)?;
    done
}

/// Whether what is mounted at the target is of this volume on this node.
fn is_own(call: &Call<'_>, lock: &Lock, id: &VolumeId, held: &Holding, target: &Path) -> Result<bool, Error> {
    let Some(mount) = mounts::at(target)? else { return Ok(false) };
    let devices = LoopDevices::open(lock)?.list()?;
    let matches = |device: &LoopDevice| match held.terms.access {
        Access::Block => device.is_at(target),
        Access::Mount(_) => device.number().is_ok_and(|number| number == mount.device),
    };
    Ok(devices.iter().filter(|device| held.owns(call.driver, id, device)).any(matches))
}

/// Removes the empty directory or the file that was mounted on.
fn remove(target: &Path) -> Result<(), Error> {
    let is_dir = kind_of(target).is_some_and(|kind| kind.is_dir());
    let removed = if is_dir { fs::remove_dir(target) } else { fs::remove_file(target) };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(Error::io("remove", target)),
    }
}
