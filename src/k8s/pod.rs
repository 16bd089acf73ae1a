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
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    container_statuses: Vec<ContainerStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct ContainerStatus {
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
    /// When its containers were started, if all of them run: one that is started again says another time.
    #[must_use]
    pub fn runs_since(&self) -> Option<Vec<Option<Time>>> {
        let all = &self.status.container_statuses;
        let since =
            all.iter().map(|one| one.state.running.as_ref().map(|running| running.started_at.clone()));
        since.collect::<Option<Vec<_>>>().filter(|since| !since.is_empty())
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
