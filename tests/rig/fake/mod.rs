//! A CSI driver for tests: writes down every call, has faults on demand, and checks whoever calls it by CSI's rules of
//! order. It serves a real unix socket per node, with one storage behind all of them, and makes real mounts.
//!
//! A volume is known by its **key**: `parameters.key` of CreateVolume, or the part of its handle after `vol-` and
//! before the first `/`.

pub mod backend;
mod controller;
mod group_controller;
pub mod groups;
mod identity;
pub mod listing;
mod mounts;
mod node;
pub mod snapshots;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::Shutdown;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use moor::csi::Rpc;
use moor::csi::proto::csi::v1::controller_server::ControllerServer;
use moor::csi::proto::csi::v1::group_controller_server::GroupControllerServer;
use moor::csi::proto::csi::v1::identity_server::IdentityServer;
use moor::csi::proto::csi::v1::node_server::NodeServer;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::server::Router;
use tonic::{Code, Response, Status};

use super::Options;
use super::gate::{Gate, Side};
use super::journal::{Call, Event, Journal, Outcome};
use backend::Backend;

/// The name that the driver gives itself.
pub const DRIVER: &str = "fake.moor.dev";

/// By which the driver says where a node is.
pub const ZONE: &str = "topology.fake.moor.dev/zone";

/// The key of questions after the room in a zone.
pub fn room(zone: &str) -> String {
    format!("room in {zone}")
}

/// For how long the driver may not know yet that its caller has given a question up.
const MOMENT: Duration = Duration::from_millis(10);
const MOMENTS: u32 = 50;

/// How a call goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Answers with this code and does nothing.
    CodeBefore(Code),
    /// Does what is asked, and answers with this code.
    CodeAfter(Code),
    /// Does nothing and never answers.
    HangBefore,
    /// Does what is asked and never answers.
    HangAfter,
}

/// The words that come with a fault's code.
pub const WORDS: &str = "the storage is on strike";

/// Cheap to clone; all clones are one driver.
#[derive(Clone)]
pub struct Fake(Arc<Shared>);

struct Shared {
    journal: Journal,
    gate: Gate,
    backend: Mutex<Backend>,
    faults: Mutex<BTreeMap<(String, Rpc), Fault>>,
    /// Whose failures repeat all that was said in the call.
    parrots: Mutex<BTreeSet<String>>,
    /// Calls that are answered with OK and not done.
    pretended: Mutex<BTreeSet<(String, Rpc)>>,
    /// Calls that wait until they are let go.
    held: watch::Sender<BTreeSet<(String, Rpc)>>,
    /// Calls that run: for Controller calls the volume, for Node calls the node and the volume.
    flights: Mutex<BTreeMap<String, Rpc>>,
    servers: Mutex<BTreeMap<String, Server>>,
}

/// A process of the driver.
struct Server {
    task: AbortHandle,
    /// The connections that it has accepted: they live on without the task.
    connections: Arc<Mutex<Vec<UnixStream>>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
        for connection in self.connections.lock().unwrap().iter() {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

impl Fake {
    /// Keeps its volumes' content below `directory`.
    pub fn new(directory: &Path, options: &Options, journal: Journal, gate: Gate) -> Self {
        Self(Arc::new(Shared {
            journal,
            gate,
            backend: Mutex::new(Backend::new(directory.join("storage"), options)),
            faults: Mutex::default(),
            parrots: Mutex::default(),
            pretended: Mutex::default(),
            held: watch::Sender::default(),
            flights: Mutex::default(),
            servers: Mutex::default(),
        }))
    }

    /// Starts the driver's process on a node: binds its socket below `plugin_dir`.
    pub fn serve(&self, node: &str, plugin_dir: &Path, controller: bool) {
        let place = Place { fake: self.clone(), node: node.to_owned(), controller };
        let router = tonic::transport::Server::builder()
            .add_service(IdentityServer::new(place.clone()))
            .add_service(ControllerServer::new(place.clone()))
            .add_service(GroupControllerServer::new(place.clone()))
            .add_service(NodeServer::new(place));
        self.listen(node.to_owned(), &socket(plugin_dir), router);
    }

    /// As [`Self::serve`], as two processes with a socket each: one for the Node service, one for the Controller service.
    /// Both have the same Identity service.
    pub fn serve_apart(&self, node: &str, plugin_dir: &Path) {
        let place = Place { fake: self.clone(), node: node.to_owned(), controller: true };
        let router = tonic::transport::Server::builder()
            .add_service(IdentityServer::new(place.clone()))
            .add_service(NodeServer::new(place));
        self.listen(node.to_owned(), &socket(plugin_dir), router);
        self.serve_controller(node, plugin_dir);
    }

    /// Starts the controller process of [`Self::serve_apart`].
    pub fn serve_controller(&self, node: &str, plugin_dir: &Path) {
        let place = Place { fake: self.clone(), node: node.to_owned(), controller: true };
        let router = tonic::transport::Server::builder()
            .add_service(IdentityServer::new(place.clone()))
            .add_service(ControllerServer::new(place.clone()))
            .add_service(GroupControllerServer::new(place));
        self.listen(controller_of(node), &controller_socket(plugin_dir), router);
    }

    /// Kills the controller process of [`Self::serve_apart`]: its socket stays behind.
    pub fn kill_controller(&self, node: &str) {
        self.0.servers.lock().unwrap().remove(&controller_of(node));
    }

    fn listen(&self, process: String, socket: &Path, router: Router) {
        fs::create_dir_all(socket.parent().unwrap()).unwrap();
        let _ = fs::remove_file(socket);
        let connections = Arc::new(Mutex::new(Vec::new()));
        let accepted = connections.clone();
        let incoming = UnixListenerStream::new(UnixListener::bind(socket).unwrap()).map(move |connection| {
            let connection = connection?;
            let copy = connection.as_fd().try_clone_to_owned()?;
            accepted.lock().unwrap().push(UnixStream::from(copy));
            Ok::<_, std::io::Error>(connection)
        });
        let task = tokio::spawn(router.serve_with_incoming(incoming)).abort_handle();
        self.0.servers.lock().unwrap().insert(process, Server { task, connections });
    }

    /// Ends the driver's processes on a node. What it has mounted stays.
    pub fn stop(&self, node: &str, plugin_dir: &Path) {
        self.0.servers.lock().unwrap().remove(node);
        let _ = fs::remove_file(socket(plugin_dir));
        self.kill_controller(node);
        let _ = fs::remove_file(controller_socket(plugin_dir));
    }

    /// From now on every call `rpc` about `key` goes wrong like this.
    pub fn fail(&self, key: &str, rpc: Rpc, fault: Fault) {
        self.0.faults.lock().unwrap().insert((key.to_owned(), rpc), fault);
    }

    /// From now on the words that come with a fault about `key` hold the whole request, as it was sent.
    pub fn repeat(&self, key: &str) {
        self.0.parrots.lock().unwrap().insert(key.to_owned());
    }

    /// The fault ends.
    pub fn heal(&self, key: &str, rpc: Rpc) {
        self.0.faults.lock().unwrap().remove(&(key.to_owned(), rpc));
    }

    /// From now on every call `rpc` about `key` is answered with OK and nothing is done, until [`Self::behave`].
    pub fn pretend(&self, key: &str, rpc: Rpc) {
        self.0.pretended.lock().unwrap().insert((key.to_owned(), rpc));
    }

    /// The end of [`Self::pretend`].
    pub fn behave(&self, key: &str, rpc: Rpc) {
        self.0.pretended.lock().unwrap().remove(&(key.to_owned(), rpc));
    }

    /// From now on every call `rpc` about `key` waits, until [`Self::let_go`]. Probe, about a node, answers that its driver is not
    /// ready.
    pub fn hold(&self, key: &str, rpc: Rpc) {
        let _ = self.0.held.send_if_modified(|held| held.insert((key.to_owned(), rpc)));
    }

    /// The end of [`Self::hold`]; the calls that wait go on.
    pub fn let_go(&self, key: &str, rpc: Rpc) {
        let _ = self.0.held.send_if_modified(|held| held.remove(&(key.to_owned(), rpc)));
    }

    /// What the storage has, to look at or to change behind moor's back.
    pub fn backend(&self) -> MutexGuard<'_, Backend> {
        self.0.backend.lock().unwrap()
    }

    /// A volume is attached nowhere any more, and nobody asked for that.
    pub fn detach_silently(&self, key: &str) {
        if let Some(volume) = self.backend().volumes.get_mut(key) {
            volume.attached.clear();
        }
    }

    /// Asserts that every call came in an order and with arguments that CSI allows.
    pub fn assert_obeyed(&self) {
        let violations: Vec<_> = self.backend().violations.iter().map(|(_, what)| what.clone()).collect();
        assert!(violations.is_empty(), "calls that CSI forbids:\n{}", violations.join("\n"));
    }
}

pub(super) fn socket(plugin_dir: &Path) -> PathBuf {
    plugin_dir.join(DRIVER).join("csi.sock")
}

fn controller_socket(plugin_dir: &Path) -> PathBuf {
    plugin_dir.join(format!("{DRIVER}-controller")).join("csi.sock")
}

fn controller_of(node: &str) -> String {
    format!("{node}/controller")
}

/// The driver's process on one node.
#[derive(Clone)]
struct Place {
    fake: Fake,
    node: String,
    controller: bool,
}

/// What a call is about.
struct About {
    rpc: Rpc,
    key: String,
    arguments: Vec<u8>,
}

impl Place {
    /// Answers one call: written down, stopped or failed where that was asked for, else `effect`.
    async fn answer<A: Default>(
        &self,
        about: About,
        effect: impl FnOnce(&mut Backend, &str, &[u8]) -> Result<A, Status>,
    ) -> Result<Response<A>, Status> {
        let About { rpc, key, arguments } = about;
        let shared = &self.fake.0;
        let stop = shared.gate.arrive(&self.node, rpc.name());
        let call = Call { rpc, node: self.node.clone(), key: key.clone(), arguments: arguments.clone() };
        let open = shared.journal.begin(&self.node, Event::Call(call));
        self.after_a_question(rpc, &key).await;
        let _flight = Flight::begin(&self.fake, &key, self.lane(rpc, &key), rpc);
        let words = if shared.parrots.lock().unwrap().contains(&key) {
            format!("{WORDS}: {}", String::from_utf8_lossy(&arguments))
        } else {
            WORDS.to_owned()
        };
        let this = (key, rpc);
        let fault = shared.faults.lock().unwrap().get(&this).copied();
        let pretended = shared.pretended.lock().unwrap().contains(&this);

        shared.gate.pass(stop, Side::Before).await;
        // The sender lives as long as the driver.
        let _ = shared.held.subscribe().wait_for(|held| !held.contains(&this)).await;
        let failed = match fault {
            Some(Fault::HangBefore) => std::future::pending().await,
            Some(Fault::CodeBefore(code)) => Some(code),
            _ => None,
        };
        let result = match failed {
            Some(code) => Err(Status::new(code, words.clone())),
            None if pretended => Ok(A::default()),
            None => effect(&mut shared.backend.lock().unwrap(), &self.node, &arguments),
        };
        let result = match (fault, result) {
            (Some(Fault::HangAfter), Ok(_)) => std::future::pending().await,
            (Some(Fault::CodeAfter(code)), Ok(_)) => Err(Status::new(code, words)),
            (_, result) => result,
        };
        open.end(Outcome::Code(result.as_ref().err().map_or(Code::Ok, Status::code)));
        shared.gate.pass(stop, Side::After).await;
        result.map(Response::new)
    }

    /// Of a question that its caller has given up the news may come a moment after the next call.
    async fn after_a_question(&self, rpc: Rpc, key: &str) {
        let lane = self.lane(rpc, key);
        let questions = [Rpc::NodeGetVolumeStats, Rpc::ControllerGetVolume];
        let is_asked =
            || self.fake.0.flights.lock().unwrap().get(&lane).is_some_and(|rpc| questions.contains(rpc));
        for _ in 0..MOMENTS {
            if !is_asked() {
                return;
            }
            tokio::time::sleep(MOMENT).await;
        }
    }

    /// Where no second call may run (CSI: one in flight per volume; the node's calls are apart from the controller's).
    fn lane(&self, rpc: Rpc, key: &str) -> String {
        match rpc {
            Rpc::NodeStageVolume
            | Rpc::NodeUnstageVolume
            | Rpc::NodePublishVolume
            | Rpc::NodeUnpublishVolume
            | Rpc::NodeExpandVolume
            | Rpc::NodeGetVolumeStats => format!("{key} on {}", self.node),
            _ => key.to_owned(),
        }
    }
}

/// A call that runs, until it is dropped: also when the caller hangs up.
struct Flight {
    fake: Fake,
    lane: String,
    second: bool,
}

impl Flight {
    fn begin(fake: &Fake, key: &str, lane: String, rpc: Rpc) -> Self {
        let first = fake.0.flights.lock().unwrap().insert(lane.clone(), rpc);
        if let Some(first) = first {
            fake.backend().violation(key, format!("{rpc} about {lane} while {first} runs"));
        }
        Self { fake: fake.clone(), lane, second: first.is_some() }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.second {
            self.fake.0.flights.lock().unwrap().remove(&self.lane);
        }
    }
}

/// The key of a handle.
fn key_of(handle: &str) -> String {
    let key = handle.strip_prefix("vol-").unwrap_or(handle);
    key.split('/').next().unwrap_or(key).to_owned()
}
