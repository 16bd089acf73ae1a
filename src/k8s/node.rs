//! A Node without its weight: a real one carries the names of all images on its disk.

use k8s_openapi::{
    api::core::v1::{Node, Taint},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::Resource;
use serde::{Deserialize, Deserializer};

/// The taint by which a person or a cloud says that a machine is off and will not write any more.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// The condition by which kubelet says that it takes Pods. It withdraws it as its machine begins to shut down and it
/// begins to end the Pods (kubernetes `pkg/kubelet/nodeshutdown`).
const READY: &str = "Ready";

/// What moor reads of a Node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Resource)]
#[resource(inherit = "Node")]
pub struct LeanNode {
    /// Name, UID, resourceVersion.
    pub metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
struct Spec {
    #[serde(default)]
    taints: Vec<Taint>,
    #[serde(default)]
    unschedulable: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    node_info: Option<Info>,
    #[serde(default, deserialize_with = "ready_alone")]
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

/// Keeps of a Node's conditions the one that is read.
fn ready_alone<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Condition>, D::Error> {
    let mut all = Option::<Vec<Condition>>::deserialize(from)?.unwrap_or_default();
    all.retain(|condition| condition.type_ == READY);
    all.shrink_to_fit();
    Ok(all)
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
struct Info {
    #[serde(default, rename = "bootID")]
    boot_id: String,
}

impl LeanNode {
    /// UID of the Node.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Whether the Node has the taint [`node.kubernetes.io/out-of-service`](OUT_OF_SERVICE), with whatever value and
    /// effect.
    #[must_use]
    pub fn is_out_of_service(&self) -> bool {
        self.spec.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE)
    }

    /// Whether no Pods come to the Node any more: it is cordoned, as for a drain, or its kubelet says that it is not Ready,
    /// or nobody knows. Of one that no kubelet speaks for nothing is said.
    #[must_use]
    pub fn retires(&self) -> bool {
        self.spec.unschedulable || !self.has_kubelet()
    }

    /// Whether its kubelet has not said, and nobody for it, that it is not ready.
    #[must_use]
    pub fn has_kubelet(&self) -> bool {
        self.status.conditions.iter().all(|ready| ready.status == "True")
    }

    /// The boot id that the Node's kubelet reports; empty if it has not reported one yet.
    #[must_use]
    pub fn boot_id(&self) -> &str {
        self.status.node_info.as_ref().map_or("", |info| info.boot_id.as_str())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn it_reads_a_node_and_leaves_the_rest() {
        let node: LeanNode = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n", "uid": "u" },
            "spec": { "podCIDR": "10.0.0.0/24",
                      "taints": [{ "key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute" }] },
            "status": { "images": [{ "names": ["x"] }], "nodeInfo": { "bootID": "b", "machineID": "m" } },
        }))
        .unwrap();
        assert_eq!((node.uid(), node.boot_id(), node.is_out_of_service()), ("u", "b", true));
    }

    #[test]
    fn a_node_that_is_cordoned_or_not_ready_retires() {
        let node = |unschedulable: bool, ready: &str| -> LeanNode {
            let conditions =
                json!([{ "type": "DiskPressure", "status": "False" }, { "type": "Ready", "status": ready }]);
            let spec = json!({ "unschedulable": unschedulable });
            let status = json!({ "conditions": conditions });
            serde_json::from_value(json!({ "metadata": {}, "spec": spec, "status": status })).unwrap()
        };
        assert!(!node(false, "True").retires());
        assert!(node(true, "True").retires());
        assert!(node(false, "False").retires() && node(false, "Unknown").retires());
    }

    #[test]
    fn a_node_that_was_just_made_is_in_service() {
        let node: LeanNode =
            serde_json::from_value(json!({ "metadata": { "name": "n" }, "spec": {} })).unwrap();
        assert_eq!((node.uid(), node.boot_id(), node.is_out_of_service()), ("", "", false));
        assert!(!node.retires());
    }
}
