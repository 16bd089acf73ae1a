//! Making and watching what Kubernetes calls storage.

use std::fmt::Debug;
use std::fmt::Write as _;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use moor::api::Volume;
use moor::csi::Rpc;
use serde_json::{Value, json};

use crate::rig::fake::DRIVER;
use crate::rig::{Journal, LOOK, NAMESPACE, PATIENCE, Rig, SPACE};

/// A class of the fake driver.
pub fn class(name: &str, more: &Value) -> StorageClass {
    let mut whole = json!({ "metadata": { "name": name }, "provisioner": DRIVER });
    whole.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(whole).unwrap()
}

impl Rig {
    pub fn pvc_api(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.cluster.admin.clone(), SPACE)
    }

    pub fn pv_api(&self) -> Api<PersistentVolume> {
        Api::all(self.cluster.admin.clone())
    }

    /// The Volumes of claims.
    pub fn provisioned_api(&self) -> Api<Volume> {
        Api::namespaced(self.cluster.admin.clone(), NAMESPACE)
    }

    pub async fn make_class(&self, class: &StorageClass) {
        let classes: Api<StorageClass> = Api::all(self.cluster.admin.clone());
        classes.create(&PostParams::default(), class).await.unwrap();
    }

    pub async fn delete_class(&self, name: &str) {
        let classes: Api<StorageClass> = Api::all(self.cluster.admin.clone());
        classes.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Makes a claim, and returns its UID.
    pub async fn make_pvc(&self, name: &str, class: &str, more: Value) -> String {
        self.make_whole_pvc(name, class, more, json!({})).await
    }

    pub async fn make_annotated_pvc(&self, name: &str, class: &str, annotations: Value) -> String {
        self.make_whole_pvc(name, class, json!({}), annotations).await
    }

    async fn make_whole_pvc(&self, name: &str, class: &str, more: Value, annotations: Value) -> String {
        let mut spec = json!({ "accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "resources": { "requests": { "storage": "1Mi" } } });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let claim = json!({ "metadata": { "name": name, "annotations": annotations }, "spec": spec });
        let claim = serde_json::from_value(claim).unwrap();
        // One of this name may be on its way out.
        let what = format!("claim {name} is made");
        let make = || async { self.pvc_api().create(&PostParams::default(), &claim).await.ok() };
        self.until(&what, make).await.uid().unwrap()
    }

    pub async fn read_pvc(&self, name: &str) -> PersistentVolumeClaim {
        self.pvc_api().get(name).await.unwrap()
    }

    pub async fn delete_pvc(&self, name: &str) {
        self.pvc_api().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Says which node the first consumer of a claim is to run on, as the scheduler does.
    pub async fn choose(&self, claim: &str, node: &str) {
        let patch = json!({ "metadata": { "annotations": { "volume.kubernetes.io/selected-node": node } } });
        self.pvc_api().patch(claim, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub async fn chosen(&self, claim: &str) -> Option<String> {
        self.read_pvc(claim).await.annotations().get("volume.kubernetes.io/selected-node").cloned()
    }

    pub async fn set_reclaim_policy(&self, volume: &str, policy: &str) {
        let patch = Patch::Merge(json!({ "spec": { "persistentVolumeReclaimPolicy": policy } }));
        self.pv_api().patch(volume, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Looks until something is found.
    pub async fn until<T, F: Future<Output = Option<T>>>(&self, what: &str, look: impl Fn() -> F) -> T {
        let found = tokio::time::timeout(PATIENCE, async {
            loop {
                if let Some(found) = look().await {
                    return found;
                }
                tokio::time::sleep(LOOK).await;
            }
        });
        let Ok(found) = found.await else {
            panic!("never happened: {what}; instead:\n{}", self.provisioning_story().await)
        };
        found
    }

    /// Waits until a claim is bound, and returns its PersistentVolume.
    pub async fn until_bound(&self, claim: &str) -> PersistentVolume {
        self.until(&format!("claim {claim} is bound"), || async {
            let found = self.read_pvc(claim).await;
            let bound = found.status.as_ref()?.phase.as_deref() == Some("Bound");
            let name = found.spec?.volume_name.filter(|_| bound)?;
            self.pv_api().get_opt(&name).await.unwrap()
        })
        .await
    }

    /// Waits until the provisioner of a claim is asked.
    pub async fn until_asked(&self, claim: &str) {
        self.until(&format!("a provisioner is asked for {claim}"), || async {
            let found = self.read_pvc(claim).await;
            found.annotations().contains_key("volume.kubernetes.io/storage-provisioner").then_some(())
        })
        .await;
    }

    pub async fn until_phase(&self, volume: &str, phase: &str) {
        self.until(&format!("PersistentVolume {volume} is {phase}"), || async {
            let found = self.pv_api().get(volume).await.unwrap();
            (found.status?.phase.as_deref() == Some(phase)).then_some(())
        })
        .await;
    }

    /// Waits until the driver has got a call about a volume.
    pub async fn until_called(&self, key: &str, rpc: Rpc) {
        let is = || async { (self.count(key, rpc) > 0).then_some(()) };
        self.until(&format!("{} is called for {key}", rpc.name()), is).await;
    }

    pub async fn until_volume_of_claim_gone(&self, uid: &str) {
        self.until(&format!("the Volume of claim {uid} is gone"), || async {
            self.provisioned_api().get_opt(&format!("pvc-{uid}")).await.unwrap().is_none().then_some(())
        })
        .await;
    }

    /// Waits until there is no PersistentVolume and no Volume of a claim.
    pub async fn until_nothing_provisioned(&self) {
        self.until("nothing is provisioned", || async {
            let (volumes, made) = (list(&self.pv_api()).await, list(&self.provisioned_api()).await);
            (volumes.is_empty() && made.is_empty()).then_some(())
        })
        .await;
    }

    /// Events about an object of this name, as reason and note.
    pub async fn events_of(&self, name: &str) -> Vec<(String, String)> {
        let events: Api<Event> = Api::all(self.cluster.admin.clone());
        let about = |event: &Event| event.regarding.as_ref().is_some_and(|r| r.name.as_deref() == Some(name));
        let all = list(&events).await.into_iter().filter(about);
        all.map(|event| (event.reason.unwrap_or_default(), event.note.unwrap_or_default())).collect()
    }

    /// Waits until an Event about an object has these words.
    pub async fn until_event(&self, name: &str, reason: &str, words: &str) {
        self.until(&format!("an Event {reason} on {name} says {words:?}"), || async {
            let events = self.events_of(name).await;
            events.iter().any(|(is, note)| is == reason && note.contains(words)).then_some(())
        })
        .await;
    }

    async fn provisioning_story(&self) -> String {
        let mut story = String::new();
        for claim in list(&self.pvc_api()).await {
            writeln!(story, "{} {:?}", claim.name_any(), self.events_of(&claim.name_any()).await).unwrap();
            writeln!(story, "{}", serde_json::to_string(&claim).unwrap()).unwrap();
        }
        for volume in list(&self.pv_api()).await {
            writeln!(story, "{}", serde_json::to_string(&volume).unwrap()).unwrap();
        }
        for volume in list(&self.provisioned_api()).await {
            writeln!(story, "{}", serde_json::to_string(&volume).unwrap()).unwrap();
        }
        story
            + &Journal::text(
                &self.journal.since(0, |e| crate::rig::Entry::write(e).is_none_or(|w| w.kind != "leases")),
            )
    }
}

pub async fn list<K>(api: &Api<K>) -> Vec<K>
where
    K: Clone + Debug + serde::de::DeserializeOwned,
{
    api.list(&ListParams::default()).await.unwrap().items
}
