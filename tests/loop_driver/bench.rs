//! A place to run real drivers in, that leaves nothing behind.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use moor::csi::proto::csi::v1::controller_client::ControllerClient;
use moor::csi::proto::csi::v1::group_controller_client::GroupControllerClient;
use moor::csi::proto::csi::v1::node_client::NodeClient;
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};

/// A new mount namespace begins with a copy of all mounts, and those of tests that run at the same time would stay in use
/// there.
const FORGET_OTHERS: &str = r#"
    awk -v begin="$1/moor-loop-" 'index($5, begin) == 1 { print $5 }' /proc/self/mountinfo | tac | xargs -r umount --lazy
    shift
    exec "$@"
"#;

/// A directory with the state and the paths of several nodes.
pub struct Bench {
    dir: TempDir,
}

impl Bench {
    pub fn new() -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "these tests set up loop devices and mounts: run them as root"
        );
        Self { dir: tempfile::Builder::new().prefix("moor-loop-").tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    pub fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// An empty directory for a node's paths, with a staging directory in it.
    pub fn node_dir(&self, node: &str) -> PathBuf {
        let dir = self.path(node);
        fs::create_dir_all(dir.join("staging")).unwrap();
        dir
    }

    /// Starts a driver whose nodes share the state directory.
    pub async fn shared(&self, node: &str, more: &[&str]) -> Driver {
        self.start(node, &[&["--shared"], more].concat(), false).await
    }

    /// The same in a mount namespace of its own, as a node of the test cluster is.
    pub async fn shared_apart(&self, node: &str) -> Driver {
        self.start(node, &["--shared"], true).await
    }

    pub async fn start(&self, node: &str, more: &[&str], apart: bool) -> Driver {
        let socket = self.node_dir(node).join("csi.sock");
        let binary = env!("CARGO_BIN_EXE_moor");
        let mut command = if apart {
            let mut command = Command::new("unshare");
            command.args(["--mount", "--propagation", "private", "sh", "-c", FORGET_OTHERS, "sh"]);
            command.arg(self.dir.path().parent().unwrap()).arg(binary);
            command
        } else {
            Command::new(binary)
        };
        let log = File::options().create(true).append(true).open(self.log()).unwrap();
        let child = command
            .arg("loop-driver")
            .args(["--node-id", node, "--record-calls"])
            .args(["--endpoint", &format!("unix://{}", socket.display())])
            .args(["--state-dir", &self.state().to_string_lossy()])
            .args(more)
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut driver = Driver { child, socket, channel: None };
        driver.channel = Some(driver.connect().await);
        driver
    }

    fn log(&self) -> PathBuf {
        self.path("drivers.log")
    }

    /// Asks for a fault; `node` may be `any`.
    pub fn fault(&self, node: &str, rpc: &str, fault: &serde_json::Value) -> PathBuf {
        let dir = self.state().join("faults").join(node);
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join(rpc);
        fs::write(&path, fault.to_string()).unwrap();
        path
    }

    /// The loop devices that are set up on a file of this bench, with whether they go at the last close.
    pub fn devices(&self) -> BTreeMap<String, bool> {
        let dir = self.dir.path().to_string_lossy().into_owned();
        let listed =
            Command::new("losetup").args(["-n", "-l", "-O", "NAME,AUTOCLEAR,BACK-FILE"]).output().unwrap();
        String::from_utf8(listed.stdout)
            .unwrap()
            .lines()
            .filter(|line| line.contains(&dir))
            .map(|line| {
                let mut fields = line.split_whitespace();
                (fields.next().unwrap().to_owned(), fields.next() == Some("1"))
            })
            .collect()
    }

    pub fn mounts(&self) -> Vec<String> {
        mount_points(self.dir.path())
    }

    /// Nothing is mounted, no device is set up.
    pub fn assert_clean(&self) {
        assert_eq!(self.mounts(), Vec::<String>::new());
        assert_eq!(self.devices(), BTreeMap::new());
    }

    pub fn calls(&self) -> String {
        fs::read_to_string(self.state().join("calls.jsonl")).unwrap()
    }
}

fn mount_points(dir: &Path) -> Vec<String> {
    let dir = dir.to_string_lossy().into_owned();
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let points =
        table.lines().filter_map(|line| line.split(' ').nth(4)).filter(|point| point.starts_with(&dir));
    points.map(str::to_owned).collect()
}

impl Drop for Bench {
    /// After a failed test too; of a test that passed nothing is left to do.
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", fs::read_to_string(self.log()).unwrap_or_default());
        }
        for point in self.mounts().iter().rev() {
            let _ = Command::new("umount").arg(point).status();
        }
        for device in self.devices().into_keys() {
            let _ = Command::new("losetup").args(["-d", &device]).status();
        }
    }
}

/// A running driver.
pub struct Driver {
    child: Child,
    socket: PathBuf,
    channel: Option<Channel>,
}

impl Driver {
    async fn connect(&self) -> Channel {
        let end = Instant::now() + Duration::from_secs(20);
        let endpoint = Endpoint::from_shared(format!("unix://{}", self.socket.display())).unwrap();
        loop {
            match endpoint.connect().await {
                Ok(channel) => return channel,
                Err(error) => assert!(Instant::now() < end, "the driver does not serve: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn channel(&self) -> Channel {
        self.channel.clone().unwrap()
    }

    pub fn controller(&self) -> ControllerClient<Channel> {
        ControllerClient::new(self.channel())
    }

    pub fn groups(&self) -> GroupControllerClient<Channel> {
        GroupControllerClient::new(self.channel())
    }

    pub fn node(&self) -> NodeClient<Channel> {
        NodeClient::new(self.channel())
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// `kill -9`.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM, and the exit code.
    pub async fn terminate(&mut self) -> Option<i32> {
        let pid = i32::try_from(self.child.id()).unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < end, "the driver does not end");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process that keeps a driver's mount namespace alive when the driver is gone.
pub struct Survivor(Child);

impl Survivor {
    pub fn beside(driver: &Driver) -> Self {
        Self::running(driver, "exec sleep 600")
    }

    /// With something to do.
    pub fn running(driver: &Driver, script: &str) -> Self {
        let target = driver.pid().to_string();
        let child = Command::new("nsenter")
            .args(["--target", &target, "--mount", "sh", "-c", script])
            .spawn()
            .unwrap();
        let survivor = Self(child);
        // nsenter has to have entered before the driver may go.
        let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
        while namespace(&survivor.0.id().to_string()) != namespace(&target) {
            std::thread::sleep(Duration::from_millis(5));
        }
        survivor
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Runs a shell command in the namespace.
    pub fn shell(&self, script: &str) -> Output {
        let target = self.0.id().to_string();
        Command::new("nsenter").args(["--target", &target, "--mount", "sh", "-c", script]).output().unwrap()
    }
}

impl Drop for Survivor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until `found` says yes.
pub async fn eventually(what: &str, found: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !found() {
        assert!(Instant::now() < end, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until a call meets a fault that was asked for once.
pub async fn taken(fault: &Path) {
    eventually("the call reaches the step", || {
        let now: Option<serde_json::Value> = serde_json::from_slice(&fs::read(fault).unwrap()).ok();
        now.is_some_and(|now| now["times"] == 0)
    })
    .await;
}
