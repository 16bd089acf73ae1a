//! The registry against small plugins on real sockets, which come, fail, restart and go.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

use super::*;
use crate::agent::drivers::endpoint::Serving;
use crate::csi::proto::csi::v1 as wire;
use crate::csi::proto::csi::v1::controller_server::{Controller, ControllerServer};
use crate::csi::proto::csi::v1::controller_service_capability::rpc::Type as ControllerRpc;
use crate::csi::proto::csi::v1::identity_server::{Identity, IdentityServer};
use crate::csi::proto::csi::v1::node_server::{Node, NodeServer};

/// The process that serves a driver's service, whichever socket it has.
pub(crate) fn client_for(registry: &Registry, driver: &str, service: Service) -> Option<Serving> {
    registry.best(driver, service, &Where::Directory).and_then(|endpoint| endpoint.serving)
}

/// The process of a.test.
pub(crate) fn any(registry: &Registry) -> Option<Endpoint> {
    registry.best("a.test", Service::Identity, &Where::Directory)
}

#[derive(Clone, Default)]
pub(crate) struct Driver {
    pub name: String,
    pub not_ready: Arc<AtomicBool>,
    /// Probe fails, which is another way to say so.
    pub probe_fails: bool,
    pub asked: Arc<AtomicUsize>,
    /// How often it still refuses to say who it is.
    pub refusals: Arc<AtomicUsize>,
    pub version: String,
    /// Its Identity service says that there is a Controller service.
    pub says_controller: bool,
    /// What ControllerGetCapabilities answers, if not UNIMPLEMENTED.
    pub controller: Option<Vec<ControllerRpc>>,
    pub no_node: bool,
    /// It says who it is, and cannot say what it serves.
    pub ill: bool,
}

impl Driver {
    fn is_well(&self) -> Result<(), Status> {
        if self.ill { Err(Status::internal("cannot reach metadata service")) } else { Ok(()) }
    }
}

#[tonic::async_trait]
impl Identity for Driver {
    async fn get_plugin_info(
        &self,
        _: Request<wire::GetPluginInfoRequest>,
    ) -> Result<Response<wire::GetPluginInfoResponse>, Status> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let fewer = |left: usize| left.checked_sub(1);
        if self.refusals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer).is_ok() {
            return Err(Status::unavailable("still starting"));
        }
        let (name, vendor_version) = (self.name.clone(), self.version.clone());
        Ok(Response::new(wire::GetPluginInfoResponse { name, vendor_version, ..Default::default() }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<wire::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<wire::GetPluginCapabilitiesResponse>, Status> {
        use wire::plugin_capability::{Service, Type, service};
        let service = Service { r#type: service::Type::ControllerService.into() };
        let capability = wire::PluginCapability { r#type: Some(Type::Service(service)) };
        let capabilities = self.says_controller.then_some(capability).into_iter().collect();
        Ok(Response::new(wire::GetPluginCapabilitiesResponse { capabilities }))
    }

    async fn probe(&self, _: Request<wire::ProbeRequest>) -> Result<Response<wire::ProbeResponse>, Status> {
        let ready = !self.not_ready.load(Ordering::SeqCst);
        if self.probe_fails && !ready {
            return Err(Status::failed_precondition("the backend is not there yet"));
        }
        Ok(Response::new(wire::ProbeResponse { ready: Some(ready) }))
    }
}

#[tonic::async_trait]
impl Controller for Driver {
    async fn controller_get_capabilities(
        &self,
        _: Request<wire::ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<wire::ControllerGetCapabilitiesResponse>, Status> {
        use wire::controller_service_capability::{Rpc, Type};
        if self.no_node {
            self.is_well()?;
        }
        let Some(rpcs) = &self.controller else { return Err(Status::unimplemented("a node process")) };
        let capability = |rpc: &ControllerRpc| wire::ControllerServiceCapability {
            r#type: Some(Type::Rpc(Rpc { r#type: (*rpc).into() })),
        };
        let capabilities = rpcs.iter().map(capability).collect();
        Ok(Response::new(wire::ControllerGetCapabilitiesResponse { capabilities }))
    }
}

#[tonic::async_trait]
impl Node for Driver {
    async fn node_get_capabilities(
        &self,
        _: Request<wire::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<wire::NodeGetCapabilitiesResponse>, Status> {
        if self.no_node {
            return Err(Status::unimplemented("a controller process"));
        }
        Ok(Response::new(wire::NodeGetCapabilitiesResponse::default()))
    }

    async fn node_get_info(
        &self,
        _: Request<wire::NodeGetInfoRequest>,
    ) -> Result<Response<wire::NodeGetInfoResponse>, Status> {
        self.is_well()?;
        Ok(Response::new(wire::NodeGetInfoResponse { node_id: "id".into(), ..Default::default() }))
    }
}

/// A process: what runs in it ends with it, connections included.
pub(crate) struct Process(Option<tokio::runtime::Runtime>);

impl Drop for Process {
    fn drop(&mut self) {
        self.0.take().unwrap().shutdown_background();
    }
}

pub(crate) fn serve(driver: &Driver, path: &Path) -> Process {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let _ = fs::remove_file(path);
    let listener = std::os::unix::net::UnixListener::bind(path).unwrap();
    listener.set_nonblocking(true).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let driver = driver.clone();
    runtime.spawn(async move {
        let incoming = UnixListenerStream::new(UnixListener::from_std(listener).unwrap());
        let server = tonic::transport::Server::builder()
            .add_service(IdentityServer::new(driver.clone()))
            .add_service(ControllerServer::new(driver.clone()))
            .add_service(NodeServer::new(driver));
        server.serve_with_incoming(incoming).await
    });
    Process(Some(runtime))
}

#[derive(Default)]
pub(crate) struct World {
    named: Mutex<Vec<PathBuf>>,
    told: Mutex<Vec<(String, bool)>>,
    /// How often it still panics instead of taking in what it is told.
    faults: AtomicUsize,
    panics: AtomicUsize,
}

impl Surroundings for World {
    fn named_sockets(&self) -> Vec<PathBuf> {
        self.named.lock().clone()
    }

    fn health_timeout(&self, _: &str) -> Duration {
        Duration::from_millis(500)
    }

    fn panicked(&self) {
        self.panics.fetch_add(1, Ordering::SeqCst);
    }

    fn changed(&self, driver: &str, serving: bool) {
        let fewer = |left: usize| left.checked_sub(1);
        assert!(
            self.faults.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer).is_err(),
            "as the test asked"
        );
        self.told.lock().push((driver.to_owned(), serving));
    }
}

pub(crate) struct Fixture {
    pub directory: tempfile::TempDir,
    world: Arc<World>,
    pub registry: Arc<Registry>,
}

pub(crate) fn fixture() -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let world = Arc::new(World::default());
    let registry = Registry::new(directory.path().to_owned(), Deadlines::default(), world.clone());
    tokio::spawn(registry.clone().run());
    Fixture { directory, world, registry }
}

pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..500 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("never: {what}");
}

#[tokio::test]
async fn a_plugin_is_found_serves_and_its_end_is_noticed_at_once() {
    let Fixture { directory, world, registry } = fixture();
    until("settled without sockets", || registry.is_settled()).await;
    let driver = Driver { name: "a.test".into(), ..Driver::default() };
    let path = directory.path().join("a/csi.sock");
    let server = serve(&driver, &path);
    until("serving", || client_for(&registry, "a.test", Service::Identity).is_some()).await;
    let serving = client_for(&registry, "a.test", Service::Identity).unwrap();
    assert_eq!(serving.fingerprint.node_info.as_ref().unwrap().node_id, "id");
    assert!(!serving.fingerprint.controller && serving.fingerprint.node);
    assert!(any(&registry).unwrap().health.healthy);
    assert!(registry.best("a.test", Service::Identity, &Where::At("/elsewhere.sock".into())).is_none());
    assert!(client_for(&registry, "b.test", Service::Identity).is_none());

    // The process ends and leaves its socket behind, as one that is killed does.
    drop(server);
    until("gone", || any(&registry).is_some_and(|e| e.health.gone)).await;
    assert!(client_for(&registry, "a.test", Service::Identity).is_none());

    let _server = serve(&driver, &path);
    until("serving again", || client_for(&registry, "a.test", Service::Identity).is_some()).await;
    let told = world.told.lock().clone();
    assert_eq!(told.iter().filter(|(name, serving)| name == "a.test" && *serving).count(), 2, "{told:?}");
}

#[tokio::test]
async fn a_watch_that_panics_is_begun_anew() {
    let Fixture { directory, world, registry } = fixture();
    world.faults.store(1, Ordering::SeqCst);
    let driver = Driver { name: "a.test".into(), ..Driver::default() };
    let path = directory.path().join("a/csi.sock");
    let server = serve(&driver, &path);
    until("the panic is seen", || world.panics.load(Ordering::SeqCst) == 1).await;
    until("told after it", || world.told.lock().contains(&("a.test".to_owned(), true))).await;
    // What happens to the process is noticed again.
    drop(server);
    until("gone", || any(&registry).is_some_and(|e| e.health.gone)).await;
}

#[tokio::test]
async fn of_two_processes_of_a_driver_the_newer_serves_and_the_older_is_kept() {
    let Fixture { directory, registry, .. } = fixture();
    let driver = Driver { name: "a.test".into(), ..Driver::default() };
    let (old, new) = (directory.path().join("old/csi.sock"), directory.path().join("new/csi.sock"));
    let _old = serve(&driver, &old);
    until("serving", || client_for(&registry, "a.test", Service::Identity).is_some()).await;
    let second = serve(&driver, &new);
    let serving = || any(&registry).filter(|e| e.serving.is_some());
    let path = || serving().map(|endpoint| endpoint.path);
    until("the newer serves", || path() == Some(new.clone())).await;
    drop(second);
    fs::remove_file(&new).unwrap();
    until("the older serves again", || path() == Some(old.clone())).await;
}

/// T33, T61.
#[tokio::test]
async fn a_plugin_that_fails_when_it_is_first_asked_is_asked_again() {
    let Fixture { directory, registry, .. } = fixture();
    let driver = Driver { name: "a.test".into(), ..Driver::default() };
    driver.refusals.store(2, Ordering::SeqCst);
    let _server = serve(&driver, &directory.path().join("a/csi.sock"));
    until("serving", || client_for(&registry, "a.test", Service::Identity).is_some()).await;
    assert!(any(&registry).unwrap().health.healthy);
    assert_eq!(driver.asked.load(Ordering::SeqCst), 3);
}

/// Where a Plugin names the socket of a process that does not say what it serves, no other one serves instead.
#[tokio::test]
async fn a_named_process_that_does_not_say_what_it_serves_is_not_passed_over() {
    let Fixture { directory, world, registry } = fixture();
    let (named, other) = (directory.path().join("a/csi.sock"), directory.path().join("b/csi.sock"));
    let _ill = serve(&Driver { name: "a.test".into(), ill: true, ..Driver::default() }, &named);
    until("told of", || world.told.lock().contains(&("a.test".into(), false))).await;
    let _well = serve(&Driver { name: "a.test".into(), ..Driver::default() }, &other);
    until("serving", || client_for(&registry, "a.test", Service::Node).is_some()).await;
    let best = |service| registry.best("a.test", service, &Where::At(named.clone())).map(|e| e.path);
    assert_eq!((best(Service::Node), best(Service::Identity)), (None, Some(named.clone())));
    assert_eq!(registry.drivers(), ["a.test"], "one of them answers");
    assert!(registry.unread("a.test", &other).is_none());
}

/// One Identity server speaks for both modes of the driver, and this is the node's process.
#[tokio::test]
async fn a_controller_service_that_is_only_said_to_be_there_does_not_count() {
    let Fixture { directory, registry, .. } = fixture();
    let driver = Driver { name: "a.test".into(), says_controller: true, ..Driver::default() };
    let _server = serve(&driver, &directory.path().join("a/csi.sock"));
    until("serving", || client_for(&registry, "a.test", Service::Identity).is_some()).await;
    let fingerprint = client_for(&registry, "a.test", Service::Identity).unwrap().fingerprint;
    assert!(!fingerprint.controller && fingerprint.node);
    assert!(fingerprint.capabilities.controller.is_empty());
}

/// The PluginInstance takes 128 bytes, and refuses its whole status for one more.
#[tokio::test]
async fn a_version_that_is_too_long_is_cut_between_characters() {
    let Fixture { directory, registry, .. } = fixture();
    let version = format!("{}\u{e9}-and-more", "v".repeat(127));
    let driver = Driver { name: "a.test".into(), version, ..Driver::default() };
    let _server = serve(&driver, &directory.path().join("a/csi.sock"));
    until("serving", || client_for(&registry, "a.test", Service::Identity).is_some()).await;
    assert_eq!(
        client_for(&registry, "a.test", Service::Identity).unwrap().fingerprint.version,
        "v".repeat(127)
    );
}

/// T50: nobody knows whose it was, so there is nobody to tell.
#[tokio::test]
async fn a_socket_that_goes_before_it_was_asked_is_forgotten() {
    let Fixture { directory, world, registry } = fixture();
    until("settled without sockets", || registry.is_settled()).await;
    let path = directory.path().join("x/silent.sock");
    fs::create_dir(path.parent().unwrap()).unwrap();
    let silent = UnixListener::bind(&path).unwrap();
    until("the socket is seen", || !registry.is_settled()).await;
    fs::remove_file(&path).unwrap();
    drop(silent);
    until("it is forgotten", || registry.is_settled()).await;
    // Told is told before the next look, so what comes after it has nothing before it.
    let driver = Driver { name: "a.test".into(), ..Driver::default() };
    let _server = serve(&driver, &directory.path().join("a/csi.sock"));
    until("told", || !world.told.lock().is_empty()).await;
    assert_eq!(registry.drivers(), ["a.test"]);
    assert!(world.told.lock().iter().all(|(name, _)| name == "a.test"));
}

/// T57.
#[tokio::test]
async fn a_plugin_that_changes_its_name_leaves_nothing_under_the_old_one() {
    let Fixture { directory, world, registry } = fixture();
    let path = directory.path().join("a/csi.sock");
    let before = serve(&Driver { name: "a.test".into(), ..Driver::default() }, &path);
    until("serving", || client_for(&registry, "a.test", Service::Identity).is_some()).await;
    drop(before);
    let _after = serve(&Driver { name: "b.test".into(), ..Driver::default() }, &path);
    until("serving under the new name", || client_for(&registry, "b.test", Service::Identity).is_some())
        .await;
    assert!(any(&registry).is_none());
    assert_eq!(registry.drivers(), ["b.test"]);
    assert!(world.told.lock().contains(&("a.test".into(), false)));
}

#[tokio::test]
async fn a_socket_that_is_no_plugin_does_not_hold_up_others() {
    let Fixture { directory, registry, .. } = fixture();
    fs::create_dir(directory.path().join("x")).unwrap();
    let silent = UnixListener::bind(directory.path().join("x/silent.sock")).unwrap();
    let driver = Driver { name: "a.test".into(), ..Driver::default() };
    let _server = serve(&driver, &directory.path().join("a/csi.sock"));
    until("serving", || client_for(&registry, "a.test", Service::Identity).is_some()).await;
    assert!(!registry.is_settled(), "nothing is known yet of the silent one");
    assert_eq!(registry.drivers(), ["a.test"]);
    drop(silent);
}

/// A Plugin that is deleted no longer names it, and what it has mounted has to be undone.
#[tokio::test]
async fn a_socket_that_nobody_names_any_more_serves_until_it_is_gone() {
    let Fixture { directory, world, registry } = fixture();
    let path = directory.path().join("a/driver.socket");
    let _server = serve(&Driver { name: "a.test".into(), ..Driver::default() }, &path);
    world.named.lock().push(path.clone());
    until("serving", || client_for(&registry, "a.test", Service::Identity).is_some()).await;
    world.named.lock().clear();
    // The one that appears now is found by a look that begins after that.
    let other = directory.path().join("b/csi.sock");
    let _other = serve(&Driver { name: "b.test".into(), ..Driver::default() }, &other);
    until("the other serves", || client_for(&registry, "b.test", Service::Identity).is_some()).await;
    assert!(client_for(&registry, "a.test", Service::Identity).is_some());
    fs::remove_file(&path).unwrap();
    until("gone", || any(&registry).is_none()).await;
}
