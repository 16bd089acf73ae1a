//! NodePublishVolume and NodeUnpublishVolume: the volume at a consumer's path.

use std::fs::{self, DirBuilder, File, FileType};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use super::attach;
use super::device::{LoopDevice, LoopDevices};
use super::driver::{Call, check_volume_id};
use super::error::Error;
use super::holding::{self, Holding, Target};
use super::ids::VolumeId;
use super::mounts;
use super::record;
use super::stage;
use super::state::{LockedVolume, VolumeDir};
use super::usage::{Access, Usage};
use crate::csi::proto::csi::v1 as wire;
use crate::mount_table::Mount;

/// NodePublishVolume.
pub(super) fn publish(
    call: &Call<'_>,
    request: &wire::NodePublishVolumeRequest,
) -> Result<wire::NodePublishVolumeResponse, Error> {
    check_volume_id(&request.volume_id)?;
    let target = mounts::resolve("target_path", &request.target_path)?;
    let usage = Usage::require(request.volume_capability.as_ref())?;
    let staging = mounts::resolve("staging_target_path", &request.staging_target_path)?;
    let volume = record::open(call, &request.volume_id, &request.volume_context)?;
    let attachment = attach::prove(call, &volume, &request.publish_context, usage.terms)?;
    let readonly = request.readonly || usage.says_read_only() || !attachment.is_writable();
    let mut held = staged(call, &volume, &attachment.token, &staging)?;
    let device = staged_device(call, &volume, &held)?;
    let wanted = Target { readonly, flags: usage.flags_digest() };
    admit(&volume.id, &held, &target, &wanted)?;
    if held.targets.insert(target.clone(), wanted).is_none() {
        holding::save(call, &volume, &held)?;
    }
    match held.terms.access {
        Access::Mount(_) => publish_mount(call, &held, &device, &target, readonly)?,
        Access::Block => {
            let device = if readonly && held.writable { reader(call, &volume, &held)? } else { device };
            publish_block(call, &device, &target)?;
        }
    }
    Ok(wire::NodePublishVolumeResponse {})
}

fn not_staged(id: &VolumeId, reason: &str) -> Error {
    Error::OutOfOrder(format!("volume {id:?} {reason}: NodeStageVolume comes first"))
}

fn staged(call: &Call<'_>, volume: &VolumeDir, token: &str, staging: &Path) -> Result<Holding, Error> {
    let held = holding::load(call, volume)?.filter(|held| held.token == token);
    let held = held.ok_or_else(|| not_staged(&volume.id, "is not staged on this node"))?;
    if held.staging_path != staging {
        return Err(not_staged(
            &volume.id,
            &format!("is staged at {}, not there", held.staging_path.display()),
        ));
    }
    Ok(held)
}

/// The device of a volume whose stage has really been completed.
fn staged_device(call: &Call<'_>, volume: &LockedVolume, held: &Holding) -> Result<LoopDevice, Error> {
    let devices = LoopDevices::open(volume)?;
    // A reboot or a fence takes the device away.
    let device = devices.find(&held.link(call, volume, held.writable))?;
    let device = device.ok_or_else(|| not_staged(&volume.id, "has lost its loop device"))?;
    let is_mounted = || mounts::at(&held.staging_path).map(|at| at.is_some_and(|m| device.is_mounted_as(&m)));
    if held.terms.access != Access::Block && !is_mounted()? {
        return Err(not_staged(&volume.id, "is not mounted at its staging path"));
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
            "volume {id:?} is published at {} {}, or with other mount flags",
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
            "volume {id:?} is published at {}, and {:?} allows one target",
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
    match mounts::at(target)? {
        Some(mount) if !device.is_mounted_as(&mount) => return Err(Error::occupied(target)),
        Some(mount) if mount.has("ro") || !readonly => return Ok(()),
        // A driver that was ended before it could make the mount read-only has left it.
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
        return if device.is_at(target) { Ok(()) } else { Err(Error::occupied(target)) };
    }
    let made = File::options().write(true).create_new(true).mode(0o600).open(target).map(|_| ());
    accept_existing(made, target, kind_of(target).is_some_and(|kind| kind.is_file()))?;
    mounts::bind(&device.path, target)?;
    call.step("bound")
}

/// The kind of what is at a target. Links are not followed: a mount made through one would not be found at the path again.
fn kind_of(target: &Path) -> Option<FileType> {
    fs::symlink_metadata(target).map(|found| found.file_type()).ok()
}

/// Accepts a path of the right kind that is already there: an interrupted call may have left it.
fn accept_existing(made: io::Result<()>, target: &Path, is_right: bool) -> Result<(), Error> {
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && is_right => Ok(()),
        made => made.map_err(Error::io("make", target)),
    }
}

/// The device for targets that may not write, which is there beside the staged one. A mount option cannot keep anybody
/// from writing to a device; only the device can.
fn reader(call: &Call<'_>, volume: &LockedVolume, held: &Holding) -> Result<LoopDevice, Error> {
    let link = held.link(call, volume, false);
    let devices = LoopDevices::open(volume)?;
    match devices.find(&link)? {
        Some(device) => Ok(device),
        None => holding::attach(&devices, volume, &link, false),
    }
}

/// NodeUnpublishVolume. A path at which this driver has not published the volume is left alone.
pub(super) fn unpublish(
    call: &Call<'_>,
    request: &wire::NodeUnpublishVolumeRequest,
) -> Result<wire::NodeUnpublishVolumeResponse, Error> {
    let done = Ok(wire::NodeUnpublishVolumeResponse {});
    check_volume_id(&request.volume_id)?;
    let target = mounts::resolve("target_path", &request.target_path)?;
    let Some(volume) = call.lock_if_known(&request.volume_id)? else { return done };
    let Some(mut held) = holding::load(call, &volume)? else { return done };
    if !held.targets.contains_key(&target) {
        return done;
    }
    if let Some(mount) = mounts::at(&target)?
        && !is_own(call, &volume, &held, &mount)?
    {
        return Err(Error::occupied(&target));
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
        stage::detach(call, &volume, &held, |writable| !writable)?;
    }
    holding::save(call, &volume, &held)?;
    done
}

/// Whether what is mounted is of this volume on this node.
fn is_own(call: &Call<'_>, volume: &LockedVolume, held: &Holding, mount: &Mount) -> Result<bool, Error> {
    let own = held.own(call, volume, &LoopDevices::open(volume)?)?;
    Ok(own.iter().any(|device| match held.terms.access {
        Access::Block => device.is_at(&mount.point),
        Access::Mount(_) => device.is_mounted_as(mount),
    }))
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
