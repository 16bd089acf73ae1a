//! Pods, PersistentVolumes and what binds them, as Kubernetes' own controllers leave them.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, ServiceAccount};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Error};
use serde_json::{Value, json};

use super::{Cluster, SPACE};

fn object<K: serde::de::DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

impl Cluster {
    /// As [`Self::bind`], unless both are there.
    pub async fn bind_once(&self, volume: &str, claim: &str, csi: &Value, is_block: bool) {
        let volumes: Api<PersistentVolume> = Api::all(self.admin.clone());
        if volumes.get_opt(volume).await.unwrap().is_none() {
            self.bind_as(volume, claim, csi, if is_block { "Block" } else { "Filesystem" }).await;
        }
    }

    /// Makes a PersistentVolume and a PersistentVolumeClaim that are bound to each other.
    pub async fn bind(&self, volume: &str, claim: &str, csi: &Value) {
        self.bind_as(volume, claim, csi, "Filesystem").await;
    }

    async fn bind_as(&self, volume: &str, claim: &str, csi: &Value, volume_mode: &str) {
        let admin = &self.admin;
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(admin.clone(), SPACE);
        let (modes, size) = (json!(["ReadWriteOnce"]), json!({"storage": "1Mi"}));
        let made = claims
            .create(
                &PostParams::default(),
                &object(json!({
                    "metadata": {"name": claim},
                    "spec": {
                        "accessModes": modes, "volumeName": volume, "storageClassName": "",
                        "volumeMode": volume_mode,
                        "resources": {"requests": size},
                    },
                })),
            )
            .await
            .unwrap();
        let bound = Patch::Merge(json!({"status": {"phase": "Bound"}}));
        claims.patch_status(claim, &PatchParams::default(), &bound).await.unwrap();
        let to = json!({"namespace": SPACE, "name": claim, "uid": made.metadata.uid});
        self.make_persistent_volume_as(volume, csi, &to, volume_mode).await;
    }

    /// Makes a PersistentVolume that is bound to what `to` says.
    pub async fn make_persistent_volume(&self, name: &str, csi: &Value, to: &Value) {
        self.make_persistent_volume_as(name, csi, to, "Filesystem").await;
    }

    async fn make_persistent_volume_as(&self, name: &str, csi: &Value, to: &Value, volume_mode: &str) {
        let volumes: Api<PersistentVolume> = Api::all(self.admin.clone());
        let made = object(json!({
            "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Mi"}, "csi": csi, "claimRef": to,
                "volumeMode": volume_mode, "persistentVolumeReclaimPolicy": "Retain",
            },
        }));
        volumes.create(&PostParams::default(), &made).await.unwrap();
    }

    /// Makes a Pod that is bound to a node.
    pub async fn make_pod(&self, name: &str, node: &str, volumes: &Value) -> Pod {
        // The API server takes no Pod without it, and nobody else makes it here.
        let accounts: Api<ServiceAccount> = Api::namespaced(self.admin.clone(), SPACE);
        let account = object(json!({"metadata": {"name": "default"}}));
        match accounts.create(&PostParams::default(), &account).await {
            Ok(_) => {}
            Err(Error::Api(status)) if status.code == 409 => {}
            Err(error) => panic!("{error}"),
        }
        let pod = object(json!({
            "metadata": {"name": name},
            "spec": {
                "nodeName": node, "volumes": volumes, "automountServiceAccountToken": false,
                "containers": [{"name": "main", "image": "none"}],
            },
        }));
        let pods: Api<Pod> = Api::namespaced(self.admin.clone(), SPACE);
        pods.create(&PostParams::default(), &pod).await.unwrap()
    }
}
