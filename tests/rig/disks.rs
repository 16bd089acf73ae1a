//! The disk on which an agent keeps its records, and what becomes of it.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_remount, unmount};
use serde_json::Value;

use super::Rig;

impl Rig {
    /// From now on nothing can be written to the node's state directory, nor to kubelet's where volumes are staged, as
    /// after an error of their disk. See [`Self::make_staging_disk`].
    pub fn protect_disk(&self, node: &str) {
        let directory = self.state_dir(node);
        mount_bind(&directory, &directory).unwrap();
        mount_remount(&directory, MountFlags::BIND | MountFlags::RDONLY, "").unwrap();
        mount_remount(self.staging_dir(node), MountFlags::RDONLY, "").unwrap();
    }

    /// The end of [`Self::protect_disk`].
    pub fn lift_disk(&self, node: &str) {
        self.lift_state(node);
        mount_remount(self.staging_dir(node), MountFlags::empty(), "").unwrap();
    }

    /// Gives a node that is yet to be added a disk of its own for what is staged.
    pub fn make_staging_disk(&self, node: &str) {
        let directory = self.staging_dir(node);
        fs::create_dir_all(&directory).unwrap();
        mount("none", &directory, "tmpfs", MountFlags::empty(), c"size=512k").unwrap();
    }

    /// Names of what is in the folder where volumes are staged.
    pub fn staged(&self, node: &str) -> Vec<String> {
        let found = fs::read_dir(self.staging_dir(node)).into_iter().flatten().flatten();
        found.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    fn staging_dir(&self, node: &str) -> PathBuf {
        self.targets_dir(node).with_file_name("staging")
    }

    /// Gives a node that is yet to be added a small disk of its own for its state.
    pub fn make_small_disk(&self, node: &str) {
        let directory = self.state_dir(node);
        fs::create_dir_all(&directory).unwrap();
        mount("none", &directory, "tmpfs", MountFlags::empty(), c"size=512k").unwrap();
    }

    /// Writes to that disk until it takes no more.
    pub fn fill_disk(&self, node: &str) {
        let mut file = File::create(self.filler(node)).unwrap();
        while file.write(&[0; 4096]).is_ok_and(|written| written > 0) {}
    }

    /// The end of [`Self::fill_disk`].
    pub fn empty_disk(&self, node: &str) {
        fs::remove_file(self.filler(node)).unwrap();
    }

    /// Takes a mount off the node's state directory.
    pub fn lift_state(&self, node: &str) {
        unmount(self.state_dir(node), UnmountFlags::DETACH).unwrap();
    }

    /// Names of the files in which the node has its records. One that an agent was at when it was killed is none yet.
    pub fn records(&self, node: &str) -> Vec<String> {
        let found = fs::read_dir(self.state_dir(node).join("records")).into_iter().flatten().flatten();
        let whole = found.filter(|entry| entry.path().extension().is_none_or(|extension| extension != "new"));
        whole.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    /// Changes the only record of a node, whose agent does not run.
    pub fn change_record(&self, node: &str, change: impl FnOnce(&mut Value)) {
        let files = self.records(node);
        let [file] = files.as_slice() else { panic!("{files:?}") };
        let file = self.state_dir(node).join("records").join(file);
        let mut record: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        change(&mut record);
        fs::write(file, record.to_string()).unwrap();
    }

    /// Leaves the first bytes of each record of a node, whose agent does not run.
    pub fn tear_records(&self, node: &str) {
        for file in self.records(node) {
            let file = self.state_dir(node).join("records").join(file);
            fs::write(&file, &fs::read(&file).unwrap()[..10]).unwrap();
        }
    }

    fn filler(&self, node: &str) -> PathBuf {
        self.state_dir(node).join("filler")
    }
}
