//! Cutting off what has no attachment any more.
//!
//! `losetup --detach` ends a device that nobody has open. One that is still mounted, in a namespace that this process
//! cannot see, stays until its last user closes it, and goes on writing. Such a ghost is cut off by taking its file away:
//! the data file is frozen (immutable, so that every write through an open device fails), copied, and the copy becomes the
//! volume. Reading and writing then go on with a file that the ghost has never seen.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

use super::attachments::Attachments;
use super::copy;
use super::device::{DeviceName, LoopDevices};
use super::driver::Call;
use super::error::Error;
use super::state::{LockedVolume, NodeKey, VolumeDir, file_names, remove_file, sync_parent};

/// Detaches every device of the volume that belongs to no attachment in `keep`. Returns the node of a device that takes
/// writes and could not be detached.
pub(super) fn sweep(volume: &LockedVolume, keep: &Attachments) -> Result<Option<String>, Error> {
    let data = volume.data();
    // A renewal that was interrupted has left its copy.
    remove_file(&copy_of(&data))?;
    let mut ghost = None;
    let devices = LoopDevices::open(volume)?;
    for device in &devices.on(&data)? {
        // A device that does not bear our kind of name was set up by hand, for a look at the data.
        let Some(name) = device.name_for(&volume.id).filter(|name| !is_kept(name, keep)) else { continue };
        if !devices.detach(device)? && name.writable {
            ghost = Some(name.node);
        }
    }
    drop(devices);
    remove_links(volume, keep)?;
    if ghost.is_none() {
        thaw(&data)?;
    }
    Ok(ghost)
}

fn is_kept(name: &DeviceName, keep: &Attachments) -> bool {
    keep.iter()
        .any(|(node, attachment)| attachment.token == name.token && NodeKey::of(node).as_str() == name.node)
}

/// Removes the links of attachments that have ended. A device that is still there keeps its name, with the kernel's note
/// that the link is gone.
fn remove_links(volume: &VolumeDir, keep: &Attachments) -> Result<(), Error> {
    let mut names = file_names(&volume.path)?;
    names.retain(|name| DeviceName::parse(name).is_some_and(|name| !is_kept(&name, keep)));
    for name in names {
        // A frozen file cannot be unlinked either; its links go with the next sweep.
        if let Err(error) = remove_file(&volume.path.join(name)) {
            tracing::debug!(%error, "a link stays for now");
        }
    }
    Ok(())
}

/// Gives a volume that is attached nowhere a data file that no ghost has open.
///
/// A renewal that was interrupted at any point is simply done again: until the rename, the volume is the old file.
pub(super) fn renew(call: &Call<'_>, volume: &LockedVolume) -> Result<(), Error> {
    let data = volume.data();
    let copy = copy_of(&data);
    tracing::warn!(volume = ?volume.id, "a fenced node still has the device open: its file is frozen and replaced");
    set_immutable(&data, true)?;
    call.step("frozen")?;
    copy::copy_file(&volume.lock, &data, &copy)?;
    call.step("copied")?;
    // An immutable file cannot be replaced. What the ghost writes from here on is in no copy.
    set_immutable(&data, false)?;
    fs::rename(&copy, &data).map_err(Error::io("replace", &data))?;
    sync_parent(&data)?;
    remove_links(volume, &Attachments::new())
}

fn copy_of(data: &Path) -> PathBuf {
    data.with_extension("copy")
}

/// Makes the data writable again after a freeze that was interrupted. For a file that is gone there is nothing to do.
pub(super) fn thaw(data: &Path) -> Result<(), Error> {
    if data.exists() { set_immutable(data, false) } else { Ok(()) }
}

fn set_immutable(path: &Path, wanted: bool) -> Result<(), Error> {
    let file = File::open(path).map_err(Error::io("open", path))?;
    let flags = match ioctl_getflags(&file) {
        Ok(flags) => flags,
        // A file system without such flags has never frozen anything.
        Err(_) if !wanted => return Ok(()),
        Err(errno) => return Err(Error::io("freeze", path)(errno)),
    };
    if flags.contains(IFlags::IMMUTABLE) == wanted {
        return Ok(());
    }
    ioctl_setflags(&file, flags ^ IFlags::IMMUTABLE).map_err(Error::io("freeze", path))
}
