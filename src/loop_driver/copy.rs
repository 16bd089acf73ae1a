//! A new volume with the content of another one.

use std::fs::File;

use super::device::{Inode, LoopDevices};
use super::driver::Call;
use super::error::Error;
use super::expand;
use super::program::run;
use super::record;
use super::state::{LockedVolume, VolumeId, remove_file, sync_parent};
use crate::csi::proto::csi::v1 as wire;
use crate::csi::proto::csi::v1::volume_content_source::Type;

/// The volume whose content a new one is to have, if one is named.
pub(super) fn source_of(source: Option<&wire::VolumeContentSource>) -> Result<Option<VolumeId>, Error> {
    let Some(source) = source else { return Ok(None) };
    match &source.r#type {
        Some(Type::Volume(volume)) => {
            let id = VolumeId::parse(&volume.volume_id);
            id.map(Some).ok_or_else(|| Error::NoVolume(volume.volume_id.clone()))
        }
        Some(Type::Snapshot(_)) => {
            Err(Error::invalid("volume_content_source", "this driver has no snapshots"))
        }
        None => Err(Error::Missing("volume_content_source.type")),
    }
}

/// Copies a volume's content into the data file of a new one, which is as large or larger.
///
/// A source that a node may write to is refused: its copy would be of no one moment.
pub(super) fn copy(
    call: &Call<'_>,
    source: &LockedVolume,
    volume: &LockedVolume,
    bytes: i64,
) -> Result<(), Error> {
    refuse_in_use(source)?;
    let (from, to) = (source.data(), volume.data());
    let (from_text, to_text) = (from.to_string_lossy(), to.to_string_lossy());
    remove_file(&to)?;
    let arguments = ["--reflink=auto", "--sparse=always", "--preserve=mode", "--", &from_text, &to_text];
    run(&volume.lock, "cp", &arguments)?.success()?;
    File::open(&to).and_then(|file| file.sync_all()).map_err(Error::io("sync", &to))?;
    sync_parent(&to)?;
    call.step("copied")?;
    if expand::size_of(&to)? < bytes.unsigned_abs() {
        expand::resize(call, volume, bytes)?;
    }
    Ok(())
}

fn refuse_in_use(source: &LockedVolume) -> Result<(), Error> {
    if source.formatting().exists() {
        let reason = "its file system is being made";
        return Err(Error::OutOfOrder(format!("volume {:?} cannot be copied: {reason}", source.id)));
    }
    let inode = Inode::of(&source.data())?;
    let devices = LoopDevices::open(source)?;
    let writes = |name: &super::device::DeviceName| name.writable;
    let mut held = devices.list()?.into_iter().filter(|device| device.holds(inode));
    match held.find_map(|device| device.name_for(&source.id).filter(writes)) {
        Some(name) => Err(Error::OutOfOrder(format!(
            "volume {:?} is in use on node {:?}, so a copy would be of no one moment: NodeUnstageVolume comes first",
            source.id, name.node
        ))),
        None => Ok(()),
    }
}

/// The source of a volume that is to be made, locked, with the bytes that it has.
pub(super) fn open(call: &Call<'_>, id: &VolumeId) -> Result<(LockedVolume, i64), Error> {
    let source = call.lock(id.as_str())?;
    let bytes = record::find(&source)?.capacity_bytes;
    Ok((source, bytes))
}
