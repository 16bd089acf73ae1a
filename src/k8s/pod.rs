//! A Pod as far as moor reads those of drivers that it runs.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use serde::{Deserialize, Serialize};

/// What moor reads of a Pod. It is deleted by that, and never written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Resource)]
#[resource(inherit = "Pod")]
pub struct LeanPod {
    /// Name, UID, labels, times.
    pub metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    node_name: Option<String>,
    #[serde(default)]
    containers: Vec<Container>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Container {
    name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    phase: Option<String>,
    #[serde(default)]
    container_statuses: Vec<ContainerStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct ContainerStatus {
    name: String,
    #[serde(default)]
    state: ContainerState,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct ContainerState {
    running: Option<Started>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Started {
    started_at: Option<Time>,
}

impl LeanPod {
    /// When its first container was started, if that runs: one that is started again says another time.
    #[must_use]
    pub fn runs_since(&self) -> Option<Time> {
        let first = &self.spec.containers.first()?.name;
        let status = self.status.container_statuses.iter().find(|status| status.name == *first)?;
        status.state.running.as_ref()?.started_at.clone()
    }

    /// Whether its containers have ended for good. The object of an evicted one stays until somebody deletes it.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.status.phase.as_deref(), Some("Succeeded" | "Failed"))
    }

    /// Whether a workload looks after it.
    #[must_use]
    pub fn is_controlled(&self) -> bool {
        self.metadata.owner_references.iter().flatten().any(|owner| owner.controller == Some(true))
    }

    /// The node that it is on, once it is on one.
    #[must_use]
    pub fn node_name(&self) -> Option<&str> {
        self.spec.node_name.as_deref()
    }

    /// The value of one of its labels.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// Whether it is being deleted.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(status: &serde_json::Value) -> LeanPod {
        let spec = json!({ "containers": [{ "name": "driver" }, { "name": "beside" }] });
        serde_json::from_value(json!({ "metadata": {}, "spec": spec, "status": status })).unwrap()
    }

    /// What runs beside the driver may be started again and again.
    #[test]
    fn a_pod_runs_since_its_driver_was_started() {
        let at = "2026-01-01T00:00:00Z";
        let driver = json!({ "name": "driver", "state": { "running": { "startedAt": at } } });
        let beside = json!({ "name": "beside", "state": { "waiting": { "reason": "CrashLoopBackOff" } } });
        let since = pod(&json!({ "containerStatuses": [beside, driver] })).runs_since();
        assert_eq!(since.unwrap().0.to_string(), at);
        assert_eq!(pod(&json!({ "containerStatuses": [beside] })).runs_since(), None);
        assert_eq!(pod(&json!({})).runs_since(), None);
    }

    #[test]
    fn a_pod_that_was_evicted_is_over() {
        assert!(
            pod(&json!({ "phase": "Failed" })).is_over() && pod(&json!({ "phase": "Succeeded" })).is_over()
        );
        assert!(!pod(&json!({ "phase": "Running" })).is_over() && !pod(&json!({})).is_over());
    }
}
