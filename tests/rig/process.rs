//! The processes of moor.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::control_plane::log;

/// The program, as it was built with this one.
pub const MOOR: &str = env!("CARGO_BIN_EXE_moor");

/// A running `moor`. Dropped it is killed.
pub struct Moor {
    child: Child,
}

impl Moor {
    /// The program that is tested. With the file of the node's mount namespace it is to run in one of its own.
    pub fn program(node: Option<&Path>) -> Command {
        let mut command = Command::new(if node.is_some() { "unshare" } else { MOOR });
        if let Some(node) = node {
            command.args(["--mount", "--propagation", "unchanged", MOOR]);
            command.env("MOOR_NODE_MOUNT_NAMESPACE", node);
        }
        command
    }

    /// Starts `moor ROLE ARGUMENTS…` by [`Self::program`] or another build of it. Its log goes to `logs/NAME.log`. What it logs is by
    /// `levels`, unless the environment says otherwise.
    pub fn start(
        mut program: Command,
        logs: &Path,
        name: &str,
        kubeconfig: &Path,
        arguments: &[String],
        levels: &str,
    ) -> Self {
        fs::create_dir_all(logs).unwrap();
        program.args(arguments).env("KUBECONFIG", kubeconfig);
        if std::env::var_os("MOOR_LOG").is_none() {
            program.env("MOOR_LOG", levels);
        }
        let child = program.stdout(log(logs, name)).stderr(log(logs, name)).spawn().unwrap();
        Self { child }
    }

    /// Runs `moor ARGUMENTS…` to its end. Returns whether it has succeeded, and all that it has said.
    pub fn run(kubeconfig: &Path, arguments: &[&str]) -> (bool, String) {
        let mut command = Command::new(MOOR);
        let done = command.args(arguments).env("KUBECONFIG", kubeconfig).output().unwrap();
        let said = [done.stdout, done.stderr].concat();
        (done.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The memory that it has now, in bytes.
    pub fn memory(&self) -> u64 {
        self.bytes("VmRSS:")
    }

    /// The most memory that it has had, in bytes.
    pub fn peak_memory(&self) -> u64 {
        self.bytes("VmHWM:")
    }

    fn bytes(&self, of: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let found = status.lines().find_map(|line| line.strip_prefix(of)).unwrap();
        let kilobytes: u64 = found.trim().trim_end_matches(" kB").parse().unwrap();
        kilobytes << 10
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// SIGSTOP, and waits until no thread of it runs any more.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
        let end = Instant::now() + Duration::from_secs(60);
        while !self.is_frozen() {
            assert!(Instant::now() < end, "moor does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn is_frozen(&self) -> bool {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        tasks.flatten().all(|task| {
            // The state comes after the name, which is in parentheses. A thread that has just ended has none.
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
        })
    }

    /// Whether it has not ended and is not frozen.
    pub fn is_running(&mut self) -> bool {
        !self.has_ended() && !self.is_frozen()
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM, and waits until it has ended.
    pub async fn stop(mut self) {
        self.signal(Signal::TERM);
        let end = Instant::now() + Duration::from_secs(60);
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < end, "moor does not end");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }
}

impl Drop for Moor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
