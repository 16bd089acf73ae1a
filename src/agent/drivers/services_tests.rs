//! Processes of one driver side by side, on real sockets.

use std::path::{Path, PathBuf};

use super::*;
use crate::agent::drivers::place::Where;
use crate::agent::drivers::registry::Registry;
use crate::agent::drivers::registry::tests::{Driver, Fixture, fixture, serve, until};
use crate::csi::proto::csi::v1::controller_service_capability::rpc::Type as ControllerRpc;

const NAME: &str = "a.test";

fn driver(controller: bool, node: bool) -> Driver {
    Driver {
        name: NAME.into(),
        version: if controller { "2" } else { "1" }.into(),
        // One Identity server for all modes.
        says_controller: true,
        controller: controller.then(|| vec![ControllerRpc::PublishUnpublishVolume]),
        no_node: !node,
        ..Driver::default()
    }
}

/// The PluginInstance as the agent would keep it.
struct Kept {
    registry: std::sync::Arc<Registry>,
    instance: Option<PluginInstance>,
    /// How often it was made.
    made: usize,
}

impl Kept {
    fn of(fixture: &Fixture) -> Self {
        Self { registry: fixture.registry.clone(), instance: None, made: 0 }
    }

    fn refresh(&mut self) -> PluginInstanceStatus {
        let found = |service| self.registry.best(NAME, service, &Where::Directory);
        let unread = |path: &Path| self.registry.unread(NAME, path);
        let before = self.instance.clone();
        let mut processes = choose(found, unread, Roles::All, before.as_ref());
        let kept = before.as_ref().map(|i| i.spec.socket_path.clone());
        let socket = processes.socket(kept.as_deref()).or_else(|| kept.clone()).unwrap();
        let mut instance = before.unwrap_or_default();
        if kept.as_ref() != Some(&socket) {
            self.made += 1;
            instance = PluginInstance::default();
            instance.spec.socket_path.clone_from(&socket);
            processes = choose(found, unread, Roles::All, None);
        }
        let status = instance.status.get_or_insert_default();
        processes.report(status, Roles::All, &socket, NAME);
        let status = status.clone();
        self.instance = Some(instance);
        status
    }

    fn socket(&self) -> String {
        self.instance.as_ref().unwrap().spec.socket_path.clone()
    }

    fn path(&self, service: csi::Service) -> Option<PathBuf> {
        self.registry
            .best(NAME, service, &Where::Directory)
            .filter(|e| e.serving.is_some())
            .map(|endpoint| endpoint.path)
    }

    async fn until_serves(&self, service: csi::Service, path: &std::path::Path) {
        until("the service is there", || self.path(service).as_deref() == Some(path)).await;
    }
}

#[tokio::test]
async fn a_controller_process_and_a_node_process_are_one_instance() {
    let fixture = fixture();
    let mut kept = Kept::of(&fixture);
    let node_path = fixture.directory.path().join("a/csi.sock");
    let controller_path = fixture.directory.path().join("a-controller/csi.sock");
    let node = serve(&driver(false, true), &node_path);
    kept.until_serves(csi::Service::Node, &node_path).await;
    assert!(kept.path(csi::Service::Controller).is_none(), "a node process gets no controller calls");
    let controller = serve(&driver(true, false), &controller_path);
    kept.until_serves(csi::Service::Controller, &controller_path).await;
    assert_eq!(
        kept.path(csi::Service::Node).as_deref(),
        Some(&*node_path),
        "the newer one is no node process"
    );

    let status = kept.refresh();
    assert_eq!(kept.socket(), node_path.display().to_string());
    assert!(status.healthy && !status.gone && status.controller && status.node, "{status:?}");
    assert!(status.capabilities.controller_has("PUBLISH_UNPUBLISH_VOLUME"));
    assert_eq!((status.node_id.as_str(), status.version.as_str(), &status.last_error), ("id", "1", &None));

    // The controller process is killed; later somebody tidies up behind it.
    drop(controller);
    let gone = || {
        let endpoint = fixture.registry.best(NAME, csi::Service::Controller, &Where::Directory);
        endpoint.is_none_or(|e| e.health.gone)
    };
    until("the controller process is gone", gone).await;
    for what in ["killed", "removed"] {
        let status = kept.refresh();
        assert!(!status.healthy && !status.gone, "{what}: {status:?}");
        assert!(status.controller, "{what}: the driver still is one that attaches");
        assert!(
            status.is_healthy_for(Service::Node) && !status.is_healthy_for(Service::Controller),
            "{what}"
        );
        assert!(status.capabilities.controller_has("PUBLISH_UNPUBLISH_VOLUME"), "{what}");
        let error = status.last_error.unwrap();
        assert!(error.contains(&controller_path.display().to_string()), "{what}: {error}");
        let _ = std::fs::remove_file(&controller_path);
        let unseen = || fixture.registry.best(NAME, csi::Service::Controller, &Where::Directory).is_none();
        until("its socket is forgotten", unseen).await;
    }

    drop(node);
    std::fs::remove_file(&node_path).unwrap();
    until("nothing is left", || {
        fixture.registry.best(NAME, csi::Service::Identity, &Where::Directory).is_none()
    })
    .await;
    let status = kept.refresh();
    assert!(status.gone && !status.healthy && !status.is_healthy_for_any(), "{status:?}");

    // They come back one by one, in the other order.
    let _controller = serve(&driver(true, false), &controller_path);
    kept.until_serves(csi::Service::Controller, &controller_path).await;
    let status = kept.refresh();
    assert!(status.node && !status.is_healthy_for(Service::Node), "{status:?}");
    assert!(status.is_healthy_for(Service::Controller));
    let _node = serve(&driver(false, true), &node_path);
    kept.until_serves(csi::Service::Node, &node_path).await;
    assert!(kept.refresh().healthy);
    assert_eq!((kept.made, kept.socket()), (1, node_path.display().to_string()));
}

#[tokio::test]
async fn a_second_process_changes_the_instance_and_does_not_replace_it() {
    let fixture = fixture();
    let mut kept = Kept::of(&fixture);
    let node_path = fixture.directory.path().join("a/csi.sock");
    let controller_path = fixture.directory.path().join("a-controller/csi.sock");
    let controller = serve(&driver(true, false), &controller_path);
    kept.until_serves(csi::Service::Controller, &controller_path).await;
    let status = kept.refresh();
    assert!(status.healthy && status.controller && !status.node && status.services.is_empty(), "{status:?}");
    // It is gone before the other one comes: still there was a Controller service.
    drop(controller);
    std::fs::remove_file(&controller_path).unwrap();
    until("it is gone", || kept.path(csi::Service::Identity).is_none()).await;
    let _node = serve(&driver(false, true), &node_path);
    kept.until_serves(csi::Service::Node, &node_path).await;
    let status = kept.refresh();
    assert!(status.controller && status.node && !status.healthy, "{status:?}");
    assert!(status.is_healthy_for(Service::Node) && !status.is_healthy_for(Service::Controller));
    let _controller = serve(&driver(true, false), &controller_path);
    kept.until_serves(csi::Service::Controller, &controller_path).await;
    assert!(kept.refresh().healthy);
    assert_eq!((kept.made, kept.socket()), (1, controller_path.display().to_string()));
}

#[tokio::test]
async fn one_process_is_what_it_says_and_where_it_is() {
    let fixture = fixture();
    let mut kept = Kept::of(&fixture);
    let (old, new) =
        (fixture.directory.path().join("a/csi.sock"), fixture.directory.path().join("b/csi.sock"));
    let process = serve(&driver(true, true), &old);
    kept.until_serves(csi::Service::Controller, &old).await;
    let status = kept.refresh();
    assert!(status.healthy && status.controller && status.node && status.services.is_empty(), "{status:?}");
    drop(process);
    std::fs::remove_file(&old).unwrap();
    until("it is gone", || fixture.registry.best(NAME, csi::Service::Identity, &Where::Directory).is_none())
        .await;
    let status = kept.refresh();
    assert!(status.gone && status.controller && status.services.is_empty(), "{status:?}");
    let last = format!("no socket of driver a.test is there; its last one was {}", old.display());
    assert_eq!(status.last_error, Some(last));
    // It comes back without its Controller service, and says so itself.
    let process = serve(&driver(false, true), &old);
    kept.until_serves(csi::Service::Node, &old).await;
    let status = kept.refresh();
    assert!(status.healthy && !status.controller && status.services.is_empty(), "{status:?}");
    assert_eq!(kept.made, 1);
    drop(process);
    std::fs::remove_file(&old).unwrap();
    let _process = serve(&driver(true, true), &new);
    kept.until_serves(csi::Service::Node, &new).await;
    assert!(kept.refresh().controller);
    assert_eq!(
        (kept.made, kept.socket()),
        (2, new.display().to_string()),
        "another socket is another process"
    );
}

#[tokio::test]
async fn a_named_socket_comes_first_for_what_it_offers() {
    let fixture = fixture();
    let kept = Kept::of(&fixture);
    let named = fixture.directory.path().join("a/csi.sock");
    let full = fixture.directory.path().join("b/csi.sock");
    let _node = serve(&driver(false, true), &named);
    kept.until_serves(csi::Service::Node, &named).await;
    let _full = serve(&driver(true, true), &full);
    kept.until_serves(csi::Service::Node, &full).await;
    let path = |service, socket: &Path| {
        fixture.registry.best(NAME, service, &Where::At(socket.to_owned())).map(|e| e.path)
    };
    assert_eq!(path(csi::Service::Node, &named), Some(named.clone()));
    assert_eq!(path(csi::Service::Controller, &named), Some(full));
    assert_eq!(path(csi::Service::Node, &fixture.directory.path().join("c/csi.sock")), None);
}

#[tokio::test]
async fn a_service_that_is_not_wanted_makes_nobody_unhealthy() {
    let fixture = fixture();
    let kept = Kept::of(&fixture);
    let node_path = fixture.directory.path().join("a/csi.sock");
    let controller_path = fixture.directory.path().join("a-controller/csi.sock");
    let (node, controller) = (driver(false, true), driver(true, false));
    controller.not_ready.store(true, std::sync::atomic::Ordering::SeqCst);
    let _servers = (serve(&node, &node_path), serve(&controller, &controller_path));
    kept.until_serves(csi::Service::Node, &node_path).await;
    kept.until_serves(csi::Service::Controller, &controller_path).await;
    let found = |service| fixture.registry.best(NAME, service, &Where::Directory);
    for (roles, healthy) in [(Roles::All, false), (Roles::Node, true), (Roles::Controller, false)] {
        let mut status = PluginInstanceStatus::default();
        choose(found, |_: &Path| None, roles, None).report(
            &mut status,
            roles,
            &node_path.display().to_string(),
            NAME,
        );
        assert_eq!(status.healthy, healthy, "{roles:?}");
        assert_eq!((status.controller, status.node), (roles != Roles::Node, roles != Roles::Controller));
    }
}

/// It lives, so nobody may take its calls over, and its own words say what is wrong.
#[tokio::test]
async fn a_process_that_does_not_say_what_it_serves_is_unhealthy_and_not_gone() {
    let fixture = fixture();
    let mut kept = Kept::of(&fixture);
    let path = fixture.directory.path().join("a/csi.sock");
    let named = || fixture.registry.unread(NAME, &path).is_some_and(|e| e.health.error.is_some());
    let (ill, well) = (Driver { ill: true, ..driver(true, true) }, driver(true, true));
    let says_so = |status: &PluginInstanceStatus| {
        let error = status.last_error.as_deref().unwrap_or_default();
        assert_eq!(error, "NodeGetInfo: Internal: cannot reach metadata service");
        assert!(!status.healthy && !status.gone && !status.is_healthy_for_any(), "{status:?}");
    };

    let process = serve(&ill, &path);
    until("its name is known", named).await;
    let status = kept.refresh();
    says_so(&status);
    assert!(!status.controller && !status.node);
    assert!(kept.path(csi::Service::Identity).is_none(), "nothing is asked of it");
    drop(process);

    let process = serve(&well, &path);
    kept.until_serves(csi::Service::Node, &path).await;
    let status = kept.refresh();
    assert!(status.healthy && status.controller && status.node, "{status:?}");
    drop(process);

    // The next one of a driver that is known already.
    let process = serve(&ill, &path);
    until("its name is known", named).await;
    let status = kept.refresh();
    says_so(&status);
    assert!(status.controller && status.node, "the driver still is one that attaches");
    assert_eq!(kept.made, 1);
    drop(process);
    std::fs::remove_file(&path).unwrap();
    until("it is gone", || fixture.registry.best(NAME, csi::Service::Identity, &Where::Directory).is_none())
        .await;
    assert!(kept.refresh().gone);

    // At another socket: the object stays, and with it what the driver has said.
    let elsewhere = fixture.directory.path().join("b/csi.sock");
    let _process = serve(&ill, &elsewhere);
    until("its name is known", || fixture.registry.unread(NAME, &elsewhere).is_some()).await;
    let status = kept.refresh();
    says_so(&status);
    assert!(status.controller && status.node);
    assert_eq!((kept.made, kept.socket()), (1, path.display().to_string()));
}

#[tokio::test]
async fn of_two_processes_one_that_does_not_say_what_it_serves_is_not_gone() {
    let fixture = fixture();
    let mut kept = Kept::of(&fixture);
    let node_path = fixture.directory.path().join("a/csi.sock");
    let controller_path = fixture.directory.path().join("a-controller/csi.sock");
    let node = serve(&driver(false, true), &node_path);
    let controller = serve(&driver(true, false), &controller_path);
    kept.until_serves(csi::Service::Node, &node_path).await;
    kept.until_serves(csi::Service::Controller, &controller_path).await;
    assert!(kept.refresh().healthy);
    drop(controller);
    let ill = Driver { ill: true, ..driver(true, false) };
    let _controller = serve(&ill, &controller_path);
    until("its name is known", || fixture.registry.unread(NAME, &controller_path).is_some()).await;
    for node_lives in [true, false] {
        let status = kept.refresh();
        assert!(!status.is_gone_for(Service::Controller), "{status:?}");
        assert!(!status.is_healthy_for(Service::Controller), "{status:?}");
        assert_eq!(status.is_healthy_for(Service::Node), node_lives, "{status:?}");
        assert_eq!(status.is_gone_for(Service::Node), !node_lives, "{status:?}");
        let error = status.last_error.unwrap();
        assert!(
            error.contains("ControllerGetCapabilities: Internal: cannot reach metadata service"),
            "{error}"
        );
        if node_lives {
            std::fs::remove_file(&node_path).unwrap();
            until("the other ends", || kept.path(csi::Service::Node).is_none()).await;
        }
    }
    drop(node);
    assert_eq!(kept.made, 1);
}

/// It has a row for each service where its node takes nothing new.
#[tokio::test]
async fn one_process_that_may_not_be_used_for_one_of_its_services_stays_one() {
    let fixture = fixture();
    let mut kept = Kept::of(&fixture);
    let path = fixture.directory.path().join("a/csi.sock");
    let process = serve(&driver(true, true), &path);
    kept.until_serves(csi::Service::Node, &path).await;
    kept.refresh();
    let socket = kept.socket();
    let status = kept.instance.as_mut().unwrap().status.as_mut().unwrap();
    crate::agent::records::state_disk::report(status, &socket, "full");
    assert_eq!(status.services.len(), 2);

    drop(process);
    std::fs::remove_file(&path).unwrap();
    until("the socket is gone", || {
        fixture.registry.best(NAME, csi::Service::Identity, &Where::Directory).is_none()
    })
    .await;
    let status = kept.refresh();
    assert!(status.gone && status.services.is_empty(), "{status:?}");
    let last = format!("no socket of driver a.test is there; its last one was {}", path.display());
    assert_eq!(status.last_error, Some(last));
}
