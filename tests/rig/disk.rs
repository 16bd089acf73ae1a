//! A block device of a test.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A loop device with a file system on it. It goes with this process, however that ends, once nobody uses it.
pub struct Disk {
    pub device: PathBuf,
    _open: File,
}

impl Disk {
    /// In the new file `file`.
    pub fn make(file: &Path) -> Self {
        File::create(file).unwrap().set_len(8 << 20).unwrap();
        run(Command::new("mkfs.ext4").arg("-q").arg(file));
        let device = run(Command::new("losetup").args(["--find", "--show"]).arg(file));
        let device = PathBuf::from(device.trim());
        let open = File::open(&device).unwrap();
        // Of one that is open this only says what its last user leaves behind: nothing.
        run(Command::new("losetup").arg("--detach").arg(&device));
        Self { device, _open: open }
    }
}

/// A device to which the kernel swaps, until this is dropped: nobody has it open, and nothing is mounted.
pub struct Swap(PathBuf);

impl Swap {
    pub fn to(device: &Path) -> Self {
        run(Command::new("mkswap").arg(device));
        run(Command::new("swapon").arg(device));
        Self(device.to_owned())
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        run(Command::new("swapoff").arg(&self.0));
    }
}

fn run(command: &mut Command) -> String {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}
