//! What runs of the drivers of Plugins that declare Pods, as the watches have it.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use kube::ResourceExt as _;
use parking_lot::Mutex;
use serde_json::Value;

use super::caches::BY_PLUGIN;
use crate::api::workload::PLUGIN;
use crate::k8s::Cache;
use crate::k8s::pod::LeanPod;
use crate::plugin::workload::Site;

/// The workloads of all Plugins.
pub(crate) struct WorkloadCaches {
    pub(crate) deployments: Arc<Cache<Deployment>>,
    pub(crate) daemon_sets: Arc<Cache<DaemonSet>>,
    pub(crate) pods: Arc<Cache<LeanPod>>,
    pub(crate) site: Site,
    /// What they say, by the object's UID, and in which generation that was found to be so.
    pub(crate) written: Mutex<HashMap<String, (Option<i64>, Value)>>,
}

impl WorkloadCaches {
    /// Nothing is known of them yet.
    pub(crate) fn new(site: Site) -> Self {
        Self {
            deployments: Arc::new(
                Cache::new(&["deployments"]).that_keeps(|d: &Deployment| plugin_of(d).is_some()),
            ),
            daemon_sets: Arc::new(
                Cache::new(&["daemonsets"]).that_keeps(|d: &DaemonSet| plugin_of(d).is_some()),
            ),
            pods: Arc::new(
                Cache::new(&["pods"])
                    .that_keeps(|pod: &LeanPod| plugin_of(pod).is_some())
                    .with_index(BY_PLUGIN, |pod: &LeanPod| {
                        plugin_of(pod).map(str::to_owned).into_iter().collect()
                    }),
            ),
            site,
            written: Mutex::default(),
        }
    }

    /// Waits until every cache has been filled once.
    pub(crate) async fn synced(&self) {
        self.deployments.synced().await;
        self.daemon_sets.synced().await;
        self.pods.synced().await;
    }
}

/// The Plugin that an object says it is of.
pub(crate) fn plugin_of(object: &impl kube::Resource) -> Option<&str> {
    object.labels().get(PLUGIN).map(String::as_str)
}
