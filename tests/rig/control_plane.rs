//! A real etcd and a real kube-apiserver on loopback.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kube::config::{AuthInfo, Config};
use kube::{Client, Error};

/// Token of the tests' own client. It is in the group that moor's policies exempt, so that a test can also make what
/// moor would refuse.
const TOKEN: &str = "rig-admin";

/// Token of somebody who may do everything that moor's policies let users do.
pub const USER: &str = "rig-user";

/// How long the two may take to answer: 5 s on an idle machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// Arguments in which two API servers differ.
const ETCD: &str = "--etcd-servers=";
const PORT: &str = "--secure-port=";

pub struct ControlPlane {
    directory: PathBuf,
    etcd: Program,
    /// The one for Leases, if they have one of their own.
    lease_etcd: Option<Program>,
    api_server: Program,
    pub admin: Client,
    /// The cluster's built programs.
    pub parts: PathBuf,
}

impl ControlPlane {
    pub async fn start(directory: &Path) -> Self {
        Self::start_with(directory, false).await
    }

    /// As [`Self::start`]; `leases_apart`: Leases have an etcd of their own.
    pub async fn start_with(directory: &Path, leases_apart: bool) -> Self {
        let parts = parts();
        let logs = directory.join("logs");
        fs::create_dir_all(&logs).unwrap();
        let [client, peer, secure, lease_client, lease_peer] = free_ports();
        let (etcd, etcd_url) = self::etcd(&parts, directory, "etcd", [client, peer]);
        let (lease_etcd, lease_url) =
            self::etcd(&parts, directory, "etcd-of-leases", [lease_client, lease_peer]);
        let keys = directory.join("keys");
        make_signing_key(&parts, &keys);
        let tokens = directory.join("tokens.csv");
        let admin = format!("{TOKEN},rig-admin,1,\"system:masters,moor:break-glass\"\n");
        let user = format!("{USER},rig-user,2,system:masters\n");
        fs::write(&tokens, admin + &user).unwrap();
        let mut api_server = Command::new(parts.join("kube-apiserver"));
        api_server
            .arg(format!("{ETCD}{etcd_url}"))
            .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"])
            .arg(format!("{PORT}{secure}"))
            // Its own certificate is made there.
            .arg(format!("--cert-dir={}", keys.display()))
            .arg(format!("--token-auth-file={}", tokens.display()))
            .args(["--authorization-mode=Node,RBAC", "--service-cluster-ip-range=10.99.0.0/24"])
            // Who would take its finalizer off PersistentVolumes is not here either.
            .arg("--disable-admission-plugins=StorageObjectInUseProtection")
            // As on every cluster on which drivers run.
            .arg("--allow-privileged=true")
            // Nobody looks for the API server under a Service here.
            .arg("--endpoint-reconciler-type=none")
            .arg("--service-account-issuer=https://kubernetes.default.svc.cluster.local")
            .arg(format!("--service-account-key-file={}", keys.join("service-accounts.pub").display()))
            .arg(format!(
                "--service-account-signing-key-file={}",
                keys.join("service-accounts.key").display()
            ))
            .stdout(log(&logs, "kube-apiserver"))
            .stderr(log(&logs, "kube-apiserver"));
        let admin = client_of(secure, TOKEN);
        let lease_etcd = leases_apart.then(|| {
            api_server.arg(format!("--etcd-servers-overrides=coordination.k8s.io/leases#{lease_url}"));
            Program::start(lease_etcd)
        });
        let (etcd, api_server) = (Program::start(etcd), Program::start(api_server));
        let directory = directory.to_owned();
        let mut started = Self { directory, etcd, lease_etcd, api_server, admin, parts };
        started.wait().await;
        started
    }

    /// Stops everything, copies etcd's data, and goes on.
    pub async fn back_up(&mut self) {
        self.stop();
        copy(&self.directory.join("etcd"), &self.directory.join("backup"));
        self.go_on().await;
    }

    /// Stops everything, puts the copy in the place of etcd's data, and goes on.
    pub async fn restore(&mut self) {
        self.stop();
        fs::remove_dir_all(self.directory.join("etcd")).unwrap();
        copy(&self.directory.join("backup"), &self.directory.join("etcd"));
        self.go_on().await;
    }

    /// Stops the API server and starts it again, which then knows nothing that was before. etcd goes on.
    pub async fn restart_api_server(&mut self) {
        self.api_server.end();
        self.api_server.run();
        self.wait().await;
    }

    fn stop(&mut self) {
        self.api_server.end();
        self.etcd.end();
        self.lease_etcd.iter_mut().for_each(Program::end);
    }

    async fn go_on(&mut self) {
        self.etcd.run();
        self.lease_etcd.iter_mut().for_each(Program::run);
        self.api_server.run();
        self.wait().await;
    }

    /// Starts another API server beside the first, which finds etcd at this address.
    pub(super) fn another_api_server(&self, name: &str, etcd: SocketAddr) -> (Program, Client) {
        let first = &self.api_server.command;
        let [secure] = free_ports();
        let its_own = |argument: &&OsStr| {
            let argument = argument.to_string_lossy();
            argument.starts_with(ETCD) || argument.starts_with(PORT)
        };
        let logs = self.directory.join("logs");
        let mut command = Command::new(first.get_program());
        command
            .args(first.get_args().filter(|argument| !its_own(argument)))
            .arg(format!("{ETCD}http://{etcd}"))
            .arg(format!("{PORT}{secure}"))
            .stdout(log(&logs, name))
            .stderr(log(&logs, name));
        (Program::start(command), client_of(secure, TOKEN))
    }

    /// Writes a kubeconfig that leads to the API server, with the rights of the tests' own client or of a user that it acts as.
    pub(super) fn kubeconfig(&self, name: &str, user: Option<&str>) -> PathBuf {
        let mut token = serde_json::json!({ "token": TOKEN });
        if let Some(user) = user {
            token["as"] = user.into();
        }
        self.write_kubeconfig(name, &token)
    }

    /// Writes a kubeconfig that leads to the API server, for whoever has this token.
    pub fn kubeconfig_of(&self, name: &str, token: &str) -> PathBuf {
        self.write_kubeconfig(name, &serde_json::json!({ "token": token }))
    }

    /// A client for whoever has this token.
    pub fn client_of(&self, token: &str) -> Client {
        client_of(self.port(), token)
    }

    fn port(&self) -> u16 {
        let mut arguments = self.api_server.command.get_args();
        arguments.find_map(|a| a.to_str()?.strip_prefix(PORT)).unwrap().parse().unwrap()
    }

    fn write_kubeconfig(&self, name: &str, token: &serde_json::Value) -> PathBuf {
        let server = format!("https://127.0.0.1:{}", self.port());
        let kubeconfig = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "rig", "cluster": { "server": server, "insecure-skip-tls-verify": true } }],
            "users": [{ "name": name, "user": token }],
            "contexts": [{ "name": "rig", "context": { "cluster": "rig", "user": name } }],
            "current-context": "rig",
        });
        let path = self.directory.join(format!("{name}.kubeconfig"));
        // JSON is YAML.
        fs::write(&path, kubeconfig.to_string()).unwrap();
        path
    }

    /// The processes of the API server and of its etcd.
    pub fn processes(&self) -> [(&'static str, u32); 2] {
        [("API server", self.api_server.child.id()), ("etcd", self.etcd.child.id())]
    }

    /// Where the API server finds etcd.
    pub fn etcd(&self) -> String {
        let mut arguments = self.api_server.command.get_args();
        arguments.find_map(|a| a.to_str()?.strip_prefix(ETCD)).unwrap().to_owned()
    }

    async fn wait(&mut self) {
        let logs = self.directory.join("logs");
        let end = Instant::now() + PATIENCE;
        loop {
            let request = http::Request::get("/readyz").body(Vec::new()).unwrap();
            let problem = match self.admin.request_text(request).await {
                Ok(_) => return,
                Err(Error::Api(status)) => status.message,
                Err(error) => error.to_string(),
            };
            for (name, child) in [("etcd", &mut self.etcd), ("kube-apiserver", &mut self.api_server)] {
                if let Some(status) = child.child.try_wait().unwrap() {
                    let text = fs::read_to_string(logs.join(format!("{name}.log"))).unwrap_or_default();
                    panic!("{name} ended with {status}:\n{text}");
                }
            }
            assert!(Instant::now() < end, "the API server is not ready: {problem}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        self.stop();
    }
}

/// An etcd with its data in the folder `name`, and where it listens.
fn etcd(parts: &Path, directory: &Path, name: &str, [client, peer]: [u16; 2]) -> (Command, String) {
    let logs = directory.join("logs");
    let url = format!("http://127.0.0.1:{client}");
    let peer_url = format!("http://127.0.0.1:{peer}");
    let mut etcd = Command::new(parts.join("etcd"));
    etcd.arg("--name=rig")
        .arg(format!("--data-dir={}", directory.join(name).display()))
        // The data lives no longer than the test.
        .args(["--unsafe-no-fsync", "--log-level=warn"])
        // 50,000 claims with all that was written about them are more than the 2 GiB that it takes by itself.
        .arg("--quota-backend-bytes=8589934592")
        .arg(format!("--listen-client-urls={url}"))
        .arg(format!("--advertise-client-urls={url}"))
        .arg(format!("--listen-peer-urls={peer_url}"))
        .arg(format!("--initial-advertise-peer-urls={peer_url}"))
        .arg(format!("--initial-cluster=rig={peer_url}"))
        .stdout(log(&logs, name))
        .stderr(log(&logs, name));
    (etcd, url)
}

/// A process that can be started again.
pub(super) struct Program {
    command: Command,
    child: Child,
}

impl Program {
    fn start(mut command: Command) -> Self {
        let child = command.spawn().unwrap();
        Self { command, child }
    }

    fn run(&mut self) {
        self.child = self.command.spawn().unwrap();
    }

    pub(super) fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(done.success());
}

/// The folder of the built programs, which says how to build them if they are missing.
fn parts() -> PathBuf {
    let found = Command::new("python3")
        .args(["-m", "e2e.cluster", "print-bin"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("python3 has to be installed");
    assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
    let folder = PathBuf::from(String::from_utf8(found.stdout).unwrap().trim());
    let needed = ["etcd", "kube-apiserver", "certificates", "helm"];
    let missing: Vec<_> = needed.iter().filter(|name| !folder.join(name).exists()).collect();
    assert!(
        missing.is_empty(),
        "{missing:?} are not built: run `python3 -m e2e.cluster parts {}` once (10 min on two cores; `make test` does \
         it too)",
        needed.join(" ")
    );
    folder
}

fn make_signing_key(parts: &Path, keys: &Path) {
    fs::create_dir_all(keys).unwrap();
    let wanted = serde_json::json!({
        "directory": keys, "certificates": [], "signingKeys": ["service-accounts"],
    });
    let mut child = Command::new(parts.join("certificates")).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(wanted.to_string().as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}

pub(super) fn log(logs: &Path, name: &str) -> File {
    File::options().create(true).append(true).open(logs.join(format!("{name}.log"))).unwrap()
}

/// All held at once, so that they differ.
fn free_ports<const N: usize>() -> [u16; N] {
    let listeners = [(); N].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

fn client_of(port: u16, token: &str) -> Client {
    let mut config = Config::new(format!("https://127.0.0.1:{port}").parse().unwrap());
    config.auth_info = AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() };
    // On loopback, by a certificate that was made a second ago.
    config.accept_invalid_certs = true;
    config.default_retry = false;
    config.read_timeout = None;
    moor::k8s::client::client_of(config).unwrap()
}
