//! Volumes and claims of Pods, and the CSIDriver object.

use std::time::Instant;

use k8s_openapi::api::storage::v1::CSIDriver;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Error};
use moor::api::capability::VolumeUse;
use moor::api::volume::VolumeSpec;
use moor::api::{AccessMode, AttachmentMode, Volume, VolumeClaim, VolumeState};
use serde_json::json;

use super::super::cluster::missing_is_fine;
use super::super::fake::DRIVER;
use super::super::{LOOK, NAMESPACE, PATIENCE, Rig, volume};

impl Rig {
    /// Makes the CSIDriver object, if nobody has yet.
    pub async fn make_csi_driver(&self) {
        let all: Api<CSIDriver> = Api::all(self.cluster.admin.clone());
        let spec = json!({"attachRequired": false, "podInfoOnMount": true});
        let object = serde_json::from_value(json!({"metadata": {"name": DRIVER}, "spec": spec})).unwrap();
        match all.create(&PostParams::default(), &object).await {
            Ok(_) => {}
            Err(Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Makes a Volume in moor's own namespace, where those of PersistentVolumes are, and waits until it is Ready.
    pub async fn make_volume_for_pods(&self, key: &str) {
        self.make_volume_for_pods_with(key, |_| {}).await;
    }

    /// As [`Self::make_volume_for_pods`], a raw device.
    pub async fn make_device_for_pods(&self, key: &str) {
        let raw =
            VolumeUse { access_mode: AccessMode::default(), attachment_mode: AttachmentMode::BlockDevice };
        self.make_volume_for_pods_with(key, |spec| spec.capabilities = vec![raw]).await;
    }

    /// As [`Self::make_volume_for_pods`], with something that is otherwise.
    pub async fn make_volume_for_pods_with(&self, key: &str, change: impl FnOnce(&mut VolumeSpec)) {
        let api = self.volumes_for_pods();
        let mut made = volume(key);
        change(&mut made.spec);
        made.metadata.namespace = Some(NAMESPACE.to_owned());
        api.create(&PostParams::default(), &made).await.unwrap();
        self.poll(&format!("Volume {key} is Ready"), || async {
            let state = api.get(key).await.unwrap().status.map(|status| status.state);
            state == Some(VolumeState::Ready)
        })
        .await;
    }

    /// Waits until no claim of a Pod is left, deletes a Volume of [`Self::make_volume_for_pods`], and waits until nothing
    /// is left of anything.
    pub async fn remove_for_pods(&self, key: &str) {
        self.remove_all_for_pods(&[key]).await;
    }

    /// As [`Self::remove_for_pods`], of several.
    pub async fn remove_all_for_pods(&self, keys: &[&str]) {
        self.until_no_pod_claims().await;
        // Storage that a PersistentVolume names is not deleted.
        self.cluster.remove_pods_and_their_volumes().await;
        let api = self.volumes_for_pods();
        for key in keys {
            missing_is_fine(api.delete(key, &DeleteParams::default()).await.map(drop));
        }
        let gone = || async {
            let left = api.list(&ListParams::default()).await.unwrap();
            left.items.is_empty()
        };
        self.poll("the Volumes are gone", gone).await;
        self.assert_nothing_left().await;
    }

    /// Waits until no claim of a Pod is left.
    pub async fn until_no_pod_claims(&self) {
        self.poll("no claim of a Pod is left", || async { self.pod_claims().await.is_empty() }).await;
    }

    /// All claims of Pods, read live.
    pub async fn pod_claims(&self) -> Vec<VolumeClaim> {
        self.claims_for_pods().list(&ListParams::default()).await.unwrap().items
    }

    pub fn claims_for_pods(&self) -> Api<VolumeClaim> {
        Api::namespaced(self.cluster.admin.clone(), NAMESPACE)
    }

    pub fn volumes_for_pods(&self) -> Api<Volume> {
        Api::namespaced(self.cluster.admin.clone(), NAMESPACE)
    }

    /// Asks until the answer is yes.
    pub async fn poll<F: Future<Output = bool>>(&self, what: &str, mut is: impl FnMut() -> F) {
        let end = Instant::now() + PATIENCE;
        while !is().await {
            assert!(Instant::now() < end, "never happened: {what}");
            tokio::time::sleep(LOOK).await;
        }
    }
}
