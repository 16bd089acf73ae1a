//! The services that every worker of the agent shares: clients, caches, queues, records, drivers, budgets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::core::ClusterResourceScope;
use kube::{Api, Client, Resource};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::attach::audits::Audits;
use super::caches::Caches;
use super::calls::begun::Begun;
use super::calls::budgets::Budgets;
use super::calls::failure::Failure;
use super::calls::flights::Flights;
use super::calls::retry::Retries;
use super::calls::tenures::{Entered, Tenures};
use super::calls::unended::Unended;
use super::capacity::said::Said;
use super::condition::known::Known;
use super::drivers::endpoint::Serving;
use super::drivers::place::{self, Where};
use super::drivers::registry::Registry;
use super::host::mount_namespace::MountNamespace;
use super::host::paths::Paths;
use super::host::targets::Targets;
use super::kubelet::asked::Asked;
use super::kubelet::served::Served;
use super::lost_mounts::LostMounts;
use super::orphans::known::Orphans;
use super::queues::Queues;
use super::records::store::Records;
use super::restore::settling::Settling;
use crate::api::Plugin;
use crate::api::names::{DriverOn, instance_name};
use crate::api::secrets::SecretName;
use crate::csi::{CallError, Rpc, Secrets, Service};
use crate::heartbeat::{History, Renewal};
use crate::k8s::cache::Cached;
use crate::k8s::events::Recorder;
use crate::k8s::lease::ApiLeases;
use crate::k8s::secrets::{self, SecretError};
use crate::k8s::{ApiError, Named, Writer, read};
use crate::metrics::{CallLabels, Metrics};
use crate::plugin::workload::Directories;

/// Controller calls at a time where the Plugin is gone: its default.
const CONTROLLER_CONCURRENCY: usize = 16;
/// Time in which several calls that change a driver's room become one look at it.
const SETTLE: Duration = Duration::from_millis(500);

/// The agent of one node.
pub(super) struct Agent {
    pub client: Client,
    pub node_name: String,
    pub node_uid: String,
    pub boot_id: String,
    pub pod_uid: Option<String>,
    pub directories: Directories,
    /// Namespace of moor's own objects.
    pub namespace: String,
    pub paths: Paths,
    pub targets: Targets,
    pub node_mounts: MountNamespace,
    pub caches: Caches,
    pub registry: Arc<Registry>,
    pub records: Arc<Records>,
    pub writer: Writer,
    pub recorder: Recorder,
    pub metrics: Metrics,
    pub retries: Arc<Retries>,
    pub begun: Arc<Begun>,
    pub queues: Arc<Queues>,
    pub budgets: Budgets,
    pub flights: Flights,
    pub tenures: Tenures,
    pub unended: Unended,
    pub renewal: Renewal,
    pub leases: ApiLeases,
    pub history: Arc<History>,
    pub settling: Settling,
    pub lost: Arc<LostMounts>,
    pub asked: Arc<Asked>,
    pub served: Served,
    /// The API server's history went back: the agent has to end.
    pub went_back: Notify,
    pub audits: Audits,
    /// Storage and objects that do not have each other.
    pub orphans: Arc<Orphans>,
    pub capacities: Said,
    /// Time between two rounds of questions after room; zero is none.
    pub capacity_interval: Duration,
    /// Kubelet is served the driver moor.dev.
    pub inline_volumes: bool,
    /// What looks at volumes have found out so far.
    pub volumes_known: Known,
    /// Time between two looks at a volume; zero is never.
    pub health_interval: Duration,
    pub stopping: AtomicBool,
    /// Told when the Node of our name has another UID than ours.
    pub registered_anew: Notify,
}

impl Agent {
    /// Whether a CSI call may be started: not while ending, and not on the word of an old Lease (rule R2).
    pub fn may_call(&self) -> bool {
        !self.is_stopping() && self.renewal.may_call()
    }

    /// Whether this process is ending, so that no call is started any more.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// As [`Self::may_call`], and it is known whether this driver's service runs here: right after a start that takes a
    /// moment. Controller calls may have to wait for longer after another machine of this name.
    pub fn may_call_driver(&self, driver: &str, service: Service) -> bool {
        let is_known = self.registry.is_settled() || self.process_of(driver, service).is_some();
        let inherits_nothing = match service {
            Service::Controller => self.renewal.may_call_controller(self.registry.deadlines().longest()),
            Service::Node | Service::Identity => true,
        };
        self.may_call() && is_known && inherits_nothing
    }

    /// Enters a pass that makes controller calls which a driver's instance was given in this tenure; None if that is over.
    pub fn enter<'a>(&'a self, driver: &str, tenure: i64) -> Option<Entered<'a>> {
        let instance = self.caches.instances.get(&instance_name(self.driver_here(driver)));
        // Another process of the agent may have said that it is over.
        self.tenures.begin(driver, instance.map_or(0, |instance| instance.spec.tenure));
        self.tenures.enter(driver, tenure)
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = ClusterResourceScope>,
    {
        Api::all(self.client.clone())
    }

    /// Reads an object live (rule R1).
    pub async fn get_live<K>(&self, name: &str) -> Result<Option<K>, ApiError>
    where
        K: Cached + Resource<Scope = ClusterResourceScope>,
    {
        read::get_live(&self.api::<K>(), name).await
    }

    /// Controller calls at a time for a driver, in each direction.
    pub fn controller_concurrency(&self, driver: &str) -> usize {
        self.caches
            .plugin_of(driver)
            .map_or(CONTROLLER_CONCURRENCY, |plugin| plugin.controller_calls_of_each())
    }

    /// Where the sockets count for a service of a driver.
    pub fn sockets_of(&self, plugin: &Plugin, service: Service) -> Where {
        let pods = self.caches.controller_pods(plugin.metadata.name.as_deref());
        let in_pods = pods.iter().map(|uid| place::in_pod(&self.directories.kubelet, uid)).collect();
        place::of(plugin, service, &self.directories, in_pods)
    }

    /// Whether a driver has its PluginInstance on this node.
    pub fn is_registered(&self, driver: &str) -> bool {
        self.caches.instances.get(&instance_name(self.driver_here(driver))).is_some()
    }

    /// A driver on this node.
    pub fn driver_here<'a>(&'a self, driver: &'a str) -> DriverOn<'a> {
        DriverOn { driver, node: &self.node_name }
    }

    /// The process that answers with this driver name and serves what the call needs, or why there is none. A Plugin that
    /// is gone does not matter: undo goes on as long as the recorded driver answers (rule R9).
    pub fn serving(&self, rpc: Rpc, driver: &str) -> Result<Serving, Failure> {
        self.process_of(driver, rpc.service())
            .ok_or_else(|| Failure::plugin_not_running(rpc, self.driver_here(driver)))
    }

    /// The process that answers with this driver name and serves this, for calls and for what kubelet is told alike: the one
    /// at the socket that the Plugin names before any other.
    pub fn process_of(&self, driver: &str, service: Service) -> Option<Serving> {
        let plugin = self.caches.plugin_of(driver);
        let at = plugin.map_or(Where::Directory, |plugin| self.sockets_of(&plugin, service));
        self.registry.best(driver, service, &at).and_then(|endpoint| endpoint.serving)
    }

    /// The secrets of a call for a Volume of this namespace. Live, and not kept. An undo call whose Secret is gone is made without
    /// (rule R12), and says so in words.
    pub async fn secrets(
        &self,
        rpc: Rpc,
        namespace: &str,
        name: Option<SecretName<'_>>,
    ) -> Result<(Secrets, Option<String>), Failure> {
        let Some(name) = name else { return Ok((Secrets::none(), None)) };
        let Named { namespace, name } = secret_of(namespace, name, &self.namespace);
        let undoes = rpc.is_inverse();
        match secrets::fetch(&self.client, Named { namespace, name }).await {
            Ok(data) => Ok((Secrets::from(data.reveal()), None)),
            Err(SecretError::NotFound(secret)) if undoes => {
                tracing::warn!(%rpc, secret, "the Secret is gone; the call is made without it");
                Ok((Secrets::none(), Some(format!("Secret {secret} is gone, {rpc} was called without it"))))
            }
            // A namespace that is being deleted loses roles and Secrets in any order, and nothing can be put back
            // into it: what may not be read there will not be readable again (trap B31).
            Err(SecretError::Unreadable(ApiError::Forbidden { .. }))
                if undoes && self.is_ending(namespace).await =>
            {
                tracing::warn!(%rpc, namespace, secret = name, "its namespace is being deleted; the call is made without the Secret");
                let note = format!(
                    "Secret {name} cannot be read and its namespace is being deleted, {rpc} was called without it"
                );
                Ok((Secrets::none(), Some(note)))
            }
            Err(error) => Err(Failure::secret(rpc, namespace, &error)),
        }
    }

    /// Whether a namespace is being deleted, by a live GET; no if it cannot be read.
    async fn is_ending(&self, namespace: &str) -> bool {
        let found = read::get_live(&Api::<Namespace>::all(self.client.clone()), namespace).await;
        found.ok().flatten().is_some_and(|found| found.metadata.deletion_timestamp.is_some())
    }

    /// Awaits a call, counts it, asks for what it may have changed, and looks after the plugin if the connection broke.
    pub async fn call<T>(
        &self,
        driver: &str,
        rpc: Rpc,
        call: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let started = Instant::now();
        let result = call.await;
        let code = result.as_ref().map_or_else(|error| error.code, |_| tonic::Code::Ok);
        let labels = CallLabels::of(driver, rpc.path(), code);
        self.metrics.csi_operations_seconds.get_or_create(&labels).observe(started.elapsed().as_secs_f64());
        if rpc.changes_room() {
            self.queues.capacities.add_after(driver.to_owned(), SETTLE);
        }
        if result.as_ref().is_err_and(CallError::is_transport) {
            self.registry.poke(driver);
        }
        result
    }
}

/// The Secret that a Volume of `namespace` names, or its Plugin for it. Those that moor keeps for PersistentVolumes, in its own
/// namespace, name what administrators have given these, which may be anywhere. No other user reaches beyond his own namespace:
/// there a slash is no part of a name.
fn secret_of<'a>(namespace: &'a str, name: SecretName<'a>, own: &str) -> Named<'a> {
    let (name, reaches_all) = match name {
        SecretName::OfUser(name) => (name, namespace == own),
        SecretName::OfPlugin(name) => (name, true),
    };
    match name.split_once('/').filter(|_| reaches_all) {
        Some((namespace, name)) => Named { namespace, name },
        None => Named { namespace, name },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_moors_own_volumes_name_secrets_of_other_namespaces() {
        let of = |namespace, name| secret_of(namespace, SecretName::OfUser(name), "moor").to_string();
        assert_eq!(of("moor", "team/key"), "team/key");
        assert_eq!((of("moor", "key"), of("team", "key")), ("moor/key".into(), "team/key".into()));
        // It is asked for under that name, which no Secret has.
        assert_eq!(of("team", "moor/key"), "team/moor/key");
    }

    #[test]
    fn a_plugin_names_secrets_of_any_namespace() {
        let of = |namespace, name| secret_of(namespace, SecretName::OfPlugin(name), "moor").to_string();
        assert_eq!(
            (of("team", "storage/key"), of("moor", "team/key")),
            ("storage/key".into(), "team/key".into())
        );
    }
}
