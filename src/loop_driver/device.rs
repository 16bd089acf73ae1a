//! Loop devices, and whose they are.
//!
//! A loop device belongs to the kernel: every node of a test cluster, every restarted driver and every dead namespace
//! sees the same ones. So each device is set up on a hard link of the data file that is named after the attachment's
//! token, the access and the node, and the kernel itself then remembers whose it is: link name and backing inode together
//! identify a device, and no record of ours can disagree with it. The inode alone never does (`losetup -j` would hand
//! one node's device to another).

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::error::Error;
use super::ids::VolumeId;
use super::lock::Lock;
use super::program::run;
use super::state::{LockedVolume, NodeKey};
use crate::mount_table::Mount;

/// The file whose lock every driver on the kernel takes, whatever its state directory, so that two of them never list, set
/// up and detach devices at once: `/dev/loopN` may be somebody else's by the time that it is detached.
const LOOP_CONTROL: &str = "/dev/loop-control";
/// How long other drivers are waited for, which may be at work between list and detach.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often losetup is run when it says that another process was faster, beyond its own tries.
const TRIES: u32 = 5;
/// How long a detached device may stay: udev and the like open a device for a moment, and it goes when they close it.
const CLOSING: Duration = Duration::from_millis(1500);
const POLL: Duration = Duration::from_millis(25);
/// What the kernel adds to the name of a file that has been unlinked.
const DELETED: &str = " (deleted)";

/// A device's owner, as the file name of the device's link tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DeviceName {
    /// The attachment's token.
    pub(super) token: String,
    /// Whether the device takes writes.
    pub(super) writable: bool,
    /// The node, in its file-name form.
    pub(super) node: String,
}

impl DeviceName {
    pub(super) fn new(node: &NodeKey, token: &str, writable: bool) -> Self {
        Self { token: token.to_owned(), writable, node: node.as_str().to_owned() }
    }

    pub(super) fn parse(file_name: &str) -> Option<Self> {
        let mut parts = file_name.strip_prefix("dev.")?.splitn(3, '.');
        let (token, access, node) = (parts.next()?, parts.next()?, parts.next()?);
        let writable = match access {
            "rw" => true,
            "ro" => false,
            _ => return None,
        };
        Some(Self { token: token.to_owned(), writable, node: node.to_owned() })
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dev.{}.{}.{}", self.token, if self.writable { "rw" } else { "ro" }, self.node)
    }
}

/// A file's identity, which does not change with its name: its device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Inode {
    device: u64,
    number: u64,
}

impl Inode {
    pub(super) fn of(path: &Path) -> Result<Self, Error> {
        let found = fs::metadata(path).map_err(Error::io("look at", path))?;
        Ok(Self { device: found.dev(), number: found.ino() })
    }
}

/// A loop device that has a backing file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LoopDevice {
    /// The device's path, `/dev/loopN`.
    pub(super) path: PathBuf,
    /// Major and minor, as the mount table names a device.
    number: String,
    /// The backing file's path as the kernel sees it; only its last parts mean the same in every namespace.
    backing: PathBuf,
    /// The backing file, if the kernel said.
    inode: Option<Inode>,
    /// Whether the device goes when the last user closes it, so that nobody may start to use it.
    pub(super) closing: bool,
}

impl LoopDevice {
    /// Whose the device is, if it is one of this driver's for `volume`.
    pub(super) fn name_for(&self, volume: &VolumeId) -> Option<DeviceName> {
        let text = self.backing.to_str()?;
        let backing = Path::new(text.strip_suffix(DELETED).unwrap_or(text));
        let folder = backing.parent()?.file_name()?;
        if folder != volume.as_str() {
            return None;
        }
        DeviceName::parse(backing.file_name()?.to_str()?)
    }

    /// Whether the device's content is this very file.
    fn holds(&self, inode: Inode) -> bool {
        self.inode == Some(inode)
    }

    /// Whether the device node at `path` (a bind mount of it, say) is this device.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        let number = |found: u64| format!("{}:{}", rustix::fs::major(found), rustix::fs::minor(found));
        fs::metadata(path).is_ok_and(|found| number(found.rdev()) == self.number)
    }

    /// Whether a mount is one of the file system on this device.
    pub(super) fn is_mounted_as(&self, mount: &Mount) -> bool {
        mount.device == self.number
    }
}

/// The kernel's loop devices, while no other driver touches them.
pub(super) struct LoopDevices<'a> {
    /// The lock of all loop devices, which nobody reads and which ends when this is dropped.
    _control: Lock,
    volume: &'a LockedVolume,
}

impl<'a> LoopDevices<'a> {
    /// Waits for the drivers that touch the devices. Programs inherit the lock of the volume that is worked on.
    pub(super) fn open(volume: &'a LockedVolume) -> Result<Self, Error> {
        let path = Path::new(LOOP_CONTROL);
        let control = Lock::take(path, PATIENCE).map_err(Error::io("lock", path))?;
        let control = control.ok_or_else(|| Error::Pending(LOOP_CONTROL.to_owned()))?;
        Ok(Self { _control: control, volume })
    }

    /// All loop devices that have a backing file.
    pub(super) fn list(&self) -> Result<Vec<LoopDevice>, Error> {
        let columns = "NAME,MAJ:MIN,BACK-FILE,BACK-INO,BACK-MAJ:MIN,AUTOCLEAR";
        let listed =
            run(&self.volume.lock, "losetup", &["--list", "--json", "--output", columns])?.success()?;
        parse_list(&listed.stdout)
    }

    /// The devices whose content is this very file, whoever has set them up.
    pub(super) fn on(&self, file: &Path) -> Result<Vec<LoopDevice>, Error> {
        let inode = Inode::of(file)?;
        let mut found = self.list()?;
        found.retain(|device| device.holds(inode));
        Ok(found)
    }

    /// The device that is set up on `link`, if there is one that may be used.
    pub(super) fn find(&self, link: &Path) -> Result<Option<LoopDevice>, Error> {
        let Ok(inode) = Inode::of(link) else { return Ok(None) };
        let ours = |device: &LoopDevice| {
            device.holds(inode) && !device.closing && device.backing.file_name() == link.file_name()
        };
        Ok(self.list()?.into_iter().find(ours))
    }

    /// Sets up a device on `link`.
    pub(super) fn attach(&self, link: &Path, writable: bool) -> Result<LoopDevice, Error> {
        let link_argument = link.to_string_lossy();
        let mut arguments = vec!["--find", "--show"];
        if !writable {
            arguments.push("--read-only");
        }
        arguments.push(&link_argument);
        for attempt in 1.. {
            let outcome = run(&self.volume.lock, "losetup", &arguments)?;
            if outcome.code() == Some(0) {
                break;
            }
            if attempt == TRIES || !outcome.stderr.contains("busy") {
                return Err(outcome.into_error());
            }
            thread::sleep(POLL);
        }
        self.find(link)?.ok_or_else(|| Error::Occupied {
            path: link.to_owned(),
            reason: "losetup succeeded, and yet no loop device has this backing file".to_owned(),
        })
    }

    /// Gives a device the size that its file has now.
    pub(super) fn resize(&self, device: &LoopDevice) -> Result<(), Error> {
        let path = device.path.to_string_lossy();
        run(&self.volume.lock, "losetup", &["--set-capacity", &path])?.success().map(drop)
    }

    /// Has everything that was written to a device so far reach its file: by its file system too, in whichever mount namespace
    /// that is mounted.
    pub(super) fn flush(&self, device: &LoopDevice) -> Result<(), Error> {
        let path = device.path.to_string_lossy();
        run(&self.volume.lock, "blockdev", &["--flushbufs", &path])?.success().map(drop)
    }

    /// Detaches a device, and says whether it is really gone. When it is not, something still has the device open or
    /// mounted: it then goes by itself at the last close (the kernel calls that autoclear), and until then is `closing`.
    pub(super) fn detach(&self, device: &LoopDevice) -> Result<bool, Error> {
        let path = device.path.to_string_lossy();
        let outcome = run(&self.volume.lock, "losetup", &["--detach", &path])?;
        let end = Instant::now() + CLOSING;
        loop {
            let still = self
                .list()?
                .into_iter()
                .find(|found| found.path == device.path && found.backing == device.backing);
            match still {
                None => return Ok(true),
                Some(found) if !found.closing => return Err(outcome.into_error()),
                Some(_) if Instant::now() >= end => return Ok(false),
                Some(_) => thread::sleep(POLL),
            }
        }
    }
}

fn parse_list(text: &str) -> Result<Vec<LoopDevice>, Error> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let damaged = |source| Error::Damaged { path: "losetup --list --json".into(), source };
    let value: Value = serde_json::from_str(text).map_err(damaged)?;
    let rows = value.get("loopdevices").and_then(Value::as_array);
    Ok(rows.into_iter().flatten().filter_map(parse_row).collect())
}

/// util-linux has changed between strings and JSON's own types from release to release, so both are read.
fn parse_row(row: &Value) -> Option<LoopDevice> {
    let text = |key: &str| row.get(key).and_then(Value::as_str).map(str::trim);
    let number = |key: &str| match row.get(key)? {
        Value::String(text) => text.trim().parse().ok(),
        other => other.as_u64(),
    };
    let flag = |key: &str| match row.get(key) {
        Some(Value::Bool(set)) => *set,
        Some(Value::String(text)) => text == "1" || text == "true",
        Some(other) => other.as_u64() == Some(1),
        None => false,
    };
    let device = text("back-maj:min").and_then(|pair| {
        let (major, minor) = pair.split_once(':')?;
        Some(rustix::fs::makedev(major.trim().parse().ok()?, minor.trim().parse().ok()?))
    });
    let inode = device.zip(number("back-ino")).map(|(device, number)| Inode { device, number });
    Some(LoopDevice {
        path: text("name")?.into(),
        number: text("maj:min").unwrap_or_default().to_owned(),
        backing: row.get("back-file").and_then(Value::as_str)?.into(),
        inode,
        closing: flag("autoclear"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: &str = "vol-0123456789abcdef0123456789abcdef";

    fn listed(row: &str) -> LoopDevice {
        parse_list(&format!("{{\"loopdevices\": [{row}]}}")).unwrap().remove(0)
    }

    #[test]
    fn names_survive_the_kernel() {
        let name = DeviceName::new(&NodeKey::of("node-1.a.example"), "00ff", false);
        assert_eq!(name.to_string(), "dev.00ff.ro.node-1.a.example");
        assert_eq!(DeviceName::parse(&name.to_string()), Some(name.clone()));
        for other in ["data", "dev.x", "dev.t.xx.n", "dev.t.rw"] {
            assert_eq!(DeviceName::parse(other), None, "{other}");
        }
        let volume = VolumeId::parse(VOLUME).unwrap();
        for suffix in ["", DELETED] {
            let device = listed(&format!(
                r#"{{"name": "/dev/loop3", "back-file": "/x/{VOLUME}/{name}{suffix}", "autoclear": true}}"#
            ));
            assert_eq!(device.name_for(&volume), Some(name.clone()));
            assert!(device.closing);
            assert!(device.name_for(&VolumeId::of_name("another")).is_none());
        }
    }

    #[test]
    fn old_and_new_losetup_are_read() {
        let new = r#"{"name": "/dev/loop0", "maj:min": "  7:0  ", "back-file": "/a", "back-ino": 12, "back-maj:min": " 254:0  ",
                      "autoclear": false}"#;
        let old = r#"{"name": "/dev/loop0", "maj:min": "7:0", "back-file": "/a", "back-ino": "12", "back-maj:min": "254:0",
                      "autoclear": "0"}"#;
        assert_eq!(listed(new), listed(old));
        assert!(listed(new).holds(Inode { device: rustix::fs::makedev(254, 0), number: 12 }));
        assert_eq!(parse_list("\n").unwrap(), Vec::new());
    }

    #[test]
    fn a_device_without_known_inode_is_nobodys() {
        let device = listed(r#"{"name": "/dev/loop0", "back-file": "/a", "back-ino": null}"#);
        assert!(!device.holds(Inode { device: 0, number: 0 }));
    }
}
