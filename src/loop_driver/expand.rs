//! ControllerExpandVolume and NodeExpandVolume: more bytes in the data file, then in the devices and the file system.
//!
//! The file `grow` exists from before the data file grows until its file system fills it: so whoever stages the volume
//! next finishes what nobody did while it was in use.

use std::fs::File;

use super::capacity;
use super::device::{LoopDevice, LoopDevices};
use super::driver::{Call, check_volume_id};
use super::error::Error;
use super::filesystem::{self, Content, FileSystem};
use super::holding::{self, Holding};
use super::mounts;
use super::record;
use super::room;
use super::state::{LockedVolume, VolumeDir, remove_file, sync_parent, write_json};
use super::usage::Access;
use crate::csi::proto::csi::v1 as wire;

/// ControllerExpandVolume.
pub(super) fn expand(
    call: &Call<'_>,
    request: &wire::ControllerExpandVolumeRequest,
) -> Result<wire::ControllerExpandVolumeResponse, Error> {
    check_volume_id(&request.volume_id)?;
    let range = request.capacity_range.as_ref().ok_or(Error::Missing("capacity_range"))?;
    let volume = call.lock(&request.volume_id)?;
    let mut record = record::find(&volume)?;
    let size = capacity::choose(Some(range), record.capacity_bytes)?;
    if size > record.capacity_bytes {
        room::check(call, size - record.capacity_bytes)?;
        resize(call, &volume, size)?;
        record.capacity_bytes = size;
        write_json(&volume.record(), &record)?;
    }
    // A device has the size that the file had when it was set up.
    Ok(wire::ControllerExpandVolumeResponse { capacity_bytes: size, node_expansion_required: true })
}

/// Makes the data file larger. A call that is cut short is repeated: until the record says so the volume has not grown.
pub(super) fn resize(call: &Call<'_>, volume: &VolumeDir, bytes: i64) -> Result<(), Error> {
    let (data, grow) = (volume.data(), volume.grow());
    File::create(&grow).and_then(|file| file.sync_all()).map_err(Error::io("write", &grow))?;
    sync_parent(&grow)?;
    let grown = File::options().write(true).open(&data).and_then(|file| {
        file.set_len(bytes.unsigned_abs())?;
        file.sync_all()
    });
    grown.map_err(Error::io("enlarge", &data))?;
    call.step("enlarged")
}

/// NodeExpandVolume.
pub(super) fn node_expand(
    call: &Call<'_>,
    request: &wire::NodeExpandVolumeRequest,
) -> Result<wire::NodeExpandVolumeResponse, Error> {
    check_volume_id(&request.volume_id)?;
    if request.volume_path.is_empty() {
        return Err(Error::Missing("volume_path"));
    }
    let volume = call.lock(&request.volume_id)?;
    let record = record::find(&volume)?;
    let wanted = request.capacity_range.as_ref().map_or(0, |range| range.required_bytes);
    if wanted > record.capacity_bytes {
        return Err(Error::OutOfRange(format!(
            "the volume has {} bytes: ControllerExpandVolume comes before NodeExpandVolume",
            record.capacity_bytes
        )));
    }
    let (held, _) = holding::at(call, &volume, &request.volume_path)?;
    for device in resized(call, &volume, &held)? {
        if held.writable && device.name_for(&volume.id).is_some_and(|name| name.writable) {
            grow(call, &volume, &held, &device)?;
        }
    }
    Ok(wire::NodeExpandVolumeResponse { capacity_bytes: record.capacity_bytes })
}

/// This node's devices of the volume, as large as its file now.
fn resized(call: &Call<'_>, volume: &LockedVolume, held: &Holding) -> Result<Vec<LoopDevice>, Error> {
    let devices = LoopDevices::open(volume)?;
    let own: Vec<LoopDevice> =
        held.own(call, volume, &devices)?.into_iter().filter(|device| !device.closing).collect();
    for device in &own {
        devices.resize(device)?;
    }
    drop(devices);
    call.step("resized")?;
    Ok(own)
}

/// Has the file system of a staged volume fill its device.
fn grow(call: &Call<'_>, volume: &LockedVolume, held: &Holding, device: &LoopDevice) -> Result<(), Error> {
    let point = &held.staging_path;
    if held.terms.access == Access::Block {
        return settle(volume);
    }
    let unfit =
        |reason: &str| Error::Unfit { volume: volume.id.as_str().to_owned(), reason: reason.to_owned() };
    if mounts::at(point)?.is_none_or(|mount| !device.is_mounted_as(&mount)) {
        return Err(unfit("it is not mounted at its staging path: NodeStageVolume comes first"));
    }
    let Content::Known(kind) = filesystem::probe(&volume.lock, &volume.data())? else {
        return Err(unfit("it has no file system that this driver knows"));
    };
    filesystem::grow(&volume.lock, device, point, kind)?;
    call.step("grown")?;
    settle(volume)
}

/// Finishes before a volume is staged what was begun while no node had it, where its file system need not be mounted for
/// that.
pub(super) fn catch_up_unmounted(
    call: &Call<'_>,
    volume: &LockedVolume,
    held: &Holding,
    kind: FileSystem,
) -> Result<(), Error> {
    if !held.writable || !volume.grow().exists() {
        return Ok(());
    }
    let data = volume.data();
    if !LoopDevices::open(volume)?.on(&data)?.is_empty() {
        return Ok(());
    }
    if filesystem::grow_unmounted(&volume.lock, &data, kind)? {
        call.step("grown")?;
        settle(volume)?;
    }
    Ok(())
}

/// Finishes for a volume that is being staged what was begun while no node had it.
pub(super) fn catch_up(
    call: &Call<'_>,
    volume: &LockedVolume,
    held: &Holding,
    device: &LoopDevice,
) -> Result<(), Error> {
    if held.writable && volume.grow().exists() { grow(call, volume, held, device) } else { Ok(()) }
}

/// The file system fills the volume.
fn settle(volume: &LockedVolume) -> Result<(), Error> {
    let grow = volume.grow();
    if !grow.exists() {
        return Ok(());
    }
    remove_file(&grow)?;
    sync_parent(&grow)
}
