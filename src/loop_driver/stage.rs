//! NodeStageVolume and NodeUnstageVolume: the volume's loop device on this node, and its file system at the staging path.

use std::fs;
use std::path::Path;

use super::attach;
use super::device::{LoopDevice, LoopDevices};
use super::driver::{Call, require, require_path, require_volume_id};
use super::error::Error;
use super::filesystem::{self, Content, FileSystem};
use super::holding::{self, Holding};
use super::lock::Lock;
use super::mounts;
use super::state::{VolumeId, remove_file};
use super::usage::{Access, Usage};
use super::volume;
use crate::csi::proto::csi::v1::{
    NodeStageVolumeRequest, NodeStageVolumeResponse, NodeUnstageVolumeRequest, NodeUnstageVolumeResponse,
};

/// NodeStageVolume.
pub(super) fn stage(
    call: &Call<'_>,
    request: &NodeStageVolumeRequest,
) -> Result<NodeStageVolumeResponse, Error> {
    require("volume_id", &request.volume_id)?;
    let staging = require_path("staging_target_path", &request.staging_target_path)?;
    let usage = Usage::require(request.volume_capability.as_ref())?;
    let id = require_volume_id(&request.volume_id)?;
    let lock = call.state().lock_volume(&id)?;
    volume::find(call, &id)?.check_context(&request.volume_context)?;
    let attachment = attach::prove(call, &id, &request.publish_context, usage.terms)?;
    // Not through a link either: the mount would not be found at this path again.
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
    let begins = match holding::load(call, &id)? {
        None => true,
        // An earlier call was cut short before its mount.
        Some(held) => {
            held.terms.access != Access::Block
                && held.targets.is_empty()
                && mounts::at(&wanted.staging_path)?.is_none()
        }
    };
    let held = claim(call, &lock, &id, wanted)?;
    match set_up(call, &lock, &id, &held, &usage) {
        // A refusal that the caller may take for final must leave nothing behind: it will not unstage.
        Err(refusal) if begins => {
            withdraw(call, &lock, &id, &held)?;
            Err(refusal)
        }
        done => done.map(|()| NodeStageVolumeResponse {}),
    }
}

fn set_up(call: &Call<'_>, lock: &Lock, id: &VolumeId, held: &Holding, usage: &Usage) -> Result<(), Error> {
    match held.terms.access {
        Access::Block => {
            // From here on the content is the user's, whatever a mkfs was about to do before.
            remove_file(&call.state().formatting(id))?;
            device_for(call, lock, id, held).map(drop)
        }
        Access::Mount(asked) => {
            // Formatted before the device is set up; so where there is a device, that is done.
            let kind = prepare(call, lock, id, held, asked)?;
            let device = device_for(call, lock, id, held)?;
            mount(call, lock, held, &device, kind, usage)
        }
    }
}

/// Undoes what a call that failed has set up.
fn withdraw(call: &Call<'_>, lock: &Lock, id: &VolumeId, held: &Holding) -> Result<(), Error> {
    if held.terms.access != Access::Block {
        unmount(call, lock, id, held)?;
    }
    detach(call, lock, id, held, |_| true)?;
    holding::forget(call, id)
}

/// Writes down that the volume is about to be staged, or checks that it was staged in just this way.
fn claim(call: &Call<'_>, lock: &Lock, id: &VolumeId, wanted: Holding) -> Result<Holding, Error> {
    let Some(held) = holding::load(call, id)? else {
        holding::save(call, id, &wanted)?;
        return Ok(wanted);
    };
    if held.token != wanted.token {
        let devices = LoopDevices::open(lock)?;
        let has_device = devices.list()?.iter().any(|device| held.owns(call.driver, id, device));
        if has_device || mounts::at(&held.staging_path)?.is_some() || !held.live_targets()?.is_empty() {
            return Err(Error::OutOfOrder(format!(
                "volume {:?} is still staged for an attachment that has ended: NodeUnstageVolume comes first",
                id.as_str()
            )));
        }
        holding::save(call, id, &wanted)?;
        return Ok(wanted);
    }
    if held.staging_path != wanted.staging_path {
        return Err(Error::OutOfOrder(format!(
            "volume {:?} is staged at {}: a node has one staging path per volume",
            id.as_str(),
            held.staging_path.display()
        )));
    }
    if held.terms != wanted.terms || held.flags != wanted.flags {
        return Err(Error::Different(format!(
            "volume {:?} is staged as {}, or with other mount flags",
            id.as_str(),
            held.terms
        )));
    }
    Ok(held)
}

/// The volume's device on this node: the one that an interrupted or earlier call has set up, or a new one.
fn device_for(call: &Call<'_>, lock: &Lock, id: &VolumeId, held: &Holding) -> Result<LoopDevice, Error> {
    let link = held.link(call.driver, id, held.writable);
    let devices = LoopDevices::open(lock)?;
    if let Some(device) = devices.find(&link)? {
        return Ok(device);
    }
    if let Some(closing) = devices.list()?.iter().find(|device| held.owns(call.driver, id, device)) {
        return Err(Error::Busy {
            what: closing.path.display().to_string(),
            reason: "it was detached while open, and must be closed before the volume can be staged again",
        });
    }
    holding::make_link(&call.state().data(id), &link)?;
    let device = devices.attach(&link, held.writable)?;
    drop(devices);
    call.step("attached")?;
    Ok(device)
}

/// Sees to it that there is a file system on the volume.
fn prepare(
    call: &Call<'_>,
    lock: &Lock,
    id: &VolumeId,
    held: &Holding,
    asked: Option<FileSystem>,
) -> Result<FileSystem, Error> {
    let (data, begun) = (call.state().data(id), call.state().formatting(id));
    let unfit = |reason: String| Error::Unfit { volume: id.as_str().to_owned(), reason };
    // A mkfs that was cut short has left neither zeroes nor a file system, and nobody's data.
    let content = if begun.exists() { Content::Blank } else { filesystem::probe(lock, &data)? };
    match (content, asked) {
        (Content::Blank, asked) => {
            let kind = asked.unwrap_or(FileSystem::Ext4);
            let size = fs::metadata(&data).map_err(Error::io("look at", &data))?.len();
            if size < kind.least_bytes().unsigned_abs() {
                let least = kind.least_bytes();
                return Err(unfit(format!("{} needs {least} bytes, and it has {size}", kind.name())));
            }
            call.step("blank")?;
            filesystem::format(lock, &data, &begun, kind)?;
            call.step("formatted")?;
            Ok(kind)
        }
        (Content::Known(found), Some(asked)) if found != asked => {
            Err(unfit(format!("it holds {}, and {} was asked for", found.name(), asked.name())))
        }
        (Content::Known(kind), _) => {
            replay(call, lock, id, held, kind)?;
            Ok(kind)
        }
        (Content::Foreign(found), _) => Err(unfit(format!("it holds {found}, which is not formatted over"))),
    }
}

/// Before a node that may not write mounts it, the journal of a volume that no device has open is brought up to date.
fn replay(
    call: &Call<'_>,
    lock: &Lock,
    id: &VolumeId,
    held: &Holding,
    kind: FileSystem,
) -> Result<(), Error> {
    if held.writable {
        return Ok(());
    }
    let data = call.state().data(id);
    let inode = super::device::Inode::of(&data)?;
    let devices = LoopDevices::open(lock)?;
    if devices.list()?.iter().any(|device| device.holds(inode)) {
        return Ok(());
    }
    filesystem::replay_journal(lock, &data, kind)
}

fn mount(
    call: &Call<'_>,
    lock: &Lock,
    held: &Holding,
    device: &LoopDevice,
    kind: FileSystem,
    usage: &Usage,
) -> Result<(), Error> {
    let point = &held.staging_path;
    match mounts::at(point)? {
        Some(mount) if mount.device == device.number()? => return Ok(()),
        Some(_) => return Err(occupied(point)),
        None => {}
    }
    filesystem::mount(lock, device, point, kind, &usage.flags, !held.writable)?;
    call.step("mounted")
}

fn occupied(path: &Path) -> Error {
    Error::Occupied { path: path.to_owned(), reason: "another file system is mounted there".to_owned() }
}

/// NodeUnstageVolume. The volume need not exist any more: a node that was fenced still has to clean up.
pub(super) fn unstage(
    call: &Call<'_>,
    request: &NodeUnstageVolumeRequest,
) -> Result<NodeUnstageVolumeResponse, Error> {
    let done = Ok(NodeUnstageVolumeResponse {});
    let id = require_volume_id(&request.volume_id);
    let staging = require_path("staging_target_path", &request.staging_target_path)?;
    let id = match id {
        Err(Error::NoVolume(_)) => return done,
        id => id?,
    };
    let lock = call.state().lock_volume(&id)?;
    let Some(held) = holding::load(call, &id)? else { return done };
    if held.staging_path != staging {
        return Err(Error::OutOfOrder(format!(
            "volume {:?} is staged at {}, not there",
            id.as_str(),
            held.staging_path.display()
        )));
    }
    if let Some(target) = held.live_targets()?.first() {
        return Err(Error::OutOfOrder(format!(
            "volume {:?} is published at {}: NodeUnpublishVolume comes before NodeUnstageVolume",
            id.as_str(),
            target.display()
        )));
    }
    if held.terms.access != Access::Block {
        unmount(call, &lock, &id, &held)?;
        call.step("unmounted")?;
    }
    detach(call, &lock, &id, &held, |_| true)?;
    call.step("detached")?;
    holding::forget(call, &id)?;
    Ok(NodeUnstageVolumeResponse {})
}

/// Unmounts what this driver has mounted; what somebody else has mounted at the path is not touched.
fn unmount(call: &Call<'_>, lock: &Lock, id: &VolumeId, held: &Holding) -> Result<(), Error> {
    let Some(mount) = mounts::at(&held.staging_path)? else { return Ok(()) };
    let devices = LoopDevices::open(lock)?.list()?;
    let own = devices.iter().filter(|device| held.owns(call.driver, id, device));
    if !own.map(LoopDevice::number).any(|number| number.is_ok_and(|number| number == mount.device)) {
        return Err(occupied(&held.staging_path));
    }
    mounts::unmount(&held.staging_path)
}

/// Detaches this attachment's devices, those that `which` picks by whether they take writes.
pub(super) fn detach(
    call: &Call<'_>,
    lock: &Lock,
    id: &VolumeId,
    held: &Holding,
    which: impl Fn(bool) -> bool,
) -> Result<(), Error> {
    let devices = LoopDevices::open(lock)?;
    for device in devices.list()? {
        let picked = device.name_for(id).is_some_and(|name| which(name.writable));
        if picked && held.owns(call.driver, id, &device) && !devices.detach(&device)? {
            return Err(Error::Busy {
                what: device.path.display().to_string(),
                reason: "a process has it open or a mount of it is left, perhaps in another mount namespace",
            });
        }
    }
    for writable in [true, false].into_iter().filter(|writable| which(*writable)) {
        remove_file(&held.link(call.driver, id, writable))?;
    }
    Ok(())
}
