//! What the kernel says of a device as a whole, and who has it open.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxFlags, major, minor};
use rustix::io::Errno;

use super::survey::{folder_of, namespace, processes};
use crate::agent::failed_at::failed_at;
use crate::agent::host::error::HostError;
use crate::agent::host::mount_namespace::MountNamespace;
use crate::agent::host::mounts::LOOKS;
use crate::agent::host::paths::HostPath;

/// Kernel folders in which a file system has an entry for each device that it uses.
const KINDS: [&str; 4] = ["/sys/fs/ext4", "/sys/fs/xfs", "/sys/fs/f2fs", "/sys/fs/nilfs2"];
const DEVICES: &str = "/sys/dev/block";

/// Whether a file system or something else of the kernel's has the device, mounted or not. A disk that is gone is in nobody's
/// use, and one that has no file in /dev cannot be asked.
pub(super) fn is_taken(number: &str, node: &MountNamespace) -> Result<bool, HostError> {
    let folder = Path::new(DEVICES).join(number);
    let Some(named) = unless_gone(fs::canonicalize(&folder), &folder)? else { return Ok(false) };
    let name = named.file_name().unwrap_or_default();
    for folder in KINDS.map(|kind| Path::new(kind).join(name)) {
        if unless_gone(fs::metadata(&folder), &folder)?.is_some() {
            return Ok(true);
        }
    }
    refuses_a_second(&folder, number, node)
}

/// Whether the device is in use, by trying to open it exclusively (`O_EXCL`), as a file system does that uses it. Its
/// file is looked for in the node's own /dev: a container has the devices of the time when it was started, and says
/// of a later one that it is free. An agent to which no such namespace was named has its own.
fn refuses_a_second(folder: &Path, number: &str, node: &MountNamespace) -> Result<bool, HostError> {
    let event = folder.join("uevent");
    let told = unless_gone(fs::read_to_string(&event), &event)?.unwrap_or_default();
    let Some(name) = told.lines().find_map(|line| line.strip_prefix("DEVNAME=")) else {
        return Ok(false);
    };
    let path = Path::new("/dev").join(name);
    node.run(|| is_busy(&path, number))
}

/// Whether the kernel refuses to give the device to one more who wants it for himself. Any other refusal is no answer.
fn is_busy(path: &Path, number: &str) -> Result<bool, HostError> {
    let Some(found) = unless_gone(rustix::fs::stat(path).map_err(io::Error::from), path)? else {
        return Ok(false);
    };
    // Only a device's node means this by the flag, and only the right one.
    let right = FileType::from_raw_mode(found.st_mode) == FileType::BlockDevice
        && format!("{}:{}", major(found.st_rdev), minor(found.st_rdev)) == number;
    if !right {
        let source = io::Error::other(format!("it is not the block device {number}"));
        return Err(failed_at(path, HostError::Device)(source));
    }
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Err(Errno::BUSY) => Ok(true),
        answered => unless_gone(answered.map_err(io::Error::from), path).map(|_| false),
    }
}

/// The answer to what was asked of a device; nothing if the device is gone.
fn unless_gone<T>(answered: io::Result<T>, path: &Path) -> Result<Option<T>, HostError> {
    match answered {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if says_gone(&error) => Ok(None),
        Err(error) => Err(failed_at(path, HostError::Device)(error)),
    }
}

fn says_gone(error: &io::Error) -> bool {
    [Errno::NOENT, Errno::NXIO, Errno::NODEV]
        .iter()
        .any(|gone| error.raw_os_error() == Some(gone.raw_os_error()))
}

/// The processes that have a file or directory of the file system with this `major` and `minor` open. A file of another
/// one, of which the file system is dead, may keep whoever asks.
pub(super) fn users_of_file_system(proc: &Path, device: (u32, u32)) -> Result<Vec<i32>, HostError> {
    let has_open = |process: &i32| {
        let folder = folder_of(proc, *process);
        let links = links_of(&folder).into_iter().chain([folder.join("cwd"), folder.join("root")]);
        links.into_iter().any(|link| is_of_file_system(&link, device))
    };
    Ok(all_of(proc)?.into_iter().filter(has_open).collect())
}

/// An open file of a process.
#[derive(Debug)]
pub(super) struct OpenFile {
    process: i32,
    link: PathBuf,
    /// Whether the file is open for writing.
    pub writes: bool,
}

/// The open files of all processes but those in the mount namespaces `except`, by the kernel's number of the mount by which
/// they were opened. No file system is asked.
pub(super) fn open_files(proc: &Path, except: &[PathBuf]) -> Result<BTreeMap<u64, Vec<OpenFile>>, HostError> {
    let mut found: BTreeMap<u64, Vec<OpenFile>> = BTreeMap::new();
    let others = |process: &i32| namespace(proc, *process).is_none_or(|found| !except.contains(&found));
    for process in all_of(proc)?.into_iter().filter(others) {
        let folder = folder_of(proc, process);
        for link in links_of(&folder) {
            let info = link.file_name().map(|number| folder.join("fdinfo").join(number));
            let Some(info) = info.and_then(|info| fs::read_to_string(info).ok()) else { continue };
            if let Some(mount) = mount_of(&info) {
                found.entry(mount).or_default().push(OpenFile { process, link, writes: writes(&info) });
            }
        }
    }
    Ok(found)
}

/// The processes in `proc`, without which nobody can say that a device is free.
fn all_of(proc: &Path) -> Result<Vec<i32>, HostError> {
    processes(proc).map_err(failed_at(proc, HostError::Look))
}

/// The processes that have files open on mounts of which `wanted` is true. Each mount is asked by itself: one whose
/// file system does not answer holds up no look at the others, and has no device's node that anybody could use.
pub(super) async fn who_has(
    files: BTreeMap<u64, Vec<OpenFile>>,
    wanted: impl Fn(&Path) -> bool + Clone + Send + 'static,
) -> Result<BTreeSet<i32>, HostError> {
    let looks = files.into_iter().map(async |(mount, files)| {
        let wanted = wanted.clone();
        let look = move |_: &Path| {
            let found = files.into_iter().filter(|file| wanted(&file.link)).map(|file| file.process);
            Ok(found.collect::<BTreeSet<i32>>())
        };
        match LOOKS.at(&key_of(mount), look).await {
            Err(error @ HostError::Hangs(_)) => {
                tracing::warn!("{error}");
                Ok(BTreeSet::new())
            }
            answered => answered,
        }
    });
    let found = futures::future::try_join_all(looks).await?;
    Ok(found.into_iter().flatten().collect())
}

/// The name under which a look at the files of one mount is bounded in time.
fn key_of(mount: u64) -> HostPath {
    HostPath::recorded(&format!("/proc/*/fd (mount {mount})"))
}

fn links_of(process: &Path) -> Vec<PathBuf> {
    fs::read_dir(process.join("fd")).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// The number in a file of /proc/PID/fdinfo.
fn mount_of(info: &str) -> Option<u64> {
    info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
}

/// Whether the flags of an open file allow writing. What cannot be read counts as writing.
fn writes(info: &str) -> bool {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_none_or(|flags| flags & OFlags::RWMODE.bits() != OFlags::RDONLY.bits())
}

fn is_of_file_system(link: &Path, device: (u32, u32)) -> bool {
    look_at(link).is_some_and(|found| (found.stx_dev_major, found.stx_dev_minor) == device)
}

/// Whether it is one of the block devices with these `major` and `minor`.
pub(super) fn is_device(link: &Path, devices: &BTreeSet<(u32, u32)>) -> bool {
    look_at(link).is_some_and(|found| {
        FileType::from_raw_mode(found.stx_mode.into()) == FileType::BlockDevice
            && devices.contains(&(found.stx_rdev_major, found.stx_rdev_minor))
    })
}

fn look_at(link: &Path) -> Option<Statx> {
    // What a dead network mount has cached is enough. Some ask the server all the same when they are reached by a link
    // of /proc.
    let flags = AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    rustix::fs::statx(CWD, link, flags, StatxFlags::TYPE).ok()
}

#[cfg(test)]
mod tests {
    use rustix::fs::{makedev, mknodat};
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
    use std::os::fd::AsFd as _;

    use super::*;
    use crate::agent::host::mounts::tests::hang_at;

    const PROC: &str = "/proc";

    fn me() -> i32 {
        i32::try_from(std::process::id()).unwrap()
    }

    #[test]
    fn who_has_a_file_open_has_its_file_system_open() {
        let file = tempfile::tempfile().unwrap();
        let found = rustix::fs::fstat(file.as_fd()).unwrap();
        let device = (major(found.st_dev), minor(found.st_dev));
        assert!(users_of_file_system(Path::new(PROC), device).unwrap().contains(&me()));
    }

    #[tokio::test]
    async fn who_has_a_file_open_is_found_by_its_mount() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_owned();
        let is_it = move |link: &Path| fs::read_link(link).is_ok_and(|found| found == path);
        let all = open_files(Path::new(PROC), &[]).unwrap();
        let of_it = |file: &&OpenFile| is_it(&file.link);
        assert!(all.values().flatten().filter(of_it).all(|file| file.writes));
        assert!(who_has(all, is_it.clone()).await.unwrap().contains(&me()));
        let mine = [fs::read_link("/proc/self/ns/mnt").unwrap()];
        let others = open_files(Path::new(PROC), &mine).unwrap();
        assert!(!who_has(others, is_it).await.unwrap().contains(&me()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_mount_that_hangs_hides_no_user_of_the_others() {
        let open = |process: i32| {
            vec![OpenFile { process, link: PathBuf::from(process.to_string()), writes: false }]
        };
        // No mount has such numbers.
        let [one, dead, other] = [u64::MAX - 3, u64::MAX - 2, u64::MAX - 1];
        let files = BTreeMap::from([(one, open(11)), (dead, open(12)), (other, open(13))]);
        let _hanging = hang_at(&key_of(dead)).await;
        assert_eq!(who_has(files, |_: &Path| true).await.unwrap(), BTreeSet::from([11, 13]));
    }

    /// As in a container, whose /dev has the devices of the time when it was started.
    #[test]
    fn a_device_that_only_the_node_has_a_file_for_is_asked() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let run = |program: &str, arguments: &[&str]| {
            let done = std::process::Command::new(program).args(arguments).output().unwrap();
            assert!(done.status.success(), "{done:?}");
            String::from_utf8(done.stdout).unwrap().trim().to_owned()
        };
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let device = run("losetup", &["--find", "--show", file.path().to_str().unwrap()]);
        let number = rustix::fs::stat(&device).unwrap().st_rdev;
        let number = format!("{}:{}", major(number), minor(number));
        let node = MountNamespace::of(Some("/proc/self/ns/mnt".into()));
        let in_a_container = |ask: &(dyn Fn() -> bool + Sync)| {
            std::thread::scope(|scope| {
                let container = scope.spawn(|| {
                    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
                    let apart = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
                    mount_change("/", apart).unwrap();
                    mount("none", "/dev", "tmpfs", MountFlags::empty(), None).unwrap();
                    ask()
                });
                container.join().unwrap()
            })
        };
        let free = in_a_container(&|| is_taken(&number, &node).unwrap());
        let held = rustix::fs::open(&device, OFlags::RDONLY | OFlags::EXCL, Mode::empty());
        let taken = in_a_container(&|| is_taken(&number, &node).unwrap());
        drop(held);
        run("losetup", &["--detach", &device]);
        assert_eq!((free, taken), (false, true));
    }

    /// "Free" would give the volume on while somebody has it.
    #[test]
    fn what_cannot_be_asked_is_not_answered_free() {
        let sys = tempfile::tempdir().unwrap();
        fs::write(sys.path().join("uevent"), "MAJOR=8\nMINOR=16\nDEVNAME=sdb\n").unwrap();
        let missing = MountNamespace::of(Some("/proc/none/ns/mnt".into()));
        let refused = refuses_a_second(sys.path(), "8:16", &missing);
        assert!(matches!(refused, Err(HostError::Enter(_))), "{refused:?}");
        assert!(!refuses_a_second(sys.path(), "8:16", &MountNamespace::default()).unwrap(), "its own /dev");
        let no_proc = sys.path().join("proc");
        assert!(matches!(open_files(&no_proc, &[]), Err(HostError::Look(_))));
        assert!(matches!(users_of_file_system(&no_proc, (8, 16)), Err(HostError::Look(_))));
    }

    /// As on a node whose /dev forbids devices, or after an error of the disk.
    #[test]
    fn a_device_that_cannot_be_opened_is_not_answered_free() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        // The number of no device.
        let (folder, number) = (tempfile::tempdir().unwrap(), "4095:1048575");
        let path = folder.path().join("sdb");
        let ask = |flags: MountFlags| {
            std::thread::scope(|scope| {
                let asked = scope.spawn(|| {
                    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
                    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
                    mount("none", folder.path(), "tmpfs", flags, None).unwrap();
                    let of_number = makedev(4095, 1_048_575);
                    mknodat(CWD, &path, FileType::BlockDevice, Mode::RWXU, of_number).unwrap();
                    is_busy(&path, number)
                });
                asked.join().unwrap()
            })
        };
        let forbidden = ask(MountFlags::NODEV);
        assert!(matches!(forbidden, Err(HostError::Device(_))), "{forbidden:?}");
        assert!(!ask(MountFlags::empty()).unwrap(), "the device is gone");
        assert!(!is_busy(&path, number).unwrap(), "its file is");
        std::fs::write(&path, "").unwrap();
        let another = is_busy(&path, number);
        assert!(matches!(another, Err(HostError::Device(_))), "{another:?}");
    }

    #[test]
    fn a_device_that_is_not_there_is_not_taken() {
        let node = MountNamespace::default();
        assert!(!is_taken("0:0", &node).unwrap() && !is_taken("4095:1048575", &node).unwrap());
    }
}
