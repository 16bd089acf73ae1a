//! Which processes serve a driver's services on this node: one all of them, or one each. Pure.
//!
//! A driver may run as a controller process and a node process, side by side on one node. Each has a socket of its own
//! and both say the same name. They are one PluginInstance: it is what work is assigned to.

use std::path::Path;

use super::endpoint::Endpoint;
use super::fingerprint::Fingerprint;
use crate::api::instance::{PluginInstance, PluginInstanceStatus, Service, ServiceStatus};
use crate::api::plugin::Roles;
use crate::csi;

/// The processes that serve a driver on this node.
#[derive(Clone, Debug)]
pub(crate) enum Processes {
    /// One process, or none that is known.
    One(Option<Endpoint>),
    /// One for each service.
    Two {
        /// The one for the Controller service.
        controller: Part,
        /// The one for the Node service.
        node: Part,
    },
}

/// One of two processes.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// Place of the process's socket, where it is or was last.
    path: String,
    /// What is known of the process now.
    endpoint: Option<Box<Endpoint>>,
}

/// Chooses from what is `found` for each service, and what is known from `before`. `unread` gives the process at a
/// socket that has said its name and not what it serves.
///
/// A service whose process is gone is still one that this driver has here: if it was forgotten, the driver would look
/// like one that does not attach, and its volumes would be used without that.
pub(crate) fn choose(
    found: impl Fn(csi::Service) -> Option<Endpoint>,
    unread: impl Fn(&Path) -> Option<Endpoint>,
    roles: Roles,
    before: Option<&PluginInstance>,
) -> Processes {
    let (wants_controller, wants_node) = (roles != Roles::Node, roles != Roles::Controller);
    let controller = found(csi::Service::Controller).filter(|_| wants_controller).map(Part::of);
    let node = found(csi::Service::Node).filter(|_| wants_node).map(Part::of);
    let left = |service, wanted: bool| {
        let part = Part::left(before.filter(|_| wanted)?, service)?;
        Some(Part { endpoint: unread(Path::new(&part.path)).map(Box::new), ..part })
    };
    let other = |service, wanted, than: &Part| left(service, wanted).filter(|part| part.path != than.path);
    match (controller, node) {
        (Some(controller), Some(node)) if controller.path == node.path => {
            Processes::One(node.endpoint.map(|e| *e))
        }
        (Some(controller), Some(node)) => Processes::Two { controller, node },
        (Some(controller), None) => match other(Service::Node, wants_node, &controller) {
            Some(node) => Processes::Two { controller, node },
            None => Processes::One(controller.endpoint.map(|e| *e)),
        },
        (None, Some(node)) => match other(Service::Controller, wants_controller, &node) {
            Some(controller) => Processes::Two { controller, node },
            None => Processes::One(node.endpoint.map(|e| *e)),
        },
        (None, None) => {
            let left = (left(Service::Controller, wants_controller), left(Service::Node, wants_node));
            match (found(csi::Service::Identity), left) {
                (any, (Some(controller), Some(node))) if any.as_ref().is_none_or(Endpoint::is_unread) => {
                    Processes::Two { controller, node }
                }
                (any, _) => Processes::One(any),
            }
        }
    }
}

impl Processes {
    /// The process that serves all that is served, if there is one and no more.
    pub(crate) fn only(&self) -> Option<&Endpoint> {
        match self {
            Self::One(endpoint) => endpoint.as_ref(),
            Self::Two { .. } => None,
        }
    }

    /// Whether a process that may be there was not seen.
    pub(crate) fn are_unseen(&self) -> bool {
        match self {
            Self::One(endpoint) => endpoint.is_none(),
            Self::Two { controller, node } => controller.endpoint.is_none() || node.endpoint.is_none(),
        }
    }

    /// Whether every process that is known has ended.
    pub(crate) fn are_gone(&self) -> bool {
        match self {
            Self::One(endpoint) => endpoint.as_ref().is_none_or(|endpoint| endpoint.health.gone),
            Self::Two { controller, node } => controller.is_gone() && node.is_gone(),
        }
    }

    /// The socket for the PluginInstance's spec, while a process answers. Of two processes it is the socket that the
    /// object has had `before`, since with another one the object would be made anew. A process that does not say
    /// what it serves gives a socket only to a first object: to make one anew would lose what the driver has said.
    pub(crate) fn socket(&self, before: Option<&str>) -> Option<String> {
        match self {
            Self::One(endpoint) => {
                let endpoint = endpoint.as_ref()?;
                let path = endpoint.place.display().to_string();
                let unread = endpoint.is_unread() && !endpoint.health.gone;
                let is_it =
                    endpoint.serving.is_some() || unread && before.is_none_or(|before| before == path);
                is_it.then_some(path)
            }
            Self::Two { controller, node } => {
                let parts = [node, controller];
                let same = parts.iter().find(|part| Some(part.path.as_str()) == before);
                let one = same.or_else(|| parts.iter().find(|part| part.answer().is_some()));
                one.map(|part| part.path.clone())
            }
        }
    }

    /// Writes into a status what these processes are and how they do. `socket` is that of the PluginInstance.
    pub(crate) fn report(&self, status: &mut PluginInstanceStatus, roles: Roles, socket: &str, driver: &str) {
        match self {
            Self::One(endpoint) => {
                let answer = endpoint.as_ref().and_then(|e| e.serving.as_ref()).map(|s| &s.fingerprint);
                if let Some(fingerprint) = answer {
                    status.controller = fingerprint.is_controller(roles);
                    say_node(status, fingerprint, fingerprint.is_node(roles));
                    status.version.clone_from(&fingerprint.version);
                    status.capabilities.clone_from(&fingerprint.capabilities);
                }
                let health = endpoint.as_ref().map(|e| e.health.clone());
                let nothing = || {
                    // One whose socket was never known has left something behind.
                    let last = if socket.is_empty() {
                        String::new()
                    } else {
                        format!("; its last one was {socket}")
                    };
                    (false, true, Some(format!("no socket of driver {driver} is there{last}")))
                };
                (status.healthy, status.gone, status.last_error) =
                    health.map_or_else(nothing, |health| (health.healthy, health.gone, health.error));
                status.services.clear();
            }
            Self::Two { controller, node } => {
                (status.controller, status.node) = (true, true);
                if let Some(fingerprint) = controller.answer() {
                    status.capabilities.plugin.clone_from(&fingerprint.capabilities.plugin);
                    status.capabilities.controller.clone_from(&fingerprint.capabilities.controller);
                }
                if let Some(fingerprint) = node.answer() {
                    say_node(status, fingerprint, true);
                    status.capabilities.node.clone_from(&fingerprint.capabilities.node);
                }
                let named = if controller.path == socket { controller } else { node };
                if let Some(fingerprint) = named.answer() {
                    status.version.clone_from(&fingerprint.version);
                }
                status.healthy = controller.is_healthy() && node.is_healthy();
                status.gone = controller.is_gone() && node.is_gone();
                let errors = [controller.error(Service::Controller), node.error(Service::Node)];
                let errors: Vec<_> = errors.into_iter().flatten().collect();
                status.last_error = (!errors.is_empty()).then(|| errors.join("; "));
                status.services = vec![controller.shown(Service::Controller), node.shown(Service::Node)];
            }
        }
    }
}

impl Part {
    fn of(endpoint: Endpoint) -> Self {
        Self { path: endpoint.place.display().to_string(), endpoint: Some(Box::new(endpoint)) }
    }

    /// The process of a service that was the only one of its process, and is not there now.
    fn left(before: &PluginInstance, service: Service) -> Option<Self> {
        let status = before.status.as_ref()?;
        // One process has two rows if only one of its services can be used.
        let apart = |row: &&ServiceStatus| {
            status.services.iter().all(|s| s.service == service || s.socket_path != row.socket_path)
        };
        let row = status.services.iter().find(|s| s.service == service).filter(apart);
        let row = row.map(|s| s.socket_path.clone());
        let alone = || {
            let only = match service {
                Service::Controller => (true, false),
                Service::Node => (false, true),
            };
            let alone = status.services.is_empty() && (status.controller, status.node) == only;
            alone.then(|| before.spec.socket_path.clone())
        };
        Some(Self { path: row.or_else(alone)?, endpoint: None })
    }

    fn answer(&self) -> Option<&Fingerprint> {
        self.endpoint.as_ref()?.serving.as_ref().map(|serving| &*serving.fingerprint)
    }

    fn is_healthy(&self) -> bool {
        self.endpoint.as_ref().is_some_and(|e| e.health.healthy)
    }

    fn is_gone(&self) -> bool {
        self.endpoint.as_ref().is_none_or(|e| e.health.gone)
    }

    fn error(&self, service: Service) -> Option<String> {
        let error = match &self.endpoint {
            Some(endpoint) => endpoint.health.error.clone()?,
            None => "there is no socket".to_owned(),
        };
        Some(format!("{service:?} service at {}: {error}", self.path))
    }

    fn shown(&self, service: Service) -> ServiceStatus {
        let (healthy, gone) = (self.is_healthy(), self.is_gone());
        ServiceStatus { service, socket_path: self.path.clone(), healthy, gone }
    }
}

/// What the Node service's process says of the node.
fn say_node(status: &mut PluginInstanceStatus, fingerprint: &Fingerprint, serves: bool) {
    let info = fingerprint.node_info.as_ref().filter(|_| serves);
    status.node = serves;
    status.node_id = info.map(|i| i.node_id.clone()).unwrap_or_default();
    status.max_volumes = info.map_or(0, |i| i.max_volumes_per_node);
    status.topology = info.and_then(|i| i.accessible_topology.clone()).unwrap_or_default().segments;
}

#[cfg(test)]
#[path = "services_tests.rs"]
mod tests;
