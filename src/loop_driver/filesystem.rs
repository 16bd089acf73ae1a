//! File systems on a volume: what is there, making one, mounting it.
//!
//! Probing and formatting work on the data file before any loop device is set up on it, so that the kernel has no cached
//! block of it and a read-only device needs no writable moment.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::device::LoopDevice;
use super::error::Error;
use super::lock::Lock;
use super::program::run;
use super::state::{LockedVolume, sync_parent};

/// The exit code of blkid when it recognises nothing. It says the same of a device that it cannot read.
const BLKID_NOTHING: i32 = 2;
/// The exit codes of e2fsck that are good: nothing to do, and errors corrected.
const E2FSCK_FINE: [i32; 2] = [0, 1];

/// The file systems that this driver makes and mounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum FileSystem {
    Ext4,
    Xfs,
}

impl FileSystem {
    pub(super) fn parse(name: &str) -> Option<Self> {
        [Self::Ext4, Self::Xfs].into_iter().find(|kind| kind.name() == name)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }

    /// The smallest volume that its mkfs accepts with room to spare.
    pub(super) fn least_bytes(self) -> i64 {
        match self {
            Self::Ext4 => 8 << 20,
            Self::Xfs => 300 << 20,
        }
    }

    /// The option without which a copy of the file system is not mounted beside it: a copy has the same UUID.
    fn beside_its_copy(self) -> Option<&'static str> {
        match self {
            Self::Ext4 => None,
            Self::Xfs => Some("nouuid"),
        }
    }

    /// The option for a read-only mount whose journal cannot be replayed.
    fn without_journal(self) -> &'static str {
        match self {
            Self::Ext4 => "noload",
            Self::Xfs => "norecovery",
        }
    }
}

/// What a data file holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// All zeroes: it has never been written.
    Blank,
    /// A file system that this driver knows.
    Known(FileSystem),
    /// Something else, of which this driver must not touch anything.
    Foreign(String),
}

/// Looks at what the file holds. Only what blkid does not recognise *and* is zero throughout counts as blank: a volume
/// that was used as a raw device looks just as empty to blkid.
pub(super) fn probe(lock: &Lock, data: &Path) -> Result<Content, Error> {
    let path = data.to_string_lossy();
    let probed = run(lock, "blkid", &["--probe", "--output", "export", &path])?;
    match probed.code() {
        Some(0) => {
            let value =
                |key: &str| probed.stdout.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            let found = value("TYPE").or_else(|| value("PTTYPE")).unwrap_or("an unknown signature");
            Ok(FileSystem::parse(found).map_or_else(|| Content::Foreign(found.to_owned()), Content::Known))
        }
        Some(BLKID_NOTHING) if is_zero(data)? => Ok(Content::Blank),
        Some(BLKID_NOTHING) => Ok(Content::Foreign("data without a known signature".to_owned())),
        _ => Err(probed.into_error()),
    }
}

/// Whether the file reads as zeroes. Holes are skipped, so a volume that was never written costs nothing.
fn is_zero(path: &Path) -> Result<bool, Error> {
    let read = || -> io::Result<bool> {
        let mut file = File::open(path)?;
        let mut block = vec![0_u8; 1 << 20];
        let mut at = 0_u64;
        loop {
            match rustix::fs::seek(&file, SeekFrom::Data(at)) {
                Ok(found) => at = found,
                Err(Errno::NXIO) => return Ok(true),
                Err(errno) => return Err(errno.into()),
            }
            let length = file.read(&mut block)?;
            if length == 0 {
                return Ok(true);
            }
            if block[..length].iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            at += u64::try_from(length).map_err(io::Error::other)?;
        }
    };
    read().map_err(Error::io("read", path))
}

/// Makes a file system on the volume. Its file `formatting` exists while this runs: an interrupted mkfs leaves neither a
/// blank volume nor a file system, and the next one may then start over.
pub(super) fn format(volume: &LockedVolume, kind: FileSystem) -> Result<(), Error> {
    let (lock, data, begun) = (&volume.lock, volume.data(), volume.formatting());
    File::create(&begun).and_then(|file| file.sync_all()).map_err(Error::io("write", &begun))?;
    sync_parent(&begun)?;
    let path = data.to_string_lossy();
    let made = match kind {
        // No reserved blocks: nobody logs in to such a file system as root to clean it up. The file is all holes, so mkfs
        // need write no zeroes, and must not leave it to the kernel to write them once the volume is mounted.
        FileSystem::Ext4 => {
            let extended = "lazy_itable_init=0,lazy_journal_init=1";
            run(lock, "mkfs.ext4", &["-q", "-F", "-m", "0", "-E", extended, &path])?
        }
        FileSystem::Xfs => run(lock, "mkfs.xfs", &["-q", "-f", "-K", &path])?,
    };
    made.success()?;
    File::open(&data).and_then(|file| file.sync_all()).map_err(Error::io("sync", &data))?;
    fs::remove_file(&begun).map_err(Error::io("remove", &begun))?;
    sync_parent(&begun)
}

/// Replays an ext4 journal in the data file, as a device that refuses writes cannot do it at mount. There is no such
/// tool for xfs.
pub(super) fn replay_journal(lock: &Lock, data: &Path, kind: FileSystem) -> Result<(), Error> {
    if kind != FileSystem::Ext4 {
        return Ok(());
    }
    check(lock, &["-p", "-E", "journal_only", &data.to_string_lossy()])
}

/// Runs e2fsck, which has to find or leave an ext4 file system whole.
fn check(lock: &Lock, arguments: &[&str]) -> Result<(), Error> {
    let checked = run(lock, "e2fsck", arguments)?;
    if checked.code().is_some_and(|code| E2FSCK_FINE.contains(&code)) {
        return Ok(());
    }
    Err(checked.into_error())
}

/// Has a mounted file system fill its device.
pub(super) fn grow(lock: &Lock, device: &LoopDevice, point: &Path, kind: FileSystem) -> Result<(), Error> {
    let (device, point) = (device.path.as_os_str(), point.as_os_str());
    match kind {
        FileSystem::Ext4 => run(lock, "resize2fs", &[device])?,
        FileSystem::Xfs => run(lock, "xfs_growfs", &["-d".as_ref(), point])?,
    }
    .success()
    .map(drop)
}

/// Has an ext4 file system fill its data file, which no device has open. This needs no right to resize what is mounted, and
/// no mount that its journal would refuse. xfs grows when it is mounted only.
pub(super) fn grow_unmounted(lock: &Lock, data: &Path, kind: FileSystem) -> Result<bool, Error> {
    if kind != FileSystem::Ext4 {
        return Ok(false);
    }
    let path = data.to_string_lossy();
    // resize2fs wants to know that the file system is whole.
    check(lock, &["-f", "-p", &path])?;
    run(lock, "resize2fs", &[&*path])?.success()?;
    File::open(data).and_then(|file| file.sync_all()).map_err(Error::io("sync", data))?;
    Ok(true)
}

/// Mounts a device. Mount flags may hold credentials, so with any given the program's own words are left out of errors.
pub(super) fn mount(
    lock: &Lock,
    device: &LoopDevice,
    point: &Path,
    kind: FileSystem,
    flags: &[String],
    read_only: bool,
) -> Result<(), Error> {
    let try_with = |more: &[&str]| {
        let flags = flags.iter().map(String::as_str).chain(kind.beside_its_copy());
        let options = flags.chain(more.iter().copied()).collect::<Vec<_>>().join(",");
        let mut arguments = vec!["--types".as_ref(), kind.name().as_ref()];
        if !options.is_empty() {
            arguments.extend(["--options".as_ref(), std::ffi::OsStr::new(&options)]);
        }
        arguments.extend([device.path.as_os_str(), point.as_os_str()]);
        run(lock, "mount", &arguments)
    };
    let mut outcome = try_with(if read_only { &["ro"] } else { &[] })?;
    if read_only && outcome.code() != Some(0) {
        outcome = try_with(&["ro", kind.without_journal()])?;
    }
    match outcome.code() {
        Some(0) => Ok(()),
        _ if flags.is_empty() => Err(outcome.into_error()),
        _ => Err(outcome.into_silent_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loop_driver::ids::VolumeId;
    use crate::loop_driver::state::{StateDir, make_dir};
    use std::io::{Seek as _, SeekFrom as Position, Write as _};

    fn workbench() -> (tempfile::TempDir, LockedVolume) {
        let dir = tempfile::tempdir().unwrap();
        let volume = StateDir::open(dir.path()).unwrap().lock_volume(VolumeId::of_name("v")).unwrap();
        make_dir(&volume.path).unwrap();
        File::create(volume.data()).unwrap().set_len(320 << 20).unwrap();
        (dir, volume)
    }

    #[test]
    fn only_zeroes_are_blank() {
        let (_dir, volume) = workbench();
        let (lock, data) = (&volume.lock, volume.data());
        assert_eq!(probe(lock, &data).unwrap(), Content::Blank);
        let mut file = File::options().write(true).open(&data).unwrap();
        file.seek(Position::Start(200 << 20)).unwrap();
        file.write_all(&[0; 8192]).unwrap();
        assert_eq!(probe(lock, &data).unwrap(), Content::Blank, "written zeroes are still zeroes");
        file.write_all(b"x").unwrap();
        assert!(matches!(probe(lock, &data).unwrap(), Content::Foreign(_)), "raw data is not blank");
    }

    #[test]
    fn formats_and_recognises() {
        for kind in [FileSystem::Ext4, FileSystem::Xfs] {
            let (_dir, volume) = workbench();
            format(&volume, kind).unwrap();
            assert_eq!(probe(&volume.lock, &volume.data()).unwrap(), Content::Known(kind));
            assert!(!volume.formatting().exists());
            replay_journal(&volume.lock, &volume.data(), kind).unwrap();
        }
    }

    #[test]
    fn a_file_that_cannot_be_probed_is_an_error_and_not_blank() {
        let (dir, volume) = workbench();
        assert!(probe(&volume.lock, &dir.path().join("missing")).is_err());
    }

    #[test]
    fn other_signatures_are_foreign() {
        let (_dir, volume) = workbench();
        let swap = std::process::Command::new("mkswap").arg(volume.data()).output().unwrap();
        assert!(swap.status.success());
        assert_eq!(probe(&volume.lock, &volume.data()).unwrap(), Content::Foreign("swap".to_owned()));
    }
}
