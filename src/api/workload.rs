//! What a Plugin declares of its driver's own Pods, which moor runs then.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Label of the workloads that moor runs for a Plugin, and of their Pods: the Plugin's name.
pub const PLUGIN: &str = "moor.dev/plugin";
/// Label of the workloads themselves: the Plugin's UID. What has it was made by moor.
pub const PLUGIN_UID: &str = "moor.dev/plugin-uid";
/// Label of the Pods of a workload: which of a driver's services they are there for, as [`CONTROLLER`] or [`NODE`].
pub const SERVICE: &str = "moor.dev/service";
/// The Pods of `spec.controller`.
pub const CONTROLLER: &str = "controller";
/// The Pods of `spec.node`.
pub const NODE: &str = "node";
/// The volume of every such Pod in which its driver's socket is.
pub const SOCKET_VOLUME: &str = "csi";
/// The driver's socket there.
pub const SOCKET_FILE: &str = "csi.sock";

/// Pods that serve a driver's Controller service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControllerWorkload {
    /// How many Pods. With more than one, another one takes the calls over within seconds when one ends.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 16))]
    pub replicas: i32,
    /// The Pods, as in a Deployment. The first container is the driver's. It is given the environment variable CSI_ENDPOINT,
    /// unix:///csi/csi.sock, in an emptyDir of the Pod, and has to listen there; and NODE_NAME.
    #[schemars(schema_with = "super::schema::pod_template")]
    pub template: Value,
}

fn one() -> i32 {
    1
}

/// Pods that serve a driver's Node service: one on every node that the template selects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeWorkload {
    /// Whether the driver's container has the node's /dev.
    #[serde(default)]
    pub mount_dev: bool,
    /// The Pods, as in a DaemonSet. The first container is the driver's. It is given the environment variable CSI_ENDPOINT,
    /// unix:///csi/csi.sock, and has to listen there; NODE_NAME; and kubelet's directory, with Bidirectional propagation,
    /// for which it is made privileged. Without spec.controller it may serve the Controller service too.
    #[schemars(schema_with = "super::schema::pod_template")]
    pub template: Value,
}
