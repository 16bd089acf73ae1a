//! One pass over a Volume that Pods are to use by a PersistentVolumeClaim, or were to; and which events ask for one.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::Preconditions;
use kube::{Api, Resource, ResourceExt as _};
use serde::Serialize;

use super::caches::{BY_NAMESPACE, BY_OWNER, BY_VOLUME};
use super::context::Context;
use super::imports::{exporter, say};
use super::key::{Key, VolumeKey};
use super::known::Known;
use super::served;
use super::steps;
use crate::api::conditions::{Desired, EXPORTED, Reason, first_few};
use crate::api::{Volume, VolumeClaim, VolumeHandle, VolumeStatus, names};
use crate::claim::not_entitled;
use crate::k8s::read::{Readable, get_live};
use crate::k8s::{ApiError, Created, Next};
use crate::provision::{Export, ExportSeen, WatchedClaim, export, exported_claim, is_export};

/// Time between looks at what no watch tells, or what somebody has to change.
const RECHECK: Duration = Duration::from_secs(30);
/// So many Pods are named.
const NAMED: usize = 3;

/// Settles the export of one Volume.
pub(crate) async fn run(ctx: &Context, key: &VolumeKey) -> Next {
    steps::run(ctx, "exporting", key, || step(ctx, key)).await
}

/// One step; None: something has changed, and it is looked at again.
async fn step(ctx: &Context, key: &VolumeKey) -> Result<Option<Next>, ApiError> {
    if !ctx.volumes.get_in(key.named()).is_some_and(|volume| is_export(&volume)) {
        return Ok(Some(Next::Done));
    }
    // As it is now: nothing is made for a Volume that is gone, nor anew for one that has just been taken back.
    let Some(volume) = get_live(&ctx.writer.api::<Volume>(&key.namespace), &key.name).await? else {
        return Ok(Some(Next::Done));
    };
    ctx.volumes.apply(volume.clone());
    let uid = volume.metadata.uid.as_deref().unwrap_or_default();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let persistents: Api<PersistentVolume> = Api::all(ctx.client.clone());
    let claim = async {
        match exported_claim(&volume) {
            Some(name) => get_live(&claims, name).await,
            None => Ok(None),
        }
    };
    let name = names::export(uid);
    let (claim, persistent) = tokio::try_join!(claim, get_live(&persistents, &name))?;
    let handle = ctx.handles.by_index(BY_OWNER, uid).into_iter().next();
    let driver = handle.as_deref().and_then(|handle| driver_of(ctx, &volume, handle));
    let seen = ExportSeen {
        volume: &volume,
        own_namespace: &ctx.namespace,
        driver: driver.as_deref(),
        volume_handle: handle.as_deref().map(|handle| handle.spec.volume_handle.as_str()),
        used_by: used_by(ctx, key, &name),
        claim: claim.as_ref(),
        persistent: persistent.as_ref(),
    };
    match export(&seen) {
        Export::Nothing => return Ok(Some(Next::Done)),
        Export::Say(desired) => {
            say(ctx, &volume, &desired).await?;
            let next = if desired.reason.group().status { Next::Done } else { Next::After(RECHECK) };
            return Ok(Some(next));
        }
        Export::Record(exported) => {
            write(ctx, &volume, |status| status.export = Some(exported.into())).await?;
        }
        Export::MakePersistentVolume(made) => return make(ctx, &volume, &persistents, &*made).await,
        Export::MakeClaim(made) => return make(ctx, &volume, &claims, &*made).await,
        Export::Change(after) => {
            if let Some(before) = &persistent {
                ctx.writer.merge(&persistents, before, &after).await?;
            }
        }
        Export::DeleteClaim => {
            if let Some(claim) = &claim {
                ctx.writer.delete(&claims, &claim.name_any(), as_seen(claim)).await?;
                tracing::info!(volume = %key, "its PersistentVolumeClaim is deleted");
            }
        }
        Export::DeletePersistentVolume => {
            if let Some(persistent) = &persistent {
                ctx.writer.delete(&persistents, &name, as_seen(persistent)).await?;
                tracing::info!(volume = %key, "its PersistentVolume is deleted");
            }
        }
        Export::End => {
            let end = |status: &mut VolumeStatus| {
                status.export = None;
                status.conditions.retain(|condition| condition.type_ != EXPORTED);
            };
            write(ctx, &volume, end).await?;
        }
    }
    Ok(None)
}

/// Makes one of the two objects. One of its name that is there already is looked at in the next step.
async fn make<K>(ctx: &Context, volume: &Volume, api: &Api<K>, object: &K) -> Result<Option<Next>, ApiError>
where
    K: Readable + Serialize,
{
    match ctx.writer.create(api, object).await {
        Ok(Created::New(_) | Created::Exists) => Ok(None),
        Err(error) => match error.refusal() {
            Some(refusal) => {
                say(ctx, volume, &Desired::new(Reason::CannotExport, refusal)).await?;
                Ok(Some(Next::After(RECHECK)))
            }
            None => Err(error),
        },
    }
}

fn as_seen<K: Resource>(object: &K) -> Preconditions {
    Preconditions { uid: object.uid(), resource_version: object.resource_version() }
}

async fn write(
    ctx: &Context,
    volume: &Volume,
    change: impl FnOnce(&mut VolumeStatus),
) -> Result<(), ApiError> {
    let mut status = volume.status.clone().unwrap_or_default();
    change(&mut status);
    ctx.writer.update_status(&ctx.volumes, volume, &status).await.map(drop)
}

/// The name of the driver at kubelets, if the Volume's Plugin serves Pods, and with the driver that has the storage.
fn driver_of(known: &Known, volume: &Volume, handle: &VolumeHandle) -> Option<String> {
    let plugin = known.plugins.get(&volume.spec.plugin_name)?;
    let name = plugin.kubelet_name()?;
    let serves = served::plugin_of(known, name)?.metadata.uid == plugin.metadata.uid;
    (serves && handle.spec.driver_name == plugin.driver_name()).then(|| name.to_owned())
}

/// The Pods that have the volume by its PersistentVolume, or wait for it.
fn used_by(known: &Known, key: &VolumeKey, persistent: &str) -> Option<String> {
    let claims = known.claims.by_index(BY_VOLUME, &key.to_string());
    // A Pod that has no right to it does not keep it, nor does one that an agent has made up.
    let counts = |claim: &&Arc<VolumeClaim>| not_entitled(claim).is_none() && !claim.is_let_go();
    let pods = claims.iter().filter(counts).filter_map(|claim| {
        let pod = claim.spec.pod.as_ref().filter(|pod| pod.by_persistent_volume() == Some(persistent))?;
        let node = claim.spec.node_name.as_deref().unwrap_or_default();
        Some(format!("Pod {}/{} on node {node}", pod.namespace, pod.name))
    });
    let named = first_few(pods, NAMED);
    (!named.is_empty()).then_some(named)
}

fn add(known: &Known, volume: &Volume) {
    if is_export(volume) {
        known.queue.add(Key::Export(VolumeKey::of_owner(&volume.reference())));
    }
}

/// A Volume comes or changes.
pub(crate) fn volume_changed(known: &Known, volume: &Volume) {
    add(known, volume);
}

/// The PersistentVolume of this name is released, being deleted or gone.
pub(crate) fn persistent_volume_changed(known: &Known, name: &str) {
    if let Some(volume) = exporter(known, name) {
        add(known, &volume);
    }
}

/// A PersistentVolumeClaim is gone: one by which a Volume was exported, or one that had its name.
pub(crate) fn pvc_gone(known: &Known, gone: &WatchedClaim) {
    let named = gone.named();
    for volume in known.volumes.by_index(BY_NAMESPACE, &named.namespace) {
        if exported_claim(&volume) == Some(&named.name) {
            add(known, &volume);
        }
    }
}

/// A claim of a Pod is gone, and may be what the end of an export waits for.
pub(crate) fn claim_gone(known: &Known, claim: &VolumeClaim) {
    if claim.spec.pod.is_some()
        && let Some(volume) = known.volumes.get_in(VolumeKey::of_claim(claim).named())
    {
        add(known, &volume);
    }
}

/// A driver's name begins to be served, or ends. A Plugin that serves none may have served this one.
pub(crate) fn name_changed(known: &Known, name: &str) {
    let is_of = |volume: &Volume| {
        let plugin = known.plugins.get(&volume.spec.plugin_name);
        plugin.is_none_or(|plugin| plugin.kubelet_name().is_none_or(|now| now == name))
    };
    for volume in known.volumes.all().iter().filter(|volume| is_of(volume)) {
        add(known, volume);
    }
}
