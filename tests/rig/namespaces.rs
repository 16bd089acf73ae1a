//! A node whose agent is in a Pod: mounts below kubelet's directory are copied between the mount namespaces of the two,
//! and nothing else is.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;

use nix::sched::{CloneFlags, unshare};
use rustix::fs::CWD;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount_bind, mount_change,
    mount_remount, move_mount, open_tree, unmount,
};

use super::Rig;

/// Where the driver of a node runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverIn {
    /// In a Pod, with mountPropagation Bidirectional.
    Pod,
    /// On the node itself.
    Node,
}

/// A node with namespaces: the node's own, the agent's and the driver's, of which the last is this process's.
pub struct Parted {
    rig: Arc<Rig>,
    node: String,
    /// Where the driver is in a Pod: a process of the node.
    process: Option<Child>,
}

impl Rig {
    /// Puts the agent of a node, which is started anew, into a mount namespace of its own.
    pub fn part(self: &Arc<Self>, node: &str, driver: DriverIn) -> Parted {
        self.kill(node);
        let directory = self.kubelet_dir(node);
        mount_bind(&directory, &directory).unwrap();
        mount_change(&directory, MountPropagationFlags::SHARED).unwrap();
        let process = (driver == DriverIn::Pod).then(elsewhere);
        let parted = Parted { rig: self.clone(), node: node.to_owned(), process };
        self.parted.lock().unwrap().insert(node.to_owned(), parted.process().join("ns/mnt"));
        self.run(node);
        parted
    }

    /// Gives the agent of a node another file for the node's mount namespace from its next start on.
    pub fn set_namespace(&self, node: &str, file: &Path) {
        self.parted.lock().unwrap().insert(node.to_owned(), file.to_owned());
    }
}

fn elsewhere() -> Child {
    let mut child = Command::new("unshare")
        .args(["--mount", "--propagation", "unchanged", "sh", "-c", "echo made; exec sleep 600"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "made\n");
    child
}

impl Parted {
    /// The folder of a process of the node.
    pub fn process(&self) -> PathBuf {
        let id = self.process.as_ref().map_or_else(std::process::id, Child::id);
        PathBuf::from(format!("/proc/{id}"))
    }

    /// A path, and what is mounted there, as processes of the node see it.
    pub fn path(&self, path: &str) -> PathBuf {
        self.process().join("root").join(path.trim_start_matches('/'))
    }

    /// Flags of the mounts that the node has at a path.
    pub fn mounts_at(&self, path: &str) -> Vec<String> {
        let table = fs::read_to_string(self.process().join("mountinfo")).unwrap();
        let here =
            table.lines().map(|line| line.split(' ').collect::<Vec<_>>()).filter(|line| line[4] == path);
        here.map(|line| line[5].to_owned()).collect()
    }

    /// Lets what the node has mounted at a path be written to.
    pub fn let_write(&self, path: &str) {
        self.run_on_node(&["mount", "-o", "remount,bind,rw", path]);
    }

    /// Runs a program in the node's own mount namespace.
    pub fn run_on_node(&self, program: &[&str]) {
        let namespace = format!("--mount={}", self.process().join("ns/mnt").display());
        let done = Command::new("nsenter").arg(namespace).args(program).status();
        assert!(done.unwrap().success(), "{program:?}");
    }

    /// One mount namespace for all again.
    pub fn join(mut self) {
        self.rig.kill(&self.node);
        self.rig.parted.lock().unwrap().remove(&self.node);
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
        unmount(self.rig.kubelet_dir(&self.node), UnmountFlags::DETACH).unwrap();
        self.rig.run(&self.node);
    }
}

impl Drop for Parted {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Does what moor's agent once did for a read-only claim: mounts the same read-only over it.
pub fn lay_cover(path: &str) {
    let tree = thread::scope(|scope| scope.spawn(|| read_only_copy(Path::new(path))).join().unwrap());
    move_mount(&tree, "", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).unwrap();
}

fn read_only_copy(path: &Path) -> OwnedFd {
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC).unwrap();
    mount_remount(path, MountFlags::BIND | MountFlags::RDONLY, "").unwrap();
    open_tree(CWD, path, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC).unwrap()
}
