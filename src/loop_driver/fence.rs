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
use super::device::{DeviceName, Inode, LoopDevices};
use super::driver::Call;
use super::error::Error;
use super::lock::Lock;
use super::program::run;
use super::state::{NodeKey, VolumeId, remove_file, sync_parent};

/// Detaches every device of the volume that belongs to no attachment in `keep`. Returns the node of one that takes writes
/// and could not be detached.
pub(super) fn sweep(
    call: &Call<'_>,
    lock: &Lock,
    id: &VolumeId,
    keep: &Attachments,
) -> Result<Option<String>, Error> {
    let data = call.state().data(id);
    // The copy of a renewal that was interrupted.
    remove_file(&copy_of(&data))?;
    let inode = Inode::of(&data)?;
    let mut ghost = None;
    let devices = LoopDevices::open(lock)?;
    for device in devices.list()?.iter().filter(|device| device.holds(inode)) {
        // A device that does not bear our kind of name was set up by hand, for a look at the data.
        let Some(name) = device.name_for(id).filter(|name| !is_kept(name, keep)) else { continue };
        if !devices.detach(device)? && name.writable {
            ghost = Some(name.node);
        }
    }
    drop(devices);
    remove_links(&call.state().volume_dir(id), keep)?;
    if ghost.is_none() {
        thaw(&data)?;
    }
    Ok(ghost)
}

fn is_kept(name: &DeviceName, keep: &Attachments) -> bool {
    keep.iter()
        .any(|(node, attachment)| attachment.token == name.token && NodeKey::of(node).as_str() == name.node)
}

/// The device of an ended attachment keeps its name, with the kernel's note that the link is gone.
fn remove_links(dir: &Path, keep: &Attachments) -> Result<(), Error> {
    for entry in fs::read_dir(dir).map_err(Error::io("list", dir))? {
        let entry = entry.map_err(Error::io("list", dir))?;
        let name = entry.file_name();
        if name.to_str().and_then(DeviceName::parse).is_some_and(|name| !is_kept(&name, keep)) {
            // A frozen file cannot be unlinked either; its links go with the next sweep.
            if let Err(error) = remove_file(&entry.path()) {
                tracing::debug!(%error, "a link stays for now");
            }
        }
    }
    Ok(())
}

/// Gives the volume a data file that no ghost has open. Only for a volume that is attached nowhere.
///
/// Interrupted at any point, it is simply done again: until the rename, the volume is the old file.
pub(super) fn renew(call: &Call<'_>, lock: &Lock, id: &VolumeId) -> Result<(), Error> {
    let data = call.state().data(id);
    let copy = copy_of(&data);
    tracing::warn!(
        volume = id.as_str(),
        "a fenced node still has the device open: its file is frozen and replaced"
    );
    set_immutable(&data, true)?;
    call.step("frozen")?;
    remove_file(&copy)?;
    let (from, to) = (data.to_string_lossy(), copy.to_string_lossy());
    run(lock, "cp", &["--reflink=auto", "--sparse=always", "--preserve=mode", "--", &from, &to])?
        .success()?;
    File::open(&copy).and_then(|file| file.sync_all()).map_err(Error::io("sync", &copy))?;
    call.step("copied")?;
    // An immutable file cannot be replaced. What the ghost writes from here on is in no copy.
    set_immutable(&data, false)?;
    fs::rename(&copy, &data).map_err(Error::io("replace", &data))?;
    sync_parent(&data)?;
    remove_links(&call.state().volume_dir(id), &Attachments::new())
}

fn copy_of(data: &Path) -> PathBuf {
    data.with_extension("copy")
}

/// Makes the data writable again after a freeze that was interrupted; for a file that is gone, nothing.
pub(super) fn thaw(data: &Path) -> Result<(), Error> {
    if data.exists() { set_immutable(data, false) } else { Ok(()) }
}

fn set_immutable(path: &Path, wanted: bool) -> Result<(), Error> {
    let file = File::open(path).map_err(Error::io("open", path))?;
    let flags = match ioctl_getflags(&file) {
        Ok(flags) => flags,
        // A file system without such flags has never frozen anything.
        Err(_) if !wanted => return Ok(()),
        Err(errno) => return Err(Error::io("freeze", path)(errno.into())),
    };
    if flags.contains(IFlags::IMMUTABLE) == wanted {
        return Ok(());
    }
    ioctl_setflags(&file, flags ^ IFlags::IMMUTABLE).map_err(|errno| Error::io("freeze", path)(errno.into()))
}
