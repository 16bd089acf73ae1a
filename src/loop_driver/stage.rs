//! NodeStageVolume and NodeUnstageVolume: the volume's loop device on this node, and its file system at the staging path.

use std::fs;

use super::attach;
use super::device::{LoopDevice, LoopDevices};
use super::driver::{Call, check_volume_id};
use super::error::Error;
use super::expand;
use super::filesystem::{self, Content, FileSystem};
use super::holding::{self, Holding};
use super::mounts;
use super::record;
use super::state::{LockedVolume, remove_file};
use super::usage::{Access, Usage};
use crate::csi::proto::csi::v1 as wire;

/// NodeStageVolume.
pub(super) fn stage(
    call: &Call<'_>,
    request: &wire::NodeStageVolumeRequest,
) -> Result<wire::NodeStageVolumeResponse, Error> {
    check_volume_id(&request.volume_id)?;
    let staging = mounts::resolve("staging_target_path", &request.staging_target_path)?;
    let usage = Usage::require(request.volume_capability.as_ref())?;
    let volume = record::open(call, &request.volume_id, &request.volume_context)?;
    let attachment = attach::prove(call, &volume, &request.publish_context, usage.terms)?;
    // A link to a directory will not do: the mount would not be found at this path again.
    if !fs::symlink_metadata(&staging).is_ok_and(|found| found.is_dir()) {
        let reason = "staging_target_path must be a directory, which the caller makes".to_owned();
        return Err(Error::Occupied { path: staging, reason });
    }
    let wanted = Holding {
        staging_path: staging,
        token: attachment.token.clone(),
        terms: usage.terms,
        flags: usage.flags_digest(),
        writable: attachment.is_writable(),
        targets: std::collections::BTreeMap::new(),
    };
    let begins = match holding::load(call, &volume)? {
        None => true,
        // A holding without a mount is left by an earlier call that was cut short.
        Some(held) => {
            held.terms.access != Access::Block
                && held.targets.is_empty()
                && mounts::at(&wanted.staging_path)?.is_none()
        }
    };
    let held = claim(call, &volume, wanted)?;
    match set_up(call, &volume, &held, &usage) {
        // A refusal that the caller may take for final must leave nothing behind: the caller will not unstage.
        Err(refusal) if begins => {
            take_down(call, &volume, &held)?;
            holding::forget(call, &volume)?;
            Err(refusal)
        }
        done => done.map(|()| wire::NodeStageVolumeResponse {}),
    }
}

fn set_up(call: &Call<'_>, volume: &LockedVolume, held: &Holding, usage: &Usage) -> Result<(), Error> {
    match held.terms.access {
        Access::Block => {
            // From here on the content is the user's, whatever a mkfs was about to do before.
            remove_file(&volume.formatting())?;
            device_for(call, volume, held).map(drop)
        }
        Access::Mount(asked) => {
            // The volume is formatted before the device is set up; so where there is a device, that is done.
            let kind = prepare(call, volume, held, asked)?;
            let device = device_for(call, volume, held)?;
            mount(call, volume, held, &device, kind, usage)?;
            expand::catch_up(call, volume, held, &device)
        }
    }
}

/// Unmounts the volume at its staging path, and detaches its devices.
fn take_down(call: &Call<'_>, volume: &LockedVolume, held: &Holding) -> Result<(), Error> {
    if held.terms.access != Access::Block {
        unmount(call, volume, held)?;
        call.step("unmounted")?;
    }
    detach(call, volume, held, |_| true)?;
    call.step("detached")
}

/// Writes down that the volume is about to be staged, or checks that it was staged in just this way.
fn claim(call: &Call<'_>, volume: &LockedVolume, wanted: Holding) -> Result<Holding, Error> {
    let held = match holding::load(call, volume)? {
        Some(held) if held.token == wanted.token => held,
        Some(old) if is_live(call, volume, &old)? => {
            return Err(Error::OutOfOrder(format!(
                "volume {:?} is still staged for an attachment that has ended: NodeUnstageVolume comes first",
                volume.id
            )));
        }
        _ => {
            holding::save(call, volume, &wanted)?;
            return Ok(wanted);
        }
    };
    if held.staging_path != wanted.staging_path {
        return Err(Error::OutOfOrder(format!(
            "volume {:?} is staged at {}: a node has one staging path per volume",
            volume.id,
            held.staging_path.display()
        )));
    }
    if held.terms != wanted.terms || held.flags != wanted.flags {
        return Err(Error::Different(format!(
            "volume {:?} is staged as {}, or with other mount flags",
            volume.id, held.terms
        )));
    }
    Ok(held)
}

/// Whether anything is left of what a holding tells of.
fn is_live(call: &Call<'_>, volume: &LockedVolume, held: &Holding) -> Result<bool, Error> {
    Ok(!held.own(call, volume, &LoopDevices::open(volume)?)?.is_empty()
        || mounts::at(&held.staging_path)?.is_some()
        || !held.live_targets()?.is_empty())
}

/// The volume's device on this node: the one that an interrupted or earlier call has set up, or a new one.
fn device_for(call: &Call<'_>, volume: &LockedVolume, held: &Holding) -> Result<LoopDevice, Error> {
    let link = held.link(call, volume, held.writable);
    let devices = LoopDevices::open(volume)?;
    if let Some(device) = devices.find(&link)? {
        return Ok(device);
    }
    if let Some(closing) = held.own(call, volume, &devices)?.first() {
        return Err(Error::Busy {
            what: closing.path.display().to_string(),
            reason: "it was detached while open, and must be closed before the volume can be staged again",
        });
    }
    let device = holding::attach(&devices, volume, &link, held.writable)?;
    drop(devices);
    call.step("attached")?;
    Ok(device)
}

/// Sees to it that there is a file system on the volume.
fn prepare(
    call: &Call<'_>,
    volume: &LockedVolume,
    held: &Holding,
    asked: Option<FileSystem>,
) -> Result<FileSystem, Error> {
    let data = volume.data();
    let unfit = |reason: String| Error::Unfit { volume: volume.id.as_str().to_owned(), reason };
    // A mkfs that was cut short has left neither zeroes nor a file system, and nobody's data.
    let is_begun = volume.formatting().exists();
    let content = if is_begun { Content::Blank } else { filesystem::probe(&volume.lock, &data)? };
    match (content, asked) {
        (Content::Blank, asked) => {
            let kind = asked.unwrap_or(FileSystem::Ext4);
            let size = volume.data_bytes()?;
            if size < kind.least_bytes().unsigned_abs() {
                let least = kind.least_bytes();
                return Err(unfit(format!("{} needs {least} bytes, and it has {size}", kind.name())));
            }
            call.step("blank")?;
            filesystem::format(volume, kind)?;
            call.step("formatted")?;
            Ok(kind)
        }
        (Content::Known(found), Some(asked)) if found != asked => {
            Err(unfit(format!("it holds {}, and {} was asked for", found.name(), asked.name())))
        }
        (Content::Known(kind), _) => {
            replay(volume, held, kind)?;
            expand::catch_up_unmounted(call, volume, held, kind)?;
            Ok(kind)
        }
        (Content::Foreign(found), _) => Err(unfit(format!("it holds {found}, which is not formatted over"))),
    }
}

/// Brings the journal of a volume up to date that no device has open, before a node mounts it that may not write.
fn replay(volume: &LockedVolume, held: &Holding, kind: FileSystem) -> Result<(), Error> {
    if held.writable {
        return Ok(());
    }
    let data = volume.data();
    if !LoopDevices::open(volume)?.on(&data)?.is_empty() {
        return Ok(());
    }
    filesystem::replay_journal(&volume.lock, &data, kind)
}

fn mount(
    call: &Call<'_>,
    volume: &LockedVolume,
    held: &Holding,
    device: &LoopDevice,
    kind: FileSystem,
    usage: &Usage,
) -> Result<(), Error> {
    let point = &held.staging_path;
    match mounts::at(point)? {
        Some(mount) if device.is_mounted_as(&mount) => return Ok(()),
        Some(_) => return Err(Error::occupied(point)),
        None => {}
    }
    filesystem::mount(&volume.lock, device, point, kind, &usage.flags, !held.writable)?;
    call.step("mounted")
}

/// NodeUnstageVolume. The volume need not exist any more: a node that was fenced still has to clean up.
pub(super) fn unstage(
    call: &Call<'_>,
    request: &wire::NodeUnstageVolumeRequest,
) -> Result<wire::NodeUnstageVolumeResponse, Error> {
    let done = Ok(wire::NodeUnstageVolumeResponse {});
    check_volume_id(&request.volume_id)?;
    let staging = mounts::resolve("staging_target_path", &request.staging_target_path)?;
    let Some(volume) = call.lock_if_known(&request.volume_id)? else { return done };
    let Some(held) = holding::load(call, &volume)? else { return done };
    if held.staging_path != staging {
        return Err(Error::OutOfOrder(format!(
            "volume {:?} is staged at {}, not there",
            volume.id,
            held.staging_path.display()
        )));
    }
    if let Some(target) = held.live_targets()?.first() {
        return Err(Error::OutOfOrder(format!(
            "volume {:?} is published at {}: NodeUnpublishVolume comes before NodeUnstageVolume",
            volume.id,
            target.display()
        )));
    }
    take_down(call, &volume, &held)?;
    holding::forget(call, &volume)?;
    done
}

/// Unmounts what this driver has mounted; what somebody else has mounted at the path is not touched.
fn unmount(call: &Call<'_>, volume: &LockedVolume, held: &Holding) -> Result<(), Error> {
    let Some(mount) = mounts::at(&held.staging_path)? else { return Ok(()) };
    let own = held.own(call, volume, &LoopDevices::open(volume)?)?;
    if !own.iter().any(|device| device.is_mounted_as(&mount)) {
        return Err(Error::occupied(&held.staging_path));
    }
    mounts::unmount(&held.staging_path)
}

/// Detaches this attachment's devices, those that `which` picks by whether they take writes.
pub(super) fn detach(
    call: &Call<'_>,
    volume: &LockedVolume,
    held: &Holding,
    which: impl Fn(bool) -> bool,
) -> Result<(), Error> {
    let devices = LoopDevices::open(volume)?;
    for device in held.own(call, volume, &devices)? {
        let picked = device.name_for(&volume.id).is_some_and(|name| which(name.writable));
        if picked && !devices.detach(&device)? {
            return Err(Error::Busy {
                what: device.path.display().to_string(),
                reason: "a process has it open or a mount of it is left, perhaps in another mount namespace",
            });
        }
    }
    for writable in [true, false].into_iter().filter(|writable| which(*writable)) {
        remove_file(&held.link(call, volume, writable))?;
    }
    Ok(())
}
