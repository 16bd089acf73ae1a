//! Pods, PersistentVolumes and what binds them, as Kubernetes' own controllers leave them.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use kube::runtime::reflector::ObjectRef;
use moor::api::lock::{self, DriverVolume};
use moor::api::names::imported_volume;
use moor::api::{FINALIZER, Volume, VolumeClaim};
use serde_json::{Value, json};

use crate::rig::fake::DRIVER;
use crate::rig::{NAMESPACE, Rig, SPACE, condition};

/// A Pod that uses one volume, with all that it takes to use it.
pub struct PodVolume {
    /// Name of the Pod.
    pub pod: String,
    pub pod_uid: String,
    pub node: String,
    /// Name of the PersistentVolume and of the PersistentVolumeClaim that it is bound to.
    pub volume: String,
    /// The volume as its driver knows it.
    pub handle: String,
}

fn read<K: serde::de::DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

/// The name of the Volume that is made of a PersistentVolume with this handle.
pub fn kept_volume(handle: &str) -> String {
    imported_volume(&lock::handle_name(DriverVolume { driver: DRIVER, handle }))
}

impl Rig {
    pub fn pod_api(&self) -> Api<Pod> {
        Api::namespaced(self.cluster.admin.clone(), SPACE)
    }

    pub fn kept_claims(&self) -> Api<VolumeClaim> {
        Api::namespaced(self.cluster.admin.clone(), NAMESPACE)
    }

    pub fn kept_volumes(&self) -> Api<Volume> {
        Api::namespaced(self.cluster.admin.clone(), NAMESPACE)
    }

    /// Makes storage, a PersistentVolume of it, a PersistentVolumeClaim that is bound to it, and a Pod on a node that uses
    /// that.
    pub async fn make_pod_volume(&self, name: &str, node: &str) -> PodVolume {
        let handle = self.fake.backend().add(name);
        self.cluster.bind(name, name, &json!({"driver": DRIVER, "volumeHandle": handle})).await;
        self.make_pod_of(name, node, name, handle).await
    }

    /// Makes another Pod that uses the PersistentVolumeClaim of the first.
    pub async fn make_pod_beside(&self, first: &PodVolume, name: &str, node: &str) -> PodVolume {
        self.make_pod_of(name, node, &first.volume, first.handle.clone()).await
    }

    /// Makes a Pod on a node that uses the PersistentVolumeClaim `volume`, which is bound to the PersistentVolume of that name.
    pub async fn make_pod_of(&self, name: &str, node: &str, volume: &str, handle: String) -> PodVolume {
        let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": volume}}]);
        let pod = self.cluster.make_pod(name, node, &volumes).await;
        PodVolume {
            pod: name.to_owned(),
            pod_uid: pod.metadata.uid.unwrap(),
            node: node.to_owned(),
            volume: volume.to_owned(),
            handle,
        }
    }

    /// Removes a Pod, as its kubelet does when it has ended.
    pub async fn remove_pod(&self, name: &str) {
        self.pod_api().delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
    }

    /// Makes the claim that the agent of the Pod's node makes when kubelet asks for the volume, after `change`: with the token
    /// of the agent on the node that the claim names. Returns its name.
    pub async fn ask(&self, pod: &PodVolume, change: impl FnOnce(&mut Value)) -> String {
        self.ask_as(pod, "0123456789abcdef", change).await.unwrap()
    }

    /// The same, with these words at the end of its name.
    pub async fn ask_as(
        &self,
        pod: &PodVolume,
        end: &str,
        change: impl FnOnce(&mut Value),
    ) -> kube::Result<String> {
        let mut spec = json!({
            "volumeName": kept_volume(&pod.handle),
            "nodeName": pod.node,
            "mountOptions": {"mountFlags": []},
            "pod": {
                "namespace": SPACE, "name": pod.pod, "uid": pod.pod_uid, "persistentVolume": pod.volume,
            },
        });
        change(&mut spec);
        let text = |pointer: &str| spec.pointer(pointer).and_then(Value::as_str).unwrap().to_owned();
        let (name, node) = (format!("pod-{}-{end}", text("/pod/uid")), text("/nodeName"));
        let metadata = json!({"name": name, "namespace": NAMESPACE, "finalizers": [FINALIZER]});
        let claim = read(json!({"metadata": metadata, "spec": spec}));
        let agents = self.rogue(&node).await.claims(NAMESPACE);
        agents.create(&PostParams::default(), &claim).await?;
        Ok(name)
    }

    /// A claim in moor's own namespace, as it was last seen.
    pub fn kept_claim(&self, name: &str) -> Option<Arc<VolumeClaim>> {
        self.cluster.claims.get(&ObjectRef::new(name).within(NAMESPACE))
    }

    /// The Volume of a PersistentVolume, as it was last seen.
    pub fn kept(&self, handle: &str) -> Option<Arc<Volume>> {
        self.cluster.volumes.get(&ObjectRef::new(&kept_volume(handle)).within(NAMESPACE))
    }

    /// Waits until a claim in moor's own namespace is granted.
    pub async fn until_granted(&self, claim: &str) {
        let look = || self.kept_claim(claim)?.spec.assignment.clone().map(drop);
        let shows = || format!("{:?}", self.kept_claim(claim).map(|c| c.status.clone()));
        self.cluster.until(&format!("claim {claim} is granted"), look, shows).await;
    }

    /// Waits until a claim in moor's own namespace says why it is not granted. Returns the message.
    pub async fn until_kept_claim_says(&self, claim: &str, reason: &str) -> String {
        let look = || {
            let status = self.kept_claim(claim)?.status.clone()?;
            let ready = condition(&status.conditions)?;
            (ready.reason == reason).then(|| ready.message.clone())
        };
        let shows = || format!("{:?}", self.kept_claim(claim).map(|c| (c.spec.clone(), c.status.clone())));
        self.cluster.until(&format!("claim {claim} says {reason}"), look, shows).await
    }

    /// Waits until a claim in moor's own namespace is gone.
    pub async fn until_kept_claim_gone(&self, claim: &str) {
        let seen = || self.kept_claim(claim).is_some();
        self.until_gone(&format!("claim {claim} is gone"), claim, &self.kept_claims(), seen).await;
    }
}
