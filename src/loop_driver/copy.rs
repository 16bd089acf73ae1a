//! Copies of what volumes hold: new volumes with the content of another one or of a snapshot, and snapshots.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use super::capacity;
use super::device::LoopDevices;
use super::driver::Call;
use super::error::Error;
use super::expand;
use super::ids::{SnapshotId, VolumeId};
use super::lock::Lock;
use super::program::run;
use super::record;
use super::snapshot_record;
use super::state::{LockedSnapshot, LockedVolume, remove_file, sync_parent};
use crate::csi::proto::csi::v1 as wire;
use crate::csi::proto::csi::v1::volume_content_source::Type;

/// How long nothing may have been written to a volume in use before it is copied: longer than the kernel takes to give two
/// writes different times.
const QUIET: Duration = Duration::from_millis(200);
/// How often a volume that is written to meanwhile is copied anew.
const TRIES: u32 = 5;

/// What a new volume has its content from.
#[derive(Debug)]
pub(super) enum Source {
    Volume(VolumeId),
    Snapshot(SnapshotId),
}

impl Source {
    /// The id of the volume or the snapshot, which tells by itself which of both it is.
    pub(super) fn id(&self) -> &str {
        match self {
            Self::Volume(id) => id.as_str(),
            Self::Snapshot(id) => id.as_str(),
        }
    }
}

/// A source that exists, locked.
#[derive(Debug)]
pub(super) enum Opened {
    Volume(LockedVolume),
    Snapshot(LockedSnapshot),
}

/// A copy of a volume that is to be made: at which path, and under which lock.
#[derive(Debug)]
pub(super) struct Cut<'a> {
    pub(super) source: &'a LockedVolume,
    pub(super) lock: &'a Lock,
    pub(super) to: PathBuf,
}

/// What a new volume is to have its content from, if something is named.
pub(super) fn source_of(source: Option<&wire::VolumeContentSource>) -> Result<Option<Source>, Error> {
    let Some(source) = source else { return Ok(None) };
    let source = match &source.r#type {
        Some(Type::Volume(wire::volume_content_source::VolumeSource { volume_id })) => {
            let id = VolumeId::parse(volume_id);
            Source::Volume(id.ok_or_else(|| Error::NoVolume(volume_id.clone()))?)
        }
        Some(Type::Snapshot(wire::volume_content_source::SnapshotSource { snapshot_id })) => {
            let id = SnapshotId::parse(snapshot_id);
            Source::Snapshot(id.ok_or_else(|| Error::NoSnapshot(snapshot_id.clone()))?)
        }
        None => return Err(Error::Missing("volume_content_source.type")),
    };
    Ok(Some(source))
}

/// Copies a source's content into the data file of a new volume, which is as large or larger.
pub(super) fn copy(call: &Call<'_>, source: &Opened, volume: &LockedVolume, bytes: i64) -> Result<(), Error> {
    let to = volume.data();
    match source {
        Opened::Volume(source) => cut(&[Cut { source, lock: &volume.lock, to: to.clone() }])?,
        Opened::Snapshot(snapshot) => copy_file(&volume.lock, &snapshot.data(), &to)?,
    }
    sync_parent(&to)?;
    call.step("copied")?;
    // Also where it is no larger: the source may have grown, and its file system not yet.
    expand::resize(call, volume, bytes)
}

/// Copies volumes, all of them as they are at one and the same moment.
///
/// Of a volume in use the copy is what its disk would hold after a power failure at that moment: what its users have synced,
/// and all that they wrote before the call. Whoever has it goes on: what counts is that nothing reaches its file while that is
/// copied. One that is written to all the time is refused.
pub(super) fn cut(cuts: &[Cut<'_>]) -> Result<(), Error> {
    let mut in_use = Vec::new();
    for Cut { source, .. } in cuts {
        if source.formatting().exists() {
            let reason = "its file system is being made";
            return Err(Error::OutOfOrder(format!("volume {:?} cannot be copied: {reason}", source.id)));
        }
        if !LoopDevices::open(source)?.on(&source.data())?.is_empty() {
            in_use.push(*source);
        }
    }
    let mut restless = None;
    for _ in 0..TRIES {
        for source in &in_use {
            let devices = LoopDevices::open(source)?;
            for device in devices.on(&source.data())? {
                devices.flush(&device)?;
            }
        }
        let written: Vec<SystemTime> =
            in_use.iter().map(|source| last_write(&source.data())).collect::<Result<_, _>>()?;
        if !in_use.is_empty() {
            thread::sleep(QUIET);
        }
        restless = written_since(&in_use, &written)?;
        if restless.is_some() {
            continue;
        }
        for Cut { source, lock, to } in cuts {
            copy_file(lock, &source.data(), to)?;
        }
        restless = written_since(&in_use, &written)?;
        if restless.is_none() {
            return Ok(());
        }
    }
    Err(Error::Unfit {
        volume: restless.map(|volume| volume.id.as_str().to_owned()).unwrap_or_default(),
        reason: format!(
            "it was written to each of the {TRIES} times that a copy was begun, which would have been of no one moment: have \
             its users pause, or copy it while nobody has it"
        ),
    })
}

/// The first of the volumes that has been written to after it was last written to at these times.
fn written_since<'a>(
    volumes: &[&'a LockedVolume],
    written: &[SystemTime],
) -> Result<Option<&'a LockedVolume>, Error> {
    for (volume, before) in volumes.iter().zip(written) {
        if last_write(&volume.data())? != *before {
            return Ok(Some(volume));
        }
    }
    Ok(None)
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

/// The source of a volume that is to be made, locked, with the bytes of its content.
pub(super) fn open(
    call: &Call<'_>,
    source: &Source,
    range: Option<&wire::CapacityRange>,
) -> Result<(Opened, i64), Error> {
    match source {
        Source::Volume(id) => {
            let (volume, bytes) = open_volume(call, id.as_str())?;
            Ok((Opened::Volume(volume), bytes))
        }
        Source::Snapshot(id) => {
            let snapshot = call.state().lock_snapshot(id.clone())?;
            let record = snapshot_record::find(&snapshot)?;
            if !record.is_ready() {
                return Err(Error::OutOfOrder(format!("snapshot {id:?} is not ready to use yet")));
            }
            capacity::check_holds(range, record.size_bytes)?;
            Ok((Opened::Snapshot(snapshot), record.size_bytes))
        }
    }
}

/// A volume that is to be copied, locked, with the bytes of its content: more than it says to have, while it is enlarged.
pub(super) fn open_volume(call: &Call<'_>, volume_id: &str) -> Result<(LockedVolume, i64), Error> {
    let volume = call.lock(volume_id)?;
    record::find(&volume)?;
    let bytes = volume.data_bytes()?;
    Ok((volume, i64::try_from(bytes).unwrap_or(i64::MAX)))
}
