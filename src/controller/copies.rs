//! One pass over a PersistentVolumeClaim that is kept because its volume is copied: it is let go when no copy is made of it.

use std::ops::ControlFlow;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;

use super::context::Context;
use super::reclaim::source;
use super::served;
use crate::api::provision::ProvisionedFor;
use crate::api::{Volume, VolumeState};
use crate::k8s::read::{get_live, look_through};
use crate::k8s::{ApiError, Next};
use crate::provision::{CLONING_PROTECTION, WatchedClaim, is_protected};

/// Settles one claim.
pub(crate) async fn run(ctx: &Context, claim: &ProvisionedFor) -> Next {
    if !ctx.leadership.is_leading() {
        return Next::Done;
    }
    match release(ctx, claim).await {
        Ok(()) => Next::Done,
        Err(error) => {
            error.log(claim, "a claim that was copied cannot be let go");
            error.next()
        }
    }
}

async fn release(ctx: &Context, claim: &ProvisionedFor) -> Result<(), ApiError> {
    // Whoever wants a copy of it, or has one made by what is known here, keeps it without a request.
    let wants = |other: &WatchedClaim| {
        other.awaits()
            && other.metadata.namespace.as_deref() == Some(&claim.namespace)
            && other.copies() == Some(&claim.name)
    };
    let makes = |volume: &Volume| is_making(volume, claim);
    if ctx.pvcs.all().iter().any(|other| wants(other)) || ctx.volumes.all().iter().any(|v| makes(v)) {
        return Ok(());
    }
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(ctx.client.clone(), &claim.namespace);
    let live = get_live(&claims, &claim.name).await?;
    let live = live.filter(|live| live.metadata.uid.as_deref() == Some(&claim.uid) && is_protected(live));
    let Some(live) = live else { return Ok(()) };
    if !is_served(ctx, &live).await? {
        return Ok(());
    }
    // A Volume that was made before this process led may not be known here yet.
    let mut is_made = false;
    look_through(&ctx.writer.api::<Volume>(&ctx.namespace), |volume: Volume| {
        is_made = makes(&volume);
        if is_made { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .await?;
    if !is_made {
        let mut after = live.clone();
        let finalizers = after.metadata.finalizers.get_or_insert_default();
        finalizers.retain(|finalizer| finalizer != CLONING_PROTECTION);
        ctx.writer.merge(&claims, &live, &after).await?;
        tracing::info!(%claim, "no copy of it is made any more");
    }
    Ok(())
}

/// Whether it is moor that copies the claim's volume. The finalizer is of the same name whoever does.
async fn is_served(ctx: &Context, claim: &PersistentVolumeClaim) -> Result<bool, ApiError> {
    let bound = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
    let Some(name) = bound.filter(|name| !name.is_empty()) else { return Ok(false) };
    let volume: Option<PersistentVolume> = get_live(&Api::all(ctx.client.clone()), name).await?;
    let source = volume.as_ref().and_then(source);
    Ok(source.is_some_and(|source| served::plugin_of(ctx, &source.driver).is_some()))
}

/// Whether CreateVolume may be copying the claim's volume into this one.
fn is_making(volume: &Volume, claim: &ProvisionedFor) -> bool {
    let copy = volume.spec.persistent_volume.as_ref().and_then(|provision| provision.copy_of.as_ref());
    copy.is_some_and(|copy| copy.claim == *claim) && volume.state() == VolumeState::Pending
}
