//! Plays the part that kube-controller-manager has in the life of PersistentVolumeClaims and PersistentVolumes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, Error, ResourceExt as _};
use serde_json::{Value, json};
use tokio::task::AbortHandle;

use super::LOOK;

const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// Binds, releases, and takes its own finalizers off, until it is dropped.
pub struct Binder(AbortHandle);

impl Drop for Binder {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Binder {
    pub fn start(admin: &Client) -> Self {
        let admin = admin.clone();
        let task = tokio::spawn(async move {
            loop {
                // What fails is looked at again.
                let _ = settle(&admin).await;
                tokio::time::sleep(LOOK).await;
            }
        });
        Self(task.abort_handle())
    }
}

async fn settle(admin: &Client) -> Result<(), Error> {
    let volumes: Api<PersistentVolume> = Api::all(admin.clone());
    let claims: Api<PersistentVolumeClaim> = Api::all(admin.clone());
    let classes: Api<StorageClass> = Api::all(admin.clone());
    let classes = classes.list(&ListParams::default()).await?.items;
    let classes: BTreeMap<String, StorageClass> = classes.into_iter().map(|c| (c.name_any(), c)).collect();
    // Before the claims: one that is not there when its volume was is gone, and not still to come.
    let all_volumes = volumes.list(&ListParams::default()).await?.items;
    let all_claims = claims.list(&ListParams::default()).await?.items;
    for claim in &all_claims {
        ask(admin, claim, &classes).await?;
        if claim.metadata.deletion_timestamp.is_some() {
            let api = claims_of(admin, claim);
            let left = without(claim.metadata.finalizers.as_deref(), "kubernetes.io/pvc-protection");
            patch(&api, &claim.name_any(), left.as_ref()).await?;
        }
    }
    for volume in all_volumes {
        let spec = volume.spec.clone().unwrap_or_default();
        let to = spec.claim_ref.unwrap_or_default();
        let is_named = |claim: &&PersistentVolumeClaim| {
            claim.namespace() == to.namespace && Some(claim.name_any()) == to.name
        };
        let reserved = all_claims.iter().find(|claim| to.uid.is_none() && is_named(claim));
        let uid = to.uid.clone().or_else(|| reserved.and_then(kube::ResourceExt::uid));
        if to.uid.is_none() && uid.is_some() {
            let bound = json!({"spec": {"claimRef": {"uid": uid}}});
            patch(&volumes, &volume.name_any(), Some(&bound)).await?;
        }
        let claim = all_claims.iter().find(|claim| claim.uid() == uid && uid.is_some());
        let phase = match claim {
            Some(claim) => {
                bind(admin, claim, &volume).await?;
                "Bound"
            }
            None if uid.is_some() => "Released",
            None => "Available",
        };
        if volume.status.as_ref().and_then(|status| status.phase.as_deref()) != Some(phase) {
            let status = Patch::Merge(json!({"status": {"phase": phase}}));
            volumes.patch_status(&volume.name_any(), &PatchParams::default(), &status).await?;
        }
        if volume.metadata.deletion_timestamp.is_some() && phase != "Bound" {
            let left = without(volume.metadata.finalizers.as_deref(), "kubernetes.io/pv-protection");
            patch(&volumes, &volume.name_any(), left.as_ref()).await?;
        }
    }
    Ok(())
}

fn claims_of(admin: &Client, claim: &PersistentVolumeClaim) -> Api<PersistentVolumeClaim> {
    Api::namespaced(admin.clone(), &claim.namespace().unwrap_or_default())
}

/// Asks the provisioner of the claim's class.
async fn ask(
    admin: &Client,
    claim: &PersistentVolumeClaim,
    classes: &BTreeMap<String, StorageClass>,
) -> Result<(), Error> {
    let spec = claim.spec.clone().unwrap_or_default();
    let Some(class) = spec.storage_class_name.as_ref().and_then(|name| classes.get(name)) else {
        return Ok(());
    };
    let late = class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer");
    let chosen = claim.annotations().contains_key(SELECTED_NODE);
    let asked = claim.annotations().contains_key(PROVISIONER);
    if asked || (late && !chosen) || spec.volume_name.is_some() {
        return Ok(());
    }
    let asks = json!({"metadata": {"annotations": {PROVISIONER: class.provisioner}}});
    patch(&claims_of(admin, claim), &claim.name_any(), Some(&asks)).await
}

async fn bind(admin: &Client, claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Result<(), Error> {
    let api = claims_of(admin, claim);
    if claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).is_none() {
        patch(&api, &claim.name_any(), Some(&json!({"spec": {"volumeName": volume.name_any()}}))).await?;
    }
    if claim.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Bound") {
        let capacity = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref());
        let class = volume.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_ref());
        let status =
            json!({"phase": "Bound", "capacity": capacity, "currentVolumeAttributesClassName": class});
        let status = Patch::Merge(json!({"status": status}));
        api.patch_status(&claim.name_any(), &PatchParams::default(), &status).await?;
    }
    Ok(())
}

fn without(finalizers: Option<&[String]>, one: &str) -> Option<Value> {
    let all = finalizers.filter(|all| all.iter().any(|f| f == one))?;
    let left: Vec<_> = all.iter().filter(|f| *f != one).collect();
    Some(json!({"metadata": {"finalizers": left}}))
}

async fn patch<K>(api: &Api<K>, name: &str, body: Option<&Value>) -> Result<(), Error>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    match body {
        Some(body) => api.patch(name, &PatchParams::default(), &Patch::Merge(body)).await.map(drop),
        None => Ok(()),
    }
}
