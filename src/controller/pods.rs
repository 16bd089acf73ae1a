//! Claims that nodes' agents make for Pods: the live reads by which they are judged, and the Volumes that are made for them.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::Api;

use super::context::Context;
use super::key::VolumeKey;
use super::known::Known;
use super::observe::Observed;
use super::{claims, imports, provision};
use crate::api::claim::PodUse;
use crate::api::conditions::{Desired, Reason};
use crate::api::lock::{self, DriverVolume};
use crate::api::volume::DeletionPolicy;
use crate::api::{ClaimUid, Volume, VolumeClaim};
use crate::claim::entitled::{
    Asked, Found, PersistentVolumeClaimSeen, PersistentVolumeSeen, PodSeen, judge, living,
};
use crate::claim::{ClaimSeen, Entitled};
use crate::k8s::ApiError;
use crate::k8s::read::get_live;
use crate::plugin::served_as;

/// Looks whether the Pod of a claim is there and, before it is granted, whether it may have the volume. No grant is taken
/// back, so that nothing else matters after it.
pub(crate) async fn look(
    ctx: &Context,
    seen: &Observed,
    (of, claim): (&ClaimSeen, &VolumeClaim),
) -> Result<Entitled, ApiError> {
    let (Some(pod), Some(node)) = (&claim.spec.pod, &claim.spec.node_name) else {
        return Ok(Entitled::No("the claim says neither for which Pod it is nor on which node".into()));
    };
    let pods: Api<Pod> = Api::namespaced(ctx.client.clone(), &pod.namespace);
    if of.uses().is_some() {
        let found = get_live(&pods, &pod.name).await?.as_ref().map(PodSeen::of);
        return Ok(living(pod, found.as_ref()).map_or(Entitled::PodGone, |_| Entitled::Yes));
    }
    let persistent = pod.by_persistent_volume();
    let (found, (volume, bound)) = tokio::try_join!(get_live(&pods, &pod.name), bound(ctx, persistent))?;
    let found = Found { pod: found.as_ref().map(PodSeen::of), volume, claim: bound };
    let exporter = persistent.and_then(|name| imports::exporter(ctx, name));
    let exporter = exporter.map(|volume| VolumeKey::of_owner(&volume.reference()).to_string());
    let asked = Asked {
        pod,
        node,
        namespace: &seen.key.namespace,
        own_namespace: &ctx.namespace,
        volume: &seen.key.name,
        handle_name: seen.asked.handle_name.as_deref(),
        imported_with: seen.imported_with(),
        is_for_persistent: seen.is_for_persistent(&ctx.namespace),
        exported_as: seen.exported_as(),
        exporter: exporter.as_deref(),
    };
    Ok(judge(asked, &found))
}

/// The PersistentVolume of a claim that is for one, and the PersistentVolumeClaim that it is bound to.
async fn bound(
    ctx: &Context,
    name: Option<&str>,
) -> Result<(Option<PersistentVolumeSeen>, Option<PersistentVolumeClaimSeen>), ApiError> {
    let Some(name) = name else { return Ok((None, None)) };
    let volumes: Api<PersistentVolume> = Api::all(ctx.client.clone());
    let Some(volume) = get_live(&volumes, name).await? else { return Ok((None, None)) };
    let volume = PersistentVolumeSeen::of(&volume, |driver, id| handle_name(ctx, driver, id));
    let Some(to) = &volume.bound_to else { return Ok((Some(volume), None)) };
    let bound: Api<PersistentVolumeClaim> = Api::namespaced(ctx.client.clone(), &to.namespace);
    let bound = get_live(&bound, &to.name).await?;
    Ok((Some(volume), bound.as_ref().map(PersistentVolumeClaimSeen::of)))
}

/// Name of the VolumeHandle of a volume, by the name under which kubelets know its driver.
fn handle_name(known: &Known, kubelet_name: &str, id: &str) -> Option<String> {
    let all = known.plugins.all();
    let driver = served_as(kubelet_name, &all)?.driver_name();
    Some(lock::handle_name(DriverVolume { driver, handle: id }))
}

/// Makes the Volume of the PersistentVolume that a claim names.
pub(crate) async fn import(ctx: &Context, seen: &Observed, claim: &VolumeClaim) -> Result<bool, ApiError> {
    let named = claim.spec.pod.as_deref().and_then(PodUse::by_persistent_volume);
    let Some(name) = named else { return Ok(false) };
    let volumes: Api<PersistentVolume> = Api::all(ctx.client.clone());
    // It may have changed since it was looked at, and is then looked at anew.
    let Some(found) = get_live(&volumes, name).await? else { return Ok(look_anew(ctx, claim)) };
    if let Some(why) = imports::not_served(ctx, &found) {
        // A cache that is behind may not have it yet.
        let there: Api<Volume> = ctx.writer.api(&seen.key.namespace);
        if let Some(there) = get_live(&there, &seen.key.name).await? {
            ctx.volumes.apply(there);
            return Ok(true);
        }
        return refuse(ctx, claim, format!("PersistentVolume {name} is not taken up: {why}")).await;
    }
    let volume = imports::volume_for(ctx, &found);
    let Some(volume) = volume.filter(|volume| volume.metadata.name.as_deref() == Some(&seen.key.name)) else {
        return Ok(look_anew(ctx, claim));
    };
    match ctx.writer.create_in(&ctx.volumes, &volume).await {
        Ok(is_new) => {
            if is_new {
                tracing::info!(persistent_volume = name, volume = seen.key.name, "taken up");
            }
            Ok(true)
        }
        Err(error @ ApiError::Invalid { .. }) => {
            refuse(ctx, claim, format!("PersistentVolume {name} cannot be taken up: {error}")).await
        }
        Err(other) => Err(other),
    }
}

/// Removes the Volume that was made of a PersistentVolume which describes the volume otherwise than that of a claim. Its storage
/// stays, and the claim has the next one made.
pub(crate) async fn renew(ctx: &Context, volume: &Volume, claim: &VolumeClaim) -> Result<bool, ApiError> {
    let name = volume.metadata.name.as_deref();
    tracing::info!(
        volume = name,
        claim = claim.metadata.name,
        "made anew: its PersistentVolume is another one"
    );
    provision::delete(ctx, volume, DeletionPolicy::Retain, None).await?;
    Ok(look_anew(ctx, claim))
}

/// What was found does not hold any more.
fn look_anew(ctx: &Context, claim: &VolumeClaim) -> bool {
    ctx.pods.forget(&ClaimUid::of(&claim.metadata));
    true
}

/// Says on a claim that its Pod may not have the volume. Its agent deletes it.
pub(crate) async fn refuse(ctx: &Context, claim: &VolumeClaim, why: String) -> Result<bool, ApiError> {
    tracing::warn!(claim = claim.metadata.name, "not granted: {why}");
    claims::say(ctx, claim, &Desired::new(Reason::PodNotEntitled, why), |_| {}).await
}

/// Deletes a claim that has ended, was refused, or whose Pod is gone: kubelet's call for it ends. A claim that was mounted
/// meanwhile is not deleted: kubelet may have been told so, and have started what writes there, before it hears that the Pod
/// is to end.
pub(crate) async fn delete(ctx: &Context, claim: &VolumeClaim) -> Result<bool, ApiError> {
    ctx.writer.delete_as_seen(&ctx.claims, claim).await?;
    tracing::info!(
        claim = claim.metadata.name,
        "deleted: its Pod is gone, or it has ended, or was refused and left there"
    );
    Ok(true)
}
