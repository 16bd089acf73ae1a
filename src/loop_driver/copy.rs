//! A new volume with the content of another one.

use std::fs::File;
use std::path::Path;

use super::device::{DeviceName, LoopDevices};
use super::driver::Call;
use super::error::Error;
use super::expand;
use super::lock::Lock;
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
    let to = volume.data();
    copy_file(&volume.lock, &source.data(), &to)?;
    sync_parent(&to)?;
    call.step("copied")?;
    // Also where it is no larger: the source may have grown, and its file system not yet.
    expand::resize(call, volume, bytes)
}

/// Makes a file that is a copy of a data file, in place of one that an interrupted call has left.
pub(super) fn copy_file(lock: &Lock, from: &Path, to: &Path) -> Result<(), Error> {
    remove_file(to)?;
    let (from, to_text) = (from.to_string_lossy(), to.to_string_lossy());
    run(lock, "cp", &["--reflink=auto", "--sparse=always", "--preserve=mode", "--", &from, &to_text])?
        .success()?;
    File::open(to).and_then(|file| file.sync_all()).map_err(Error::io("sync", to))
}

fn refuse_in_use(source: &LockedVolume) -> Result<(), Error> {
    if source.formatting().exists() {
        let reason = "its file system is being made";
        return Err(Error::OutOfOrder(format!("volume {:?} cannot be copied: {reason}", source.id)));
    }
    let writes = |name: &DeviceName| name.writable;
    let mut devices = LoopDevices::open(source)?.on(&source.data())?.into_iter();
    match devices.find_map(|device| device.name_for(&source.id).filter(writes)) {
        Some(name) => Err(Error::OutOfOrder(format!(
            "volume {:?} is in use on node {:?}, so a copy would be of no one moment: NodeUnstageVolume comes first",
            source.id, name.node
        ))),
        None => Ok(()),
    }
}

/// The source of a volume that is to be made, locked, with the bytes of its content: more than it says to have, while it is
/// enlarged.
pub(super) fn open(call: &Call<'_>, id: &VolumeId) -> Result<(LockedVolume, i64), Error> {
    let source = call.lock(id.as_str())?;
    record::find(&source)?;
    let bytes = source.data_bytes()?;
    Ok((source, i64::try_from(bytes).unwrap_or(i64::MAX)))
}
