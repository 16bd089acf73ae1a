//! What the kernel says of a device as a whole, and who has it open.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatxFlags, major, minor};
use rustix::io::Errno;

use super::survey::{namespace, processes};

/// File systems that have a folder here for each device that they use.
const KINDS: [&str; 4] = ["/sys/fs/ext4", "/sys/fs/xfs", "/sys/fs/f2fs", "/sys/fs/nilfs2"];
const DEVICES: &str = "/sys/dev/block";

/// What a process may have open.
#[derive(Clone, Copy, Debug)]
pub(super) enum Thing {
    /// A file or directory of the file system with this `major` and `minor`.
    FileSystem(u32, u32),
    /// The block device with them.
    Device(u32, u32),
}

/// Whether a file system or something else of the kernel's has the device, mounted or not. What cannot be asked is no.
pub(super) fn is_taken(number: &str) -> bool {
    let folder = Path::new(DEVICES).join(number);
    let name = fs::canonicalize(&folder).ok().and_then(|path| Some(path.file_name()?.to_owned()));
    let Some(name) = name else { return false };
    KINDS.iter().any(|kind| Path::new(kind).join(&name).exists()) || refuses_a_second(&folder, number)
}

/// A file system opens its device so that nobody else can have it for himself.
fn refuses_a_second(folder: &Path, number: &str) -> bool {
    let told = fs::read_to_string(folder.join("uevent")).unwrap_or_default();
    let Some(name) = told.lines().find_map(|line| line.strip_prefix("DEVNAME=")) else { return false };
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let path = Path::new("/dev").join(name);
    // Only a device's node means this by the flag, and only the right one.
    let right = rustix::fs::stat(&path).is_ok_and(|found| {
        FileType::from_raw_mode(found.st_mode) == FileType::BlockDevice
            && format!("{}:{}", major(found.st_rdev), minor(found.st_rdev)) == number
    });
    right && rustix::fs::open(&path, flags, Mode::empty()).is_err_and(|errno| errno == Errno::BUSY)
}

/// The processes that have it open, without those in the mount namespaces `except`.
pub(super) fn openers(proc: &Path, thing: Thing, except: &[PathBuf]) -> Vec<i32> {
    let all = processes(proc).unwrap_or_default();
    let others = all.into_iter().filter(|process| {
        except.is_empty() || namespace(proc, *process).is_none_or(|found| !except.contains(&found))
    });
    others.filter(|process| has_open(&proc.join(process.to_string()), thing)).collect()
}

fn has_open(process: &Path, thing: Thing) -> bool {
    let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten().map(|entry| entry.path());
    open.chain([process.join("cwd"), process.join("root")]).any(|link| is(&link, thing))
}

fn is(link: &Path, thing: Thing) -> bool {
    // What a dead network mount has cached is enough: it is not waited for.
    let flags = AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let Ok(found) = rustix::fs::statx(CWD, link, flags, StatxFlags::TYPE) else { return false };
    match thing {
        Thing::FileSystem(major, minor) => (found.stx_dev_major, found.stx_dev_minor) == (major, minor),
        Thing::Device(major, minor) => {
            FileType::from_raw_mode(found.stx_mode.into()) == FileType::BlockDevice
                && (found.stx_rdev_major, found.stx_rdev_minor) == (major, minor)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn who_has_a_file_open_has_its_file_system_open() {
        let file = tempfile::tempfile().unwrap();
        let found = rustix::fs::fstat(file.as_fd()).unwrap();
        let thing = Thing::FileSystem(major(found.st_dev), minor(found.st_dev));
        let me = i32::try_from(std::process::id()).unwrap();
        assert!(openers(Path::new("/proc"), thing, &[]).contains(&me));
        let mine = [fs::read_link("/proc/self/ns/mnt").unwrap()];
        assert!(!openers(Path::new("/proc"), thing, &mine).contains(&me));
    }

    #[test]
    fn a_device_that_is_not_there_is_not_taken() {
        assert!(!is_taken("0:0") && !is_taken("4095:1048575"));
    }
}
