//! `Plugin`: a CSI driver that moor may use.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::allow::Allow;
use super::caller::{ControllerRef, is_first};
use super::conditions::Condition;
use super::instance::Capabilities;
use super::kubernetes::Kubernetes;
use super::secrets::SecretTemplates;
use super::storage::OrphanedStorage;
use super::workload::{ControllerWorkload, NodeWorkload};

/// A CSI driver that moor may use. Agents find its sockets by the name the driver gives itself.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "moor.dev",
    version = "v1alpha1",
    kind = "Plugin",
    plural = "plugins",
    shortname = "plug",
    category = "moor",
    status = "PluginStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "A CSI driver that moor may use.",
    printcolumn = r#"{"name":"Driver","type":"string","jsonPath":".status.driverName"}"#,
    printcolumn = r#"{"name":"Version","type":"string","jsonPath":".status.version"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Controllers","type":"string","jsonPath":".status.controllers"}"#,
    printcolumn = r#"{"name":"Nodes","type":"string","jsonPath":".status.nodes"}"#,
    printcolumn = r#"{"name":"Balancing","type":"string","jsonPath":".status.balancing","priority":1}"#,
    printcolumn = r#"{"name":"Active","type":"string","jsonPath":".status.active.instance","priority":1}"#,
    printcolumn = r#"{"name":"Pods","type":"string","jsonPath":".status.conditions[?(@.type==\"PodsServed\")].reason"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Why","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].message","priority":1}"#,
    validation = Rule::new("has(self.spec.driverName) == has(oldSelf.spec.driverName) && (!has(self.spec.driverName) || self.spec.driverName == oldSelf.spec.driverName)").message("spec.driverName is immutable: create another Plugin for another driver").field_path(".spec.driverName"),
    validation = Rule::new("(has(self.spec.kubernetes.driverName) ? self.spec.kubernetes.driverName : has(self.spec.driverName) ? self.spec.driverName : self.metadata.name) != 'moor.dev'").message("moor.dev is the name by which Pods use Volumes that they name themselves: give the driver another name in spec.kubernetes.driverName").field_path(".spec.kubernetes.driverName"),
    validation = Rule::new("!has(self.spec.controllerNodes) || has(self.spec.controllerNodes.names) != has(self.spec.controllerNodes.matchLabels)").message("spec.controllerNodes takes either names or matchLabels: give one of the two, or leave spec.controllerNodes out to allow every node").field_path(".spec.controllerNodes"),
    validation = Rule::new("!has(self.spec.socketPath) || !has(self.spec.node)").message("spec.socketPath names the socket of a driver that somebody else runs, and moor runs the one of spec.node: leave one of the two out").field_path(".spec.socketPath"),
    validation = Rule::new("!has(self.spec.controller) || !has(self.spec.roles) || self.spec.roles == 'All'").message("with spec.controller its Pods serve the Controller service and others the Node service: leave spec.roles out").field_path(".spec.roles")
)]
#[serde(rename_all = "camelCase")]
pub struct PluginSpec {
    /// The name the driver gives itself in GetPluginInfo. Empty: the Plugin's own name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub driver_name: Option<String>,
    /// Socket of the driver on every node: a path below the plugin directory, or absolute and inside it.
    /// Empty: every socket in the plugin directory is asked for its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub socket_path: Option<String>,
    /// Which of the driver's services to use.
    #[serde(default)]
    pub roles: Roles,
    /// How long a new process may take to answer Probe before it is called unhealthy, in seconds.
    #[serde(default = "default_health_timeout")]
    #[schemars(range(min = 1, max = 3600))]
    pub health_timeout_seconds: i64,
    /// Controller calls at a time of the whole driver. Attaching, detaching, making volumes and deleting them have as many
    /// each, so that none of these waits for another. Instances that share the work (balancing Spread) have an even share of
    /// them each, and one at least. Those with a topology of their own (PerTopology) have storage of their own, and all of them.
    #[serde(default = "default_controller_concurrency")]
    #[schemars(range(min = 1, max = 1000))]
    pub controller_concurrency: i64,
    /// How volumes are spread over the controller instances. Absent: SingleActive, or PerTopology where on every node one process
    /// serves both the Controller and the Node service and has a topology of its own; status.balancing says which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = super::schema::own_description)]
    pub balancing: Option<Balancing>,
    /// Nodes on which the driver may be asked to create, delete, attach and detach volumes. Whoever controls one of them
    /// may do so with every volume of the driver. Absent: every node that runs the driver. What a node that is no longer
    /// selected was asked to do before one that is selected takes over, when it is healthy and the agent of the first says that
    /// none of those calls is running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller_nodes: Option<ControllerNodes>,
    /// The driver accepts a second target of a SingleNodeWriter volume on one node although it does not
    /// list SINGLE_NODE_MULTI_WRITER (CSI NodePublishVolume). Where it is false a second claim waits. Unset: Pods share a
    /// volume on their node, as they do without moor, and every other second claim waits.
    /// Counts only for Attachments that are made after it was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerates_second_target: Option<bool>,
    /// What becomes of a registered volume that the driver does not confirm (CSI ValidateVolumeCapabilities), or where it
    /// has no such call.
    #[serde(default)]
    pub validation: Validation,
    /// Which namespaces may create, register and parameterise volumes of this driver. Unset: all may create and
    /// parameterise, none may register.
    #[serde(default)]
    pub allow: Allow,
    /// Secrets for the driver's calls about volumes and snapshots that name none of their own, nor does their StorageClass. They
    /// are those that are named here when a Volume or Snapshot is taken up; a change counts for later ones. Agents need the right
    /// to read them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<SecretTemplates>,
    /// How the driver's volumes are served to Pods.
    #[serde(default)]
    pub kubernetes: Kubernetes,
    /// Pods of the driver that moor runs for its Controller service, as a Deployment in its own namespace. Without it they are
    /// those of spec.node, or run by somebody else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<ControllerWorkload>,
    /// Pods of the driver that moor runs on every node, as a DaemonSet in its own namespace. Without it they are run by somebody
    /// else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeWorkload>,
}

fn default_health_timeout() -> i64 {
    30
}

fn default_controller_concurrency() -> i64 {
    16
}

/// Nodes, by their names or by their labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControllerNodes {
    /// Names of the nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::schema::node_names")]
    pub names: Vec<String>,
    /// Labels that a node has to have, all of them. A kubelet may set most labels of its own Node; those that begin with
    /// node-restriction.kubernetes.io/ it may not.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "super::schema::labels")]
    pub match_labels: BTreeMap<String, String>,
}

/// Which of a driver's services are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Roles {
    /// Whatever the driver offers.
    #[default]
    All,
    /// Only the Controller service.
    Controller,
    /// Only the Node service.
    Node,
}

/// How much a registered volume needs of its driver's word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Validation {
    /// It is used, and its condition Confirmed says what the driver says.
    #[default]
    Lenient,
    /// It is not used before the driver confirms it.
    Strict,
}

/// How volumes are spread over controller instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Balancing {
    /// Evenly over the healthy ones: over those where the volume is, or should be, if there are any. For drivers whose
    /// controller instances may work at once.
    Spread,
    /// One instance does everything, until none of its calls can be running any more; then another one does.
    SingleActive,
    /// The instance whose topology the volume is in; for storage that is local to nodes.
    PerTopology,
}

/// What moor knows of the driver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PluginStatus {
    /// The driver's name, once an instance has been seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_name: Option<String>,
    /// Version of the healthy instances; several while they differ, separated by commas. While none is healthy, the last
    /// one that was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What every healthy instance can do. Of a service of which none is healthy, what was known last.
    #[serde(default)]
    pub capabilities: Capabilities,
    /// Healthy and known controller instances, as healthy/known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controllers: Option<String>,
    /// Healthy and known node instances, as healthy/known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<String>,
    /// How volumes are spread over the controller instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = super::schema::own_description)]
    pub balancing: Option<Balancing>,
    /// How they are spread where spec.balancing does not say it: what was found first stays while it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = super::schema::own_description)]
    pub found_balancing: Option<Balancing>,
    /// With SingleActive, the instance that makes the controller calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<ControllerRef>,
    /// Storage that moor has had the driver make and that no object stands for; the first, if there is more than fits. It is only
    /// told: register it, or delete it with the storage's own tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub orphans: Vec<OrphanedStorage>,
    /// How many of them are volumes, also those that are not named.
    #[serde(default, skip_serializing_if = "is_first")]
    #[schemars(range(min = 0))]
    pub orphaned_volumes: i64,
    /// How many of them are snapshots.
    #[serde(default, skip_serializing_if = "is_first")]
    #[schemars(range(min = 0))]
    pub orphaned_snapshots: i64,
    /// Controller instances that are healthy.
    #[serde(default)]
    pub controllers_healthy: i64,
    /// Controller instances that are known.
    #[serde(default)]
    pub controllers_expected: i64,
    /// Node instances that are healthy.
    #[serde(default)]
    pub nodes_healthy: i64,
    /// Node instances that are known.
    #[serde(default)]
    pub nodes_expected: i64,
    /// The generation of spec that this status answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready: at least one healthy instance per role it needs. Orphans: there is storage that no object stands for; absent while
    /// there has been none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// Annotation of a Plugin whose volumes are served to Pods no longer because moor is uninstalled: since when. The next
/// installation takes it off.
pub const WITHDRAWN: &str = "moor.dev/withdrawn";

impl Plugin {
    /// The driver name that instances must report.
    #[must_use]
    pub fn driver_name(&self) -> &str {
        self.spec.driver_name.as_deref().or(self.metadata.name.as_deref()).unwrap_or_default()
    }

    /// How its volumes are spread over controller instances.
    #[must_use]
    pub fn balancing(&self) -> Balancing {
        let told = || self.status.as_ref().and_then(|status| status.balancing);
        self.spec.balancing.or_else(told).unwrap_or(Balancing::SingleActive)
    }

    /// Controller calls at a time, of each kind, of each of its instances.
    #[must_use]
    pub fn controller_calls_of_each(&self) -> usize {
        let sharing = match self.balancing() {
            Balancing::Spread => self.status.as_ref().map_or(1, |status| status.controllers_healthy),
            Balancing::SingleActive | Balancing::PerTopology => 1,
        };
        usize::try_from(self.spec.controller_concurrency / sharing.max(1)).unwrap_or_default().max(1)
    }

    /// The instance that makes its controller calls, where it is one.
    #[must_use]
    pub fn active(&self) -> Option<&ControllerRef> {
        self.status.as_ref()?.active.as_ref()
    }

    /// The name by which kubelets know the driver; None if its volumes are not served to Pods.
    #[must_use]
    pub fn kubelet_name(&self) -> Option<&str> {
        let kubernetes = &self.spec.kubernetes;
        let served = kubernetes.enabled && self.spec.roles != Roles::Controller && self.withdrawn().is_none();
        served.then(|| kubernetes.driver_name.as_deref().unwrap_or_else(|| self.driver_name()))
    }

    /// When Pods' service was withdrawn because moor is uninstalled, as it is written.
    #[must_use]
    pub fn withdrawn(&self) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(WITHDRAWN).map(String::as_str)
    }

    /// Whether it was deleted: nothing is begun with it any more. It may be held for long.
    #[must_use]
    pub fn ends(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// What orders Plugins by age. Of several with one driver name the oldest has the driver: a younger one that takes the
    /// name changes nothing.
    #[must_use]
    pub fn age(&self) -> impl Ord + use<> {
        let meta = &self.metadata;
        (meta.creation_timestamp.as_ref().map(|t| t.0), meta.name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_that_share_the_work_share_its_calls() {
        let each = |balancing, healthy, all| {
            let spec = PluginSpec { balancing, controller_concurrency: all, ..PluginSpec::default() };
            let mut plugin = Plugin::new("p", spec);
            let status = PluginStatus { controllers_healthy: healthy, ..PluginStatus::default() };
            plugin.status = Some(status);
            plugin.controller_calls_of_each()
        };
        let spread = Some(Balancing::Spread);
        assert_eq!([0, 1, 3, 5, 99].map(|healthy| each(spread, healthy, 16)), [16, 16, 5, 3, 1]);
        for alone in [None, Some(Balancing::SingleActive), Some(Balancing::PerTopology)] {
            assert_eq!(each(alone, 3, 16), 16);
        }
        // Whatever somebody has put there past the schema.
        assert_eq!([each(spread, -1, 0), each(None, 3, -5)], [1, 1]);
    }
}
