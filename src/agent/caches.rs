//! The caches of the agent, each listed once: its indices, its watches, and what they select.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use kube::{Api, Client};
use tokio::task::JoinSet;

use crate::api::workload::{CONTROLLER, PLUGIN, SERVICE};
use crate::api::{Attachment, Plugin, PluginInstance, Snapshot, Volume, VolumeClaim};
use crate::k8s::pod::LeanPod;
use crate::k8s::watch::{Restarts, WentBack};
use crate::k8s::{Cache, Demand, Index, Watches};

/// Index of Attachments by the name of their VolumeHandle.
pub(crate) const BY_HANDLE: Index = Index("handle");
/// Index of claims by the UID of the Attachment they are assigned to.
pub(crate) const BY_ATTACHMENT: Index = Index("attachment");

/// The objects that the agent works on, as its watches have them.
#[derive(Clone)]
pub(crate) struct Caches {
    pub claims: Arc<Cache<VolumeClaim>>,
    pub attachments: Arc<Cache<Attachment>>,
    pub volumes: Arc<Cache<Volume>>,
    pub snapshots: Arc<Cache<Snapshot>>,
    pub plugins: Arc<Cache<Plugin>>,
    pub instances: Arc<Cache<PluginInstance>>,
    /// Those on this node that moor runs for drivers.
    pub pods: Arc<Cache<LeanPod>>,
    /// Whether kubelet has asked for a volume for a Pod.
    pub pods_ask: Demand,
}

impl Caches {
    /// Empty caches for the agent on `node`. Each says what [`Self::watches`] selects for it.
    pub fn new(node: &str) -> Self {
        let named = |c: &VolumeClaim| c.spec.assignment.iter().map(|a| a.handle_name.clone()).collect();
        let assigned =
            |c: &VolumeClaim| c.spec.assignment.iter().map(|a| a.attachment_uid.to_string()).collect();
        let handle = |attachment: &Attachment| vec![attachment.spec.fixed.handle_name.clone()];
        // A Pod's claim waits on its node before it is assigned, and kubelet with it.
        let claims = Cache::new(&["node", "node of its Pod"])
            .with_index(BY_ATTACHMENT, assigned)
            .with_index(BY_HANDLE, named);
        // Two watches of one kind feed one cache: the same Attachment may be in both (trap B25).
        let attachments = Cache::new(&["node", "controller"]).with_index(BY_HANDLE, handle);
        let claim_is_of = |claim: &VolumeClaim, node: &str| {
            let assigned =
                claim.spec.assignment.as_ref().is_some_and(|assignment| assignment.node_name == node);
            assigned || claim.spec.pod.is_some() && claim.spec.node_name.as_deref() == Some(node)
        };
        let attachment_is_of = |attachment: &Attachment, node: &str| {
            let spec = &attachment.spec;
            spec.node_name == node || spec.controller.as_ref().is_some_and(|c| c.agent == node)
        };
        let volume_is_of = |volume: &Volume, node: &str| {
            let controller = volume.spec.assignment.as_ref().and_then(|a| a.controller.as_ref());
            controller.is_some_and(|c| c.agent == node)
        };
        let snapshot_is_of =
            |snapshot: &Snapshot, node: &str| snapshot.caller().is_some_and(|caller| caller.agent == node);
        let pod_is_of = |pod: &LeanPod, node: &str| pod.node_name() == Some(node);
        let pods = Cache::new(&["node"]).that_keeps(|pod: &LeanPod| pod.label(PLUGIN).is_some());
        let instance_is_of = |instance: &PluginInstance, node: &str| instance.spec.agent == node;
        Self {
            claims: Arc::new(claims.with_selection(node, claim_is_of)),
            attachments: Arc::new(attachments.with_selection(node, attachment_is_of)),
            volumes: Arc::new(Cache::new(&["controller"]).with_selection(node, volume_is_of)),
            snapshots: Arc::new(Cache::new(&["controller"]).with_selection(node, snapshot_is_of)),
            plugins: Arc::new(Cache::new(&["all"])),
            instances: Arc::new(Cache::new(&["agent"]).with_selection(node, instance_is_of)),
            pods: Arc::new(pods.with_selection(node, pod_is_of)),
            pods_ask: Demand::default(),
        }
    }

    /// Starts the watches of the agent on `node`, whose own Pods are in this namespace. One that ends has found that the API
    /// server's history went back.
    pub fn watches(
        &self,
        client: &Client,
        namespace: &str,
        node: &str,
        restarts: &Restarts,
    ) -> JoinSet<WentBack> {
        let of = |path: &str| Some(format!("{path}={node}"));
        // Nobody is asked to make calls of a Controller service who has not said in a PluginInstance that it has one. What named this
        // agent before, when it had one, is listed.
        let makes_calls = Demand::default();
        let heard = makes_calls.clone();
        self.instances.on_change(move |_, now| {
            if now.and_then(|instance| instance.status.as_ref()).is_some_and(|status| status.controller) {
                heard.rise();
            }
        });
        let mut watches = Watches::new(client.clone(), restarts.clone());
        watches.of(Api::all(client.clone()), of("spec.assignment.nodeName"), &self.claims, 0);
        let of_pods = of("spec.pod.uid!=,spec.nodeName");
        watches.on_demand(Api::all(client.clone()), of_pods, (&self.claims, 1), &self.pods_ask);
        watches.of(Api::all(client.clone()), of("spec.nodeName"), &self.attachments, 0);
        let by = of("spec.assignment.controller.agent");
        watches.on_demand(
            Api::all(client.clone()),
            of("spec.controller.agent"),
            (&self.attachments, 1),
            &makes_calls,
        );
        watches.on_demand(Api::all(client.clone()), by.clone(), (&self.volumes, 0), &makes_calls);
        watches.on_demand(Api::all(client.clone()), by, (&self.snapshots, 0), &makes_calls);
        watches.all(&self.plugins);
        watches.of(Api::all(client.clone()), of("spec.agent"), &self.instances, 0);
        watches.of(Api::namespaced(client.clone(), namespace), of("spec.nodeName"), &self.pods, 0);
        watches.running()
    }

    /// Ends when every cache has its first list.
    pub async fn synced(&self) {
        self.claims.synced().await;
        self.attachments.synced().await;
        self.volumes.synced().await;
        self.snapshots.synced().await;
        self.plugins.synced().await;
        self.instances.synced().await;
        self.pods.synced().await;
    }

    /// Whether every cache has its first list.
    pub fn are_synced(&self) -> bool {
        self.synced().now_or_never().is_some()
    }

    /// For how long each watch has not been heard from, by the kind that it is of.
    pub fn silent_for(&self) -> [(&'static str, Duration); 7] {
        [
            ("VolumeClaims", self.claims.stalled_for()),
            ("Attachments", self.attachments.stalled_for()),
            ("Volumes", self.volumes.stalled_for()),
            ("Snapshots", self.snapshots.stalled_for()),
            ("Plugins", self.plugins.stalled_for()),
            ("PluginInstances", self.instances.stalled_for()),
            ("Pods", self.pods.stalled_for()),
        ]
    }

    /// UIDs of the Pods here that moor runs for the Controller service of a Plugin's driver.
    pub fn controller_pods(&self, plugin: Option<&str>) -> Vec<String> {
        let all = self.pods.all().into_iter().filter(|pod| pod.label(SERVICE) == Some(CONTROLLER));
        let of =
            all.filter(|pod| !pod.is_over() && plugin.is_none_or(|plugin| pod.label(PLUGIN) == Some(plugin)));
        of.filter_map(|pod| pod.metadata.uid.clone()).collect()
    }

    /// The Plugin of a driver: of several the oldest.
    pub fn plugin_of(&self, driver: &str) -> Option<Arc<Plugin>> {
        let all = self.plugins.all().into_iter().filter(|plugin| plugin.driver_name() == driver);
        all.min_by_key(|plugin| plugin.age())
    }

    /// The highest revision of moor's kinds that a watch has delivered.
    pub fn highest_revision(&self) -> u64 {
        self.claims.highest().max(self.attachments.highest()).max(self.instances.highest())
    }
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt as _;

    use super::*;
    use crate::api::caller::ControllerRef;
    use crate::api::claim::Assignment;

    /// What another node's agent works on has no watch here that would take it out again.
    #[test]
    fn a_cache_takes_in_what_its_watches_select() {
        let caches = Caches::new("ours");
        for (name, node, agent) in
            [("a", "ours", "theirs"), ("b", "theirs", "ours"), ("c", "theirs", "theirs")]
        {
            let mut attachment = Attachment::default();
            attachment.metadata.name = Some(name.into());
            attachment.metadata.uid = Some(name.into());
            attachment.spec.node_name = node.into();
            attachment.spec.controller = Some(ControllerRef::new("", agent, 0));
            caches.attachments.apply(attachment);
        }
        let mut names: Vec<_> = caches.attachments.all().iter().map(|a| a.name_any()).collect();
        names.sort();
        assert_eq!(names, ["a", "b"]);
    }

    /// Of claims that wait only those of Pods are anything to the agent of their node.
    #[test]
    fn a_claim_that_waits_is_taken_in_if_a_pod_waits_for_it() {
        let caches = Caches::new("ours");
        for (name, pod, assigned) in [
            ("of-a-pod", true, None),
            ("waits", false, None),
            ("here", false, Some("ours")),
            ("there", true, Some("theirs")),
        ] {
            let mut claim = VolumeClaim::default();
            claim.metadata.name = Some(name.into());
            claim.metadata.uid = Some(name.into());
            claim.spec.node_name = Some(assigned.unwrap_or("ours").into());
            claim.spec.pod = pod.then(Default::default);
            claim.spec.assignment =
                assigned.map(|node| Assignment { node_name: node.into(), ..Assignment::default() });
            caches.claims.apply(claim);
        }
        let mut names: Vec<_> = caches.claims.all().iter().map(|claim| claim.name_any()).collect();
        names.sort();
        assert_eq!(names, ["here", "of-a-pod"]);
    }
}
