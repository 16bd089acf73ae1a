//! A new volume with the content of another one.

use std::fs::{self, File};
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime};

use super::device::LoopDevices;
use super::driver::Call;
use super::error::Error;
use super::expand;
use super::lock::Lock;
use super::program::run;
use super::record;
use super::state::{LockedVolume, VolumeId, remove_file, sync_parent};
use crate::csi::proto::csi::v1 as wire;
use crate::csi::proto::csi::v1::volume_content_source::Type;

/// How long nothing may have been written to a volume in use before it is copied: longer than the kernel takes to give two
/// writes different times.
const QUIET: Duration = Duration::from_millis(200);
/// How often a volume that is written to meanwhile is copied anew.
const TRIES: u32 = 5;

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
/// Of a source in use the copy is what its disk would hold after a power failure at one moment: what its users have synced, and
/// all that they wrote before the call. One that is written to all the time is refused.
pub(super) fn copy(
    call: &Call<'_>,
    source: &LockedVolume,
    volume: &LockedVolume,
    bytes: i64,
) -> Result<(), Error> {
    if source.formatting().exists() {
        let reason = "its file system is being made";
        return Err(Error::OutOfOrder(format!("volume {:?} cannot be copied: {reason}", source.id)));
    }
    let (from, to) = (source.data(), volume.data());
    if LoopDevices::open(source)?.on(&from)?.is_empty() {
        copy_file(&volume.lock, &from, &to)?;
    } else {
        copy_in_use(source, volume)?;
    }
    sync_parent(&to)?;
    call.step("copied")?;
    // Also where it is no larger: the source may have grown, and its file system not yet.
    expand::resize(call, volume, bytes)
}

/// Copies a volume that a node has. Whoever has it goes on: what counts is that nothing reaches its file while that is copied.
fn copy_in_use(source: &LockedVolume, volume: &LockedVolume) -> Result<(), Error> {
    let (from, to) = (source.data(), volume.data());
    for _ in 0..TRIES {
        {
            let devices = LoopDevices::open(source)?;
            for device in devices.on(&from)? {
                devices.flush(&device)?;
            }
        }
        let written = last_write(&from)?;
        thread::sleep(QUIET);
        if last_write(&from)? != written {
            continue;
        }
        copy_file(&volume.lock, &from, &to)?;
        if last_write(&from)? == written {
            return Ok(());
        }
    }
    Err(Error::Unfit {
        volume: source.id.as_str().to_owned(),
        reason: format!(
            "it was written to each of the {TRIES} times that a copy was begun, which would have been of no one moment: have \
             its users pause, or copy it while nobody has it"
        ),
    })
}

fn last_write(file: &Path) -> Result<SystemTime, Error> {
    fs::metadata(file).and_then(|found| found.modified()).map_err(Error::io("look at", file))
}

/// Makes a file that is a copy of a data file, in place of one that an interrupted call has left.
pub(super) fn copy_file(lock: &Lock, from: &Path, to: &Path) -> Result<(), Error> {
    remove_file(to)?;
    let (from, to_text) = (from.to_string_lossy(), to.to_string_lossy());
    run(lock, "cp", &["--reflink=auto", "--sparse=always", "--preserve=mode", "--", &from, &to_text])?
        .success()?;
    File::open(to).and_then(|file| file.sync_all()).map_err(Error::io("sync", to))
}

/// The source of a volume that is to be made, locked, with the bytes of its content: more than it says to have, while it is
/// enlarged.
pub(super) fn open(call: &Call<'_>, id: &VolumeId) -> Result<(LockedVolume, i64), Error> {
    let source = call.lock(id.as_str())?;
    record::find(&source)?;
    let bytes = source.data_bytes()?;
    Ok((source, i64::try_from(bytes).unwrap_or(i64::MAX)))
}
