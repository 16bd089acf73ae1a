//! Sets the flags of a claim's own mount on its node, as the claim says: read-only, noexec and others.
//!
//! Most drivers bind first and set the flags of their mount after that. Flags are not propagated: they stay in the driver's
//! mount namespace, and everybody else has a copy of the mount from before (mount_namespaces(7)). Kubernetes leaves it to
//! the container runtime to set them again; here the claim's path is the product, so they are set on the one mount that
//! the node has there. A mount over it would not do: what is bound from one mount is one peer group, and what is mounted
//! on one of them appears on all, on the staging path and on the neighbours' targets (ADR 9).

use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::mount::{MountFlags, mount_remount};

use super::error::HostError;
use super::mount_namespace::MountNamespace;
use super::mounts::LOOKS;
use super::paths::HostPath;
use crate::agent::failed_at::failed_at;
use crate::mount_table::{self, Mount, Table};

/// The table of the mount namespace in which the calling thread is.
const TABLE: &str = "/proc/thread-self/mountinfo";

/// Flags that are to be on a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted(MountFlags);

impl Wanted {
    /// What mount options ask for, the last word about each counting as for mount(8). Options of file systems are left to
    /// the driver.
    pub fn by(options: &[String], read_only: bool) -> Self {
        let words = options.iter().flat_map(|option| option.split(',')).map(str::trim);
        let asked = words.fold(MountFlags::empty(), |flags, word| match word {
            "rw" => flags - MountFlags::RDONLY,
            "suid" => flags - MountFlags::NOSUID,
            "dev" => flags - MountFlags::NODEV,
            "exec" => flags - MountFlags::NOEXEC,
            "symfollow" => flags - MountFlags::NOSYMFOLLOW,
            "diratime" => flags - MountFlags::NODIRATIME,
            "atime" => flags - MountFlags::NOATIME,
            "norelatime" => flags - MountFlags::RELATIME,
            "strictatime" => flags - MountFlags::NOATIME - MountFlags::RELATIME,
            "noatime" => (flags | MountFlags::NOATIME) - MountFlags::RELATIME,
            "relatime" => (flags | MountFlags::RELATIME) - MountFlags::NOATIME,
            word => flags | mount_table::flag_of(word),
        });
        Self(if read_only { asked | MountFlags::RDONLY } else { asked })
    }

    /// Whether the mount is to be read-only.
    pub fn is_read_only(self) -> bool {
        self.0.contains(MountFlags::RDONLY)
    }

    /// Whether no flag is wanted, so that the mount stays as its driver has made it.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    fn is_met_by(self, mount: &Mount) -> bool {
        mount.flags().contains(self.0)
    }

    /// All that a mount is to have: a remount takes away what it does not name.
    fn with_those_of(self, mount: &Mount) -> MountFlags {
        let kept = match self.0 {
            wanted if wanted.contains(MountFlags::NOATIME) => mount.flags() - MountFlags::RELATIME,
            wanted if wanted.contains(MountFlags::RELATIME) => mount.flags() - MountFlags::NOATIME,
            _ => mount.flags(),
        };
        let all = kept | self.0;
        // Without any word on access times the kernel takes relatime.
        if all.intersects(MountFlags::NOATIME | MountFlags::RELATIME) {
            all
        } else {
            all | MountFlags::STRICTATIME
        }
    }
}

/// Sees to it that what is mounted at `path`, and at places below it, has the flags on the node.
pub(crate) async fn ensure(node: &MountNamespace, path: &HostPath, wanted: Wanted) -> Result<(), HostError> {
    if wanted.is_empty() {
        return Ok(());
    }
    let node = node.clone();
    LOOKS
        .at(path, move |path| node.run(|| set(path, wanted).map_err(failed_at(path, HostError::Flags))))
        .await
}

/// As [`ensure`], in the mount namespace of the calling thread.
pub(crate) fn set(path: &Path, wanted: Wanted) -> io::Result<()> {
    let path = as_mounted(path)?;
    let table = table()?;
    let lack_some = missing(&table, &path, wanted)?;
    if lack_some.is_empty() {
        return Ok(());
    }
    for mount in lack_some {
        mount_remount(&mount.point, MountFlags::BIND | wanted.with_those_of(mount), "")?;
    }
    if missing(&self::table()?, &path, wanted)?.is_empty() {
        return Ok(());
    }
    Err(io::Error::other("not all of them are there after that"))
}

/// Lets what is mounted at `path` be written to again, in the mount namespace of the calling thread.
pub(crate) fn let_write(path: &Path) -> io::Result<()> {
    let path = as_mounted(path)?;
    match table()?.at(&path).pop().filter(|mount| mount.has("ro")) {
        None => Ok(()),
        Some(mount) => {
            let flags = Wanted(MountFlags::empty()).with_those_of(mount) - MountFlags::RDONLY;
            Ok(mount_remount(&path, MountFlags::BIND | flags, "")?)
        }
    }
}

/// The mounts seen from `path` that lack a flag.
fn missing<'a>(table: &'a Table, path: &Path, wanted: Wanted) -> io::Result<Vec<&'a Mount>> {
    let mut seen = table.seen_from(path);
    if seen.is_empty() {
        return Err(io::Error::other("nothing is mounted there in the node's mount namespace"));
    }
    seen.retain(|mount| !wanted.is_met_by(mount));
    Ok(seen)
}

/// The table of the mount namespace of the calling thread.
pub(crate) fn table() -> io::Result<Table> {
    fs::read_to_string(TABLE).map(|text| Table::read(&text))
}

/// A path as the table names it: links on the way to it resolved. What is mounted there is not asked, it may be dead.
pub(crate) fn as_mounted(path: &Path) -> io::Result<PathBuf> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok(fs::canonicalize(parent)?.join(name)),
        _ => Ok(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use nix::sched::{CloneFlags, unshare};
    use rustix::mount::{MountPropagationFlags, mount, mount_bind, mount_change};

    use super::*;

    fn wanted(options: &[&str], read_only: bool) -> MountFlags {
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        Wanted::by(&options, read_only).0
    }

    fn remounted(options: &[&str], before: &str) -> MountFlags {
        let table = Table::read(&format!("40 22 7:1 / /x {before} shared:1 - ext4 /dev/loop1 rw\n"));
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        Wanted::by(&options, false).with_those_of(table.at(Path::new("/x"))[0])
    }

    #[test]
    fn the_last_word_about_a_flag_counts() {
        assert_eq!(wanted(&["noexec", "nodev,exec"], false), MountFlags::NODEV);
        assert_eq!(wanted(&["ro", "rw"], false), MountFlags::empty());
        assert_eq!(wanted(&["noatime", "relatime"], false), MountFlags::RELATIME);
        assert_eq!(wanted(&["relatime", "noatime"], false), MountFlags::NOATIME);
        assert_eq!(wanted(&["relatime", "strictatime"], false), MountFlags::empty());
    }

    #[test]
    fn a_read_only_claim_is_so_whatever_its_options_say() {
        assert_eq!(wanted(&["nosuid", "rw"], true), MountFlags::RDONLY | MountFlags::NOSUID);
    }

    #[test]
    fn options_of_file_systems_are_not_flags_of_mounts() {
        assert_eq!(wanted(&["discard", "data=journal", "uid=0,noexec=1", ""], false), MountFlags::empty());
    }

    #[test]
    fn a_remount_keeps_what_is_there() {
        let kept = MountFlags::NOSUID | MountFlags::NOSYMFOLLOW | MountFlags::RELATIME;
        assert_eq!(remounted(&["noexec"], "rw,nosuid,relatime,nosymfollow"), kept | MountFlags::NOEXEC);
        assert_eq!(remounted(&["noatime"], "ro,relatime"), MountFlags::RDONLY | MountFlags::NOATIME);
        assert_eq!(remounted(&["relatime"], "rw,noatime"), MountFlags::RELATIME);
        assert_eq!(remounted(&["nodev"], "rw"), MountFlags::NODEV | MountFlags::STRICTATIME);
    }

    #[test]
    fn every_visible_mount_has_to_have_the_flags() {
        let table = Table::read(
            "40 22 7:1 / /t ro - ext4 /dev/loop1 rw\n41 40 7:2 / /t/below rw - ext4 /dev/loop2 rw\n\
             42 41 7:3 / /t/below ro,noexec - ext4 /dev/loop3 rw\n43 40 7:4 / /t/beside rw,ro - ext4 /dev/loop4 rw\n",
        );
        let lacking = |options: &[&str]| {
            let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
            let found = missing(&table, Path::new("/t"), Wanted::by(&options, true)).unwrap();
            found.iter().map(|mount| mount.device.clone()).collect::<Vec<_>>()
        };
        assert_eq!(lacking(&[]), [""; 0]);
        assert_eq!(lacking(&["noexec"]), ["7:1", "7:4"]);
        assert!(missing(&table, Path::new("/elsewhere"), Wanted::by(&[], true)).is_err());
    }
    #[test]
    fn what_is_mounted_below_is_set_too_and_the_source_is_not() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let (source, target) = (directory.path().join("source"), directory.path().join("a target"));
        let in_a_namespace_of_its_own = || {
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
            for path in [&source, &target] {
                fs::create_dir(path).unwrap();
            }
            mount("tmpfs", &source, "tmpfs", MountFlags::NODEV, None).unwrap();
            fs::create_dir(source.join("below")).unwrap();
            mount_bind(&source, &target).unwrap();
            mount("tmpfs", target.join("below"), "tmpfs", MountFlags::empty(), None).unwrap();
            set(&target, Wanted::by(&["noexec".to_owned()], true)).unwrap();
            for path in [&target, &target.join("below")] {
                let refused = fs::write(path.join("word"), "no").unwrap_err();
                assert_eq!(refused.kind(), io::ErrorKind::ReadOnlyFilesystem);
            }
            let table = table().unwrap();
            assert!(["ro", "nodev", "noexec"].iter().all(|flag| table.at(&target)[0].has(flag)));
            assert!(!table.at(&source)[0].has("noexec"));
            fs::write(source.join("word"), "written").unwrap();
            let_write(&target).unwrap();
            fs::write(target.join("word"), "written").unwrap();
            assert!(set(&directory.path().join("nothing"), Wanted::by(&[], true)).is_err());
        };
        std::thread::scope(|scope| scope.spawn(in_a_namespace_of_its_own).join().unwrap());
    }
}
